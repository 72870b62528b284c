//! `ResourceFlavor`: a kind of node that quota is counted in.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The nodes a flavor stands for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ResourceFlavor",
    shortname = "flavor",
    shortname = "flavors",
    shortname = "rf",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(true, serde(default))",
    doc = "A kind of nodes in which quota is counted, such as spot and on-demand, or two models of accelerator. An empty one stands for all nodes."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.topologyName) || (has(self.nodeLabels) && self.nodeLabels.size() >= 1)",
        "message": "at least one nodeLabel is required when topology is set",
    },
    {
        "rule": "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "message": "topologyName is immutable when topologyName is set",
    },
]))]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes of this flavor: at most 8. Admitted pods get them as node selector, and a workload that
    /// selects other values does not fit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::node_labels")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes of this flavor: at most 8. Only workloads that tolerate those with effect `NoSchedule` or
    /// `NoExecute` use the flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::taints")]
    pub node_taints: Vec<Taint>,
    /// Tolerations added to the pods admitted in this flavor: at most 8. They count when a workload is matched with
    /// nodeTaints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// Name of the Topology of the nodes; pods are then placed by it. Needs at least one nodeLabel; cannot be changed or
    /// cleared once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub topology_name: Option<String>,
}
