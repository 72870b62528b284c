//! Queues, flavors and checks: the configuration of admission.

use std::collections::BTreeMap;

use crate::amount::Amount;
use crate::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key, ResourceName};
use crate::taint::{Taint, Toleration};
use crate::workload::Requirement;

/// A ClusterQueue as core sees it. *Source*: `spec/api.md API-2.1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterQueue {
    /// Its name.
    pub name: ClusterQueueName,
    /// The cohort it names, if any (non-empty).
    pub cohort: Option<CohortName>,
    /// What happens to the workloads behind a head that does not fit.
    pub strategy: Strategy,
    /// The namespaces that may use it; `None` matches no namespace.
    pub namespaces: Option<Selector>,
    /// Quotas by group.
    pub groups: Vec<ResourceGroup>,
    /// Checks that workloads must pass.
    pub checks: Vec<CheckRule>,
    /// Whether and how it is stopped.
    pub stop: StopPolicy,
    /// How usable but not ideal flavors are weighed.
    pub fungibility: FungibilityPolicy,
    /// The workloads that its workloads may preempt.
    pub preemption: PreemptionPolicy,
    /// Its weight in fair sharing.
    pub weight: Weight,
    /// Whether past usage of its LocalQueues orders their workloads (`admissionScope`).
    pub usage_order: UsageOrder,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
}

/// A Cohort as core sees it. *Source*: `spec/api.md API-4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cohort {
    /// Its name.
    pub name: CohortName,
    /// The cohort above it; `None` for a root.
    pub parent: Option<CohortName>,
    /// Quotas of its own.
    pub groups: Vec<ResourceGroup>,
    /// Its weight in fair sharing.
    pub weight: Weight,
}

/// A weight in fair sharing. *Units*: billionths, so that every quantity the API accepts is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

impl Weight {
    /// Weight zero: every other queue goes first.
    pub const ZERO: Self = Self(0);
    /// Weight one, the default.
    pub const ONE: Self = Self(1_000_000_000);

    /// A weight of `value` billionths.
    pub const fn from_nano(value: u64) -> Self {
        Self(value)
    }

    /// The number of billionths.
    pub const fn nano(self) -> u64 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

/// Whether workloads of LocalQueues with less past usage go first. *Source*: `spec/admission-engine.md 6`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageOrder {
    /// Past usage does not count.
    #[default]
    Ignored,
    /// LocalQueues with less past usage go first (`UsageBasedAdmissionFairSharing`).
    LeastUsedFirst,
}

/// The queueing strategy of a ClusterQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A head that does not fit blocks the workloads behind it.
    StrictFifo,
    /// A head that does not fit steps aside.
    #[default]
    BestEffortFifo,
}

/// What to do with a usable but not ideal flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fungibility {
    /// Take it.
    MayStopSearch,
    /// Try the next one first.
    TryNextFlavor,
}

/// How flavors are weighed against each other. *Source*: `spec/admission-engine.md 2.5.4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FungibilityPolicy {
    /// When a flavor fits by borrowing.
    pub when_can_borrow: Fungibility,
    /// When a flavor fits after preemption.
    pub when_can_preempt: Fungibility,
    /// Which of borrowing and preempting is worse.
    pub preference: FlavorPreference,
}

impl Default for FungibilityPolicy {
    fn default() -> Self {
        Self {
            when_can_borrow: Fungibility::MayStopSearch,
            when_can_preempt: Fungibility::TryNextFlavor,
            preference: FlavorPreference::default(),
        }
    }
}

/// Which flavor is better when one needs borrowing and another preemption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlavorPreference {
    /// Borrowing is better: the flavor in which the workload borrows wins.
    #[default]
    BorrowingOverPreemption,
    /// Preempting is better: the flavor in which the workload preempts wins.
    PreemptionOverBorrowing,
}

/// Which workloads the workloads of a queue may preempt. *Source*: `spec/admission-engine.md 2.7.1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionPolicy {
    /// Victims in the queue itself.
    pub within_cluster_queue: WithinClusterQueue,
    /// Victims in other queues that borrow.
    pub reclaim_within_cohort: Reclaim,
    /// Victims in other queues, when the preemptor itself has to borrow.
    pub borrow_within_cohort: BorrowWithinCohort,
}

/// Which workloads of its own queue a workload may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithinClusterQueue {
    /// No workload.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
}

/// Which workloads of queues that borrow may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// No workload.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Any workload.
    Any,
}

/// Which workloads may be preempted for a workload that has to borrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BorrowWithinCohort {
    /// No workload.
    #[default]
    Never,
    /// Workloads of lower priority, and at most this priority if it is given.
    LowerPriority {
        /// Field `maxPriorityThreshold`.
        max_priority: Option<i32>,
    },
}

/// Stop policy of a ClusterQueue or LocalQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopPolicy {
    /// The queue works normally.
    #[default]
    None,
    /// The queue makes no new reservations.
    Hold,
    /// The queue makes no new reservations, and admitted workloads are evicted.
    HoldAndDrain,
}

/// A label selector: all requirements must hold; without requirements it matches everything.
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
    /// Quota by covered resource.
    pub quotas: BTreeMap<ResourceName, Quota>,
}

/// The quota of one resource in one flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The nominal quota, its own.
    pub nominal: Amount,
    /// How much more it may borrow from the cohort; `None` means without limit.
    pub borrowing_limit: Option<Amount>,
    /// How much of it others may borrow; `None` means all of it.
    pub lending_limit: Option<Amount>,
}

impl Quota {
    /// A nominal quota without limits.
    pub const fn of(nominal: Amount) -> Self {
        Self {
            nominal,
            borrowing_limit: None,
            lending_limit: None,
        }
    }
}

/// One admission check of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRule {
    /// The check.
    pub name: CheckName,
    /// The flavors for which it is required; empty means all.
    pub on_flavors: Vec<FlavorName>,
}

/// A LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalQueue {
    /// Namespace and name.
    pub key: Key,
    /// The ClusterQueue that it leads to.
    pub cluster_queue: ClusterQueueName,
    /// Whether and how it is stopped.
    pub stop: StopPolicy,
    /// Its weight in admission fair sharing.
    pub weight: Weight,
}

/// A ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Its `spec.controllerName`.
    pub controller: String,
    /// Whether condition `Active` is True.
    pub active: bool,
}

/// A queue or cohort whose report may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueRef {
    /// A ClusterQueue.
    Cluster(ClusterQueueName),
    /// A LocalQueue.
    Local(Key),
    /// A Cohort.
    Cohort(CohortName),
}
