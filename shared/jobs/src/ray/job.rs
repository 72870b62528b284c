//! `RayJob`: a Ray cluster for one job, and a pod that submits the job to it. *Source*: `spec/jobs.md 9.7`.

use std::borrow::Cow;

use roadstead_kinds::rows;
use serde_json::{Value, json};

use super::{head, head_of, rules, workers_of};
use crate::by_path::places::{At, PodSets, Pods};
use crate::by_path::signs::{Ends, Sign, Words};
use crate::by_path::{ByPath, Path, Rules, queued};
use crate::json;
use crate::kind::Member;
use crate::podset::JobPodSet;
use crate::problem::Problem;

const CLUSTER: Path = &["spec", "rayClusterSpec"];
const SUBMITTER: Path = &["spec", "submitterPodTemplate"];
/// The field that selects an existing cluster for the job.
const SELECTOR: Path = &["spec", "clusterSelector"];
const DEPLOYMENT: Path = &["status", "jobDeploymentStatus"];

/// The kind `ray.io/v1 RayJob`.
pub static RAY_JOB: ByPath = ByPath {
    row: &rows::RAY_JOB,
    suspend: &["spec", "suspend"],
    pod_sets: &[
        head_of(&["spec", "rayClusterSpec", "headGroupSpec"]),
        workers_of(&["spec", "rayClusterSpec", "workerGroupSpecs"]),
        PodSets {
            at: At::Where {
                is: has_submitter,
                field: SUBMITTER,
                name: "submitter",
            },
            template: &[],
            pods: Pods::One,
        },
    ],
    active: Sign::Other {
        field: DEPLOYMENT,
        than: &[SUSPENDED],
        without: SUSPENDED,
    },
    ready: Sign::Word {
        field: &["status", "rayClusterStatus", "state"],
        is: "ready",
        without: "suspended",
    },
    ends: Some(Ends::Words(Words {
        field: DEPLOYMENT,
        succeeded: "Complete",
        // Unlike the anchor, which keeps its Workload for ever: a job that the operator finds invalid never runs.
        failed: &["Failed", "ValidationFailed"],
        result: Some((&["status", "jobStatus"], ["SUCCEEDED", "FAILED"])),
        message: &["status", "message"],
    })),
    spare: None,
    time_to_live: None,
    priority_class: None,
    followed: &[],
    rules: Rules {
        filled,
        is_queued,
        added,
        create: |job| queued::create(job, problems),
        update: |old, new| queued::update(old, new, problems),
        ..Rules::NONE
    },
};

const SUSPENDED: &str = "Suspended";

/// The mode in which the job is submitted to the cluster.
fn mode(job: &Value) -> &str {
    json::text(job, &["spec", "submissionMode"])
        .filter(|mode| !mode.is_empty())
        .unwrap_or("K8sJobMode")
}

fn has_submitter(job: &Value) -> bool {
    mode(job) == "K8sJobMode"
}

/// Adds the template of the submitter that the operator makes when the job has none.
///
/// Why also at a start: the assignment of the submitter must be in a template of the job.
fn filled(job: &Value) -> Cow<'_, Value> {
    let absent = json::at(job, SUBMITTER).is_none() && json::at(job, CLUSTER).is_some();
    if !absent || !has_submitter(job) {
        return Cow::Borrowed(job);
    }
    let template = json!({"spec": {"containers": [submitter(job)], "restartPolicy": "Never"}});
    let mut filled = job.clone();
    json::set(&mut filled, SUBMITTER, template);
    Cow::Owned(filled)
}

/// The container that the operator makes to submit the job, with the image of the head.
fn submitter(job: &Value) -> Value {
    let mut container = json!({
        "name": "ray-job-submitter",
        "resources": {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "500m", "memory": "200Mi"},
        },
    });
    let head = [CLUSTER, &["headGroupSpec", "template", "spec", "containers"]].concat();
    let image = json::list(job, &head)
        .first()
        .and_then(|head| json::text(head, &["image"]));
    if let Some(image) = image {
        container["image"] = json!(image);
    }
    container
}

/// A job for an existing cluster makes no pods except the submitter, and cannot be suspended.
fn is_queued(job: Member<'_>) -> bool {
    !selects_cluster(job.data)
}

fn selects_cluster(job: &Value) -> bool {
    json::at(job, SELECTOR)
        .and_then(Value::as_object)
        .is_some_and(|labels| !labels.is_empty())
}

fn added(job: Member<'_>, pod_sets: &mut [JobPodSet]) {
    head::add(job, CLUSTER, pod_sets);
    let head = pod_sets.iter_mut().find(|set| set.name == head::NAME);
    if let Some(head) = head.filter(|_| mode(job.data) == "SidecarMode") {
        let path = ["spec", "containers"];
        let mut containers = json::list(&head.template, &path).to_vec();
        containers.push(submitter(job.data));
        json::set(&mut head.template, &path, Value::Array(containers));
    }
}

fn problems(job: Member<'_>) -> Vec<Problem> {
    let has_cluster = json::at(job.data, CLUSTER).is_some();
    if !is_queued(job) {
        let text = "a kueue managed job should not use an existing cluster";
        let problem = Problem::invalid(SELECTOR.join("."), text);
        return has_cluster.then_some(problem).into_iter().collect();
    }
    let mut problems = Vec::new();
    if !json::is_true(job.data, &["spec", "shutdownAfterJobFinishes"]) {
        let text = "a kueue managed job should delete the cluster after finishing";
        problems.push(Problem::invalid("spec.shutdownAfterJobFinishes", text).of("false"));
    }
    if !has_cluster {
        let text = "a kueue managed job needs a cluster of its own: describe it here";
        problems.push(Problem::required(CLUSTER.join("."), text));
    }
    let groups_max = rules::GROUPS_MAX - usize::from(has_submitter(job.data));
    problems.extend(rules::of_cluster(rows::RAY_JOB.kind, job, CLUSTER, groups_max));
    problems
}

#[cfg(test)]
mod tests;
