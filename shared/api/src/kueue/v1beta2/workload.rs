//! `Workload`: one job as the queue sees it: its pod sets, its priority, and how far admission has come.

mod rules;
mod spec;
mod status;
mod topology;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use rules::{class_rules, object_rules as workload_object_rules, v1beta1_class_rules};
pub use spec::{
    PodSet, PodSetSliceConstraint, PodSetTopologyRequest, PreemptionGate, PriorityClassGroup,
    PriorityClassKind, PriorityClassRef,
};
pub use status::{
    Admission, AdmissionCheckState, CheckState, DelayedTopologyRequest, EvictionStats, GatePosition,
    PodSetAssignment, PodSetRequest, PodSetUpdate, PreemptionGateState, ReclaimablePod, RequeueState,
    SchedulingStats, UnhealthyNode, WorkloadStatus,
};
pub use topology::{SlicePodCounts, SliceRoots, SliceValues, TopologyAssignment, TopologyAssignmentSlice};

/// What a workload asks for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Workload",
    namespaced,
    status = "WorkloadStatus",
    shortname = "kwl",
    shortname = "kueueworkload",
    shortname = "kueueworkloads",
    selectable = ".status.admission.clusterQueue",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(true, serde(default))",
    doc = "One job as the queue sees it: its pod sets and priority, and how far its admission has come.",
    printcolumn = r#"{"name": "Queue", "type": "string", "jsonPath": ".spec.queueName", "description": "LocalQueue the workload was submitted to"}"#,
    printcolumn = r#"{"name": "Reserved in", "type": "string", "jsonPath": ".status.admission.clusterQueue", "description": "ClusterQueue in which quota is reserved"}"#,
    printcolumn = r#"{"name": "Admitted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Admitted')].status", "description": "Whether the workload is admitted"}"#,
    printcolumn = r#"{"name": "Finished", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Finished')].status", "description": "Whether the workload has finished"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since the workload was created"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.priorityClassRef) || has(self.priority)",
    "message": "priority should not be nil when priorityClassRef is set",
}]))]
pub struct WorkloadSpec {
    /// Sets of equal pods that start together: 1 to 18, each with a name of its own. Immutable while quota is reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pod_sets: Vec<PodSet>,
    /// `LocalQueue` of the same namespace that the workload is submitted to. Absent means it is not queued. Immutable while
    /// quota is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub queue_name: Option<String>,
    /// Class the priority comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Priority of the workload: a 32-bit integer, higher goes first; absent means 0. Required with priorityClassRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether the workload may run; default true. When set to false it leaves the queue, and is evicted if it was
    /// admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub active: Option<bool>,
    /// Longest time the workload may be admitted, in seconds, at least 1; after it the workload is deactivated. Absent
    /// means no limit. Immutable while the workload is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that must be open, in status.preemptionGates, before this workload preempts others: at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub preemption_gates: Vec<PreemptionGate>,
}

impl Workload {
    /// The condition of this type, if the workload has it.
    ///
    /// Types: [`crate::constants::conditions::workload`].
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.status.as_ref()?.condition(condition_type)
    }

    /// Whether the workload has a condition of this type with status `True`.
    pub fn is_true(&self, condition_type: &str) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.is_true(condition_type))
    }

    /// Whether the workload may run: `spec.active`, which is true when absent.
    pub fn is_active(&self) -> bool {
        self.spec.active.unwrap_or(true)
    }

    /// The state of the admission check of this name, if the workload has it.
    pub fn admission_check(&self, name: &str) -> Option<&AdmissionCheckState> {
        self.status
            .as_ref()?
            .admission_checks
            .iter()
            .find(|check| check.name == name)
    }

    /// What the workload is admitted with, if quota is reserved for it.
    pub fn admission(&self) -> Option<&Admission> {
        self.status.as_ref()?.admission.as_deref()
    }

    /// The worker cluster the workload is placed on, if one has won.
    pub fn cluster_name(&self) -> Option<&str> {
        self.status.as_ref()?.cluster_name.as_deref()
    }
}

impl WorkloadStatus {
    /// The condition of this type, if there is one.
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == condition_type)
    }

    /// Whether there is a condition of this type with status `True`.
    pub fn is_true(&self, condition_type: &str) -> bool {
        self.condition(condition_type)
            .is_some_and(|condition| condition.status == "True")
    }
}

/// A pod template as it was written, not parsed.
///
/// The schema keeps all its fields. Why: the complete schema of a pod costs hundreds of kilobytes in every discovery
/// document and milliseconds at every write, and a newer pod field would be lost.
///
/// Each field is behind an [`Arc`], so that a process with many similar Workloads can share equal fields. The `metadata` of a
/// Job's template has the Job's name; thousands of Jobs share the same `spec`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawTemplate(pub BTreeMap<String, Arc<Value>>);

impl RawTemplate {
    /// The field of this name.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).map(AsRef::as_ref)
    }

    /// All fields as one object.
    pub fn to_value(&self) -> Value {
        let fields = self.0.iter();
        Value::Object(
            { fields }
                .map(|(field, value)| (field.clone(), Value::clone(value)))
                .collect(),
        )
    }
}

impl From<Map<String, Value>> for RawTemplate {
    fn from(fields: Map<String, Value>) -> Self {
        Self(
            { fields.into_iter() }
                .map(|(field, value)| (field, Arc::new(value)))
                .collect(),
        )
    }
}

impl fmt::Debug for RawTemplate {
    /// Shows the template's top-level keys only: environment variables of its containers may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawTemplate")
            .field(&self.0.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl JsonSchema for RawTemplate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RawTemplate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        crate::schema::opaque(generator)
    }
}

#[cfg(test)]
mod tests;
