//! One cluster with the reference's controller alone, for comparisons with [`Solo`](super::Solo).

use std::net::SocketAddr;
use std::time::Instant;

use kube::Client;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::account::{self, Who};
use super::kueue::{self, Kueue, Place};
use super::subject::{Files, Subject};
use super::{Error, PATIENCE, POLL, Part, client_of, objects, ports, system};
use crate::{ControlPlane, Options, Progress};

/// A running cluster with one process of the reference. Everything ends when it is dropped or this process dies.
#[derive(Debug)]
pub struct Rival {
    subject: Subject,
    token: String,
    // Invariant: declared after the process that uses it.
    plane: ControlPlane,
    _dir: TempDir,
}

impl Rival {
    /// Starts the cluster and the process. `configuration` is merged over the `Configuration` of the process.
    ///
    /// *Errors*: a missing program, a process that died (with the end of its log), a part that was not ready in time.
    pub async fn start(
        options: Options,
        configuration: &Value,
        kueue: &Kueue,
        progress: Progress,
    ) -> Result<Self, Error> {
        let plane = ControlPlane::start(options.with_progress(progress.clone()))
            .await
            .map_err(Error::Plane)?;
        let dir = tempfile::Builder::new()
            .prefix("roadstead-rival-")
            .tempdir()
            .map_err(system("creating a directory for the reference"))?;
        let (cluster, client) = (plane.name(), client_of(&plane)?);
        objects::make_own_namespace(cluster, &client).await?;
        account::grant(cluster, &client, Who::Kueue).await?;
        let token = account::token(cluster, &client).await?;
        let kubeconfig = dir.path().join("kubeconfig");
        plane
            .write_kubeconfig_for_token_via(&kubeconfig, &plane.server_url(), &token)
            .map_err(Error::Plane)?;
        let place = Place {
            config: dir.path().join("config.yaml"),
            certificates: dir.path().join("certificates"),
            ports: ports::free_ports()?,
        };
        let [_health, _metrics, webhook] = place.ports;
        kueue.install(cluster, &client, webhook).await?;
        progress.step("starting the reference");
        let files = Files {
            dir: dir.path(),
            kubeconfig: &kubeconfig,
            configuration,
        };
        let subject = Subject::start_kueue(cluster, Part::Worker, kueue, &place, files)?;
        kueue::mount(cluster, &client, &place.certificates).await?;
        let mut rival = Self {
            subject,
            token,
            plane,
            _dir: dir,
        };
        let started = Instant::now();
        while !ports::is_ready(rival.subject.health()).await {
            rival.subject.check()?;
            if started.elapsed() > PATIENCE {
                return Err(Error::NotReady {
                    what: "the reference is not ready".to_owned(),
                    waited: PATIENCE,
                    detail: rival.subject.log_tail(),
                });
            }
            sleep(POLL).await;
        }
        Ok(rival)
    }

    /// An administrator's client.
    pub fn client(&self) -> Result<Client, Error> {
        client_of(&self.plane)
    }

    /// Where its process shows its metrics, over HTTPS and with [`Rival::token`].
    pub const fn metrics(&self) -> SocketAddr {
        self.subject.metrics()
    }

    /// The token of its account.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The end of the log of the process.
    pub fn log_tail(&self) -> String {
        self.subject.log_tail()
    }
}
