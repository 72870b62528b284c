//! What a dispatch decision is made from. A lost cluster is a value here, never an error.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::capacity::Room;
use super::elsewhere::Elsewhere;
use super::epoch::EPOCH_BELIEVED_MAX;
use crate::kind::KindState;
use crate::lease::Tenure;
use crate::name::{CheckName, ClusterName};
use crate::status::Status;
use crate::workload::Workload;

/// Everything [`plan`](super::plan) looks at, for one Workload.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The local Workload; its `status` is the one being composed in this pass, after the lifecycle step.
    pub workload: &'a Workload,
    /// The status as it was read from the API: what is certainly written.
    pub stored: &'a Status,
    /// Whether the local Workload still exists.
    pub local: Local,
    /// The entry of the status that belongs to the MultiKueue controller.
    pub check: Option<&'a CheckName>,
    /// Whether the owner can be dispatched at all.
    pub owner: &'a Owner,
    /// The clusters of the MultiKueueConfig in its order; empty when it cannot be loaded.
    pub clusters: &'a [ClusterName],
    /// The Workload that must have a cluster before this one gets one, because their pods are to run in the same cluster.
    pub behind: Option<&'a str>,
    /// What is known of each cluster that can matter: while a place is looked for, each of `clusters` that there is; and each other
    /// that holds something of this Workload, or is named by it. One that is named, and neither here nor in `clusters`, does not exist
    /// any more.
    pub remotes: &'a BTreeMap<ClusterName, Remote>,
    /// Clusters that failed this Workload lately. Expired entries are ignored.
    pub failures: &'a BTreeMap<ClusterName, Failure>,
    /// What clusters said that refused to delete something of this Workload, and have not done it since.
    pub refusals: &'a BTreeMap<ClusterName, String>,
    /// When the present round of the dispatcher began, if that is remembered.
    pub round: Option<Timestamp>,
    /// What else is known of each cluster; one without an entry is open and its room unknown.
    pub sites: &'a BTreeMap<ClusterName, Site>,
    /// The local job.
    pub job: LocalJob,
    /// The number of the present dispatch, from 1. A copy with another number is not of this dispatch.
    pub epoch: u64,
    /// The highest number that this process ever saw on a copy of it.
    pub highest: u64,
    /// The kind of the job, for texts; `None` when it is none of ours.
    pub kind: Option<&'a str>,
    /// Whether it is tried on another cluster when it fails on one.
    pub elsewhere: &'a Elsewhere,
    /// How to decide.
    pub policy: &'a Policy,
}

/// Whether the local Workload exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// It exists and is not being deleted.
    Present,
    /// It is deleted or being deleted: all remote objects must go.
    Gone,
}

/// Whether the owner of the Workload can be dispatched. *Source*: `spec/multikueue.md 3.2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is ours to dispatch.
    Managed,
    /// Its managed-by field names another controller.
    NotManaged {
        /// The field, such as `spec.managedBy`.
        field: String,
        /// The value of the field.
        value: String,
    },
    /// No adapter knows its kind.
    NoAdapter {
        /// The kind as `group/version, Kind=K`; `None` when there is no owner.
        kind: Option<String>,
    },
}

/// Facts about the local job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalJob {
    /// It exists and is not being deleted.
    pub present: bool,
    /// Whether its own status shows that it ended.
    pub finished: bool,
}

/// What one worker cluster shows of this Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Nothing is known since then.
    Unreachable {
        /// The first loss.
        since: Timestamp,
        /// What is known of its fence, for this Workload.
        fence: Fence,
    },
    /// The cluster is connected, but jobs of this kind cannot be read there: its objects of this Workload are unknown.
    Unreadable {
        /// The error of its API server.
        why: String,
    },
    /// The cluster is connected and shows this.
    Reachable(Copies),
}

/// What is known of a cluster beside what is on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// What its queue could take of this Workload.
    pub room: Room,
    /// Whether an administrator has cordoned it.
    pub cordon: Cordon,
    /// An administrator has given up the runs there in its present loss (`roadstead cluster give-up`).
    pub given_up: bool,
    /// Whether our lease is kept there.
    pub lease: Tenure,
    /// Whether a creation there takes much longer than usual, or its last request failed.
    pub late: bool,
    /// Whether it serves the kind of the job.
    pub kind: KindState,
}

