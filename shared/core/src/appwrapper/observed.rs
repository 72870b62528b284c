//! What the controller sees of one `AppWrapper`.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::Knobs;
use super::status::{Identity, PodSet, Status};
use crate::name::{ResourceName, Uid};

/// Everything [`plan`](super::plan) looks at.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Its status, as stored.
    pub status: &'a Status,
    /// `spec.suspend`.
    pub suspended: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// Its components, in the order of the spec.
    pub components: &'a [Component],
    /// The pods that carry its label.
    pub pods: Pods<'a>,
    /// What running pods must leave, by node. *Source*: `spec/appwrapper.md 4.4`.
    pub evict: &'a BTreeMap<String, BTreeSet<ResourceName>>,
    /// How patient to be with it.
    pub knobs: &'a Knobs,
    /// What became of the creations of this pass, by component.
    pub created: &'a BTreeMap<usize, Created>,
}

/// One component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// What its child is, or will be.
    pub identity: Identity,
    /// Where its pods come from, declared or inferred.
    pub pod_sets: Vec<PodSet>,
    /// How its end is known.
    pub nature: Nature,
    /// Whether the end of the `AppWrapper` waits for it.
    pub role: Role,
    /// Its child.
    pub child: Child,
}

/// How the end of a component is known. *Source*: `spec/appwrapper.md 8.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nature {
    /// The child says it, and what its failed pods mean is its business.
    Reports,
    /// By its pods.
    Counted,
    /// It has no end of its own.
    Endless,
}

/// Whether the end of an `AppWrapper` waits for a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It does.
    Member,
    /// It serves the others and is stopped when they are done.
    Service,
}

/// The child of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Child {
    /// It certainly does not exist.
    Missing,
    /// The name is taken by an object that is not ours.
    Foreign(Stranger),
    /// It exists and is ours.
    Present {
        /// Its UID.
        uid: Uid,
        /// Whether it is being deleted.
        leaving: bool,
        /// How it ended, if it says so.
        verdict: Option<Verdict>,
    },
    /// It could not be read; why.
    Unread(String),
}

/// Of what kind a foreign object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    /// It belongs to an earlier `AppWrapper` of the same name and will go with it.
    Predecessor,
    /// It is there to stay.
    Other,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It has done its work.
    Succeeded,
    /// It gave up.
    Failed,
}

/// The pods with the label of an `AppWrapper`.
#[derive(Clone, Copy, Debug)]
pub enum Pods<'a> {
    /// All of them.
    Known(&'a [Pod]),
    /// They could not be listed; why.
    Unread(&'a str),
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// Its phase.
    pub phase: PodPhase,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// From where it comes.
    pub origin: Origin,
    /// Where it runs.
    pub node: Option<String>,
    /// What its ordinary containers ask for, but for what they ask zero of.
    pub resources: BTreeSet<ResourceName>,
    /// Exit codes of its ordinary containers that have ended with an error.
    pub exit_codes: BTreeSet<i32>,
}

/// From where a pod comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// From this component.
    Component(usize),
    /// It cannot be told; counted, because quota must not be freed while it runs.
    Unknown,
    /// It carries the label, but no controller, and is no child: it holds up deletion, and says nothing about health.
    Stray,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// It has not started.
    Pending,
    /// A container runs.
    Running,
    /// All containers have ended well.
    Succeeded,
    /// All containers have ended, one of them badly.
    Failed,
    /// Its node does not answer.
    Unknown,
}

impl Pod {
    /// Whether it may use its node: quota must be held for it.
    pub const fn is_live(&self) -> bool {
        match self.phase {
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => true,
            PodPhase::Succeeded | PodPhase::Failed => false,
        }
    }
}

/// What became of the creation of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// It exists.
    Done,
    /// It does not; trying again may help.
    Retryable(String),
    /// It may exist, because there was no answer; trying again tells.
    Unclear(String),
    /// It does not, and never will.
    Fatal(String),
}
