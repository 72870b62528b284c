//! The fields of a `PyTorchJob` that are read and written.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec; fields that are not played are left out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kubeflow.org",
    version = "v1",
    kind = "PyTorchJob",
    namespaced,
    schema = "disabled",
    status = "PyTorchJobStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PyTorchJobSpec {
    #[serde(default)]
    pub(crate) run_policy: RunPolicy,
    #[serde(default)]
    pub(crate) pytorch_replica_specs: BTreeMap<String, ReplicaSpec>,
}

/// Settings of all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) suspend: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) managed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clean_pod_policy: Option<String>,
}

/// Pods of one role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplicaSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restart_policy: Option<String>,
    #[serde(default)]
    pub(crate) template: PodTemplateSpec,
}

/// The status. Why no field is skipped: it is merged into the stored status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PyTorchJobStatus {
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
    #[serde(default)]
    pub(crate) replica_statuses: BTreeMap<String, ReplicaStatus>,
    pub(crate) start_time: Option<Time>,
    pub(crate) completion_time: Option<Time>,
}

/// A condition as Kubeflow writes it, with `lastUpdateTime`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) last_update_time: Option<Time>,
    pub(crate) last_transition_time: Option<Time>,
}

/// Counts of the pods of one role, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplicaStatus {
    #[serde(default)]
    pub(crate) active: i32,
    #[serde(default)]
    pub(crate) succeeded: i32,
    #[serde(default)]
    pub(crate) failed: i32,
}
