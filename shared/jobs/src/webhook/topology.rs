//! The rules about topology annotations on pod templates.
//!
//! *Source*: `spec/jobs.md 8`, `spec/api.md API-12`.

use std::collections::BTreeMap;

use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::annotations::{
    PODSET_GROUP_NAME, PODSET_PREFERRED_TOPOLOGY, PODSET_REQUIRED_TOPOLOGY, PODSET_SLICE_REQUIRED_TOPOLOGY,
    PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS, PODSET_SLICE_SIZE, PODSET_UNCONSTRAINED_TOPOLOGY,
};
use serde_json::Value;

use crate::json;
use crate::problem::{LABEL_KEY_RULE, Problem, is_label_key};

/// The largest number of layers of slices. *Source*: `spec/jobs.md 8`.
const LAYERS_MAX: usize = 3;
/// The number of pod sets in a group: a leader and its workers.
const GROUP_SETS: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct Template<'a> {
    /// Its path, such as `spec.template`.
    pub(super) path: String,
    pub(super) content: &'a Value,
    /// The number of pods made of it.
    pub(super) count: u32,
}

impl<'a> Template<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        json::text(self.content, &["metadata", "annotations", key])
    }

    fn field(&self, key: &str) -> String {
        format!("{}.metadata.annotations[{key}]", self.path)
    }

    /// The required and the preferred topology; both sets of a group must have the same.
    fn place(&self) -> [Option<&'a str>; 2] {
        [
            self.get(PODSET_REQUIRED_TOPOLOGY),
            self.get(PODSET_PREFERRED_TOPOLOGY),
        ]
    }
}

