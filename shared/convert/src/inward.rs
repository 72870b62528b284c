//! Workloads: API to core.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::constants::annotations;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::amount::Amount;
use roadstead_core::condition::{Condition, Conditions, Truth};
use roadstead_core::name::{
    CheckName, ClusterName, ClusterQueueName, FlavorName, Key, PodSetName, ResourceName, Uid,
};
use roadstead_core::quantity;
use roadstead_core::status::{Admission, Assignment, CheckPhase, CheckState, PodSetUpdate, Requeue, Status};
use roadstead_core::workload::{PodSet, Workload};

use crate::queues::toleration;
use crate::template;

/// A Workload, with what is wrong with it collected in `problems`.
pub fn workload(workload: &api::Workload) -> Workload {
    let (meta, spec) = (&workload.metadata, &workload.spec);
    let mut problems = Vec::new();
    let pod_sets = spec
        .pod_sets
        .iter()
        .map(|set| pod_set(set, &mut problems))
        .collect();
    let gates = meta
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotations::ADMISSION_GATED_BY));
    Workload {
        key: Key::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        ),
        uid: Uid::from(meta.uid.clone().unwrap_or_default()),
        created: meta
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        queue: spec.queue_name.clone().unwrap_or_default(),
        priority: spec.priority.unwrap_or_default(),
        active: workload.is_active(),
        max_execution_secs: spec
            .maximum_execution_time_seconds
            .and_then(|secs| u32::try_from(secs).ok()),
        gated: gates.is_some_and(|gates| !gates.is_empty()),
        pod_sets,
        problems,
        status: workload.status.as_ref().map(status).unwrap_or_default(),
    }
}

fn pod_set(set: &api::PodSet, problems: &mut Vec<String>) -> PodSet {
    let pod = template::read(&set.name, &set.template.0);
    problems.extend(pod.problems);
    PodSet {
        name: PodSetName::from(set.name.as_str()),
        count: u32::try_from(set.count).unwrap_or_default(),
        min_count: set.min_count.and_then(|count| u32::try_from(count).ok()),
        requests: pod.requests,
        node_selector: pod.node_selector,
        affinity: pod.affinity,
        tolerations: pod.tolerations,
        group: set
            .topology_request
            .as_ref()
            .and_then(|request| request.pod_set_group_name.clone()),
    }
}

/// The status of a Workload.
pub(crate) fn status(status: &api::WorkloadStatus) -> Status {
    let mut conditions = Conditions::default();
    for condition in &status.conditions {
        let truth = match condition.status.as_str() {
            "True" => Truth::True,
            "False" => Truth::False,
            _ => Truth::Unknown,
        };
        conditions.insert(
            condition.type_.clone(),
            Condition {
                truth,
                reason: condition.reason.clone().into(),
                message: condition.message.clone(),
                since: condition.last_transition_time.0,
                observed_generation: condition.observed_generation,
            },
        );
    }
    let count = |number: Option<i32>| number.and_then(|n| u32::try_from(n).ok());
    Status {
        conditions,
        admission: status.admission.as_ref().map(admission),
        checks: status
            .admission_checks
            .iter()
            .map(|check| (CheckName::from(check.name.as_str()), check_state(check)))
            .collect(),
        requeue: status.requeue_state.as_ref().map(|requeue| Requeue {
            count: count(requeue.count),
            at: requeue.requeue_at.as_ref().map(|time| time.0),
        }),
        nominated: status
            .nominated_cluster_names
            .iter()
            .map(|name| ClusterName::from(name.as_str()))
            .collect(),
        cluster: status
            .cluster_name
            .as_deref()
            .filter(|name| !name.is_empty())
            .map(ClusterName::from),
        reclaimable: status
            .reclaimable_pods
            .iter()
            .map(|pods| {
                (
                    PodSetName::from(pods.name.as_str()),
                    u32::try_from(pods.count).unwrap_or_default(),
                )
            })
            .collect(),
        accumulated_secs: count(status.accumulated_past_execution_time_seconds),
        evictions: status
            .scheduling_stats
            .iter()
            .flat_map(|stats| &stats.evictions)
            .map(|e| {
                (
                    (e.reason.clone(), e.underlying_cause.clone()),
                    u32::try_from(e.count).unwrap_or_default(),
                )
            })
            .collect(),
    }
}

/// A reservation. A usage that is no quantity counts as unlimited: quota is never given twice because of it.
pub(crate) fn admission(admission: &api::Admission) -> Admission {
    let assignment = |set: &api::PodSetAssignment| {
        let usage: BTreeMap<ResourceName, Amount> = set
            .resource_usage
            .iter()
            .map(|(name, amount)| {
                (
                    ResourceName::from(name.as_str()),
                    quantity::parse(name, &amount.0).unwrap_or(Amount::UNLIMITED),
                )
            })
            .collect();
        Assignment {
            name: PodSetName::from(set.name.as_str()),
            flavors: set
                .flavors
                .iter()
                .map(|(resource, flavor)| {
                    (
                        ResourceName::from(resource.as_str()),
                        FlavorName::from(flavor.as_str()),
                    )
                })
                .collect(),
            usage,
            count: set.count.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
        }
    };
    Admission {
        cluster_queue: ClusterQueueName::from(admission.cluster_queue.as_str()),
        pod_sets: admission.pod_set_assignments.iter().map(assignment).collect(),
    }
}

fn check_state(check: &api::AdmissionCheckState) -> CheckState {
    let count = |number: Option<i32>| number.and_then(|n| u32::try_from(n).ok());
    CheckState {
        phase: match check.state {
            api::CheckState::Pending => CheckPhase::Pending,
            api::CheckState::Ready => CheckPhase::Ready,
            api::CheckState::Retry => CheckPhase::Retry,
            api::CheckState::Rejected => CheckPhase::Rejected,
        },
        since: check.last_transition_time.0,
        message: check.message.clone(),
        updates: check
            .pod_set_updates
            .iter()
            .map(|update| PodSetUpdate {
                name: PodSetName::from(update.name.as_str()),
                labels: update.labels.clone(),
                annotations: update.annotations.clone(),
                node_selector: update.node_selector.clone(),
                tolerations: update.tolerations.iter().map(toleration).collect(),
            })
            .collect(),
        requeue_after_secs: count(check.requeue_after_seconds),
        retry_count: count(check.retry_count),
    }
}
