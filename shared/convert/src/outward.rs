//! Statuses from core, as JSON merge patches of the differences.
//!
//! Invariant: a field that core does not know, or did not change, is not in the patch and so survives.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as ApiCondition, Time};
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::afs::PastUsage;
use roadstead_core::amount::Amount;
use roadstead_core::condition::{Active, Condition, Conditions, Truth};
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use roadstead_core::report::{ClusterQueueReport, CohortReport, FlavorTotal, Kinship, LocalQueueReport};
use roadstead_core::status::{Admission, CheckPhase, CheckState, GatePosition, Status};
use roadstead_core::words::{MESSAGE_MAX, cut};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::inward;
use crate::queues::api_toleration;

/// The merge patch that changes the stored status of a Workload to `after`; `None` when nothing differs.
pub fn status_patch(stored: &api::Workload, after: &Status) -> Option<Value> {
    let nothing = api::WorkloadStatus::default();
    let old = stored.status.as_ref().unwrap_or(&nothing);
    let before = inward::status(old);
    // Why an early return: most passes over a Workload change nothing.
    if before == *after {
        return None;
    }
    let mut new = old.clone();
    if before.conditions != after.conditions {
        new.conditions = conditions(&before.conditions, &after.conditions, stored.metadata.generation);
    }
    if before.admission != after.admission {
        new.admission = after.admission.as_ref().map(admission).map(Arc::new);
    }
    if before.checks != after.checks {
        new.admission_checks = after
            .checks
            .iter()
            .map(|(name, state)| check(name.as_str(), state))
            .collect();
    }
    if before.requeue != after.requeue {
        new.requeue_state = after.requeue.map(|r| api::RequeueState {
            count: r.count.map(signed),
            requeue_at: r.at.map(|at| Time(whole(at))),
        });
    }
    if before.nominated != after.nominated {
        new.nominated_cluster_names = after.nominated.iter().map(ToString::to_string).collect();
    }
    if before.cluster != after.cluster {
        new.cluster_name = after.cluster.as_ref().map(ToString::to_string);
    }
    if before.reclaimable != after.reclaimable {
        let pods = after.reclaimable.iter();
        new.reclaimable_pods = pods
            .map(|(name, count)| api::ReclaimablePod {
                name: name.to_string(),
                count: signed(*count),
            })
            .collect();
    }
    if before.accumulated_secs != after.accumulated_secs {
        new.accumulated_past_execution_time_seconds = after.accumulated_secs.map(signed);
    }
    if before.requests != after.requests {
        let sets = after.requests.iter().map(|(name, amounts)| api::PodSetRequest {
            name: name.to_string(),
            resources: amounts
                .iter()
                .map(|(r, a)| (r.to_string(), amount(r, *a)))
                .collect(),
        });
        new.resource_requests = sets.collect();
    }
    if before.unhealthy_nodes != after.unhealthy_nodes {
        let nodes = after.unhealthy_nodes.iter();
        new.unhealthy_nodes = nodes
            .map(|name| api::UnhealthyNode { name: name.clone() })
            .collect();
    }
    if before.preemption_gates != after.preemption_gates {
        let gates = after
            .preemption_gates
            .iter()
            .map(|(name, gate)| api::PreemptionGateState {
                name: name.clone(),
                position: match gate.position {
                    GatePosition::Closed => api::GatePosition::Closed,
                    GatePosition::Open => api::GatePosition::Open,
                },
                last_transition_time: Time(whole(gate.since)),
            });
        new.preemption_gates = gates.collect();
    }
    if before.evictions != after.evictions {
        let evictions = after
            .evictions
            .iter()
            .map(|((reason, cause), count)| api::EvictionStats {
                reason: reason.clone(),
                underlying_cause: cause.clone(),
                count: signed(*count),
            });
        new.scheduling_stats = Some(api::SchedulingStats {
            evictions: evictions.collect(),
        });
    }
    difference(old, &new)
}

/// A status merge patch from `old` to `new`, by top-level field.
fn difference<T: Serialize>(old: &T, new: &T) -> Option<Value> {
    let object = |status: &T| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    let (old, mut new) = (object(old), object(new));
    let mut patch: Map<String, Value> = Map::new();
    for (field, before) in old {
        match new.remove(&field) {
            None => {
                patch.insert(field, Value::Null);
            }
            Some(after) if after != before => {
                patch.insert(field, replacement(&before, after));
            }
            Some(_) => {}
        }
    }
    patch.extend(new);
    (!patch.is_empty()).then(|| json!({ "status": patch }))
}

