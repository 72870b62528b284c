//! The Job controller: what is due for one Job, from the Job and its pods.
//!
//! Other clients see the states of kube-controller-manager 1.36 in the same order. Pods are counted through
//! `uncountedTerminatedPods` before they lose their finalizer. `SuccessCriteriaMet` or `FailureTarget` comes one write before
//! `Complete` or `Failed`, which waits until the last pod is gone or counted. `e2e/tests/it/world.rs` compares both.
//!
//! *Limits*: see the crate. `activeDeadlineSeconds`, `backoffLimit`, `ttlSecondsAfterFinished`, both completion modes and
//! both pod replacement policies are played.

mod tally;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

use crate::action::{Action, Plan, TRACKING};
use crate::{sooner, stamp};
use tally::Tally;

/// The `managedBy` of Jobs that name no controller.
const CONTROLLER: &str = "kubernetes.io/job-controller";
/// Pods created for one Job in one turn.
const CREATE_MAX: i32 = 500;
/// Pause after the first of several failures in a row; each further one doubles it.
const BACKOFF: SignedDuration = SignedDuration::from_secs(10);
const BACKOFF_MAX: SignedDuration = SignedDuration::from_mins(10);

const SUSPENDED: &str = "Suspended";
const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
const COMPLETE: &str = "Complete";
const FAILURE_TARGET: &str = "FailureTarget";
const FAILED: &str = "Failed";

/// The writes that are due for all Jobs, in the order of their names.
pub(crate) fn decide(jobs: &[Arc<Job>], pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let is_job = |owner: &OwnerReference| owner.kind == "Job" && owner.api_version == "batch/v1";
    let mut owned = by_controller(pods, is_job);
    let mut plan = Plan::default();
    for job in jobs {
        let pods = job.metadata.uid.as_deref().and_then(|uid| owned.remove(uid));
        if is_ours(job) {
            plan.add(decide_job(job, &pods.unwrap_or_default(), now));
        }
    }
    // Why: a deleted Job counts no pods, so their finalizers would keep the garbage collector from removing them.
    let orphans = owned.into_values().flatten().filter(|pod| is_tracked(pod));
    plan.actions
        .extend(orphans.map(|pod| Action::ReleasePod(Arc::clone(pod))));
    plan
}

/// The objects that are controlled by an object of a certain kind, by its UID.
pub(crate) fn by_controller<K: Resource>(
    objects: &[Arc<K>],
    is_of_kind: impl Fn(&OwnerReference) -> bool,
) -> BTreeMap<&str, Vec<&Arc<K>>> {
    let mut owned: BTreeMap<&str, Vec<&Arc<K>>> = BTreeMap::new();
    for object in objects {
        let mut owners = object.meta().owner_references.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.controller == Some(true) && is_of_kind(owner)) {
            owned.entry(&owner.uid).or_default().push(object);
        }
    }
    owned
}

fn is_ours(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    spec.is_some_and(|spec| spec.managed_by.as_deref().is_none_or(|name| name == CONTROLLER))
}

fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == TRACKING)
}

fn decide_job(job: &Arc<Job>, pods: &[&Arc<Pod>], now: Timestamp) -> Plan {
    let (Some(spec), status) = (job.spec.as_ref(), job.status.clone().unwrap_or_default()) else {
        return Plan::default();
    };
    if let Some(end) = finished(&status) {
        return after_the_end(job, spec, pods, end, now);
    }
    let tally = Tally::new(spec, &status, pods);
    let mut next = tally.counted(&status);
    let mut actions = tally.releases();
    let deleting = job.metadata.deletion_timestamp.is_some();
    let suspended = spec.suspend == Some(true);
    if next.start_time.is_none() && !suspended {
        next.start_time = Some(stamp(now));
    }
    let mut due = None;
    let end = interim(&status).cloned().or_else(|| {
        let verdict;
        (verdict, due) = failure(spec, &next, tally.failed, now);
        verdict
    });
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let at = Some(stamp(now));
        JobCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: at.clone(),
            last_transition_time: at,
        }
    };
    if let Some(end) = end {
        actions.extend(tally.active.iter().map(|pod| Action::DeletePod(Arc::clone(pod))));
        if interim(&next).is_none() {
            set(&mut next, end);
        } else if tally.is_settled() {
            let type_ = if end.type_ == FAILURE_TARGET {
                FAILED
            } else {
                COMPLETE
            };
            let (reason, message) = (end.reason.unwrap_or_default(), end.message.unwrap_or_default());
            set(&mut next, condition(type_, "True", &reason, &message));
            next.completion_time = (type_ == COMPLETE).then(|| stamp(now));
        }
    } else if tally.is_complete(spec) {
        let message = "Reached expected number of succeeded pods";
        set(
            &mut next,
            condition(SUCCESS_CRITERIA_MET, "True", "CompletionsReached", message),
        );
    } else if suspended {
        actions.extend(tally.active.iter().map(|pod| Action::DropPod(Arc::clone(pod))));
        if set_if_new(
            &mut next,
            condition(SUSPENDED, "True", "JobSuspended", "Job suspended"),
        ) {
            next.start_time = None;
        }
    } else if !deleting {
        let (moves, wait) = tally.manage(job, spec, now);
        actions.extend(moves);
        due = sooner(due, wait);
        let was_suspended = find(&status, SUSPENDED).is_some();
        if was_suspended
            && set_if_new(
                &mut next,
                condition(SUSPENDED, "False", "JobResumed", "Job resumed"),
            )
        {
            next.start_time = Some(stamp(now));
        }
    }
    // Why pods first: a status counts existing pods, as the real controller's does.
    if actions.is_empty() && next != status {
        actions.push(Action::JobStatus(Arc::clone(job), Box::new(next)));
    }
    Plan { actions, due }
}

