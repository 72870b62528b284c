//! What the webhook refuses in a Workload. *Source*: `spec/api.md API-9.5`.
//!
//! Invariant: all problems are reported at once, each with the path of the field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use roadstead_api::constants::annotations;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use serde_json::Value;

/// The reserved resource name. *Source*: `spec/api.md API-9.5.2`.
const PODS: &str = "pods";
/// Longest name of an admission gate.
const GATE_MAX: usize = 63;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the field.
    pub field: String,
    /// What is wrong, in the words clients know.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem {
            field: field.into(),
            message: message.into(),
        });
    }
}

/// Checks a Workload that is being created (`old` is `None`) or changed. An empty list means that it is fine.
pub fn validate_workload(old: Option<&api::Workload>, new: &api::Workload) -> Vec<Problem> {
    let mut problems = Problems(Vec::new());
    spec(new, &mut problems);
    if let Some(status) = &new.status {
        self::status(old, new, status, &mut problems);
    }
    gates(old, new, &mut problems);
    if let Some(old) = old {
        update(old, new, &mut problems);
    }
    problems.0
}

fn spec(new: &api::Workload, problems: &mut Problems) {
    let mut with_minimum = 0;
    for (index, set) in new.spec.pod_sets.iter().enumerate() {
        with_minimum += i32::from(set.min_count.is_some());
        let base = format!("spec.podSets[{index}].template.spec");
        let Some(spec) = set.template.0.get("spec") else {
            continue;
        };
        for list in ["containers", "initContainers"] {
            for (at, container) in spec
                .get(list)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
            {
                resources(
                    &format!("{base}.{list}[{at}].resources"),
                    container.get("resources"),
                    problems,
                );
            }
        }
        resources(&format!("{base}.resources"), spec.get("resources"), problems);
    }
    if with_minimum > 1 {
        problems.add("spec.podSets", "at most one podSet can use minCount");
    }
}

fn resources(path: &str, resources: Option<&Value>, problems: &mut Problems) {
    for list in ["requests", "limits"] {
        let amounts = resources.and_then(|r| r.get(list)).and_then(Value::as_object);
        for (name, value) in amounts.into_iter().flatten() {
            let field = format!("{path}.{list}[{name}]");
            if name == PODS {
                problems.add(&field, "the key is reserved for internal kueue use");
            }
            if value.as_str().is_some_and(|text| text.starts_with('-'))
                || value.as_f64().is_some_and(|n| n < 0.0)
            {
                problems.add(field, "must be greater than or equal to 0");
            }
        }
    }
}

fn status(
    old: Option<&api::Workload>,
    new: &api::Workload,
    status: &api::WorkloadStatus,
    problems: &mut Problems,
) {
    let unexplained = |w: &api::Workload| w.is_true("QuotaReserved") && w.admission().is_none();
    if unexplained(new) && !old.is_some_and(unexplained) {
        problems.add(
            "status.admission",
            "must be set while the QuotaReserved condition is true",
        );
    }
    let counts: BTreeMap<&str, i32> = new
        .spec
        .pod_sets
        .iter()
        .map(|set| (set.name.as_str(), set.count))
        .collect();
    for (index, set) in status
        .admission
        .iter()
        .flat_map(|a| &a.pod_set_assignments)
        .enumerate()
    {
        let base = format!("status.admission.podSetAssignments[{index}]");
        if !counts.contains_key(set.name.as_str()) {
            problems.add(format!("{base}.name"), format!("Not found: \"{}\"", set.name));
        }
        let Some(count) = set.count.filter(|count| *count > 0) else {
            continue;
        };
        for (resource, usage) in &set.resource_usage {
            let name = ResourceName::from(resource.as_str());
            let amount = quantity::parse(name.as_str(), &usage.0).map(roadstead_core::amount::Amount::get);
            if amount.is_ok_and(|amount| amount % i64::from(count) != 0) {
                problems.add(
                    format!("{base}.resourceUsage[{resource}]"),
                    format!("is not a multiple of {count}"),
                );
            }
        }
    }
    for (index, pods) in status.reclaimable_pods.iter().enumerate() {
        let base = format!("status.reclaimablePods[{index}]");
        match counts.get(pods.name.as_str()) {
            None => problems.add(format!("{base}.name"), format!("Not found: \"{}\"", pods.name)),
            Some(count) if pods.count > *count => {
                problems.add(
                    format!("{base}.count"),
                    format!("should be less or equal to {count}"),
                );
            }
            Some(_) => {}
        }
    }
    for (index, check) in status.admission_checks.iter().enumerate() {
        for (at, update) in check.pod_set_updates.iter().enumerate() {
            if !counts.contains_key(update.name.as_str()) {
                let field = format!("status.admissionChecks[{index}].podSetUpdates[{at}].name");
                problems.add(field, format!("Not found: \"{}\"", update.name));
            }
        }
    }
}