/// The patch for an object field. A merge patch keeps keys that it does not name, so each removed key is set to null.
fn replacement(before: &Value, after: Value) -> Value {
    match (before, after) {
        (Value::Object(before), Value::Object(mut after)) => {
            for (field, old) in before {
                let new = after
                    .remove(field)
                    .map_or(Value::Null, |new| replacement(old, new));
                after.insert(field.clone(), new);
            }
            Value::Object(after)
        }
        (_, after) => after,
    }
}

fn conditions(before: &Conditions, after: &Conditions, generation: Option<i64>) -> Vec<ApiCondition> {
    let all = after.iter().map(|(kind, condition)| {
        let same = before.get(kind) == Some(condition);
        let observed = if same {
            condition.observed_generation
        } else {
            generation
        };
        api_condition(kind, condition, observed)
    });
    all.collect()
}

pub(crate) fn api_condition(
    kind: &str,
    condition: &Condition,
    observed_generation: Option<i64>,
) -> ApiCondition {
    ApiCondition {
        type_: kind.to_owned(),
        status: truth(condition.truth).to_owned(),
        reason: condition.reason.to_string(),
        message: cut(condition.message.clone(), MESSAGE_MAX),
        last_transition_time: Time(whole(condition.since)),
        observed_generation,
    }
}

const fn truth(truth: Truth) -> &'static str {
    match truth {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    }
}