/// After the end of a Job its pods lose their finalizer. The Job is deleted when its time to live is over.
fn after_the_end(
    job: &Arc<Job>,
    spec: &JobSpec,
    pods: &[&Arc<Pod>],
    end: &JobCondition,
    now: Timestamp,
) -> Plan {
    let tracked = pods.iter().filter(|pod| is_tracked(pod));
    let actions: Vec<Action> = tracked.map(|pod| Action::ReleasePod(Arc::clone(pod))).collect();
    let Some(ttl) = spec.ttl_seconds_after_finished else {
        return Plan::of(actions);
    };
    let ended = end.last_transition_time.as_ref().map_or(now, |time| time.0);
    let due = ended
        .saturating_add(SignedDuration::from_secs(ttl.into()))
        .unwrap_or(Timestamp::MAX);
    if job.metadata.deletion_timestamp.is_some() || !actions.is_empty() {
        Plan::of(actions)
    } else if due <= now {
        Plan::of(vec![Action::DeleteJob(Arc::clone(job))])
    } else {
        Plan {
            actions,
            due: Some(due),
        }
    }
}

/// Why the Job has failed; otherwise when its deadline will be over.
fn failure(
    spec: &JobSpec,
    status: &JobStatus,
    failed: i32,
    now: Timestamp,
) -> (Option<JobCondition>, Option<Timestamp>) {
    let target = |reason: &str, message: &str| JobCondition {
        type_: FAILURE_TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(stamp(now)),
        last_transition_time: Some(stamp(now)),
    };
    if failed > spec.backoff_limit.unwrap_or(i32::MAX) {
        let message = "Job has reached the specified backoff limit";
        return (Some(target("BackoffLimitExceeded", message)), None);
    }
    let (Some(seconds), Some(start)) = (spec.active_deadline_seconds, &status.start_time) else {
        return (None, None);
    };
    if spec.suspend == Some(true) {
        return (None, None);
    }
    let due = start
        .0
        .saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX);
    if due <= now {
        let message = "Job was active longer than specified deadline";
        (Some(target("DeadlineExceeded", message)), None)
    } else {
        (None, Some(due))
    }
}

fn find<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_)
}

fn is_true<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    find(status, type_).filter(|condition| condition.status == "True")
}

fn finished(status: &JobStatus) -> Option<&JobCondition> {
    is_true(status, COMPLETE).or_else(|| is_true(status, FAILED))
}

/// The interim condition that waits for the last pods.
fn interim(status: &JobStatus) -> Option<&JobCondition> {
    is_true(status, FAILURE_TARGET).or_else(|| is_true(status, SUCCESS_CRITERIA_MET))
}

/// Replaces the condition of the same type, or appends it.
fn set(status: &mut JobStatus, condition: JobCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|each| each.type_ == condition.type_) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// As [`set`], unless the status already has this condition.
fn set_if_new(status: &mut JobStatus, condition: JobCondition) -> bool {
    let same = |old: &JobCondition| {
        old.status == condition.status && old.reason == condition.reason && old.message == condition.message
    };
    let new = !find(status, &condition.type_).is_some_and(same);
    if new {
        set(status, condition);
    }
    new
}

/// UIDs in the status that are not counted yet.
fn uncounted(status: &JobStatus) -> (BTreeSet<String>, BTreeSet<String>) {
    let UncountedTerminatedPods { failed, succeeded } =
        status.uncounted_terminated_pods.clone().unwrap_or_default();
    let set = |list: Option<Vec<String>>| list.unwrap_or_default().into_iter().collect();
    (set(failed), set(succeeded))
}

#[cfg(test)]
mod tests;
