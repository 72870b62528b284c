//! Everything that admission knows: configuration, pending workloads, and holders of quota.
//!
//! Events go in, in any order and any number of times; [`State::cycle`] returns decisions. Invariants: a workload is in exactly one
//! [`Place`]; the ledgers, the amounts taken in the ground, and the holders are each the sum of all workloads that are [`Place::Holding`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::afs::{PastUsage, UsageBook, UsagePolicy};
use crate::class::{ClassId, Classes};
use crate::condition::Active;
use crate::ground::Ground;
use crate::hierarchy::{Exact, FlavorResource, NodeId};
use crate::holders::{Holder, Holders};
use crate::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key, Uid};
use crate::nominate::{CompiledQueue, Nomination, Progress};
use crate::pending::{AgeRule, Pending, ReclaimedAge, RequeuingTimestamp, Ticket};
use crate::preempt::PreemptReason;
use crate::queue::{Check, ClusterQueue, Cohort, Flavor, LocalQueue, QueueRef};
use crate::quota::{Amounts, Ledger, Stage};
use crate::reason::Reason;
use crate::rules::{Rules, Switch};
use crate::status::Admission;
use crate::table::{ClusterId, LocalId, Table, WorkloadId};
use crate::workload::Workload;

mod activity;
mod claims;
mod configuration;
mod outcome;
mod place;
mod visible;
mod wake;
pub(crate) mod workloads;

pub use outcome::CycleOutcome;
pub use visible::PendingEntry;

/// The administrator's settings. *Source*: `spec/api.md API-13`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Setting `waitForPodsReady.requeuingStrategy.timestamp`.
    pub timestamp: RequeuingTimestamp,
    /// Quota checks, preemption, and the gates around them.
    pub rules: Rules,
    /// Setting `waitForPodsReady.blockAdmission`.
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

/// Whether workloads that are not ready block others. *Source*: `spec/admission-engine.md 4.1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocking {
    /// They do not block others.
    #[default]
    Never,
    /// No workload gets quota while a workload that holds quota is not ready.
    UntilPodsReady,
}

/// Whether the administrator has paused admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Workloads are admitted.
    #[default]
    Running,
    /// Nothing new is admitted; everything else goes on.
    Paused,
    /// Another process admits: this one admits nothing, and leaves it to the other to say why a workload waits.
    Elsewhere,
}

/// A change outside of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A ClusterQueue was created or changed.
    ClusterQueue(Box<ClusterQueue>),
    /// A ClusterQueue was deleted.
    ClusterQueueGone(ClusterQueueName),
    /// A Cohort was created or changed.
    Cohort(Cohort),
    /// A Cohort was deleted.
    CohortGone(CohortName),
    /// A LocalQueue was created or changed.
    LocalQueue(LocalQueue),
    /// A LocalQueue was deleted.
    LocalQueueGone(Key),
    /// The past usage that the status of a LocalQueue shows; only the first report counts.
    PastUsage {
        /// The LocalQueue; an earlier event must have reported it.
        local: Key,
        /// The past usage.
        past: PastUsage,
    },
    /// A ResourceFlavor was created or changed.
    Flavor(Flavor),
    /// A ResourceFlavor was deleted.
    FlavorGone(FlavorName),
    /// An AdmissionCheck was created or changed.
    Check(Check),
    /// An AdmissionCheck was deleted.
    CheckGone(CheckName),
    /// A namespace was created or changed.
    Namespace {
        /// Its name.
        name: Arc<str>,
        /// Its labels.
        labels: BTreeMap<String, String>,
    },
    /// A namespace was deleted.
    NamespaceGone(Arc<str>),
    /// A Workload was created or changed.
    Workload(Box<Workload>),
    /// A Workload was deleted.
    WorkloadGone {
        /// Namespace and name.
        key: Key,
        /// Its UID.
        uid: Uid,
    },
    /// A reservation or an eviction could not be written, and will not be. Each [`crate::cycle::Decision::Reserve`] must end in this event
    /// or in a Workload that shows the quota. Until then the quota counts as held, even if the Workload is deactivated.
    ReserveFailed {
        /// Namespace and name.
        key: Key,
        /// Its UID.
        uid: Uid,
    },
    /// The administrator paused or resumed admission.
    Paused(Pace),
    /// All objects that existed at the start were reported; before that no cycle decides anything.
    Synced,
}

