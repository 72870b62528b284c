//! How a change of one Workload's status counts: a pure function from the two statuses to updates.
//!
//! Invariant: a change that is seen once is counted once, whichever client wrote it; the state at the start of this process is
//! not counted.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use roadstead_api::constants::gates;
use roadstead_api::kueue::v1beta2::Workload;

use super::board::{Change, Update};
use super::table::Metric;

/// The queues and cohorts whose counters a Workload moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The ClusterQueue that holds its quota or, without a reservation, the one its LocalQueue names.
    pub(super) cluster_queue: Arc<str>,
    /// Name and namespace of its LocalQueue; `None` when that queue is not reported.
    pub(super) local_queue: Option<(Arc<str>, Arc<str>)>,
    /// The cohorts above the ClusterQueue.
    pub(super) cohorts: Vec<Arc<str>>,
}

/// The updates after `old` became `new`.
pub(super) fn of(old: &Workload, new: &Workload, owner: &Owner, now: Timestamp) -> Vec<Update> {
    let class = new.spec.priority_class_ref.as_ref();
    let mut tally = Tally {
        owner,
        class: class.map_or_else(|| "".into(), |class| class.name.as_str().into()),
        updates: Vec::new(),
    };
    let became_true = |kind| when_true(new, kind).filter(|_| when_true(old, kind).is_none());
    let queued = seconds(queued_since(old), now);
    if became_true("QuotaReserved").is_some() {
        tally.count(
            Metric::QuotaReservedWorkloads,
            Metric::LocalQueueQuotaReservedWorkloads,
        );
        tally.wait(
            Metric::QuotaReservedWaitTime,
            Metric::LocalQueueQuotaReservedWaitTime,
            queued,
        );
    }
    if became_true("Admitted").is_some() {
        tally.count(Metric::AdmittedWorkloads, Metric::LocalQueueAdmittedWorkloads);
        tally.wait(
            Metric::AdmissionWaitTime,
            Metric::LocalQueueAdmissionWaitTime,
            queued,
        );
        if new
            .status
            .as_ref()
            .is_some_and(|s| !s.admission_checks.is_empty())
        {
            // Why zero without a stored time: quota was reserved and the Workload admitted in one write, so nothing was waited
            // for.
            let waited = when_true(old, "QuotaReserved").map_or(0.0, |since| seconds(since, now));
            tally.wait(
                Metric::AdmissionChecksWaitTime,
                Metric::LocalQueueAdmissionChecksWaitTime,
                waited,
            );
        }
        for cohort in &owner.cohorts {
            let labels = vec![cohort.clone(), tally.class.clone()];
            tally.add(Metric::CohortSubtreeAdmittedWorkloads, labels, Change::Add(1));
        }
    }
    if became_true("PodsReady").is_some() {
        tally.wait(Metric::ReadyWaitTime, Metric::LocalQueueReadyWaitTime, queued);
        if let Some(since) = when_true(new, "Admitted") {
            tally.wait(
                Metric::AdmittedUntilReadyWaitTime,
                Metric::LocalQueueAdmittedUntilReadyWaitTime,
                seconds(since, now),
            );
        }
    }
    tally.evictions(old, new, now);
    tally.preemption(old, new);
    if became_true("Finished").is_some() {
        tally.count(
            Metric::FinishedWorkloadsTotal,
            Metric::LocalQueueFinishedWorkloadsTotal,
        );
        if let Some(ran) = execution(new) {
            tally.wait(Metric::ExecutionTime, Metric::LocalQueueExecutionTime, ran);
        }
        if condition(new, "Finished").is_some_and(|c| c.reason == "WorkloadSliceReplaced") {
            let labels = vec![owner.cluster_queue.clone()];
            tally.add(Metric::ReplacedWorkloadSlices, labels, Change::Add(1));
        }
    }
    tally.updates
}

/// What a pod is of its Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One of a group.
    OfGroup,
    /// All of it.
    Whole,
}

/// The update after so many pods of an admitted Workload were let go.
pub(super) fn gates_removed(
    workload: &Workload,
    (part, pods): (Part, usize),
    now: Timestamp,
) -> Option<Update> {
    let since = when_true(workload, "Admitted")?;
    let cluster_queue = &workload.status.as_ref()?.admission.as_ref()?.cluster_queue;
    let is_group = match part {
        Part::OfGroup => "true",
        Part::Whole => "false",
    };
    Some(Update {
        metric: Metric::PodSchedulingGateRemoval,
        labels: [gates::ADMISSION, cluster_queue, is_group].map(Arc::from).into(),
        change: Change::ObserveTimes(seconds(since, now), u64::try_from(pods).unwrap_or(u64::MAX)),
    })
}

/// Updates in the making.
struct Tally<'a> {
    owner: &'a Owner,
    class: Arc<str>,
    updates: Vec<Update>,
}

