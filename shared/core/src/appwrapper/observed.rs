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
    /// Whether `spec.suspend` is true.
    pub suspended: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// Its components, in the order of the spec.
    pub components: &'a [Component],
    /// The pods that carry its label.
    pub pods: Pods<'a>,
    /// Resources whose running pods must leave, by node. *Source*: `spec/appwrapper.md 4.4`.
    pub evict: &'a BTreeMap<String, BTreeSet<ResourceName>>,
    /// The timers and limits that apply to it.
    pub knobs: &'a Knobs,
    /// The results of the creations of this pass, by component.
    pub created: &'a BTreeMap<usize, Created>,
    /// The planted bug, if there is one.
    #[cfg(feature = "bugbank")]
    pub bug: Option<crate::dispatch::Bug>,
}

/// One component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// What its child is, or will be.
    pub identity: Identity,
    /// The source of its pods, declared or inferred.
    pub pod_sets: Vec<PodSet>,
    /// How the controller learns that the component has ended.
    pub nature: Nature,
    /// Whether the end of the `AppWrapper` waits for it.
    pub role: Role,
    /// Its child, as read.
    pub child: Child,
}

impl Component {
    /// The origin of pods that its child makes; `index` is the component's own.
    ///
    /// A component without pod sets makes pods from the templates of another one, as a `TrainJob` does from its runtime, and the other
    /// one says how many. *Source*: `spec/appwrapper.md` N-35.
    pub const fn origin(&self, index: usize) -> Origin {
        if self.pod_sets.is_empty() {
            Origin::Unknown
        } else {
            Origin::Component(index)
        }
    }
}

/// How the controller learns that a component has ended. *Source*: `spec/appwrapper.md 8.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nature {
    /// The child reports its end, and decides itself what its failed pods mean.
    Reports,
    /// The pods of the component are counted.
    Counted,
    /// It has no end of its own.
    Endless,
}

/// Whether the end of an `AppWrapper` waits for a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The end of the `AppWrapper` waits for it.
    Member,
    /// It serves the other components and is stopped when they are done.
    Service,
}

/// The child of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Child {
    /// The child certainly does not exist.
    Missing,
    /// Another owner's object has the name of the child.
    Foreign(Stranger),
    /// The child exists and belongs to this `AppWrapper`.
    Present {
        /// Its UID.
        uid: Uid,
        /// Whether it is being deleted.
        leaving: bool,
        /// How it ended, if it reports that.
        verdict: Option<Verdict>,
    },
    /// The child could not be read; the text says why.
    Unread(String),
}

/// What kind of owner a foreign object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    /// The object belongs to an earlier `AppWrapper` of the same name and is deleted with it.
    Predecessor,
    /// The object belongs to another owner and stays.
    Other,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The child has done its work.
    Succeeded,
    /// The child gave up.
    Failed,
}

/// The pods with the label of an `AppWrapper`.
#[derive(Clone, Copy, Debug)]
pub enum Pods<'a> {
    /// All of them.
    Known(&'a [Pod]),
    /// The pods could not be listed; the text says why.
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
    /// The component it belongs to, if known.
    pub origin: Origin,
    /// The node it runs on.
    pub node: Option<String>,
    /// The resources that its ordinary containers request; requests of zero do not count.
    pub resources: BTreeSet<ResourceName>,
    /// Exit codes of its ordinary containers that have ended with an error.
    pub exit_codes: BTreeSet<i32>,
}

/// Which component a pod belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// It belongs to this component.
    Component(usize),
    /// The component whose pod sets it stands for is unknown. It counts all the same, because quota must not be freed while it runs.
    Unknown,
    /// It carries the label, but has no controller and is no child. It delays deletion, and does not count for health.
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
    /// Whether the pod may use its node, so that quota must be held for it.
    pub const fn is_live(&self) -> bool {
        match self.phase {
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => true,
            PodPhase::Succeeded | PodPhase::Failed => false,
        }
    }
}

/// The result of creating a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The child exists.
    Done,
    /// The child does not exist; another try may help. The text is the error.
    Retryable(String),
    /// The child may exist, because no answer came; another try finds out. The text is the error.
    Unclear(String),
    /// The child does not exist and can never be created. The text is the error.
    Fatal(String),
}