/// The state of admission; [`State::apply`] takes events in, [`State::cycle`] decides.
#[derive(Clone, Debug, Default)]
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
    /// The room there is, and what of it is taken.
    pub(crate) ground: Ground,
    /// Workloads whose quota could be taken back.
    pub(crate) holders: Holders,
    /// The ClusterQueues that exist, by their node.
    pub(crate) nodes: BTreeMap<NodeId, ClusterId>,
    /// Past usage of LocalQueues.
    pub(crate) book: Option<UsageBook>,
    /// LocalQueues whose holders are listed with an outdated past usage.
    stale_past: BTreeSet<LocalId>,
    /// Amounts that became free and were not spread in their tree yet, by the queue that released them.
    gains: BTreeMap<ClusterId, BTreeMap<FlavorResource, Exact>>,
    /// The total that ever became free in a tree, to compare with what is lacking.
    freed: BTreeMap<(NodeId, FlavorResource), Exact>,
    pub(crate) backoffs: BTreeSet<(Timestamp, WorkloadId)>,
    /// When decided evictions must have become visible.
    expectations: BTreeSet<(Timestamp, WorkloadId)>,
    /// When claims end if they were not served before.
    claim_ends: BTreeSet<(Timestamp, ClusterId)>,
    /// Evictions to report, now that the reservations they end are visible.
    pub(crate) orders: BTreeSet<WorkloadId>,
    /// The number of holders of quota that are not ready.
    pub(crate) unready: usize,
    /// Queues whose head can be tried.
    pub(crate) ready: BTreeSet<ClusterId>,
    pub(crate) last_turn: Option<ClusterId>,
    /// Workloads whose reason for waiting may have changed without a cycle.
    pub(crate) unexplained: BTreeSet<WorkloadId>,
    /// Workloads put aside unseen because an equal one had failed.
    pub(crate) bypassed: BTreeSet<WorkloadId>,
    pub(crate) changed: BTreeSet<QueueRef>,
    pub(crate) outcome: CycleOutcome,
    /// Queues whose head was skipped at its last try because its victims were taken.
    pub(crate) skipping: BTreeSet<ClusterId>,
}

/// A ClusterQueue that exists, or that only a LocalQueue or a reservation names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) name: ClusterQueueName,
    pub(crate) queue: Option<Queue>,
    /// Why apart from the queue: quota stays held while a queue is deleted or not yet known.
    pub(crate) ledger: Ledger,
    locals: BTreeSet<LocalId>,
    /// Whether it is already recorded as changed.
    pub(crate) noted: bool,
}

impl Cluster {
    /// A ClusterQueue of which only the name is known.
    fn unknown(name: &ClusterQueueName) -> Self {
        Self {
            name: name.clone(),
            ..Self::default()
        }
    }
}

/// A ClusterQueue that exists, and its pending workloads.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) spec: ClusterQueue,
    pub(crate) compiled: CompiledQueue,
    pub(crate) node: NodeId,
    pub(crate) active: Active,
    pub(crate) pending: Pending,
    /// The number of its heads that were tried.
    pub(crate) tries: u64,
    /// The claim of its head, if others are evicted so that it fits.
    pub(crate) claim: Option<Box<Claim>>,
}

/// The quota that a head will take once the workloads evicted in its favour have stopped.
///
/// Invariant: its request counts as taken in every round of its tree until it is admitted or gives up, and its victims belong to no other
/// head. So quota that becomes free bit by bit is not taken by another workload, and the head never needs more victims than it has chosen.
/// It gives up when it is no longer the head of its queue, requests something else, can no longer fit, or is overdue; an overdue head waits
/// on, behind all others. *Source*: `spec/admission-engine.md 2.12, 10 item 20`.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) id: WorkloadId,
    /// Why beside `id`: ids are reused.
    pub(crate) uid: Uid,
    pub(crate) class: ClassId,
    /// The quota it will get: flavors, counts and usage are settled.
    pub(crate) nomination: Nomination,
    /// Its victims, as they were when it chose them. Empty when it only waits for victims of others.
    pub(crate) victims: Vec<Arc<Holder>>,
    /// By when it must have been admitted; [`Timestamp::MAX`] once it is overdue and keeps no quota any more.
    pub(crate) until: Timestamp,
}

/// A LocalQueue that exists, or that only Workloads name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Local {
    pub(crate) key: Key,
    pub(crate) queue: Option<LocalQueue>,
    /// The ClusterQueue that it leads to, if that exists.
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) ledger: Ledger,
    pub(crate) pending: usize,
    pub(crate) workloads: BTreeSet<WorkloadId>,
    /// Whether it is already recorded as changed.
    pub(crate) noted: bool,
}

