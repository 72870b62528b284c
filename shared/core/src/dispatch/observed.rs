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
    /// The Workload that goes before this one.
    pub behind: Option<&'a Behind>,
    /// What is known of each cluster that matters. While the Workload seeks a cluster: each of `clusters` that exists. Always: each cluster
    /// that holds an object of the Workload or that its status names. A named cluster that is missing both here and in `clusters` was
    /// deleted.
    pub remotes: &'a BTreeMap<ClusterName, Remote>,
    /// Clusters that failed this Workload lately; [`Failure::excludes`] says which of them are no candidates.
    pub failures: &'a BTreeMap<ClusterName, Failure>,
    /// The error of each cluster that refused to delete an object of this Workload, and has not deleted it since.
    pub refusals: &'a BTreeMap<ClusterName, String>,
    /// When the present round of the dispatcher began, if that is remembered.
    pub round: Option<Timestamp>,
    /// More facts about each cluster; a cluster without an entry is open, and its room is unknown.
    pub sites: &'a BTreeMap<ClusterName, Site>,
    /// The local job.
    pub job: LocalJob,
    /// The number of the present dispatch, from 1. A copy with another number is not of this dispatch.
    pub epoch: u64,
    /// The highest dispatch number that this process ever saw on a copy of the Workload.
    pub highest: u64,
    /// The kind of the job, for texts; `None` when Roadstead does not handle it.
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
    /// Roadstead dispatches it.
    Managed,
    /// Its managed-by field names another controller.
    NotManaged {
        /// The field, such as `spec.managedBy`.
        field: String,
        /// The value of the field.
        value: String,
    },
    /// Its kind is dispatched only while a feature gate is on, and the gate is off.
    SwitchedOff {
        /// The name of the gate.
        gate: &'static str,
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
    /// The cluster is lost: nothing newer than `since` is known.
    Unreachable {
        /// When the connection was first lost.
        since: Timestamp,
        /// Whether the worker stops this Workload by itself.
        fence: Fence,
    },
    /// The cluster is connected, but jobs of this kind cannot be read there: its objects of this Workload are unknown.
    Unreadable {
        /// The error of its API server.
        why: String,
    },
    /// The cluster is connected and holds these objects.
    Reachable(Copies),
}

/// What is known of a cluster beside what is on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// What its queue could take of this Workload.
    pub room: Room,
    /// Whether an administrator has cordoned it.
    pub cordon: Cordon,
    /// Whether an administrator has given up the runs there during the present loss (`roadstead cluster give-up`).
    pub given_up: bool,
    /// Whether this manager keeps its lease there.
    pub lease: Tenure,
    /// Whether a creation there takes much longer than usual, or its last request failed.
    pub late: bool,
    /// Whether it serves the kind of the job.
    pub kind: KindState,
}

/// The facts assumed of a cluster without an entry.
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
    /// It takes nothing new; runs go on there to their end.
    Closed,
    /// It takes nothing new; its runs are stopped and sent elsewhere.
    Drained,
    /// Its MultiKueueCluster is being deleted: it takes nothing new; runs go on there to their end.
    Leaving,
}

impl Cordon {
    /// The value of annotation `roadstead.dev/cordon` of a cluster that takes nothing new.
    pub const CLOSED: &str = "true";
    /// The value of a cluster whose runs are also sent elsewhere.
    pub const DRAINED: &str = "drain";

    /// Reads the annotation. Any other text than none, an empty one and `false` closes the cluster. *Source*: `spec/multikueue.md 4.5`.
    pub fn read(annotation: Option<&str>) -> Self {
        match annotation {
            None | Some("" | "false") => Self::Open,
            Some(Self::DRAINED) => Self::Drained,
            Some(_) => Self::Closed,
        }
    }
}

/// Whether a worker that does not answer has stopped its runs. *Source*: `spec/safety.md 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The worker stops its runs by itself: from `at` on no job of this Workload runs there or can start there.
    Closes {
        /// That time, by the clock of this pass.
        at: Timestamp,
    },
    /// An earlier process of this manager recorded that the worker stops its runs by `at`; this process was never connected to the worker.
    Recorded {
        /// That time, by the clock of this pass.
        at: Timestamp,
    },
    /// No fence can be relied on: the worker has none, or its engine was silent when it was last seen, or the copy was sent under another
    /// policy.
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