/// The problems of the topology annotations of a job's templates.
pub(super) fn problems(templates: &[Template<'_>], gates: &FeatureGates) -> Vec<Problem> {
    let mut problems = Vec::new();
    for template in templates {
        request(template, &mut problems);
        slices(template, &mut problems);
        if gates.enabled(FeatureGate::TASMultiLayerTopology) {
            layers(template, &mut problems);
        }
        group_of(template, &mut problems);
    }
    groups(templates, &mut problems);
    problems
}

/// The fields with which a template demands one place for all its pods.
pub(super) fn fixed_places(template: &Template<'_>) -> Vec<String> {
    [PODSET_REQUIRED_TOPOLOGY, PODSET_PREFERRED_TOPOLOGY]
        .into_iter()
        .filter(|key| template.get(key).is_some())
        .map(|key| template.field(key))
        .collect()
}

fn request(template: &Template<'_>, problems: &mut Vec<Problem>) {
    for key in [
        PODSET_REQUIRED_TOPOLOGY,
        PODSET_PREFERRED_TOPOLOGY,
        PODSET_SLICE_REQUIRED_TOPOLOGY,
    ] {
        if let Some(level) = template.get(key).filter(|level| !is_label_key(level)) {
            problems.push(Problem::invalid(template.field(key), LABEL_KEY_RULE).of(level));
        }
    }
    if let Some(text) = template
        .get(PODSET_UNCONSTRAINED_TOPOLOGY)
        .filter(|text| !is_bool(text))
    {
        let field = template.field(PODSET_UNCONSTRAINED_TOPOLOGY);
        problems.push(Problem::invalid(field, "must be a boolean: true or false").of(text));
    }
    let given: Vec<&str> = [
        PODSET_REQUIRED_TOPOLOGY,
        PODSET_PREFERRED_TOPOLOGY,
        PODSET_UNCONSTRAINED_TOPOLOGY,
    ]
    .into_iter()
    .filter(|key| template.get(key).is_some())
    .collect();
    if given.len() > 1 {
        let text = format!(
            "must not contain more than one topology annotation: [{}]",
            given.join(", ")
        );
        problems.push(Problem::invalid(
            format!("{}.metadata.annotations", template.path),
            text,
        ));
    }
}

/// Wire: the texts that Go accepts as a boolean.
fn is_bool(text: &str) -> bool {
    [
        "1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False",
    ]
    .contains(&text)
}

fn slices(template: &Template<'_>, problems: &mut Vec<Problem>) {
    let (topology, size) = (
        template.get(PODSET_SLICE_REQUIRED_TOPOLOGY),
        template.get(PODSET_SLICE_SIZE),
    );
    match (topology, size) {
        (Some(_), None) => problems.push(Problem::required(
            template.field(PODSET_SLICE_SIZE),
            format!("must be set together with {PODSET_SLICE_REQUIRED_TOPOLOGY}"),
        )),
        (None, Some(_)) => problems.push(Problem::forbidden(
            template.field(PODSET_SLICE_SIZE),
            format!("may only be set together with {PODSET_SLICE_REQUIRED_TOPOLOGY}"),
        )),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let Some(text) = size else { return };
    let field = template.field(PODSET_SLICE_SIZE);
    match text.parse::<i32>() {
        Err(_) => problems.push(Problem::invalid(field, "must be a 32-bit integer").of(text)),
        Ok(size) if size < 1 => {
            problems.push(Problem::invalid(field, "must be greater than or equal to 1").of(text));
        }
        Ok(size) if i64::from(size) > i64::from(template.count) => {
            let why = format!("must not be greater than the pod set count {}", template.count);
            problems.push(Problem::invalid(field, why).of(text));
        }
        Ok(_) => {}
    }
}

fn layers(template: &Template<'_>, problems: &mut Vec<Problem>) {
    let key = PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
    let Some(text) = template.get(key) else { return };
    let field = template.field(key);
    for other in [
        PODSET_SLICE_REQUIRED_TOPOLOGY,
        PODSET_SLICE_SIZE,
        PODSET_GROUP_NAME,
    ] {
        if template.get(other).is_some() {
            let why = format!("may not be set together with {key}");
            problems.push(Problem::forbidden(template.field(other), why));
        }
    }
    let Some(layers) = parse_layers(text) else {
        let why = "must be a JSON list of objects with a text \"topology\" and a whole number \"size\", such as \
                   [{\"topology\":\"example.com/rack\",\"size\":4}]";
        problems.push(Problem::invalid(field, why).of(text));
        return;
    };
    if layers.is_empty() || layers.len() > LAYERS_MAX {
        let why = format!("must have 1 to {LAYERS_MAX} layers, has {}", layers.len());
        problems.push(Problem::invalid(field.clone(), why));
    }
    let mut outer: Option<i64> = None;
    for (index, (topology, size)) in layers.iter().take(LAYERS_MAX).enumerate() {
        let at = format!("{field}[{index}]");
        if !is_label_key(topology) {
            problems.push(Problem::invalid(format!("{at}.topology"), LABEL_KEY_RULE).of(topology));
        }
        if layers.iter().take(index).any(|(earlier, _)| earlier == topology) {
            problems.push(Problem::duplicate(format!("{at}.topology"), topology));
        }
        let size_of = |why: String| Problem::invalid(format!("{at}.size"), why).of(&size.to_string());
        if *size < 1 {
            problems.push(size_of("must be greater than or equal to 1".to_owned()));
            return;
        }
        match outer {
            None if *size > i64::from(template.count) => problems.push(size_of(format!(
                "must not be greater than the pod set count {}",
                template.count
            ))),
            Some(outer) if outer % *size != 0 => {
                problems.push(size_of(format!(
                    "must divide the size {outer} of the layer before"
                )));
            }
            None | Some(_) => {}
        }
        outer = Some(*size);
    }
}

fn parse_layers(text: &str) -> Option<Vec<(String, i64)>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let layer = |layer: &Value| {
        let topology = layer.get("topology")?.as_str()?.to_owned();
        Some((
            topology,
            i64::from(i32::try_from(layer.get("size")?.as_i64()?).ok()?),
        ))
    };
    value.as_array()?.iter().map(layer).collect()
}

fn group_of(template: &Template<'_>, problems: &mut Vec<Problem>) {
    let Some(name) = template.get(PODSET_GROUP_NAME) else {
        return;
    };
    let field = template.field(PODSET_GROUP_NAME);
    // Why: a bare number is the name that the engine gives to a pod set without a group.
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        problems.push(Problem::invalid(field.clone(), "must not be a number").of(name));
    }
    if template.place() == [None, None] {
        let why = format!(
            "may only be set together with {PODSET_REQUIRED_TOPOLOGY} or {PODSET_PREFERRED_TOPOLOGY}"
        );
        problems.push(Problem::forbidden(field, why));
    }
    for slice in [PODSET_SLICE_REQUIRED_TOPOLOGY, PODSET_SLICE_SIZE] {
        if template.get(slice).is_some() {
            let why = format!("may not be set together with {PODSET_GROUP_NAME}");
            problems.push(Problem::forbidden(template.field(slice), why));
        }
    }
}

fn groups(templates: &[Template<'_>], problems: &mut Vec<Problem>) {
    let mut groups: BTreeMap<&str, Vec<&Template<'_>>> = BTreeMap::new();
    for template in templates {
        if let Some(name) = template.get(PODSET_GROUP_NAME) {
            groups.entry(name).or_default().push(template);
        }
    }
    for (name, members) in groups {
        let Some(first) = members.first() else { continue };
        let field = first.field(PODSET_GROUP_NAME);
        if members.len() != GROUP_SETS {
            let why = format!(
                "can only define groups of exactly {GROUP_SETS} pod sets, has {}",
                members.len()
            );
            problems.push(Problem::invalid(field, why).of(name));
            continue;
        }
        if members.iter().all(|member| member.count != 1) {
            let why = "one of the two pod sets of a group must have exactly 1 pod";
            problems.push(Problem::invalid(field.clone(), why).of(name));
        }
        if members.iter().any(|member| member.place() != first.place()) {
            let why = "both pod sets of a group must ask for the same required or preferred topology";
            problems.push(Problem::invalid(field, why).of(name));
        }
    }
}

#[cfg(test)]
mod tests;