/// What is assumed of a cluster of which nothing is known.
pub(super) static UNKNOWN: Site = Site {
    room: Room::Unknown,
    cordon: Cordon::Open,
    given_up: false,
    lease: Tenure::Held,
    late: false,
    kind: KindState::Serving,
};

/// Which work a cluster may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cordon {
    /// It takes new work.
    #[default]
    Open,
    /// It takes nothing new; its runs end there.
    Closed,
    /// It takes nothing new, and its runs go elsewhere.
    Drained,
    /// Its MultiKueueCluster is being deleted: it takes nothing new; its runs end there.
    Leaving,
}

/// Whether a worker that does not answer has stopped its runs. *Source*: `spec/safety.md 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// It stops by itself; from then on nothing of this Workload runs there or can start there.
    Closes {
        /// Then, in the time of this pass.
        at: Timestamp,
    },
    /// It stops by itself from then on, as an earlier process of this manager has recorded; this process has not seen the worker.
    Recorded {
        /// Then, in the time of this pass.
        at: Timestamp,
    },
    /// It cannot be relied on. The worker has no fence, or its engine was silent when it was last seen, or its copy was sent
    /// without the policy.
    Open,
}

/// The objects of our name on a reachable cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The Workload of the same namespace and name.
    pub workload: Option<RemoteWorkload>,
    /// The job of the same kind, namespace and name.
    pub job: Option<RemoteJob>,
}

/// Whose a remote object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It carries our origin.
    Ours,
    /// It does not carry our origin: it is never changed and never deleted.
    Foreign,
    /// It carries our origin and was sent for another Workload, for example for an earlier job of that name whose pods still end.
    /// It is in the way until that Workload has removed it.
    Former,
}

/// Whether an object is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has no deletion timestamp.
    Present,
    /// It shows no deletion timestamp, but we have asked for its deletion: it may go at any moment.
    Withdrawn,
    /// It has a deletion timestamp.
    Deleting,
}

/// How the remote spec differs from the local one. `active` and `preemptionGates` are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// It does not differ.
    None,
    /// In the priority class or the priority: it can be copied.
    Priority,
    /// In anything else.
    Spec,
}

/// A condition's reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// A Workload on a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteWorkload {
    /// Whose it is.
    pub origin: Origin,
    /// Whether it is being deleted.
    pub life: Life,
    /// Whether it still has the finalizer `kueue.x-k8s.io/resource-in-use`.
    pub has_finalizer: bool,
    /// How its spec differs from the local one.
    pub drift: Drift,
    /// `spec.active`: false when it was rejected or deactivated there.
    pub active: bool,
    /// The answer of its queue there.
    pub answer: Answer,
    /// The worker's own text for that: why there is no room, or which check is waited for. May be empty.
    pub words: String,
    /// The transition time of `Admitted` when it is True. Shown to users, never compared between clusters.
    pub admitted: Option<Timestamp>,
    /// `Finished` when it is True.
    pub finished: Option<Said>,
    /// `Evicted` when it is True.
    pub evicted: Option<Said>,
    /// Whether `DeactivationTarget` is True: it was asked to stop.
    pub stop: Stop,
    /// The number of the dispatch it was sent for; 0 when it belongs to another Workload of that name.
    pub epoch: u64,
    /// Whether the worker fenced it: it stopped the copy because it was cut off for too long.
    pub fenced: bool,
}

/// The answer of a worker's queue about a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has not looked at it yet.
    None,
    /// It holds quota (`QuotaReserved` is True).
    Reserved,
    /// It has looked at it and has no room (`QuotaReserved` is False).
    TurnedDown,
}

/// Whether a remote Workload was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No stop was requested.
    NotRequested,
    /// A stop was requested.
    Requested,
}

