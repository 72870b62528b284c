//! Everything admission knows: configuration, pending workloads, and who holds quota.
//!
//! Events go in, in any order and any number of times; [`crate::cycle`] takes decisions out. Invariant: a workload is in
//! exactly one [`Place`], and the ledgers are the sum of all that are [`Place::Holding`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::afs::{PastUsage, UsageBook, UsagePolicy};
use crate::condition::Active;
use crate::cycle::{CycleOutcome, PendingReason};
use crate::flavor::Undeclared;
use crate::hierarchy::Forest;
use crate::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key, Uid};
use crate::pending::{Pending, RequeuingTimestamp};
use crate::queue::{Check, ClusterQueue, Cohort, Flavor, LocalQueue};
use crate::quota::{Charge, Ledger, Stage};
use crate::report::QueueRef;
use crate::status::Admission;
use crate::workload::Workload;

mod configuration;
pub(crate) mod workloads;

/// What the operator chose. *Source*: `spec/api.md API-13`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `waitForPodsReady.requeuingStrategy.timestamp`.
    pub timestamp: RequeuingTimestamp,
    /// `resources.quotaCheckStrategy`.
    pub undeclared: Undeclared,
    /// `admissionFairSharing`; `None` when it is off.
    pub past_usage: Option<UsagePolicy>,
}

/// The operator's brake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Workloads are admitted.
    #[default]
    Running,
    /// Nothing new is admitted; everything else goes on.
    Paused,
}

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A ClusterQueue is there, or changed.
    ClusterQueue(Box<ClusterQueue>),
    /// A ClusterQueue is gone.
    ClusterQueueGone(ClusterQueueName),
    /// A Cohort is there, or changed.
    Cohort(Cohort),
    /// A Cohort is gone.
    CohortGone(CohortName),
    /// A LocalQueue is there, or changed.
    LocalQueue(LocalQueue),
    /// A LocalQueue is gone.
    LocalQueueGone(Key),
    /// What the status of a LocalQueue says of its past usage; only the first one told counts.
    PastUsage {
        /// The LocalQueue; it must have been told before.
        local: Key,
        /// What its status says.
        past: PastUsage,
    },
    /// A ResourceFlavor is there, or changed.
    Flavor(Flavor),
    /// A ResourceFlavor is gone.
    FlavorGone(FlavorName),
    /// An AdmissionCheck is there, or changed.
    Check(Check),
    /// An AdmissionCheck is gone.
    CheckGone(CheckName),
    /// A namespace is there, or changed.
    Namespace {
        /// Its name.
        name: Arc<str>,
        /// Its labels.
        labels: BTreeMap<String, String>,
    },
    /// A namespace is gone.
    NamespaceGone(Arc<str>),
    /// A Workload is there, or changed.
    Workload(Box<Workload>),
    /// A Workload is gone.
    WorkloadGone {
        /// Namespace and name.
        key: Key,
        /// Which one of that name.
        uid: Uid,
    },
    /// A reservation could not be written, and will not be. Each [`crate::cycle::Decision::Reserve`] must end in this or
    /// in a Workload that shows the quota: until then the quota counts as held, even if the Workload is deactivated.
    ReserveFailed {
        /// Namespace and name.
        key: Key,
        /// Which one of that name.
        uid: Uid,
    },
    /// The operator's brake was moved.
    Paused(Pace),
    /// Everything that existed at the start has been told; no cycle decides anything before.
    Synced,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) synced: bool,
    pub(crate) pace: Pace,
    pub(crate) flavors: BTreeMap<FlavorName, Flavor>,
    pub(crate) checks: BTreeMap<CheckName, Check>,
    pub(crate) namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    pub(crate) queues: BTreeMap<ClusterQueueName, Queue>,
    pub(crate) locals: BTreeMap<Key, LocalQueue>,
    pub(crate) records: BTreeMap<Key, Record>,
    /// Why apart from the queues: quota stays held while a queue is gone or not yet known.
    pub(crate) ledgers: BTreeMap<ClusterQueueName, Ledger>,
    pub(crate) local_ledgers: BTreeMap<Key, Ledger>,
    pub(crate) local_pending: BTreeMap<Key, usize>,
    /// Workloads by the LocalQueue that they name, whether or not it exists.
    pub(crate) by_local: BTreeMap<Key, BTreeSet<Key>>,
    locals_of: BTreeMap<ClusterQueueName, BTreeSet<Key>>,
    users_of_flavor: BTreeMap<FlavorName, BTreeSet<ClusterQueueName>>,
    users_of_check: BTreeMap<CheckName, BTreeSet<ClusterQueueName>>,
    pub(crate) backoffs: BTreeSet<(Timestamp, Key)>,
    /// Queues whose head can be tried.
    pub(crate) ready: BTreeSet<ClusterQueueName>,
    /// The queue that had its turn last.
    pub(crate) last_turn: Option<ClusterQueueName>,
    /// Workloads whose reason for waiting may have changed without a cycle.
    pub(crate) unexplained: BTreeSet<Key>,
    pub(crate) changed: BTreeSet<QueueRef>,
    /// What happened in cycles.
    pub(crate) outcome: CycleOutcome,
    /// Quota and usage of the trees of cohorts.
    pub(crate) forest: Forest,
    /// Past usage of LocalQueues; `None` when it orders nothing.
    pub(crate) book: Option<UsageBook>,
}

