//! Queues, flavors and checks: API to core.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::afs::PastUsage;
use roadstead_core::amount::Amount;
use roadstead_core::dispatch::capacity::QueueView;
use roadstead_core::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key, ResourceName};
use roadstead_core::quantity;
use roadstead_core::queue::{
    BorrowWithinCohort, Check, CheckRule, ClusterQueue, Cohort, Flavor, FlavorPreference, FlavorQuota,
    Fungibility, FungibilityPolicy, LocalQueue, PreemptionPolicy, Quota, Reclaim, ResourceGroup, Selector,
    StopPolicy, Strategy, UsageOrder, Weight, WithinClusterQueue,
};
use roadstead_core::taint::{Taint, Toleration};
use roadstead_core::workload::{Operator, Requirement};

/// A ClusterQueue. A malformed quota counts as zero (the schema refuses it before it is stored).
pub fn cluster_queue(queue: &api::ClusterQueue) -> ClusterQueue {
    let spec = &queue.spec;
    let checks = spec
        .admission_checks_strategy
        .iter()
        .flat_map(|strategy| &strategy.admission_checks);
    ClusterQueue {
        name: ClusterQueueName::from(queue.metadata.name.clone().unwrap_or_default()),
        cohort: spec
            .cohort_name
            .clone()
            .filter(|name| !name.is_empty())
            .map(CohortName::from),
        strategy: match spec.queueing_strategy {
            api::QueueingStrategy::StrictFifo => Strategy::StrictFifo,
            api::QueueingStrategy::BestEffortFifo => Strategy::BestEffortFifo,
        },
        namespaces: spec.namespace_selector.as_ref().map(selector),
        groups: spec.resource_groups.iter().map(group).collect(),
        checks: checks
            .map(|rule| CheckRule {
                name: CheckName::from(rule.name.as_str()),
                on_flavors: rule
                    .on_flavors
                    .iter()
                    .map(|name| FlavorName::from(name.as_str()))
                    .collect(),
            })
            .collect(),
        stop: stop(spec.stop_policy),
        fungibility: fungibility_policy(&spec.flavor_fungibility),
        preemption: preemption(&spec.preemption),
        weight: weight(spec.fair_sharing.as_ref()),
        usage_order: match spec.admission_scope.as_ref().map(|scope| scope.admission_mode) {
            Some(api::AdmissionMode::UsageBasedAdmissionFairSharing) => UsageOrder::LeastUsedFirst,
            Some(api::AdmissionMode::NoAdmissionFairSharing) | None => UsageOrder::Ignored,
        },
        terminating: queue.metadata.deletion_timestamp.is_some(),
    }
}

/// A Cohort.
pub fn cohort(cohort: &api::Cohort) -> Cohort {
    let spec = &cohort.spec;
    Cohort {
        name: CohortName::from(cohort.metadata.name.clone().unwrap_or_default()),
        parent: spec
            .parent_name
            .clone()
            .filter(|name| !name.is_empty())
            .map(CohortName::from),
        groups: spec.resource_groups.iter().map(group).collect(),
        weight: weight(spec.fair_sharing.as_ref()),
    }
}

/// The weight of a node in fair sharing; a malformed weight counts as the default.
fn weight(sharing: Option<&api::FairSharing>) -> Weight {
    sharing.map_or(Weight::ONE, |sharing| {
        quantity::weight(&sharing.weight.0).unwrap_or_default()
    })
}

const fn fungibility_policy(policy: &api::FlavorFungibility) -> FungibilityPolicy {
    FungibilityPolicy {
        when_can_borrow: fungibility(policy.when_can_borrow),
        when_can_preempt: fungibility(policy.when_can_preempt),
        preference: match policy.preference {
            Some(api::FlavorFungibilityPreference::PreemptionOverBorrowing) => {
                FlavorPreference::PreemptionOverBorrowing
            }
            Some(api::FlavorFungibilityPreference::BorrowingOverPreemption) | None => {
                FlavorPreference::BorrowingOverPreemption
            }
        },
    }
}

