//! The fields of a `RayJob` that are read and written.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec; fields that are not played are left out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ray.io",
    version = "v1",
    kind = "RayJob",
    namespaced,
    schema = "disabled",
    status = "RayJobStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RayJobSpec {
    #[serde(default)]
    pub(crate) suspend: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) managed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) submission_mode: Option<String>,
    #[serde(default)]
    pub(crate) shutdown_after_job_finishes: bool,
    #[serde(default)]
    pub(crate) cluster_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) ray_cluster_spec: RayClusterSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) submitter_pod_template: Option<PodTemplateSpec>,
    #[serde(default)]
    pub(crate) submitter_config: SubmitterConfig,
}

/// Settings of the Job that submits the entrypoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubmitterConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backoff_limit: Option<i32>,
}

/// The cluster of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RayClusterSpec {
    #[serde(default)]
    pub(crate) head_group_spec: HeadGroupSpec,
    #[serde(default)]
    pub(crate) worker_group_specs: Vec<WorkerGroupSpec>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeadGroupSpec {
    #[serde(default)]
    pub(crate) template: PodTemplateSpec,
}

/// A number of equal pods beside the head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerGroupSpec {
    pub(crate) group_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) num_of_hosts: Option<i32>,
    #[serde(default)]
    pub(crate) template: PodTemplateSpec,
}

/// The status. Why no field is skipped: it is merged into the stored status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RayJobStatus {
    #[serde(default)]
    pub(crate) job_id: String,
    #[serde(default)]
    pub(crate) ray_cluster_name: String,
    #[serde(default)]
    pub(crate) job_status: String,
    #[serde(default)]
    pub(crate) job_deployment_status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) start_time: Option<Time>,
    #[serde(default)]
    pub(crate) end_time: Option<Time>,
    #[serde(default)]
    pub(crate) succeeded: i32,
    #[serde(default)]
    pub(crate) failed: i32,
    #[serde(default)]
    pub(crate) ray_cluster_status: RayClusterStatus,
}

/// The status of the cluster of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RayClusterStatus {
    #[serde(default)]
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) desired_worker_replicas: i32,
    #[serde(default)]
    pub(crate) available_worker_replicas: i32,
    #[serde(default)]
    pub(crate) ready_worker_replicas: i32,
}
