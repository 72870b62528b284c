//! Rule 10: what may change while quota is reserved.

use roadstead_api::config::FeatureGates;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_jobs::problem::Problem;

use super::{IMMUTABLE, is_elastic};

pub(super) fn rules(
    old: &api::Workload,
    new: &api::Workload,
    gates: &FeatureGates,
    problems: &mut Vec<Problem>,
) {
    let reserved = old.is_true("QuotaReserved");
    if reserved && !same_pod_sets(old, new, is_elastic(old, gates)) {
        problems.push(Problem::invalid("spec.podSets", IMMUTABLE));
    }
    let empty = api::WorkloadStatus::default();
    let before = old.status.as_ref().unwrap_or(&empty);
    let after = new.status.as_ref().unwrap_or(&empty);
    if reserved && new.is_true("QuotaReserved") {
        reclaimable(before, after, problems);
    }
    if let (Some(before), Some(after)) = (&before.admission, &after.admission)
        && before != after
        && without_topology(before) != without_topology(after)
    {
        problems.push(Problem::invalid("status.admission", IMMUTABLE));
    }
    for (index, now) in after.admission_checks.iter().enumerate() {
        let was = before
            .admission_checks
            .iter()
            .find(|check| check.name == now.name);
        let ready = |check: &api::AdmissionCheckState| check.state == api::CheckState::Ready;
        if was.is_some_and(|was| ready(was) && ready(now) && was.pod_set_updates != now.pod_set_updates) {
            let field = format!("status.admissionChecks[{index}].podSetUpdates");
            problems.push(Problem::invalid(field, IMMUTABLE));
        }
    }
    if let (None, Some(name)) = (&before.cluster_name, &after.cluster_name)
        && !before.nominated_cluster_names.contains(name)
    {
        let why = "when setting clusterName it must be one of the nominatedClusterNames";
        problems.push(Problem::invalid("status.clusterName", why).of(name));
    }
}

/// Whether the pod sets are the same; an elastic Workload may have fewer pods than before.
fn same_pod_sets(old: &api::Workload, new: &api::Workload, elastic: bool) -> bool {
    let (old, new) = (&old.spec.pod_sets, &new.spec.pod_sets);
    let same = |(old, new): (&api::PodSet, &api::PodSet)| {
        if elastic && new.count <= old.count {
            let mut scaled = old.clone();
            scaled.count = new.count;
            scaled == *new
        } else {
            old == new
        }
    };
    old.len() == new.len() && old.iter().zip(new).all(same)
}

fn reclaimable(before: &api::WorkloadStatus, after: &api::WorkloadStatus, problems: &mut Vec<Problem>) {
    for pods in &before.reclaimable_pods {
        let field = format!("status.reclaimablePods[{}]", pods.name);
        match after.reclaimable_pods.iter().find(|now| now.name == pods.name) {
            None => problems.push(Problem::required(field, "cannot be removed")),
            Some(now) if now.count < pods.count => {
                let why = format!("cannot be less than {}", pods.count);
                problems.push(Problem::invalid(format!("{field}.count"), why).of(&now.count.to_string()));
            }
            Some(_) => {}
        }
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
