//! The input of a pass over a Workload: facts, requests and policy.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::older::Words;
use super::ready::WaitForPods;
use crate::name::PodSetName;
use crate::preempt::PreemptReason;
use crate::queue::{ClusterQueue, StopPolicy};
use crate::status::Admission;
use crate::workload::Workload;

/// The facts about one Workload that a pass depends on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Workload as last read.
    pub workload: &'a Workload,
    /// The `ClusterQueue` that holds its quota or, without a reservation, the one its `LocalQueue` names; `None` when there
    /// is none.
    pub cluster_queue: Option<&'a ClusterQueue>,
    /// Stop policy of its `LocalQueue`; `None` when that `LocalQueue` does not exist or is being deleted.
    pub local_stop: Option<StopPolicy>,
    /// The state of its job.
    pub job: &'a JobFacts,
    /// The request of the job reconciler, if any.
    pub request: Option<&'a Request>,
    /// The decision of the admission cycle, if any.
    pub proposal: Option<&'a Proposal>,
    /// The settings of the process.
    pub policy: &'a Policy,
}

impl Observed<'_> {
    /// Whether the job ran in another cluster and does not show its end here yet. The Workload stays until then, even if a user deletes it:
    /// without it no controller would know that the job must show an end.
    pub(super) fn owes_its_end(&self) -> bool {
        let shows_none = matches!(self.job, JobFacts::Present { finished: None, .. });
        shows_none && self.workload.status.cluster.is_some()
    }
}

/// The state of the job that owns a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobFacts {
    /// A manager has created it here, and its job has not arrived yet: nothing runs for it.
    Awaited,
    /// It has no owner, or its owner is of a kind that is not known here: only its own controller knows what runs for it.
    Unknown,
    /// Its owner is deleted or is being deleted (or its controller reference names another UID).
    OwnerGone,
    /// Its job exists.
    Present {
        /// How it ended, if it ended.
        finished: Option<Outcome>,
        /// Whether it still has pods.
        active: bool,
        /// Whether it is suspended. False while a stop is under way.
        suspended: bool,
        /// Whether all its pods are ready or have succeeded.
        ready: bool,
        /// Pods that are no longer needed, by pod set.
        reclaimable: BTreeMap<PodSetName, u32>,
        /// Of a group: how many pods are missing and must be created again.
        missing: Option<u32>,
    },
}

impl JobFacts {
    /// Whether no pod of the job runs and none can start, as far as this cluster knows.
    pub(super) fn at_rest(&self) -> bool {
        match self {
            Self::Awaited | Self::Unknown | Self::OwnerGone => true,
            Self::Present {
                active, suspended, ..
            } => *suspended && !*active,
        }
    }

    /// Whether an eviction frees the quota: it is known here that no pod runs. *Source*: `spec/admission-engine.md 3.3, 3.4`.
    pub(super) fn frees_quota(&self) -> bool {
        *self != Self::Unknown && self.at_rest()
    }

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
    /// Whether it succeeded.
    pub success: bool,
    /// The job's message about it, may be empty.
    pub message: String,
}

/// What the job reconciler asks of the lifecycle, the only writer of the Workload's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The job does not match the prebuilt Workload it names.
    OutOfSync,
    /// The job can never be started with what was assigned.
    FailedToStart {
        /// Why it cannot be started.
        message: String,
    },
}

/// A decision of the admission cycle about a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Reserve this quota.
    Reserve {
        /// The quota it gets.
        admission: Admission,
        /// What was found for each flavor, for people; empty when the first flavor was taken.
        considered: String,
    },
    /// No quota for now.
    Pending {
        /// A reason of `QuotaReserved=False`.
        reason: Cow<'static, str>,
        /// A sentence for people.
        message: String,
    },
    /// Make room for another Workload. It is carried out in one write if the Workload holds quota and is not evicted yet, otherwise it is
    /// dropped. So it may be proposed again and again. The quota is free only when the Workload shows that it has none.
    Evict {
        /// Reason of condition `Evicted`: `Preempted`.
        reason: &'static str,
        /// Reason of condition `Preempted`.
        preempted_reason: PreemptReason,
        /// A sentence for people, for both conditions (`spec/admission-engine.md 2.12`).
        message: String,
        /// What the Event says after it: the priorities of both Workloads ([`crate::state::State::priorities`]).
        priorities: String,
    },
}

/// Settings of the process that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What happens to a Workload whose owner is gone.
    pub orphans: Orphans,
    /// Whether finished pods free their quota before their job ends.
    pub reclaim: Reclaim,
    /// `waitForPodsReady`; `None` when it is off.
    pub pods_ready: Option<WaitForPods>,
    /// The times of `objectRetentionPolicies.workloads`.
    pub retention: Retention,
    /// When a Workload gets its first status.
    pub first_status: FirstStatus,
    /// Whether controller `core` runs.
    pub core: Core,
    /// Which reasons a waiting Workload shows.
    pub words: Words,
}

/// Whether this process runs controller `core`, which handles checks, evictions for other reasons than preemption, deactivation and
/// retention. Without it reservations go on, and the job side still sets `PodsReady` and `Finished`. *Source*: `--controllers=*,-core`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Core {
    /// Controller `core` runs.
    #[default]
    Runs,
    /// Controller `core` is switched off.
    Off,
}

/// When a Workload gets its first status. *Source*: gate `UnadmittedWorkloadsExplicitStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstStatus {
    /// After the first decision about it, which saves a write.
    #[default]
    WhenDecided,
    /// As soon as it is seen.
    AtOnce,
}

/// Whether finished pods free their quota before their job ends. *Source*: gate `ReclaimablePods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// They free it.
    #[default]
    Count,
    /// They do not free it.
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

/// What happens to a Workload whose owner is deleted. *Source*: gate `FinishOrphanedWorkloads`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphans {
    /// It is finished with reason `OwnerNotFound`.
    #[default]
    Finish,
    /// Only its finalizer is removed.
    Release,
}
