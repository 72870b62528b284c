//! The cycle: heads are nominated, put in order and served; decisions come out.
//!
//! A call of [`State::cycle`] runs one round after another. A round takes one head from each queue of a tree, as the reference's cycle
//! does; the next round follows at once, with the next heads. Trees share no quota, so each tree has rounds of its own. Invariants: heads
//! of a round are nominated against the same state and served in the specified order; quota given to a head counts for the heads after it;
//! quota that was only claimed is given back when the round ends.
//! *Source*: `spec/admission-engine.md 2`.

use std::ops::Bound;

use jiff::Timestamp;

use crate::condition::Truth;
use crate::name::{ClusterQueueName, Key, Uid};
use crate::preempt::PreemptReason;
use crate::queue::StopPolicy;
use crate::reason::Reason;
use crate::state::workloads::local_key;
use crate::state::{Eviction, Pace, Place, Record, State, Told};
use crate::status::Admission;
use crate::table::{ClusterId, WorkloadId};
use crate::workload::Workload;

mod claims;
mod head;
mod process;
mod round;
mod scratch;

/// *Limit*: heads tried in one call (and the rest of the last round), so that events never wait long;
/// [`State::has_work`] tells whether some are left.
pub const HEADS_PER_CYCLE: usize = 1_024;
/// *Limit*: workloads outside of heaps that are explained in one call.
pub const EXPLANATIONS_PER_CYCLE: usize = 1_024;

/// A decision to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The workload gets quota. The state counts it from now on, until an event shows it or
    /// [`crate::state::Event::ReserveFailed`] takes it back.
    Reserve {
        /// Namespace and name.
        key: Key,
        /// Its UID.
        uid: Uid,
        /// The quota it gets.
        admission: Admission,
        /// What was found for each flavor, for people; empty when the first flavor was taken.
        considered: String,
    },
    /// The workload gets no quota. Reported only when its status does not say so already.
    NotAdmitted {
        /// Namespace and name.
        key: Key,
        /// Its UID.
        uid: Uid,
        /// The reason, for condition `QuotaReserved`.
        reason: Reason,
    },
    /// The workload is to be evicted in favour of another one. Its quota counts as held until an event shows that it has none. Reported
    /// once, and again only if the eviction does not become visible in time.
    Preempt {
        /// Namespace and name of the victim.
        key: Key,
        /// Its UID.
        uid: Uid,
        /// Why it was chosen: the reason of its condition `Preempted`.
        reason: PreemptReason,
        /// Message of its conditions `Evicted` and `Preempted`.
        message: String,
        /// The workload in whose favour it is evicted.
        preemptor: Key,
        /// UID of the preemptor.
        preemptor_uid: Uid,
        /// The queue of the preemptor.
        preemptor_queue: ClusterQueueName,
    },
}

impl Decision {
    /// The workload that the decision is about.
    pub const fn key(&self) -> &Key {
        match self {
            Self::Reserve { key, .. } | Self::NotAdmitted { key, .. } | Self::Preempt { key, .. } => key,
        }
    }

    /// The UID of that workload.
    pub const fn uid(&self) -> &Uid {
        match self {
            Self::Reserve { uid, .. } | Self::NotAdmitted { uid, .. } | Self::Preempt { uid, .. } => uid,
        }
    }
}

impl State {
    /// Decides which pending workloads get quota. Before [`crate::state::Event::Synced`] it decides nothing; see also [`State::has_work`].
    pub fn cycle(&mut self, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.synced {
            return decisions;
        }
        self.end_backoffs(now);
        self.end_expectations(now);
        self.end_claims(now);
        self.sample_past(now);
        self.spread_gains();
        self.tell_orders(now, &mut decisions);
        match self.pace {
            Pace::Paused | Pace::Elsewhere => {}
            Pace::Running => {
                let mut heads = 0;
                while heads < HEADS_PER_CYCLE {
                    let Some(queue) = self.next_turn() else { break };
                    heads += self.round(queue, now, &mut decisions).max(1);
                }
            }
        }
        self.tell_bypassed(&mut decisions);
        self.explain_some(&mut decisions);
        decisions
    }

