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
use roadstead_core::lifecycle::required_checks;
use roadstead_core::name::{CheckName, ClusterName, Key};
use roadstead_core::queue::ClusterQueue;
use roadstead_engine::caches::{Caches, QueueIndex};
use roadstead_kubeio::cache::Cache;

use crate::capacity::Limit;
use crate::checks::Federation;
use crate::remote::registry::Registry;

/// The reason of condition `QuotaReserved` of a Workload that is larger than every worker.
const EXCEEDS_EVERY_WORKER: &str = "ExceedsEveryWorker";

/// Gives the engine the judgement of this module. Called once, before the engine decides anything.
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
    /// Why no worker can ever hold a Workload, as a sentence for its user; `None` if a worker may hold it, or if that is not
    /// known.
    fn judge(&self, stored: &Workload) -> Option<String> {
        if is_beyond_judging(stored) {
            return None;
        }
        let queue = Key::new(stored.namespace()?, stored.spec.queue_name.as_deref()?);
        let cluster_queue = self.cluster_queue_of(&queue)?;
        let check = self.check_of(&cluster_queue)?;
        // Why the request without what limit ranges of the manager's cluster add: the copy does not have it.
        let workload = roadstead_convert::workload(stored);
        // Why: if the manager's own queue cannot hold the Workload either, its user is told so by that queue, in the words of the
        // reference.
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

    /// The MultiKueue check of a queue that applies to all its flavors.
    fn check_of(&self, queue: &ClusterQueue) -> Option<CheckName> {
        let mut names = required_checks(queue, None).into_iter();
        names.find(|check| self.federation.is_ours(check))
    }
}

/// Whether the limits of the workers decide about a Workload: its user was told that it is larger than every worker, or it holds
/// quota on the manager and no worker has taken it. Such a Workload is looked at again when a worker changes.
pub(crate) fn is_concerned(stored: &Workload) -> bool {
    let Some(quota) = stored.condition("QuotaReserved") else {
        return false;
    };
    let was_told = quota.status == "False" && quota.reason == EXCEEDS_EVERY_WORKER;
    was_told || quota.status == "True" && !is_beyond_judging(stored)
}

/// Whether a Workload is finished, admitted or placed, and so keeps its quota whatever the limits are.
fn is_beyond_judging(stored: &Workload) -> bool {
    stored.is_true("Finished") || stored.is_true("Admitted") || stored.cluster_name().is_some()
}
