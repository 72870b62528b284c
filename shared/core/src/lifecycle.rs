//! The life of one Workload: reservation, admission, eviction, release, deactivation, finish.
//!
//! [`step`] takes one Workload and the facts around it and says what its status must become, all at once. Where the reference writes
//! several times, one write does it here wherever the API allows it, with the same final texts. [`settle`] runs after the check controllers
//! and updates `Admitted`.
//!
//! Invariants: a finished Workload never becomes unfinished; with the same facts, a second pass over the result of the
//! first changes nothing; quota is never released while the job may have pods.
//!
//! *Source*: `spec/admission-engine.md 1.7, 1.8, 3, 4.1 to 4.3`, `spec/jobs.md 5.9, 5.10, 5.14`, `spec/api.md API-9.6`.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use crate::condition::Truth;
use crate::moment::later;
use crate::note::Note;
use crate::queue::StopPolicy;
use crate::reason::GATED_BY;
use crate::status::{Admission, CheckPhase, CheckState, Status};
use crate::workload::PodSet;

mod checks;
mod evict;
mod observed;
mod older;
mod ready;
mod retire;
mod settle;

pub(crate) use evict::{TIME_IS_UP, time_is_up};

pub use checks::required_checks;
pub use observed::{
    Core, FirstStatus, JobFacts, Observed, Orphans, Outcome, Policy, Proposal, Reclaim, Request, Retention,
};
pub use older::{Words, use_older_words};
pub use ready::WaitForPods;
pub use retire::Removal;
pub use settle::settle;

/// Condition: quota is held.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// Condition: the job may run.
pub const ADMITTED: &str = "Admitted";
/// Condition: the job must stop.
pub const EVICTED: &str = "Evicted";
/// Condition: evicted in favour of another Workload.
pub const PREEMPTED: &str = "Preempted";
/// Condition: it may be queued again after an eviction.
pub const REQUEUED: &str = "Requeued";
/// Condition: all pods are ready or have succeeded.
pub const PODS_READY: &str = "PodsReady";
/// Condition: the job is over.
pub const FINISHED: &str = "Finished";
/// Condition: `spec.active` is about to become false.
pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
/// Condition of a group's Workload while some of its pods must be replaced.
const REPLACEMENT: &str = "WaitingForReplacementPods";
/// Reason of condition `QuotaReserved`: a gate holds the Workload back.
const ADMISSION_GATED: &str = "AdmissionGated";
/// Reason of condition `QuotaReserved`: no worker cluster can ever hold it.
const EXCEEDS_EVERY_WORKER: &str = "ExceedsEveryWorker";
/// Condition: a preemption waits for a gate.
pub const BLOCKED_ON_GATES: &str = "BlockedOnPreemptionGates";

/// What a pass wants to change of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Its status. Written **before** [`Next::active`] is acted upon.
    pub status: Status,
    /// What to do with `spec.active`.
    pub active: Activation,
    /// Events to emit on it, once the status is written.
    pub notes: Vec<Note>,
    /// When to look again if nothing changes before.
    pub wake_at: Option<Timestamp>,
    /// What to do with finalizer `kueue.x-k8s.io/resource-in-use`.
    pub finalizer: Finalizer,
    /// What to delete because its retention is over.
    pub removal: Removal,
}

/// What to do with `spec.active`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Leave it.
    Keep,
    /// Set it to false.
    Deactivate,
}

/// What to do with the finalizer of a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// Leave it.
    Keep,
    /// Take it away, if it is there.
    Drop,
}

