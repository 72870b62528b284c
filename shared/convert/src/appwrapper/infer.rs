//! The pod sets of a wrapped object, from its kind. *Source*: `spec/appwrapper.md 1.5`.

use std::collections::BTreeMap;

use roadstead_jobs::json;
use serde_json::Value;

use super::path::pod_template;

/// A place in a template from which pods are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSet {
    pub(crate) path: String,
    pub(crate) replicas: i64,
    /// Hints for the placement in a topology. *Source*: `spec/appwrapper.md 1.3`.
    pub(crate) annotations: BTreeMap<String, String>,
}

const INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
const GROUP_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
const GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";
/// The label by which a Job numbers its pods.
const JOB_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The label by which the training operator numbers its pods.
const TRAINING_INDEX: &str = "training.kubeflow.org/replica-index";

fn set(path: impl Into<String>, replicas: i64) -> PodSet {
    PodSet {
        path: path.into(),
        replicas,
        annotations: BTreeMap::new(),
    }
}

impl PodSet {
    fn with(mut self, hint: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(hint.to_owned(), value.into());
        self
    }
}

/// The pod sets of an object of a known kind, in order; none for an unknown kind.
///
/// *Errors*: the object is not what its kind says.
pub(crate) fn pod_sets(version: &str, kind: &str, template: &Value) -> Result<Vec<PodSet>, String> {
    let of = |path: &[&str]| json::int(template, path);
    let has = |path: &[&str]| json::at(template, path).is_some();
    Ok(match (version, kind) {
        ("v1", "Pod") => vec![set("template", 1)],
        ("apps/v1", "Deployment" | "StatefulSet") => {
            let replicas = strict(template, "template", &["spec", "replicas"])?;
            let found = has(&["spec", "template"]).then(|| set("template.spec.template", replicas));
            found.into_iter().collect()
        }
        ("batch/v1", "Job") => {
            let path = "template.spec.template";
            checked(template, path)?;
            let pods = pods(of(&["spec", "parallelism"]), of(&["spec", "completions"]));
            vec![set(path, pods).with(INDEX_LABEL, JOB_INDEX)]
        }
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => jobset(template),
        ("kubeflow.org/v1", "PyTorchJob") => {
            replica_specs(template, "pytorchReplicaSpecs", &["Master", "Worker"])?
        }
        ("ray.io/v1", "RayCluster") => ray(template, &["spec"])?,
        ("ray.io/v1", "RayJob") => ray(template, &["spec", "rayClusterSpec"])?,
        _ => Vec::new(),
    })
}

/// The pod sets of a job of the training operator, in the order of `types`.
fn replica_specs(template: &Value, field: &str, types: &[&str]) -> Result<Vec<PodSet>, String> {
    let mut found = Vec::new();
    for replica in types {
        if let Some(spec) = json::at(template, &["spec", field, replica]) {
            let place = format!("template.spec.{field}.{replica}");
            let replicas = strict(spec, &place, &["replicas"])?;
            found.push(set(format!("{place}.template"), replicas).with(INDEX_LABEL, TRAINING_INDEX));
        }
    }
    Ok(found)
}

fn pods(parallelism: Option<i64>, completions: Option<i64>) -> i64 {
    let parallelism = parallelism.unwrap_or(1);
    completions.map_or(parallelism, |completions| completions.min(parallelism))
}

fn jobset(template: &Value) -> Vec<PodSet> {
    let jobs = json::list(template, &["spec", "replicatedJobs"])
        .iter()
        .enumerate();
    jobs.filter_map(|(index, job)| {
        let spec = json::at(job, &["template", "spec"])?;
        let of = |field| json::int(spec, &[field]);
        let replicas = json::int(job, &["replicas"]).unwrap_or(1);
        let path = format!("template.spec.replicatedJobs[{index}].template.spec.template");
        let pods = replicas.saturating_mul(pods(of("parallelism"), of("completions")));
        Some(
            set(path, pods)
                .with(INDEX_LABEL, JOB_INDEX)
                .with(GROUP_LABEL, "jobset.sigs.k8s.io/job-index")
                .with(GROUP_COUNT, replicas.to_string()),
        )
    })
    .collect()
}

fn ray(template: &Value, cluster: &[&str]) -> Result<Vec<PodSet>, String> {
    let place = format!("template.{}", cluster.join("."));
    let head = format!("{place}.headGroupSpec.template");
    checked(template, &head)?;
    let mut found = vec![set(head, 1)];
    let groups = json::at(template, cluster).map_or(&[][..], |spec| json::list(spec, &["workerGroupSpecs"]));
    for (index, group) in groups.iter().enumerate() {
        if json::at(group, &["template"]).is_some() {
            let place = format!("{place}.workerGroupSpecs[{index}]");
            let replicas = strict(group, &place, &["replicas"])?;
            found.push(set(format!("{place}.template"), replicas));
        }
    }
    Ok(found)
}

/// A number of replicas, absent 1; a wrong type is an error.
fn strict(object: &Value, place: &str, path: &[&str]) -> Result<i64, String> {
    match json::at(object, path) {
        None => Ok(1),
        Some(value) => value
            .as_i64()
            .ok_or_else(|| format!("{place}.{} must be a whole number", path.join("."))),
    }
}

fn checked(template: &Value, path: &str) -> Result<(), String> {
    pod_template(template, path)
        .map(drop)
        .map_err(|why| format!("{path} does not refer to a v1.PodSpecTemplate: {why}"))
}
