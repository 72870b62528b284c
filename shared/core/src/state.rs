//! Everything admission knows: configuration, pending workloads, and who holds quota.
//!
//! Events go in, in any order and any number of times; [`State::cycle`] takes decisions out. Invariants: a workload is in
//! exactly one [`Place`]; the ledgers, the forest's usage and the holders are each the sum of all that are
//! [`Place::Holding`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::afs::{PastUsage, UsageBook, UsagePolicy};
use crate::condition::Active;
use crate::cycle::{CycleOutcome, Reason};
use crate::hierarchy::{Exact, FlavorResource, Forest, NodeId};
use crate::holders::{Holder, Holders};
use crate::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key, Uid};
use crate::nominate::{CompiledQueue, Nomination, Progress, Rules, Switch};
use crate::pending::{AgeRule, Pending, ReclaimedAge, RequeuingTimestamp, Ticket};
use crate::preempt::PreemptReason;
use crate::queue::{Check, ClusterQueue, Cohort, Flavor, LocalQueue};
use crate::quota::{Amounts, Ledger, Stage};
use crate::report::QueueRef;
use crate::status::Admission;
use crate::workload::Workload;

mod claims;
mod classes;
mod configuration;
mod place;
mod table;
mod visible;
mod wake;
pub(crate) mod workloads;

pub use classes::ClassId;
use classes::Classes;
use table::Table;
pub use table::{ClusterId, LocalId, WorkloadId};
pub use visible::PendingEntry;

/// What the operator chose. *Source*: `spec/api.md API-13`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `waitForPodsReady.requeuingStrategy.timestamp`.
    pub timestamp: RequeuingTimestamp,
    /// Quota checks, preemption, and the gates around them.
    pub rules: Rules,
    /// `waitForPodsReady.blockAdmission`.
    pub blocking: Blocking,
    /// `admissionFairSharing`; without it past usage counts nowhere.
    pub past_usage: Option<UsagePolicy>,
}

impl Settings {
    pub(crate) const fn age(&self) -> AgeRule {
        AgeRule {
            timestamp: self.timestamp,
            reclaimed: match self.rules.priority_in_cohort {
                Switch::On => ReclaimedAge::Kept,
                Switch::Off => ReclaimedAge::Renewed,
            },
        }
    }
}

/// Whether workloads that are not ready hold others back. *Source*: `spec/admission-engine.md 4.1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocking {
    /// They do not.
    #[default]
    Never,
    /// Nobody gets quota while somebody who has quota is not ready.
    UntilPodsReady,
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
    /// A reservation or an eviction could not be written, and will not be. Each [`crate::cycle::Decision::Reserve`] must end
    /// in this or in a Workload that shows the quota: until then the quota counts as held, even if the Workload is
    /// deactivated.
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
    pub(crate) cohorts: BTreeMap<CohortName, Cohort>,
    pub(crate) clusters: Table<ClusterQueueName, ClusterId, Cluster>,
    pub(crate) locals: Table<Key, LocalId, Local>,
    pub(crate) records: Table<Key, WorkloadId, Record>,
    classes: Classes,
    users_of_flavor: BTreeMap<FlavorName, BTreeSet<ClusterId>>,
    users_of_check: BTreeMap<CheckName, BTreeSet<ClusterId>>,
    /// Quota and usage of the whole tree.
    pub(crate) forest: Forest,
    /// Whose quota could be taken back.
    pub(crate) holders: Holders,
    /// The ClusterQueues that exist, by their node.
    pub(crate) nodes: BTreeMap<NodeId, ClusterId>,
    /// Past usage of LocalQueues.
    pub(crate) book: Option<UsageBook>,
    /// LocalQueues whose holders are listed with a past that is not up to date.
    stale_past: BTreeSet<LocalId>,
    /// What came free since it was last spread in its tree, by the queue that gave it back.
    gains: BTreeMap<ClusterId, BTreeMap<FlavorResource, Exact>>,
    /// All that ever came free in a tree, to compare with what is lacking.
    freed: BTreeMap<(NodeId, FlavorResource), Exact>,
    pub(crate) backoffs: BTreeSet<(Timestamp, WorkloadId)>,
    /// When evictions that were decided must have become visible.
    expectations: BTreeSet<(Timestamp, WorkloadId)>,
    /// When claims end that were not served by then.
    claim_ends: BTreeSet<(Timestamp, ClusterId)>,
    /// Evictions to tell, now that the reservation they end is visible.
    pub(crate) orders: BTreeSet<WorkloadId>,
    /// How many that hold quota are not ready.
    pub(crate) unready: usize,
    /// Queues whose head can be tried.
    pub(crate) ready: BTreeSet<ClusterId>,
    /// The queue that had its turn last.
    pub(crate) last_turn: Option<ClusterId>,
    /// Workloads whose reason for waiting may have changed without a cycle.
    pub(crate) unexplained: BTreeSet<WorkloadId>,
    /// Workloads put aside unseen, because an equal one had failed.
    pub(crate) bypassed: BTreeSet<WorkloadId>,
    pub(crate) changed: BTreeSet<QueueRef>,
    pub(crate) outcome: CycleOutcome,
    /// Queues whose head was skipped, when it was last tried, because its victims were taken.
    pub(crate) skipping: BTreeSet<ClusterId>,
}

