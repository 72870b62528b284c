//! Facts from single objects.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use roadstead_api::constants::{annotations, labels};
use serde_json::Value;

/// One workload of the manager: its UID is part of its name's hash, so a successor has another name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Namespace of the workload and its job.
    pub namespace: String,
    /// Name of the workload.
    pub workload: String,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.workload)
    }
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
}

/// The outcome of a job of any kind, if it has ended.
pub(in crate::observer) fn job_outcome(job: &DynamicObject) -> Option<Outcome> {
    let status = &job.data["status"];
    let says = |words: &[&str]| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let is_true = |condition: &Value| {
            condition["status"] == "True" && words.iter().any(|word| condition["type"] == *word)
        };
        // Of an AppWrapper and a pod, and of a RayJob.
        let states = [&status["phase"], &status["jobDeploymentStatus"]];
        { conditions }.any(is_true) || words.iter().any(|word| states.iter().any(|state| *state == word))
    };
    if says(&["Complete", "Completed", "Succeeded"]) {
        Some(Outcome::Succeeded)
    } else if says(&["Failed"]) {
        Some(Outcome::Failed)
    } else {
        None
    }
}

/// Whether a job is suspended, by the field of its kind; a pod by its gates.
pub(in crate::observer) fn is_suspended(job: &DynamicObject) -> bool {
    let spec = &job.data["spec"];
    let gates = spec["schedulingGates"].as_array();
    spec["suspend"] == true
        || spec["runPolicy"]["suspend"] == true
        || gates.is_some_and(|gates| !gates.is_empty())
}

/// A group of pods that are one job together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Its name, which is also the name of its workload.
    pub(super) name: String,
    /// The number of its pods.
    pub(super) total: usize,
}

/// The group of an object, if it is a member of one.
pub(super) fn group_of(job: &DynamicObject) -> Option<Group> {
    let (labels, notes) = (job.labels(), job.annotations());
    let name = { notes.get(annotations::POD_GROUP_NAME) }.or_else(|| labels.get(labels::POD_GROUP_NAME))?;
    let total = notes.get(annotations::POD_GROUP_TOTAL_COUNT)?;
    Some(Group {
        name: name.clone(),
        total: total.parse().ok()?,
    })
}

/// Whether a workload was made for a group of pods.
pub(super) fn is_of_group(workload: &impl ResourceExt) -> bool {
    let said = workload.annotations().get(annotations::IS_GROUP_WORKLOAD);
    said.is_some_and(|said| said == labels::TRUE)
}

/// The run of a worker's job; `None` for jobs that no manager created.
pub(in crate::observer) fn run_of(job: &DynamicObject) -> Option<Run> {
    job.labels().get(labels::MULTIKUEUE_ORIGIN)?;
    let name = job
        .annotations()
        .get(annotations::PREBUILT_WORKLOAD_NAME)
        .or_else(|| job.labels().get(labels::PREBUILT_WORKLOAD_NAME))?;
    Some(Run {
        namespace: job.namespace().unwrap_or_default(),
        workload: name.clone(),
    })
}

/// Whether a job of the manager names a queue.
pub(super) fn is_queued(job: &DynamicObject) -> bool {
    job.labels().contains_key(labels::QUEUE_NAME)
}

/// The kind of a job, if known: objects in a list of a built-in kind have none.
pub(super) fn kind_of(job: &DynamicObject) -> &str {
    job.types.as_ref().map_or("job", |types| types.kind.as_str())
}

/// UID of the controller of an object.
pub(in crate::observer) fn controller(object: &impl ResourceExt) -> Option<String> {
    let mut owners = object.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some(owner.uid.clone())
}

/// Whether the pod has not ended. A pod that is being deleted lives until it is gone.
pub(in crate::observer) fn pod_lives(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Namespace and name.
pub(super) fn full_name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