/// A job on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteJob {
    /// Whose it is.
    pub origin: Origin,
    /// Whether it is being deleted.
    pub life: Life,
    /// Whether it may have pods.
    pub pods: PodsThere,
    /// Whether its own status shows that it ended.
    pub finished: bool,
    /// The number of the dispatch it was sent for; 0 when it belongs to another Workload of that name.
    pub epoch: u64,
    /// Whether it has the finalizer by which it stays until its outcome is stored here.
    pub kept: bool,
    /// Whether each object of the local job has its copy, and each copy is wanted.
    pub twins: Twins,
}

/// How the copies of a job match its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twins {
    /// One by one.
    All,
    /// One by one, but a copy lacks what its object got later.
    Outdated,
    /// Of a group: a member has no copy yet, or a copy has no member any more.
    Some,
}

/// What is known of the pods of a job on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsThere {
    /// It may start some, or its status counts some.
    Some,
    /// It is held back and its status counts none, but its kind does not count pods that are being ended. Or the kind lets pods that run
    /// go on to their end. Only its removal shows that there are none.
    Untold,
    /// It is held back and its status counts none, not even one that is being ended.
    None,
}

impl RemoteJob {
    /// Whether it is ours and may have live pods. A job that is being deleted may have some until it is gone, whatever its status
    /// shows.
    pub(super) fn runs(self) -> bool {
        let held = self.pods == PodsThere::None && self.life != Life::Deleting;
        self.origin == Origin::Ours && !held && !self.finished
    }
}

impl Copies {
    pub(super) fn our_workload(&self) -> Option<&RemoteWorkload> {
        self.workload.as_ref().filter(|w| w.origin == Origin::Ours)
    }

    pub(super) fn our_job(&self) -> Option<&RemoteJob> {
        self.job.as_ref().filter(|j| j.origin == Origin::Ours)
    }

    /// The copy that was sent for this dispatch: the only one whose state counts.
    pub(super) fn current_workload(&self, epoch: u64) -> Option<&RemoteWorkload> {
        self.our_workload().filter(|w| w.epoch == epoch && epoch > 0)
    }

    /// The job that was sent for this dispatch: the only one whose status counts.
    pub(super) fn current_job(&self, epoch: u64) -> Option<&RemoteJob> {
        self.our_job().filter(|j| j.epoch == epoch && epoch > 0)
    }

    /// The highest number of a copy of ours here, as far as it can be believed.
    pub(super) fn highest_epoch(&self) -> u64 {
        let numbers = [
            self.our_workload().map(|w| w.epoch),
            self.our_job().map(|j| j.epoch),
        ];
        let believed = numbers.into_iter().flatten().filter(|n| *n <= EPOCH_BELIEVED_MAX);
        believed.max().unwrap_or_default()
    }

    /// Whether a copy here was sent for an earlier dispatch, and none for this one.
    pub(super) fn is_outdated(&self, epoch: u64) -> bool {
        let workload = self.our_workload().is_some_and(|w| w.epoch < epoch);
        workload || self.our_job().is_some_and(|j| j.epoch < epoch)
    }

    pub(super) fn has_foreign_job(&self) -> bool {
        self.job.is_some_and(|j| j.origin == Origin::Foreign)
    }

    pub(super) fn has_former_job(&self) -> bool {
        self.job.is_some_and(|j| j.origin == Origin::Former)
    }

    pub(super) fn has_foreign_workload(&self) -> bool {
        self.workload
            .as_ref()
            .is_some_and(|w| w.origin == Origin::Foreign)
    }

    pub(super) fn runs(&self) -> bool {
        self.job.is_some_and(RemoteJob::runs)
    }

    /// Whether a job of ours is here that has not ended. Why also a held one: its counts may be older than its last pods, so only a
    /// job that is gone has certainly none.
    pub(super) fn has_unended_job(&self) -> bool {
        self.our_job().is_some_and(|job| !job.finished)
    }

    /// Whether nothing of ours runs here or can start by itself: the worker starts a job only for an active, unfinished Workload.
    pub(super) fn is_settled(&self) -> bool {
        !self.runs()
            && self
                .our_workload()
                .is_none_or(|w| w.finished.is_some() || !w.active)
    }
}

