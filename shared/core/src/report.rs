//! What the statuses of ClusterQueues and LocalQueues say.
//!
//! Invariant: a report is computed from the state alone, so it is right whenever it is asked for.
//! *Source*: `spec/api.md API-2.3, API-3`, `spec/admission-engine.md 7`.

use std::collections::BTreeMap;

use crate::amount::Amount;
use crate::check::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use crate::condition::Active;
use crate::condition::Truth;
use crate::name::{CheckName, ClusterQueueName, FlavorName, Key, ResourceName};
use crate::queue::{Check, ClusterQueue, Flavor, StopPolicy};
use crate::quota::{Ledger, Usage};
use crate::state::State;

/// What is held of one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorTotal {
    /// The flavor.
    pub name: FlavorName,
    /// Resources sorted by name.
    pub resources: Vec<ResourceTotal>,
}

/// What is held of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTotal {
    /// The resource.
    pub name: ResourceName,
    /// The total held.
    pub total: Amount,
    /// The part beyond the nominal quota that comes from the cohort: zero as long as cohorts are not supported.
    pub borrowed: Amount,
}

/// The status of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueueReport {
    /// Condition `Active`.
    pub active: Active,
    /// `pendingWorkloads`.
    pub pending: usize,
    /// The part of `pending` that was tried and waits for a change.
    pub inadmissible: usize,
    /// `reservingWorkloads`.
    pub reserving: u32,
    /// `admittedWorkloads`.
    pub admitted: u32,
    /// `flavorsReservation`, in the order of the spec.
    pub reservation: Vec<FlavorTotal>,
    /// `flavorsUsage`, in the order of the spec.
    pub usage: Vec<FlavorTotal>,
}

/// The status of a LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueueReport {
    /// Condition `Active`.
    pub active: Active,
    /// `pendingWorkloads`.
    pub pending: usize,
    /// `reservingWorkloads`.
    pub reserving: u32,
    /// `admittedWorkloads`.
    pub admitted: u32,
    /// `flavorsReservation`, in the order of the ClusterQueue's spec; `borrowed` is not shown here.
    pub reservation: Vec<FlavorTotal>,
    /// `flavorsUsage`, likewise.
    pub usage: Vec<FlavorTotal>,
}

/// A queue whose report may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueRef {
    /// A ClusterQueue.
    Cluster(ClusterQueueName),
    /// A LocalQueue.
    Local(Key),
}

impl State {
    /// The queues whose reports may have changed since the last call, deleted ones included, sorted.
    pub fn take_changed_queues(&mut self) -> Vec<QueueRef> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// The status of a ClusterQueue, if it exists.
    pub fn cluster_queue_report(&self, name: &ClusterQueueName) -> Option<ClusterQueueReport> {
        let queue = self.queues.get(name)?;
        let ledger = self.ledgers.get(name);
        Some(ClusterQueueReport {
            active: queue.active.clone(),
            pending: queue.pending.len(),
            inadmissible: queue.pending.parked_count(),
            reserving: ledger.map_or(0, Ledger::reserving_count),
            admitted: ledger.map_or(0, Ledger::admitted_count),
            reservation: totals(&queue.spec, ledger.map(Ledger::reserved)),
            usage: totals(&queue.spec, ledger.map(Ledger::admitted)),
        })
    }

    /// The status of a LocalQueue, if it exists.
    pub fn local_queue_report(&self, key: &Key) -> Option<LocalQueueReport> {
        let local = self.locals.get(key)?;
        let queue = self.queues.get(&local.cluster_queue);
        let ledger = self.local_ledgers.get(key);
        let refused =
            |reason| Active::new(Truth::False, reason, "Can't submit new workloads to clusterQueue");
        let active = match (local.stop, queue) {
            (StopPolicy::Hold | StopPolicy::HoldAndDrain, _) => {
                Active::new(Truth::False, "Stopped", "LocalQueue is stopped")
            }
            (StopPolicy::None, None) => refused("ClusterQueueDoesNotExist"),
            (StopPolicy::None, Some(queue)) if !queue.active.is_active() => refused("ClusterQueueIsInactive"),
            (StopPolicy::None, Some(_)) => {
                Active::new(Truth::True, "Ready", "Can submit new workloads to localQueue")
            }
        };
        let listed = |usage| queue.map(|q| totals(&q.spec, usage)).unwrap_or_default();
        Some(LocalQueueReport {
            active,
            pending: self.local_pending.get(key).copied().unwrap_or(0),
            reserving: ledger.map_or(0, Ledger::reserving_count),
            admitted: ledger.map_or(0, Ledger::admitted_count),
            reservation: listed(ledger.map(Ledger::reserved)),
            usage: listed(ledger.map(Ledger::admitted)),
        })
    }
}

fn totals(spec: &ClusterQueue, usage: Option<&Usage>) -> Vec<FlavorTotal> {
    let flavors = spec.groups.iter().flat_map(|group| &group.flavors);
    flavors
        .map(|quota| FlavorTotal {
            name: quota.name.clone(),
            resources: quota
                .quotas
                .keys()
                .map(|resource| ResourceTotal {
                    name: resource.clone(),
                    total: usage.map_or(Amount::ZERO, |u| u.total(&quota.name, resource)),
                    borrowed: Amount::ZERO,
                })
                .collect(),
        })
        .collect()
}

