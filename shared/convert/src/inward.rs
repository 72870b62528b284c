//! Workloads: API to core.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as ApiCondition;
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::amount::Amount;
use roadstead_core::condition::{Condition, Conditions, Truth};
use roadstead_core::lifecycle::Reclaim;
use roadstead_core::name::{
    CheckName, ClusterName, ClusterQueueName, FlavorName, Key, PodSetName, ResourceName, Uid,
};
use roadstead_core::quantity;
use roadstead_core::requests::{self, Amounts, Around, Findings};
use roadstead_core::status::{
    Admission, Assignment, CheckPhase, CheckState, GatePosition, PodSetUpdate, PreemptionGate, Requeue,
    Status,
};
use roadstead_core::workload::{PodSet, Workload};
use serde_json::Value;

use crate::accounting::{Accounting, Boost};
use crate::queues::toleration;
use crate::{template, topology};

/// A Workload by itself: its requests are those of the templates, without limit ranges, runtime classes and the administrator's rules. A
/// process that decides about quota uses [`counted_workload`].
pub fn workload(workload: &api::Workload) -> Workload {
    counted_workload(workload, &Accounting::plain())
}

/// Whether the first pod requests more of any resource than the second; each is given as object or as template, as the API server has
/// stored it. A malformed request counts as zero.
pub fn asks_for_more(pod: &Value, other: &Value) -> bool {
    let (limits, rules) = (Accounting::plain().limits, Accounting::plain().rules);
    let asked = |template: &Value| {
        let mut findings = Findings::default();
        let pod = template::read("spec", template.get("spec"), &mut findings.invalid);
        let around = Around {
            rules,
            limits,
            overhead: None,
        };
        requests::count("spec", &pod.asked, &around, &mut findings)
    };
    let given = asked(other);
    let is_more =
        |(name, amount): (&ResourceName, &Amount)| *amount > given.get(name).copied().unwrap_or_default();
    asked(pod).iter().any(is_more)
}

/// A Workload as it counts against quota. Its faults are in `problems`, in the words of `spec/admission-engine.md 2.3`: at most one
/// sentence, ready for its condition.
pub fn counted_workload(workload: &api::Workload, accounting: &Accounting<'_>) -> Workload {
    let (meta, spec) = (&workload.metadata, &workload.spec);
    let mut findings = Findings::default();
    let pod_sets = spec
        .pod_sets
        .iter()
        .map(|set| pod_set(set, accounting, &mut findings))
        .collect();
    let gates = meta
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotations::ADMISSION_GATED_BY));
    Workload {
        key: Key::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        ),
        uid: Uid::from(meta.uid.as_deref().unwrap_or_default()),
        job_uid: { meta.labels.as_ref() }
            .and_then(|labels| labels.get(labels::JOB_UID))
            .map(|uid| Uid::from(uid.as_str())),
        created: meta
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        queue: spec.queue_name.clone().unwrap_or_default(),
        priority: spec.priority.unwrap_or_default(),
        boost: boost(meta.annotations.as_ref(), accounting.boost),
        active: workload.is_active(),
        max_execution_secs: spec
            .maximum_execution_time_seconds
            .and_then(|secs| u32::try_from(secs).ok()),
        gated_by: gates.cloned().unwrap_or_default(),
        pod_sets,
        problems: findings.sentence().into_iter().collect(),
        beyond: None,
        status: counted_status(workload, accounting.reclaim),
    }
}

/// The status of a Workload with the reclaimable pods that count. Why ignored counts are removed: they free no quota, so no decision may
/// see them; the stored ones stay.
fn counted_status(workload: &api::Workload, reclaim: Reclaim) -> Status {
    let status = workload_status(workload);
    match reclaim {
        Reclaim::Count => status,
        Reclaim::Ignore => Status {
            reclaimable: BTreeMap::new(),
            ..status
        },
    }
}

/// The status of a Workload. Every gate of the spec that has no state counts as closed. *Source*: `spec/admission-engine.md 2.16`.
pub fn workload_status(workload: &api::Workload) -> Status {
    let mut status = workload.status.as_ref().map(status).unwrap_or_default();
    for gate in &workload.spec.preemption_gates {
        let created = workload.metadata.creation_timestamp.as_ref();
        status
            .preemption_gates
            .entry(gate.name.clone())
            .or_insert_with(|| PreemptionGate {
                position: GatePosition::Closed,
                since: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            });
    }
    status
}

