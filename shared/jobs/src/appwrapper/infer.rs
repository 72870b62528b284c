//! The pod sets of a wrapped object, from its kind. *Source*: `spec/appwrapper.md 1.5`.

use std::collections::BTreeMap;

use roadstead_kinds::{Absent, Holder, Kind, Kinds, PodPlace, Pods};
use serde_json::Value;

use super::path::pod_template;
use crate::json;

/// A pod template in a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSet {
    /// The path of the template, such as `template.spec.template`.
    pub path: String,
    /// The number of pods.
    pub replicas: i64,
    /// Hints for the placement in a topology. *Source*: `spec/appwrapper.md 1.3`.
    pub annotations: BTreeMap<String, String>,
}

const INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
const GROUP_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
const GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";
/// The label by which a Job numbers its pods.
const JOB_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The label by which a `JobSet` numbers its jobs.
const GROUP_INDEX: &str = "jobset.sigs.k8s.io/job-index";
/// The label by which the training operator numbers its pods.
const TRAINING_INDEX: &str = "training.kubeflow.org/replica-index";

/// The pod sets of an object of a kind of the table, in order. Empty for a kind whose pod sets must be declared.
///
/// *Errors*: the object does not fit its kind.
pub fn pod_sets(kinds: Kinds, version: &str, kind: &str, template: &Value) -> Result<Vec<PodSet>, String> {
    let is_it = |row: &&Kind| row.kind == kind && row.api_version() == version;
    let Some(row) = kinds.iter().find(is_it) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for place in row.wrapped {
        for (path, holder) in holders(place.holder, template) {
            if let Some(mut set) = pod_set(place, template, (&path, holder))? {
                set.annotations = hints(row, place, holder);
                found.push(set);
            }
        }
    }
    Ok(found)
}

/// The objects that hold pod templates, with their paths.
fn holders(holder: Holder, template: &Value) -> Vec<(String, &Value)> {
    match holder {
        Holder::At(path) => {
            let found = json::at(template, path).map(|held| (below("template", path), held));
            found.into_iter().collect()
        }
        Holder::EachOf(path) => {
            let place = below("template", path);
            let entries = json::list(template, path).iter().enumerate();
            entries
                .map(|(index, entry)| (format!("{place}[{index}]"), entry))
                .collect()
        }
    }
}

fn pod_set(
    place: &PodPlace,
    template: &Value,
    (holder_path, holder): (&str, &Value),
) -> Result<Option<PodSet>, String> {
    let path = below(holder_path, place.template);
    let pods = match place.pods {
        Pods::One => Some(1),
        Pods::Replicas(field) => Some(strict(holder, holder_path, field)?),
        Pods::ReplicasOf(pods, replicas) => {
            let number = |field| strict(holder, holder_path, field);
            Some(number(replicas)?.saturating_mul(number(pods)?))
        }
        Pods::OfJob(spec) => Some(json::at(holder, spec).map_or(1, pods_of)),
        Pods::OfJobs(spec) => json::at(holder, spec).map(|spec| {
            let replicas = json::int(holder, &["replicas"]).unwrap_or(1);
            replicas.saturating_mul(pods_of(spec))
        }),
    };
    let is_there = match place.absent {
        Absent::Unseen => true,
        Absent::NoPods => json::at(holder, place.template).is_some(),
        Absent::Wrong => {
            pod_template(template, &path)
                .map_err(|why| format!("{path} does not refer to a v1.PodSpecTemplate: {why}"))?;
            true
        }
    };
    Ok(pods.filter(|_| is_there).map(|replicas| PodSet {
        path,
        replicas,
        annotations: BTreeMap::new(),
    }))
}

/// The topology hints of a pod set. *Source*: `spec/appwrapper.md 1.5`, the last column.
fn hints(row: &Kind, place: &PodPlace, holder: &Value) -> BTreeMap<String, String> {
    let index = |label: &str| (INDEX_LABEL.to_owned(), label.to_owned());
    match place.pods {
        Pods::OfJob(_) => BTreeMap::from([index(JOB_INDEX)]),
        Pods::OfJobs(_) => {
            let count = json::int(holder, &["replicas"]).unwrap_or(1);
            BTreeMap::from([
                index(JOB_INDEX),
                (GROUP_LABEL.to_owned(), GROUP_INDEX.to_owned()),
                (GROUP_COUNT.to_owned(), count.to_string()),
            ])
        }
        Pods::Replicas(_) if row.group == "kubeflow.org" => BTreeMap::from([index(TRAINING_INDEX)]),
        Pods::One | Pods::Replicas(_) | Pods::ReplicasOf(..) => BTreeMap::new(),
    }
}

fn below(place: &str, path: &[&str]) -> String {
    let mut place = place.to_owned();
    for field in path {
        place.push('.');
        place.push_str(field);
    }
    place
}

/// The number of pods of a job with this spec.
fn pods_of(spec: &Value) -> i64 {
    let parallelism = json::int(spec, &["parallelism"]).unwrap_or(1);
    json::int(spec, &["completions"]).map_or(parallelism, |completions| completions.min(parallelism))
}

/// The number of replicas at a path, 1 if absent; a value of another type is an error.
fn strict(object: &Value, place: &str, path: &[&str]) -> Result<i64, String> {
    match json::at(object, path) {
        None => Ok(1),
        Some(value) => value
            .as_i64()
            .ok_or_else(|| format!("{place}.{} must be a whole number", path.join("."))),
    }
}
