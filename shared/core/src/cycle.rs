//! One round of decisions: which pending workloads get quota, and why the others do not.
//!
//! Invariant: queues take turns with one head each, a queue's heads come in the order of its heap, and what a head was
//! given counts for the next. *Source*: `spec/admission-engine.md 2.1-2.6`.

use std::collections::BTreeMap;
use std::ops::Bound;

use jiff::Timestamp;

use crate::condition::Truth;
use crate::flavor::{self, Category, Offer, Remedy};
use crate::name::{ClusterQueueName, Key, Uid};
use crate::pending::{Class, Rank, Wait};
use crate::queue::{ClusterQueue, StopPolicy, Strategy};
use crate::quota::{Charge, Ledger, Stage};
use crate::state::workloads::{eviction_count, local_key, may_queue};
use crate::state::{Assumption, Pace, Place, Record, State};
use crate::status::{Admission, CheckPhase};
use crate::workload::Workload;

/// *Limit*: heads tried in one call, so that events never wait long; [`State::has_work`] tells whether some are left.
pub const HEADS_PER_CYCLE: usize = 1_024;
/// *Limit*: workloads outside of heaps that are explained in one call.
pub const EXPLANATIONS_PER_CYCLE: usize = 1_024;

/// Why a workload has no quota: the reason of condition `QuotaReserved` when it is False.
/// *Source*: `spec/api.md API-9.6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingReason {
    /// No flavor suits it.
    NoMatchingFlavor,
    /// It would fit if others released quota.
    WaitingForQuota,
    /// It asks for more than the queue could ever give.
    ExceedsMaxQuota,
    /// Its queue is missing, its namespace does not match, or its request is wrong.
    Misconfigured,
    /// Its queue is stopped or inactive.
    Suspended,
    /// It waits for its turn.
    PendingEvaluation,
    /// Its owner put it on hold.
    OnHold,
    /// A foreign gate keeps it out of the queue.
    AdmissionGated,
}

impl PendingReason {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoMatchingFlavor => "NoMatchingFlavor",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::Misconfigured => "Misconfigured",
            Self::Suspended => "Suspended",
            Self::PendingEvaluation => "PendingEvaluation",
            Self::OnHold => "OnHold",
            Self::AdmissionGated => "AdmissionGated",
        }
    }
}

impl From<Category> for PendingReason {
    fn from(category: Category) -> Self {
        match category {
            Category::WaitingForQuota => Self::WaitingForQuota,
            Category::ExceedsMaxQuota => Self::ExceedsMaxQuota,
            Category::NoMatchingFlavor => Self::NoMatchingFlavor,
        }
    }
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The workload gets quota. The state counts it from now on, until an event shows it or
    /// [`crate::state::Event::ReserveFailed`] takes it back.
    Reserve {
        /// Namespace and name.
        key: Key,
        /// Which one of that name.
        uid: Uid,
        /// What it gets.
        admission: Admission,
    },
    /// The workload gets no quota. Only told when its status does not say so already.
    NotAdmitted {
        /// Namespace and name.
        key: Key,
        /// Which one of that name.
        uid: Uid,
        /// Reason of condition `QuotaReserved`.
        reason: PendingReason,
        /// Message of the condition.
        message: String,
    },
}

/// What happened in cycles, to be counted. *Source*: `spec/admission-engine.md 8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleOutcome {
    /// Rounds in which some workload got quota (`admission_attempts_total`, result `success`).
    pub successes: u64,
    /// Rounds in which none did (result `inadmissible`).
    pub failures: u64,
    /// Heads that were not served because their victims were taken, in the last round of each queue that was tried
    /// (`admission_cycle_preemption_skips`).
    pub preemption_skips: BTreeMap<ClusterQueueName, u64>,
    /// Nominations that were computed again because their victims were taken: with and without success
    /// (`preemption_target_recomputations_total`).
    pub recomputations: BTreeMap<ClusterQueueName, (u64, u64)>,
}

/// What became of a head.
enum Verdict {
    Fits(Admission),
    Refused {
        reason: PendingReason,
        message: String,
        wait: Wait,
    },
}

impl State {
    /// Decides. Nothing before [`crate::state::Event::Synced`]; see also [`State::has_work`].
    pub fn cycle(&mut self, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.synced {
            return decisions;
        }
        self.end_backoffs(now);
        self.sample_usage(now);
        match self.pace {
            Pace::Paused => {}
            Pace::Running => {
                for _ in 0..HEADS_PER_CYCLE {
                    let Some(queue) = self.next_turn() else { break };
                    decisions.extend(self.try_head(&queue, now));
                }
            }
        }
        for _ in 0..EXPLANATIONS_PER_CYCLE {
            let Some(key) = self.unexplained.pop_first() else {
                break;
            };
            let Some(record) = self.records.get(&key) else {
                continue;
            };
            if let Some((reason, message)) =
                self.explain(record).filter(|(reason, _)| !knows(record, *reason))
            {
                decisions.extend(self.say(&key, reason, message));
            }
        }
        decisions
    }

