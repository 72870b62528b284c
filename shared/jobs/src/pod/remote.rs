//! Pods in another cluster: the copies to create there, and the status of a local pod from its copy.
//!
//! Invariant: a pod that was sent stays held in this cluster, and shows the status of its copy. While the copy is not scheduled the pod
//! shows that it is held, so that no autoscaler of this cluster makes room for it.
//!
//! *Source*: `spec/jobs.md 12.9`, `spec/multikueue.md 5.2`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::constants::{annotations, gates};
use roadstead_core::lifecycle::Outcome;
use serde_json::{Value, json};

use super::{
    PlainPod, SCHEDULED, TERMINATION_TARGET, by_name, condition, has_gate, is_over, is_true, later, phase,
};
use crate::json;
use crate::kind::{Member, Members, Mirror, Remote, RemoteIdentity, Target, Unmatched};
use crate::labels::annotation;
use crate::remote::skeleton;

/// Fields of a status that belong to the node or the cluster of a pod.
const OF_THE_NODE: [&str; 2] = ["nominatedNodeName", "observedGeneration"];

/// Fields of a spec that the API server of a cluster fills in from its own priority and runtime classes.
///
/// Why they are not sent: the API server of the worker refuses values that differ from those of its classes.
const OF_THE_CLASSES: [&str; 3] = ["overhead", "preemptionPolicy", "priority"];

/// Path of the annotation of a copy that holds the UID of its pod.
const OF_UID: [&str; 3] = ["metadata", "annotations", annotations::MULTIKUEUE_ORIGIN_UID];

/// Whether a copy was made for this pod. Why the UID is compared: a `StatefulSet` makes its pods anew under the same names. A copy without
/// a UID counts, because it is of an earlier version.
pub(super) fn is_twin(pod: Member<'_>, copy: Member<'_>) -> bool {
    let of = annotation(copy.meta, annotations::MULTIKUEUE_ORIGIN_UID);
    of.is_none_or(|of| pod.meta.uid.as_deref() == Some(of))
}

/// The copies of the pods that have not ended and are not being deleted.
pub(super) fn copies(members: Members<'_>, identity: &RemoteIdentity<'_>) -> Vec<Value> {
    let copy = |pod: &Member<'_>| {
        let mut copy = skeleton(&PlainPod, *pod, identity);
        for field in OF_THE_CLASSES.into_iter().chain(["nodeName"]) {
            json::remove(&mut copy, &["spec", field]);
        }
        json::set(&mut copy, &OF_UID, json!(pod.meta.uid));
        later::note_gates(*pod, &mut copy);
        copy
    };
    let all = members.all().iter();
    all.filter(|pod| may_be_sent(**pod)).map(copy).collect()
}

/// Whether a pod may be sent. Why not a pod on a virtual node: it has run, and cannot be held again.
fn may_be_sent(pod: Member<'_>) -> bool {
    pod.meta.deletion_timestamp.is_none() && !is_over(pod) && has_gate(pod, gates::ADMISSION)
}

/// The pods without a copy, and the copies without a pod.
///
/// Unlike the anchor: there the copy of a pod that was deleted here runs on until its Workload is deleted (`spec/jobs.md 12.9`).
pub(super) fn unmatched(local: Members<'_>, copies: Members<'_>) -> Unmatched {
    let (here, there) = (by_name(local), by_name(copies));
    let lacking = { here.iter() }
        .filter(|(name, pod)| may_be_sent(**pod) && !there.contains_key(*name))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    // Why not an ended copy: it counts for the end of its group. Why the copy of an earlier pod of the same name: it blocks the name for a
    // copy of the present pod.
    let is_stray = |name: &str, copy: Member<'_>| match here.get(name) {
        Some(pod) if pod.meta.deletion_timestamp.is_none() => !is_twin(*pod, copy),
        Some(_) | None => !is_over(copy) || copy.meta.deletion_timestamp.is_some(),
    };
    let stray = { there.iter() }
        .filter(|(name, copy)| is_stray(name, **copy))
        .map(|(_, copy)| copy.id())
        .collect();
    Unmatched { lacking, stray }
}

