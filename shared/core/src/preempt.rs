//! Whom to preempt so that a workload fits.

use std::sync::Arc;

use crate::hierarchy::{Forest, NodeId};
use crate::holders::Holder;
use crate::name::Uid;

/// Why a holder is preempted. *Source*: `spec/admission-engine.md 2.7.1, 2.8.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptReason {
    /// For a workload of the same queue.
    InClusterQueue,
    /// Its queue borrowed what belongs to the preemptor's.
    InCohortReclamation,
    /// Its queue has too large a share.
    InCohortFairSharing,
    /// Its priority is lower, though the preemptor borrows itself.
    InCohortReclaimWhileBorrowing,
}

impl PreemptReason {
    /// The word of the API: reason of condition `Preempted`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortFairSharing => "InCohortFairSharing",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }

    /// The words of messages. *Source*: `spec/admission-engine.md 2.12`.
    pub const fn why(self) -> &'static str {
        match self {
            Self::InClusterQueue => "prioritization in the ClusterQueue",
            Self::InCohortReclamation => "reclamation within the cohort",
            Self::InCohortFairSharing => "Fair Sharing within the cohort",
            Self::InCohortReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
        }
    }
}

/// A victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Who.
    pub holder: Arc<Holder>,
    /// Why.
    pub reason: PreemptReason,
}

/// The message of conditions `Evicted` and `Preempted` of a victim. What is not known is shown as `UNKNOWN`.
/// *Source*: `spec/admission-engine.md 2.12`.
pub fn preemption_message(
    forest: &Forest,
    preemptor: Option<&Uid>,
    job: Option<&Uid>,
    node: NodeId,
    target: &Target,
) -> String {
    let known = |uid: Option<&Uid>| {
        uid.map(Uid::as_str)
            .filter(|uid| !uid.is_empty())
            .unwrap_or("UNKNOWN")
            .to_owned()
    };
    // Wire: byte-exact with the anchor.
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
        known(preemptor),
        known(job),
        target.reason.why(),
        forest.path_text(node),
        forest.path_text(target.holder.node),
    )
}
