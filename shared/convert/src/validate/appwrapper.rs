//! The rules for an `AppWrapper` that need neither a server nor a controller.
//!
//! The webhook itself asks the API server whether the requester may create the children.
//! *Source*: `spec/appwrapper.md 3.3, 3.5`.

use std::collections::BTreeSet;

use roadstead_api::config::PodSetsMax;
use roadstead_jobs::appwrapper::{infer, path};
use roadstead_jobs::json;
use roadstead_jobs::problem::Problem;
use roadstead_kinds::{TABLE, rows};
use serde_json::Value;

const IMMUTABLE: &str = "attempt to change immutable field";
/// Longest name, in characters: it is the value of a label of every pod. *Source*: `spec/appwrapper.md N-17`.
const NAME_LEN_MAX: usize = 63;
/// Longest `generateName`: the API server adds five characters.
const GENERATED_LEN_MAX: usize = 58;
/// Labels with the user that submitted it, set at creation.
const FIXED_LABELS: [&str; 2] = ["workload.codeflare.dev/user", "workload.codeflare.dev/userid"];

/// Checks an `AppWrapper` that is being created in a namespace and may have `most` pod sets. An empty list means that it is valid.
pub fn appwrapper(wrapper: &Value, namespace: &str, most: PodSetsMax) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (field, most) in [("name", NAME_LEN_MAX), ("generateName", GENERATED_LEN_MAX)] {
        let name = json::text(wrapper, &["metadata", field]).unwrap_or_default();
        if name.len() > most {
            let why = format!(
                "must not be longer than {most} characters, because the name becomes a label of all pods"
            );
            problems.push(Problem::invalid(format!("metadata.{field}"), why).of(name));
        }
    }
    let mut total = 0_usize;
    for (index, component) in components(wrapper).iter().enumerate() {
        let path = format!("spec.components[{index}]");
        total = total.saturating_add(self::component(&path, component, namespace, &mut problems));
    }
    if total == 0 {
        problems.push(Problem::invalid(
            "spec.components",
            "components contains no podspecs",
        ));
    }
    let most = most.get();
    if total > most {
        let text = format!("components contains {total} podspecs; at most {most} are allowed");
        problems.push(Problem::invalid("spec.components", text));
    }
    problems
}

fn components(wrapper: &Value) -> &[Value] {
    json::list(wrapper, &["spec", "components"])
}

/// Checks one component; returns the number of its pod sets.
fn component(path: &str, component: &Value, namespace: &str, problems: &mut Vec<Problem>) -> usize {
    let field = format!("{path}.template");
    let declared = json::list(component, &["podSets"]);
    let template = component.get("template");
    let text = |path: &[&str]| template.and_then(|template| json::text(template, path));
    let (Some(template), Some(version), Some(kind)) = (template, text(&["apiVersion"]), text(&["kind"]))
    else {
        problems.push(Problem::invalid(field, "failed to decode as JSON"));
        return declared.len();
    };
    if kind == rows::APP_WRAPPER.kind && version == rows::APP_WRAPPER.api_version() {
        problems.push(Problem::forbidden(
            field.clone(),
            "Nested AppWrappers are forbidden",
        ));
    }
    let elsewhere = text(&["metadata", "namespace"]).filter(|name| !name.is_empty() && *name != namespace);
    if elsewhere.is_some() {
        problems.push(Problem::forbidden(
            format!("{field}.metadata.namespace"),
            "AppWrappers cannot create objects in other namespaces",
        ));
    }
    if [["metadata", "name"], ["metadata", "generateName"]]
        .iter()
        .all(|path| text(path).is_none_or(str::is_empty))
    {
        let why = "the object needs a name or a generateName";
        problems.push(Problem::required(format!("{field}.metadata.name"), why));
    }
    for (index, set) in declared.iter().enumerate() {
        self::declared(&format!("{path}.podSets[{index}]"), set, template, problems);
    }
    match infer::pod_sets(TABLE, version, kind, template) {
        Ok(inferred) => {
            if let Some(why) = disagreement(declared, &inferred) {
                problems.push(Problem::invalid(format!("{path}.podSets"), why));
            }
            declared.len().max(inferred.len())
        }
        Err(why) => {
            problems.push(Problem::invalid(field, format!("error inferring PodSets: {why}")));
            declared.len()
        }
    }
}

