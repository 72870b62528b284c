//! The virtual node on which a pod shows in which cluster it runs.
//!
//! Invariant: the gates of a pod are removed in this cluster only to bind it to that node. The pod names the node, selects it and tolerates
//! its taint, so no scheduler of this cluster can put the pod anywhere else.
//!
//! *Source*: `spec/jobs.md 12.9`.

use roadstead_api::constants::{annotations, gates, labels};
use serde_json::{Value, json};

use super::remote::is_twin;
use super::{GATES, SCHEDULED, TERMINATION_TARGET, has_gate, is_over, is_true, patch};
use crate::json;
use crate::kind::{Member, Members, Target, Write};
use crate::labels::annotation;

/// Taints that a node's health brings. *Source*: the Pod API.
const OF_HEALTH: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const TOLERATIONS: [&str; 2] = ["spec", "tolerations"];

/// Whether a pod is on a virtual node, or is about to be.
pub(super) fn is_shown(pod: Member<'_>) -> bool {
    let named = annotation(pod.meta, annotations::VIRTUAL_NODE).filter(|node| !node.is_empty());
    let bound = json::text(pod.data, &["spec", "nodeName"]).filter(|node| !node.is_empty());
    !has_gate(pod, gates::ADMISSION) && named.is_some_and(|named| bound.is_none_or(|bound| bound == named))
}

/// The next writes that put each pod whose copy was scheduled on this node: first its gates are removed, then it is bound.
pub(super) fn settle(local: Members<'_>, copies: Members<'_>, node: &str) -> Vec<Write> {
    let copy_of = |pod: &Member<'_>| {
        let copies = copies.all().iter();
        { copies.copied() }.find(|copy| copy.meta.name == pod.meta.name && is_twin(*pod, *copy))
    };
    let is_ready = |pod: &Member<'_>| {
        let is_open = pod.meta.deletion_timestamp.is_none() && !is_over(*pod);
        is_open
            && copy_of(pod).is_some_and(|copy| {
                is_true(copy, SCHEDULED)
                    && copy.meta.deletion_timestamp.is_none()
                    && !is_true(copy, TERMINATION_TARGET)
            })
    };
    let all = local.all().iter();
    all.filter(|pod| is_ready(pod))
        .filter_map(|pod| step(*pod, node))
        .collect()
}

fn step(pod: Member<'_>, node: &str) -> Option<Write> {
    if json::text(pod.data, &["spec", "nodeName"]).is_some_and(|node| !node.is_empty()) {
        return None;
    }
    if has_gate(pod, gates::ADMISSION) {
        return let_go(pod, node);
    }
    is_shown(pod).then(|| Write::Bind {
        of: pod.id(),
        node: node.to_owned(),
    })
}

/// Takes our gates off; `None` while a gate of another owner holds the pod, because then it cannot be bound.
fn let_go(pod: Member<'_>, node: &str) -> Option<Write> {
    let ours = |gate: &Value| {
        matches!(
            json::text(gate, &["name"]),
            Some(gates::ADMISSION | gates::TOPOLOGY)
        )
    };
    if !json::list(pod.data, &GATES).iter().all(ours) {
        return None;
    }
    let mut tolerations = json::list(pod.data, &TOLERATIONS).to_vec();
    for key in OF_HEALTH {
        // Why existing tolerations lose their time limit: of several, the shortest time counts.
        for one in &mut tolerations {
            if json::text(one, &["key"]) == Some(key) {
                json::remove(one, &["tolerationSeconds"]);
            }
        }
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute"}));
    }
    tolerations.push(json!({"key": labels::VIRTUAL_NODE, "operator": "Exists"}));
    let mut unique: Vec<Value> = Vec::new();
    for one in tolerations {
        if !unique.contains(&one) {
            unique.push(one);
        }
    }
    let change = json!({
        "metadata": {"annotations": {annotations::VIRTUAL_NODE: node}},
        "spec": {
            "schedulingGates": [], "tolerations": unique, "nodeSelector": {labels::VIRTUAL_NODE: node},
        },
    });
    Some(patch(pod, Target::Main, change))
}

#[cfg(test)]
mod tests;
