//! What an object shows, read from its JSON.
//!
//! This file uses no code of the product, not even its constants: otherwise a wrong label in the product would not be found.

use jiff::Timestamp;
use serde_json::Value;

/// Workloads, as the API server names them.
pub(super) const WORKLOADS: &str = "workloads.kueue.x-k8s.io";
/// The resource of pods, as the API server names it.
pub(super) const PODS: &str = "pods";
/// Label of every object that a manager makes on a worker.
const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// Names the Workload of a job on a worker: an annotation, and a label for older workers.
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// Label of every object that waits in a queue.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// Label of a pod that belongs to a group.
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
/// Counts the dispatches of a Workload.
const EPOCH: &str = "roadstead.dev/dispatch-epoch";
/// On copies: the UID of the manager's Workload.
const WORKLOAD_UID: &str = "roadstead.dev/workload-uid";
/// The value of a missing field in [`at`].
const NULL: &Value = &Value::Null;

/// The value at a path of keys; null when it is not there.
pub(super) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter()
        .try_fold(object, |inner, key| inner.get(key))
        .unwrap_or(NULL)
}

/// The text at a path; empty when there is none.
pub(super) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or("")
}

/// The list at a path; empty when there is none.
pub(super) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

/// The origin of an object on a worker; empty when no manager made it.
pub(super) fn origin(object: &Value) -> &str {
    text(object, &["metadata", "labels", ORIGIN])
}

/// The name of the queue in which it waits; empty when it waits in none.
pub(super) fn queue(object: &Value) -> &str {
    text(object, &["metadata", "labels", QUEUE])
}

/// The name of a pod's group; empty if the pod belongs to none.
pub(super) fn group(pod: &Value) -> &str {
    text(pod, &["metadata", "labels", GROUP])
}

pub(super) fn is_gated(pod: &Value) -> bool {
    !list(pod, &["spec", "schedulingGates"]).is_empty()
}

/// The Workload that a job on a worker belongs to; empty when it names none.
pub(super) fn prebuilt(object: &Value) -> &str {
    let annotation = text(object, &["metadata", "annotations", PREBUILT]);
    if annotation.is_empty() {
        text(object, &["metadata", "labels", PREBUILT])
    } else {
        annotation
    }
}

/// The number of the dispatch; `None` where dispatches are not counted.
pub(super) fn epoch(object: &Value) -> Option<u64> {
    text(object, &["metadata", "annotations", EPOCH]).parse().ok()
}

/// The UID of the manager's Workload of a copy; empty when the copy does not name one.
pub(super) fn copy_of(object: &Value) -> &str {
    text(object, &["metadata", "annotations", WORKLOAD_UID])
}

/// The UID of the controlling owner; empty without one.
pub(super) fn controller(object: &Value) -> &str {
    list(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| owner["controller"] == true)
        .map_or("", |owner| owner["uid"].as_str().unwrap_or(""))
}

/// The UIDs of the objects that a Workload stands for: its controller, or the pods of its group.
pub(super) fn owners(workload: &Value) -> impl Iterator<Item = &str> {
    let owners = list(workload, &["metadata", "ownerReferences"]).iter();
    let owners = owners.filter(|owner| owner["controller"] == true || owner["kind"] == "Pod");
    owners.filter_map(|owner| owner["uid"].as_str())
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"])
        .iter()
        .find(|condition| condition["type"] == kind)
}

pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// The time in a text field.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
}

/// How a job ended, if it did, by the conditions of its kind.
pub(super) fn job_end(job: &Value) -> Option<End> {
    let says = |words: &[&str]| {
        words.iter().any(|word| is_true(job, word))
            || words.contains(&text(job, &["status", "phase"]))
            || words.contains(&text(job, &["status", "jobStatus"]))
    };
    if says(&["Complete", "Completed", "Succeeded", "SUCCEEDED"]) {
        Some(End::Succeeded)
    } else if says(&["Failed", "FAILED", "STOPPED"]) {
        Some(End::Failed)
    } else {
        None
    }
}

/// How a Workload ended; `None` if it has not, or for another reason than `Succeeded` or `Failed`.
pub(super) fn workload_end(workload: &Value) -> Option<End> {
    let finished = condition(workload, "Finished").filter(|condition| condition["status"] == "True")?;
    match finished["reason"].as_str() {
        Some("Succeeded") => Some(End::Succeeded),
        Some("Failed") => Some(End::Failed),
        _ => None,
    }
}

/// Whether a job may have pods: it is not held back and has not ended.
pub(super) fn is_let_go(job: &Value) -> bool {
    let held = [&["spec", "suspend"][..], &["spec", "runPolicy", "suspend"][..]];
    job_end(job).is_none() && !is_gated(job) && !held.iter().any(|path| *at(job, path) == true)
}

/// Whether a pod may be running: it has no scheduling gate and has not ended. A pod that is being deleted counts until it is gone.
pub(super) fn is_live_pod(pod: &Value) -> bool {
    !is_gated(pod) && !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// The cluster that the manager chose for a Workload; empty if it has chosen none.
pub(super) fn winner(workload: &Value) -> &str {
    text(workload, &["status", "clusterName"])
}

pub(super) fn is_offered(workload: &Value, cluster: &str) -> bool {
    list(workload, &["status", "nominatedClusterNames"])
        .iter()
        .any(|name| name == cluster)
}

pub(super) fn holds_quota(workload: &Value) -> bool {
    is_true(workload, "QuotaReserved") && !is_true(workload, "Finished")
}

/// The changes of an object, in a few words for the reader of a trace.
pub(super) fn words(resource: &str, object: &Value) -> String {
    let mut words: Vec<String> = Vec::new();
    if is_deleting(object) {
        words.push("being deleted".into());
    }
    if resource == PODS {
        words.push(text(object, &["status", "phase"]).to_owned());
    } else if resource == WORKLOADS {
        if at(object, &["spec", "active"]) == false {
            words.push("inactive".into());
        }
        let holds = ["QuotaReserved", "Admitted", "Evicted", "Finished"];
        words.extend(
            holds
                .iter()
                .filter(|kind| is_true(object, kind))
                .map(|kind| (*kind).into()),
        );
        for check in list(object, &["status", "admissionChecks"]) {
            words.push(format!("{}={}", text(check, &["name"]), text(check, &["state"])));
        }
        if !winner(object).is_empty() {
            words.push(format!("on {}", winner(object)));
        }
        let offered: Vec<&str> = list(object, &["status", "nominatedClusterNames"])
            .iter()
            .filter_map(Value::as_str)
            .collect();
        if !offered.is_empty() {
            words.push(format!("offered to {}", offered.join(" ")));
        }
    } else if !at(object, &["spec"]).is_null() {
        words.push(match job_end(object) {
            Some(End::Succeeded) => "succeeded".into(),
            Some(End::Failed) => "failed".into(),
            None if is_let_go(object) => "let go".into(),
            None => "held".into(),
        });
        for count in ["active", "succeeded", "failed"] {
            if let Some(number) = at(object, &["status", count]).as_u64().filter(|n| *n > 0) {
                words.push(format!("{number} {count}"));
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words.join(", ")
}