/// A ClusterQueue and its pending workloads.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) spec: ClusterQueue,
    pub(crate) active: Active,
    pub(crate) pending: Pending,
}

/// A Workload and what was decided about it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) workload: Box<Workload>,
    pub(crate) place: Place,
    pub(crate) assumption: Option<Assumption>,
    /// The last explanation given that the Workload's condition does not show yet.
    pub(crate) said: Option<(PendingReason, String)>,
}

/// Where a Workload lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Neither pending nor holding: finished, inactive, gated, or its queue is missing or stopped.
    Out,
    /// In the heap or parked.
    Queued {
        /// The queue.
        cluster: ClusterQueueName,
        /// The LocalQueue through which it came.
        local: Key,
    },
    /// Holds quota, be it by its status or by an assumption.
    Holding {
        /// The queue whose quota is held.
        cluster: ClusterQueueName,
        /// The LocalQueue through which it came.
        local: Key,
        /// What is held.
        charge: Charge,
        /// How far it is.
        stage: Stage,
    },
}

/// A reservation that was decided and is not yet visible.
#[derive(Clone, Debug)]
pub(crate) struct Assumption {
    pub(crate) admission: Admission,
    /// When `QuotaReserved` had become what it was.
    pub(crate) quota_since: Option<Timestamp>,
    /// How often the workload had been evicted.
    pub(crate) evictions: u64,
}

impl State {
    /// An empty state that waits for [`Event::Synced`].
    pub fn new(settings: Settings) -> Self {
        Self {
            book: settings.past_usage.clone().map(UsageBook::new),
            outcome: CycleOutcome::default(),
            forest: Forest::default(),
            settings,
            synced: false,
            pace: Pace::Running,
            flavors: BTreeMap::new(),
            checks: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            queues: BTreeMap::new(),
            locals: BTreeMap::new(),
            records: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            local_ledgers: BTreeMap::new(),
            local_pending: BTreeMap::new(),
            by_local: BTreeMap::new(),
            locals_of: BTreeMap::new(),
            users_of_flavor: BTreeMap::new(),
            users_of_check: BTreeMap::new(),
            backoffs: BTreeSet::new(),
            ready: BTreeSet::new(),
            last_turn: None,
            unexplained: BTreeSet::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Takes note of an event. The same event twice changes nothing.
    pub fn apply(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::ClusterQueue(queue) => self.put_cluster_queue(*queue, now),
            Event::ClusterQueueGone(name) => self.drop_cluster_queue(&name, now),
            Event::Cohort(cohort) => self.put_cohort(&cohort),
            Event::CohortGone(name) => self.drop_cohort(&name),
            Event::LocalQueue(queue) => self.put_local_queue(queue, now),
            Event::LocalQueueGone(key) => self.drop_local_queue(&key, now),
            Event::PastUsage { local, past } => {
                if let Some(book) = &mut self.book {
                    book.restore(&local, &past);
                }
            }
            Event::Flavor(flavor) => self.put_flavor(flavor),
            Event::FlavorGone(name) => self.drop_flavor(&name),
            Event::Check(check) => self.put_check(check),
            Event::CheckGone(name) => self.drop_check(&name),
            Event::Namespace { name, labels } => self.put_namespace(name, labels),
            Event::NamespaceGone(name) => {
                self.namespaces.remove(&name);
            }
            Event::Workload(workload) => self.put_workload(workload, now),
            Event::WorkloadGone { key, uid } => {
                if self.records.get(&key).is_some_and(|r| r.workload.uid == uid) {
                    self.drop_workload(&key, now);
                }
            }
            Event::ReserveFailed { key, uid } => self.forget_assumption(&key, &uid, now),
            Event::Paused(pace) => self.pace = pace,
            Event::Synced => self.synced = true,
        }
    }

    /// The earliest end of a back-off, which may put a workload in a heap, or sample of usage, which may reorder heaps.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let backoff = self.backoffs.first().map(|(at, _)| *at);
        let sample = self.book.as_ref().and_then(UsageBook::next_sample);
        backoff.into_iter().chain(sample).min()
    }

    /// Whether another cycle would find something to do right now.
    pub fn has_work(&self) -> bool {
        let heads = self.pace == Pace::Running && !self.ready.is_empty();
        self.synced && (heads || !self.unexplained.is_empty())
    }

    /// Puts a queue among those that are ready, or takes it out.
    pub(crate) fn touch(&mut self, name: &ClusterQueueName) {
        let ready = self
            .queues
            .get(name)
            .is_some_and(|queue| queue.active.is_active() && queue.pending.head().is_some());
        if ready {
            self.ready.insert(name.clone());
        } else {
            self.ready.remove(name);
        }
    }
}

#[cfg(test)]
mod audit;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
