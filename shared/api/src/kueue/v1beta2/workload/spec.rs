//! The parts of a workload's `spec`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RawTemplate;

/// A set of equal pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.minCount) || self.minCount <= self.count",
    "message": "minCount should be positive and less or equal to count",
}]))]
pub struct PodSet {
    /// Name of the pod set, unique in the workload: a DNS label of at most 63 characters; default main.
    #[serde(default = "main_name")]
    #[schemars(schema_with = "crate::schema::label")]
    pub name: String,
    /// Template of the pods, as in a Job. Fields unknown to this version are kept.
    pub template: RawTemplate,
    /// Number of pods: at least 0; default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub count: i32,
    /// Smallest number of pods with which the job can also run: at least 1, at most count. Absent means all of them are
    /// needed. At most one pod set of a workload may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_count: Option<i32>,
    /// Where the pods should be placed in the topology of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<Box<PodSetTopologyRequest>>,
}

impl Default for PodSet {
    fn default() -> Self {
        Self {
            name: main_name(),
            template: RawTemplate::default(),
            count: one(),
            min_count: None,
            topology_request: None,
        }
    }
}

/// Spec: API-9.1, `podSets[].name`.
pub(super) fn main_name() -> String {
    "main".to_owned()
}

const fn one() -> i32 {
    1
}

/// Where the pods of a pod set should be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// Node label of the topology level in one domain of which all pods must be: at most 63 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub required: Option<String>,
    /// Node label of the topology level in one domain of which all pods should be; wider levels are tried when they do
    /// not fit: at most 63 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub preferred: Option<String>,
    /// Whether the pods may be anywhere in the topology, as long as there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Pod label that holds a pod's index in the pod set: at most 317 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub pod_index_label: Option<String>,
    /// Pod label that holds the index of the group a pod belongs to, such as the replica of a `JobSet`: at most 317
    /// characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub sub_group_index_label: Option<String>,
    /// Number of groups the pod set consists of: at least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sub_group_count: Option<i32>,
    /// Name shared by two pod sets that must be in the same domain, such as a leader and its workers: at most 256
    /// characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub pod_set_group_name: Option<String>,
    /// Node label of the topology level in one domain of which each slice of the pod set must be: at most 63 characters.
    /// Goes with podSetSliceSize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_set_slice_required_topology: Option<String>,
    /// Number of pods in a slice: at least 1. Goes with podSetSliceRequiredTopology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
    /// Slices within slices, from the widest level to the narrowest: at most 3, where each size divides the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    pub podset_slice_required_topology_constraints: Vec<PodSetSliceConstraint>,
}

/// One layer of slices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetSliceConstraint {
    /// Node label of the topology level in one domain of which each slice must be: 1 to 63 characters.
    #[schemars(length(min = 1, max = 63))]
    pub topology: String,
    /// Number of pods in a slice: at least 1.
    #[schemars(range(min = 1))]
    pub size: i32,
}

/// The class a priority comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",
    "message": "kind must be WorkloadPriorityClass for group kueue.x-k8s.io and PriorityClass for group scheduling.k8s.io",
}]))]
pub struct PriorityClassRef {
    /// API group of the class: kueue.x-k8s.io or scheduling.k8s.io.
    pub group: PriorityClassGroup,
    /// Kind of the class: `WorkloadPriorityClass` in group kueue.x-k8s.io, `PriorityClass` in group scheduling.k8s.io.
    pub kind: PriorityClassKind,
    /// Name of the class: a DNS subdomain of 1 to 253 characters.
    #[schemars(schema_with = "crate::schema::subdomain_required")]
    pub name: String,
}

/// API group of a priority class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassGroup {
    /// `kueue.x-k8s.io`
    #[serde(rename = "kueue.x-k8s.io")]
    Kueue,
    /// `scheduling.k8s.io`
    #[serde(rename = "scheduling.k8s.io")]
    Scheduling,
}

/// Kind of a priority class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassKind {
    /// Priority of workloads, independent of the pods' priority.
    WorkloadPriorityClass,
    /// Priority of pods, which the workload takes over.
    PriorityClass,
}

/// A gate that keeps a workload from preempting others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// Name of the gate: 1 to 63 characters.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}