    /// What happened in cycles since the last call.
    pub fn take_outcome(&mut self) -> CycleOutcome {
        std::mem::take(&mut self.outcome)
    }

    /// The next ready queue after the one that had its turn last.
    fn next_turn(&mut self) -> Option<ClusterQueueName> {
        let after = self.last_turn.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self
            .ready
            .range((after, Bound::Unbounded))
            .next()
            .or_else(|| self.ready.first())
            .cloned();
        self.last_turn.clone_from(&next);
        next
    }

    fn try_head(&mut self, name: &ClusterQueueName, now: Timestamp) -> Option<Decision> {
        let queue = self.queues.get(name)?;
        let key = queue.pending.head()?.clone();
        let record = self.records.get(&key)?;
        let verdict = self.judge(&queue.spec, record);
        match verdict {
            Verdict::Fits(_) => self.outcome.successes += 1,
            Verdict::Refused { .. } => self.outcome.failures += 1,
        }
        let decision = match verdict {
            Verdict::Fits(admission) => Some(self.reserve(&key, admission, now)?),
            Verdict::Refused {
                reason,
                message,
                wait,
            } => {
                self.put_back(name, &key, wait);
                self.say(&key, reason, message)
            }
        };
        self.touch(name);
        decision
    }

    /// Whether a pending workload would get quota if it was tried now.
    #[cfg(test)]
    pub(crate) fn would_fit(&self, key: &Key) -> bool {
        let Some(record) = self.records.get(key) else {
            return false;
        };
        let Place::Queued { cluster, .. } = &record.place else {
            return false;
        };
        let queue = &self.queues[cluster];
        matches!(self.judge(&queue.spec, record), Verdict::Fits(_))
    }

    /// *Source*: `spec/admission-engine.md 2.3`.
    fn judge(&self, queue: &ClusterQueue, record: &Record) -> Verdict {
        let workload = &record.workload;
        let refused = |reason, message: String, wait| Verdict::Refused {
            reason,
            message,
            wait,
        };
        let failed = |phase| matches!(phase, CheckPhase::Retry | CheckPhase::Rejected);
        if workload.status.checks.values().any(|check| failed(check.phase)) {
            return refused(
                PendingReason::PendingEvaluation,
                "The workload has failed admission checks".to_owned(),
                Wait::Configuration,
            );
        }
        if !self.namespace_matches(queue, workload) {
            return refused(
                PendingReason::Misconfigured,
                "workload namespace doesn't match ClusterQueue selector".to_owned(),
                Wait::Namespace,
            );
        }
        if !workload.problems.is_empty() {
            return refused(
                PendingReason::Misconfigured,
                format!("resources validation failed: {}", workload.problems.join("; ")),
                Wait::Configuration,
            );
        }
        let nobody = Ledger::default();
        let offer = Offer {
            queue,
            flavors: &self.flavors,
            ledger: self.ledgers.get(&queue.name).unwrap_or(&nobody),
            undeclared: self.settings.undeclared,
        };
        match flavor::assign(&offer, &workload.pod_sets, &workload.status.reclaimable) {
            Ok(pod_sets) => Verdict::Fits(Admission {
                cluster_queue: queue.name.clone(),
                pod_sets,
            }),
            Err(refusal) => refused(
                refusal.category.into(),
                refusal.message,
                match refusal.remedy {
                    Remedy::Capacity => Wait::Capacity(Class::of(workload)),
                    Remedy::Configuration => Wait::Configuration,
                },
            ),
        }
    }

    fn namespace_matches(&self, queue: &ClusterQueue, workload: &Workload) -> bool {
        let Some(selector) = &queue.namespaces else {
            return false;
        };
        // Why: of a namespace not heard of yet nothing is known, so only the selector of everything matches it.
        self.namespaces
            .get(&workload.key.namespace)
            .map_or(selector.0.is_empty(), |labels| selector.matches(labels))
    }

    fn reserve(&mut self, key: &Key, admission: Admission, now: Timestamp) -> Option<Decision> {
        let record = self.records.get_mut(key)?;
        let workload = &record.workload;
        let uid = workload.uid.clone();
        let place = Place::Holding {
            cluster: admission.cluster_queue.clone(),
            local: local_key(workload),
            charge: Charge::of(&admission, workload),
            stage: Stage::Reserved,
        };
        record.assumption = Some(Assumption {
            admission: admission.clone(),
            quota_since: workload.status.conditions.get("QuotaReserved").map(|c| c.since),
            evictions: eviction_count(workload),
        });
        // Why: if the reservation fails, an explanation given before may never have been written.
        record.said = None;
        self.move_to(key, &place, now);
        Some(Decision::Reserve {
            key: key.clone(),
            uid,
            admission,
        })
    }

