//! `AdmissionCheck`: something besides quota that must be ready before a workload starts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The controller of a check, and its settings.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "AdmissionCheck",
    status = "AdmissionCheckStatus",
    shortname = "ac",
    derive = "Default",
    derive = "PartialEq",
    doc = "A condition besides quota that must hold before a workload of a cluster queue starts, decided by a controller."
)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Name of the controller that does the check, 1 to 253 characters, such as kueue.x-k8s.io/multikueue or
    /// kueue.x-k8s.io/provisioning-request. Immutable.
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "field is immutable"}])
    )]
    pub controller_name: String,
    /// Object with the settings of the check; which kind is wanted depends on the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

/// Points at the settings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParametersReference {
    /// API group of the settings object, such as kueue.x-k8s.io: a DNS subdomain of 1 to 253 characters.
    #[schemars(schema_with = "crate::schema::subdomain_required")]
    pub api_group: String,
    /// Kind of the settings object, such as `MultiKueueConfig` or `ProvisioningRequestConfig`: 1 to 63 characters.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub kind: String,
    /// Name of the settings object: a DNS label of 1 to 63 characters.
    #[schemars(schema_with = "crate::schema::label_required")]
    pub name: String,
}

/// Whether a check can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStatus {
    /// State of the check; type Active says whether its controller is ready to do it and, if not, why. At
    /// most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
