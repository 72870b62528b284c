//! What queues, flavors and checks are: the configuration side of admission.

use std::collections::BTreeMap;

use crate::amount::Amount;
use crate::name::{CheckName, ClusterQueueName, FlavorName, Key, ResourceName};
use crate::workload::{Requirement, Taint, Toleration};

/// A ClusterQueue as core sees it. *Source*: `spec/api.md API-2.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueue {
    /// Its name.
    pub name: ClusterQueueName,
    /// The cohort it names, if any (non-empty).
    pub cohort: Option<String>,
    /// What happens behind a head that does not fit.
    pub strategy: Strategy,
    /// Which namespaces may use it; `None` matches no namespace.
    pub namespaces: Option<Selector>,
    /// Quotas by group.
    pub groups: Vec<ResourceGroup>,
    /// Checks that workloads must pass.
    pub checks: Vec<CheckRule>,
    /// Whether and how it is stopped.
    pub stop: StopPolicy,
    /// Whether to go on to the next flavor when a flavor would need preemption.
    pub when_can_preempt: Fungibility,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
}

/// Queueing strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A head that does not fit blocks those behind it.
    StrictFifo,
    /// A head that does not fit steps aside.
    #[default]
    BestEffortFifo,
}

/// What to do with a flavor that is usable, but not ideal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fungibility {
    /// Take it.
    MayStopSearch,
    /// Look at the next one first.
    TryNextFlavor,
}

/// Stop policy of a ClusterQueue or LocalQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopPolicy {
    /// Works normally.
    #[default]
    None,
    /// No new reservations.
    Hold,
    /// No new reservations, and admitted workloads are evicted.
    HoldAndDrain,
}

/// A label selector: all requirements must hold; none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);

impl Selector {
    /// Whether a set of labels satisfies every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

/// Resources that are covered by the same list of flavors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGroup {
    /// The resources, in order.
    pub covered: Vec<ResourceName>,
    /// The flavors, in search order.
    pub flavors: Vec<FlavorQuota>,
}

/// The quota of one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuota {
    /// The flavor.
    pub name: FlavorName,
    /// Nominal quota by covered resource.
    pub nominal: BTreeMap<ResourceName, Amount>,
}

/// One admission check of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRule {
    /// The check.
    pub name: CheckName,
    /// For which flavors; empty means all.
    pub on_flavors: Vec<FlavorName>,
}

/// A LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueue {
    /// Namespace and name.
    pub key: Key,
    /// The ClusterQueue it stands for.
    pub cluster_queue: ClusterQueueName,
    /// Whether and how it is stopped.
    pub stop: StopPolicy,
}

/// A ResourceFlavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavor {
    /// Its name.
    pub name: FlavorName,
    /// Labels of its nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// Tolerations it adds to pods.
    pub tolerations: Vec<Toleration>,
    /// The topology it names, if any.
    pub topology: Option<String>,
}

/// An AdmissionCheck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: CheckName,
    /// `spec.controllerName`.
    pub controller: String,
    /// Whether condition `Active` is True.
    pub active: bool,
}
