//! The rules for a Workload. *Source*: `spec/api.md API-9.5`.

use std::collections::BTreeSet;

use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2 as api;
use roadstead_jobs::problem::{
    Problem, annotation_problems, gates_may_only_shrink, gates_of, label_problems,
};
use roadstead_jobs::webhook::annotation_field;
use serde_json::Value;

use super::quotas::not_negative;

mod status;
mod update;

/// The reserved resource name. *Source*: `spec/api.md API-9.5.2`.
const PODS: &str = "pods";
const IMMUTABLE: &str = "field is immutable";

/// Checks a Workload that is being created (`old` is `None`) or changed, its status included. An empty list means that it is valid.
pub fn workload(old: Option<&api::Workload>, new: &api::Workload, gates: &FeatureGates) -> Vec<Problem> {
    let mut problems = Vec::new();
    pod_sets(new, gates, &mut problems);
    if let Some(status) = &new.status {
        status::rules(old, new, status, &mut problems);
    }
    own_annotations(old, new, gates, &mut problems);
    if let Some(old) = old {
        update::rules(old, new, gates, &mut problems);
    }
    problems
}

fn names(workload: &api::Workload) -> BTreeSet<&str> {
    let sets = workload.spec.pod_sets.iter();
    sets.map(|set| set.name.as_str()).collect()
}

fn annotation<'a>(workload: &'a api::Workload, key: &str) -> Option<&'a str> {
    let all = workload.metadata.annotations.as_ref()?;
    all.get(key).map(String::as_str)
}

/// Whether the Workload may change its size while it runs. *Source*: `spec/jobs.md 6`.
fn is_elastic(workload: &api::Workload, gates: &FeatureGates) -> bool {
    gates.enabled(FeatureGate::ElasticJobsViaWorkloadSlices)
        && annotation(workload, annotations::ELASTIC_JOB) == Some(labels::TRUE)
}

/// Rules 1 to 4.
fn pod_sets(new: &api::Workload, gates: &FeatureGates, problems: &mut Vec<Problem>) {
    let sets = new.spec.pod_sets.iter().enumerate();
    let with_minimum: Vec<usize> = sets
        .clone()
        .filter(|(_, set)| set.min_count.is_some())
        .map(|(index, _)| index)
        .collect();
    for (index, set) in sets {
        let path = format!("spec.podSets[{index}]");
        if gates.enabled(FeatureGate::WorkloadValidationForPodSetMetadata) {
            metadata(
                &format!("{path}.template.metadata"),
                set.template.get("metadata"),
                problems,
            );
        }
        if let Some(spec) = set.template.get("spec") {
            containers(&format!("{path}.template.spec"), spec, gates, problems);
        }
        if let Some(request) = &set.topology_request
            && gates.enabled(FeatureGate::TASValidateWorkloadSliceSize)
        {
            slice(&format!("{path}.topologyRequest"), request, problems);
        }
    }
    if with_minimum.len() > 1 {
        let text = "at most one podSet can use minCount";
        let found = with_minimum.len().to_string();
        problems.push(Problem::invalid("spec.podSets", text).of(&found));
    }
    if is_elastic(new, gates) {
        problems.extend(with_minimum.into_iter().map(|index| {
            let text = "partial admission and elastic job cannot be used together";
            Problem::forbidden(format!("spec.podSets[{index}].minCount"), text)
        }));
    }
}

fn metadata(path: &str, metadata: Option<&Value>, problems: &mut Vec<Problem>) {
    let texts = |name: &str| {
        let map = metadata.and_then(|m| m.get(name)).and_then(Value::as_object);
        map.into_iter().flatten().collect::<Vec<_>>()
    };
    let mut pairs = Vec::new();
    for (key, value) in texts("labels") {
        match value {
            Value::String(text) => pairs.push((key, text)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => problems
                .push(
                    Problem::invalid(format!("{path}.labels[{key}]"), "must be a text")
                        .of(&value.to_string()),
                ),
        }
    }
    problems.extend(label_problems(&format!("{path}.labels"), pairs));
    let keys = texts("annotations").into_iter().map(|(key, _)| key);
    problems.extend(annotation_problems(&format!("{path}.annotations"), keys));
}

fn containers(path: &str, spec: &Value, gates: &FeatureGates, problems: &mut Vec<Problem>) {
    for list in ["containers", "initContainers"] {
        let all = spec.get(list).and_then(Value::as_array);
        for (index, container) in all.into_iter().flatten().enumerate() {
            let path = format!("{path}.{list}[{index}].resources");
            resources(&path, container.get("resources"), gates, problems);
        }
    }
    resources(
        &format!("{path}.resources"),
        spec.get("resources"),
        gates,
        problems,
    );
}

fn resources(path: &str, resources: Option<&Value>, gates: &FeatureGates, problems: &mut Vec<Problem>) {
    for list in ["requests", "limits"] {
        let amounts = resources.and_then(|r| r.get(list)).and_then(Value::as_object);
        for (name, value) in amounts.into_iter().flatten() {
            let field = format!("{path}.{list}[{name}]");
            if name == PODS {
                let why = "the key is reserved for internal kueue use";
                problems.push(Problem::invalid(field.clone(), why).of(name));
            }
            if gates.enabled(FeatureGate::WorkloadValidateResourcesAreNonNegative) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                not_negative(&field, &text, problems);
            }
        }
    }
}

fn slice(path: &str, request: &api::PodSetTopologyRequest, problems: &mut Vec<Problem>) {
    let field = format!("{path}.podSetSliceSize");
    match (
        &request.pod_set_slice_required_topology,
        request.pod_set_slice_size,
    ) {
        (Some(_), None) => problems.push(Problem::required(
            field,
            "must be set when podSetSliceRequiredTopology is set",
        )),
        (None, Some(_)) => problems.push(Problem::forbidden(
            field,
            "may only be set when podSetSliceRequiredTopology is set",
        )),
        (Some(_), Some(_)) | (None, None) => {}
    }
}

/// Rule 9 (annotations), and the part of rule 10 about changes of the admission gates annotation.
fn own_annotations(
    old: Option<&api::Workload>,
    new: &api::Workload,
    gates: &FeatureGates,
    problems: &mut Vec<Problem>,
) {
    if gates.enabled(FeatureGate::AdmissionGatedBy) {
        let field = annotation_field(annotations::ADMISSION_GATED_BY);
        let by = |workload| annotation(workload, annotations::ADMISSION_GATED_BY).unwrap_or_default();
        problems.extend(match old {
            None => gates_of(&field, by(new)).1,
            Some(old) => gates_may_only_shrink(&field, by(old), by(new)),
        });
    }
    if gates.enabled(FeatureGate::PriorityBoost)
        && let Some(boost) = annotation(new, annotations::PRIORITY_BOOST)
        && boost.parse::<i32>().is_err()
    {
        let field = annotation_field(annotations::PRIORITY_BOOST);
        problems.push(Problem::invalid(field, "must be a 32-bit integer").of(boost));
    }
}

#[cfg(test)]
mod tests;
