//! The statuses of ClusterQueues, LocalQueues and Cohorts, and what metrics show of them.
//!
//! Invariant: a report is computed from the state alone, so it is correct at any time.
//! *Source*: `spec/api.md API-2.3, API-3`, `spec/admission-engine.md 7`.

use std::collections::{BTreeMap, BTreeSet};

use crate::afs::{PastUsage, Score};
use crate::amount::Amount;
use crate::condition::{Active, Truth};
use crate::hierarchy::{NodeId, NodeName, Share};
use crate::name::{ClusterQueueName, CohortName, FlavorName, Key, ResourceName};
use crate::queue::{ClusterQueue, FlavorQuota, QueueRef, Quota, StopPolicy};
use crate::quota::{Ledger, Usage};
use crate::state::{Local, Place, Queue, State};

/// The amounts held of one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorTotal {
    /// The flavor.
    pub name: FlavorName,
    /// Resources sorted by name.
    pub resources: Vec<ResourceTotal>,
}

/// The amount held of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTotal {
    /// The resource.
    pub name: ResourceName,
    /// The total held.
    pub total: Amount,
    /// The part beyond the nominal quota, which comes from the cohort; zero without a cohort.
    pub borrowed: Amount,
}

/// The place of a ClusterQueue or cohort in its tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Kinship {
    /// Its parent cohort.
    pub parent: CohortName,
    /// The cohort at the root; in a circle of cohorts, which has no root, the parent.
    pub root: CohortName,
    /// Its share in what the parent can lend.
    pub share: Share,
}

/// The status of a ClusterQueue.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterQueueReport {
    /// Condition `Active`.
    pub active: Active,
    /// Field `pendingWorkloads`.
    pub pending: usize,
    /// The part of `pending` that was tried and waits for a change; all of it in an inactive queue.
    pub inadmissible: usize,
    /// The number of different requests among the pending workloads that wait for their turn, and among the inadmissible ones.
    pub requests: (usize, usize),
    /// Field `reservingWorkloads`.
    pub reserving: u32,
    /// Field `admittedWorkloads`.
    pub admitted: u32,
    /// `flavorsReservation`, in the order of the spec.
    pub reservation: Vec<FlavorTotal>,
    /// `flavorsUsage`, in the order of the spec.
    pub usage: Vec<FlavorTotal>,
    /// Its cohorts; `None` without a cohort.
    pub kinship: Option<Kinship>,
}

/// The status of a LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueueReport {
    /// The ClusterQueue that it names.
    pub cluster_queue: ClusterQueueName,
    /// Condition `Active`.
    pub active: Active,
    /// Field `pendingWorkloads`.
    pub pending: usize,
    /// The part of `pending` that was tried and waits for a change; all of it in an inactive queue.
    pub inadmissible: usize,
    /// Field `reservingWorkloads`.
    pub reserving: u32,
    /// Field `admittedWorkloads`.
    pub admitted: u32,
    /// `flavorsReservation`, in the order of the ClusterQueue's spec; `borrowed` is not shown here.
    pub reservation: Vec<FlavorTotal>,
    /// `flavorsUsage`, in the same order.
    pub usage: Vec<FlavorTotal>,
    /// Its consumption and its place in the order, even if its ClusterQueue does not order by that. `None` while `admissionFairSharing` is
    /// off or the ClusterQueue does not exist.
    pub past: Option<(PastUsage, Score)>,
}

/// The status of a cohort, with or without an object.
#[derive(Clone, Debug, PartialEq)]
pub struct CohortReport {
    /// The cohorts above; `None` for a root.
    pub kinship: Option<Kinship>,
    /// Its quota plus the quota that its descendants lend upwards, sorted by flavor and resource.
    pub quota: Vec<(FlavorName, ResourceName, Amount)>,
    /// The reservations of the ClusterQueues below, sorted by flavor and resource.
    pub reservation: Vec<(FlavorName, ResourceName, Amount)>,
    /// The number of admitted workloads of the ClusterQueues below.
    pub admitted: u32,
}

