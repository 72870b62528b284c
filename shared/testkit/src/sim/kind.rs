//! The kinds of jobs in a run: where they are asked for, and an object of each as the API stores it.
//!
//! Why jobs come suspended and marked as managed: the product's webhooks do that, and webhooks are not called here.

use std::fmt;

use roadstead_api::constants::controllers::MULTIKUEUE;
use roadstead_world::Kind as Played;
use serde_json::{Value, json};

/// How long an `AppWrapper` waits before it tries again, and for pods that do not start where that is what is played. Why so
/// short: a run is quiet meanwhile, and would be judged.
const RETRY_PAUSE: &str = "10s";
const WARMUP: &str = "20s";
/// How often it tries again.
const RETRIES: &str = "2";

/// What is wrong with an `AppWrapper`'s children, beside what holds for all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// Nothing.
    Well,
    /// The pod of the first one never starts.
    Hangs,
    /// All of them are deleted once.
    Vanishes,
}

/// A kind of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// `batch/v1 Job`.
    Job,
    /// `jobset.x-k8s.io/v1alpha2 JobSet`.
    JobSet,
    /// `kubeflow.org/v1 PyTorchJob`.
    PyTorchJob,
    /// `workload.codeflare.dev/v1beta2 AppWrapper` around one Job for each pod, whose controller is the product's own.
    AppWrapper,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Job, Self::JobSet, Self::PyTorchJob, Self::AppWrapper];
    /// Those that a definition adds to a cluster, and that go with it.
    pub const DEFINED: [Self; 2] = [Self::JobSet, Self::PyTorchJob];

    /// The name of the integration.
    pub(super) const fn framework(self) -> &'static str {
        match self {
            Self::Job => "batch/job",
            Self::JobSet => "jobset.x-k8s.io/jobset",
            Self::PyTorchJob => "kubeflow.org/pytorchjob",
            Self::AppWrapper => "workload.codeflare.dev/appwrapper",
        }
    }

    /// What plays its controller beside that of `batch/v1`.
    pub(super) const fn played(self) -> Option<Played> {
        match self {
            Self::Job | Self::AppWrapper => None,
            Self::JobSet => Some(Played::JobSet),
            Self::PyTorchJob => Some(Played::PyTorchJob),
        }
    }

    /// Group, version and the name in paths.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Job => ("batch", "v1", "jobs"),
            Self::JobSet => ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
            Self::PyTorchJob => ("kubeflow.org", "v1", "pytorchjobs"),
            Self::AppWrapper => ("workload.codeflare.dev", "v1beta2", "appwrappers"),
        }
    }

    /// The name in paths.
    pub(super) const fn plural(self) -> &'static str {
        self.names().2
    }

    /// As changes of an API server name it.
    pub(super) fn resource(self) -> String {
        let (group, _, plural) = self.names();
        format!("{plural}.{group}")
    }

    /// Where its objects of a namespace are asked for.
    pub(super) fn path(self, namespace: &str) -> String {
        let (group, version, plural) = self.names();
        format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
    }

    /// The kind that a request is about: also one for what discovery says of its group, which in a run has no other kind.
    pub(super) fn at(path: &str) -> Option<Self> {
        let group = path.strip_prefix("/apis/")?.split('/').next()?;
        Self::ALL.into_iter().find(|kind| kind.names().0 == group)
    }

    /// An object that is held and that a manager may dispatch: `metadata` as given, `pods` pods of this template (its metadata and
    /// its spec).
    pub(super) fn object(self, metadata: &Value, pods: i64, template: &Value) -> Value {
        let (group, version, _) = self.names();
        let spec = match self {
            Self::Job => json!({
                "suspend": true, "managedBy": MULTIKUEUE, "backoffLimit": 0,
                "parallelism": pods, "completions": pods, "template": template,
            }),
            Self::JobSet => {
                let job = |name: &str, replicas: i64| {
                    let spec = json!({
                        "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template,
                    });
                    json!({"name": name, "replicas": replicas, "template": {"spec": spec}})
                };
                let workers = (pods > 1).then(|| job("worker", pods - 1));
                let jobs: Vec<Value> = std::iter::once(job("leader", 1)).chain(workers).collect();
                json!({"suspend": true, "managedBy": MULTIKUEUE, "replicatedJobs": jobs})
            }
            Self::PyTorchJob => {
                let role = |replicas: i64| json!({"replicas": replicas, "template": template});
                let mut roles = json!({"Master": role(1)});
                if pods > 1 {
                    roles["Worker"] = role(pods - 1);
                }
                let policy = json!({"suspend": true, "managedBy": MULTIKUEUE});
                json!({"runPolicy": policy, "pytorchReplicaSpecs": roles})
            }
            Self::AppWrapper => {
                let name = metadata["name"].as_str().unwrap_or_default();
                let component = |number: i64| {
                    let spec = json!({
                        "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template,
                    });
                    json!({"template": {
                        "apiVersion": "batch/v1", "kind": "Job",
                        "metadata": {"name": format!("{name}-{number}")}, "spec": spec,
                    }})
                };
                let components: Vec<Value> = (0..pods).map(component).collect();
                json!({"suspend": true, "managedBy": MULTIKUEUE, "components": components})
            }
        };
        json!({"apiVersion": format!("{group}/{version}"), "kind": self.to_string(), "metadata": metadata, "spec": spec})
    }

    /// The annotations by which a job of this kind is patient.
    pub(super) fn patience(self, child: Child) -> Value {
        match self {
            Self::Job | Self::JobSet | Self::PyTorchJob => json!({}),
            Self::AppWrapper => {
                let knob = |name: &str| format!("workload.codeflare.dev.appwrapper/{name}");
                let mut annotations = json!({
                    knob("retryPausePeriodDuration"): RETRY_PAUSE, knob("retryLimit"): RETRIES,
                });
                if child == Child::Hangs {
                    annotations[knob("warmupGracePeriodDuration")] = WARMUP.into();
                    annotations[knob("admissionGracePeriodDuration")] = WARMUP.into();
                }
                annotations
            }
        }
    }

    /// The same as one that its own cluster runs.
    pub(super) fn unmanaged(self, metadata: &Value, pods: i64, template: &Value) -> Value {
        let mut object = self.object(metadata, pods, template);
        let holder = match self {
            Self::Job | Self::JobSet | Self::AppWrapper => &mut object["spec"],
            Self::PyTorchJob => &mut object["spec"]["runPolicy"],
        };
        if let Some(fields) = holder.as_object_mut() {
            fields.remove("managedBy");
        }
        object
    }
}