/// Which manager and Workload a remote object belongs to.
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

impl Said {
    /// Whether this reason of `Finished` says that the job ended, and not that the worker lost the job or the match of job and Workload.
    pub fn is_end(&self) -> bool {
        super::false_end(&self.reason).is_none()
    }
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
    /// The answer of the worker's queue.
    pub answer: Answer,
    /// The worker's own text for that answer: why there is no room, or which check is waited for. May be empty.
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
    /// The queue has not looked at the copy yet.
    None,
    /// The copy holds quota (`QuotaReserved` is True).
    Reserved,
    /// The queue has looked at the copy and has no room (`QuotaReserved` is False).
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
    /// Whether it has our finalizer, which keeps it until its outcome is stored on the manager.
    pub kept: bool,
    /// How its copies match the objects of the local job.
    pub twins: Twins,
}

/// How the copies of a job match its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twins {
    /// Each object has its copy, and each copy its object.
    All,
    /// Each object has its copy, but a copy lacks a change that its object got later.
    Outdated,
    /// In a group, a member has no copy yet, or the member of a copy is gone.
    Some,
}

/// What is known of the pods of a job on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsThere {
    /// The job may start pods, or its status counts some.
    Some,
    /// The job is held back and its status counts no pods. That proves nothing: its kind does not count pods that are being ended, or lets
    /// running pods go on to their end. Only the removal of the job shows that no pod is left.
    Untold,
    /// The job is held back and its status counts no pods, not even pods that are being ended.
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

    /// The highest dispatch number on a copy of ours in this cluster; numbers above the believed maximum do not count.
    pub(super) fn highest_epoch(&self) -> u64 {
        let numbers = [
            self.our_workload().map(|w| w.epoch),
            self.our_job().map(|j| j.epoch),
        ];
        let believed = numbers.into_iter().flatten().filter(|n| *n <= EPOCH_BELIEVED_MAX);
        believed.max().unwrap_or_default()
    }

    /// Whether a copy in this cluster was sent for an earlier dispatch.
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

    /// Whether this cluster has a job of ours that has not ended. Why also a held job: its status may be older than its last pods, so only
    /// a job that is gone has certainly no pods.
    pub(super) fn has_unended_job(&self) -> bool {
        self.our_job().is_some_and(|job| !job.finished)
    }

    /// Whether no job of ours runs in this cluster or can start by itself: the worker starts a job only for an active, unfinished Workload.
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
    /// How long the manager waits for a lost worker.
    pub worker_lost_timeout: SignedDuration,
    /// What happens after that time.
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
    /// The job stays on its worker until that worker answers, or an administrator gives the runs there up.
    Wait,
    /// The job runs again elsewhere once the worker's fence has stopped it, or must have by the record of an earlier process of this
    /// manager. Without such a fence the manager waits as with [`Self::Wait`].
    Fence,
    /// The job runs again elsewhere after the timeout, perhaps while the lost copy still runs.
    RetryAnyway,
}

/// The Workload that goes before another one, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The pods of both are to run in the same cluster, so the other one is placed first.
    Placed(String),
    /// Both describe the same job, which must not run twice.
    SameJob(String),
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
    /// The job does not match its Workload there any more.
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

/// A remembered failure: the cluster is no candidate before `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When the cluster may be tried again. If it lacks an object: when it is looked at again.
    pub until: Timestamp,
    /// What went wrong.
    pub cause: Cause,
    /// The error or message behind the cause; may be empty.
    pub detail: String,
}

impl Failure {
    /// Whether the cluster is no candidate at `now`. Why a lacking object excludes it after `until` too: the manager looks for the
    /// object before it offers the Workload again, so a Workload that still lacks it costs no write.
    pub fn excludes(&self, now: Timestamp) -> bool {
        !self.is_over(now) || self.cause == Cause::DependencyMissing
    }

    /// Whether the time of this failure is over at `now`.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now
    }
}
