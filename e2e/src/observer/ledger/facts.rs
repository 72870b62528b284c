//! What single objects say.

use std::fmt;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use roadstead_api::constants::{annotations, labels};

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
    /// Condition `Complete`.
    Succeeded,
    /// Condition `Failed`.
    Failed,
}

/// How the job ended, if it has.
pub(in crate::observer) fn job_outcome(job: &Job) -> Option<Outcome> {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().find_map(|condition| {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Complete", "True") => Some(Outcome::Succeeded),
            ("Failed", "True") => Some(Outcome::Failed),
            _ => None,
        }
    })
}

/// Whose run a worker's job is; `None` for jobs that no manager put there.
pub(in crate::observer) fn run_of(job: &Job) -> Option<Run> {
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

/// Whether a job of the manager waits in a queue of ours.
pub(super) fn is_queued(job: &Job) -> bool {
    job.labels().contains_key(labels::QUEUE_NAME)
}

/// UID of the job that controls the pod.
pub(in crate::observer) fn owner_job(pod: &Pod) -> Option<String> {
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))?;
    (owner.kind == "Job").then(|| owner.uid.clone())
}

/// Whether the pod has not ended. One that is being deleted lives until it is gone.
pub(in crate::observer) fn pod_lives(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Namespace and name.
pub(super) fn full_name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