/// The priority boost from the annotations. *Source*: `spec/admission-engine.md 4.4`, gate `PriorityBoost`. A malformed number counts as 0:
/// the webhook refuses it.
fn boost(notes: Option<&BTreeMap<String, String>>, boost: Boost) -> i32 {
    let written = notes.and_then(|all| all.get(annotations::PRIORITY_BOOST));
    match boost {
        Boost::Count => written.and_then(|text| text.parse().ok()).unwrap_or_default(),
        Boost::Ignore => 0,
    }
}

fn pod_set(set: &api::PodSet, accounting: &Accounting<'_>, findings: &mut Findings) -> PodSet {
    let path = format!("spec.podSets[{}].template.spec", set.name);
    let pod = template::read(&path, set.template.get("spec"), &mut findings.invalid);
    let overhead = pod.asked.runtime_class.as_deref().and_then(accounting.overhead);
    let around = Around {
        rules: accounting.rules,
        limits: accounting.limits,
        overhead: overhead.as_ref(),
    };
    PodSet {
        name: PodSetName::from(set.name.as_str()),
        count: u32::try_from(set.count).unwrap_or_default(),
        min_count: set.min_count.and_then(|count| u32::try_from(count).ok()),
        requests: requests::count(&path, &pod.asked, &around, findings),
        node_selector: pod.node_selector,
        affinity: pod.affinity,
        tolerations: pod.tolerations,
        group: set
            .topology_request
            .as_ref()
            .and_then(|request| request.pod_set_group_name.clone()),
        asks_topology: set.topology_request.as_deref().is_some_and(topology::asks),
    }
}

/// The conditions as stored.
pub fn conditions(stored: &[ApiCondition]) -> Conditions {
    let mut conditions = Conditions::default();
    for stored in stored {
        let truth = match stored.status.as_str() {
            "True" => Truth::True,
            "False" => Truth::False,
            _ => Truth::Unknown,
        };
        let condition = Condition {
            truth,
            reason: stored.reason.clone().into(),
            message: stored.message.clone(),
            since: stored.last_transition_time.0,
            observed_generation: stored.observed_generation,
        };
        conditions.insert(stored.type_.clone(), condition);
    }
    conditions
}

pub(crate) fn status(status: &api::WorkloadStatus) -> Status {
    let count = |number: Option<i32>| number.and_then(|n| u32::try_from(n).ok());
    Status {
        conditions: conditions(&status.conditions),
        admission: status.admission.as_deref().map(admission),
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
        requests: status
            .resource_requests
            .iter()
            .map(|set| (PodSetName::from(set.name.as_str()), amounts(&set.resources)))
            .collect(),
        unhealthy_nodes: status
            .unhealthy_nodes
            .iter()
            .map(|node| node.name.clone())
            .collect(),
        preemption_gates: status.preemption_gates.iter().map(preemption_gate).collect(),
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

fn preemption_gate(gate: &api::PreemptionGateState) -> (String, PreemptionGate) {
    let position = match gate.position {
        api::GatePosition::Closed => GatePosition::Closed,
        api::GatePosition::Open => GatePosition::Open,
    };
    let since = gate.last_transition_time.0;
    (gate.name.clone(), PreemptionGate { position, since })
}

/// Amounts by resource. A malformed quantity counts as unlimited, so that quota is never given to two workloads because of it.
fn amounts(all: &BTreeMap<String, Quantity>) -> Amounts {
    let amount = |(name, amount): (&String, &Quantity)| {
        let parsed = quantity::parse(name, &amount.0).unwrap_or(Amount::UNLIMITED);
        (ResourceName::from(name.as_str()), parsed)
    };
    all.iter().map(amount).collect()
}

pub(crate) fn admission(admission: &api::Admission) -> Admission {
    let assignment = |set: &api::PodSetAssignment| Assignment {
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
        usage: amounts(&set.resource_usage),
        count: set.count.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Spec: jobs 12.3
    #[test]
    fn a_pod_asks_for_more_when_it_does_so_of_one_resource() {
        let pod = |requests: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
        let one = pod(json!({"cpu": "1", "memory": "1Gi"}));
        for (other, is_more) in [
            (json!({"cpu": "1000m", "memory": "1024Mi"}), false),
            (json!({"cpu": "500m"}), false),
            (json!({"cpu": "1001m", "memory": "1Gi"}), true),
            (json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}), true),
            (json!({"cpu": "1", "nvidia.com/gpu": "0"}), false),
        ] {
            assert_eq!(asks_for_more(&pod(other.clone()), &one), is_more, "{other}");
        }
        assert!(!asks_for_more(&json!({"spec": "nonsense"}), &one));
    }
}
