//! What queues, flavors and checks are: the configuration side of admission.

use std::collections::BTreeMap;

use crate::amount::Amount;
use crate::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key, ResourceName};
use crate::workload::{Requirement, Taint, Toleration};

/// A ClusterQueue as core sees it. *Source*: `spec/api.md API-2.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueue {
    /// Its name.
    pub name: ClusterQueueName,
    /// The cohort it names, if any (non-empty).
    pub cohort: Option<CohortName>,
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
    /// How flavors that are usable but not ideal are weighed.
    pub fungibility: FungibilityPolicy,
    /// Whom its workloads may preempt.
    pub preemption: PreemptionPolicy,
    /// Its weight in fair sharing.
    pub weight: Weight,
    /// Whether past usage of its LocalQueues orders their workloads (`admissionScope`).
    pub usage_order: UsageOrder,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
}

/// A Cohort as core sees it. *Source*: `spec/api.md API-4`.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Everybody else goes first.
    pub const ZERO: Self = Self(0);
    /// The default.
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
    /// `UsageBasedAdmissionFairSharing`.
    LeastUsedFirst,
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

/// How flavors are weighed against each other. *Source*: `spec/admission-engine.md 2.5.4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FungibilityPolicy {
    /// When a flavor fits by borrowing.
    pub when_can_borrow: Fungibility,
    /// When a flavor fits after preemption.
    pub when_can_preempt: Fungibility,
    /// Which of the two is worse.
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
    /// The one in which the workload borrows.
    #[default]
    BorrowingOverPreemption,
    /// The one in which the workload preempts.
    PreemptionOverBorrowing,
}

/// Whom the workloads of a queue may preempt. *Source*: `spec/admission-engine.md 2.7.1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionPolicy {
    /// In the queue itself.
    pub within_cluster_queue: WithinClusterQueue,
    /// In other queues that borrow.
    pub reclaim_within_cohort: Reclaim,
    /// In other queues, when the preemptor itself has to borrow.
    pub borrow_within_cohort: BorrowWithinCohort,
}

/// Preemption in the own queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithinClusterQueue {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
}

/// Preemption in queues that borrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Any workload.
    Any,
}

/// Preemption on behalf of a workload that has to borrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BorrowWithinCohort {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority, and at most this priority if it is given.
    LowerPriority {
        /// `maxPriorityThreshold`.
        max_priority: Option<i32>,
    },
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
    /// Quota by covered resource.
    pub quotas: BTreeMap<ResourceName, Quota>,
}

/// The quota of one resource in one flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// What is its own.
    pub nominal: Amount,
    /// How much more it may take from the cohort; `None`: all there is.
    pub borrowing_limit: Option<Amount>,
    /// How much of it others may use; `None`: all of it.
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
    /// Its weight in admission fair sharing.
    pub weight: Weight,
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
