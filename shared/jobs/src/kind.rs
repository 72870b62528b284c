//! The contract of a job kind.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_kinds::Kind;
use serde_json::Value;
use thiserror::Error as ThisError;

use crate::json;
use crate::podset::{InjectError, PodSetInfo};
use crate::problem::Problem;
use crate::remote::RemoteIdentity;

/// One homogeneous group of pods of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct JobPodSet {
    /// Its name, lower case.
    pub name: String,
    /// How many pods.
    pub count: u32,
    /// With how few it could start.
    pub min_count: Option<u32>,
    /// The pod template, as the job has it.
    pub template: Value,
}

impl fmt::Debug for JobPodSet {
    /// Leaves the template out: environment variables of its containers may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobPodSet")
            .field("name", &self.name)
            .field("count", &self.count)
            .field("min_count", &self.min_count)
            .finish_non_exhaustive()
    }
}

/// Why a job cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// A field is missing or not of the type it should be.
    #[error("field {field} of the job is {found}, expected {expected}")]
    Malformed {
        /// The field.
        field: &'static str,
        /// What is there, as JSON type or value.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
}

/// Which part of an object a patch is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The object itself.
    Main,
    /// Its status subresource.
    Status,
}

/// One write of a stop: a JSON merge patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopStep {
    /// Where to send it.
    pub target: Target,
    /// What to send.
    pub patch: Value,
}

/// What to do with the status of a local job, given the remote one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// They agree.
    Nothing,
    /// Send this JSON merge patch to the status subresource.
    Patch(Value),
    /// It cannot be copied yet; look again in about two seconds. The patch, if any, is to be sent in the meantime.
    Deferred(Option<Value>),
}

impl From<Option<Value>> for Mirror {
    fn from(patch: Option<Value>) -> Self {
        patch.map_or(Self::Nothing, Self::Patch)
    }
}

/// What the queue must know about a kind of job. *Source*: `spec/jobs.md 9, 10`.
///
/// All methods are total: a job that lacks fields is treated as the API's defaults say.
pub trait JobKind: Send + Sync {
    /// Its row of the table.
    fn kind(&self) -> &'static Kind;

    /// Its pods.
    ///
    /// *Errors*: the job is not what its schema says.
    fn pod_sets(&self, job: &Value) -> Result<Vec<JobPodSet>, Error>;

    /// Where the templates of its pod sets stand, in the order of [`JobKind::pod_sets`], such as `spec.template`.
    fn template_paths(&self, job: &Value) -> Vec<String>;

    /// Whether it is held back, and no stop is under way.
    fn is_suspended(&self, job: &Value) -> bool;

    /// Whether its annotations say that a stop is under way. With it [`Self::is_suspended`] can be asked of an object whose
    /// metadata stands apart, which need not be put together again.
    fn is_stopping(&self, annotations: &BTreeMap<String, String>) -> bool;

    /// Holds it back.
    fn suspend(&self, job: &mut Value);

    /// How it ended, if it ended.
    fn finished(&self, job: &Value) -> Option<Outcome>;

    /// Whether it still has pods, without those that are being ended: then its quota is still used.
    fn is_active(&self, job: &Value) -> bool;

    /// Whether a pod of it may be alive, also one that is being ended: then it may not start elsewhere.
    fn may_have_pods(&self, job: &Value) -> bool;

    /// Whether all its pods are ready or done.
    fn pods_ready(&self, job: &Value) -> bool;

    /// Pods it will not need any more, by pod set; only positive counts.
    fn reclaimable(&self, job: &Value) -> BTreeMap<PodSetName, u32>;

    /// The JSON merge patch that lets it run with what was assigned.
    ///
    /// *Errors*: permanent ones, see [`InjectError`].
    fn start_patch(&self, job: &Value, infos: &[PodSetInfo]) -> Result<Value, InjectError>;

    /// The writes that stop it and restore its templates, in order; those not needed are left out, so a stopped job has
    /// none. Each is idempotent. `original` are the pod sets of the Workload; when their number does not fit, nothing is
    /// restored.
    fn stop_steps(&self, job: &Value, original: &[JobPodSet]) -> Vec<StopStep>;

    /// The job to create on a worker. `original` are the pod sets of the Workload: what was injected here stays here.
    fn remote_object(&self, local: &Value, identity: &RemoteIdentity<'_>, original: &[JobPodSet]) -> Value;

    /// Takes out that it is removed by itself some time after its end: a manager must see that first, or it runs again.
    fn outlast_its_end(&self, job: &mut Value);

    /// Takes out of a copy on a worker what nobody asks of it: all that is asked is how it is doing, and its pod templates are
    /// most of what it weighs in memory.
    fn forget_details(&self, copy: &mut Value);

    /// Whether it failed only because it was deleted: its pods were ended before it, and that says nothing about what they
    /// did. `job` is the whole object.
    fn is_killed(&self, job: &Value) -> bool;

    /// How to bring the status of the local job in line with the remote one.
    fn mirror(&self, local: &Value, remote: &Value, now: Timestamp) -> Mirror;

    /// What to merge into the status of a local job whose pods are certainly gone although it still counts some; `None` when
    /// it counts none. Never sent to a job that a controller of its own looks after.
    fn without_pods(&self, local: &Value) -> Option<Value>;

    /// What to merge into the status of a local job whose end is known although no copy of it is left to be mirrored; `None`
    /// when it has ended.
    fn conclusion(&self, local: &Value, outcome: &Outcome, now: Timestamp) -> Option<Value>;

    /// The priority class that the kind itself declares, beside those of its pods. *Source*: `spec/jobs.md 5.13`.
    fn priority_class<'a>(&self, _job: &'a Value) -> Option<&'a str> {
        None
    }

    /// The kind's own rules for a new job.
    fn own_problems(&self, job: &Value) -> Vec<Problem>;

    /// The kind's own rules for a change.
    fn own_update_problems(&self, old: &Value, new: &Value) -> Vec<Problem>;

    /// Who runs the job, if it says so.
    fn manager_of<'a>(&self, job: &'a Value) -> Option<&'a str> {
        json::text(job, self.kind().managed_by?.path).filter(|name| !name.is_empty())
    }
}
