//! `ProvisioningRequestConfig`: how an admission check asks for nodes.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How nodes are asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ProvisioningRequestConfig",
    shortname = "prc",
    derive = "Default",
    derive = "PartialEq",
    doc = "Settings of an admission check that asks for nodes with a ProvisioningRequest."
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// Class of the requests, which selects the provisioner and its method, such as check-capacity.autoscaling.x-k8s.io: a DNS
    /// subdomain of 1 to 253 characters.
    #[schemars(schema_with = "crate::schema::subdomain_required")]
    pub provisioning_class_name: String,
    /// Parameters handed to the class: at most 100, values of at most 255 characters. Annotations
    /// provreq.kueue.x-k8s.io/NAME of a workload add to them or replace them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::parameters")]
    pub parameters: BTreeMap<String, String>,
    /// Resources for which nodes are asked: at most 100. A workload that uses none of them passes at once. Empty means
    /// all resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub managed_resources: Vec<String>,
    /// What happens when a request fails; by default 3 retries after 60, 120 and 240 seconds.
    #[serde(default)]
    pub retry_strategy: ProvisioningRetryStrategy,
    /// Values written into the pods when the nodes are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningPodSetUpdates>,
    /// Which pod sets are put together in one entry of the request. Absent means none. `IdenticalPodTemplates`: those with
    /// equal templates. `IdenticalWorkloadSchedulingRequirements`: those equal in what matters for scheduling (resources,
    /// node selector, tolerations, affinity, claims).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// What happens when a request fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRetryStrategy {
    /// Number of retries before the workload is deactivated; default 3, 0 means none.
    pub backoff_limit_count: i32,
    /// Wait before the first retry in seconds, doubled before each further one; default 60.
    pub backoff_base_seconds: i32,
    /// Longest wait before a retry in seconds; default 1800.
    pub backoff_max_seconds: i32,
}

impl Default for ProvisioningRetryStrategy {
    fn default() -> Self {
        Self {
            backoff_limit_count: 3,
            backoff_base_seconds: 60,
            backoff_max_seconds: 1800,
        }
    }
}

/// Values written into pods when their nodes are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningPodSetUpdates {
    /// Node selectors with values from the answer of the class: at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"])
    )]
    pub node_selector: Vec<ProvisioningRequestNodeSelector>,
}

/// A node selector with a value from the answer of the class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestNodeSelector {
    /// Key of the node selector: a label key of 1 to 317 characters.
    #[schemars(schema_with = "crate::schema::selector_key")]
    pub key: String,
    /// Key in status.provisioningClassDetails of the request under which the value stands: 1 to 32768 characters.
    #[schemars(length(min = 1, max = 32_768))]
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodSetMergePolicy {
    /// Those with equal pod templates.
    IdenticalPodTemplates,
    /// Those equal in what matters for scheduling.
    IdenticalWorkloadSchedulingRequirements,
}