fn gate_names(workload: &api::Workload) -> Option<Vec<&str>> {
    let all = workload
        .metadata
        .annotations
        .as_ref()?
        .get(annotations::ADMISSION_GATED_BY)?;
    Some(all.split(',').collect())
}

fn gates(old: Option<&api::Workload>, new: &api::Workload, problems: &mut Problems) {
    let field = format!("metadata.annotations[{}]", annotations::ADMISSION_GATED_BY);
    let names = gate_names(new).unwrap_or_default();
    let mut seen = BTreeSet::new();
    for name in &names {
        let domain = name
            .split_once('/')
            .filter(|(domain, path)| !domain.is_empty() && !path.is_empty());
        if name.is_empty() {
            problems.add(&field, "must not contain empty names");
        } else if domain.is_none() || name.len() > GATE_MAX {
            let text = format!("\"{name}\" must be a domain-prefixed path of at most {GATE_MAX} characters");
            problems.add(&field, text);
        }
        if !seen.insert(*name) {
            problems.add(&field, format!("Duplicate value: \"{name}\""));
        }
    }
    if let Some(old) = old {
        let before = gate_names(old).unwrap_or_default();
        if names.iter().any(|name| !before.contains(name)) {
            problems.add(&field, "can only remove gates, not add new ones");
        }
    }
}

fn update(old: &api::Workload, new: &api::Workload, problems: &mut Problems) {
    let reserved = old.is_true("QuotaReserved");
    if reserved && old.spec.pod_sets != new.spec.pod_sets {
        problems.add("spec.podSets", "field is immutable");
    }
    let (before, after) = (
        old.status.clone().unwrap_or_default(),
        new.status.clone().unwrap_or_default(),
    );
    if reserved && new.is_true("QuotaReserved") {
        for pods in &before.reclaimable_pods {
            match after.reclaimable_pods.iter().find(|p| p.name == pods.name) {
                None => problems.add(
                    format!("status.reclaimablePods[{}]", pods.name),
                    "cannot be removed",
                ),
                Some(now) if now.count < pods.count => problems.add(
                    format!("status.reclaimablePods[{}].count", pods.name),
                    format!("cannot be less than {}", pods.count),
                ),
                Some(_) => {}
            }
        }
    }
    if let (Some(before), Some(after)) = (&before.admission, &after.admission)
        && without_topology(before) != without_topology(after)
    {
        problems.add("status.admission", "field is immutable");
    }
    for check in &before.admission_checks {
        let ready = api::CheckState::Ready;
        let now = after.admission_checks.iter().find(|c| c.name == check.name);
        if check.state == ready
            && now.is_some_and(|c| c.state == ready && c.pod_set_updates != check.pod_set_updates)
        {
            let field = format!("status.admissionChecks[{}].podSetUpdates", check.name);
            problems.add(field, "field is immutable");
        }
    }
    if let (None, Some(name)) = (&before.cluster_name, &after.cluster_name)
        && !before.nominated_cluster_names.contains(name)
    {
        let text = "when setting clusterName it must be one of the nominatedClusterNames";
        problems.add("status.clusterName", text);
    }
}

fn without_topology(admission: &api::Admission) -> api::Admission {
    let mut bare = admission.clone();
    for set in &mut bare.pod_set_assignments {
        set.topology_assignment = None;
        set.delayed_topology_request = None;
    }
    bare
}

#[cfg(test)]
mod tests;
