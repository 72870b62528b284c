//! A Workload's status, as core sees it.
//!
//! Invariant: this is data. The machines that take a `Status` and return a new one decide which part may change; the caller writes the
//! difference at once.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::amount::Amount;
use crate::condition::Conditions;
use crate::name::{CheckName, ClusterName, ClusterQueueName, FlavorName, PodSetName, ResourceName};
use crate::taint::Toleration;

/// The status of a Workload. *Source*: `spec/api.md API-9.2`; the caller keeps the fields that core never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The conditions.
    pub conditions: Conditions,
    /// The quota reservation, if there is one.
    pub admission: Option<Admission>,
    /// Admission checks by name.
    pub checks: BTreeMap<CheckName, CheckState>,
    /// Counters and times for requeueing.
    pub requeue: Option<Requeue>,
    /// Worker clusters to which the Workload is offered (manager only).
    pub nominated: Vec<ClusterName>,
    /// The worker cluster that was chosen (manager only). Excludes a non-empty `nominated`.
    pub cluster: Option<ClusterName>,
    /// Pods that are no longer needed, by pod set.
    pub reclaimable: BTreeMap<PodSetName, u32>,
    /// Seconds spent admitted in earlier admissions.
    pub accumulated_secs: Option<u32>,
    /// The number of evictions so far, by reason and underlying cause (may be empty).
    pub evictions: BTreeMap<(String, String), u32>,
    /// The total request of each pod set, as counted against quota; only while no quota is reserved.
    pub requests: BTreeMap<PodSetName, BTreeMap<ResourceName, Amount>>,
    /// Nodes of the Workload that failed and are to be replaced.
    pub unhealthy_nodes: Vec<String>,
    /// The positions of the gates of `spec.preemptionGates`, by name.
    pub preemption_gates: BTreeMap<String, PreemptionGate>,
}

impl Status {
    /// Whether a preemption gate keeps the Workload from preempting others.
    pub fn has_closed_gate(&self) -> bool {
        let mut gates = self.preemption_gates.values();
        gates.any(|gate| gate.position == GatePosition::Closed)
    }
}

/// The state of a preemption gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionGate {
    /// Its position.
    pub position: GatePosition,
    /// When the position last changed.
    pub since: Timestamp,
}

/// The position of a preemption gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatePosition {
    /// The Workload may not preempt others.
    Closed,
    /// This gate allows the Workload to preempt others.
    Open,
}

/// A quota reservation: `status.admission`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The ClusterQueue whose quota is held.
    pub cluster_queue: ClusterQueueName,
    /// One assignment per pod set, in the order of the spec.
    pub pod_sets: Vec<Assignment>,
}

/// The assignment of one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The pod set.
    pub name: PodSetName,
    /// The flavor for each resource.
    pub flavors: BTreeMap<ResourceName, FlavorName>,
    /// The total for the whole pod set, by resource.
    pub usage: BTreeMap<ResourceName, Amount>,
    /// The number of pods admitted.
    pub count: u32,
}

/// The phase of an admission check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckPhase {
    /// The check is not decided.
    Pending,
    /// The check is passed.
    Ready,
    /// The check is to be tried again later: the Workload is evicted.
    Retry,
    /// The check is refused for good: the Workload is deactivated.
    Rejected,
}

impl CheckPhase {
    /// The phase as the API shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Retry => "Retry",
            Self::Rejected => "Rejected",
        }
    }
}

/// One entry of `status.admissionChecks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckState {
    /// Its phase.
    pub phase: CheckPhase,
    /// When the phase (or, for some checks, the message) last changed.
    pub since: Timestamp,
    /// A sentence for people, may be empty.
    pub message: String,
    /// What to add to the pods when the job starts.
    pub updates: Vec<PodSetUpdate>,
    /// The back-off requested with `Retry`, in seconds.
    pub requeue_after_secs: Option<u32>,
    /// The number of earlier `Retry` verdicts of this check.
    pub retry_count: Option<u32>,
}

impl CheckState {
    /// A fresh entry: `Pending` with an empty message.
    pub const fn pending(now: Timestamp) -> Self {
        Self {
            phase: CheckPhase::Pending,
            since: now,
            message: String::new(),
            updates: Vec::new(),
            requeue_after_secs: None,
            retry_count: None,
        }
    }
}

/// What an admission check adds to the pods of one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetUpdate {
    /// The pod set.
    pub name: PodSetName,
    /// Labels to add.
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    pub annotations: BTreeMap<String, String>,
    /// Node selector entries to add.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add.
    pub tolerations: Vec<Toleration>,
}

/// The content of `status.requeueState`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeue {
    /// The number of requeues because its pods were not ready in time.
    pub count: Option<u32>,
    /// The Workload is not queued before this time.
    pub at: Option<Timestamp>,
}
