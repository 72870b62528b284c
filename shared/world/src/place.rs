//! The scheduler: it chooses a node for each waiting pod.
//!
//! Pods with the highest priority come first, then the oldest. Each pod goes to the node where it leaves the least room, as
//! [`crate::capacity`] counts room. A pod that fits nowhere gets a condition, and does not hold back the pods behind it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, PodStatus};
use kube::ResourceExt as _;

use crate::action::Action;
use crate::capacity::fit::{Rooms, Set};
use crate::play::has_ended;
use crate::stamp;

const SCHEDULED: &str = "PodScheduled";
/// The `schedulerName` of the pods that this scheduler places.
const SCHEDULER: &str = "default-scheduler";

/// The writes that are due for pods without a node.
pub(crate) fn decide(nodes: &[Arc<Node>], pods: &[Arc<Pod>], now: Timestamp) -> Vec<Action> {
    let mut waiting: Vec<(&Arc<Pod>, Set<'_>)> = pods
        .iter()
        .filter(|pod| waits(pod))
        // Why ignored: the API server accepts no pod with a quantity that cannot be read.
        .filter_map(|pod| Some((pod, Set::new(pod.spec.as_ref()?, 1).ok()?)))
        .collect();
    if waiting.is_empty() {
        return Vec::new();
    }
    waiting.sort_by_key(|(pod, _)| {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let age = pod.creation_timestamp();
        (std::cmp::Reverse(priority), age, pod.namespace(), pod.name_any())
    });
    let mut rooms = Rooms::of(nodes, pods);
    waiting
        .into_iter()
        .filter_map(|(pod, set)| match rooms.place_one(&set) {
            Some(node) => Some(Action::BindPod(Arc::clone(pod), node)),
            None => unschedulable(pod, nodes.len(), now),
        })
        .collect()
}

fn waits(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let gated = spec
        .scheduling_gates
        .as_ref()
        .is_some_and(|gates| !gates.is_empty());
    let ours = spec
        .scheduler_name
        .as_deref()
        .is_none_or(|name| name == SCHEDULER);
    let going = pod.metadata.deletion_timestamp.is_some();
    ours && spec.node_name.is_none() && !gated && !going && !has_ended(pod)
}

/// Sets the pod's `PodScheduled` condition to `Unschedulable`, once.
fn unschedulable(pod: &Arc<Pod>, nodes: usize, now: Timestamp) -> Option<Action> {
    let mut status: PodStatus = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    let said = |condition: &PodCondition| {
        condition.type_ == SCHEDULED && condition.reason.as_deref() == Some("Unschedulable")
    };
    if conditions.iter().any(said) {
        return None;
    }
    conditions.retain(|condition| condition.type_ != SCHEDULED);
    conditions.push(PodCondition {
        type_: SCHEDULED.to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(format!(
            "0/{nodes} nodes are available: no node has room for this pod."
        )),
        last_transition_time: Some(stamp(now)),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    });
    Some(Action::PodStatus(Arc::clone(pod), Box::new(status)))
}

#[cfg(test)]
mod tests;
