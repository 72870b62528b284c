//! Version `v1` of `autoscaling.x-k8s.io`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1",
    kind = "ProvisioningRequest",
    namespaced,
    status = "ProvisioningRequestStatus",
    shortname = "provreq",
    shortname = "provreqs",
    derive = "Default",
    derive = "PartialEq",
    doc = "Asks the cluster for room for a set of pods before they are created."
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestSpec {
    /// The pods that need room: 1 to 32 entries. Immutable.
    #[schemars(
        length(min = 1, max = 32),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
        )
    )]
    pub pod_sets: Vec<ProvisioningPodSet>,
    /// Class of the request, which selects the provisioner and its method: a DNS subdomain of at most 253 characters. Immutable.
    #[schemars(
        schema_with = "crate::schema::subdomain",
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "Value is immutable"}])
    )]
    pub provisioning_class_name: String,
    /// Parameters for the class: at most 100, values of at most 255 characters. Immutable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        schema_with = "crate::schema::parameters",
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "Value is immutable"}])
    )]
    pub parameters: BTreeMap<String, String>,
}

/// A number of equal pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningPodSet {
    /// `PodTemplate` of the same namespace that describes the pods.
    pub pod_template_ref: PodTemplateReference,
    /// Number of pods: at least 1.
    #[schemars(range(min = 1))]
    pub count: i32,
}

/// Names a `PodTemplate` of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateReference {
    /// Name of the `PodTemplate`.
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub name: String,
}

/// How far the request has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestStatus {
    /// State of the request, one entry per type: Accepted, Provisioned, Failed, `BookingExpired`, `CapacityRevoked`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions_unbounded")]
    pub conditions: Vec<Condition>,
    /// What the class has to say about the nodes: at most 64 entries, values of at most 32768 characters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::class_details")]
    pub provisioning_class_details: BTreeMap<String, String>,
}

impl ProvisioningRequest {
    /// The condition of this type, if the request has it.
    ///
    /// Types: [`crate::constants::conditions::provisioning_request`].
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.status
            .as_ref()?
            .conditions
            .iter()
            .find(|condition| condition.type_ == condition_type)
    }

    /// Whether the request has a condition of this type with status `True`.
    pub fn is_true(&self, condition_type: &str) -> bool {
        self.condition(condition_type)
            .is_some_and(|condition| condition.status == "True")
    }
}
