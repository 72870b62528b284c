//! The contract of a job kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::constants::{annotations, labels};
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_core::note::Note;
use roadstead_kinds::Kind;
use serde_json::Value;
use thiserror::Error as ThisError;

use crate::json;
use crate::labels::annotation;
use crate::needs::{self, Need};
use crate::podset::{InjectError, JobPodSet, PodSetInfo};
use crate::problem::Problem;

mod defaulting;

pub use defaulting::{DefaultFacts, Defaulting, Namespace, Owner, Presence};

/// Why the pod sets of a job cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// A field is missing or not of the type it should be.
    #[error("field {field} of the job is {found}, expected {expected}")]
    Malformed {
        /// The field.
        field: String,
        /// The value found, as JSON type or value.
        found: String,
        /// The value that is expected.
        expected: &'static str,
    },
    /// The object that describes the pods of the job does not exist yet.
    #[error("{message}")]
    Awaited {
        /// The object that is missing.
        message: String,
    },
    /// The group has too few members, or members that do not fit together. Another member can mend that.
    #[error("{message}")]
    Unfit {
        /// What does not fit.
        message: String,
    },
}

impl Error {
    /// The error for a field with a value of another type, or without one.
    pub(crate) fn malformed(field: String, found: Option<&Value>, expected: &'static str) -> Self {
        let found = found.map_or("missing", json::type_of).to_owned();
        Self::Malformed {
            field,
            found,
            expected,
        }
    }
}

/// The part of an object that a patch is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The object itself.
    Main,
    /// Its status subresource.
    Status,
}

/// An object of a job: most kinds have one object, a group of pods has many.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Its metadata.
    pub meta: &'a ObjectMeta,
    /// Everything but its metadata: `spec`, `status`.
    pub data: &'a Value,
}

impl Member<'_> {
    /// The identity by which a write names it.
    pub fn id(&self) -> MemberId {
        MemberId {
            name: self.meta.name.clone().unwrap_or_default(),
            uid: self.meta.uid.clone().unwrap_or_default(),
        }
    }

    /// Whether annotation `kueue.x-k8s.io/stopping` says that a stop is under way.
    pub(crate) fn is_stopping(&self) -> bool {
        annotation(self.meta, annotations::STOPPING) == Some(labels::TRUE)
    }

    pub(crate) fn patched(&self, target: Target, patch: Value) -> Write {
        Write::Patch {
            of: self.id(),
            target,
            patch,
        }
    }
}

impl fmt::Debug for Member<'_> {
    /// Leaves the data out: environment variables of its containers may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("name", &self.meta.name)
            .finish_non_exhaustive()
    }
}

/// An object of a job that may be changed.
pub struct MemberMut<'a> {
    /// Its metadata.
    pub meta: &'a mut ObjectMeta,
    /// Everything but its metadata.
    pub data: &'a mut Value,
}

impl MemberMut<'_> {
    /// The same object, read-only.
    pub const fn as_member(&self) -> Member<'_> {
        Member {
            meta: self.meta,
            data: self.data,
        }
    }
}

/// All objects of one job, sorted by name. Invariant: there is at least one.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    first: Member<'a>,
    all: &'a [Member<'a>],
}

impl<'a> Members<'a> {
    /// The members in this slice; `None` when it is empty.
    pub fn new(all: &'a [Member<'a>]) -> Option<Self> {
        let first = *all.first()?;
        Some(Self { first, all })
    }

    /// A job of one object.
    pub const fn one(member: &'a Member<'a>) -> Self {
        Self {
            first: *member,
            all: std::slice::from_ref(member),
        }
    }

    /// The only object of most kinds; the member that represents a group.
    pub const fn first(self) -> Member<'a> {
        self.first
    }

    /// All members.
    pub const fn all(self) -> &'a [Member<'a>] {
        self.all
    }
}

/// A member in the namespace of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberId {
    /// Name of the object.
    pub name: String,
    /// Its UID, so that a later object of the same name is not written to.
    pub uid: String,
}

