//! Why a workload has no quota, as data that can be counted and that prints as a sentence for people.

use std::fmt;

use crate::flavor::Category;
use crate::name::ClusterQueueName;

/// How the sentence about admission gates begins; the gates follow.
pub(crate) const GATED_BY: &str = "Admission is gated by: ";

/// The reason of condition `QuotaReserved` when it is False. *Source*: `spec/api.md API-9.6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingReason {
    /// No flavor suits it.
    NoMatchingFlavor,
    /// It would fit if others released quota.
    WaitingForQuota,
    /// It requests more than the queue could ever give.
    ExceedsMaxQuota,
    /// It requests more than any worker cluster could ever give.
    ///
    /// Unlike the anchor: there it holds the manager's quota for ever.
    ExceedsEveryWorker,
    /// It fits as soon as the workloads that were evicted for it, or for others, have stopped.
    WaitingForPreemptedWorkloads,
    /// It fits, but workloads admitted earlier must become ready first.
    WaitingForPodsReady,
    /// Its queue is missing, its namespace does not match, or its request is wrong.
    Misconfigured,
    /// Its queue is stopped or inactive.
    Suspended,
    /// It waits for its turn.
    PendingEvaluation,
    /// Its owner put it on hold.
    OnHold,
    /// An admission gate of another controller keeps it out of the queue.
    AdmissionGated,
    /// The administrator has paused admission.
    ///
    /// Unlike the anchor: there admission cannot be paused.
    AdmissionPaused,
}

impl PendingReason {
    /// The reason as the API shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoMatchingFlavor => "NoMatchingFlavor",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::ExceedsEveryWorker => "ExceedsEveryWorker",
            Self::WaitingForPreemptedWorkloads => "WaitingForPreemptedWorkloads",
            Self::WaitingForPodsReady => "WaitingForPodsReady",
            Self::Misconfigured => "Misconfigured",
            Self::Suspended => "Suspended",
            Self::PendingEvaluation => "PendingEvaluation",
            Self::OnHold => "OnHold",
            Self::AdmissionGated => "AdmissionGated",
            Self::AdmissionPaused => "AdmissionPaused",
        }
    }
}

impl From<Category> for PendingReason {
    fn from(category: Category) -> Self {
        match category {
            Category::WaitingForQuota => Self::WaitingForQuota,
            Category::ExceedsMaxQuota => Self::ExceedsMaxQuota,
            Category::NoMatchingFlavor => Self::NoMatchingFlavor,
        }
    }
}

/// The main reason for which a workload waits. *Source*: `spec/admission-engine.md 1.1, 1.4, 2.3, 2.11`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No flavor has room for it, or none suits it.
    NoRoom {
        /// How severe it is.
        category: Category,
        /// What was tried, and what is lacking.
        text: String,
    },
    /// Other workloads are evicted in its favour and have to stop.
    AwaitsVictims {
        /// What was tried, and what is lacking.
        text: String,
        /// How many are evicted.
        count: usize,
    },
    /// It fits once the workloads that are evicted in favour of others have stopped.
    AwaitsVictimsOfOthers,
    /// The workloads that it would evict are evicted in favour of another one.
    VictimsTaken,
    /// Another workload, tried before it, took or claimed the quota it was about to get.
    NoLongerFits,
    /// It would have to preempt, and one of its own gates forbids that.
    PreemptionGated,
    /// It fits, but workloads admitted earlier are not ready.
    PodsNotReady,
    /// An admission check said Retry or Rejected.
    ChecksFailed,
    /// The queue does not serve its namespace.
    NamespaceMismatch,
    /// The request itself is wrong; the sentences say how.
    RequestInvalid(Vec<String>),
    /// No worker cluster can ever hold it; the sentence says what would fit where.
    ExceedsEveryWorker(String),
    /// A workload with exactly the same request has just failed for this reason.
    Bypassed(Category),
    /// It waits for its turn.
    AwaitsTurn,
    /// Its queue admits nothing.
    QueueInactive {
        /// The queue.
        queue: ClusterQueueName,
        /// Why it admits nothing, where the queue itself does not say so.
        why: Option<&'static str>,
    },
    /// There is no such LocalQueue.
    LocalQueueMissing(String),
    /// Its LocalQueue is stopped.
    LocalQueueStopped(String),
    /// The LocalQueue stands for a ClusterQueue that does not exist.
    QueueMissing(ClusterQueueName),
    /// Gates of other controllers keep it out of the queue; these are their names.
    Gated(String),
    /// The administrator has paused admission.
    AdmissionPaused,
}

