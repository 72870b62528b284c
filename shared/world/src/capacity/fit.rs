//! Whether pods fit on nodes: resources, node selectors, required node affinity, taints.
//!
//! Invariant: a "yes" is never wrong as to these four. A "no" may be wrong: pods are placed greedily, largest first, each
//! set of equal pods on the node where it leaves the least room.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};
use kube::ResourceExt;

use super::amount::{self, Amounts};
use super::demand;

/// A number of equal pods.
#[derive(Debug, Clone)]
pub struct Set<'a> {
    /// The amounts that each pod takes.
    pub(super) asked: Amounts,
    pub(super) spec: &'a PodSpec,
    pub(super) count: i64,
}

impl<'a> Set<'a> {
    /// `count` pods of this specification. The error names a quantity that cannot be read.
    pub fn new(spec: &'a PodSpec, count: i64) -> Result<Self, String> {
        let asked = demand::of_pod(spec)?;
        Ok(Self { asked, spec, count })
    }
}

/// What the nodes of a cluster have left.
#[derive(Debug, Clone)]
pub struct Rooms<'a> {
    rooms: Vec<Room<'a>>,
}

#[derive(Debug, Clone)]
struct Room<'a> {
    node: &'a Node,
    total: Amounts,
    free: Amounts,
}

impl<'a> Rooms<'a> {
    /// Nodes that take pods, minus the pods that are bound to them and have not ended.
    ///
    /// *Source*: `spec/provisioning.md` 14.2 rule 2. If a quantity of a node or of a bound pod cannot be read, the node counts as
    /// full. This should not happen: the API server accepts no such quantity.
    pub fn of(nodes: &'a [Arc<Node>], pods: &[Arc<Pod>]) -> Self {
        let mut rooms: Vec<Room<'a>> = nodes.iter().filter_map(|node| Room::empty(node)).collect();
        rooms.sort_by_key(|room| room.node.name_any());
        for (pod, spec) in pods.iter().filter_map(|pod| Some((pod, pod.spec.as_ref()?))) {
            let room = rooms
                .iter_mut()
                .find(|room| spec.node_name.is_some() && room.node.metadata.name == spec.node_name);
            if let Some(room) = room.filter(|_| !has_ended(pod)) {
                match demand::of_pod(spec) {
                    Ok(asked) => room.take(&asked, 1),
                    Err(_) => room.free.clear(),
                }
            }
        }
        Self { rooms }
    }

    /// Places all pods of all sets and says yes, or places none and says no.
    ///
    /// *Source*: `spec/provisioning.md` 14.2 rules 4 and 5.
    pub fn fits(&mut self, sets: &[Set<'_>]) -> bool {
        let before = self.clone();
        let all = self.place(sets) == 0;
        if !all {
            *self = before;
        }
        all
    }

    /// Places one pod of a set; the name of its node, `None` if it fits nowhere.
    pub(crate) fn place_one(&mut self, set: &Set<'_>) -> Option<String> {
        let fitting = self
            .rooms
            .iter_mut()
            .filter(|room| admits(room.node, set.spec))
            .map(|room| (room.holds(&set.asked), room))
            .filter(|(holds, _)| *holds > 0);
        let (_, room) = fitting.min_by_key(|(holds, _)| *holds)?;
        room.take(&set.asked, 1);
        room.node.metadata.name.clone()
    }

    /// Places as many pods as fit; returns how many do not.
    pub(super) fn place(&mut self, sets: &[Set<'_>]) -> i64 {
        let total = self.total();
        let mut order: Vec<&Set<'_>> = sets.iter().collect();
        order.sort_by_key(|set| std::cmp::Reverse(dominant_share(&set.asked, &total)));
        order.into_iter().map(|set| self.place_set(set)).sum()
    }

    fn place_set(&mut self, set: &Set<'_>) -> i64 {
        let mut fitting: Vec<(i64, &mut Room<'a>)> = self
            .rooms
            .iter_mut()
            .filter(|room| admits(room.node, set.spec))
            .map(|room| (room.holds(&set.asked), room))
            .filter(|(holds, _)| *holds > 0)
            .collect();
        // Why the fewest first: the room that remains stays in large pieces.
        fitting.sort_by_key(|(holds, _)| *holds);
        let mut left = set.count.max(0);
        for (holds, room) in fitting {
            let here = holds.min(left);
            room.take(&set.asked, here);
            left -= here;
        }
        left
    }

    fn total(&self) -> Amounts {
        self.rooms.iter().fold(Amounts::new(), |mut sum, room| {
            demand::add(&mut sum, &room.total);
            sum
        })
    }
}

impl<'a> Room<'a> {
    /// The room of the node without pods; `None` if the node takes no pods.
    fn empty(node: &'a Node) -> Option<Self> {
        let status = node.status.as_ref()?;
        let ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let cordoned = node
            .spec
            .as_ref()
            .and_then(|spec| spec.unschedulable)
            .unwrap_or(false);
        if !ready || cordoned || node.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let total = amount::parse_all(status.allocatable.as_ref()?).ok()?;
        Some(Self {
            node,
            free: total.clone(),
            total,
        })
    }

    /// How many such pods still fit.
    fn holds(&self, asked: &Amounts) -> i64 {
        let of_each = asked
            .iter()
            .filter(|(_, amount)| **amount > 0)
            .map(|(name, amount)| self.free.get(name).map_or(0, |free| free.max(&0) / amount));
        of_each.min().unwrap_or(0)
    }

    fn take(&mut self, asked: &Amounts, times: i64) {
        for (name, amount) in asked {
            if let Some(free) = self.free.get_mut(name) {
                *free = free.saturating_sub(amount.saturating_mul(times));
            }
        }
    }
}

/// The largest part of the cluster that one pod takes of any resource, in millionths.
fn dominant_share(asked: &Amounts, total: &Amounts) -> i128 {
    let share = |(name, amount): (&String, &i64)| {
        let total = total.get(name).copied().unwrap_or(0).max(1);
        i128::from(*amount) * 1_000_000 / i128::from(total)
    };
    asked.iter().map(share).max().unwrap_or(0)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the node may carry such a pod at all.
fn admits(node: &Node, spec: &PodSpec) -> bool {
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| node.labels().get(key) == Some(value));
    let wanted = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .is_none_or(|required| {
            required
                .node_selector_terms
                .iter()
                .any(|term| matches(node, term))
        });
    let named = spec
        .node_name
        .as_ref()
        .is_none_or(|name| node.metadata.name.as_ref() == Some(name));
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let tolerated = taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    selected && wanted && named && tolerated
}

/// A term without requirements matches nothing.
fn matches(node: &Node, term: &NodeSelectorTerm) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.name_any();
    let label = |requirement: &NodeSelectorRequirement| {
        holds(
            requirement,
            node.labels().get(&requirement.key).map(String::as_str),
        )
    };
    // Wire: `metadata.name` is the only field that node affinity knows.
    let field = |requirement: &NodeSelectorRequirement| {
        holds(
            requirement,
            (requirement.key == "metadata.name").then_some(name.as_str()),
        )
    };
    !(labels.is_empty() && fields.is_empty()) && labels.iter().all(label) && fields.iter().all(field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.iter().any(|each| each == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let same = match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        // Why the key: an empty key is only meant as "all taints" together with Exists.
        "Equal" | "" => !key.is_empty() && value == taint.value.as_deref().unwrap_or_default(),
        _ => false,
    };
    same && (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == taint.effect)
}
