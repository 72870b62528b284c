//! Nodes, with the fields that Autopilot reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Resource;
use kube::api::ObjectMeta;
use roadstead_core::appwrapper::autopilot;
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use serde::Deserialize;

/// A node without the fields that this controller does not read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
pub(super) struct Node {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    unschedulable: bool,
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Taint {
    #[serde(default)]
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    capacity: BTreeMap<String, Quantity>,
}

impl Node {
    /// Whether pods must leave the node, and which capacity is out of service. A capacity that cannot be parsed counts as none.
    pub(super) fn facts(&self) -> autopilot::Node {
        let capacity = self.status.capacity.iter().filter_map(|(name, text)| {
            let amount = quantity::parse(name, &text.0).ok()?;
            Some((ResourceName::from(name.as_str()), amount))
        });
        autopilot::Node {
            labels: self.metadata.labels.clone().unwrap_or_default(),
            cordoned: self.spec.unschedulable,
            taints: self.spec.taints.iter().map(|taint| taint.key.clone()).collect(),
            capacity: capacity.collect(),
            leaving: self.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The nodes that pods must leave, with the resources of those pods.
#[derive(Debug, Default)]
pub(super) struct Nodes(Mutex<BTreeMap<Arc<str>, BTreeSet<ResourceName>>>);

impl Nodes {
    /// Notes the resources whose pods must leave a node; true when they have changed.
    pub(super) fn note(&self, node: &Arc<str>, evict: &BTreeSet<ResourceName>) -> bool {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if evict.is_empty() {
            nodes.remove(node).is_some()
        } else {
            nodes.insert(node.clone(), evict.clone()).as_ref() != Some(evict)
        }
    }

    /// The resources whose pods must leave this node.
    pub(super) fn of(&self, node: &str) -> Option<BTreeSet<ResourceName>> {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(node).cloned()
    }
}
