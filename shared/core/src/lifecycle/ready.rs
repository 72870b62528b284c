//! Waiting for pods: condition `PodsReady`, and what happens when it takes too long.
//!
//! Invariant: the timers are computed from conditions alone, so a restart changes nothing.
//!
//! *Source*: `spec/admission-engine.md 4.1`, `spec/jobs.md 5.12`.

use jiff::{SignedDuration, Timestamp};

use super::{ADMITTED, DEACTIVATION_TARGET, Draft, EVICTED, JobFacts, PODS_READY, QUOTA_RESERVED};
use crate::condition::Truth;
use crate::moment::later;
use crate::status::{Requeue, Status};

const WAIT_FOR_START: &str = "WaitForStart";
const WAIT_FOR_RECOVERY: &str = "WaitForRecovery";
const RECOVERED: &str = "Recovered";
const TIMED_OUT: &str = "PodsReadyTimeout";
const LIMIT_EXCEEDED: &str = "RequeuingLimitExceeded";

/// The settings `waitForPodsReady`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitForPods {
    /// Longest time from admission until all pods are ready.
    pub timeout: SignedDuration,
    /// Longest time to recover after a pod was lost; `None` does not watch for that.
    pub recovery: Option<SignedDuration>,
    /// How often it is queued again before it is deactivated; `None` means without limit.
    pub limit_count: Option<u32>,
    /// The first pause, in seconds; each further pause is twice as long.
    pub base_secs: u32,
    /// The longest pause, in seconds.
    pub max_secs: u32,
}

impl WaitForPods {
    /// The pause before the `count`-th return, in seconds.
    ///
    /// Unlike the anchor: no jitter. There it is a ten-thousandth of the pause, less than the API's whole seconds can hold.
    pub fn pause_secs(&self, count: u32) -> i64 {
        let doubled = 2_u64.saturating_pow(count.saturating_sub(1));
        let pause = u64::from(self.base_secs).saturating_mul(doubled);
        i64::try_from(pause.min(u64::from(self.max_secs))).unwrap_or(i64::MAX)
    }
}

impl Draft<'_> {
    /// Evicts a Workload that waited too long for its pods, or marks it for deactivation.
    pub(super) fn watch_pods(&mut self) {
        let Some(wait) = self.seen.policy.pods_ready else {
            return;
        };
        // Why the job too: condition `PodsReady` is updated only at the end of the pass, and pods that became ready late still count.
        if is_ready(self.seen.job) {
            return;
        }
        let conditions = &self.status.conditions;
        let admitted = conditions.when_true(ADMITTED).map(|c| c.since);
        let (Some(admitted), false, false) = (
            admitted,
            self.is_evicted(),
            conditions.is_true(DEACTIVATION_TARGET),
        ) else {
            return;
        };
        let told = conditions.get(PODS_READY);
        let (cause, since, limit) = match told.map(|c| (c.truth, c.reason.as_ref(), c.since)) {
            Some((Truth::True, _, _)) => return,
            Some((_, WAIT_FOR_RECOVERY, since)) => (WAIT_FOR_RECOVERY, since, wait.recovery),
            Some(_) | None => (WAIT_FOR_START, admitted, Some(wait.timeout)),
        };
        let Some(limit) = limit else { return };
        let end = after(since, limit);
        if end > self.now {
            self.wake(end);
            return;
        }
        let before = self.status.requeue.and_then(|requeue| requeue.count);
        let count = before.unwrap_or(0).saturating_add(1);
        if wait.limit_count.is_some_and(|limit| count > limit) {
            let message = "exceeding the maximum number of re-queuing retries";
            self.set(DEACTIVATION_TARGET, Truth::True, LIMIT_EXCEEDED, message);
            return;
        }
        self.status.requeue = Some(Requeue {
            count: Some(count.min(COUNT_MAX)),
            at: Some(later(self.now, SignedDuration::from_secs(wait.pause_secs(count)))),
        });
        let message = format!("Exceeded the PodsReady timeout {}", self.seen.workload.key);
        self.evict(TIMED_OUT, cause, message);
    }
}

/// *Limit*: the API stores an `int32`.
const COUNT_MAX: u32 = i32::MAX.unsigned_abs();

/// Updates condition `PodsReady` from the job.
///
/// Unlike the anchor: while an evicted job stops, the condition is left alone, because the end of its pods is expected.
pub(super) fn follow(status: &mut Status, job: &JobFacts, now: Timestamp) {
    const NOT_READY: &str = "Not all pods are ready or succeeded";
    const READY: &str = "All pods reached readiness and the workload is running";
    const LOST: &str = "At least one pod has failed, waiting for recovery";
    let conditions = &status.conditions;
    if conditions.get(QUOTA_RESERVED).is_none() {
        return;
    }
    let admitted = conditions.is_true(ADMITTED);
    if admitted && conditions.is_true(EVICTED) {
        return;
    }
    let ready = is_ready(job);
    let before = conditions.get(PODS_READY).map(|c| (c.truth, c.reason.as_ref()));
    let (truth, reason, message) = match (admitted, ready, before) {
        (true, true, Some((_, WAIT_FOR_RECOVERY | RECOVERED))) => (Truth::True, RECOVERED, READY),
        (true, true, _) => (Truth::True, "Started", READY),
        (true, false, Some((Truth::True, _) | (_, WAIT_FOR_RECOVERY))) => {
            (Truth::False, WAIT_FOR_RECOVERY, LOST)
        }
        (true, false, _) | (false, _, _) => (Truth::False, WAIT_FOR_START, NOT_READY),
    };
    status.conditions.set(PODS_READY, truth, reason, message, now);
}

fn is_ready(job: &JobFacts) -> bool {
    matches!(job, JobFacts::Present { ready: true, .. })
}

/// A time later, saturating.
pub(super) fn after(time: Timestamp, span: SignedDuration) -> Timestamp {
    time.checked_add(span).unwrap_or(Timestamp::MAX)
}
