//! The controller of `PyTorchJobs`: the writes that are due for one, from it and its pods.
//!
//! Other clients see the states of Kubeflow's training operator 1.9.
//!
//! *Limits*: restarts (`restartPolicy: ExitCode`, `backoffLimit`), deadlines, time to live, elastic jobs and the Service of the
//! master are not played. A pod that has failed fails the job.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

use crate::action::{Action, Plan};
use crate::job::by_controller;
use crate::model::torch::{Condition, PyTorchJob, PyTorchJobStatus, ReplicaSpec, ReplicaStatus};
use crate::play::has_ended;
use crate::stamp;

/// The `managedBy` of `PyTorchJobs` that name no controller.
const CONTROLLER: &str = "kubeflow.org/training-operator";
const KIND: &str = "PyTorchJob";
/// The role whose pod decides how the job ended.
const MASTER: &str = "Master";
/// The role whose pods decide how the job ended if there is no master.
const WORKER: &str = "Worker";
/// Labels of pods.
const JOB_NAME: &str = "training.kubeflow.org/job-name";
const OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";
const REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
const ROLE: &str = "training.kubeflow.org/job-role";

const CREATED: &str = "Created";
const RUNNING: &str = "Running";
const SUSPENDED: &str = "Suspended";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// The writes that are due for all `PyTorchJobs`, in the order of their names.
pub(crate) fn decide(jobs: &[Arc<PyTorchJob>], pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let mut owned = by_controller(pods, |owner| owner.kind == KIND);
    let mut plan = Plan::default();
    for job in jobs.iter().filter(|job| is_ours(job)) {
        let pods = job.metadata.uid.as_deref().and_then(|uid| owned.remove(uid));
        plan.add(Plan {
            actions: decide_one(job, &pods.unwrap_or_default(), now),
            due: None,
        });
    }
    plan
}

fn is_ours(job: &PyTorchJob) -> bool {
    let named = job.spec.run_policy.managed_by.as_deref();
    job.metadata.deletion_timestamp.is_none() && named.is_none_or(|name| name == CONTROLLER)
}

fn decide_one(job: &Arc<PyTorchJob>, pods: &[&Arc<Pod>], now: Timestamp) -> Vec<Action> {
    let status = job.status.clone().unwrap_or_default();
    let mut next = status.clone();
    let says = |kind: &str, value: &str, word: &str, verb: &str| Condition {
        kind: kind.to_owned(),
        status: value.to_owned(),
        reason: format!("{KIND}{word}"),
        message: format!("{KIND} {} is {verb}.", job.name_any()),
        last_update_time: Some(stamp(now)),
        last_transition_time: Some(stamp(now)),
    };
    let running = pods.iter().filter(|pod| !has_ended(pod));
    let stays = |pod: &&&Arc<Pod>| !goes(pod);
    let delete = |pod: &&Arc<Pod>| Action::DeletePod(Arc::clone(pod));
    if is(&status, SUCCEEDED) || is(&status, FAILED) {
        return match job.spec.run_policy.clean_pod_policy.as_deref() {
            Some("Running") => running.filter(stays).map(delete).collect(),
            Some("All") => pods.iter().filter(stays).map(delete).collect(),
            None | Some(_) => Vec::new(),
        };
    }
    put(&mut next, says(CREATED, "True", "Created", "created"));
    let mut actions = Vec::new();
    if job.spec.run_policy.suspend == Some(true) {
        actions.extend(pods.iter().filter(stays).map(delete));
        { next.replica_statuses.values_mut() }.for_each(|counted| counted.active = 0);
        if is(&next, RUNNING) {
            put(&mut next, says(RUNNING, "False", "Suspended", "suspended"));
        }
        put(&mut next, says(SUSPENDED, "True", "Suspended", "suspended"));
    } else {
        if is(&next, SUSPENDED) {
            put(&mut next, says(SUSPENDED, "False", "Resumed", "resumed"));
            next.start_time = Some(stamp(now));
        }
        next.start_time.get_or_insert_with(|| stamp(now));
        actions.extend(missing(job, pods));
        next.replica_statuses = { job.spec.pytorch_replica_specs.keys() }
            .map(|role| (role.clone(), count(role, pods)))
            .collect();
        // The pods of this role decide the state of the job.
        let role = { [MASTER, WORKER].into_iter() }.find(|role| next.replica_statuses.contains_key(*role));
        let counted = { role.and_then(|role| next.replica_statuses.get(role)) }.copied();
        let (counted, wanted) = (
            counted.unwrap_or_default(),
            role.map_or(0, |role| wanted(job, role)),
        );
        if let Some((role, failed)) = failure(job, pods) {
            let why = format!("failed because {failed} {role} replica(s) failed");
            finish(&mut next, says(FAILED, "True", "Failed", &why), now);
        } else if wanted > 0 && counted.succeeded >= wanted {
            finish(
                &mut next,
                says(SUCCEEDED, "True", "Succeeded", "successfully completed"),
                now,
            );
        } else if counted.active > 0 {
            put(&mut next, says(RUNNING, "True", "Running", "running"));
        }
    }
    if next != status {
        actions.push(Action::PyTorchJobStatus(Arc::clone(job), Box::new(next)));
    }
    actions
}

