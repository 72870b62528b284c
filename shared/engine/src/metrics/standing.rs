//! How many Workloads are in which state: finished, or not admitted and why, by LocalQueue; kept in step with the cache.
//!
//! Why not from the brain's reports: they contain only Workloads that are pending or hold quota.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::amount::Amount;
use roadstead_core::name::{Key, ResourceName};
use roadstead_core::workload::Workload as Counted;

use super::board::Labels;
use super::transitions;

/// The state of a Workload, as far as gauges show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Finished,
    Unadmitted {
        reason: String,
        /// The underlying cause; may be empty.
        cause: String,
    },
}

/// A group of Workloads that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) local_queue: Key,
    /// The ClusterQueue of their admission, or without one, that of the LocalQueue.
    pub(super) cluster_queue: Option<Arc<str>>,
    pub(super) standing: Standing,
}

/// Whether the requests of pending Workloads are added up. That costs a second parse of each pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requests {
    Counted,
    Ignored,
}

/// Counts of all Workloads by state.
#[derive(Debug)]
pub(super) struct Standings {
    requests: Requests,
    counts: Mutex<Counts>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    groups: BTreeMap<Group, u64>,
    /// The requests of a pending Workload.
    asking: BTreeMap<Key, (Key, Vec<(ResourceName, Amount)>)>,
    /// The requests of all pending Workloads of a LocalQueue.
    asked: BTreeMap<(Key, ResourceName), i128>,
    /// Admitted Workloads: the ClusterQueue, and the values of the administrator's labels.
    admitted: BTreeMap<Labels, u64>,
}

impl Standings {
    pub(super) fn new(requests: Requests) -> Self {
        Self {
            requests,
            counts: Mutex::default(),
        }
    }

    /// Notes a change of a Workload. `counted` gives its count against quota, `said` the values of the administrator's labels.
    pub(super) fn note(
        &self,
        key: &Key,
        (old, new): (Option<&Workload>, Option<&Workload>),
        counted: &dyn Fn(&Workload) -> Counted,
        said: &dyn Fn(&Workload) -> Vec<Arc<str>>,
    ) {
        let (was, is) = (
            old.and_then(|w| admitted(w, said)),
            new.and_then(|w| admitted(w, said)),
        );
        if was != is {
            self.lock().readmit(was, is);
        }
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
                let pending = new.filter(|workload| is_pending(workload));
                let asks = pending.map(|workload| (local_queue(workload), asks(&counted(workload))));
                self.lock().ask(key, asks);
            }
        }
    }

    /// How many Workloads are in each group.
    pub(super) fn groups(&self) -> BTreeMap<Group, u64> {
        self.lock().groups.clone()
    }

    /// Admitted Workloads that have not finished, by ClusterQueue and by the values of the administrator's labels.
    pub(super) fn admitted(&self) -> BTreeMap<Labels, u64> {
        self.lock().admitted.clone()
    }

    /// The requests of pending Workloads, by LocalQueue and resource.
    pub(super) fn asked(&self) -> BTreeMap<(Key, ResourceName), i128> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn readmit(&mut self, was: Option<Labels>, is: Option<Labels>) {
        if let Some(was) = was
            && let Some(count) = self.admitted.get_mut(&was)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.admitted.remove(&was);
            }
        }
        if let Some(is) = is {
            *self.admitted.entry(is).or_default() += 1;
        }
    }

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

fn is_pending(workload: &Workload) -> bool {
    let reserved = workload.status.as_ref().is_some_and(|s| s.admission.is_some());
    !reserved && workload.is_active() && !transitions::is_finished(workload)
}

/// The requests of a Workload, without its reclaimable pods.
fn asks(workload: &Counted) -> Vec<(ResourceName, Amount)> {
    let mut sums: BTreeMap<ResourceName, Amount> = BTreeMap::new();
    for set in &workload.pod_sets {
        let gone = workload.status.reclaimable.get(&set.name).copied().unwrap_or(0);
        let count = i64::from(set.count.saturating_sub(gone));
        for (resource, amount) in &set.requests {
            let sum = sums.entry(resource.clone()).or_default();
            *sum = sum.plus(amount.times(count));
        }
    }
    sums.into_iter().collect()
}

/// The ClusterQueue of an admitted Workload that has not finished, and the values of the administrator's labels.
fn admitted(workload: &Workload, said: &dyn Fn(&Workload) -> Vec<Arc<str>>) -> Option<Labels> {
    let status = workload.status.as_ref()?;
    let is_admitted = status
        .conditions
        .iter()
        .any(|c| c.type_ == "Admitted" && c.status == "True");
    let admission = status
        .admission
        .as_ref()
        .filter(|_| is_admitted && !transitions::is_finished(workload))?;
    let queue = std::iter::once(Arc::from(admission.cluster_queue.as_str()));
    Some(queue.chain(said(workload)).collect())
}

#[cfg(test)]
mod tests;
