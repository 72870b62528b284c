//! What a control plane is made of.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Progress;

/// The controllers of kube-controller-manager that batch jobs need: jobs and their pods, garbage, namespaces, service
/// accounts and their tokens, and the one without which the cluster roles `view`, `edit` and `admin` are empty. Names are
/// those of its flag `--controllers`.
pub const BATCH_CONTROLLERS: [&str; 7] = [
    "job-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "clusterrole-aggregation-controller",
];

/// How long a plane may take to start, unless said otherwise. An idle machine needs about 5 s; several planes that start
/// at once on two busy cores need ten times that.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// The pod annotation that says how many seconds a pod runs on a played node (Go's number syntax, fractions allowed).
pub const RUN_SECONDS: &str = "demo.roadstead.dev/run-seconds";
/// The pod annotation with the exit code of a pod on a played node, default 0; anything else fails the pod.
pub const EXIT_CODE: &str = "demo.roadstead.dev/exit-code";

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

/// A node that exists only in the API.
#[derive(Debug, Clone)]
pub struct Node {
    /// The object's name.
    pub name: String,
    /// Labels besides `kubernetes.io/hostname`, `kubernetes.io/os` and `kubernetes.io/arch`.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// What pods may ask for, as Kubernetes quantities; capacity is the same.
    pub allocatable: BTreeMap<String, String>,
}

/// Pods per node unless the node says otherwise, as on real nodes.
const PODS_PER_NODE: &str = "110";

impl Node {
    /// A node with so much CPU and memory (Kubernetes quantities) and room for 110 pods.
    pub fn new(name: impl Into<String>, cpu: impl Into<String>, memory: impl Into<String>) -> Self {
        let node = Self {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable: BTreeMap::new(),
        };
        node.with_resource("cpu", cpu)
            .with_resource("memory", memory)
            .with_resource("pods", PODS_PER_NODE)
    }

    /// With one more label.
    #[must_use]
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// With one more taint.
    #[must_use]
    pub fn with_taint(mut self, taint: Taint) -> Self {
        self.taints.push(taint);
        self
    }

    /// With so much of a resource, such as `nvidia.com/gpu`; replaces what was there.
    #[must_use]
    pub fn with_resource(mut self, name: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.allocatable.insert(name.into(), quantity.into());
        self
    }

    pub(crate) fn object(&self) -> k8s_openapi::api::core::v1::Node {
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ] {
            labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let amounts: BTreeMap<_, _> = self
            .allocatable
            .iter()
            .map(|(name, amount)| (name.clone(), Quantity(amount.clone())))
            .collect();
        k8s_openapi::api::core::v1::Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(self.taints.clone()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                allocatable: Some(amounts.clone()),
                capacity: Some(amounts),
                ..NodeStatus::default()
            }),
        }
    }
}
