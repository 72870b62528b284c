//! The contract of a job kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_core::note::Note;
use roadstead_kinds::Kind;
use serde_json::Value;
use thiserror::Error as ThisError;

use crate::json;
use crate::needs::{self, Need};
use crate::podset::{InjectError, PodSetInfo};
use crate::problem::Problem;
use crate::remote::RemoteIdentity;
use crate::webhook::Defaulting;

/// One homogeneous group of pods of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct JobPodSet {
    /// Its name, lower case.
    pub name: String,
    /// How many pods.
    pub count: u32,
    /// With how few it could start.
    pub min_count: Option<u32>,
    /// The pod template, as the job has it.
    pub template: Value,
}

impl fmt::Debug for JobPodSet {
    /// Leaves the template out: environment variables of its containers may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobPodSet")
            .field("name", &self.name)
            .field("count", &self.count)
            .field("min_count", &self.min_count)
            .finish_non_exhaustive()
    }
}

/// Why a job cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// A field is missing or not of the type it should be.
    #[error("field {field} of the job is {found}, expected {expected}")]
    Malformed {
        /// The field.
        field: String,
        /// What is there, as JSON type or value.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// What says of which pods it consists is not there yet.
    #[error("{message}")]
    Awaited {
        /// What is waited for.
        message: String,
    },
    /// The members of a group are too few, or do not fit together; another member mends it.
    #[error("{message}")]
    Unfit {
        /// What does not fit.
        message: String,
    },
}

impl Error {
    /// A field holds a value of another type, or none.
    pub(crate) fn malformed(field: String, found: Option<&Value>, expected: &'static str) -> Self {
        let found = found.map_or("missing", json::type_of).to_owned();
        Self::Malformed {
            field,
            found,
            expected,
        }
    }
}

/// Which part of an object a patch is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The object itself.
    Main,
    /// Its status subresource.
    Status,
}

/// One object of a job: most kinds have one, a group of pods has many.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Its metadata.
    pub meta: &'a ObjectMeta,
    /// All but its metadata: `spec`, `status`.
    pub data: &'a Value,
}

impl Member<'_> {
    /// What a write names it by.
    pub fn id(&self) -> MemberId {
        MemberId {
            name: self.meta.name.clone().unwrap_or_default(),
            uid: self.meta.uid.clone().unwrap_or_default(),
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

/// One object of a job that may be changed.
pub struct MemberMut<'a> {
    /// Its metadata.
    pub meta: &'a mut ObjectMeta,
    /// All but its metadata.
    pub data: &'a mut Value,
}

impl MemberMut<'_> {
    /// The same, to be read.
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
    /// These objects; `None` when there are none.
    pub fn new(all: &'a [Member<'a>]) -> Option<Self> {
        let first = *all.first()?;
        Some(Self { first, all })
    }

    /// A job that is one object.
    pub const fn one(member: &'a Member<'a>) -> Self {
        Self {
            first: *member,
            all: std::slice::from_ref(member),
        }
    }

    /// The one object of most kinds; of a group the member that speaks for it.
    pub const fn first(self) -> Member<'a> {
        self.first
    }

    /// All of them.
    pub const fn all(self) -> &'a [Member<'a>] {
        self.all
    }
}

/// A member in the namespace of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberId {
    /// Its name.
    pub name: String,
    /// Its UID: an object that was made anew under that name is not meant.
    pub uid: String,
}

/// One idempotent write of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Send a JSON merge patch.
    Patch {
        /// To which member.
        of: MemberId,
        /// To which part of it.
        target: Target,
        /// What to send.
        patch: Value,
    },
    /// Delete a member.
    Delete {
        /// Which one.
        of: MemberId,
    },
    /// Put a pod on a node.
    Bind {
        /// Which one.
        of: MemberId,
        /// On which one.
        node: String,
    },
}

/// Why a job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why<'a> {
    /// The reason, as a condition has it.
    pub reason: &'a str,
    /// A sentence for people.
    pub message: &'a str,
    /// Whether its Workload is being deleted, so that nothing will start it again.
    pub for_good: bool,
    /// The time.
    pub now: Timestamp,
}

/// Whether one pod asks for more of any resource than another one; of each its object or its template.
pub type AsksForMore = fn(&Value, &Value) -> bool;

