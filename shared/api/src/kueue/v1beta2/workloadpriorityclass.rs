//! `WorkloadPriorityClass`: a named priority that orders workloads without touching their pods.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Content of a priority class. On the wire it stands at the top level of the object; in Rust it is the `spec` field.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "WorkloadPriorityClass",
    plural = "workloadpriorityclasses",
    shortname = "wpc",
    no_spec,
    derive = "Default",
    derive = "PartialEq",
    doc = "A named priority of workloads. It decides the order of admission and preemption and is independent of the priority of pods.",
    printcolumn = r#"{"name": "Value", "type": "integer", "jsonPath": ".value", "description": "Priority given to workloads of this class"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPriorityClassFields {
    /// Priority of the workloads of this class: a 32-bit integer, higher goes first. A change is applied to all workloads
    /// of the class.
    pub value: i32,
    /// When this class should be used: at most 2048 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub description: String,
}