const fn fungibility(policy: api::FlavorFungibilityPolicy) -> Fungibility {
    match policy {
        api::FlavorFungibilityPolicy::MayStopSearch => Fungibility::MayStopSearch,
        api::FlavorFungibilityPolicy::TryNextFlavor => Fungibility::TryNextFlavor,
    }
}

const fn preemption(policy: &api::ClusterQueuePreemption) -> PreemptionPolicy {
    PreemptionPolicy {
        within_cluster_queue: match policy.within_cluster_queue {
            api::WithinClusterQueue::Never => WithinClusterQueue::Never,
            api::WithinClusterQueue::LowerPriority => WithinClusterQueue::LowerPriority,
            api::WithinClusterQueue::LowerOrNewerEqualPriority => {
                WithinClusterQueue::LowerOrNewerEqualPriority
            }
        },
        reclaim_within_cohort: match policy.reclaim_within_cohort {
            api::ReclaimWithinCohort::Never => Reclaim::Never,
            api::ReclaimWithinCohort::LowerPriority => Reclaim::LowerPriority,
            api::ReclaimWithinCohort::Any => Reclaim::Any,
        },
        borrow_within_cohort: match policy.borrow_within_cohort.policy {
            api::BorrowWithinCohortPolicy::Never => BorrowWithinCohort::Never,
            api::BorrowWithinCohortPolicy::LowerPriority => BorrowWithinCohort::LowerPriority {
                max_priority: policy.borrow_within_cohort.max_priority_threshold,
            },
        },
    }
}

fn group(group: &api::ResourceGroup) -> ResourceGroup {
    let amount = |name: &str, quota: &Quantity| quantity::parse(name, &quota.0).unwrap_or(Amount::ZERO);
    let quota = |quota: &api::ResourceQuota| {
        let amounts = Quota {
            nominal: amount(&quota.name, &quota.nominal_quota),
            borrowing_limit: quota
                .borrowing_limit
                .as_ref()
                .map(|limit| amount(&quota.name, limit)),
            lending_limit: quota
                .lending_limit
                .as_ref()
                .map(|limit| amount(&quota.name, limit)),
        };
        (ResourceName::from(quota.name.as_str()), amounts)
    };
    ResourceGroup {
        covered: group
            .covered_resources
            .iter()
            .map(|name| ResourceName::from(name.as_str()))
            .collect(),
        flavors: group
            .flavors
            .iter()
            .map(|flavor| FlavorQuota {
                name: FlavorName::from(flavor.name.as_str()),
                quotas: flavor.resources.iter().map(quota).collect(),
            })
            .collect(),
    }
}

/// A ClusterQueue of a worker, with its status. Until it has a status it counts as active and empty.
pub fn queue_view(queue: &api::ClusterQueue) -> QueueView {
    let status = queue.status.as_ref();
    let amount = |usage: &api::ResourceUsage| {
        let total = quantity::parse(&usage.name, &usage.total.0).unwrap_or(Amount::ZERO);
        (ResourceName::from(usage.name.as_str()), total)
    };
    let used = status.into_iter().flat_map(|status| &status.flavors_reservation);
    QueueView {
        queue: cluster_queue(queue),
        active: !says_inactive(queue),
        used: used
            .map(|usage| {
                let flavor = FlavorName::from(usage.name.as_str());
                (flavor, usage.resources.iter().map(amount).collect())
            })
            .collect(),
        pending: status.map_or(0, |status| u32::try_from(status.pending_workloads).unwrap_or(0)),
    }
}

/// Whether the status of a ClusterQueue says that it is inactive. A queue without status may be active.
pub fn says_inactive(queue: &api::ClusterQueue) -> bool {
    let mut conditions = queue.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|c| c.type_ == "Active" && c.status == "False")
}