    /// *Source*: `spec/admission-engine.md 1.3, 1.4`.
    fn put_back(&mut self, name: &ClusterQueueName, key: &Key, wait: Wait) {
        let (Some(queue), Some(record)) = (self.queues.get_mut(name), self.records.get(key)) else {
            return;
        };
        match (queue.spec.strategy, &wait) {
            (Strategy::StrictFifo, Wait::Capacity(_) | Wait::Configuration | Wait::Backoff(_)) => {
                queue.pending.block();
            }
            (Strategy::StrictFifo, Wait::Namespace) | (Strategy::BestEffortFifo, _) => {
                queue
                    .pending
                    .park(Rank::of(&record.workload, self.settings.timestamp), wait);
            }
        }
    }

    /// Why a workload waits, if that can be told without trying it. *Source*: `spec/admission-engine.md 1.1`.
    fn explain(&self, record: &Record) -> Option<(PendingReason, String)> {
        match &record.place {
            Place::Holding { .. } => None,
            Place::Queued { cluster, .. } => {
                let queue = self.queues.get(cluster)?;
                if !queue.active.is_active() {
                    let text = format!("ClusterQueue {cluster} is inactive: {}", queue.active.message);
                    return Some((PendingReason::Suspended, text));
                }
                // Why: an obstacle outside of the heap that is gone must not be shown on while the turn has not come.
                let outdated = queue.pending.in_heap(&record.workload.key) && shows_obstacle(record);
                let text = "Workload is pending evaluation in the scheduling queue";
                outdated.then(|| (PendingReason::PendingEvaluation, text.to_owned()))
            }
            Place::Out => self.explain_outside(&record.workload),
        }
    }

    fn explain_outside(&self, workload: &Workload) -> Option<(PendingReason, String)> {
        if workload.is_finished() || workload.has_quota() {
            return None;
        }
        if !may_queue(workload) {
            let text = "Workload is held back by annotation kueue.x-k8s.io/admission-gated-by";
            let told = workload.gated && workload.active && !workload.deleting;
            return told.then(|| (PendingReason::AdmissionGated, text.to_owned()));
        }
        let name = &workload.queue;
        let Some(local) = self.locals.get(&local_key(workload)) else {
            return Some((
                PendingReason::Misconfigured,
                format!("LocalQueue {name} doesn't exist"),
            ));
        };
        match local.stop {
            StopPolicy::Hold | StopPolicy::HoldAndDrain => {
                Some((PendingReason::Suspended, format!("LocalQueue {name} is inactive")))
            }
            StopPolicy::None => {
                let text = format!("ClusterQueue {} doesn't exist", local.cluster_queue);
                Some((PendingReason::Misconfigured, text))
            }
        }
    }

    /// Tells a reason unless it was told already.
    fn say(&mut self, key: &Key, reason: PendingReason, message: String) -> Option<Decision> {
        let record = self.records.get_mut(key)?;
        let told = record.said.as_ref().map_or_else(
            || {
                let quota = record.workload.status.conditions.get("QuotaReserved");
                quota.is_some_and(|c| {
                    c.truth == Truth::False && c.reason == reason.as_str() && c.message == message
                })
            },
            |(was, text)| *was == reason && *text == message,
        );
        if told {
            return None;
        }
        record.said = Some((reason, message.clone()));
        Some(Decision::NotAdmitted {
            key: key.clone(),
            uid: record.workload.uid.clone(),
            reason,
            message,
        })
    }
}

/// Endings of the messages with which a reservation is taken back because of a queue.
/// *Source*: `spec/admission-engine.md 3.7, 9.2 B048`.
const TAKEN_BACK: [&str; 2] = ["is stopped", "is terminating or missing"];

/// Whether the workload was told this reason already, in other words, when its reservation was taken back.
fn knows(record: &Record, reason: PendingReason) -> bool {
    let quota = record.workload.status.conditions.get("QuotaReserved");
    record.said.is_none()
        && quota.is_some_and(|c| {
            let theirs = TAKEN_BACK.iter().any(|ending| c.message.ends_with(ending));
            c.truth == Truth::False && c.reason == reason.as_str() && theirs
        })
}

/// Whether the workload's status names an obstacle outside of the heap.
fn shows_obstacle(record: &Record) -> bool {
    let quota = record.workload.status.conditions.get("QuotaReserved");
    let (reason, message) = match (&record.said, quota) {
        (Some((reason, message)), _) => (reason.as_str(), message.as_str()),
        (None, Some(c)) if c.truth == Truth::False => (c.reason.as_ref(), c.message.as_str()),
        (None, Some(_) | None) => return false,
    };
    match reason {
        "Suspended" | "AdmissionGated" => true,
        "Misconfigured" => message.ends_with("doesn't exist") || message.ends_with(TAKEN_BACK[1]),
        _ => false,
    }
}
