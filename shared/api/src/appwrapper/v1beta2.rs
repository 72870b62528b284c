//! Version `v1beta2` of `workload.codeflare.dev`, the only one.
//!
//! Source: `spec/appwrapper.md` 1.1 to 1.3. The schema has no defaults and, except for three rules, no limits: the webhook
//! reports all problems of an `AppWrapper` at once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSchedulingGate, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::kueue::v1beta2::RawTemplate;

/// What is wrapped.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "workload.codeflare.dev",
    version = "v1beta2",
    kind = "AppWrapper",
    namespaced,
    status = "AppWrapperStatus",
    shortname = "aw",
    derive = "Default",
    derive = "PartialEq",
    doc = "Resources of one job that are queued, created and deleted as one, with retries when they fail.",
    printcolumn = r#"{"name": "Status", "type": "string", "jsonPath": ".status.phase", "description": "Phase of its life"}"#,
    printcolumn = r#"{"name": "Quota Reserved", "type": "string", "jsonPath": ".status.conditions[?(@.type=='QuotaReserved')].status", "description": "Whether it holds quota"}"#,
    printcolumn = r#"{"name": "Resources Deployed", "type": "string", "jsonPath": ".status.conditions[?(@.type=='ResourcesDeployed')].status", "description": "Whether all wrapped resources exist"}"#,
    printcolumn = r#"{"name": "Unhealthy", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Unhealthy')].status", "description": "Whether a wrapped resource is failing"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "size(self.components) == size(oldSelf.components)",
        "message": "attempt to change immutable field",
        "fieldPath": ".components",
        "reason": "FieldValueForbidden",
    },
    {
        "rule": "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "message": "attempt to change immutable field",
        "fieldPath": ".managedBy",
        "reason": "FieldValueForbidden",
    },
]))]
pub struct AppWrapperSpec {
    /// The wrapped resources, created in this order; at least one of them must have pods. Their number is immutable.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub components: Vec<AppWrapperComponent>,
    /// Whether the wrapped resources must not exist now; absent means false. The queue sets it; do not change it by hand.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Controller that runs the `AppWrapper`: workload.codeflare.dev/appwrapper-controller (as when absent) or
    /// kueue.x-k8s.io/multikueue, which has it run in another cluster. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
}

/// One wrapped resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.template.kind == 'AppWrapper' && self.template.apiVersion == 'workload.codeflare.dev/v1beta2')",
    "message": "Nested AppWrappers are forbidden",
    "fieldPath": ".template",
    "reason": "FieldValueForbidden",
}]))]
pub struct AppWrapperComponent {
    /// The whole manifest of the resource: apiVersion, kind, metadata and the rest. Its namespace must be that of the
    /// `AppWrapper`, or absent. Immutable.
    #[schemars(schema_with = "manifest")]
    pub template: RawTemplate,
    /// Where pods are described in the template and how many there are. Only needed for kinds that are not known; for known
    /// ones it must agree with the template. Paths and numbers are immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_sets: Vec<AppWrapperPodSet>,
    /// What admission adds to the pods, one entry per pod set: written by the queue, cleared when it suspends the
    /// `AppWrapper`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_set_infos: Vec<AppWrapperPodSetInfo>,
    /// Notes about the resource, for users.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A number of equal pods of a wrapped resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperPodSet {
    /// Number of pods; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Where the template of the pods stands, such as template.spec.template or template.spec.replicas[0].template; template
    /// alone is a wrapped Pod.
    pub path: String,
    /// Hints for the placement in a topology, with keys workload.codeflare.dev.appwrapper/tas-pod-index-label,
    /// tas-sub-group-index-label and tas-sub-group-count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What admission adds to the pods of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperPodSetInfo {
    /// Annotations added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Node selector added to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations added to the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::tolerations_unchecked")]
    pub tolerations: Vec<Toleration>,
    /// Scheduling gates added to the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "gates")]
    pub scheduling_gates: Vec<PodSchedulingGate>,
}

/// How far an `AppWrapper` has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperStatus {
    /// Phase of its life: Suspended, Resuming, Running, Resetting, Suspending, Succeeded, Failed or Terminating; absent
    /// before the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Number of retries so far; never goes down. Absent means 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resetting_count: i32,
    /// State of the `AppWrapper`, one entry per type: `QuotaReserved`, `ResourcesDeployed`, `PodsReady`, Unhealthy,
    /// `DeletingResources`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions_unbounded")]
    pub conditions: Vec<Condition>,
    /// What became of each component: as many entries as spec.components, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub component_status: Vec<AppWrapperComponentStatus>,
}

/// What became of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperComponentStatus {
    /// Name of the resource; empty before its creation is tried.
    pub name: String,
    /// Kind of the resource; empty before its creation is tried.
    pub kind: String,
    /// API version of the resource; empty before its creation is tried.
    pub api_version: String,
    /// The pod sets of the component, declared or found; empty without pods.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_sets: Vec<AppWrapperPodSet>,
    /// State of the resource; type `ResourcesDeployed` says whether it exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions_unbounded")]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(value: &i32) -> bool {
    *value == 0
}

/// A manifest of any kind: the API server asks for apiVersion, kind and metadata, and keeps the rest as it is.
fn manifest(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = crate::schema::opaque(generator);
    schema.insert("x-kubernetes-embedded-resource".to_owned(), true.into());
    schema
}

fn gates(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"description": "Name of the gate.", "type": "string"}},
        },
    })
}
