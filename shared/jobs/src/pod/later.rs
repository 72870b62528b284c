//! Later changes of a pod whose copy was sent: labels and annotations that its creator adds or changes, and gates of other owners that are
//! removed. The copy gets these changes too.
//!
//! Invariant: a key of Roadstead or of the queue belongs to the cluster that set it. A label or annotation that is removed on the manager
//! stays on the copy. A gate that only the worker has set stays on the copy.
//!
//! *Source*: `spec/jobs.md 12.9`.

use std::collections::BTreeMap;

use roadstead_api::constants::{annotations, gates, groups};
use serde_json::{Value, json};

use super::{GATES, by_name, is_over, versioned};
use crate::json;
use crate::kind::{Later, Member, Members};
use crate::labels::annotation;

/// The changes that the copies lack.
pub(super) fn later(local: Members<'_>, copies: Members<'_>) -> Vec<Later> {
    let there = by_name(copies);
    let is_open = |pod: Member<'_>| pod.meta.deletion_timestamp.is_none() && !is_over(pod);
    let all = local.all().iter();
    all.filter_map(|pod| {
        let copy = *there.get(pod.meta.name.as_deref()?)?;
        (is_open(*pod) && is_open(copy)).then(|| change(*pod, copy))?
    })
    .collect()
}

fn change(pod: Member<'_>, copy: Member<'_>) -> Option<Later> {
    let mut patch = json!({});
    for (place, here, there) in [
        ("labels", &pod.meta.labels, &copy.meta.labels),
        ("annotations", &pod.meta.annotations, &copy.meta.annotations),
    ] {
        for (key, value) in added(here.as_ref(), there.as_ref()) {
            json::set(&mut patch, &["metadata", place, key], json!(value));
        }
    }
    if let Some(kept) = without_removed_gates(pod, copy) {
        json::set(&mut patch, &GATES, Value::Array(kept));
    }
    (patch != json!({})).then(|| Later {
        copy: copy.id(),
        patch: versioned(copy, patch),
    })
}

/// The keys of other owners that the copy lacks, or has with another value.
fn added<'a>(
    here: Option<&'a BTreeMap<String, String>>,
    there: Option<&'a BTreeMap<String, String>>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_ours =
        |key: &str| key.starts_with(groups::KUEUE_PREFIX) || key.starts_with(groups::ROADSTEAD_PREFIX);
    let all = here.into_iter().flatten();
    all.filter(move |(key, value)| !is_ours(key) && there.and_then(|there| there.get(*key)) != Some(*value))
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

fn names(pod: &Value) -> Vec<&str> {
    let gates = json::list(pod, &GATES).iter();
    gates.filter_map(|gate| json::text(gate, &["name"])).collect()
}

/// The gates that stay on the copy; `None` when all do.
fn without_removed_gates(pod: Member<'_>, copy: Member<'_>) -> Option<Vec<Value>> {
    let sent = annotation(copy.meta, annotations::SENT_GATES)?;
    let here = names(pod.data);
    let is_removed = |gate: &Value| {
        let name = json::text(gate, &["name"]).unwrap_or_default();
        sent.split(',').any(|one| one == name) && !here.contains(&name)
    };
    let there = json::list(copy.data, &GATES);
    let kept: Vec<Value> = there.iter().filter(|gate| !is_removed(gate)).cloned().collect();
    (kept.len() < there.len()).then_some(kept)
}

/// Writes on a new copy which gates of other owners its pod has.
pub(super) fn note_gates(pod: Member<'_>, copy: &mut Value) {
    let foreign: Vec<&str> = { names(pod.data).into_iter() }
        .filter(|name| !matches!(*name, gates::ADMISSION | gates::TOPOLOGY))
        .collect();
    if !foreign.is_empty() {
        let path = ["metadata", "annotations", annotations::SENT_GATES];
        json::set(copy, &path, json!(foreign.join(",")));
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::constants::labels;

    use super::super::PlainPod;
    use super::*;
    use crate::JobKind as _;
    use crate::fixture::{IDENTITY, apply, both, one};

    const DONE: &str = "workflows.argoproj.io/completed";

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "here",
                "labels": {DONE: "false", labels::MANAGED: "true"}, "annotations": {"note": "a"},
            },
            "spec": {"schedulingGates": [{"name": gates::ADMISSION}, {"name": "example.com/mine"}, {"name": "example.com/too"}]},
            "status": {"phase": "Pending"},
        })
    }

    /// The copy as the worker stores it.
    fn sent(pod: &Value) -> Value {
        let mut copy = one(pod, |pods| PlainPod.copies(pods, &IDENTITY, &[])).remove(0);
        copy["metadata"]["uid"] = json!("there");
        copy["metadata"]["resourceVersion"] = json!("5");
        copy["status"] = json!({"phase": "Pending"});
        copy
    }

    fn patch(pod: &Value, copy: &Value) -> Option<Value> {
        let mut all = both(pod, copy, |pod, copy| PlainPod.later(pod, copy));
        assert!(all.len() <= 1);
        let Later { copy, patch } = all.pop()?;
        assert_eq!((copy.name.as_str(), copy.uid.as_str()), ("p", "there"));
        Some(patch)
    }

    /// Spec: jobs 12.9, 13.2
    #[test]
    fn what_is_added_or_changed_here_later_goes_to_the_copy_once() {
        let copy = sent(&pod());
        assert_eq!(patch(&pod(), &copy), None, "a new copy lacks nothing");
        let mut later = pod();
        later["metadata"]["labels"] =
            json!({DONE: "true", labels::MANAGED: "true", labels::QUEUE_NAME: "other"});
        later["metadata"]["annotations"] = json!({"more": "b", annotations::VIRTUAL_NODE: "roadstead-east"});
        let change = patch(&later, &copy).unwrap();
        let expected = json!({"metadata": {
            "labels": {DONE: "true"}, "annotations": {"more": "b"}, "resourceVersion": "5",
        }});
        assert_eq!(
            change, expected,
            "what was removed stays, and our own keys are not touched"
        );
        assert_eq!(patch(&later, &apply(&copy, &change)), None);
        for (here, there) in [("Succeeded", "Running"), ("Running", "Failed")] {
            let in_phase = |object: &Value, phase: &str| apply(object, &json!({"status": {"phase": phase}}));
            assert_eq!(patch(&in_phase(&later, here), &in_phase(&copy, there)), None);
        }
    }

    /// Spec: jobs 12.9
    #[test]
    fn a_gate_of_another_owner_that_goes_here_goes_there_and_one_of_the_worker_stays() {
        let mut copy = sent(&pod());
        let held = copy["spec"]["schedulingGates"].as_array_mut().unwrap();
        held.push(json!({"name": "worker.example/own"}));
        assert_eq!(patch(&pod(), &copy), None);
        let mut open = pod();
        open["spec"]["schedulingGates"] = json!([{"name": "example.com/too"}]);
        let change = patch(&open, &copy).unwrap();
        let kept =
            json!([{"name": gates::ADMISSION}, {"name": "example.com/too"}, {"name": "worker.example/own"}]);
        assert_eq!(
            change,
            json!({"metadata": {"resourceVersion": "5"}, "spec": {"schedulingGates": kept}})
        );
        assert_eq!(patch(&open, &apply(&copy, &change)), None);
    }
}