/// The time in whole seconds, as the API stores it.
fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn signed(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

fn amount(resource: &ResourceName, amount: Amount) -> Quantity {
    Quantity(quantity::wire(resource.as_str(), amount))
}

fn admission(admission: &Admission) -> api::Admission {
    let sets = admission.pod_sets.iter().map(|set| api::PodSetAssignment {
        name: set.name.to_string(),
        flavors: set
            .flavors
            .iter()
            .map(|(r, f)| (r.to_string(), f.to_string()))
            .collect(),
        resource_usage: set
            .usage
            .iter()
            .map(|(r, a)| (r.to_string(), amount(r, *a)))
            .collect(),
        count: Some(signed(set.count)),
        topology_assignment: None,
        delayed_topology_request: None,
    });
    api::Admission {
        cluster_queue: admission.cluster_queue.to_string(),
        pod_set_assignments: sets.collect(),
    }
}

fn check(name: &str, state: &CheckState) -> api::AdmissionCheckState {
    let updates = state.updates.iter().map(|update| api::PodSetUpdate {
        name: update.name.to_string(),
        labels: update.labels.clone(),
        annotations: update.annotations.clone(),
        node_selector: update.node_selector.clone(),
        tolerations: update.tolerations.iter().map(api_toleration).collect(),
    });
    api::AdmissionCheckState {
        name: name.to_owned(),
        state: match state.phase {
            CheckPhase::Pending => api::CheckState::Pending,
            CheckPhase::Ready => api::CheckState::Ready,
            CheckPhase::Retry => api::CheckState::Retry,
            CheckPhase::Rejected => api::CheckState::Rejected,
        },
        last_transition_time: Time(whole(state.since)),
        message: cut(state.message.clone(), MESSAGE_MAX),
        requeue_after_seconds: state.requeue_after_secs.map(signed),
        retry_count: state.retry_count.map(signed),
        pod_set_updates: updates.collect(),
    }
}

/// The status patch with which the manager asks a worker to stop a Workload. *Source*: `spec/multikueue.md 3.8`.
pub fn request_stop(copy: &api::Workload, message: &str, now: Timestamp) -> Value {
    let mut status = inward::status(&copy.status.clone().unwrap_or_default());
    let before = status.conditions.clone();
    status.conditions.set(
        "DeactivationTarget",
        Truth::True,
        "EvictedOnManagerCluster",
        message,
        now,
    );
    let list = conditions(&before, &status.conditions, copy.metadata.generation);
    json!({
        "metadata": { "resourceVersion": copy.metadata.resource_version },
        "status": { "conditions": list },
    })
}

/// The conditions `old` with this condition `Active`. Its transition time changes only when its status changes.
pub fn with_active(
    old: &[ApiCondition],
    active: &Active,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<ApiCondition> {
    let status = truth(active.truth);
    let mut all = old.to_vec();
    let since = old
        .iter()
        .find(|c| c.type_ == "Active" && c.status == status)
        .map(|c| c.last_transition_time.clone());
    all.retain(|c| c.type_ != "Active");
    all.push(ApiCondition {
        type_: "Active".to_owned(),
        status: status.to_owned(),
        reason: active.reason.to_owned(),
        message: active.message.to_string(),
        last_transition_time: since.unwrap_or_else(|| Time(whole(now))),
        observed_generation: generation,
    });
    all
}

/// The difference to the stored status, or the whole new status if none is stored.
fn change<T: Serialize>(stored: Option<&T>, new: &T) -> Option<Value> {
    match stored {
        Some(old) => difference(old, new),
        None => serde_json::to_value(new)
            .ok()
            .map(|status| json!({ "status": status })),
    }
}

/// Whether statuses show shares: only with `fairSharing` in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// Statuses show shares.
    Shown,
    /// Statuses do not show shares.
    Hidden,
}

impl Shares {
    fn status(self, kinship: Option<&Kinship>) -> Option<api::FairSharingStatus> {
        match self {
            Self::Hidden => None,
            Self::Shown => Some(api::FairSharingStatus {
                weighted_share: kinship.map_or(0, |kinship| kinship.share.reported()),
            }),
        }
    }
}

/// The status patch of a Cohort from its report; `None` when nothing differs. A root shows no share.
pub fn cohort_status(stored: &api::Cohort, report: &CohortReport, shares: Shares) -> Option<Value> {
    let kinship = report.kinship.as_ref();
    let new = api::CohortStatus {
        fair_sharing: kinship.and_then(|kinship| shares.status(Some(kinship))),
    };
    difference(&stored.status.clone().unwrap_or_default(), &new)
}

/// The status patch of a ClusterQueue from its report; `None` when nothing differs.
pub fn cluster_queue_status(
    stored: &api::ClusterQueue,
    report: &ClusterQueueReport,
    shares: Shares,
    now: Timestamp,
) -> Option<Value> {
    let flavor = |total: &FlavorTotal| {
        let resources = total.resources.iter().map(|r| api::ResourceUsage {
            name: r.name.to_string(),
            total: amount(&r.name, r.total),
            borrowed: amount(&r.name, r.borrowed),
        });
        api::FlavorUsage {
            name: total.name.to_string(),
            resources: resources.collect(),
        }
    };
    let old = stored.status.clone().unwrap_or_default();
    let new = api::ClusterQueueStatus {
        conditions: with_active(&old.conditions, &report.active, stored.metadata.generation, now),
        flavors_reservation: report.reservation.iter().map(flavor).collect(),
        flavors_usage: report.usage.iter().map(flavor).collect(),
        pending_workloads: signed(report.pending),
        reserving_workloads: signed(report.reserving),
        admitted_workloads: signed(report.admitted),
        fair_sharing: shares.status(report.kinship.as_ref()),
    };
    change(stored.status.as_ref(), &new)
}

fn past_usage(past: &PastUsage) -> api::LocalQueueFairSharingStatus {
    let consumed = past.consumed.iter();
    api::LocalQueueFairSharingStatus {
        weighted_share: 0,
        admission_fair_sharing_status: Some(api::AdmissionFairSharingStatus {
            consumed_resources: consumed
                .map(|(name, value)| (name.to_string(), amount(name, *value)))
                .collect(),
            last_update: Time(whole(past.at)),
        }),
    }
}

/// The status patch of a LocalQueue from its report; `None` when nothing differs.
pub fn local_queue_status(
    stored: &api::LocalQueue,
    report: &LocalQueueReport,
    now: Timestamp,
) -> Option<Value> {
    let flavor = |total: &FlavorTotal| {
        let resources = total.resources.iter().map(|r| api::LocalQueueResourceUsage {
            name: r.name.to_string(),
            total: amount(&r.name, r.total),
        });
        api::LocalQueueFlavorUsage {
            name: total.name.to_string(),
            resources: resources.collect(),
        }
    };
    let old = stored.status.clone().unwrap_or_default();
    let new = api::LocalQueueStatus {
        conditions: with_active(&old.conditions, &report.active, stored.metadata.generation, now),
        flavors_reservation: report.reservation.iter().map(flavor).collect(),
        flavors_usage: report.usage.iter().map(flavor).collect(),
        pending_workloads: signed(report.pending),
        reserving_workloads: signed(report.reserving),
        admitted_workloads: signed(report.admitted),
        fair_sharing: report.past.as_ref().map(|(past, _)| past_usage(past)),
    };
    change(stored.status.as_ref(), &new)
}

#[cfg(test)]
mod tests;
