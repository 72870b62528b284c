//! The parts of a workload's `status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::Toleration,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TopologyAssignment, spec::main_name};

/// How far the admission of a workload has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        "message": "clusterName is immutable once set",
    },
    {
        "rule": "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
        "message": "clusterName and nominatedClusterNames are mutually exclusive",
    },
]))]
pub struct WorkloadStatus {
    /// State of the workload, one entry per type: `QuotaReserved`, Admitted, `PodsReady`, Evicted, Preempted, Requeued,
    /// Finished and others. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Queue, flavors and amounts with which quota is reserved. Absent means none is.
    // Why shared: many workloads have equal admissions, and an admission is most of a workload's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Arc<Admission>>,
    /// When an evicted workload returns to the queue, and how often it already did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods that are no longer needed, so that their quota is free for others: one entry per pod set, at most 18.
    /// Counts only grow while quota is reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// Admission checks the workload must pass, with the state of each: at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What each pod set asks for, as counted against quota; only while no quota is reserved. At most
    /// 18 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resource_requests: Vec<PodSetRequest>,
    /// Time the workload was admitted before its last eviction, in seconds; it counts against
    /// maximumExecutionTimeSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// What happened to the workload so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters the workload is offered to now: at most 20. Empty once clusterName is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub nominated_cluster_names: Vec<String>,
    /// Worker cluster the workload is placed on: at most 256 characters. Can be cleared, but not changed, once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// Nodes that failed while pods of this workload were on them and that are to be replaced: at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// Position of each gate of spec.preemptionGates: at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// Queue, flavors and amounts with which quota is reserved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// `ClusterQueue` in which quota is reserved.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub cluster_queue: String,
    /// What each pod set got: one entry per pod set of the spec, at most 18.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What a pod set got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Name of the pod set; default main.
    #[serde(default = "main_name")]
    #[schemars(schema_with = "crate::schema::label")]
    pub name: String,
    /// Flavor of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::flavors")]
    pub flavors: BTreeMap<String, String>,
    /// Amount of each resource for all pods of the set together, after defaults, limit ranges and runtime overhead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::quantities")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// Number of pods admitted: at least 0; may be smaller than the count in the spec with partial admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Domains of the topology the pods go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Present when the place in the topology is chosen after the admission checks. Pending: not chosen yet, which keeps
    /// the workload from being admitted. Ready: chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequest>,
}

impl Default for PodSetAssignment {
    fn default() -> Self {
        Self {
            name: main_name(),
            flavors: BTreeMap::new(),
            resource_usage: BTreeMap::new(),
            count: None,
            topology_assignment: None,
            delayed_topology_request: None,
        }
    }
}

/// Whether the place in the topology is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DelayedTopologyRequest {
    /// It will be chosen when the admission checks are ready.
    Pending,
    /// It is chosen.
    Ready,
}

/// When an evicted workload returns to the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// How often the workload has returned after an eviction that counts: at least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// When the workload returns to the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods of a pod set that are no longer needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// Name of the pod set.
    #[schemars(schema_with = "crate::schema::label")]
    pub name: String,
    /// Number of its pods that are no longer needed: at least 0, at most the count of the pod set.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// One admission check of a workload and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// Name of the `AdmissionCheck`: 1 to 316 characters.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// Pending: not decided. Ready: passed. Retry: quota is released and the workload goes back to the queue. Rejected:
    /// the workload is deactivated.
    pub state: CheckState,
    /// When the state last changed.
    pub last_transition_time: Time,
    /// What there is to say about the state; may be empty, at most 32768 characters.
    #[schemars(length(max = 32_768))]
    pub message: String,
    /// With state Retry: how long the workload stays out of the queue, in seconds, at least 0. Absent means it returns at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// How often the check went to Retry: at least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// Values written into the pods when the workload starts: at most 18 entries. Fixed while the check is Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// State of an admission check of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    /// Not decided.
    Pending,
    /// The check has passed.
    Ready,
    /// Not passed now: quota is released and the workload goes back to the queue.
    Retry,
    /// Not passed: the workload is deactivated.
    Rejected,
}

/// Values that a check writes into the pods of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// Name of the pod set.
    #[schemars(schema_with = "crate::schema::label")]
    pub name: String,
    /// Labels added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Node selector added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations added to the pods: at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// What a pod set asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// Name of the pod set.
    #[schemars(schema_with = "crate::schema::label")]
    pub name: String,
    /// Amount of each resource for all pods of the set together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,
}

/// What happened to a workload so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// How often the workload was evicted, by reason: at most 256 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["reason", "underlyingCause"])
    )]
    pub evictions: Vec<EvictionStats>,
}

/// How often a workload was evicted for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionStats {
    /// Reason of the Evicted condition: at most 316 characters.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// What was behind the reason, such as `WaitForStart`; may be empty, at most 316 characters.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// Number of evictions: at least 0.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// A node that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// Name of the node: at most 63 characters.
    #[schemars(length(max = 63))]
    pub name: String,
}

/// Position of a preemption gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// Name of the gate, as in spec.preemptionGates: 1 to 63 characters.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Closed: the workload may not preempt others. Open: it may.
    pub position: GatePosition,
    /// When the position last changed.
    pub last_transition_time: Time,
}

/// Position of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GatePosition {
    /// The workload may not preempt others.
    Closed,
    /// The workload may preempt others.
    Open,
}
