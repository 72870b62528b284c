//! Rules 5 to 8: a status must fit its spec.

use std::collections::BTreeMap;

use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::amount::Amount;
use roadstead_core::quantity;
use roadstead_jobs::problem::{Problem, annotation_problems, label_problems};

use super::super::resource_flavor::tolerations;
use super::names;

pub(super) fn rules(
    old: Option<&api::Workload>,
    new: &api::Workload,
    status: &api::WorkloadStatus,
    problems: &mut Vec<Problem>,
) {
    let unexplained = |w: &api::Workload| w.is_true("QuotaReserved") && w.admission().is_none();
    if unexplained(new) && !old.is_some_and(unexplained) {
        problems.push(Problem::required(
            "status.admission",
            "must be set while the QuotaReserved condition is true",
        ));
    }
    if let Some(admission) = &status.admission {
        assignments(new, admission, problems);
    }
    reclaimable(new, status, problems);
    for (index, check) in status.admission_checks.iter().enumerate() {
        updates(new, &format!("status.admissionChecks[{index}]"), check, problems);
    }
}

fn assignments(new: &api::Workload, admission: &api::Admission, problems: &mut Vec<Problem>) {
    let known = names(new);
    for (index, set) in admission.pod_set_assignments.iter().enumerate() {
        let path = format!("status.admission.podSetAssignments[{index}]");
        if !known.contains(set.name.as_str()) {
            problems.push(Problem::not_found(format!("{path}.name"), &set.name));
        }
        let Some(count) = set.count.filter(|count| *count > 0) else {
            continue;
        };
        for (resource, usage) in &set.resource_usage {
            let amount = quantity::parse(resource, &usage.0).map(Amount::get);
            if amount.is_ok_and(|amount| amount % i64::from(count) != 0) {
                let field = format!("{path}.resourceUsage[{resource}]");
                problems.push(Problem::invalid(field, format!("is not a multiple of {count}")).of(&usage.0));
            }
        }
    }
}

fn reclaimable(new: &api::Workload, status: &api::WorkloadStatus, problems: &mut Vec<Problem>) {
    let sets = new.spec.pod_sets.iter();
    let counts: BTreeMap<&str, i32> = sets.map(|set| (set.name.as_str(), set.count)).collect();
    for (index, pods) in status.reclaimable_pods.iter().enumerate() {
        let path = format!("status.reclaimablePods[{index}]");
        match counts.get(pods.name.as_str()) {
            None => problems.push(Problem::not_found(format!("{path}.name"), &pods.name)),
            Some(count) if pods.count > *count => {
                let why = format!("should be less or equal to {count}");
                problems.push(Problem::invalid(format!("{path}.count"), why).of(&pods.count.to_string()));
            }
            Some(_) => {}
        }
    }
}

fn updates(new: &api::Workload, path: &str, check: &api::AdmissionCheckState, problems: &mut Vec<Problem>) {
    let known = names(new);
    for (index, update) in check.pod_set_updates.iter().enumerate() {
        let path = format!("{path}.podSetUpdates[{index}]");
        if !known.contains(update.name.as_str()) {
            problems.push(Problem::not_found(format!("{path}.name"), &update.name));
        }
        problems.extend(label_problems(&format!("{path}.labels"), &update.labels));
        problems.extend(annotation_problems(
            &format!("{path}.annotations"),
            update.annotations.keys(),
        ));
        problems.extend(label_problems(
            &format!("{path}.nodeSelector"),
            &update.node_selector,
        ));
        tolerations(&format!("{path}.tolerations"), &update.tolerations, problems);
    }
}