/// One pass over one Workload: computes its next status from the facts around it, without any side effect.
///
/// The check controllers and [`settle`] follow; then the caller writes the status.
pub fn step(seen: &Observed<'_>, now: Timestamp) -> Next {
    let mut draft = Draft::new(seen, now);
    if seen.workload.is_finished() {
        if !seen.owes_its_end() {
            draft.finalizer = Finalizer::Drop;
        }
        if seen.policy.core == Core::Runs {
            draft.retire_finished();
        }
        return draft.done();
    }
    if seen.workload.deleting {
        // Why also when the job has ended: then none of its pods runs, even if a stop was still under way.
        if seen.job.at_rest() || seen.job.has_ended() {
            draft.finalizer = Finalizer::Drop;
        }
        return draft.done();
    }
    if draft.end() {
        return draft.done();
    }
    if seen.policy.core == Core::Off {
        draft.make_room();
        draft.release_when_at_rest();
        draft.take_proposal();
        draft.count_reclaimable();
        draft.admit_without_checks();
        return draft.done();
    }
    draft.aim_at_deactivation();
    draft.follow_deactivation();
    draft.obey_retry_checks();
    draft.obey_queues();
    draft.make_room();
    draft.release_when_at_rest();
    draft.wait_for_replacements();
    draft.end_waiting();
    draft.take_proposal();
    draft.say_that_it_waits();
    draft.say_that_it_is_deactivated();
    draft.list_checks();
    draft.count_reclaimable();
    draft.tell_requests();
    draft.retire_deactivated();
    draft.done()
}

/// The status that this pass computes.
struct Draft<'a> {
    seen: &'a Observed<'a>,
    now: Timestamp,
    status: Status,
    notes: Vec<Note>,
    active: Activation,
    finalizer: Finalizer,
    removal: Removal,
    wake_at: Option<Timestamp>,
    evicted_now: bool,
}

impl<'a> Draft<'a> {
    fn new(seen: &'a Observed<'a>, now: Timestamp) -> Self {
        Self {
            seen,
            now,
            status: seen.workload.status.clone(),
            notes: Vec::new(),
            active: Activation::Keep,
            finalizer: Finalizer::Keep,
            removal: Removal::Nothing,
            wake_at: None,
            evicted_now: false,
        }
    }

    fn done(self) -> Next {
        Next {
            status: self.status,
            active: self.active,
            notes: self.notes,
            wake_at: self.wake_at,
            finalizer: self.finalizer,
            removal: self.removal,
        }
    }

    fn has_quota(&self) -> bool {
        self.status.conditions.is_true(QUOTA_RESERVED)
    }

    fn is_evicted(&self) -> bool {
        self.status.conditions.is_true(EVICTED)
    }

