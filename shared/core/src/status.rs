//! What a Workload's status says, in the words of core.
//!
//! Invariant: this is data. Who may change which part is decided by the machines that take a `Status` and return a new
//! one; the border turns the difference into one write.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::amount::Amount;
use crate::condition::Conditions;
use crate::name::{CheckName, ClusterName, ClusterQueueName, FlavorName, PodSetName, ResourceName};
use crate::workload::Toleration;

/// The status of a Workload. *Source*: `spec/api.md API-9.2`; fields core never changes stay with the border.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The conditions.
    pub conditions: Conditions,
    /// The quota reservation, if there is one.
    pub admission: Option<Admission>,
    /// Admission checks by name.
    pub checks: BTreeMap<CheckName, CheckState>,
    /// Requeue bookkeeping.
    pub requeue: Option<Requeue>,
    /// Worker clusters to which the Workload is offered (manager only).
    pub nominated: Vec<ClusterName>,
    /// The worker cluster that won (manager only). Excludes a non-empty `nominated`.
    pub cluster: Option<ClusterName>,
    /// Pods that will not be needed any more, by pod set.
    pub reclaimable: BTreeMap<PodSetName, u32>,
    /// Seconds spent Admitted in earlier admissions.
    pub accumulated_secs: Option<u32>,
    /// Evictions so far, by (reason, underlying cause; may be empty).
    pub evictions: BTreeMap<(String, String), u32>,
    /// What each pod set asks for in total, as counted against quota; only while no quota is reserved.
    pub requests: BTreeMap<PodSetName, BTreeMap<ResourceName, Amount>>,
    /// Nodes that failed under it and are to be replaced.
    pub unhealthy_nodes: Vec<String>,
    /// Where the gates of `spec.preemptionGates` stand, by name.
    pub preemption_gates: BTreeMap<String, PreemptionGate>,
}

impl Status {
    /// Whether a preemption gate keeps the Workload from preempting others.
    pub fn has_closed_gate(&self) -> bool {
        let mut gates = self.preemption_gates.values();
        gates.any(|gate| gate.position == GatePosition::Closed)
    }
}

/// Where a preemption gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionGate {
    /// Whether it lets through.
    pub position: GatePosition,
    /// Since when.
    pub since: Timestamp,
}

/// Whether a preemption gate lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatePosition {
    /// The Workload may not preempt others.
    Closed,
    /// It may, as far as this gate is concerned.
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

/// What one pod set was given.
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

/// Where an admission check stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckPhase {
    /// Not decided.
    Pending,
    /// Passed.
    Ready,
    /// Try again later: the Workload is evicted.
    Retry,
    /// Never: the Workload is deactivated.
    Rejected,
}

impl CheckPhase {
    /// The word of the API.
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
    /// Where it stands.
    pub phase: CheckPhase,
    /// When the phase (or, for some checks, the message) last changed.
    pub since: Timestamp,
    /// A sentence for people, may be empty.
    pub message: String,
    /// What to add to the pods when the job starts.
    pub updates: Vec<PodSetUpdate>,
    /// Back-off asked for with `Retry`, in seconds.
    pub requeue_after_secs: Option<u32>,
    /// How often this check was in `Retry` before.
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

/// `status.requeueState`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeue {
    /// How often it was requeued because its pods were not ready in time.
    pub count: Option<u32>,
    /// Not before this time.
    pub at: Option<Timestamp>,
}
