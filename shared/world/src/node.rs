//! Nodes that exist only in the API.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use crate::action::Action;
use crate::stamp;

/// A node that exists only in the API.
#[derive(Debug, Clone)]
pub struct Node {
    /// The object's name.
    pub name: String,
    /// Labels besides `kubernetes.io/hostname`, `kubernetes.io/os` and `kubernetes.io/arch`.
    pub labels: BTreeMap<String, String>,
    /// The node's taints.
    pub taints: Vec<Taint>,
    /// Resources for pods, as Kubernetes quantities by name; the node's capacity is the same.
    pub allocatable: BTreeMap<String, String>,
}

/// Default number of pods per node, as on real nodes.
const PODS_PER_NODE: &str = "110";

impl Node {
    /// A node with this CPU and memory (Kubernetes quantities) and room for 110 pods.
    pub fn new(name: impl Into<String>, cpu: impl Into<String>, memory: impl Into<String>) -> Self {
        let node = Self {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable: BTreeMap::new(),
        };
        node.with_resource("cpu", cpu)
            .with_resource("memory", memory)
            .with_resource("pods", PODS_PER_NODE)
    }

    /// The node with this amount of a resource, such as `nvidia.com/gpu`; replaces an earlier amount.
    #[must_use]
    pub fn with_resource(mut self, name: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.allocatable.insert(name.into(), quantity.into());
        self
    }

    /// The object to create. It has no Ready condition; the world that plays the node adds it.
    pub fn object(&self) -> v1::Node {
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ] {
            labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let amounts: BTreeMap<_, _> = self
            .allocatable
            .iter()
            .map(|(name, amount)| (name.clone(), Quantity(amount.clone())))
            .collect();
        v1::Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(self.taints.clone()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                allocatable: Some(amounts.clone()),
                capacity: Some(amounts),
                ..NodeStatus::default()
            }),
        }
    }
}

/// Creates nodes that never existed, and makes nodes without a Ready condition Ready.
///
/// Why not more: a test may delete a node or set it not Ready, and that must stay.
pub(crate) fn decide(
    wanted: &[Node],
    registered: &BTreeSet<String>,
    nodes: &[Arc<v1::Node>],
    now: Timestamp,
) -> Vec<Action> {
    let mut actions = Vec::new();
    for node in wanted {
        match nodes.iter().find(|there| there.name_any() == node.name) {
            None if registered.contains(&node.name) => {}
            None => actions.push(Action::CreateNode(Box::new(node.object()))),
            Some(there) => actions.extend(make_ready(node, there, now)),
        }
    }
    actions
}

fn make_ready(node: &Node, there: &v1::Node, now: Timestamp) -> Option<Action> {
    let mut next = there.clone();
    let status = next.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    if conditions.iter().any(|condition| condition.type_ == "Ready") {
        return None;
    }
    conditions.push(NodeCondition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        reason: Some("KubeletReady".to_owned()),
        message: Some("this node is played".to_owned()),
        last_heartbeat_time: Some(stamp(now)),
        last_transition_time: Some(stamp(now)),
    });
    let declared = node.object().status.unwrap_or_default();
    status.allocatable = declared.allocatable;
    status.capacity = declared.capacity;
    Some(Action::NodeStatus(Box::new(next)))
}