/// One idempotent write of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Send a JSON merge patch.
    Patch {
        /// The member to patch.
        of: MemberId,
        /// The part of the member.
        target: Target,
        /// The patch.
        patch: Value,
    },
    /// Delete a member.
    Delete {
        /// The member to delete.
        of: MemberId,
    },
    /// Put a pod on a node.
    Bind {
        /// The pod to bind.
        of: MemberId,
        /// The name of the node.
        node: String,
    },
}

/// Why a job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why<'a> {
    /// The reason, as in a condition.
    pub reason: &'a str,
    /// A sentence for people.
    pub message: &'a str,
    /// Whether its Workload is being deleted, so that nothing will start it again.
    pub for_good: bool,
    /// The time of the stop.
    pub now: Timestamp,
}

/// Whether the first pod requests more of any resource than the second; each is given as object or as template.
pub type AsksForMore = fn(&Value, &Value) -> bool;

/// What to do about the members of a group. *Source*: `spec/jobs.md 12.5, 12.6`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tending {
    /// The writes.
    pub writes: Vec<Write>,
    /// Events to emit after the writes.
    pub told: Vec<Told>,
    /// The members that own its Workload.
    pub kept: Vec<MemberId>,
    /// Whether its Workload describes it.
    pub fits: bool,
    /// The state of its members.
    pub stand: Stand,
    /// How many pods of its Workload have no member; `None` while there is no Workload.
    pub missing: Option<u32>,
}

/// The state of the members of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stand {
    /// All members that have not ended are held.
    #[default]
    Held,
    /// Some members are held, others run.
    Partly,
    /// No member is held, and some have not ended.
    Running,
    /// All members have ended.
    Over,
    /// All members are being deleted, and none has ever run.
    Gone,
}

/// An Event about one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The member.
    pub of: MemberId,
    /// The Event.
    pub note: Note,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether it is suspended, and no stop is under way.
    pub suspended: bool,
    /// Whether it has pods.
    pub pods: Pods,
    /// Whether all its pods are ready or done.
    pub ready: bool,
    /// How it ended, if it ended.
    pub ended: Option<Outcome>,
    /// Whether it failed only because it was deleted. Its pods were terminated first, so this end says nothing about their work.
    pub killed: bool,
    /// Pods that are no longer needed, by pod set; only positive counts.
    pub reclaimable: BTreeMap<PodSetName, u32>,
}

impl Look {
    /// Whether it is suspended and certainly has no living pods, so that it may start elsewhere.
    pub fn at_rest(&self) -> bool {
        self.suspended && self.pods == Pods::None
    }
}

/// Whether a job has pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pods {
    /// It has no pods.
    #[default]
    None,
    /// All its pods are terminating: its quota is no longer used, but it may not start elsewhere.
    Ending,
    /// Its status counts no pods, but statuses of its kind do not count terminating pods. Only when its object is gone is it certain that
    /// it has none.
    Untold,
    /// It has pods: its quota is used.
    Alive,
    /// All its pods are terminating. Its quota is used until they have ended, or until this time, because their node may never report the
    /// end.
    AliveUntil(Timestamp),
}

/// The manager and the Workload that a copy belongs to.
#[derive(Clone, Copy, Debug)]
pub struct RemoteIdentity<'a> {
    /// The origin of the manager.
    pub origin: &'a str,
    /// Name of the Workload, the same on both sides.
    pub workload: &'a str,
}

/// The manager's knowledge of a job in another cluster.
#[derive(Clone, Copy, Debug)]
pub enum Remote<'a> {
    /// Its copies there, as last seen.
    Copies(Members<'a>),
    /// It has no pods anywhere, whatever the local status shows.
    AtRest,
    /// It ended like this, and no copy of it is left.
    Ended(&'a Outcome),
}

/// The writes that update the status of a local job from its copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    /// The writes.
    pub writes: Vec<Write>,
    /// Whether a part of the status cannot be shown yet: then the mirror is repeated after about two seconds.
    pub is_deferred: bool,
}

/// The differences between the objects of a job and its copies, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// Names of the objects that have no copy yet.
    pub lacking: BTreeSet<String>,
    /// Copies without a local object.
    pub stray: Vec<MemberId>,
}

/// A change that an object got after its copy was sent, and that the copy lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// The copy.
    pub copy: MemberId,
    /// The merge patch for it, with its version.
    pub patch: Value,
}

