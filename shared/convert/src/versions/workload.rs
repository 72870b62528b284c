//! `Workload`: the source of the priority, a misspelt field, topology assignments, and the fields that `v1beta1` lacks: preemption gates
//! and slices within slices.

use std::collections::BTreeMap;

use roadstead_api::kueue::v1beta2::{PodSetSliceConstraint, PreemptionGate, PreemptionGateState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Version;
use super::fields::{Fields, Wrong, object, objects, rename, take, take_text};
use super::{carried, topology};

const GATES: &str = "preemptionGates";
const GATE_STATES: &str = "preemptionGateStates";
const CONSTRAINTS: &str = "podsetSliceRequiredTopologyConstraints";
const SECONDS: &str = "accumulatedPastExecutionTimeSeconds";
/// Wire: misspelt in `v1beta1`.
const SECONDS_BETA1: &str = "accumulatedPastExexcutionTimeSeconds";

/// Source, group and kind of the two classes a priority can come from.
const CLASSES: [(&str, &str, &str); 2] = [
    (
        "kueue.x-k8s.io/workloadpriorityclass",
        "kueue.x-k8s.io",
        "WorkloadPriorityClass",
    ),
    (
        "scheduling.k8s.io/priorityclass",
        "scheduling.k8s.io",
        "PriorityClass",
    ),
];

/// The fields of a workload that only `v1beta2` has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct Carried {
    #[serde(rename = "preemptionGates")]
    _gates: Vec<PreemptionGate>,
    #[serde(rename = "preemptionGateStates")]
    _states: Vec<PreemptionGateState>,
    #[serde(rename = "podsetSliceRequiredTopologyConstraints")]
    _constraints: BTreeMap<String, Vec<PodSetSliceConstraint>>,
}

pub(super) fn to_hub(root: &mut Fields, from: Version) -> Result<(), Wrong> {
    if from == Version::V1beta2 {
        return Ok(());
    }
    let mut carried = carried::take::<Carried>(root)?;
    if let Some(spec) = object(root, "spec")? {
        class_to_hub(spec)?;
        if let Some(gates) = take(&mut carried, GATES) {
            spec.insert(GATES.to_owned(), gates);
        }
        if let Some(Value::Object(mut constraints)) = take(&mut carried, CONSTRAINTS) {
            for pod_set in objects(spec, "spec.podSets")? {
                let pod_set = pod_set?;
                if let Some(layers) = take(&mut constraints, pod_set_name(pod_set))
                    && let Some(request) = object(pod_set, "spec.podSets[].topologyRequest")?
                {
                    request.insert(CONSTRAINTS.to_owned(), layers);
                }
            }
        }
    }
    // Why only with a status: an object without one is new, and its annotation may come from the manifest of another object.
    if let Some(status) = object(root, "status")? {
        rename(status, SECONDS_BETA1, SECONDS);
        if let Some(states) = take(&mut carried, GATE_STATES) {
            status.insert(GATES.to_owned(), states);
        }
        each_assignment(status, topology::to_slices)?;
    }
    Ok(())
}

pub(super) fn from_hub(root: &mut Fields, to: Version) -> Result<(), Wrong> {
    if to == Version::V1beta2 {
        return Ok(());
    }
    let mut carried = Fields::new();
    if let Some(spec) = object(root, "spec")? {
        class_from_hub(spec)?;
        if let Some(gates) = take(spec, GATES) {
            carried.insert(GATES.to_owned(), gates);
        }
        let mut constraints = Fields::new();
        for pod_set in objects(spec, "spec.podSets")? {
            let pod_set = pod_set?;
            let name = pod_set_name(pod_set).to_owned();
            if let Some(request) = object(pod_set, "spec.podSets[].topologyRequest")?
                && let Some(layers) = take(request, CONSTRAINTS)
            {
                constraints.insert(name, layers);
            }
        }
        if !constraints.is_empty() {
            carried.insert(CONSTRAINTS.to_owned(), Value::Object(constraints));
        }
    }
    if let Some(status) = object(root, "status")? {
        rename(status, SECONDS, SECONDS_BETA1);
        if let Some(states) = take(status, GATES) {
            carried.insert(GATE_STATES.to_owned(), states);
        }
        each_assignment(status, topology::to_domains)?;
    }
    carried::put(root, carried)
}

fn pod_set_name(pod_set: &Fields) -> &str {
    pod_set.get("name").and_then(Value::as_str).unwrap_or("main")
}

fn class_to_hub(spec: &mut Fields) -> Result<(), Wrong> {
    const SOURCE: &str = "spec.priorityClassSource";
    let source = take_text(spec, SOURCE)?.unwrap_or_default();
    let name = take_text(spec, "spec.priorityClassName")?.unwrap_or_default();
    // Why: without a source the name refers to nothing, and a reference must have a name.
    if source.is_empty() {
        return Ok(());
    }
    let Some((_, group, kind)) = CLASSES.iter().find(|(known, ..)| *known == source) else {
        return Err(Wrong::new(
            SOURCE,
            "kueue.x-k8s.io/workloadpriorityclass, scheduling.k8s.io/priorityclass or empty",
        ));
    };
    if !name.is_empty() {
        spec.insert(
            "priorityClassRef".to_owned(),
            json!({"group": group, "kind": kind, "name": name}),
        );
    }
    Ok(())
}

fn class_from_hub(spec: &mut Fields) -> Result<(), Wrong> {
    let Some(mut reference) = take(spec, "priorityClassRef") else {
        return Ok(());
    };
    let text = |name| reference.get(name).and_then(Value::as_str);
    let (group, kind) = (text("group"), text("kind"));
    let known = CLASSES
        .iter()
        .find(|(_, known_group, known_kind)| group == Some(known_group) && kind == Some(known_kind));
    let name = reference.get_mut("name").map(Value::take);
    let (Some((source, ..)), Some(name @ Value::String(_))) = (known, name) else {
        return Err(Wrong::new(
            "spec.priorityClassRef",
            "a name with group kueue.x-k8s.io and kind WorkloadPriorityClass, or group scheduling.k8s.io and kind PriorityClass",
        ));
    };
    spec.insert("priorityClassSource".to_owned(), (*source).into());
    spec.insert("priorityClassName".to_owned(), name);
    Ok(())
}

/// Rewrites the topology assignment of every pod set.
fn each_assignment(
    status: &mut Fields,
    rewrite: impl Fn(&mut Fields) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let Some(admission) = object(status, "status.admission")? else {
        return Ok(());
    };
    for pod_set in objects(admission, "status.admission.podSetAssignments")? {
        if let Some(assignment) = object(pod_set?, topology::ASSIGNMENT)? {
            rewrite(assignment)?;
        }
    }
    Ok(())
}