/// A ClusterQueue that exists, or that only a LocalQueue or a reservation names.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) name: ClusterQueueName,
    pub(crate) queue: Option<Queue>,
    /// Why apart from the queue: quota stays held while a queue is gone or not yet known.
    pub(crate) ledger: Ledger,
    locals: BTreeSet<LocalId>,
    /// Whether it is among those that changed already.
    pub(crate) noted: bool,
}

/// A ClusterQueue that exists, and its pending workloads.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) spec: ClusterQueue,
    pub(crate) compiled: CompiledQueue,
    pub(crate) node: NodeId,
    pub(crate) active: Active,
    pub(crate) pending: Pending,
    /// How many of its heads were tried.
    pub(crate) tries: u64,
    /// What its head waits for, if others are evicted so that it fits.
    pub(crate) claim: Option<Box<Claim>>,
}

/// What a head will take once the workloads have stopped that are evicted in its favour.
///
/// Invariant: what it asks for counts as taken in every round of its tree until it is admitted or gives up, and its victims
/// are nobody else's. So quota that comes free bit by bit is not taken by another workload, and the head never needs more
/// victims than it has chosen. It gives up when it is no longer the head of its queue, asks for something else, can no
/// longer fit, or when it is overdue: then it waits on, behind all others. *Source*: `spec/admission-engine.md 2.12, 10 item 20`.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) id: WorkloadId,
    /// Why beside the number: numbers are used again.
    pub(crate) uid: Uid,
    pub(crate) class: ClassId,
    /// What it will get: flavors, counts and usage are settled.
    pub(crate) nomination: Nomination,
    /// Its victims, as they were when it chose them. Empty when it waits for victims of others only.
    pub(crate) victims: Vec<Arc<Holder>>,
    /// When it must have been admitted; [`Timestamp::MAX`] once it is overdue and keeps nothing any more.
    pub(crate) until: Timestamp,
}

/// A LocalQueue that exists, or that only Workloads name.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) key: Key,
    pub(crate) queue: Option<LocalQueue>,
    /// What it stands for, if it exists.
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) ledger: Ledger,
    pub(crate) pending: usize,
    /// Workloads that name it.
    pub(crate) workloads: BTreeSet<WorkloadId>,
    /// Whether it is among those that changed already.
    pub(crate) noted: bool,
}

/// A Workload and what was decided about it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) workload: Box<Workload>,
    pub(crate) local: LocalId,
    pub(crate) class: ClassId,
    pub(crate) place: Place,
    pub(crate) assumption: Option<Box<Assumption>>,
    pub(crate) eviction: Option<Box<Eviction>>,
    /// The last explanation given that the Workload's condition does not show yet.
    pub(crate) said: Option<Box<Reason>>,
    /// How far its last attempt got, and which attempt of its queue that was.
    pub(crate) progress: Option<Box<(Progress, u64)>>,
}

