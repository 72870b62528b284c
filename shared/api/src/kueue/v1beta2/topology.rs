//! `Topology`: the levels of a data center, from the widest domain to the single node.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The levels of a topology.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Topology",
    plural = "topologies",
    shortname = "topo",
    derive = "Default",
    derive = "PartialEq",
    doc = "The levels in which the nodes of a data center are arranged, such as block, rack and host."
)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// The levels, from the widest domain to the narrowest: 1 to 16, no two alike. They can be changed only when the last
    /// one is kubernetes.io/hostname before and after.
    #[schemars(
        length(min = 1, max = 16),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [
                {
                    "rule": "self.all(x, self.exists_one(y, y.nodeLabel == x.nodeLabel))",
                    "message": "must be unique",
                },
                {
                    "rule": "self == oldSelf || (oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname' && self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname')",
                    "message": "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change",
                },
                {
                    "rule": "!self.exists(x, x.nodeLabel == 'kubernetes.io/hostname') || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
                    "message": "the kubernetes.io/hostname label can only be used at the lowest level of topology",
                },
            ]
        )
    )]
    pub levels: Vec<TopologyLevel>,
}

/// One level of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Key of the node label whose value names the domain at this level, such as cloud.example.com/rack or
    /// kubernetes.io/hostname: 1 to 316 characters. The last level only may be kubernetes.io/hostname.
    #[schemars(schema_with = "crate::schema::node_label_key")]
    pub node_label: String,
}
