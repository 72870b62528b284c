//! Condition `Active` of the AdmissionChecks that belong to MultiKueue, and what they mean for dispatch.
//!
//! Invariant: the answer is computed from caches alone, so it can be computed again at every change.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use roadstead_api::constants::controllers;
use roadstead_api::kueue::v1beta2::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig};
use roadstead_core::check::{self, MULTIKUEUE_PARAMETERS, Parameters, Usable};
use roadstead_core::name::{CheckName, ClusterName};
use roadstead_engine::active::condition_patch;
use roadstead_engine::clock::Clock;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::write::{self, Written};
use tokio_util::sync::CancellationToken;

/// How long after a write that failed it is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The caches that describe the federation.
#[derive(Clone)]
pub(crate) struct Federation {
    /// AdmissionChecks.
    pub(crate) checks: Arc<Cache<AdmissionCheck>>,
    /// MultiKueueConfigs.
    pub(crate) configs: Arc<Cache<MultiKueueConfig>>,
    /// MultiKueueClusters.
    pub(crate) clusters: Arc<Cache<MultiKueueCluster>>,
}

impl Federation {
    /// Whether everything that describes the federation has been listed and is being watched. Before that nothing may be
    /// decided: a cluster that is only not known yet would count as gone.
    pub(crate) fn is_known(&self) -> bool {
        self.checks.is_live() && self.configs.is_live() && self.clusters.is_live()
    }

    /// Whether this check is one of ours.
    pub(crate) fn is_ours(&self, name: &CheckName) -> bool {
        self.checks
            .named(name.as_str())
            .is_some_and(|c| c.spec.controller_name == controllers::MULTIKUEUE)
    }

    /// The clusters of a check, in the order of its MultiKueueConfig.
    ///
    /// *Errors*: the text for condition `Active` (`spec/multikueue.md 1.4`).
    pub(crate) fn clusters_of(&self, check: &AdmissionCheck) -> Result<Vec<ClusterName>, String> {
        let reference = check.spec.parameters.as_ref().map(|p| Parameters {
            group: p.api_group.clone(),
            kind: p.kind.clone(),
            name: p.name.clone(),
        });
        let name = check::parameters(reference.as_ref(), MULTIKUEUE_PARAMETERS)?;
        let config = self
            .configs
            .named(name)
            .ok_or_else(|| format!("MultiKueueConfig.kueue.x-k8s.io \"{name}\" not found"))?;
        Ok(config
            .spec
            .clusters
            .iter()
            .map(|cluster| ClusterName::from(cluster.as_str()))
            .collect())
    }

    /// The clusters of the check of this name; none when it cannot be resolved.
    pub(crate) fn clusters_of_name(&self, name: &CheckName) -> Vec<ClusterName> {
        let check = self.checks.named(name.as_str());
        check
            .and_then(|check| self.clusters_of(&check).ok())
            .unwrap_or_default()
    }

    fn usable(&self, name: &ClusterName) -> Usable {
        match self.clusters.named(name.as_str()) {
            None => Usable::Missing,
            Some(cluster) => {
                let conditions = cluster
                    .status
                    .as_ref()
                    .map(|s| s.conditions.as_slice())
                    .unwrap_or_default();
                let active = conditions
                    .iter()
                    .any(|c| c.type_ == "Active" && c.status == "True");
                if active { Usable::Yes } else { Usable::Inactive }
            }
        }
    }

    /// Writes condition `Active` of our checks whenever it should say something else, until `stop`.
    pub(crate) async fn run(self, client: Client, clock: Clock, stop: CancellationToken) {
        let touched = Arc::new(Dirty::new());
        // Why one bell for all: there is one such check per federation, and it reads all clusters anyway.
        let bell = touched.clone();
        self.checks.listen(move |_| bell.mark(()));
        let bell = touched.clone();
        self.configs.listen(move |_| bell.mark(()));
        let bell = touched.clone();
        self.clusters.listen(move |_| bell.mark(()));
        touched.mark(());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = touched.take() => {}
            }
            for check in self.checks.all() {
                if check.spec.controller_name == controllers::MULTIKUEUE {
                    self.write(&client, &check, &clock, &touched).await;
                }
            }
        }
    }

    async fn write(&self, client: &Client, check: &AdmissionCheck, clock: &Clock, touched: &Dirty<()>) {
        let name = check.metadata.name.as_deref().unwrap_or_default();
        let clusters = self.clusters_of(check).map(|names| {
            names
                .into_iter()
                .map(|name| (name.clone(), self.usable(&name)))
                .collect::<Vec<_>>()
        });
        let active = check::multikueue(clusters.as_deref().map_err(String::as_str));
        let old = check
            .status
            .as_ref()
            .map(|s| s.conditions.as_slice())
            .unwrap_or_default();
        let Some(patch) = condition_patch(old, &active, check.metadata.generation, clock()) else {
            return;
        };
        let api: Api<AdmissionCheck> = Api::all(client.clone());
        match write::patch_status(&api, name, &patch).await {
            Written::Done(object) => self.checks.observe(*object),
            Written::Gone | Written::Conflict | Written::AlreadyExists => {}
            Written::Refused(why) | Written::Unclear(why) => {
                tracing::warn!(admission_check = name, "writing condition Active failed: {why}");
                // Why a mark: nothing else would bring it up again, and as long as it does not stand there, no queue with this
                // check admits anything.
                touched.mark(());
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