/// Where a Workload lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Neither pending nor holding: finished, inactive, gated, or its queue is missing or stopped.
    Out,
    /// In the heap or put aside.
    Queued {
        /// The queue.
        cluster: ClusterId,
        /// The LocalQueue through which it came.
        local: LocalId,
        /// Its place there.
        ticket: Ticket,
    },
    /// Holds quota, be it by its status or by an assumption.
    Holding(Box<Holding>),
}

/// What a Workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The queue whose quota is held.
    pub(crate) cluster: ClusterId,
    /// The LocalQueue through which it came.
    pub(crate) local: LocalId,
    /// What is held.
    pub(crate) amounts: Amounts,
    /// How far it is.
    pub(crate) stage: Stage,
    pub(crate) readiness: Readiness,
    /// Whether it is, or is about to be, evicted.
    pub(crate) evicted: bool,
    pub(crate) priority: i64,
    pub(crate) queue_time: Timestamp,
    pub(crate) reserved_at: Timestamp,
}

/// Whether all pods of a workload are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    NotReady,
}

/// A reservation that was decided and is not yet visible.
#[derive(Clone, Debug)]
pub(crate) struct Assumption {
    pub(crate) admission: Admission,
    pub(crate) since: Timestamp,
    /// When `QuotaReserved` had become what it was.
    pub(crate) quota_since: Option<Timestamp>,
    /// How often the workload had been evicted.
    pub(crate) evictions: u64,
}

/// An eviction that was decided and is not yet visible.
#[derive(Clone, Debug)]
pub(crate) struct Eviction {
    pub(crate) reason: PreemptReason,
    pub(crate) message: String,
    pub(crate) preemptor: Key,
    pub(crate) preemptor_uid: Uid,
    pub(crate) preemptor_queue: ClusterQueueName,
    /// When it must have become visible; after that it is decided anew.
    pub(crate) until: Timestamp,
    pub(crate) told: Told,
}

/// Whether a decision was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Yes,
    /// Why: a reservation that is not visible yet cannot be ended; it is told as soon as it is.
    NotYet,
}

impl State {
    /// An empty state that waits for [`Event::Synced`].
    pub fn new(settings: Settings) -> Self {
        let book = settings.past_usage.clone().map(UsageBook::new);
        Self {
            settings,
            synced: false,
            pace: Pace::Running,
            flavors: BTreeMap::new(),
            checks: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            clusters: Table::new(),
            locals: Table::new(),
            records: Table::new(),
            classes: Classes::default(),
            users_of_flavor: BTreeMap::new(),
            users_of_check: BTreeMap::new(),
            forest: Forest::default(),
            holders: Holders::default(),
            nodes: BTreeMap::new(),
            book,
            stale_past: BTreeSet::new(),
            gains: BTreeMap::new(),
            freed: BTreeMap::new(),
            backoffs: BTreeSet::new(),
            expectations: BTreeSet::new(),
            claim_ends: BTreeSet::new(),
            orders: BTreeSet::new(),
            unready: 0,
            ready: BTreeSet::new(),
            last_turn: None,
            unexplained: BTreeSet::new(),
            bypassed: BTreeSet::new(),
            changed: BTreeSet::new(),
            outcome: CycleOutcome::default(),
            skipping: BTreeSet::new(),
        }
    }

    /// Takes note of an event. The same event twice changes nothing.
    pub fn apply(&mut self, event: Event, now: Timestamp) {
        if self.is_news(&event) {
            self.holders.forget_displaced();
        }
        match event {
            Event::ClusterQueue(queue) => self.put_cluster_queue(*queue, now),
            Event::ClusterQueueGone(name) => self.drop_cluster_queue(&name, now),
            Event::Cohort(cohort) => self.put_cohort(cohort),
            Event::CohortGone(name) => self.drop_cohort(&name),
            Event::LocalQueue(queue) => self.put_local_queue(queue, now),
            Event::LocalQueueGone(key) => self.drop_local_queue(&key, now),
            Event::PastUsage { local, past } => self.restore_past(&local, &past),
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
            Event::ReserveFailed { key, uid } => self.forget_decisions(&key, &uid, now),
            Event::Paused(pace) => self.pace = pace,
            Event::Synced => self.synced = true,
        }
    }