fn is(status: &PyTorchJobStatus, kind: &str) -> bool {
    { status.conditions.iter() }.any(|each| each.kind == kind && each.status == "True")
}

/// Replaces the condition of the same type, unless it is the same.
fn put(status: &mut PyTorchJobStatus, condition: Condition) {
    let known = { status.conditions.iter_mut() }.find(|each| each.kind == condition.kind);
    match known {
        Some(known) if known.status == condition.status => {}
        Some(known) => *known = condition,
        None => status.conditions.push(condition),
    }
}

/// Ends the job: `Running` becomes False, and `end` is set.
fn finish(status: &mut PyTorchJobStatus, end: Condition, now: Timestamp) {
    for runs in status.conditions.iter_mut().filter(|each| each.kind == RUNNING) {
        "False".clone_into(&mut runs.status);
    }
    status.completion_time = Some(stamp(now));
    put(status, end);
}

fn wanted(job: &PyTorchJob, role: &str) -> i32 {
    let spec = job.spec.pytorch_replica_specs.get(role);
    spec.map_or(0, |spec| spec.replicas.unwrap_or(1))
}

fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

fn of_role<'a>(role: &str, pods: &'a [&'a Arc<Pod>]) -> impl Iterator<Item = &'a Pod> {
    let role = role.to_lowercase();
    let is_of = move |pod: &&&'a Arc<Pod>| pod.labels().get(REPLICA_TYPE) == Some(&role);
    pods.iter().filter(is_of).map(AsRef::as_ref)
}

fn goes(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn count(role: &str, pods: &[&Arc<Pod>]) -> ReplicaStatus {
    let mut counted = ReplicaStatus::default();
    for pod in of_role(role, pods) {
        match (phase(pod), goes(pod)) {
            ("Running", false) => counted.active += 1,
            ("Succeeded", _) => counted.succeeded += 1,
            ("Running", true) | ("Failed", _) => counted.failed += 1,
            (_, _) => {}
        }
    }
    counted
}

/// The role whose pods fail the job, and their number. A pod that is deleted before its end is created anew, unless its
/// role's `restartPolicy` is `Never`.
fn failure<'a>(job: &'a PyTorchJob, pods: &[&Arc<Pod>]) -> Option<(&'a str, usize)> {
    { job.spec.pytorch_replica_specs.iter() }.find_map(|(role, spec)| {
        let never = spec.restart_policy.as_deref() == Some("Never");
        let fails = |pod: &&Pod| match phase(pod) {
            "Failed" => never || !goes(pod),
            "Running" => never && goes(pod),
            _ => false,
        };
        let failed = of_role(role, pods).filter(fails).count();
        (failed > 0).then_some((role.as_str(), failed))
    })
}

/// Creates the pods that do not exist yet.
fn missing(job: &PyTorchJob, pods: &[&Arc<Pod>]) -> Vec<Action> {
    let mut made = Vec::new();
    for (role, spec) in &job.spec.pytorch_replica_specs {
        for index in 0..spec.replicas.unwrap_or(1) {
            let pod = pod(job, role, spec, index);
            if !pods.iter().any(|there| there.metadata.name == pod.metadata.name) {
                made.push(Action::CreatePod(Box::new(pod)));
            }
        }
    }
    made
}

fn pod(job: &PyTorchJob, role: &str, spec: &ReplicaSpec, index: i32) -> Pod {
    let (name, role_label) = (job.name_any(), role.to_lowercase());
    let template = spec.template.metadata.clone().unwrap_or_default();
    let mut labels = template.labels.unwrap_or_default();
    let marks = [
        (JOB_NAME, name.clone()),
        (OPERATOR_NAME, "pytorchjob-controller".to_owned()),
        (REPLICA_TYPE, role_label.clone()),
        (REPLICA_INDEX, index.to_string()),
    ];
    labels.extend(marks.map(|(key, value)| (key.to_owned(), value)));
    if role == MASTER {
        labels.insert(ROLE.to_owned(), role_label.clone());
    }
    let mut pod_spec = spec.template.spec.clone().unwrap_or_default();
    // Why `Never` for `ExitCode`: the operator, not the kubelet, decides on a restart by the exit code.
    pod_spec.restart_policy = Some(match spec.restart_policy.as_deref() {
        Some("ExitCode") => "Never".to_owned(),
        Some(policy) => policy.to_owned(),
        None => "OnFailure".to_owned(),
    });
    let owner = OwnerReference {
        api_version: "kubeflow.org/v1".to_owned(),
        kind: KIND.to_owned(),
        name: name.clone(),
        uid: job.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{role_label}-{index}")),
            namespace: job.namespace(),
            labels: Some(labels),
            annotations: template.annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(pod_spec),
        status: None,
    }
}

#[cfg(test)]
mod tests;
