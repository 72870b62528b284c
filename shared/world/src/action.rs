//! The writes that the played controllers, scheduler and kubelets decide on.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};

use crate::capacity::Answer;
use crate::model::jobset::{JobSet, JobSetStatus};
use crate::model::ray::{RayJob, RayJobStatus};
use crate::model::torch::{PyTorchJob, PyTorchJobStatus};
use crate::sooner;

/// The finalizer with which the Job controller keeps a pod until it is counted.
pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// A write that is due. Each is idempotent, or fails if the object has another version than at the decision.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    CreatePod(Box<Pod>),
    /// Removes the Job controller's finalizer.
    ReleasePod(Arc<Pod>),
    DeletePod(Arc<Pod>),
    /// Removes the finalizer and deletes the pod, so that its Job does not count it.
    DropPod(Arc<Pod>),
    /// Deletes a pod that has ended, without a grace period.
    RemovePod(Arc<Pod>),
    BindPod(Arc<Pod>, String),
    PodStatus(Arc<Pod>, Box<PodStatus>),
    CreateJob(Box<Job>),
    /// Changes a Job's spec, if the Job still has this version.
    JobSpec(Box<Job>),
    JobStatus(Arc<Job>, Box<JobStatus>),
    DeleteJob(Arc<Job>),
    JobSetStatus(Arc<JobSet>, Box<JobSetStatus>),
    PyTorchJobStatus(Arc<PyTorchJob>, Box<PyTorchJobStatus>),
    RayJobStatus(Arc<RayJob>, Box<RayJobStatus>),
    CreateNode(Box<Node>),
    NodeStatus(Box<Node>),
    Answer(Box<Answer>),
}

/// The writes that are due now, and when to decide again if nothing changes.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) due: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn of(actions: Vec<Action>) -> Self {
        Self { actions, due: None }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.actions.extend(other.actions);
        self.due = sooner(self.due, other.due);
    }
}
