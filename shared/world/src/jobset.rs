//! The JobSet controller: the writes that are due for one JobSet, from it and its Jobs.
//!
//! Other clients see the states of the JobSet controller 0.11.
//!
//! *Limits*: success and failure policies, restarts, orders of start, headless Services, volume claims and
//! `ttlSecondsAfterFinished` are not played: the JobSet succeeds when all its Jobs have, and fails with the first that does.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

use crate::action::{Action, Plan};
use crate::job::by_controller;
use crate::model::jobset::{JobSet, JobSetStatus, ReplicatedJob, ReplicatedJobStatus};
use crate::stamp;

/// The `managedBy` of JobSets that name no controller.
const CONTROLLER: &str = "jobset.sigs.k8s.io/jobset-controller";
/// Labels and annotations of Jobs and pods.
const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
const REPLICATED_JOB_NAME: &str = "jobset.sigs.k8s.io/replicatedjob-name";
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";

const SUSPENDED: &str = "Suspended";
const COMPLETED: &str = "Completed";
const FAILED: &str = "Failed";

/// The writes that are due for all JobSets, in the order of their names.
pub(crate) fn decide(sets: &[Arc<JobSet>], jobs: &[Arc<Job>], now: Timestamp) -> Plan {
    let mut owned = by_controller(jobs, |owner| owner.kind == "JobSet");
    let mut plan = Plan::default();
    for set in sets.iter().filter(|set| is_ours(set)) {
        let jobs = set.metadata.uid.as_deref().and_then(|uid| owned.remove(uid));
        plan.add(Plan {
            actions: decide_one(set, &jobs.unwrap_or_default(), now),
            due: None,
        });
    }
    plan
}

fn is_ours(set: &JobSet) -> bool {
    let named = set.spec.managed_by.as_deref();
    set.metadata.deletion_timestamp.is_none() && named.is_none_or(|name| name == CONTROLLER)
}

fn decide_one(set: &Arc<JobSet>, jobs: &[&Arc<Job>], now: Timestamp) -> Vec<Action> {
    let status = set.status.clone().unwrap_or_default();
    let mut next = status.clone();
    next.replicated_jobs_status = { set.spec.replicated_jobs.iter() }
        .map(|entry| count(entry, jobs))
        .collect();
    let mut actions = Vec::new();
    let total: i32 = set.spec.replicated_jobs.iter().map(|entry| entry.replicas).sum();
    let succeeded: i32 = next
        .replicated_jobs_status
        .iter()
        .map(|entry| entry.succeeded)
        .sum();
    if ended(&status) {
        let left = jobs
            .iter()
            .filter(|job| end(job).is_none() && job.metadata.deletion_timestamp.is_none());
        actions.extend(left.map(|job| Action::DeleteJob(Arc::clone(job))));
    } else if next.replicated_jobs_status.iter().any(|entry| entry.failed > 0) {
        let message = "jobset failed due to one or more job failures";
        finish(&mut next, condition(FAILED, "True", "FailedJobs", message, now));
    } else if total > 0 && succeeded >= total {
        let message = "jobset completed successfully";
        finish(
            &mut next,
            condition(COMPLETED, "True", "AllJobsCompleted", message, now),
        );
    } else if set.spec.suspend == Some(true) {
        actions.extend(missing(set, jobs));
        let running = jobs.iter().filter(|job| end(job).is_none() && !is_suspended(job));
        actions.extend(running.map(|job| suspend(job)));
        put(
            &mut next,
            condition(SUSPENDED, "True", "SuspendedJobs", "jobset is suspended", now),
        );
    } else {
        actions.extend(missing(set, jobs));
        let held = jobs.iter().filter(|job| end(job).is_none() && is_suspended(job));
        actions.extend(held.map(|job| resume(set, job)));
        if next.conditions.iter().any(|each| each.type_ == SUSPENDED) {
            put(
                &mut next,
                condition(SUSPENDED, "False", "ResumeJobs", "jobset is resumed", now),
            );
        }
    }
    if next != status {
        actions.push(Action::JobSetStatus(Arc::clone(set), Box::new(next)));
    }
    actions
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: stamp(now),
        observed_generation: None,
    }
}

/// Replaces the condition of the same type, unless it is the same.
fn put(status: &mut JobSetStatus, condition: Condition) {
    let known = status
        .conditions
        .iter_mut()
        .find(|each| each.type_ == condition.type_);
    match known {
        Some(known) if known.status == condition.status => {}
        Some(known) => *known = condition,
        None => status.conditions.push(condition),
    }
}

fn finish(status: &mut JobSetStatus, condition: Condition) {
    status.terminal_state.clone_from(&condition.type_);
    put(status, condition);
}

fn ended(status: &JobSetStatus) -> bool {
    let is_end = |kind: &str| kind == COMPLETED || kind == FAILED;
    status
        .conditions
        .iter()
        .any(|each| is_end(&each.type_) && each.status == "True")
}

/// `Complete` or `Failed` if the Job has ended.
pub(crate) fn end(job: &Job) -> Option<&str> {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.status == "True")
        .map(|condition| condition.type_.as_str())
        .find(|kind| *kind == "Complete" || *kind == FAILED)
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

