//! The kinds of jobs in a run: their paths, and an object of each as the API stores it.
//!
//! Why jobs come suspended and marked as managed: the product's webhooks do that, and webhooks are not called here.

use std::fmt;

use bytes::Bytes;
use roadstead_api::constants::controllers::MULTIKUEUE;
use roadstead_api::constants::{annotations, finalizers, gates, labels};
use roadstead_world::Kind as Played;
use serde_json::{Value, json};

/// How long an `AppWrapper` waits before its next attempt, and ([`WARMUP`]) for pods that do not start. Why so short: nothing is
/// written during a longer wait, so the run would be judged too early.
const RETRY_PAUSE: &str = "10s";
const WARMUP: &str = "20s";
/// How many further attempts an `AppWrapper` makes.
const RETRIES: &str = "2";
/// The role of every plain pod: all pods of a group have the same role.
const ROLE: &str = "main";

/// What goes wrong with the jobs that an `AppWrapper` creates, in addition to the faults of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// No trouble.
    Well,
    /// The pod of the first created job never starts.
    Hangs,
    /// All created jobs are deleted once.
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
    /// `ray.io/v1 RayJob`.
    RayJob,
    /// `workload.codeflare.dev/v1beta2 AppWrapper` around one Job for each pod, whose controller is the product's own.
    AppWrapper,
    /// `v1 Pod`, alone or as a group.
    Pod,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Job,
        Self::JobSet,
        Self::PyTorchJob,
        Self::RayJob,
        Self::AppWrapper,
        Self::Pod,
    ];
    /// The kinds that a `CustomResourceDefinition` defines: [`Fault::NoKind`](super::fault::Fault::NoKind) can remove them.
    pub const DEFINED: [Self; 3] = [Self::JobSet, Self::PyTorchJob, Self::RayJob];

    pub(super) const fn framework(self) -> &'static str {
        match self {
            Self::Job => "batch/job",
            Self::JobSet => "jobset.x-k8s.io/jobset",
            Self::PyTorchJob => "kubeflow.org/pytorchjob",
            Self::RayJob => "ray.io/rayjob",
            Self::AppWrapper => "workload.codeflare.dev/appwrapper",
            Self::Pod => "pod",
        }
    }

    /// The played controller of this kind, beside that of `batch/v1`.
    pub(super) const fn played(self) -> Option<Played> {
        match self {
            Self::Job | Self::AppWrapper | Self::Pod => None,
            Self::JobSet => Some(Played::JobSet),
            Self::PyTorchJob => Some(Played::PyTorchJob),
            Self::RayJob => Some(Played::RayJob),
        }
    }

    /// Group, version and the name in paths.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Job => ("batch", "v1", "jobs"),
            Self::JobSet => ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
            Self::PyTorchJob => ("kubeflow.org", "v1", "pytorchjobs"),
            Self::RayJob => ("ray.io", "v1", "rayjobs"),
            Self::AppWrapper => ("workload.codeflare.dev", "v1beta2", "appwrappers"),
            Self::Pod => ("", "v1", "pods"),
        }
    }

    pub(super) const fn plural(self) -> &'static str {
        self.names().2
    }

    /// The name in the changes of an API server.
    pub(super) fn resource(self) -> String {
        let (group, _, plural) = self.names();
        if group.is_empty() {
            return plural.to_owned();
        }
        format!("{plural}.{group}")
    }

    pub(super) fn path(self, namespace: &str) -> String {
        let (group, version, plural) = self.names();
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        format!("{root}/namespaces/{namespace}/{plural}")
    }

    /// The kind of a request's path. Discovery of its group counts too, because in a run the group has no other kind.
    pub(super) fn at(path: &str) -> Option<Self> {
        let group = path
            .strip_prefix("/apis/")?
            .split('/')
            .next()
            .filter(|group| !group.is_empty())?;
        Self::ALL.into_iter().find(|kind| kind.names().0 == group)
    }

    /// A held object that a manager may dispatch: `metadata` as given, `pods` pods of this template (its metadata and its spec).
    pub(super) fn object(self, metadata: &Value, pods: i64, template: &Value) -> Value {
        let (group, version, _) = self.names();
        let mut metadata = metadata.clone();
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
            Self::RayJob => ray_job(pods, template),
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
            Self::Pod => hold(&mut metadata, template),
        };
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        json!({"apiVersion": api_version, "kind": self.to_string(), "metadata": metadata, "spec": spec})
    }

    /// The annotations that give a job of this kind its waiting times.
    pub(super) fn patience(self, child: Child) -> Value {
        match self {
            Self::Job | Self::JobSet | Self::PyTorchJob | Self::RayJob | Self::Pod => json!({}),
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

    /// As [`Self::object`], for a job that its own cluster runs, without a manager.
    pub(super) fn unmanaged(self, metadata: &Value, pods: i64, template: &Value) -> Value {
        let mut object = self.object(metadata, pods, template);
        let holder = match self {
            Self::Job | Self::JobSet | Self::RayJob | Self::AppWrapper => &mut object["spec"],
            Self::PyTorchJob => &mut object["spec"]["runPolicy"],
            // Why only these metadata: the pod must not carry the product's marks, and its gates still hold it.
            Self::Pod => {
                object["metadata"] = metadata.clone();
                return object;
            }
        };
        if let Some(fields) = holder.as_object_mut() {
            fields.remove("managedBy");
        }
        object
    }
}

/// The spec of a `RayJob`. The pod that ends the job has this template: the submitter, or the head if there is only one pod. All
/// other pods run until the Ray cluster is removed.
fn ray_job(pods: i64, template: &Value) -> Value {
    let mut spec = json!({
        "suspend": true, "managedBy": MULTIKUEUE, "shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode",
        "rayClusterSpec": {"headGroupSpec": {"template": template}},
    });
    if pods > 1 {
        let mut lasts = template.clone();
        lasts["metadata"] = json!({});
        lasts["spec"]["restartPolicy"] = "Always".into();
        spec["rayClusterSpec"]["headGroupSpec"]["template"] = lasts.clone();
        spec["submissionMode"] = "K8sJobMode".into();
        spec["submitterPodTemplate"] = template.clone();
        spec["submitterConfig"] = json!({"backoffLimit": 0});
        if pods > 2 {
            let group = json!({"groupName": "worker", "replicas": pods - 2, "template": lasts});
            spec["rayClusterSpec"]["workerGroupSpecs"] = json!([group]);
        }
    }
    spec
}

/// Adds the product's marks of a held pod to `metadata`, and returns its gated spec, as the webhook would.
fn hold(metadata: &mut Value, template: &Value) -> Value {
    metadata["labels"][labels::MANAGED] = labels::TRUE.into();
    metadata["finalizers"] = json!([finalizers::MANAGED]);
    metadata["annotations"][annotations::ROLE_HASH] = ROLE.into();
    for (key, value) in template["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
    {
        metadata["annotations"][key] = value.clone();
    }
    let mut spec = template["spec"].clone();
    spec["schedulingGates"] = json!([{"name": gates::ADMISSION}, {"name": gates::TOPOLOGY}]);
    spec
}

/// Makes a pod a member of a group of `total` pods. Why not retriable: no controller here replaces a pod that failed.
pub(super) fn join_group(pod: &mut Value, group: &str, total: i64) {
    pod["metadata"]["labels"][labels::POD_GROUP_NAME] = group.into();
    let said = &mut pod["metadata"]["annotations"];
    said[annotations::POD_GROUP_TOTAL_COUNT] = total.to_string().into();
    said[annotations::RETRIABLE_IN_GROUP] = "false".into();
}

/// The body of a request to create a managed pod, with the finalizer that the webhook of its cluster would add; `None` for others.
pub(super) fn admitted(body: &Bytes) -> Option<Bytes> {
    let mut pod: Value = serde_json::from_slice(body).ok()?;
    if pod["metadata"]["labels"][labels::MANAGED] != labels::TRUE {
        return None;
    }
    let held = &mut pod["metadata"]["finalizers"];
    let mark = json!(finalizers::MANAGED);
    match held.as_array_mut() {
        Some(held) if held.contains(&mark) => {}
        Some(held) => held.push(mark),
        None => *held = json!([mark]),
    }
    Some(Bytes::from(pod.to_string()))
}