/// The writes that show the state of the copies on the local pods.
pub(super) fn mirror(local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror {
    let there = match remote {
        Remote::Copies(copies) => by_name(copies),
        Remote::AtRest | Remote::Ended(_) => BTreeMap::new(),
    };
    let is_alone = local.all().len() == 1;
    let after = |pod: Member<'_>| match remote {
        Remote::Copies(_) => {
            let copy = there.get(pod.meta.name.as_deref().unwrap_or_default())?;
            (is_twin(pod, *copy) && !is_stopped(*copy, is_alone)).then(|| shown(pod, *copy))
        }
        Remote::AtRest => Some(held_again(pod, now)),
        Remote::Ended(outcome) => Some(concluded(pod, outcome)),
    };
    let write = |pod: &Member<'_>| {
        let before = status(*pod);
        let patch = json::difference(&before, &after(*pod)?)?;
        Some(pod.patched(Target::Status, json!({ "status": patch })))
    };
    let all = local.all().iter();
    Mirror {
        writes: all
            .filter(|pod| pod.meta.deletion_timestamp.is_none())
            .filter_map(write)
            .collect(),
        is_deferred: false,
    }
}

fn status(pod: Member<'_>) -> Value {
    json::at(pod.data, &["status"])
        .cloned()
        .unwrap_or_else(|| json!({}))
}

/// Whether a copy failed because it was stopped there, so that its pod may run again elsewhere.
///
/// Why any deletion of a single pod: its worker counts it as gone, so the pod is sent again.
fn is_stopped(copy: Member<'_>, is_alone: bool) -> bool {
    let is_going = copy.meta.deletion_timestamp.is_some();
    is_going && phase(copy) == "Failed" && (is_alone || is_true(copy, TERMINATION_TARGET))
}

fn shown(pod: Member<'_>, copy: Member<'_>) -> Value {
    let (here, mut after) = (status(pod), status(copy));
    for field in OF_THE_NODE {
        json::remove(&mut after, &[field]);
    }
    if let Some(class) = here.get("qosClass") {
        json::set(&mut after, &["qosClass"], class.clone());
    }
    if has_gate(pod, gates::ADMISSION) && !is_true(copy, SCHEDULED) {
        let there = json::list(&after, &["conditions"]).iter();
        let mut conditions: Vec<Value> = there
            .filter(|c| json::text(c, &["type"]) != Some(SCHEDULED))
            .cloned()
            .collect();
        conditions.extend(condition(pod, SCHEDULED).cloned());
        json::set(&mut after, &["conditions"], Value::Array(conditions));
    }
    after
}

/// The status of a pod that has never run.
fn held_again(pod: Member<'_>, now: Timestamp) -> Value {
    let here = status(pod);
    let has_run = ["startTime", "containerStatuses", "podIP"];
    if is_over(pod) || !has_gate(pod, gates::ADMISSION) {
        return here;
    }
    if phase(pod) == "Pending" && has_run.iter().all(|field| here.get(*field).is_none()) {
        return here;
    }
    let held = json!({
        "type": SCHEDULED, "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let mut after = json!({ "phase": "Pending", "conditions": [held] });
    if let Some(class) = here.get("qosClass") {
        json::set(&mut after, &["qosClass"], class.clone());
    }
    after
}

/// The status of a pod that ended as its Workload says.
fn concluded(pod: Member<'_>, outcome: &Outcome) -> Value {
    let mut after = status(pod);
    if !is_over(pod) {
        let phase = if outcome.success { "Succeeded" } else { "Failed" };
        json::set(&mut after, &["phase"], json!(phase));
        json::set(&mut after, &["message"], json!(outcome.message));
    }
    after
}

/// Keeps only the fields of a copy that a manager needs.
pub(super) fn forget_details(spec: &mut Value) {
    if let Value::Object(fields) = spec {
        fields.retain(|field, _| matches!(field.as_str(), "schedulingGates" | "nodeName"));
    }
}

#[cfg(test)]
mod tests;