    /// The next ready queue after the one that had its turn last.
    fn next_turn(&mut self) -> Option<ClusterId> {
        let after = self.last_turn.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.ready.range((after, Bound::Unbounded));
        let next = rest.next().or_else(|| self.ready.first()).copied();
        self.last_turn = next;
        next
    }

    /// Hands out evictions that had to wait until the victim's reservation was visible.
    fn tell_orders(&mut self, now: Timestamp, decisions: &mut Vec<Decision>) {
        for id in std::mem::take(&mut self.orders) {
            let Some(record) = self.records.at(id) else {
                continue;
            };
            // Why: the eviction was not reported yet, and a preemptor that has gone meanwhile needs no victim.
            if record
                .eviction
                .as_ref()
                .is_some_and(|eviction| !self.is_awaited(eviction))
            {
                self.give_up_eviction(id, now);
                continue;
            }
            let Some(record) = self.records.at_mut(id) else {
                continue;
            };
            let (key, uid) = (record.workload.key.clone(), record.workload.uid.clone());
            if let Some(eviction) = record.eviction.as_deref_mut() {
                eviction.told = Told::Yes;
                decisions.push(preempt(key, uid, eviction));
            }
        }
    }

    /// Whether the workload in whose favour an eviction was decided still waits.
    fn is_awaited(&self, eviction: &Eviction) -> bool {
        self.records.get(&eviction.preemptor).is_some_and(|record| {
            record.workload.uid == eviction.preemptor_uid && matches!(record.place, Place::Queued { .. })
        })
    }

    fn tell_bypassed(&mut self, decisions: &mut Vec<Decision>) {
        for id in std::mem::take(&mut self.bypassed) {
            let Some(record) = self.records.at(id) else {
                continue;
            };
            let asleep = match &record.place {
                Place::Queued { cluster, ticket, .. } => self
                    .queue(*cluster)
                    .filter(|queue| self.is_served(queue) && !queue.pending.in_heap(ticket))
                    .and_then(|queue| queue.pending.category(ticket)),
                Place::Out | Place::Holding(_) => None,
            };
            // Why not for the same reason: the sentence that the status already shows says more.
            if let Some(reason) = asleep.map(Reason::Bypassed)
                && shown_word(record) != Some(reason.word().as_str())
            {
                decisions.extend(self.say(id, reason));
            }
        }
    }

    fn explain_some(&mut self, decisions: &mut Vec<Decision>) {
        let mut batch = Vec::new();
        while batch.len() < EXPLANATIONS_PER_CYCLE
            && let Some(id) = self.unexplained.pop_first()
        {
            batch.push(id);
        }
        for id in batch {
            let Some(record) = self.records.at(id) else {
                continue;
            };
            if let Some(reason) = self.explain(record).filter(|reason| !knows(record, reason)) {
                decisions.extend(self.say(id, reason));
            }
        }
    }

    /// Why a workload waits, if the reason is known without a nomination. *Source*: `spec/admission-engine.md 1.1`.
    fn explain(&self, record: &Record) -> Option<Reason> {
        match &record.place {
            Place::Holding(_) => None,
            Place::Queued { cluster, ticket, .. } => {
                let queue = self.queue(*cluster)?;
                if !self.is_served(queue) {
                    return Some(Reason::QueueInactive {
                        queue: queue.spec.name.clone(),
                        why: (queue.active.is_active()).then_some("the cohorts above it form a circle"),
                    });
                }
                if self.pace == Pace::Paused {
                    return Some(Reason::AdmissionPaused);
                }
                // Why: a workload that is in the heap must not go on showing an obstacle that kept it out.
                let outdated = queue.pending.in_heap(ticket) && shows_obstacle(record);
                outdated.then_some(Reason::AwaitsTurn)
            }
            Place::Out => self.explain_outside(&record.workload),
        }
    }