/// The condition `Active` of a ClusterQueue. *Source*: `spec/api.md API-2.3`, `spec/multikueue.md 1.5`.
pub(crate) fn active(
    spec: &ClusterQueue,
    flavors: &BTreeMap<FlavorName, Flavor>,
    checks: &BTreeMap<CheckName, Check>,
) -> Active {
    if spec.terminating {
        return Active::new(
            Truth::False,
            "Terminating",
            "Can't admit new workloads; clusterQueue is terminating",
        );
    }
    let mut parts: Vec<(&'static str, String)> = Vec::new();
    match spec.stop {
        StopPolicy::None => {}
        StopPolicy::Hold | StopPolicy::HoldAndDrain => parts.push(("Stopped", "is stopped".to_owned())),
    }
    let named: Vec<&FlavorName> = spec
        .groups
        .iter()
        .flat_map(|g| &g.flavors)
        .map(|f| &f.name)
        .collect();
    let missing: Vec<&str> = named
        .iter()
        .filter(|name| !flavors.contains_key(**name))
        .map(|name| name.as_str())
        .collect();
    if !missing.is_empty() {
        let text = format!("references missing ResourceFlavor(s): {}", missing.join(","));
        parts.push(("FlavorNotFound", text));
    }
    let federated = check_parts(spec, &named, checks, &mut parts);
    if !federated {
        let topology = named
            .iter()
            .find_map(|name| Some((*name, flavors.get(*name)?.topology.as_ref()?)));
        if let Some((flavor, topology)) = topology {
            // Unlike the anchor: any topology is refused, because topology-aware placement is not built.
            let text = format!(
                "ResourceFlavor \"{flavor}\" names Topology \"{topology}\", but topology-aware scheduling is not supported \
                 yet: use a flavor without topologyName"
            );
            parts.push(("TopologyNotFound", text));
        }
    }
    if let Some(cohort) = &spec.cohort {
        // Unlike the anchor: sharing quota is not built, and ignoring the cohort would hide that.
        let text = format!(
            "cohorts are not supported yet: remove spec.cohortName \"{cohort}\" from the ClusterQueue"
        );
        parts.push(("CohortsNotSupported", text));
    }
    let Some((reason, _)) = parts.first() else {
        return Active::new(Truth::True, "Ready", "Can admit new workloads");
    };
    let reason = *reason;
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    Active {
        truth: Truth::False,
        reason,
        message: format!("Can't admit new workloads: {}.", texts.join(", ")).into(),
    }
}

/// Adds what is wrong with the checks; says whether a MultiKueue check is attached.
fn check_parts(
    spec: &ClusterQueue,
    named: &[&FlavorName],
    checks: &BTreeMap<CheckName, Check>,
    parts: &mut Vec<(&'static str, String)>,
) -> bool {
    let mut rules: Vec<_> = spec.checks.iter().collect();
    rules.sort_by(|a, b| a.name.cmp(&b.name));
    let (mut missing, mut inactive, mut federated, mut provisioning, mut per_flavor) =
        (vec![], vec![], vec![], vec![], vec![]);
    for rule in rules {
        let name = rule.name.as_str();
        let Some(check) = checks.get(&rule.name) else {
            missing.push(name);
            continue;
        };
        if !check.active {
            inactive.push(name);
        }
        match check.controller.as_str() {
            MULTIKUEUE_CONTROLLER => {
                federated.push(name);
                if !rule.on_flavors.is_empty() && !named.iter().all(|flavor| rule.on_flavors.contains(flavor))
                {
                    per_flavor.push(name);
                }
            }
            PROVISIONING_CONTROLLER => provisioning.push(name),
            _ => {}
        }
    }
    if !missing.is_empty() {
        let text = format!("references missing AdmissionCheck(s): {}", missing.join(","));
        parts.push(("AdmissionCheckNotFound", text));
    }
    if !inactive.is_empty() {
        let text = format!("references inactive AdmissionCheck(s): {}", inactive.join(","));
        parts.push(("AdmissionCheckInactive", text));
    }
    if federated.len() > 1 {
        let text = format!(
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}",
            federated.join(",")
        );
        parts.push(("MultipleMultiKueueAdmissionChecks", text));
    }
    if !per_flavor.is_empty() {
        let text = format!(
            "Cannot specify MultiKueue AdmissionCheck per flavor, found: {}",
            per_flavor.join(",")
        );
        parts.push(("MultiKueueAdmissionCheckAppliedPerFlavor", text));
    }
    if !federated.is_empty() && !provisioning.is_empty() {
        let found = [federated.as_slice(), provisioning.as_slice()].concat();
        let text = format!(
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {}",
            found.join(", ")
        );
        parts.push(("MultiKueueWithProvisioningRequest", text));
    }
    !federated.is_empty()
}
