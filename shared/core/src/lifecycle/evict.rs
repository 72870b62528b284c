//! Losing admission: eviction, deactivation, release of quota.
//!
//! Invariant: an evicted Workload keeps its quota until its job is at rest. If its job is not known here, it keeps the quota until its own
//! controller releases the reservation.

use jiff::Timestamp;

use super::{
    ADMITTED, Activation, DEACTIVATION_TARGET, Draft, EVICTED, PREEMPTED, Proposal, QUOTA_RESERVED, REQUEUED,
};
use crate::condition::Truth;
use crate::note::Note;
use crate::status::{CheckPhase, CheckState, GatePosition, PreemptionGate, Status};

/// Prefix of the reasons of all deactivations.
pub(super) const DEACTIVATED: &str = "Deactivated";
/// Prefix of the reasons of deactivations that no user asked for.
pub(super) const DEACTIVATED_DUE_TO: &str = "DeactivatedDueTo";
/// Reason of a deactivation because the execution time is over.
const MAXIMUM_EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";
/// Reason of the eviction that follows it.
pub(crate) const TIME_IS_UP: &str = "DeactivatedDueToMaximumExecutionTimeExceeded";
/// The cause in the message of a check that an eviction resets.
pub(super) const AFTER_EVICTION: &str = "after eviction";
/// *Limit* of the API: entries of `schedulingStats.evictions`; later kinds are not counted.
const EVICTION_KINDS_MAX: usize = 256;

/// Marks a Workload for deactivation because its maximum execution time, `limit` in seconds, is over. *Source*: `spec/admission-engine.md
/// 4.2`.
pub(crate) fn time_is_up(status: &mut Status, limit: u32, now: Timestamp) -> Note {
    status.accumulated_secs = None;
    let message = "exceeding the maximum execution time";
    { &mut status.conditions }.set(
        DEACTIVATION_TARGET,
        Truth::True,
        MAXIMUM_EXECUTION_TIME_EXCEEDED,
        message,
        now,
    );
    Note::warning(
        MAXIMUM_EXECUTION_TIME_EXCEEDED,
        format!("The maximum execution time ({limit}s) exceeded"),
    )
}

