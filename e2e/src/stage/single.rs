//! One cluster with one process: what [`Solo`](super::Solo) and [`Rival`](super::Rival) have in common.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::time::sleep;

use super::subject::Subject;
use super::usage::Memory;
use super::{Error, PATIENCE, POLL, client_of, ports};
use crate::ControlPlane;

/// A running cluster and its process. Both end when it is dropped or this process dies.
#[derive(Debug)]
pub struct Single {
    pub(super) subject: Subject,
    // Invariant: declared after the process that uses it.
    plane: ControlPlane,
}

impl Single {
    pub(super) const fn new(subject: Subject, plane: ControlPlane) -> Self {
        Self { subject, plane }
    }

    /// An administrator's client.
    pub fn client(&self) -> Result<Client, Error> {
        client_of(&self.plane)
    }

    /// The control plane.
    pub const fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Memory of the process.
    pub fn memory(&mut self) -> Result<Memory, Error> {
        self.subject.memory()
    }

    /// CPU time of the process so far, user and system.
    pub fn cpu(&mut self) -> Result<Duration, Error> {
        self.subject.cpu()
    }

    /// The address of the process's metrics.
    pub const fn metrics(&self) -> SocketAddr {
        self.subject.metrics()
    }

    /// The end of the process's log.
    pub fn log_tail(&self) -> String {
        self.subject.log_tail()
    }

    /// Waits until the process is ready. `name` is its name in the error.
    pub(super) async fn wait(&mut self, name: &str) -> Result<(), Error> {
        let started = Instant::now();
        while !ports::is_ready(self.subject.health()).await {
            self.subject.check()?;
            if started.elapsed() > PATIENCE {
                return Err(Error::NotReady {
                    what: format!("{name} is not ready"),
                    waited: PATIENCE,
                    detail: self.subject.log_tail(),
                });
            }
            sleep(POLL).await;
        }
        Ok(())
    }
}
