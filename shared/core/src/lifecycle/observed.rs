//! What a pass over a Workload looks at, and what is asked of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::older::Words;
use super::ready::WaitForPods;
use crate::name::PodSetName;
use crate::queue::{ClusterQueue, StopPolicy};
use crate::status::Admission;
use crate::workload::Workload;

/// Everything that is known about one Workload at the moment of the pass.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Workload as last read.
    pub workload: &'a Workload,
    /// The `ClusterQueue` that holds its quota or, without a reservation, the one its `LocalQueue` names; `None` when there
    /// is none.
    pub cluster_queue: Option<&'a ClusterQueue>,
    /// Stop policy of its `LocalQueue`; `None` when that `LocalQueue` does not exist or is being deleted.
    pub local_stop: Option<StopPolicy>,
    /// What its job is doing.
    pub job: &'a JobFacts,
    /// What the job reconciler asks for, if anything.
    pub request: Option<&'a Request>,
    /// What the brain decided, if anything.
    pub proposal: Option<&'a Proposal>,
    /// How the process is set up.
    pub policy: &'a Policy,
}

impl Observed<'_> {
    /// Whether it ran in another cluster and its job does not show its end yet: without it nobody would know that it is to be shown
    /// (seed 9, where somebody deleted it just then).
    pub(super) fn owes_its_end(&self) -> bool {
        let shows_none = matches!(self.job, JobFacts::Present { finished: None, .. });
        shows_none && self.workload.status.cluster.is_some()
    }
}

/// What the owner of a Workload is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobFacts {
    /// A manager has put it here, and its job has not come yet: nothing runs for it.
    Awaited,
    /// It was made by hand, or its owner is of a kind that is not known here: only its own controller knows what runs for it.
    Unknown,
    /// It had an owner, which is gone or going (or its controller reference names another UID).
    OwnerGone,
    /// Its job exists.
    Present {
        /// How it ended, if it ended.
        finished: Option<Outcome>,
        /// Whether it still has pods.
        active: bool,
        /// Whether it is held back. False while a stop is under way.
        suspended: bool,
        /// Whether all its pods are ready or have succeeded.
        ready: bool,
        /// Pods that will not be needed any more, by pod set.
        reclaimable: BTreeMap<PodSetName, u32>,
        /// Of a group: how many pods have no member and must be made anew.
        missing: Option<u32>,
    },
}

impl JobFacts {
    /// Whether no pod of the job runs and none can start, as far as is known here.
    pub(super) fn at_rest(&self) -> bool {
        match self {
            Self::Awaited | Self::Unknown | Self::OwnerGone => true,
            Self::Present {
                active, suspended, ..
            } => *suspended && !*active,
        }
    }

    /// Whether quota that an eviction takes back is free: no pod runs, and that is known here. *Source*:
    /// `spec/admission-engine.md 3.3, 3.4`.
    pub(super) fn frees_quota(&self) -> bool {
        *self != Self::Unknown && self.at_rest()
    }

    /// Whether the job shows its end.
    pub(super) const fn has_ended(&self) -> bool {
        matches!(
            self,
            Self::Present {
                finished: Some(_),
                ..
            }
        )
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it did what it should.
    pub success: bool,
    /// What the job says about it, may be empty.
    pub message: String,
}

/// What the job reconciler asks of the Workload's only writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The job does not match the prebuilt Workload it names.
    OutOfSync,
    /// The job can never be started with what was assigned.
    FailedToStart {
        /// Why.
        message: String,
    },
}

/// What the brain decided about a pending Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Take this quota.
    Reserve {
        /// What it gets.
        admission: Admission,
        /// What was seen of each flavor, for people; empty when the first one was taken.
        considered: String,
    },
    /// Not now.
    Pending {
        /// A reason of `QuotaReserved=False`.
        reason: Cow<'static, str>,
        /// A sentence for people.
        message: String,
    },
    /// Make room for another Workload. Carried out in one write if it holds quota and is not evicted yet, else dropped: so it
    /// may be proposed again and again. Quota is free only when the Workload shows that it has none.
    Evict {
        /// Reason of condition `Evicted`: `Preempted`.
        reason: &'static str,
        /// Reason of condition `Preempted`.
        preempted_reason: PreemptedReason,
        /// A sentence for people, for both conditions (`spec/admission-engine.md 2.12`).
        message: String,
    },
}

/// Why a Workload makes room for another one. *Source*: `spec/admission-engine.md 2.12`, `spec/api.md API-9.6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptedReason {
    /// One of higher priority in the same `ClusterQueue`.
    InClusterQueue,
    /// Its `ClusterQueue` has borrowed what another one takes back.
    InCohortReclamation,
    /// Its `ClusterQueue` has more than its fair share.
    InCohortFairSharing,
    /// As [`Self::InCohortReclamation`], by a `ClusterQueue` that borrows itself.
    InCohortReclaimWhileBorrowing,
}

impl PreemptedReason {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortFairSharing => "InCohortFairSharing",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }
}

/// Switches of the process that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What happens to a Workload whose owner is gone.
    pub orphans: Orphans,
    /// Whether finished pods free quota before their job ends.
    pub reclaim: Reclaim,
    /// `waitForPodsReady`; `None` when it is off.
    pub pods_ready: Option<WaitForPods>,
    /// `objectRetentionPolicies.workloads`.
    pub retention: Retention,
    /// When a Workload gets its first status.
    pub first_status: FirstStatus,
    /// Whether controller `core` runs.
    pub core: Core,
    /// In which words it is told why it waits.
    pub words: Words,
}

/// Whether the life of a Workload is looked after by this process: its checks, evictions for other reasons than preemption, deactivation,
/// retention. Without it reservations go on, and the job side goes on telling `PodsReady` and `Finished`.
/// *Source*: `--controllers=*,-core`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Core {
    /// It is.
    #[default]
    Runs,
    /// It is switched off.
    Off,
}

/// When a Workload gets its first status. *Source*: gate `UnadmittedWorkloadsExplicitStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstStatus {
    /// When something was decided about it, which saves a write.
    #[default]
    WhenDecided,
    /// As soon as it is seen.
    AtOnce,
}

/// Whether finished pods free quota before their job ends. *Source*: gate `ReclaimablePods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// They do.
    #[default]
    Count,
    /// They do not.
    Ignore,
}

/// How long old objects are kept; `None` keeps them for ever. *Source*: `spec/admission-engine.md 4.3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Workloads, after they have finished.
    pub after_finished: Option<SignedDuration>,
    /// Jobs whose Workload was deactivated, but not by its user.
    pub after_deactivated: Option<SignedDuration>,
}

/// What happens to a Workload whose owner is gone. *Source*: gate `FinishOrphanedWorkloads`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphans {
    /// It is finished with reason `OwnerNotFound`.
    #[default]
    Finish,
    /// It is only let go.
    Release,
}
