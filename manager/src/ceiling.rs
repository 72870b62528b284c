//! Whether any worker could ever hold a Workload of the manager.
//!
//! Invariant: the answer is no only when the limits of every worker of its config are known. The limits of a worker are unknown
//! while its queues were never listed or its MultiKueueCluster is missing. They stay known while the worker is lost. When the
//! worker is back they are listed again, and every Workload that was told so is looked at again.
//! *Source*: `spec/multikueue.md 4.3`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::{LocalQueue, Workload};
use roadstead_core::dispatch::ceiling::{exceeds_every, shortage};
use roadstead_core::name::{CheckName, ClusterName, Key};
use roadstead_core::queue::ClusterQueue;
use roadstead_engine::caches::{Caches, QueueIndex};
use roadstead_kubeio::cache::Cache;

use crate::capacity::Limit;
use crate::checks::Federation;
use crate::remote::registry::Registry;

/// The reason of condition `QuotaReserved` of those that are larger than every worker.
const EXCEEDS_EVERY_WORKER: &str = "ExceedsEveryWorker";

/// Lets the engine ask from now on. Called once, before anything is decided.
pub(crate) fn judge_in(caches: &Caches, federation: &Federation, registry: &Arc<Registry>) {
    let ceilings = Ceilings {
        federation: federation.clone(),
        registry: registry.clone(),
        local_queues: caches.local_queues.clone(),
        cluster_queues: caches.queues.clone(),
    };
    caches.beyond.judge_by(move |stored| ceilings.judge(stored));
}

/// What the judgement is made from.
struct Ceilings {
    federation: Federation,
    registry: Arc<Registry>,
    local_queues: Arc<Cache<LocalQueue>>,
    cluster_queues: Arc<QueueIndex>,
}

impl Ceilings {
    /// Why no worker can ever hold it, in a sentence; `None` if one may, or that is not known.
    fn judge(&self, stored: &Workload) -> Option<String> {
        if is_beyond_judging(stored) {
            return None;
        }
        let queue = Key::new(stored.namespace()?, stored.spec.queue_name.as_deref()?);
        let cluster_queue = self.cluster_queue_of(&queue)?;
        let check = self.check_of(&cluster_queue)?;
        // Why the plain request: what limit ranges of this cluster add is not on the copy.
        let workload = roadstead_convert::workload(stored);
        // Why: what no quota of this cluster can hold either is told so by its own queue, in the words of the reference.
        if shortage(&cluster_queue, &workload).is_some() {
            return None;
        }
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

    fn cluster_queue_of(&self, queue: &Key) -> Option<Arc<ClusterQueue>> {
        let local = self.local_queues.get(queue)?;
        self.cluster_queues.named(&local.spec.cluster_queue)
    }

    /// The check by which everything of a queue is dispatched.
    fn check_of(&self, queue: &ClusterQueue) -> Option<CheckName> {
        let all = queue.checks.iter().filter(|rule| rule.on_flavors.is_empty());
        let mut names = all.map(|rule| &rule.name);
        names.find(|check| self.federation.is_ours(check)).cloned()
    }
}

/// Whether the limits of the workers decide about it: it was told that it is larger than every worker, or it holds quota here and no
/// worker has taken it. Such a Workload is looked at again when a worker changes.
pub(crate) fn is_concerned(stored: &Workload) -> bool {
    let Some(quota) = stored.condition("QuotaReserved") else {
        return false;
    };
    let was_told = quota.status == "False" && quota.reason == EXCEEDS_EVERY_WORKER;
    was_told || quota.status == "True" && !is_beyond_judging(stored)
}

/// What a worker has taken, or what is over, keeps what it has.
fn is_beyond_judging(stored: &Workload) -> bool {
    stored.is_true("Finished") || stored.is_true("Admitted") || stored.cluster_name().is_some()
}
