//! `LocalQueue`: the queue of one namespace, pointing at a `ClusterQueue`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FairSharing, StopPolicy};

/// Where a local queue leads.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "LocalQueue",
    namespaced,
    status = "LocalQueueStatus",
    shortname = "queue",
    shortname = "queues",
    shortname = "lq",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(true, serde(default))",
    doc = "A queue in a namespace, to which the jobs of that namespace are submitted.",
    printcolumn = r#"{"name": "ClusterQueue", "type": "string", "jsonPath": ".spec.clusterQueue", "description": "ClusterQueue that gives the quota"}"#,
    printcolumn = r#"{"name": "Pending Workloads", "type": "integer", "jsonPath": ".status.pendingWorkloads", "description": "Number of workloads that wait"}"#,
    printcolumn = r#"{"name": "Admitted Workloads", "type": "integer", "jsonPath": ".status.admittedWorkloads", "description": "Number of admitted workloads that have not finished"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    /// Name of the `ClusterQueue` that gives quota to the workloads of this queue. Immutable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        schema_with = "crate::schema::subdomain",
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "field is immutable"}])
    )]
    pub cluster_queue: String,
    /// Whether the queue admits workloads. None (default): it admits them. Hold: it admits no more; admitted ones run on.
    /// `HoldAndDrain`: it admits no more, and admitted workloads are evicted.
    #[serde(default)]
    pub stop_policy: StopPolicy,
    /// Weight of this queue in the usage-based order of its `ClusterQueue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What a local queue holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// State of the queue; type Active says whether workloads can be submitted and, if not, why. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Number of workloads that wait to be admitted.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Number of workloads that hold reserved quota, admitted ones included.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Number of admitted workloads that have not finished.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// Quota held by workloads that have it reserved, admitted ones included, by flavor: at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_reservation: Vec<LocalQueueFlavorUsage>,
    /// Quota held by admitted workloads, by flavor: at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_usage: Vec<LocalQueueFlavorUsage>,
    /// Where the queue stands in fair sharing; present when fair sharing is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// Usage of one flavor through one local queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorUsage {
    /// Name of the `ResourceFlavor`.
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub name: String,
    /// Usage of each resource: at most 64.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resources: Vec<LocalQueueResourceUsage>,
}

/// Usage of one resource in one flavor through one local queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// Amount in use.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub total: Quantity,
}

/// Where a local queue stands in fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// Largest ratio, over the resources, of borrowed usage to what the cohort can lend, divided by the weight, in
    /// thousandths.
    pub weighted_share: i64,
    /// Past usage, which orders the workloads of a queue with usage-based admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Past usage of a local queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Usage of each resource over time, where older usage counts less and less.
    #[schemars(schema_with = "crate::schema::quantities")]
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// When consumedResources was computed.
    pub last_update: Time,
}