/// How to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a lost worker is waited for.
    pub worker_lost_timeout: SignedDuration,
    /// What happens then.
    pub lost: LostPolicy,
    /// To which clusters a Workload is offered.
    pub dispatcher: Dispatcher,
    /// The planted bug, if there is one.
    #[cfg(feature = "bugbank")]
    pub bug: Option<super::Bug>,
}

/// What happens to a job whose worker is lost for longer than the timeout. *Source*: `spec/safety.md 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostPolicy {
    /// It stays where it is until the worker answers, or an administrator gives the runs there up.
    Wait,
    /// It runs again elsewhere once the worker has certainly stopped it; a worker without a fence that holds is waited for as with
    /// [`Self::Wait`].
    Fence,
    /// It runs again elsewhere, perhaps while the lost copy still runs.
    RetryAnyway,
}

/// To which clusters a Workload is offered. *Source*: `spec/multikueue.md 4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatcher {
    /// To every connected cluster, sorted by name.
    AllAtOnce,
    /// To a few, and to a few more each [`ROUND`](super::ROUND).
    Incremental {
        /// How many more each round; at least 1.
        step: u32,
        /// Which first.
        order: Order,
    },
    /// To the cluster whose queue has the most room, and to more as time goes by (`spec/multikueue.md 4.3`).
    Capacity,
    /// To the clusters that an external dispatcher writes in `status.nominatedClusterNames`.
    External,
}

/// In which order clusters are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the MultiKueueConfig lists them.
    OfConfig,
    /// By name.
    OfName,
}

/// Why a cluster cannot take a Workload for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// An object of the same name that is not ours is in the way.
    NameConflict,
    /// The worker refused to create the Workload or the job.
    CreateRefused,
    /// A webhook there refused the Workload or the job, or could not be asked.
    WebhookFailed,
    /// The namespace does not exist there.
    NamespaceMissing,
    /// The worker did not answer the creation of the Workload, or failed it: it is unknown whether the copy exists.
    NoAnswer,
    /// The worker changed the spec of the copy.
    SpecDrift,
    /// The job no longer matches its Workload there.
    OutOfSync,
    /// The job vanished there.
    OwnerNotFound,
    /// The worker deactivated the copy, for instance because a check of its own rejected it.
    Rejected,
    /// The worker evicted it, for instance for a more urgent Workload of its own.
    Evicted,
    /// The copy ended before it was chosen.
    FinishedEarly,
    /// The worker shows a copy from before the present dispatch, as after its storage was restored from a backup.
    Outdated,
    /// Our lease there cannot be renewed, so the worker stops the jobs that it is given.
    LeaseLapsed,
    /// It lacks an object that the pods of the job name, so they could not run there.
    DependencyMissing,
    /// The job failed there for good, and its owner asks for a try on another cluster.
    JobFailed,
}

impl Cause {
    /// The reason token that users search for.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NameConflict => "NameConflictOnCluster",
            Self::CreateRefused => "CreateRefusedByCluster",
            Self::WebhookFailed => "RemoteRejectedByWebhook",
            Self::NamespaceMissing => "NamespaceMissingOnCluster",
            Self::NoAnswer => "NoAnswerFromCluster",
            Self::SpecDrift => "SpecChangedOnCluster",
            Self::OutOfSync => "OutOfSyncOnCluster",
            Self::OwnerNotFound => "JobVanishedOnCluster",
            Self::Rejected => "RejectedByCluster",
            Self::Evicted => "EvictedByCluster",
            Self::FinishedEarly => "FinishedBeforeChosen",
            Self::Outdated => "OutdatedOnCluster",
            Self::LeaseLapsed => "LeaseLapsedOnCluster",
            Self::DependencyMissing => "DependencyMissing",
            Self::JobFailed => "JobFailedOnCluster",
        }
    }
}

/// A remembered failure: the cluster is no candidate until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When the cluster may be tried again.
    pub until: Timestamp,
    /// What went wrong.
    pub cause: Cause,
    /// The text of the other side; may be empty.
    pub detail: String,
}
