//! What a control plane is made of.

use std::time::Duration;

pub use roadstead_world::{EXIT_CODE, Node, RUN_SECONDS};

use crate::Progress;

/// The controllers of kube-controller-manager that batch jobs need: jobs and their ends, garbage, namespaces, service
/// accounts and their tokens, and the one without which the cluster roles `view`, `edit` and `admin` are empty. Names are
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

/// The one that removes finished jobs when their `ttlSecondsAfterFinished` is up.
pub const TTL_CONTROLLER: &str = "ttl-after-finished-controller";

/// How long a plane may take to start, unless said otherwise. An idle machine needs about 5 s; several planes that start
/// at once on two busy cores need ten times that.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// More controllers for an embedded control plane: objects of the kind are served and played. Beside a real one runs the real
/// controller ([`crate::stage::Controller`]).
pub const PLAYED_JOBSETS: &str = "jobset-controller";
/// As above, for `PyTorchJobs`.
pub const PLAYED_PYTORCHJOBS: &str = "pytorchjob-controller";
/// The kind that each of these plays.
pub(crate) const PLAYED: [(&str, roadstead_world::Kind); 2] = [
    (PLAYED_JOBSETS, roadstead_world::Kind::JobSet),
    (PLAYED_PYTORCHJOBS, roadstead_world::Kind::PyTorchJob),
];

/// What a control plane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Processes: etcd, kube-apiserver and what else is asked for.
    Real,
    /// The project's own API server in this process, and beside it a [`roadstead_world`] that plays the controllers, the
    /// scheduler and kwok as far as they are asked for. No flags.
    Embedded,
}

/// Whether the API server writes down each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audit {
    /// No log.
    Off,
    /// One line per request without bodies; read it with [`crate::audit::read`]. Costs the API server a few percent.
    Metadata,
}

/// What a control plane is made of. Start from [`Options::bare`] or [`Options::complete`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Name in kubeconfigs and messages; letters, digits and dashes.
    pub name: String,
    /// Real or embedded.
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
    /// Whether requests are written down.
    pub audit: Audit,
    /// More flags for kube-apiserver, after all others, so that they win.
    pub apiserver_flags: Vec<String>,
    /// How long the start may take, without the time to build binaries.
    pub start_timeout: Duration,
    /// Who hears about slow work, such as a first build.
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

    /// Everything that jobs need to run: [`BATCH_CONTROLLERS`], the scheduler and kwok. Add nodes.
    pub fn complete(name: impl Into<String>) -> Self {
        Self {
            controllers: BATCH_CONTROLLERS.map(str::to_owned).into(),
            scheduler: true,
            kwok: true,
            ..Self::bare(name)
        }
    }

    /// As this kind of control plane.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// With one more node.
    #[must_use]
    pub fn with_node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// With a log of all requests.
    #[must_use]
    pub fn with_audit(mut self) -> Self {
        self.audit = Audit::Metadata;
        self
    }

    /// With one more flag for kube-apiserver, such as `--feature-gates=A=true`.
    #[must_use]
    pub fn with_apiserver_flag(mut self, flag: impl Into<String>) -> Self {
        self.apiserver_flags.push(flag.into());
        self
    }

    /// With other progress lines.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }
}
