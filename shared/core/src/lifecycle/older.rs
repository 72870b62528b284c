//! The older reasons of the reference, for administrators that switch gate `UnadmittedWorkloadsObservability` off.
//!
//! Invariant: only texts change here, after all decisions; the decisions use the present reasons. *Source*: `spec/api.md API-9.6, API-14`.

use super::{ADMITTED, Next, QUOTA_RESERVED};
use crate::condition::{Condition, Truth};
use crate::note::{Note, Severity};
use crate::status::{CheckPhase, Status};

/// Which reasons a waiting Workload shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// A separate reason for each cause.
    #[default]
    Granular,
    /// The few older reasons.
    Older,
}

/// Replaces the reasons in `next` by the older ones. `before` is the stored status.
pub fn use_older_words(before: &Status, next: &mut Next) {
    let conditions = &mut next.status.conditions;
    if let Some(quota) = conditions.get(QUOTA_RESERVED).filter(|c| c.truth == Truth::False) {
        let reason = older(&quota.reason, &quota.message);
        let quota = Condition {
            reason: reason.to_owned().into(),
            ..quota.clone()
        };
        conditions.insert(QUOTA_RESERVED, quota);
    }
    if let Some(admitted) = conditions.get(ADMITTED).filter(|c| c.truth == Truth::False) {
        let lacks_checks = { next.status.checks.values() }.any(|check| check.phase != CheckPhase::Ready);
        let told = before.conditions.get(ADMITTED).cloned();
        let now = admitted.clone();
        match told {
            // Wire: with the gate off, only the loss of an admission is shown, once.
            None => conditions.remove(ADMITTED),
            Some(told) if told.truth == Truth::False => conditions.insert(ADMITTED, told),
            Some(_) => conditions.insert(ADMITTED, lost(now, lacks_checks)),
        }
    }
    next.notes.iter_mut().for_each(rename);
}

fn lost(admitted: Condition, lacks_checks: bool) -> Condition {
    let (reason, message) = match (admitted.reason.as_ref(), lacks_checks) {
        ("UnsatisfiedAdmissionChecks", _) => ("UnsatisfiedChecks", admitted.message.clone()),
        ("NoReservation", true) => (
            "NoReservationUnsatisfiedChecks",
            "The workload has no reservation and not all checks ready".to_owned(),
        ),
        _ => return admitted,
    };
    Condition {
        reason: reason.into(),
        message,
        ..admitted
    }
}

/// The older reason for a reason of `QuotaReserved`=False.
fn older<'a>(reason: &'a str, message: &str) -> &'a str {
    match reason {
        "WaitingForPodsReady" => "Waiting",
        "Suspended" => "Inadmissible",
        // Why by the message: the scheduler reported problems with the queue's namespaces or with the request itself as `Pending`.
        "Misconfigured" if is_about_a_queue(message) => "Inadmissible",
        "AdmissionGated" | "Inadmissible" | "OnHold" | "Pending" | "Waiting" => reason,
        _ => "Pending",
    }
}

fn is_about_a_queue(message: &str) -> bool {
    message.ends_with("doesn't exist") || message.ends_with("is terminating or missing")
}

/// Wire: a warning about a waiting workload has the reason of its condition.
fn rename(note: &mut Note) {
    const WAITS: [&str; 11] = [
        "NoMatchingFlavor",
        "WaitingForQuota",
        "ExceedsMaxQuota",
        "ExceedsEveryWorker",
        "WaitingForPreemptedWorkloads",
        "WaitingForPodsReady",
        "Misconfigured",
        "Suspended",
        "PendingEvaluation",
        "AdmissionGated",
        "AdmissionPaused",
    ];
    if note.severity == Severity::Warning && WAITS.contains(&note.reason.as_ref()) {
        note.reason = older(&note.reason, &note.message).to_owned().into();
    }
}