impl Tally<'_> {
    fn add(&mut self, metric: Metric, labels: Vec<Arc<str>>, change: Change) {
        self.updates.push(Update {
            metric,
            labels,
            change,
        });
    }

    fn count(&mut self, cluster: Metric, local: Metric) {
        self.both(cluster, local, Change::Add(1));
    }

    fn wait(&mut self, cluster: Metric, local: Metric, seconds: f64) {
        self.both(cluster, local, Change::Observe(seconds));
    }

    fn both(&mut self, cluster: Metric, local: Metric, change: Change) {
        let owner = self.owner;
        self.add(
            cluster,
            vec![owner.cluster_queue.clone(), self.class.clone()],
            change,
        );
        if let Some((name, namespace)) = &owner.local_queue {
            self.add(
                local,
                vec![name.clone(), namespace.clone(), self.class.clone()],
                change,
            );
        }
    }

    /// Counts evictions by the statistics in the status. Why not by the condition: a second eviction may follow before the
    /// first has changed it.
    fn evictions(&mut self, old: &Workload, new: &Workload, now: Timestamp) {
        let queue = self.owner.cluster_queue.clone();
        for (reason, cause, count) in eviction_counts(new) {
            let before = eviction_counts(old)
                .find(|(r, c, _)| *r == reason && *c == cause)
                .map_or(0, |(_, _, count)| count);
            let more = u64::try_from(count.saturating_sub(before)).unwrap_or(0);
            if more == 0 {
                continue;
            }
            let (reason, cause): (Arc<str>, Arc<str>) = (reason.into(), cause.into());
            let labels = vec![queue.clone(), reason.clone(), cause.clone(), self.class.clone()];
            if before == 0 {
                self.add(Metric::EvictedWorkloadsOnce, labels.clone(), Change::Add(1));
            }
            self.add(Metric::EvictedWorkloads, labels, Change::Add(more));
            if let Some((name, namespace)) = &self.owner.local_queue {
                let mut labels = vec![name.clone(), namespace.clone(), reason.clone(), cause.clone()];
                labels.push(self.class.clone());
                self.add(Metric::LocalQueueEvictedWorkloads, labels, Change::Add(more));
            }
            if let Some(since) = when_true(old, "PodsReady") {
                let labels = vec![queue.clone(), reason, cause];
                let ran = Change::Observe(seconds(since, now));
                self.add(Metric::PodsReadyToEvictedTime, labels, ran);
            }
        }
        let released = when_true(old, "QuotaReserved").is_some() && when_true(new, "QuotaReserved").is_none();
        if let Some(evicted) = condition(new, "Evicted").filter(|c| released && c.status == "True") {
            let labels = vec![queue, evicted.reason.as_str().into()];
            let took = Change::Observe(seconds(evicted.last_transition_time.0, now));
            self.add(Metric::WorkloadEvictionLatency, labels, took);
        }
    }

    fn preemption(&mut self, old: &Workload, new: &Workload) {
        let Some(preempted) = condition(new, "Preempted").filter(|c| c.status == "True") else {
            return;
        };
        if condition(old, "Preempted").is_some_and(|c| c.status == "True" && c.message == preempted.message) {
            return;
        }
        let labels = vec![
            preemptor(&preempted.message).into(),
            preempted.reason.as_str().into(),
        ];
        self.add(Metric::PreemptedWorkloads, labels, Change::Add(1));
    }
}

/// The ClusterQueue at the end of the preemptor's path; empty when the message names none.
///
/// Wire: `...; preemptor path: /all/team/queue; preemptee path: ...` (`spec/admission-engine.md 2.12`).
fn preemptor(message: &str) -> &str {
    let path = message
        .split("; ")
        .find_map(|part| part.strip_prefix("preemptor path: "));
    path.and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}

/// Why a Workload is not admitted: the reason of `Admitted` and, without a reservation, that of `QuotaReserved`. `None`
/// when it is admitted or finished.
pub(super) fn unadmitted(workload: &Workload) -> Option<(String, String)> {
    if when_true(workload, "Admitted").is_some() || when_true(workload, "Finished").is_some() {
        return None;
    }
    let reason = |kind| condition(workload, kind).map(|c| c.reason.clone());
    if when_true(workload, "QuotaReserved").is_some() {
        let reason = reason("Admitted").unwrap_or_else(|| "UnsatisfiedAdmissionChecks".to_owned());
        return Some((reason, String::new()));
    }
    let cause = reason("QuotaReserved").unwrap_or_else(|| "PendingEvaluation".to_owned());
    Some(("NoReservation".to_owned(), cause))
}

pub(super) fn is_finished(workload: &Workload) -> bool {
    when_true(workload, "Finished").is_some()
}

fn eviction_counts(workload: &Workload) -> impl Iterator<Item = (&str, &str, i32)> {
    let stats = workload.status.as_ref().and_then(|s| s.scheduling_stats.as_ref());
    let evictions = stats.map(|stats| stats.evictions.as_slice()).unwrap_or_default();
    evictions
        .iter()
        .map(|e| (e.reason.as_str(), e.underlying_cause.as_str(), e.count))
}

fn condition<'a>(workload: &'a Workload, kind: &str) -> Option<&'a Condition> {
    let status = workload.status.as_ref()?;
    status.conditions.iter().find(|c| c.type_ == kind)
}

/// Since when a condition is True, if it is.
fn when_true(workload: &Workload, kind: &str) -> Option<Timestamp> {
    let condition = condition(workload, kind).filter(|c| c.status == "True")?;
    Some(condition.last_transition_time.0)
}

/// How long a finished Workload was admitted, over all its admissions; nothing if it was not admitted at its end.
fn execution(workload: &Workload) -> Option<f64> {
    let last = seconds(when_true(workload, "Admitted")?, when_true(workload, "Finished")?);
    let earlier = workload.status.as_ref()?.accumulated_past_execution_time_seconds;
    Some(last + f64::from(earlier.unwrap_or(0)))
}

fn queued_since(workload: &Workload) -> Timestamp {
    let created = workload.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let requeued = when_true(workload, "Requeued");
    requeued.or(created).unwrap_or_default()
}

/// The time between two moments, never negative: stored times are cut to whole seconds.
pub(super) fn seconds(since: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}

#[cfg(test)]
pub(super) mod tests;