    /// Whether something other than preemption happened, so that shares may be weighed anew.
    fn is_news(&self, event: &Event) -> bool {
        match event {
            Event::ClusterQueue(queue) => self
                .queue_named(&queue.name)
                .is_none_or(|known| known.spec != **queue),
            Event::Workload(workload) => self.records.get(&workload.key).is_none_or(|record| {
                let known = &record.workload;
                known.uid != workload.uid || known.is_finished() != workload.is_finished()
            }),
            Event::ClusterQueueGone(_) | Event::WorkloadGone { .. } => true,
            // Why not: their statuses change whenever shares do.
            Event::Cohort(_)
            | Event::CohortGone(_)
            | Event::LocalQueue(_)
            | Event::LocalQueueGone(_)
            | Event::PastUsage { .. }
            | Event::Flavor(_)
            | Event::FlavorGone(_)
            | Event::Check(_)
            | Event::CheckGone(_)
            | Event::Namespace { .. }
            | Event::NamespaceGone(_)
            | Event::ReserveFailed { .. }
            | Event::Paused(_)
            | Event::Synced => false,
        }
    }

    /// The earliest time at which something happens by itself: a back-off or a claim ends, an eviction is overdue, usage is
    /// sampled.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let sample = self.book.as_ref().and_then(UsageBook::next_sample);
        let claim = { self.claim_ends.first().map(|(at, _)| *at) }.filter(|at| *at < Timestamp::MAX);
        let first = |times: &BTreeSet<(Timestamp, WorkloadId)>| times.first().map(|(at, _)| *at);
        [first(&self.backoffs), first(&self.expectations), claim, sample]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether another cycle would find something to do right now.
    pub fn has_work(&self) -> bool {
        let heads = self.pace == Pace::Running && (!self.ready.is_empty() || !self.gains.is_empty());
        let words = !self.unexplained.is_empty() || !self.bypassed.is_empty() || !self.orders.is_empty();
        self.synced && (heads || words)
    }

    pub(crate) fn queue(&self, id: ClusterId) -> Option<&Queue> {
        self.clusters.at(id).and_then(|cluster| cluster.queue.as_ref())
    }

    pub(crate) fn queue_mut(&mut self, id: ClusterId) -> Option<&mut Queue> {
        self.clusters
            .at_mut(id)
            .and_then(|cluster| cluster.queue.as_mut())
    }

    /// A ClusterQueue that exists.
    pub(crate) fn queue_named(&self, name: &ClusterQueueName) -> Option<&Queue> {
        self.clusters.get(name).and_then(|cluster| cluster.queue.as_ref())
    }

    /// A LocalQueue that exists.
    pub(crate) fn local_named(&self, key: &Key) -> Option<(&LocalQueue, &Local)> {
        let local = self.locals.get(key)?;
        Some((local.queue.as_ref()?, local))
    }

    /// Puts a queue among those that are ready, or takes it out.
    pub(crate) fn touch(&mut self, id: ClusterId) {
        if self.queue(id).is_some_and(|queue| self.is_ready(queue)) {
            self.ready.insert(id);
        } else {
            self.ready.remove(&id);
        }
    }

    fn is_ready(&self, queue: &Queue) -> bool {
        self.is_served(queue)
            && self
                .head_of(queue)
                .is_some_and(|head| queue.pending.stance(head).is_none())
    }

    /// Whether workloads of the queue are tried at all. *Source*: `spec/admission-engine.md 2.2`.
    pub(crate) fn is_served(&self, queue: &Queue) -> bool {
        queue.active.is_active() && !self.forest.in_cycle(queue.node)
    }

    pub(crate) fn head_of(&self, queue: &Queue) -> Option<WorkloadId> {
        let score = |local: LocalId| {
            let (book, local) = (self.book.as_ref(), self.locals.at(local));
            book.zip(local)
                .map_or(crate::afs::Score::ZERO, |(book, local)| book.score(&local.key))
        };
        queue.pending.head(score).map(crate::pending::Rank::id)
    }
}

#[cfg(test)]
mod audit;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
