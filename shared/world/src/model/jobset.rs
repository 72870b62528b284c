//! The fields of a JobSet that are read and written.

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec; fields that are not played are left out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "jobset.x-k8s.io",
    version = "v1alpha2",
    kind = "JobSet",
    namespaced,
    schema = "disabled",
    status = "JobSetStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobSetSpec {
    #[serde(default)]
    pub(crate) replicated_jobs: Vec<ReplicatedJob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) suspend: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) managed_by: Option<String>,
}

/// A number of equal Jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplicatedJob {
    pub(crate) name: String,
    #[serde(default = "one")]
    pub(crate) replicas: i32,
    pub(crate) template: JobTemplateSpec,
}

const fn one() -> i32 {
    1
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobSetStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    #[serde(default)]
    pub(crate) restarts: i32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) terminal_state: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replicated_jobs_status: Vec<ReplicatedJobStatus>,
}

/// Counts of the Jobs of one entry, by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplicatedJobStatus {
    pub(crate) name: String,
    pub(crate) ready: i32,
    pub(crate) succeeded: i32,
    pub(crate) failed: i32,
    pub(crate) active: i32,
    pub(crate) suspended: i32,
}