impl Draft<'_> {
    /// Evicts a Workload that is deactivated. *Source*: `spec/admission-engine.md 3.5`, `spec/multikueue.md 3.8`.
    pub(super) fn follow_deactivation(&mut self) {
        if self.seen.workload.active {
            return;
        }
        let target = self.status.conditions.when_true(DEACTIVATION_TARGET).cloned();
        let known = self.status.conditions.when_true(EVICTED);
        let known = known.is_some_and(|c| c.reason.starts_with(DEACTIVATED));
        match target {
            Some(target) => self.evict(
                format!("{DEACTIVATED_DUE_TO}{}", target.reason),
                &target.reason,
                format!("The workload is deactivated due to {}", target.message),
            ),
            None if !known => self.evict(DEACTIVATED, "", "The workload is deactivated".to_owned()),
            None => {
                // Why: verdicts that arrive while it is deactivated must not deactivate it again once it is active.
                reset_checks(&mut self.status, AFTER_EVICTION, self.now, |phase| {
                    phase == CheckPhase::Rejected
                });
            }
        }
        self.status.conditions.remove(DEACTIVATION_TARGET);
        self.status.requeue = None;
    }

    /// Evicts a Workload that the admission cycle has chosen as a victim. *Source*: `spec/admission-engine.md 2.12`.
    pub(super) fn make_room(&mut self) {
        let Some(Proposal::Evict {
            reason,
            preempted_reason,
            message,
            priorities,
        }) = self.seen.proposal
        else {
            return;
        };
        if !self.has_quota() || self.is_evicted() || self.active == Activation::Deactivate {
            return;
        }
        let text = format!("{message}{priorities}");
        self.notes.push(Note::normal(PREEMPTED, text));
        self.set(PREEMPTED, Truth::True, preempted_reason.as_str(), message.clone());
        self.evict(*reason, "", message.clone());
    }

    /// Evicts the Workload: its job must stop. Quota stays held. *Source*: `spec/admission-engine.md 3.3`.
    pub(super) fn evict(
        &mut self,
        reason: impl Into<std::borrow::Cow<'static, str>>,
        cause: &str,
        message: String,
    ) {
        let reason = reason.into();
        self.evicted_now = true;
        self.notes
            .push(Note::normal(format!("EvictedDueTo{reason}"), message.clone()));
        self.count_eviction(&reason, cause);
        self.set(EVICTED, Truth::True, reason, message);
        reset_checks(&mut self.status, AFTER_EVICTION, self.now, |_| true);
        self.status.cluster = None;
        self.status.nominated.clear();
        self.status.unhealthy_nodes.clear();
        for gate in self.status.preemption_gates.values_mut() {
            if gate.position == GatePosition::Open {
                *gate = PreemptionGate {
                    position: GatePosition::Closed,
                    since: self.now,
                };
            }
        }
    }

    fn count_eviction(&mut self, reason: &str, cause: &str) {
        let reason = if reason.starts_with(DEACTIVATED) {
            DEACTIVATED
        } else {
            reason
        };
        let key = (reason.to_owned(), cause.to_owned());
        let counts = &mut self.status.evictions;
        if counts.contains_key(&key) || counts.len() < EVICTION_KINDS_MAX {
            let count = counts.entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Releases the quota of an evicted Workload once its job is at rest. *Source*: `spec/jobs.md 5.9`.
    ///
    /// Unlike the anchor: this also covers a manager's copy whose job has not arrived, because no other controller here would release it.
    pub(super) fn release_when_at_rest(&mut self) {
        let Some(evicted) = self.status.conditions.when_true(EVICTED).cloned() else {
            return;
        };
        let releases = self.has_quota() && self.seen.job.frees_quota();
        // Why: a Workload without a reservation has no quota to release, but must still be kept out of the queue.
        let never_held = self.evicted_now && !self.has_quota();
        if !releases && !never_held {
            return;
        }
        let requeued = match evicted.reason.as_ref() {
            "Preempted" | "NodeFailures" => Truth::True,
            _ => Truth::False,
        };
        self.set(REQUEUED, requeued, evicted.reason, evicted.message.clone());
        self.set(QUOTA_RESERVED, Truth::False, "PendingEvaluation", evicted.message);
        self.status.admission = None;
        self.status.cluster = None;
        self.status.nominated.clear();
    }

    /// Takes back the reservation of a Workload that is not admitted yet: nothing runs, so nothing is evicted.
    pub(super) fn lose_reservation(&mut self, reason: &'static str, message: String) {
        debug_assert!(
            !self.status.conditions.is_true(ADMITTED),
            "an admitted workload is evicted"
        );
        self.set(QUOTA_RESERVED, Truth::False, reason, message);
        self.status.admission = None;
        self.status.cluster = None;
        self.status.nominated.clear();
        // Unlike the anchor: a verdict about a lost reservation does not count for the next one.
        reset_checks(&mut self.status, "after losing the reservation", self.now, |_| {
            true
        });
    }
}

/// Sets the checks in the picked phases, other than `Pending`, back to `Pending`.
pub(super) fn reset_checks(
    status: &mut Status,
    when: &str,
    now: Timestamp,
    picked: impl Fn(CheckPhase) -> bool,
) {
    for check in status.checks.values_mut() {
        let phase = check.phase;
        if phase == CheckPhase::Pending || !picked(phase) {
            continue;
        }
        // Why: a rejected check still shows how often it was retried, but not when it is tried again.
        let (retry_count, requeue_after_secs) = match phase {
            CheckPhase::Retry => (
                Some(check.retry_count.unwrap_or(0).saturating_add(1)),
                check.requeue_after_secs,
            ),
            CheckPhase::Rejected => (check.retry_count, None),
            CheckPhase::Pending | CheckPhase::Ready => (None, check.requeue_after_secs),
        };
        *check = CheckState {
            phase: CheckPhase::Pending,
            since: now,
            message: format!("Reset to Pending {when}. Previously: {}", phase.as_str()),
            updates: Vec::new(),
            requeue_after_secs,
            retry_count,
        };
    }
}