/// What is to be done about the members of a group. *Source*: `spec/jobs.md 12.5, 12.6`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tending {
    /// What to write.
    pub writes: Vec<Write>,
    /// What to tell once that is written.
    pub told: Vec<Told>,
    /// The members that own its Workload.
    pub kept: Vec<MemberId>,
    /// Whether its Workload describes it.
    pub fits: bool,
    /// How far its members are.
    pub stand: Stand,
    /// How many pods of its Workload have no member; `None` while there is no Workload.
    pub missing: Option<u32>,
}

/// How far the members of a group are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stand {
    /// All that are not over are held back.
    #[default]
    Held,
    /// Some are held back, others are let go.
    Partly,
    /// None is held back, and some are not over.
    Running,
    /// All are over.
    Over,
    /// All are being deleted, and none has ever run.
    Gone,
}

/// An Event about one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Which one.
    pub of: MemberId,
    /// What to tell.
    pub note: Note,
}

/// How a job is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether it is held back, and no stop is under way.
    pub suspended: bool,
    /// Whether it has pods.
    pub pods: Pods,
    /// Whether all its pods are ready or done.
    pub ready: bool,
    /// How it ended, if it ended.
    pub ended: Option<Outcome>,
    /// Whether it failed only because it was deleted: its pods were ended before it, so its end says nothing about what they did.
    pub killed: bool,
    /// Pods it will not need any more, by pod set; only positive counts.
    pub reclaimable: BTreeMap<PodSetName, u32>,
}

impl Look {
    /// Whether it is held back and no pod of it may be alive: then it may start elsewhere.
    pub fn at_rest(&self) -> bool {
        self.suspended && self.pods == Pods::None
    }
}

/// Whether a job has pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pods {
    /// It has none.
    #[default]
    None,
    /// All it has are being ended: its quota is no longer used, but it may not start elsewhere.
    Ending,
    /// Its status counts none, but a status of its kind does not count pods that are being ended: only when its object is gone
    /// is it certain that it has none.
    Untold,
    /// It has some: its quota is used.
    Alive,
    /// All it has are being ended. Its quota is used until they are over, or until this time: their node may never say so.
    AliveUntil(Timestamp),
}

/// What is known of a job in another cluster.
#[derive(Clone, Copy, Debug)]
pub enum Remote<'a> {
    /// Its copies there, as last seen.
    Copies(Members<'a>),
    /// It has no pods anywhere, whatever was last shown of it.
    AtRest,
    /// It ended like this, and no copy of it is left.
    Ended(&'a Outcome),
}

/// How to bring the status of a local job in line with what is known of it elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    /// What to write.
    pub writes: Vec<Write>,
    /// Whether it cannot be shown as a whole yet: then it is looked at again in about two seconds.
    pub is_deferred: bool,
}

/// How the objects of a job and its copies differ, one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// Names of the objects that have no copy yet.
    pub lacking: BTreeSet<String>,
    /// Copies that no object stands for any more.
    pub stray: Vec<MemberId>,
}

/// What a pod carries so that it is queued together with the others of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The name of the group, which is that of its Workload.
    pub group: String,
    /// How many pods it has.
    pub total: u32,
    /// The pod set of the pod.
    pub role: &'static str,
    /// Which of the groups of its parent it is, where that has more than one.
    pub index: Option<u32>,
    /// Further annotations.
    pub notes: &'static [(&'static str, &'static str)],
}

/// What the queue must know about a kind of job. *Source*: `spec/jobs.md 9, 10`.
///
/// All methods are total: a job that lacks fields is treated as the API's defaults say.
pub trait JobKind: Send + Sync {
    /// Its row of the table.
    fn kind(&self) -> &'static Kind;