    fn set(
        &mut self,
        kind: &'static str,
        truth: Truth,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.status.conditions.set(kind, truth, reason, message, self.now);
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Finishes it when its job has ended, was refused or is deleted. *Source*: `spec/admission-engine.md 3.6`, `spec/jobs.md 5.10`.
    fn end(&mut self) -> bool {
        let (reason, message) = match (self.seen.request, self.seen.job) {
            (Some(Request::OutOfSync), _) => (
                "OutOfSync",
                "The prebuilt workload is out of sync with its user job".to_owned(),
            ),
            (Some(Request::FailedToStart { message }), _) => ("FailedToStart", message.clone()),
            (None, JobFacts::OwnerGone) => match self.seen.policy.orphans {
                Orphans::Finish => (
                    "OwnerNotFound",
                    "The workload's owner no longer exists".to_owned(),
                ),
                Orphans::Release => {
                    self.finalizer = Finalizer::Drop;
                    return true;
                }
            },
            (
                None,
                JobFacts::Present {
                    finished: Some(outcome),
                    ..
                },
            ) => {
                let reason = if outcome.success { "Succeeded" } else { "Failed" };
                (reason, outcome.message.clone())
            }
            (None, JobFacts::Awaited | JobFacts::Unknown | JobFacts::Present { finished: None, .. }) => {
                return false;
            }
        };
        self.set(FINISHED, Truth::True, reason, message);
        true
    }

    /// Marks the Workload for deactivation when a check rejected it or its time is up, and asks for `spec.active=false`.
    ///
    /// Why two writes: `spec` and `status` cannot be written together. The mark is written first, so that a crash in between loses neither
    /// the deactivation nor its reason.
    fn aim_at_deactivation(&mut self) {
        if !self.seen.workload.active {
            return;
        }
        if !self.status.conditions.is_true(DEACTIVATION_TARGET) {
            if let Some(text) = checks::text_of(&self.status, CheckPhase::Rejected) {
                self.notes.push(Note::warning(
                    "AdmissionCheckRejected",
                    format!("Deactivated due to {text}"),
                ));
                self.set(DEACTIVATION_TARGET, Truth::True, "AdmissionCheck", text);
            } else {
                self.watch_execution_time();
                self.watch_pods();
            }
        }
        if self.status.conditions.is_true(DEACTIVATION_TARGET) {
            self.active = Activation::Deactivate;
        }
    }

    /// *Source*: `spec/admission-engine.md 4.2`, `spec/jobs.md 5.14`.
    fn watch_execution_time(&mut self) {
        let Some(limit) = self.seen.workload.max_execution_secs else {
            return;
        };
        let Some(since) = self.status.conditions.when_true(ADMITTED).map(|c| c.since) else {
            return;
        };
        if self.is_evicted() {
            return;
        }
        let left = i64::from(limit) - i64::from(self.status.accumulated_secs.unwrap_or(0));
        let end = later(since, SignedDuration::from_secs(left));
        if end > self.now {
            self.wake(end);
            return;
        }
        self.notes.push(time_is_up(&mut self.status, limit, self.now));
    }

    /// Evicts it when a check asks to try again later. *Source*: `spec/admission-engine.md 3.2`.
    fn obey_retry_checks(&mut self) {
        if self.is_evicted() {
            // Why: a verdict that arrives after the eviction belongs to the reservation that was just lost.
            evict::reset_checks(&mut self.status, evict::AFTER_EVICTION, self.now, |phase| {
                phase == CheckPhase::Retry
            });
            return;
        }
        if self.active == Activation::Deactivate {
            return;
        }
        let Some(text) = checks::text_of(&self.status, CheckPhase::Retry) else {
            return;
        };
        let at = self
            .status
            .checks
            .values()
            .filter(|c| c.phase == CheckPhase::Retry);
        let at = at
            .filter_map(|check| {
                let secs = check.requeue_after_secs.filter(|secs| *secs > 0)?;
                Some(later(check.since, SignedDuration::from_secs(secs.into())))
            })
            .max();
        if let Some(at) = at {
            self.status.requeue.get_or_insert_default().at = Some(at);
        }
        self.evict("AdmissionCheck", "", format!("Evicted due to {text}"));
    }

    /// Takes back the reservation when its queue is stopped or deleted. *Source*: `spec/admission-engine.md 1.8, 3.7`.
    fn obey_queues(&mut self) {
        if !self.has_quota() || self.is_evicted() || self.active == Activation::Deactivate {
            return;
        }
        let cluster_queue = self.seen.cluster_queue.filter(|queue| !queue.terminating);
        let stop = cluster_queue.map_or(StopPolicy::None, |queue| queue.stop);
        let local_stop = self.seen.local_stop;
        // Why also when the job may run: a worker cluster may run it while other checks of this cluster still delay the admission.
        if self.status.conditions.is_true(ADMITTED) || !self.seen.job.at_rest() {
            if stop == StopPolicy::HoldAndDrain {
                self.evict(
                    "ClusterQueueStopped",
                    "",
                    "The ClusterQueue is stopped".to_owned(),
                );
            } else if local_stop == Some(StopPolicy::HoldAndDrain) {
                self.evict("LocalQueueStopped", "", "The LocalQueue is stopped".to_owned());
            }
            return;
        }
        let name = match (&self.status.admission, cluster_queue) {
            (Some(admission), _) => admission.cluster_queue.to_string(),
            (None, Some(queue)) => queue.name.to_string(),
            (None, None) => String::new(),
        };
        let local = self.seen.workload.queue.clone();
        let is_missing = cluster_queue.is_none() || local_stop.is_none();
        let drains = [Some(stop), local_stop].contains(&Some(StopPolicy::HoldAndDrain));
        if is_missing && !drains && self.has_no_check_outstanding() {
            // Wire: the reference admits a Workload without outstanding checks before it looks at the queues, and an admitted one stays.
            // Where the other queue drains, admission would last only until the next pass.
            return;
        }
        if cluster_queue.is_none() {
            self.lose_reservation(
                "Misconfigured",
                format!("ClusterQueue {name} is terminating or missing"),
            );
        } else if local_stop.is_none() {
            self.lose_reservation(
                "Misconfigured",
                format!("LocalQueue {local} is terminating or missing"),
            );
        } else if stop != StopPolicy::None {
            self.lose_reservation("Suspended", format!("ClusterQueue {name} is stopped"));
        } else if local_stop != Some(StopPolicy::None) {
            self.lose_reservation("Suspended", format!("LocalQueue {local} is stopped"));
        } else if let Some(sentence) = &self.seen.workload.beyond {
            self.lose_reservation(EXCEEDS_EVERY_WORKER, sentence.clone());
        }
    }

    fn has_no_check_outstanding(&self) -> bool {
        let is_ready = |check: &CheckState| check.phase == CheckPhase::Ready;
        let required = { self.seen.cluster_queue }
            .map(|queue| required_checks(queue, self.status.admission.as_ref()))
            .unwrap_or_default();
        let checks = &self.status.checks;
        checks.values().all(is_ready) && required.iter().all(|name| checks.get(name).is_some_and(is_ready))
    }

    /// Lets it into the queue again once the obstacle is gone. *Source*: `spec/admission-engine.md 1.7, 1.8, 3.5`.
    fn end_waiting(&mut self) {
        if self.has_quota() || !self.seen.workload.active || self.active == Activation::Deactivate {
            return;
        }
        let due = self.status.requeue.and_then(|requeue| requeue.at);
        let waits = due.filter(|at| *at > self.now);
        if let Some(at) = waits {
            self.wake(at);
        } else if let Some(requeue) = &mut self.status.requeue {
            requeue.at = None;
            if requeue.count.is_none() {
                self.status.requeue = None;
            }
        }
        let Some(held) = self.status.conditions.get(REQUEUED) else {
            return;
        };
        if held.truth != Truth::False {
            return;
        }
        let runs = |stop: Option<StopPolicy>| stop == Some(StopPolicy::None);
        let cluster_queue = self.seen.cluster_queue.filter(|queue| !queue.terminating);
        let (over, reason, message) = match held.reason.as_ref() {
            reason if reason.starts_with(evict::DEACTIVATED) => {
                (true, "Reactivated", "The workload was reactivated")
            }
            "ClusterQueueStopped" => (
                runs(cluster_queue.map(|queue| queue.stop)),
                "ClusterQueueRestarted",
                "The ClusterQueue was restarted after being stopped",
            ),
            "LocalQueueStopped" => (
                runs(self.seen.local_stop),
                "LocalQueueRestarted",
                "The LocalQueue was restarted after being stopped",
            ),
            _ => (
                waits.is_none(),
                "BackoffFinished",
                "The workload backoff was finished",
            ),
        };
        if over {
            if reason == "Reactivated" {
                // Why here: a reactivated Workload counts its attempts from zero. Until now the checks showed the old counts.
                for check in self.status.checks.values_mut() {
                    check.retry_count = None;
                }
            }
            self.set(REQUEUED, Truth::True, reason, message);
        }
    }

    /// Takes over the decision of the admission cycle, if it still applies. *Source*: `spec/admission-engine.md 2.13, 2.15`.
    fn take_proposal(&mut self) {
        if self.has_quota() || !self.seen.workload.active || self.active == Activation::Deactivate {
            return;
        }
        match self.seen.proposal {
            Some(Proposal::Pending { reason, message }) => {
                let told = self.status.conditions.get(QUOTA_RESERVED);
                if told.is_none_or(|c| c.reason != *reason || c.message != *message) {
                    self.notes.extend(self.gates_opened());
                    // Unlike the anchor: an event only for a new reason, not for every new message or attempt.
                    if told.is_none_or(|c| c.truth != Truth::False || c.reason != *reason) {
                        self.notes.push(match message.strip_prefix(GATED_BY) {
                            // Why no warning: the user asked for it.
                            Some(gates) => {
                                let text = format!("Workload admission is gated by: {gates}");
                                Note::normal(ADMISSION_GATED, text)
                            }
                            None => Note::warning(reason.clone(), message.clone()),
                        });
                    }
                    self.set(QUOTA_RESERVED, Truth::False, reason.clone(), message.clone());
                }
                if *reason == ADMISSION_GATED
                    && !self.seen.workload.is_gated()
                    && self.status.has_closed_gate()
                {
                    self.set(BLOCKED_ON_GATES, Truth::True, "PreemptionGated", message.clone());
                }
            }
            // Why: the decision was made before the limits of the workers were known. The next cycle sees them in this status.
            Some(Proposal::Reserve { .. }) if self.seen.workload.beyond.is_some() => {
                let sentence = self.seen.workload.beyond.clone().unwrap_or_default();
                self.set(QUOTA_RESERVED, Truth::False, EXCEEDS_EVERY_WORKER, sentence);
            }
            Some(Proposal::Reserve {
                admission,
                considered,
            }) if self.may_reserve(admission) => {
                self.reserve(admission, considered);
            }
            // Why: a reservation that was decided on an older view is dropped; the next cycle sees the newer view and decides again. A
            // Workload without quota cannot make room.
            Some(Proposal::Reserve { .. } | Proposal::Evict { .. }) | None => {}
        }
    }

    /// Admits a Workload that needs no checks, as the scheduler of the reference does by itself.
    fn admit_without_checks(&mut self) {
        let admission = self.status.admission.as_ref();
        let required = self
            .seen
            .cluster_queue
            .map(|queue| required_checks(queue, admission));
        let is_free = required.is_some_and(|names| names.is_empty()) && self.status.checks.is_empty();
        let is_admitted = self.status.conditions.is_true(ADMITTED);
        if is_free && self.has_quota() && !self.is_evicted() && !is_admitted {
            let note = settle::admit(&mut self.status, self.now);
            self.notes.push(note);
        }
    }

    /// Says that a Workload without any decision waits for evaluation. *Source*: gate `UnadmittedWorkloadsExplicitStatus`.
    fn say_that_it_waits(&mut self) {
        let is_asked = self.seen.policy.first_status == FirstStatus::AtOnce;
        if is_asked && self.status.conditions.get(QUOTA_RESERVED).is_none() {
            let message = "Workload is pending evaluation in the scheduling queue";
            self.set(QUOTA_RESERVED, Truth::False, "PendingEvaluation", message);
        }
    }

    /// *Source*: `spec/api.md API-9.6`.
    fn say_that_it_is_deactivated(&mut self) {
        if !self.seen.workload.active && !self.has_quota() {
            let message = "The workload is deactivated";
            self.set(QUOTA_RESERVED, Truth::False, evict::DEACTIVATED, message);
        }
    }

    /// Whether a reservation that was decided on an older view may still be taken.
    fn may_reserve(&self, admission: &Admission) -> bool {
        let workload = self.seen.workload;
        let open = self.seen.cluster_queue.is_some_and(|queue| {
            !queue.terminating && queue.stop == StopPolicy::None && queue.name == admission.cluster_queue
        });
        let held_back = self.status.conditions.is_false(REQUEUED)
            || self
                .status
                .requeue
                .and_then(|r| r.at)
                .is_some_and(|at| at > self.now);
        open && self.seen.local_stop == Some(StopPolicy::None)
            && !self.evicted_now
            && !workload.is_gated()
            && !held_back
            && admission.pod_sets.len() == workload.pod_sets.len()
    }

    /// The Event when the last gate of a Workload is gone: with the first decision after that.
    fn gates_opened(&self) -> Option<Note> {
        let told = self.status.conditions.get(QUOTA_RESERVED)?;
        let was_gated = told.truth == Truth::False && told.message.starts_with(GATED_BY);
        (was_gated && !self.seen.workload.is_gated()).then(|| {
            Note::normal(
                "AdmissionGateCleared",
                "Admission gate cleared, workload is now admissible",
            )
        })
    }

    fn reserve(&mut self, admission: &Admission, considered: &str) {
        self.notes.extend(self.gates_opened());
        let queued_since = self.status.conditions.when_true(REQUEUED).map(|c| c.since);
        let queued_since = queued_since.unwrap_or(self.seen.workload.created);
        let waited = self.now.duration_since(queued_since).as_secs().max(0);
        let text = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
        let mut note = format!("{text}, wait time since queued was {waited}s");
        if !considered.is_empty() {
            note.push_str("; Flavors considered: ");
            note.push_str(considered);
        }
        self.notes.push(Note::routine(QUOTA_RESERVED, note));
        self.status.admission = Some(admission.clone());
        self.set(QUOTA_RESERVED, Truth::True, QUOTA_RESERVED, text);
        for kind in [EVICTED, PREEMPTED, BLOCKED_ON_GATES] {
            if let Some(before) = self.status.conditions.when_true(kind) {
                let message = format!("Previously: {}", before.message);
                self.set(kind, Truth::False, QUOTA_RESERVED, message);
            }
        }
    }

    /// Keeps the list of checks in line with the queue and the flavors. *Source*: `spec/admission-engine.md 3.2`.
    ///
    /// Unlike the anchor: no check is listed before the first decision about the Workload, so that its first status write carries
    /// information.
    fn list_checks(&mut self) {
        let Some(cluster_queue) = self.seen.cluster_queue else {
            return;
        };
        let admission = self.status.admission.as_ref();
        let foreign = admission.is_some_and(|admission| admission.cluster_queue != cluster_queue.name);
        if foreign || self.status.conditions.get(QUOTA_RESERVED).is_none() {
            return;
        }
        let required = required_checks(cluster_queue, admission);
        self.status.checks.retain(|name, _| required.contains(name));
        for name in required {
            let now = self.now;
            let entry = self.status.checks.entry(name);
            entry.or_insert_with(|| CheckState::pending(now));
        }
    }

    /// Says whether a group is complete; an incomplete group gets no quota. *Source*: `spec/jobs.md 12.10`.
    fn wait_for_replacements(&mut self) {
        let JobFacts::Present {
            missing: Some(missing),
            ..
        } = self.seen.job
        else {
            return;
        };
        if *missing > 0 {
            let evicted = self.status.conditions.when_true(EVICTED);
            let (reason, message) = match evicted {
                Some(evicted) => (evicted.reason.clone(), evicted.message.clone()),
                None => (
                    "PodsFailed".into(),
                    "Some Failed pods need replacement".to_owned(),
                ),
            };
            self.set(REPLACEMENT, Truth::True, reason, message);
        } else if self.status.conditions.is_true(REPLACEMENT) {
            self.set(REPLACEMENT, Truth::False, "PodsReady", "No pods need replacement");
        }
    }

    /// Copies the counts of pods that are no longer needed. *Source*: `spec/jobs.md 5.11`.
    fn count_reclaimable(&mut self) {
        let JobFacts::Present { reclaimable, .. } = self.seen.job else {
            return;
        };
        if self.seen.policy.reclaim == Reclaim::Ignore {
            return;
        }
        let reserved = self.has_quota();
        let before = std::mem::take(&mut self.status.reclaimable);
        for pod_set in &self.seen.workload.pod_sets {
            let old = before.get(&pod_set.name).copied();
            let new = reclaimable.get(&pod_set.name).copied();
            // Invariant: counts neither shrink nor vanish while quota is held (the API refuses it).
            let count = if reserved { old.max(new) } else { new };
            if let Some(count) = count {
                self.status
                    .reclaimable
                    .insert(pod_set.name.clone(), count.min(pod_set.count));
            }
        }
    }

    /// Shows what a Workload without quota requests. *Source*: `spec/admission-engine.md 2.15, 4.5`.
    fn tell_requests(&mut self) {
        if self.has_quota() {
            self.status.requests.clear();
        } else if self.status.conditions.get(QUOTA_RESERVED).is_some() {
            let reclaimable = &self.status.reclaimable;
            let asks = |set: &PodSet| {
                let gone = reclaimable.get(&set.name).copied().unwrap_or(0);
                (set.name.clone(), set.total(set.count.saturating_sub(gone)))
            };
            self.status.requests = self.seen.workload.pod_sets.iter().map(asks).collect();
        }
    }
}

#[cfg(test)]
mod tests;
