//! One cluster with the reference's controller alone, for comparisons with [`Solo`](super::Solo).

use std::ops::{Deref, DerefMut};

use serde_json::Value;
use tempfile::TempDir;

use super::account::{self, Who};
use super::kueue::{self, Kueue, Place};
use super::single::Single;
use super::subject::{Files, Subject};
use super::{Error, Part, client_of, objects, ports, system};
use crate::{ControlPlane, Options, Progress};

/// A running cluster with one process of the reference. Everything ends when it is dropped or this process dies.
#[derive(Debug)]
pub struct Rival {
    single: Single,
    token: String,
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
        let mut single = Single::new(subject, plane);
        single.wait("the reference").await?;
        Ok(Self {
            single,
            token,
            _dir: dir,
        })
    }

    /// The token of the account of its process, whose metrics are shown over HTTPS and with it only.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl Deref for Rival {
    type Target = Single;

    fn deref(&self) -> &Single {
        &self.single
    }
}

impl DerefMut for Rival {
    fn deref_mut(&mut self) -> &mut Single {
        &mut self.single
    }
}
