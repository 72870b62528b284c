//! `MultiKueueCluster`: a worker cluster and how to reach it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How to reach a worker cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "MultiKueueCluster",
    status = "MultiKueueClusterStatus",
    shortname = "mkc",
    derive = "Default",
    derive = "PartialEq",
    doc = "A worker cluster to which workloads can be dispatched.",
    printcolumn = r#"{"name": "Connected", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Active')].status", "description": "Whether the cluster is connected"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since the cluster was registered"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// Where the credentials of the cluster come from: exactly one of kubeConfig and clusterProfileRef.
    pub cluster_source: ClusterSource,
}

/// Where the credentials of a cluster come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.kubeConfig) != has(self.clusterProfileRef)",
    "message": "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
}]))]
pub struct ClusterSource {
    /// A kubeconfig in a Secret or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// A `ClusterProfile` of the cluster inventory. Needs the feature gate `MultiKueueClusterProfile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// A kubeconfig in a Secret or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Name of the Secret in the manager's namespace, with the kubeconfig under the key kubeconfig; or, for
    /// locationType Path, the path of a file the manager can read. 1 to 256 characters.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// What location means: Secret (default) or Path.
    #[serde(default)]
    pub location_type: LocationType,
}

/// Where a kubeconfig lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LocationType {
    /// In a Secret of the manager's namespace.
    #[default]
    Secret,
    /// In a file the manager can read.
    Path,
}

/// Names a `ClusterProfile`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileReference {
    /// Name of the `ClusterProfile` in the manager's namespace: 1 to 256 characters.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// Whether a worker cluster can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// State of the cluster; type Active says whether it is connected and, if not, why. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