impl State {
    /// Whether [`Self::take_changed_queues`] would return anything.
    pub fn has_changed_queues(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The queues and cohorts whose reports may have changed since the last call, deleted ones included, sorted.
    pub fn take_changed_queues(&mut self) -> Vec<QueueRef> {
        let mut changed = std::mem::take(&mut self.changed);
        // Why here: usage changes often, and each change affects all cohorts above.
        let mut above = BTreeSet::new();
        for queue in &changed {
            let node = match queue {
                QueueRef::Cluster(name) => {
                    if let Some(cluster) = self.clusters.id(name).and_then(|id| self.clusters.at_mut(id)) {
                        cluster.noted = false;
                    }
                    self.ground.quotas().queue(name)
                }
                QueueRef::Cohort(name) => self.ground.quotas().cohort(name),
                QueueRef::Local(key) => {
                    if let Some(local) = self.locals.id(key).and_then(|id| self.locals.at_mut(id)) {
                        local.noted = false;
                    }
                    None
                }
            };
            for id in node.into_iter().flat_map(|node| self.ground.quotas().path(node)) {
                if let Some(NodeName::Cohort(name)) = self.ground.quotas().name(id) {
                    above.insert(QueueRef::Cohort(name.clone()));
                }
            }
        }
        changed.append(&mut above);
        changed.into_iter().collect()
    }

    /// The status of a ClusterQueue, if it exists.
    pub fn cluster_queue_report(&self, name: &ClusterQueueName) -> Option<ClusterQueueReport> {
        let cluster = self.clusters.get(name)?;
        let (queue, ledger) = (cluster.queue.as_ref()?, &cluster.ledger);
        let borrowing = match queue.spec.cohort {
            Some(_) => Borrowing::Shown,
            None => Borrowing::Hidden,
        };
        Some(ClusterQueueReport {
            active: queue.active.clone(),
            pending: queue.pending.len(),
            inadmissible: if queue.active.is_active() {
                queue.pending.parked_count()
            } else {
                queue.pending.len()
            },
            requests: queue.pending.class_counts(),
            reserving: ledger.reserving_count(),
            admitted: ledger.admitted_count(),
            reservation: self.totals(&queue.spec, ledger.reserved(), borrowing),
            usage: self.totals(&queue.spec, ledger.admitted(), borrowing),
            kinship: self.kinship(queue.node),
        })
    }

    /// The status of a cohort, if it exists or an object names it.
    pub fn cohort_report(&self, name: &CohortName) -> Option<CohortReport> {
        let node = self.ground.quotas().cohort(name)?;
        let mut quota: Vec<_> = self
            .ground
            .quotas()
            .pairs_of(node)
            .filter_map(|pair| {
                let (flavor, resource) = self.ground.quotas().pair_names(pair)?;
                Some((
                    flavor.clone(),
                    resource.clone(),
                    self.ground.quotas().subtree_quota(node, pair),
                ))
            })
            .collect();
        quota.sort();
        let ledgers: Vec<&Ledger> = self
            .queues_below(node)
            .filter_map(|queue| self.clusters.get(queue))
            .map(|cluster| &cluster.ledger)
            .collect();
        // Why not only the pairs with quota: a queue that lends nothing may still hold something.
        let mut held: BTreeMap<_, Amount> = BTreeMap::new();
        for (pair, amount) in ledgers.iter().flat_map(|ledger| ledger.reserved().iter()) {
            if let Some((flavor, resource)) = self.ground.quotas().pair_names(pair) {
                let sum = held.entry((flavor.clone(), resource.clone())).or_default();
                *sum = sum.plus(amount);
            }
        }
        Some(CohortReport {
            kinship: self.kinship(node),
            reservation: { held.into_iter() }
                .map(|((flavor, resource), amount)| (flavor, resource, amount))
                .collect(),
            quota,
            admitted: ledgers
                .iter()
                .fold(0, |sum, ledger| sum.saturating_add(ledger.admitted_count())),
        })
    }

    /// The number of pending workloads of a LocalQueue that wait for a change.
    fn parked_of(&self, local: &Local, queue: &Queue) -> usize {
        if !queue.active.is_active() {
            // Wire: no workload in the heap of an inactive queue waits for its turn.
            return local.pending;
        }
        let (pending, parked) = (queue.pending.len(), queue.pending.parked_count());
        // Why the short ways first: workloads are counted one by one only if the queue has several LocalQueues and workloads in both
        // places.
        if local.pending == pending || parked == 0 {
            return parked;
        }
        if parked == pending {
            return local.pending;
        }
        let waits = |id| match self.records.at(id).map(|record| &record.place) {
            Some(Place::Queued { ticket, .. }) => !queue.pending.in_heap(ticket),
            Some(Place::Out | Place::Holding(_)) | None => false,
        };
        local.workloads.iter().filter(|id| waits(**id)).count()
    }

    fn kinship(&self, node: NodeId) -> Option<Kinship> {
        let cohort = |id| match self.ground.quotas().name(id)? {
            NodeName::Cohort(name) => Some(name.clone()),
            NodeName::Queue(_) => None,
        };
        let parent = cohort(self.ground.quotas().parent(node)?)?;
        if self.ground.quotas().in_cycle(node) {
            // Why: which cohort of a circle stands at the top, and below which it hangs, is arbitrary. Nothing is admitted there.
            let is_queue = matches!(self.ground.quotas().name(node)?, NodeName::Queue(_));
            return is_queue.then(|| Kinship {
                root: parent.clone(),
                parent,
                share: Share::of_nothing(self.ground.quotas().weight(node)),
            });
        }
        Some(Kinship {
            parent,
            root: cohort(self.ground.quotas().root(node))?,
            share: self.ground.quotas().share(node),
        })
    }

    fn queues_below(&self, node: NodeId) -> impl Iterator<Item = &ClusterQueueName> {
        let mut open = vec![node];
        std::iter::from_fn(move || {
            let id = open.pop()?;
            open.extend(self.ground.quotas().children(id));
            Some(id)
        })
        .filter_map(|id| match self.ground.quotas().name(id)? {
            NodeName::Queue(name) => Some(name),
            NodeName::Cohort(_) => None,
        })
    }

    /// The status of a LocalQueue, if it exists.
    pub fn local_queue_report(&self, key: &Key) -> Option<LocalQueueReport> {
        let (spec, local) = self.local_named(key)?;
        let queue = self.queue_named(&spec.cluster_queue);
        let refused =
            |reason| Active::new(Truth::False, reason, "Can't submit new workloads to clusterQueue");
        let active = match (spec.stop, queue) {
            (StopPolicy::Hold | StopPolicy::HoldAndDrain, _) => {
                Active::new(Truth::False, "Stopped", "LocalQueue is stopped")
            }
            (StopPolicy::None, None) => refused("ClusterQueueDoesNotExist"),
            (StopPolicy::None, Some(queue)) if !queue.active.is_active() => refused("ClusterQueueIsInactive"),
            (StopPolicy::None, Some(_)) => {
                Active::new(Truth::True, "Ready", "Can submit new workloads to localQueue")
            }
        };
        let listed = |usage| {
            let totals = queue.map(|q| self.totals(&q.spec, usage, Borrowing::Hidden));
            totals.unwrap_or_default()
        };
        let past = || {
            let (book, queue) = (self.book.as_ref()?, queue?);
            let mut past = book.past(key)?;
            if book.remembers() {
                // Wire: a resource that was never used is shown as zero.
                for resource in queue.spec.groups.iter().flat_map(|group| &group.covered) {
                    past.consumed.entry(resource.clone()).or_default();
                }
            }
            Some((past, book.score(key)))
        };
        Some(LocalQueueReport {
            cluster_queue: spec.cluster_queue.clone(),
            active,
            pending: local.pending,
            inadmissible: queue.map_or(0, |queue| self.parked_of(local, queue)),
            // Wire: without its ClusterQueue nothing is held through the LocalQueue, although admitted workloads run on.
            reserving: queue.map_or(0, |_| local.ledger.reserving_count()),
            admitted: queue.map_or(0, |_| local.ledger.admitted_count()),
            reservation: listed(local.ledger.reserved()),
            usage: listed(local.ledger.admitted()),
            past: past(),
        })
    }
}

/// Whether a report shows the part beyond the nominal quota separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Borrowing {
    Shown,
    Hidden,
}

impl State {
    fn totals(&self, spec: &ClusterQueue, usage: &Usage, borrowing: Borrowing) -> Vec<FlavorTotal> {
        let flavors = spec.groups.iter().flat_map(|group| &group.flavors);
        let resource = |flavor: &FlavorQuota, (resource, quota): (&ResourceName, &Quota)| {
            let total = usage.total(self.ground.quotas(), &flavor.name, resource);
            ResourceTotal {
                name: resource.clone(),
                total,
                borrowed: match borrowing {
                    Borrowing::Shown => total.minus(quota.nominal).max(Amount::ZERO),
                    Borrowing::Hidden => Amount::ZERO,
                },
            }
        };
        flavors
            .map(|flavor| FlavorTotal {
                name: flavor.name.clone(),
                resources: flavor
                    .quotas
                    .iter()
                    .map(|quota| resource(flavor, quota))
                    .collect(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
