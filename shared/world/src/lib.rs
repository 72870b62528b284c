//! The parts of a cluster beside its API server: they run the pods of Jobs to their end.
//!
//! [`run`] plays, through an ordinary client and against any API server, embedded or real:
//!
//! - the Job controller of `batch/v1` (`job`), and on request the controllers of other kinds ([`Kind`]): of JobSets (`jobset`)
//!   of `PyTorchJobs` (`torch`) and of `RayJobs` (`ray`),
//! - the scheduler and the kubelets of nodes that exist only in the API (`place`, `play`),
//! - an answerer of ProvisioningRequests, from the room that the nodes have left ([`capacity`]),
//! - on request a timer that calls a garbage collector outside this crate ([`Garbage`]).
//!
//! Every part is a pure `decide` from the cluster's present objects to the writes that are due. One loop watches, decides and
//! writes. So it is level-triggered, and with the same seed, clock and answers it makes the same writes. It never reads a wall
//! clock, starts a thread or keeps a file.
//!
//! What it will never do: run a program, play a controller for kinds other than these, or touch a job with another `managedBy`.
//!
//! *Limits*: pods are not adopted by selectors; the pod failure policy, success policy, back-off per index and restarts of
//! containers are not played; no events are written; the scheduler looks at what [`capacity::fit`] looks at and never
//! preempts.
//!
//! Reading order: this file, `job`, `jobset`, `torch`, `ray`, `place`, `play`, [`capacity`], then `watched` and `cluster` (the world's
//! copy of the cluster), `action` and `act` (one write) and `turn` (the loop).

mod act;
mod action;
pub mod capacity;
mod cluster;
mod job;
mod jobset;
mod kind;
mod model;
mod node;
mod place;
mod play;
mod ray;
mod torch;
mod turn;
mod watched;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use kind::Kind;
pub use node::Node;
pub use turn::run;

/// The source of time. It may stand still or be ahead of other clocks, but must not run backwards.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The pod annotation that says how many seconds a pod runs on a played node (fractions allowed), default 1.
pub const RUN_SECONDS: &str = "demo.roadstead.dev/run-seconds";
/// The pod annotation with the exit code of a pod on a played node, default 0; anything else fails the pod.
pub const EXIT_CODE: &str = "demo.roadstead.dev/exit-code";

/// What is played in a cluster. Start from [`World::new`] or [`World::idle`].
#[derive(Debug, Clone)]
pub struct World {
    /// The seed of all random choices.
    pub seed: u64,
    /// Which controller runs Jobs.
    pub jobs: Jobs,
    /// The other kinds whose controllers are played. Their definitions ([`Kind::definition`]) may be installed after the start.
    pub kinds: BTreeSet<Kind>,
    /// Nodes to create and to play. Without nodes nothing is scheduled; pods on other nodes are left alone.
    pub nodes: Vec<Node>,
    /// Longest time that a played node takes to start a bound pod; the seed and the pod's UID choose the time.
    pub pod_start_max: Duration,
    /// Which controller answers ProvisioningRequests.
    pub capacity: Capacity,
    /// The garbage collector that this world triggers, if any.
    pub garbage: Option<Garbage>,
}

/// Which controller runs Jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// This world.
    Played,
    /// Another controller, such as kube-controller-manager.
    LeftAlone,
}

/// Which controller answers ProvisioningRequests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capacity {
    /// This world, for the requests that the policy selects.
    Answered(capacity::Policy),
    /// Another controller, or none.
    LeftAlone,
}

/// A garbage collector that works only when it is called, such as the one of the embedded API server.
#[derive(Clone)]
pub struct Garbage {
    /// How often it is called.
    pub every: Duration,
    /// Collects all garbage. Must be quick when there is none.
    pub collect: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Garbage")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl World {
    /// A world with a Job controller and an answerer of ProvisioningRequests, without nodes, as for a management cluster. For a worker
    /// add nodes with [`World::with_node`].
    pub fn new(seed: u64) -> Self {
        Self {
            jobs: Jobs::Played,
            capacity: Capacity::Answered(capacity::Policy::default()),
            ..Self::idle(seed)
        }
    }

    /// A world in which nothing is played.
    pub const fn idle(seed: u64) -> Self {
        Self {
            seed,
            jobs: Jobs::LeftAlone,
            kinds: BTreeSet::new(),
            nodes: Vec::new(),
            pod_start_max: Duration::ZERO,
            capacity: Capacity::LeftAlone,
            garbage: None,
        }
    }

    /// With the controller of one more kind.
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kinds.insert(kind);
        self
    }

    /// With one more node.
    #[must_use]
    pub fn with_node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// With a garbage collector to be called.
    #[must_use]
    pub fn with_garbage(mut self, garbage: Garbage) -> Self {
        self.garbage = Some(garbage);
        self
    }
}

/// The time as the API keeps it, in whole seconds.
fn stamp(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The earlier of two times; `None` if neither is set.
fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
