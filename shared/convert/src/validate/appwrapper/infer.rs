//! The pod sets of a wrapped object, from its kind. *Source*: `spec/appwrapper.md 1.5`.

use roadstead_jobs::json;
use roadstead_kinds::{Absent, Holder, Kind, Kinds, PodPlace, Pods};
use serde_json::Value;

use super::path::pod_template;

/// A place in a template from which pods are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodSet {
    pub(super) path: String,
    pub(super) replicas: i64,
}

/// The pod sets of an object of a kind of the table, in order; none for a kind whose pods have to be declared.
///
/// *Errors*: the object is not what its kind says.
pub(super) fn pod_sets(
    kinds: Kinds,
    version: &str,
    kind: &str,
    template: &Value,
) -> Result<Vec<PodSet>, String> {
    let is_it = |row: &&Kind| row.kind == kind && row.api_version() == version;
    let places = kinds.iter().find(is_it).map_or(&[][..], |row| row.wrapped);
    let mut found = Vec::new();
    for place in places {
        for (path, holder) in holders(place.holder, template) {
            found.extend(pod_set(place, template, (&path, holder))?);
        }
    }
    Ok(found)
}

/// What holds pod templates, with its path.
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
    Ok(pods
        .filter(|_| is_there)
        .map(|replicas| PodSet { path, replicas }))
}

fn below(place: &str, path: &[&str]) -> String {
    let mut place = place.to_owned();
    for field in path {
        place.push('.');
        place.push_str(field);
    }
    place
}

/// The pods of a job with this spec.
fn pods_of(spec: &Value) -> i64 {
    let parallelism = json::int(spec, &["parallelism"]).unwrap_or(1);
    json::int(spec, &["completions"]).map_or(parallelism, |completions| completions.min(parallelism))
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
