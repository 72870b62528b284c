//! Several control planes that start together: one for the manager, one per worker.

use futures::future::{try_join, try_join_all};

use crate::options::Options;
use crate::plane::{ControlPlane, Error, locate};

/// The control planes of a federation. Several federations can run side by side: they share no port or path.
#[derive(Debug)]
pub struct Federation {
    /// The management cluster's control plane.
    pub manager: ControlPlane,
    /// The workers' control planes, in the order of the options.
    pub workers: Vec<ControlPlane>,
}

impl Federation {
    /// Starts all planes at once; if one fails, the others are stopped.
    pub async fn start(manager: Options, workers: Vec<Options>) -> Result<Self, Error> {
        // Why first: otherwise planes that start together would wait for each other's builds, and report that.
        for options in workers.iter().chain([&manager]) {
            locate(options).await?;
        }
        let workers = try_join_all(workers.into_iter().map(ControlPlane::start));
        let (manager, workers) = try_join(ControlPlane::start(manager), workers).await?;
        Ok(Self { manager, workers })
    }

    /// The worker with this name.
    pub fn worker(&self, name: &str) -> Option<&ControlPlane> {
        self.workers.iter().find(|worker| worker.name() == name)
    }

    /// Ends all processes and removes all files, as dropping does.
    pub fn stop(self) {
        drop(self);
    }
}
