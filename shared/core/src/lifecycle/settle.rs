//! The last part of a pass: whether the job may run.

use jiff::Timestamp;

use super::{ADMITTED, Core, EVICTED, FINISHED, JobFacts, Policy, QUOTA_RESERVED, evict, ready};
use crate::condition::Truth;
use crate::note::Note;
use crate::status::{CheckPhase, Status};

/// Updates `Admitted` from the reservation and the checks, counts the time admitted when admission ends, and updates `PodsReady` from the
/// job.
///
/// An admitted Workload stays admitted until its quota is released, whatever its checks say; an evicted one is never admitted. Returns the
/// notes to emit once the status is written. *Source*: `spec/api.md API-9.6`, `spec/multikueue.md 1.7`, `spec/provisioning.md 9`.
pub fn settle(status: &mut Status, job: &JobFacts, policy: &Policy, now: Timestamp) -> Vec<Note> {
    if status.conditions.is_true(FINISHED) {
        return Vec::new();
    }
    let notes = settle_admission(status, policy.core, now);
    if policy.pods_ready.is_some() {
        ready::follow(status, job, now);
    }
    notes
}

fn settle_admission(status: &mut Status, core: Core, now: Timestamp) -> Vec<Note> {
    let admitted_since = status.conditions.when_true(ADMITTED).map(|c| c.since);
    let Some(reserved) = status.conditions.get(QUOTA_RESERVED) else {
        return Vec::new();
    };
    if reserved.truth != Truth::True {
        if let Some(since) = admitted_since {
            accumulate(status, since, now);
        }
        let message = "The workload has no reservation";
        status
            .conditions
            .set(ADMITTED, Truth::False, "NoReservation", message, now);
        return Vec::new();
    }
    if admitted_since.is_some() || status.conditions.is_true(EVICTED) || core == Core::Off {
        return Vec::new();
    }
    if status
        .checks
        .values()
        .any(|check| check.phase != CheckPhase::Ready)
    {
        let message = "The workload has not all checks ready";
        status
            .conditions
            .set(ADMITTED, Truth::False, "UnsatisfiedAdmissionChecks", message, now);
        return Vec::new();
    }
    vec![admit(status, now)]
}

pub(super) fn admit(status: &mut Status, now: Timestamp) -> Note {
    let reserved_since = status.conditions.get(QUOTA_RESERVED).map_or(now, |c| c.since);
    let message = "The workload is admitted";
    status
        .conditions
        .set(ADMITTED, Truth::True, ADMITTED, message, now);
    let queue = status
        .admission
        .as_ref()
        .map(|admission| admission.cluster_queue.to_string());
    let queue = queue.unwrap_or_default();
    let waited = now.duration_since(reserved_since).as_secs().max(0);
    Note::routine(
        ADMITTED,
        format!("Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s"),
    )
}

/// Adds the time since `since` to the time spent admitted, except when it was just used up.
fn accumulate(status: &mut Status, since: Timestamp, now: Timestamp) {
    let evicted = status.conditions.when_true(EVICTED);
    if evicted.is_some_and(|c| c.reason == evict::TIME_IS_UP) {
        return;
    }
    let span = u32::try_from(now.duration_since(since).as_secs().max(0)).unwrap_or(u32::MAX);
    let sum = status.accumulated_secs.unwrap_or(0).saturating_add(span);
    status.accumulated_secs = Some(sum.min(ACCUMULATED_SECS_MAX));
}

/// *Limit*: the API stores an `int32`.
const ACCUMULATED_SECS_MAX: u32 = i32::MAX.unsigned_abs();