/// The fields that a pod gets so that it is queued together with the others of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The name of the group, which is also the name of its Workload.
    pub group: String,
    /// The number of pods of the group.
    pub total: u32,
    /// The pod set of the pod.
    pub role: &'static str,
    /// The index of the group, where its parent has more than one group.
    pub index: Option<u32>,
    /// Further annotations.
    pub notes: &'static [(&'static str, &'static str)],
}

/// The object that made a pod and other pods that must run in the same cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker<'a> {
    /// Its name.
    pub name: &'a str,
    /// The version of its template from which the pod was made; empty when that is not known.
    pub revision: &'a str,
}

/// The contract of a kind of job. *Source*: `spec/jobs.md 9, 10`.
///
/// All methods are total: for missing fields the defaults of the API apply.
pub trait JobKind: Send + Sync {
    /// Its row of the table.
    fn kind(&self) -> &'static Kind;

    /// Whether only its dispatch is done here, because a controller of the user runs its jobs and makes their Workloads. The engine neither
    /// starts, stops, holds nor reviews such a job, and makes no Workload for it.
    fn is_external(&self) -> bool {
        false
    }

    /// The group of an object, whose members are one job together; `None` when the object is a job by itself.
    fn group_of<'a>(&self, _meta: &'a ObjectMeta) -> Option<&'a str> {
        None
    }

    /// The kind of the object that the controller of this kind creates under the name of the job, and that describes its pods. It is the
    /// second member of the job, once it exists.
    fn companion(&self) -> Option<&'static Kind> {
        None
    }

    /// The label selector of the objects that are watched; `None` means all.
    fn selector(&self) -> Option<&'static str> {
        None
    }

    /// The pod sets of the job.
    ///
    /// *Errors*: the job does not fit its schema, or is an incomplete group.
    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error>;

    /// The state of the job. Also called for copies without their details ([`Self::forget_details`]).
    fn look(&self, members: Members<'_>) -> Look;

    /// The writes that start the job with its assignment.
    ///
    /// *Errors*: permanent ones, see [`InjectError`].
    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError>;

    /// The writes that stop the job and restore its templates, in order. Superfluous writes are left out, so a stopped job has none.
    /// `original` are the pod sets of the Workload; when their number does not fit, nothing is restored.
    fn stop(&self, members: Members<'_>, original: &[JobPodSet], why: &Why<'_>) -> Vec<Write>;

    /// What to do about the members of a group, given the pod sets of its Workload if that exists; `None` when the kind has no groups.
    fn tend(
        &self,
        _members: Members<'_>,
        _workload: Option<&[JobPodSet]>,
        _asks_for_more: AsksForMore,
    ) -> Option<Tending> {
        None
    }

    /// Whether its objects, even held ones, are deleted together with its Workload.
    fn ends_with_workload(&self) -> bool {
        false
    }

    /// Whether running pods go on to their end when the job is stopped. Then only the removal of the job ends them earlier.
    fn stop_leaves_pods(&self) -> bool {
        false
    }

    /// The writes that remove our finalizers once the end of the job has been counted.
    fn release(&self, _members: Members<'_>) -> Vec<Write> {
        Vec::new()
    }

    /// The objects to create on a worker. `original` are the pod sets of the Workload, without what a start in this cluster has added.
    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        original: &[JobPodSet],
    ) -> Vec<Value>;

    /// The differences between the objects of a job and its copies. Empty for a kind whose jobs are one object.
    fn unmatched(&self, _local: Members<'_>, _copies: Members<'_>) -> Unmatched {
        Unmatched::default()
    }

    /// The changes of the objects of a job that their copies lack. Empty for a kind whose objects do not change after they were sent.
    fn later(&self, _local: Members<'_>, _copies: Members<'_>) -> Vec<Later> {
        Vec::new()
    }

    /// The next writes that put the objects of a local job on the virtual node that stands for the cluster where their copies run.
    fn settle(&self, _local: Members<'_>, _copies: Members<'_>, _node: &str) -> Vec<Write> {
        Vec::new()
    }

    /// Whether all its objects that are not held are on the virtual node of a worker cluster, so that nothing of it runs in this cluster.
    fn is_shown_on_nodes(&self, _local: Members<'_>) -> bool {
        false
    }

    /// The writes that show the state of the copies on the local job. They are not sent to a job that a controller in this cluster manages.
    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror;

    /// The write that makes a suspended job show that it is suspended, where no controller in this cluster writes that. `None` when the job
    /// shows it already, or the kind cannot show it.
    fn show_wait(&self, _local: Members<'_>, _now: Timestamp) -> Option<Write> {
        None
    }

    /// Suspends one member.
    fn suspend(&self, member: &mut MemberMut<'_>);

    /// Removes the field by which the job deletes itself some time after its end. A manager must see the end first, otherwise it runs the
    /// job again.
    fn outlast_its_end(&self, member: &mut MemberMut<'_>);

    /// Removes from the cached copy of a job on a worker what the manager does not need. Pod templates take most of its memory, and the
    /// manager only needs its state.
    fn forget_details(&self, copy: &mut MemberMut<'_>);

    /// Makes a job smaller before it is cached. The other methods of the kind accept both forms; nothing else reads the parts that are
    /// packed.
    fn pack(&self, _job: &mut MemberMut<'_>) {}

    /// The paths of the templates of its pod sets, in the order of [`JobKind::pod_sets`], such as `spec.template`.
    fn template_paths(&self, members: Members<'_>) -> Vec<String>;

    /// The objects that its pods name and cannot start without.
    fn needs(&self, members: Members<'_>) -> BTreeSet<Need> {
        let pod_sets = self.pod_sets(members).unwrap_or_default();
        needs::of(pod_sets.iter().map(|set| &set.template))
    }

    /// The objects that its pods name and can start without.
    fn wants(&self, members: Members<'_>) -> BTreeSet<Need> {
        let pod_sets = self.pod_sets(members).unwrap_or_default();
        needs::wanted(pod_sets.iter().map(|set| &set.template))
    }

    /// Whether this object is queued at all; otherwise it is left alone, whatever its labels say.
    fn is_queued(&self, _job: Member<'_>) -> bool {
        true
    }

    /// Whether a child of a running job stays suspended for good. Such a child is deleted, and its controller creates it again.
    fn outlives(&self, _job: Member<'_>, _child: Member<'_>) -> bool {
        false
    }

    /// The name of the object of this kind that owns this pod; `None` when the pods of the kind are queued one by one.
    fn parent_of<'a>(&self, _pod: &'a ObjectMeta) -> Option<&'a str> {
        None
    }

    /// The object of this kind that made this pod; `None` when its pods need not run in the same cluster, or are one group anyway.
    fn maker_of<'a>(&self, _pod: &'a ObjectMeta) -> Option<Maker<'a>> {
        None
    }

    /// The fields that a pod gets from its parent of this kind, so that it is queued together with the other pods of its group.
    fn mark(&self, _parent: Member<'_>, _pod: &ObjectMeta) -> Option<Mark> {
        None
    }

    /// The pod sets of a group whose members belong to an object of another kind; `of_parent` are those that this object describes.
    fn pod_sets_within(&self, _members: Members<'_>, of_parent: Vec<JobPodSet>) -> Vec<JobPodSet> {
        of_parent
    }

    /// The priority class that the kind itself declares, apart from those of its pods. *Source*: `spec/jobs.md 5.13`.
    fn priority_class<'a>(&self, _members: Members<'a>) -> Option<&'a str> {
        None
    }

    /// The kind's own function to fill in new objects; `None` when the common one applies.
    fn defaulting(&self) -> Option<Defaulting> {
        None
    }

    /// The kind's own defaults for a new job, after those of all kinds.
    fn own_defaults(&self, _job: &mut MemberMut<'_>) {}

    /// The kind's own rules for a new job.
    fn own_problems(&self, job: Member<'_>) -> Vec<Problem>;

    /// The kind's own rules for a change.
    fn own_update_problems(&self, old: Member<'_>, new: Member<'_>) -> Vec<Problem>;

    /// The controller that runs the job, if the job names one.
    fn manager_of<'a>(&self, job: Member<'a>) -> Option<&'a str> {
        json::text(job.data, self.kind().managed_by?.path).filter(|name| !name.is_empty())
    }
}
