//! How many Workloads stand where: finished, or not admitted and why, by LocalQueue; kept in step with the cache.
//!
//! Why not from the brain's reports: they know only what is pending or holds quota.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::amount::Amount;
use roadstead_core::name::{Key, ResourceName};

use super::transitions;

/// Where a Workload stands, as far as gauges tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It is over.
    Finished,
    /// It is not admitted.
    Unadmitted {
        /// Why.
        reason: String,
        /// What lies behind it, may be empty.
        cause: String,
    },
}

/// A group of Workloads that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    /// The LocalQueue that they name.
    pub(super) local_queue: Key,
    /// The ClusterQueue of their admission; without one it is that of the LocalQueue.
    pub(super) cluster_queue: Option<Arc<str>>,
    /// Where they stand.
    pub(super) standing: Standing,
}

/// Whether the requests of pending Workloads are added up. It costs a second reading of each pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requests {
    /// They are.
    Counted,
    /// They are not.
    Ignored,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Standings {
    requests: Requests,
    counts: Mutex<Counts>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    groups: BTreeMap<Group, u64>,
    /// What a pending Workload asks for.
    asking: BTreeMap<Key, (Key, Vec<(ResourceName, Amount)>)>,
    /// What all of a LocalQueue ask for.
    asked: BTreeMap<(Key, ResourceName), i128>,
}

impl Standings {
    pub(super) fn new(requests: Requests) -> Self {
        Self {
            requests,
            counts: Mutex::default(),
        }
    }

    /// A Workload changed.
    pub(super) fn note(&self, key: &Key, old: Option<&Workload>, new: Option<&Workload>) {
        let (before, after) = (old.and_then(group), new.and_then(group));
        if before != after {
            let mut counts = self.lock();
            if let Some(group) = before
                && let Some(count) = counts.groups.get_mut(&group)
            {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.groups.remove(&group);
                }
            }
            if let Some(group) = after {
                *counts.groups.entry(group).or_default() += 1;
            }
        }
        match self.requests {
            Requests::Ignored => {}
            Requests::Counted => {
                let asks = new.filter(|workload| is_pending(workload)).map(asks);
                self.lock().ask(key, asks);
            }
        }
    }

    /// How many stand where.
    pub(super) fn groups(&self) -> BTreeMap<Group, u64> {
        self.lock().groups.clone()
    }

    /// What pending Workloads ask for, by LocalQueue and resource.
    pub(super) fn asked(&self) -> BTreeMap<(Key, ResourceName), i128> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn ask(&mut self, key: &Key, asks: Option<(Key, Vec<(ResourceName, Amount)>)>) {
        if let Some((local, amounts)) = self.asking.remove(key) {
            self.change(&local, &amounts, -1);
        }
        if let Some((local, amounts)) = asks {
            self.change(&local, &amounts, 1);
            self.asking.insert(key.clone(), (local, amounts));
        }
    }

    fn change(&mut self, local: &Key, amounts: &[(ResourceName, Amount)], sign: i128) {
        for (resource, amount) in amounts {
            let at = (local.clone(), resource.clone());
            let sum = self.asked.entry(at.clone()).or_default();
            *sum += sign * i128::from(amount.get());
            if *sum == 0 {
                self.asked.remove(&at);
            }
        }
    }
}

fn local_queue(workload: &Workload) -> Key {
    Key::new(
        workload.metadata.namespace.as_deref().unwrap_or_default(),
        workload.spec.queue_name.as_deref().unwrap_or_default(),
    )
}

fn group(workload: &Workload) -> Option<Group> {
    let standing = if transitions::is_finished(workload) {
        Standing::Finished
    } else {
        let (reason, cause) = transitions::unadmitted(workload)?;
        Standing::Unadmitted { reason, cause }
    };
    let admission = workload.status.as_ref().and_then(|s| s.admission.as_ref());
    Some(Group {
        local_queue: local_queue(workload),
        cluster_queue: admission.map(|admission| admission.cluster_queue.as_str().into()),
        standing,
    })
}

/// Whether it waits for quota.
fn is_pending(workload: &Workload) -> bool {
    let reserved = workload.status.as_ref().is_some_and(|s| s.admission.is_some());
    !reserved && workload.is_active() && !transitions::is_finished(workload)
}

fn asks(workload: &Workload) -> (Key, Vec<(ResourceName, Amount)>) {
    let parsed = roadstead_convert::workload(workload);
    let mut sums: BTreeMap<ResourceName, Amount> = BTreeMap::new();
    for set in &parsed.pod_sets {
        for (resource, amount) in &set.requests {
            let sum = sums.entry(resource.clone()).or_default();
            *sum = sum.plus(amount.times(i64::from(set.count)));
        }
    }
    (local_queue(workload), sums.into_iter().collect())
}

#[cfg(test)]
mod tests;