fn is_of(entry: &ReplicatedJob, job: &Job) -> bool {
    job.labels().get(REPLICATED_JOB_NAME) == Some(&entry.name)
}

fn count(entry: &ReplicatedJob, jobs: &[&Arc<Job>]) -> ReplicatedJobStatus {
    let mut counted = ReplicatedJobStatus {
        name: entry.name.clone(),
        ..ReplicatedJobStatus::default()
    };
    for job in jobs.iter().filter(|job| is_of(entry, job)) {
        match end(job) {
            Some("Complete") => counted.succeeded += 1,
            Some(_) => counted.failed += 1,
            None => {
                let status = job.status.clone().unwrap_or_default();
                let done = status.succeeded.unwrap_or(0) + status.ready.unwrap_or(0);
                counted.ready += i32::from(job.spec.as_ref().is_some_and(|spec| done >= pods(spec)));
                counted.active += i32::from(status.active.unwrap_or(0) > 0);
                counted.suspended += i32::from(is_suspended(job));
            }
        }
    }
    counted
}

fn pods(spec: &JobSpec) -> i32 {
    let parallelism = spec.parallelism.unwrap_or(1);
    spec.completions
        .map_or(parallelism, |completions| completions.min(parallelism))
}

/// Creates the Jobs that do not exist yet.
fn missing(set: &JobSet, jobs: &[&Arc<Job>]) -> Vec<Action> {
    let mut made = Vec::new();
    for entry in &set.spec.replicated_jobs {
        for index in 0..entry.replicas {
            let job = job(set, entry, index);
            if !jobs.iter().any(|there| there.metadata.name == job.metadata.name) {
                made.push(Action::CreateJob(Box::new(job)));
            }
        }
    }
    made
}

fn job(set: &JobSet, entry: &ReplicatedJob, index: i32) -> Job {
    let marks: BTreeMap<String, String> = [
        (JOBSET_NAME, set.name_any()),
        (REPLICATED_JOB_NAME, entry.name.clone()),
        (JOB_INDEX, index.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let marked = |metadata: Option<ObjectMeta>| {
        let mut metadata = metadata.unwrap_or_default();
        metadata.labels.get_or_insert_default().extend(marks.clone());
        metadata.annotations.get_or_insert_default().extend(marks.clone());
        metadata
    };
    let mut spec = entry.template.spec.clone().unwrap_or_default();
    spec.completion_mode.get_or_insert_with(|| "Indexed".to_owned());
    // Why: an Indexed Job needs a number of completions.
    spec.completions = spec.completions.or_else(|| Some(spec.parallelism.unwrap_or(1)));
    spec.suspend = Some(set.spec.suspend == Some(true));
    spec.template.metadata = Some(marked(spec.template.metadata.take()));
    if let Some(pod) = &mut spec.template.spec {
        pod.restart_policy.get_or_insert_with(|| "OnFailure".to_owned());
    }
    let owner = OwnerReference {
        api_version: "jobset.x-k8s.io/v1alpha2".to_owned(),
        kind: "JobSet".to_owned(),
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}-{index}", set.name_any(), entry.name)),
            namespace: set.namespace(),
            owner_references: Some(vec![owner]),
            ..marked(entry.template.metadata.clone())
        },
        spec: Some(spec),
        status: None,
    }
}

fn suspend(job: &Arc<Job>) -> Action {
    let mut held = Job::clone(job);
    if let Some(spec) = &mut held.spec {
        spec.suspend = Some(true);
    }
    Action::JobSpec(Box::new(held))
}

/// Unsuspends a Job with its JobSet's present pod template, which may have changed while the Job was suspended.
fn resume(set: &JobSet, job: &Arc<Job>) -> Action {
    let status = job.status.clone().unwrap_or_default();
    if status.start_time.is_some() {
        // Why first: the API server lets the template of a Job change only before it starts.
        let mut next = status;
        next.start_time = None;
        return Action::JobStatus(Arc::clone(job), Box::new(next));
    }
    let mut free = Job::clone(job);
    let entry = set.spec.replicated_jobs.iter().find(|entry| is_of(entry, job));
    let wanted = entry
        .and_then(|entry| entry.template.spec.as_ref())
        .map(|spec| &spec.template);
    if let (Some(spec), Some(wanted)) = (&mut free.spec, wanted) {
        spec.suspend = Some(false);
        let (have, added) = (
            spec.template.metadata.get_or_insert_default(),
            wanted.metadata.clone().unwrap_or_default(),
        );
        have.labels
            .get_or_insert_default()
            .extend(added.labels.unwrap_or_default());
        have.annotations
            .get_or_insert_default()
            .extend(added.annotations.unwrap_or_default());
        if let (Some(have), Some(added)) = (&mut spec.template.spec, &wanted.spec) {
            have.node_selector
                .get_or_insert_default()
                .extend(added.node_selector.clone().unwrap_or_default());
            let tolerations = have.tolerations.get_or_insert_default();
            let new = added
                .tolerations
                .iter()
                .flatten()
                .filter(|each| !tolerations.contains(each));
            let new: Vec<_> = new.cloned().collect();
            tolerations.extend(new);
        }
    }
    Action::JobSpec(Box::new(free))
}

#[cfg(test)]
mod tests;