    fn explain_outside(&self, workload: &Workload) -> Option<Reason> {
        if workload.is_finished() || workload.has_quota() {
            return None;
        }
        if !workload.may_queue() {
            let told = workload.is_gated() && workload.active && !workload.deleting;
            return told.then(|| Reason::Gated(workload.gated_by.clone()));
        }
        let Some((local, _)) = self.local_named(&local_key(workload)) else {
            return Some(Reason::LocalQueueMissing(workload.queue.clone()));
        };
        Some(match local.stop {
            StopPolicy::Hold | StopPolicy::HoldAndDrain => Reason::LocalQueueStopped(workload.queue.clone()),
            StopPolicy::None => Reason::QueueMissing(local.cluster_queue.clone()),
        })
    }

    /// Reports a reason unless it was reported already.
    fn say(&mut self, id: WorkloadId, reason: Reason) -> Option<Decision> {
        let record = self.records.at_mut(id)?;
        let told = record.said.as_deref().map_or_else(
            || {
                let quota = record.workload.status.conditions.get("QuotaReserved");
                quota.is_some_and(|c| {
                    c.truth == Truth::False
                        && c.reason == reason.word().as_str()
                        && c.message == reason.to_string()
                })
            },
            |was| *was == reason,
        );
        if told {
            return None;
        }
        record.said = Some(Box::new(reason.clone()));
        Some(Decision::NotAdmitted {
            key: record.workload.key.clone(),
            uid: record.workload.uid.clone(),
            reason,
        })
    }
}

fn preempt(key: Key, uid: Uid, eviction: &Eviction) -> Decision {
    Decision::Preempt {
        key,
        uid,
        reason: eviction.reason,
        message: eviction.message.clone(),
        preemptor: eviction.preemptor.clone(),
        preemptor_uid: eviction.preemptor_uid.clone(),
        preemptor_queue: eviction.preemptor_queue.clone(),
    }
}

/// Endings of the messages with which the lifecycle takes back a reservation because of a queue. *Source*:
/// `spec/admission-engine.md 3.7, 9.2 B048`.
const TAKEN_BACK: [&str; 2] = ["is stopped", "is terminating or missing"];

/// Whether the status shows this reason already, in the words with which the reservation was taken back.
fn knows(record: &Record, reason: &Reason) -> bool {
    let quota = record.workload.status.conditions.get("QuotaReserved");
    record.said.is_none()
        && quota.is_some_and(|c| {
            let theirs = TAKEN_BACK.iter().any(|ending| c.message.ends_with(ending));
            c.truth == Truth::False && c.reason == reason.word().as_str() && theirs
        })
}

/// The reason that was reported last.
fn shown_word(record: &Record) -> Option<&str> {
    let quota = record.workload.status.conditions.get("QuotaReserved");
    let shown = quota.filter(|c| c.truth == Truth::False);
    { record.said.as_deref() }.map_or_else(
        || shown.map(|c| c.reason.as_ref()),
        |said| Some(said.word().as_str()),
    )
}

/// Whether the workload shows an obstacle that keeps workloads out of the heap.
fn shows_obstacle(record: &Record) -> bool {
    let quota = record.workload.status.conditions.get("QuotaReserved");
    match (record.said.as_deref(), quota) {
        (Some(said), _) => match said {
            Reason::QueueInactive { .. }
            | Reason::LocalQueueMissing(_)
            | Reason::LocalQueueStopped(_)
            | Reason::QueueMissing(_)
            | Reason::Gated(_)
            | Reason::AdmissionPaused => true,
            Reason::NoRoom { .. }
            | Reason::AwaitsVictims { .. }
            | Reason::AwaitsVictimsOfOthers
            | Reason::VictimsTaken
            | Reason::NoLongerFits
            | Reason::PreemptionGated
            | Reason::PodsNotReady
            | Reason::ChecksFailed
            | Reason::NamespaceMismatch
            | Reason::RequestInvalid(_)
            | Reason::ExceedsEveryWorker(_)
            | Reason::Bypassed(_)
            | Reason::AwaitsTurn => false,
        },
        (None, Some(c)) if c.truth == Truth::False => match c.reason.as_ref() {
            "Suspended" | "AdmissionGated" | "AdmissionPaused" => true,
            "Misconfigured" => c.message.ends_with("doesn't exist") || c.message.ends_with(TAKEN_BACK[1]),
            _ => false,
        },
        (None, Some(_) | None) => false,
    }
}

#[cfg(test)]
mod tests;