fn declared(path: &str, set: &Value, template: &Value, problems: &mut Vec<Problem>) {
    let field = format!("{path}.path");
    match place(set) {
        "" => problems.push(Problem::required(field, "podspec must specify path")),
        place => {
            if let Err(why) = path::pod_template(template, place) {
                let why = format!("path does not refer to a v1.PodSpecTemplate: {why}");
                problems.push(Problem::invalid(field, why).of(place));
            }
        }
    }
    if replicas(set) < 0 {
        let why = "must be greater than or equal to 0";
        let found = replicas(set).to_string();
        problems.push(Problem::invalid(format!("{path}.replicas"), why).of(&found));
    }
}

fn place(set: &Value) -> &str {
    json::text(set, &["path"]).unwrap_or_default()
}

/// The number of replicas; absent counts as 1.
fn replicas(set: &Value) -> i64 {
    json::int(set, &["replicas"]).unwrap_or(1)
}

/// The difference between the declared pod sets and those of the kind. *Source*: `spec/appwrapper.md 1.5`.
fn disagreement(declared: &[Value], inferred: &[infer::PodSet]) -> Option<String> {
    if declared.is_empty() {
        return None;
    }
    if inferred.is_empty() {
        let mut seen = BTreeSet::new();
        let twice = declared.iter().map(place).find(|place| !seen.insert(*place))?;
        return Some(format!("multiple DeclaredPodSets with path '{twice}'"));
    }
    let (found, wanted) = (declared.len(), inferred.len());
    if found != wanted {
        return Some(format!(
            "DeclaredPodSet count {found} differs from inferred count {wanted}"
        ));
    }
    inferred.iter().find_map(|want| {
        let Some(found) = declared.iter().find(|set| place(set) == want.path) else {
            return Some(format!("PodSet with path '{}' is missing", want.path));
        };
        (replicas(found) != want.replicas).then(|| {
            format!(
                "replica count {} differs from inferred count {} for PodSet at path position '{}'",
                replicas(found),
                want.replicas,
                want.path
            )
        })
    })
}

/// Checks a change of an `AppWrapper`: its components and its submitter stay.
pub fn appwrapper_update(old: &Value, new: &Value) -> Vec<Problem> {
    let fixed = |field: String| Problem::forbidden(field, IMMUTABLE);
    let (before, after) = (components(old), components(new));
    if before.len() != after.len() {
        return vec![fixed("spec.components".to_owned())];
    }
    let mut problems = Vec::new();
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        let path = format!("spec.components[{index}]");
        if before.get("template") != after.get("template") {
            problems.push(fixed(format!("{path}.template.raw")));
        }
        let sets = |component| json::list(component, &["podSets"]);
        if sets(before).len() != sets(after).len() {
            // Wire: lower case, as the reference has it.
            problems.push(fixed(format!("{path}.podsets")));
            continue;
        }
        for (at, (before, after)) in sets(before).iter().zip(sets(after)).enumerate() {
            if replicas(before) != replicas(after) {
                problems.push(fixed(format!("{path}.podsets[{at}].replicas")));
            }
            if place(before) != place(after) {
                problems.push(fixed(format!("{path}.podsets[{at}].path")));
            }
        }
    }
    for key in FIXED_LABELS {
        let label = |wrapper| json::text(wrapper, &["metadata", "labels", key]);
        if label(old) != label(new) {
            problems.push(fixed(format!("metadata.labels[{key}]")));
        }
    }
    let managed_by = |wrapper| json::text(wrapper, &["spec", "managedBy"]);
    if managed_by(old) != managed_by(new) {
        problems.push(fixed("spec.managedBy".to_owned()));
    }
    problems
}

#[cfg(test)]
mod tests;
