//! The world's copy of a cluster's watched objects.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplate};
use kube::Client;
use roadstead_api::autoscaling::v1::ProvisioningRequest;

use crate::model::jobset::JobSet;
use crate::model::ray::RayJob;
use crate::model::torch::PyTorchJob;
use crate::watched::Watched;

/// Which kinds are watched.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one answer per kind, each read in one place"
)]
pub(crate) struct Parts {
    pub(crate) jobs: bool,
    pub(crate) job_sets: bool,
    pub(crate) torch_jobs: bool,
    pub(crate) ray_jobs: bool,
    pub(crate) pods: bool,
    pub(crate) nodes: bool,
    pub(crate) capacity: bool,
}

/// The cluster's objects that decisions need.
pub(crate) struct Cluster {
    pub(crate) jobs: Watched<Job>,
    pub(crate) job_sets: Watched<JobSet>,
    pub(crate) torch_jobs: Watched<PyTorchJob>,
    pub(crate) ray_jobs: Watched<RayJob>,
    pub(crate) pods: Watched<Pod>,
    pub(crate) nodes: Watched<Node>,
    pub(crate) templates: Watched<PodTemplate>,
    pub(crate) requests: Watched<ProvisioningRequest>,
}

impl Cluster {
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            jobs: Watched::new(client),
            job_sets: Watched::new(client),
            torch_jobs: Watched::new(client),
            ray_jobs: Watched::new(client),
            pods: Watched::new(client),
            nodes: Watched::new(client),
            templates: Watched::new(client),
            requests: Watched::new(client),
        }
    }

    /// Takes in one change, and then all that have arrived already.
    pub(crate) async fn next(&mut self, parts: Parts) {
        self.turn(parts).await;
        loop {
            tokio::select! {
                biased;
                () = self.turn(parts) => {}
                () = std::future::ready(()) => return,
            }
        }
    }

    /// Takes in one change of a watched kind. Kinds that no part needs are not watched.
    async fn turn(&mut self, parts: Parts) {
        let Parts {
            jobs,
            job_sets,
            torch_jobs,
            ray_jobs,
            pods,
            nodes,
            capacity,
        } = parts;
        tokio::select! {
            biased;
            () = self.jobs.turn(), if jobs => {}
            () = self.job_sets.turn(), if job_sets => {}
            () = self.torch_jobs.turn(), if torch_jobs => {}
            () = self.ray_jobs.turn(), if ray_jobs => {}
            () = self.pods.turn(), if pods => {}
            () = self.nodes.turn(), if nodes => {}
            () = self.templates.turn(), if capacity => {}
            () = self.requests.turn(), if capacity => {}
            else => std::future::pending().await,
        }
    }
}
