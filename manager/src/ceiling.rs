//! Whether any worker could ever hold a Workload of the manager.
//!
//! Invariant: it is said of none while the limits of one worker of its config are not known: that worker's queues were never listed, or
//! its MultiKueueCluster is not there. Limits that were listed stay known while the worker is lost; when it is back they are listed
//! again, and everything that was told so is looked at again.
//!
//! *Source*: `spec/multikueue.md 4.3`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::{LocalQueue, Workload};
use roadstead_core::dispatch::ceiling::exceeds_every;
use roadstead_core::name::{CheckName, ClusterName, Key};
use roadstead_engine::caches::QueueIndex;
use roadstead_kubeio::cache::Cache;

use crate::capacity::Limit;
use crate::checks::Federation;
use crate::remote::registry::Registry;

/// The reason of condition `QuotaReserved` of those that are larger than every worker.
const EXCEEDS_EVERY_WORKER: &str = "ExceedsEveryWorker";

/// What the judgement is made from.
pub(crate) struct Ceilings {
    pub(crate) federation: Federation,
    pub(crate) registry: Arc<Registry>,
    pub(crate) local_queues: Arc<Cache<LocalQueue>>,
    pub(crate) cluster_queues: Arc<QueueIndex>,
}

impl Ceilings {
    /// Why no worker can ever hold it, in a sentence; `None` if one may, or that is not known.
    pub(crate) fn judge(&self, stored: &Workload) -> Option<String> {
        if stored.is_true("Finished") || stored.is_true("Admitted") || stored.cluster_name().is_some() {
            return None;
        }
        let queue = Key::new(stored.namespace()?, stored.spec.queue_name.as_deref()?);
        let check = self.check_of(&queue)?;
        // Why the plain request: what limit ranges of this cluster add is not on the copy.
        let workload = roadstead_convert::workload(stored);
        let mut short = BTreeMap::<ClusterName, _>::new();
        for cluster in self.federation.clusters_of_name(&check) {
            match self.registry.get(&cluster)?.queues.limit(&queue, &workload) {
                Limit::Unknown | Limit::MayFit => return None,
                Limit::NoQueue => {}
                Limit::Short(shortage) => {
                    short.insert(cluster, shortage);
                }
            }
        }
        (!short.is_empty()).then(|| exceeds_every(&short))
    }

    /// The check by which everything of a queue is dispatched.
    fn check_of(&self, queue: &Key) -> Option<CheckName> {
        let local = self.local_queues.get(queue)?;
        let cluster_queue = self.cluster_queues.named(&local.spec.cluster_queue)?;
        let all = cluster_queue
            .checks
            .iter()
            .filter(|rule| rule.on_flavors.is_empty());
        let mut names = all.map(|rule| &rule.name);
        names.find(|check| self.federation.is_ours(check)).cloned()
    }
}

/// Whether a Workload was told that it is larger than every worker: it is looked at again when a worker changes.
pub(crate) fn was_told(stored: &Workload) -> bool {
    let quota = stored.condition("QuotaReserved");
    quota.is_some_and(|quota| quota.status == "False" && quota.reason == EXCEEDS_EVERY_WORKER)
}