/// A Workload and the decisions about it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) workload: Box<Workload>,
    pub(crate) local: LocalId,
    pub(crate) class: ClassId,
    pub(crate) place: Place,
    pub(crate) assumption: Option<Box<Assumption>>,
    pub(crate) eviction: Option<Box<Eviction>>,
    /// The last reported reason for waiting; `None` once the Workload's condition has changed since.
    pub(crate) said: Option<Box<Reason>>,
    /// The progress of its last attempt, and the number of that attempt in its queue.
    pub(crate) progress: Option<Box<(Progress, u64)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Neither pending nor holding: finished, inactive, gated, or its queue is missing or stopped.
    Out,
    /// In the heap or put aside.
    Queued {
        cluster: ClusterId,
        /// The LocalQueue through which it came.
        local: LocalId,
        ticket: Ticket,
    },
    /// Holds quota, by its status or by an assumption.
    Holding(Box<Holding>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The queue whose quota is held.
    pub(crate) cluster: ClusterId,
    /// The LocalQueue through which it came.
    pub(crate) local: LocalId,
    pub(crate) amounts: Amounts,
    pub(crate) stage: Stage,
    pub(crate) readiness: Readiness,
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

/// Whether a change of a workload is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// The workload goes back to the heap.
    Yes,
    /// The workload stays where it is, if it can.
    No,
}

/// A decided reservation that is not visible yet.
#[derive(Clone, Debug)]
pub(crate) struct Assumption {
    pub(crate) admission: Admission,
    pub(crate) since: Timestamp,
    /// When `QuotaReserved` had last changed before the decision.
    pub(crate) quota_since: Option<Timestamp>,
    /// The number of evictions before the decision.
    pub(crate) evictions: u64,
}

/// A decided eviction that is not visible yet.
#[derive(Clone, Debug)]
pub(crate) struct Eviction {
    pub(crate) reason: PreemptReason,
    pub(crate) message: String,
    pub(crate) preemptor: Key,
    pub(crate) preemptor_uid: Uid,
    pub(crate) preemptor_queue: ClusterQueueName,
    /// When it must have become visible; after that it is decided again.
    pub(crate) until: Timestamp,
    pub(crate) told: Told,
}

/// Whether a decision was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Yes,
    /// Why: a reservation that is not visible yet cannot be ended; the eviction is reported as soon as it is visible.
    NotYet,
}

impl State {
    /// An empty state that waits for [`Event::Synced`].
    pub fn new(settings: Settings) -> Self {
        let book = settings.past_usage.clone().map(UsageBook::new);
        Self {
            settings,
            book,
            ..Self::default()
        }
    }

    /// Applies an event. The same event twice changes nothing.
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
            Event::Paused(pace) => self.set_pace(pace),
            Event::Synced => self.synced = true,
        }
    }

    /// What Events about a preemption say of the priorities of both Workloads. *Source*: `spec/admission-engine.md 2.12`.
    pub fn priorities(&self, preemptor: &Key, victim: &Key) -> Option<String> {
        let of = |key: &Key| {
            let workload = &self.records.get(key)?.workload;
            let (base, boost) = (workload.priority, workload.boost);
            let effective = workload.effective_priority();
            Some(format!("{effective} (base: {base}, boost: {boost})"))
        };
        let (preemptor, victim) = (of(preemptor)?, of(victim)?);
        Some(format!(
            "; preemptor effective priority: {preemptor}; preemptee effective priority: {victim}"
        ))
    }

    /// Whether the event is something other than preemption, so that shares may be weighed again.
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
            // Why not these: the statuses of their objects change whenever shares do.
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

    /// The earliest time at which something happens without an event: a back-off or a claim ends, an eviction is overdue, usage is sampled.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let sample = self.book.as_ref().and_then(UsageBook::next_sample);
        let claim = { self.claim_ends.first().map(|(at, _)| *at) }.filter(|at| *at < Timestamp::MAX);
        let first = |times: &BTreeSet<(Timestamp, WorkloadId)>| times.first().map(|(at, _)| *at);
        [first(&self.backoffs), first(&self.expectations), claim, sample]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether workloads are admitted.
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    fn set_pace(&mut self, pace: Pace) {
        if self.pace != pace {
            self.pace = pace;
            let queues = { self.clusters.iter() }.filter_map(|(_, _, cluster)| cluster.queue.as_ref());
            self.unexplained
                .extend(queues.flat_map(|queue| queue.pending.ids()));
        }
    }

    /// Whether another cycle would have something to do right now.
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

    pub(crate) fn queue_named(&self, name: &ClusterQueueName) -> Option<&Queue> {
        self.clusters.get(name).and_then(|cluster| cluster.queue.as_ref())
    }

    pub(crate) fn local_named(&self, key: &Key) -> Option<(&LocalQueue, &Local)> {
        let local = self.locals.get(key)?;
        Some((local.queue.as_ref()?, local))
    }

    /// Updates whether a queue is among those that are ready.
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
        queue.active.is_active() && !self.ground.quotas().in_cycle(queue.node)
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