impl Reason {
    /// The reason as the API shows it.
    pub fn word(&self) -> PendingReason {
        match self {
            Self::NoRoom { category, .. } | Self::Bypassed(category) => (*category).into(),
            Self::AwaitsVictims { .. } | Self::AwaitsVictimsOfOthers => {
                PendingReason::WaitingForPreemptedWorkloads
            }
            Self::VictimsTaken | Self::NoLongerFits => PendingReason::WaitingForQuota,
            Self::ExceedsEveryWorker(_) => PendingReason::ExceedsEveryWorker,
            Self::PodsNotReady => PendingReason::WaitingForPodsReady,
            Self::ChecksFailed | Self::AwaitsTurn => PendingReason::PendingEvaluation,
            Self::NamespaceMismatch
            | Self::RequestInvalid(_)
            | Self::LocalQueueMissing(_)
            | Self::QueueMissing(_) => PendingReason::Misconfigured,
            Self::QueueInactive { .. } | Self::LocalQueueStopped(_) => PendingReason::Suspended,
            Self::Gated(_) | Self::PreemptionGated => PendingReason::AdmissionGated,
            Self::AdmissionPaused => PendingReason::AdmissionPaused,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Wire: the sentences of the anchor.
        match self {
            Self::NoRoom { text, .. } => f.write_str(text),
            Self::AwaitsVictims { text, count } => {
                write!(f, "{text}. Pending the preemption of {count} workload(s)")
            }
            Self::AwaitsVictimsOfOthers => f.write_str(
                "Workload has overlapping preemption targets with another workload, but will fit after these preemptions \
                 complete",
            ),
            Self::VictimsTaken => {
                f.write_str("Workload has overlapping preemption targets with another workload")
            }
            Self::NoLongerFits => f.write_str("Workload no longer fits after processing another workload"),
            Self::PreemptionGated => f.write_str("Workload requires preemption, but it's gated"),
            Self::PodsNotReady => {
                f.write_str("waiting for all admitted workloads to be in PodsReady condition")
            }
            Self::ChecksFailed => f.write_str("The workload has failed admission checks"),
            Self::NamespaceMismatch => {
                f.write_str("workload namespace doesn't match ClusterQueue selector")
            }
            Self::RequestInvalid(problems) => f.write_str(&problems.join("; ")),
            Self::ExceedsEveryWorker(sentence) => f.write_str(sentence),
            Self::Bypassed(_) => f.write_str(
                "Bypassed scheduling evaluation because an equivalent workload recently failed",
            ),
            Self::AwaitsTurn => f.write_str("Workload is pending evaluation in the scheduling queue"),
            Self::QueueInactive { queue, why: None } => write!(f, "ClusterQueue {queue} is inactive"),
            Self::QueueInactive { queue, why: Some(why) } => write!(f, "ClusterQueue {queue} is inactive: {why}"),
            Self::LocalQueueMissing(name) => write!(f, "LocalQueue {name} doesn't exist"),
            Self::LocalQueueStopped(name) => write!(f, "LocalQueue {name} is inactive"),
            Self::QueueMissing(name) => write!(f, "ClusterQueue {name} doesn't exist"),
            Self::Gated(gates) => write!(f, "{GATED_BY}{gates}"),
            Self::AdmissionPaused => f.write_str("Admission is paused by the administrator (admission.paused)"),
        }
    }
}
