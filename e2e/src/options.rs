//! Options of a control plane.

use std::time::Duration;

pub use roadstead_world::{EXIT_CODE, Node, RUN_SECONDS};

use crate::Progress;

/// The controllers of kube-controller-manager that batch jobs need: jobs, garbage collection, namespaces, service
/// accounts and their tokens, and the aggregation that fills the cluster roles `view`, `edit` and `admin`. The names are
/// those of its flag `--controllers`.
pub const BATCH_CONTROLLERS: [&str; 8] = [
    "job-controller",
    TTL_CONTROLLER,
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "clusterrole-aggregation-controller",
];

/// The controller that removes finished jobs when their `ttlSecondsAfterFinished` is over.
pub const TTL_CONTROLLER: &str = "ttl-after-finished-controller";

/// Default limit for the start of a plane. An idle machine needs about 5 s; several planes that start
/// at once on two busy cores need ten times that.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// The JobSet controller of an embedded control plane, which serves and plays JobSets. Beside a real control plane the real
/// controller runs ([`crate::stage::Controller`]).
pub const PLAYED_JOBSETS: &str = "jobset-controller";
/// The `PyTorchJob` controller of an embedded control plane, as [`PLAYED_JOBSETS`].
pub const PLAYED_PYTORCHJOBS: &str = "pytorchjob-controller";
/// The `RayJob` controller of an embedded control plane, as [`PLAYED_JOBSETS`].
pub const PLAYED_RAYJOBS: &str = "rayjob-controller";
/// The kind that each of these controllers plays.
pub(crate) const PLAYED: [(&str, roadstead_world::Kind); 3] = [
    (PLAYED_JOBSETS, roadstead_world::Kind::JobSet),
    (PLAYED_PYTORCHJOBS, roadstead_world::Kind::PyTorchJob),
    (PLAYED_RAYJOBS, roadstead_world::Kind::RayJob),
];

/// The kind of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Processes: etcd, kube-apiserver and the other requested parts.
    Real,
    /// The project's own API server in this process, and beside it a [`roadstead_world`] that plays the requested controllers,
    /// the scheduler and kwok. It takes no flags.
    Embedded,
}

/// Whether the API server logs each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audit {
    /// No log.
    Off,
    /// One line per request without bodies; read it with [`crate::audit::read`]. Costs the API server a few percent.
    Metadata,
}

/// Options of a control plane. Start from [`Options::bare`] or [`Options::complete`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Name in kubeconfigs and messages; letters, digits and dashes.
    pub name: String,
    /// Whether the control plane is real or embedded.
    pub kind: Kind,
    /// Controllers that kube-controller-manager runs; it is not started if there are none. Without
    /// `serviceaccount-controller` no pod can be created, because no namespace gets its default account.
    pub controllers: Vec<String>,
    /// Whether kube-scheduler runs.
    pub scheduler: bool,
    /// Whether kwok runs: it makes every node Ready, and pods on them Running, then Succeeded after [`RUN_SECONDS`]
    /// (default 1; pods with restart policy Always run on unless they carry the annotation) or Failed by [`EXIT_CODE`].
    /// Their logs are one fixed line; exec and port-forward answer with an error.
    pub kwok: bool,
    /// Nodes to create before the start is over. With kwok, the start waits until they are Ready.
    pub nodes: Vec<Node>,
    /// Whether requests are logged.
    pub audit: Audit,
    /// More flags for kube-apiserver. They come last, so they override the others; values of a list are added.
    pub apiserver_flags: Vec<String>,
    /// Limit for the start, without the time to build binaries.
    pub start_timeout: Duration,
    /// Receives lines about slow work, such as a first build.
    pub progress: Progress,
}

impl Options {
    /// etcd and kube-apiserver only.
    pub fn bare(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: Kind::Real,
            controllers: Vec::new(),
            scheduler: false,
            kwok: false,
            nodes: Vec::new(),
            audit: Audit::Off,
            apiserver_flags: Vec::new(),
            start_timeout: START_TIMEOUT,
            progress: Progress::stderr(),
        }
    }

    /// All parts that jobs need to run: [`BATCH_CONTROLLERS`], the scheduler and kwok. The caller adds nodes.
    pub fn complete(name: impl Into<String>) -> Self {
        Self {
            controllers: BATCH_CONTROLLERS.map(str::to_owned).into(),
            scheduler: true,
            kwok: true,
            ..Self::bare(name)
        }
    }

    /// The options with this kind of control plane.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The options with one more node.
    #[must_use]
    pub fn with_node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// The options with a log of all requests.
    #[must_use]
    pub fn with_audit(mut self) -> Self {
        self.audit = Audit::Metadata;
        self
    }

    /// The options with one more flag for kube-apiserver, such as `--feature-gates=A=true`.
    #[must_use]
    pub fn with_apiserver_flag(mut self, flag: impl Into<String>) -> Self {
        self.apiserver_flags.push(flag.into());
        self
    }

    /// The options with another receiver of progress lines.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }
}