/// A LocalQueue.
pub fn local_queue(queue: &api::LocalQueue) -> LocalQueue {
    let meta = &queue.metadata;
    LocalQueue {
        key: Key::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        ),
        cluster_queue: ClusterQueueName::from(queue.spec.cluster_queue.as_str()),
        stop: stop(queue.spec.stop_policy),
        weight: weight(queue.spec.fair_sharing.as_ref()),
    }
}

/// The consumption that the status of a LocalQueue shows. A malformed amount counts as zero.
pub fn past_usage(queue: &api::LocalQueue) -> Option<PastUsage> {
    let status = queue.status.as_ref()?.fair_sharing.as_ref()?;
    let past = status.admission_fair_sharing_status.as_ref()?;
    let amount = |(name, text): (&String, &Quantity)| {
        let amount = quantity::parse(name, &text.0).unwrap_or(Amount::ZERO);
        (ResourceName::from(name.as_str()), amount)
    };
    Some(PastUsage {
        consumed: past.consumed_resources.iter().map(amount).collect(),
        at: past.last_update.0,
    })
}

/// A ResourceFlavor.
pub fn flavor(flavor: &api::ResourceFlavor) -> Flavor {
    let spec = &flavor.spec;
    let taints = spec.node_taints.iter().filter_map(|taint| {
        Some(Taint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: effect(&taint.effect)?,
            time_added: taint.time_added.as_ref().map(|time| time.0.to_string()),
        })
    });
    Flavor {
        name: FlavorName::from(flavor.metadata.name.clone().unwrap_or_default()),
        node_labels: spec.node_labels.clone(),
        taints: taints.collect(),
        tolerations: spec.tolerations.iter().map(toleration).collect(),
        topology: spec.topology_name.clone().filter(|name| !name.is_empty()),
    }
}

/// An AdmissionCheck.
pub fn check(check: &api::AdmissionCheck) -> Check {
    let conditions = check
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    Check {
        name: CheckName::from(check.metadata.name.clone().unwrap_or_default()),
        controller: check.spec.controller_name.clone(),
        active: conditions
            .iter()
            .any(|c| c.type_ == "Active" && c.status == "True"),
    }
}

/// A label selector. An unknown operator counts as `In` without values, which matches nothing.
pub fn selector(selector: &LabelSelector) -> Selector {
    let labels: BTreeMap<String, String> = selector.match_labels.clone().unwrap_or_default();
    let equal = labels.into_iter().map(|(key, value)| Requirement {
        key,
        operator: Operator::In,
        values: vec![value],
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let known = operator(&expression.operator);
        Requirement {
            key: expression.key.clone(),
            operator: known.unwrap_or(Operator::In),
            values: known.and_then(|_| expression.values.clone()).unwrap_or_default(),
        }
    });
    Selector(equal.chain(expressions).collect())
}

pub(crate) fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => return None,
    })
}

fn effect(name: &str) -> Option<roadstead_core::taint::Effect> {
    use roadstead_core::taint::Effect;
    Some(match name {
        "NoSchedule" => Effect::NoSchedule,
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        "NoExecute" => Effect::NoExecute,
        _ => return None,
    })
}

pub(crate) fn toleration(toleration: &k8s_openapi::api::core::v1::Toleration) -> Toleration {
    Toleration {
        key: toleration.key.clone(),
        operator: toleration.operator.clone(),
        value: toleration.value.clone(),
        effect: toleration.effect.clone(),
        seconds: toleration.toleration_seconds,
    }
}

pub(crate) fn api_toleration(toleration: &Toleration) -> k8s_openapi::api::core::v1::Toleration {
    k8s_openapi::api::core::v1::Toleration {
        key: toleration.key.clone(),
        operator: toleration.operator.clone(),
        value: toleration.value.clone(),
        effect: toleration.effect.clone(),
        toleration_seconds: toleration.seconds,
    }
}

const fn stop(policy: api::StopPolicy) -> StopPolicy {
    match policy {
        api::StopPolicy::None => StopPolicy::None,
        api::StopPolicy::Hold => StopPolicy::Hold,
        api::StopPolicy::HoldAndDrain => StopPolicy::HoldAndDrain,
    }
}