    /// The group to which an object belongs, whose members are one job together; `None`: it is a job by itself.
    fn group_of<'a>(&self, _meta: &'a ObjectMeta) -> Option<&'a str> {
        None
    }

    /// The kind of what its controller makes of a job under the name of the job, and which says of which pods the job consists: its
    /// second member, once it is there.
    fn companion(&self) -> Option<&'static Kind> {
        None
    }

    /// The label selector of the objects that are looked at; `None`: all.
    fn selector(&self) -> Option<&'static str> {
        None
    }

    /// Its pods.
    ///
    /// *Errors*: the job is not what its schema says, or is a group that is not complete.
    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error>;

    /// How it is doing. Also asked of copies without their details ([`Self::forget_details`]).
    fn look(&self, members: Members<'_>) -> Look;

    /// The writes that let it run with what was assigned.
    ///
    /// *Errors*: permanent ones, see [`InjectError`].
    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError>;

    /// The writes that stop it and restore its templates, in order; those not needed are left out, so a stopped job has
    /// none. `original` are the pod sets of the Workload; when their number does not fit, nothing is restored.
    fn stop(&self, members: Members<'_>, original: &[JobPodSet], why: &Why<'_>) -> Vec<Write>;

    /// What is to be done about the members of a group, whose Workload has these pod sets; `None`: it is no group.
    fn tend(
        &self,
        _members: Members<'_>,
        _workload: Option<&[JobPodSet]>,
        _asks_for_more: AsksForMore,
    ) -> Option<Tending> {
        None
    }

    /// Whether its objects are deleted when its Workload is, also those that are held back.
    fn ends_with_workload(&self) -> bool {
        false
    }

    /// The writes that let its objects go once their end has been counted.
    fn release(&self, _members: Members<'_>) -> Vec<Write> {
        Vec::new()
    }

    /// The objects to create on a worker. `original` are the pod sets of the Workload: what was injected here stays here.
    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        original: &[JobPodSet],
    ) -> Vec<Value>;

    /// How the objects of a job and its copies differ. None of a kind whose jobs are one object.
    fn unmatched(&self, _local: Members<'_>, _copies: Members<'_>) -> Unmatched {
        Unmatched::default()
    }

    /// The next writes that put objects of a local job, whose copies run, on the node that stands for their cluster.
    fn settle(&self, _local: Members<'_>, _copies: Members<'_>, _node: &str) -> Vec<Write> {
        Vec::new()
    }

    /// Whether all its objects that are not held are on such a node, so that nothing of it runs in this cluster.
    fn is_shown_on_nodes(&self, _local: Members<'_>) -> bool {
        false
    }

    /// How to show on a local job what is known of it elsewhere. Never sent to a job that a controller of its own looks after.
    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror;

    /// What makes a job that is held back say so where no controller of its own does; `None` if it does already, or the kind has no
    /// word for it.
    fn show_wait(&self, _local: Members<'_>, _now: Timestamp) -> Option<Write> {
        None
    }

    /// Holds one member back.
    fn suspend(&self, member: &mut MemberMut<'_>);

    /// Takes out that it is removed by itself some time after its end: a manager must see that first, or it runs again.
    fn outlast_its_end(&self, member: &mut MemberMut<'_>);

    /// Takes out of a copy on a worker what is not asked of it: the manager only asks how it is doing, and its pod templates
    /// are most of what it weighs in memory.
    fn forget_details(&self, copy: &mut MemberMut<'_>);

    /// Where the templates of its pod sets stand, in the order of [`JobKind::pod_sets`], such as `spec.template`.
    fn template_paths(&self, members: Members<'_>) -> Vec<String>;

    /// What its pods name and cannot start without.
    fn needs(&self, members: Members<'_>) -> BTreeSet<Need> {
        let pod_sets = self.pod_sets(members).unwrap_or_default();
        needs::of(pod_sets.iter().map(|set| &set.template))
    }

    /// Whether a queue has to do with this object at all; if not, it is left alone, whatever its labels say.
    fn is_queued(&self, _job: Member<'_>) -> bool {
        true
    }

    /// Whether what its controller made of a job is held for good, though the job is not: then that is deleted, and made anew.
    fn outlives(&self, _job: Member<'_>, _child: Member<'_>) -> bool {
        false
    }

    /// The name of the object of this kind whose pod this is; `None` when the pods of the kind are queued one by one.
    fn parent_of<'a>(&self, _pod: &'a ObjectMeta) -> Option<&'a str> {
        None
    }

    /// What a pod of such an object gets, so that it is queued together with others.
    fn mark(&self, _parent: Member<'_>, _pod: &ObjectMeta) -> Option<Mark> {
        None
    }

    /// The pod sets of a group whose members an object of another kind makes, from what that object says.
    fn pod_sets_within(&self, _members: Members<'_>, of_parent: Vec<JobPodSet>) -> Vec<JobPodSet> {
        of_parent
    }

    /// The priority class that the kind itself declares, beside those of its pods. *Source*: `spec/jobs.md 5.13`.
    fn priority_class<'a>(&self, _members: Members<'a>) -> Option<&'a str> {
        None
    }

    /// How the kind fills in new objects, if it does so in a way of its own and not as all kinds do.
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
