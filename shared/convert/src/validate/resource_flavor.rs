//! The rules for a ResourceFlavor, and the rules for tolerations that other kinds share.
//!
//! *Source*: `spec/api.md API-5`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Toleration;
use roadstead_api::constants::labels::is_label_value;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_jobs::problem::{LABEL_KEY_RULE, LABEL_VALUE_RULE, Problem, is_label_key, label_problems};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks a ResourceFlavor that is being created or changed. An empty list means that it is valid.
pub fn resource_flavor(new: &api::ResourceFlavor) -> Vec<Problem> {
    let spec = &new.spec;
    let mut problems = label_problems("spec.nodeLabels", &spec.node_labels);
    let mut seen = BTreeSet::new();
    for (index, taint) in spec.node_taints.iter().enumerate() {
        let path = format!("spec.nodeTaints[{index}]");
        if !is_label_key(&taint.key) {
            problems.push(Problem::invalid(format!("{path}.key"), LABEL_KEY_RULE).of(&taint.key));
        }
        if let Some(value) = taint.value.as_ref().filter(|value| !is_label_value(value)) {
            problems.push(Problem::invalid(format!("{path}.value"), LABEL_VALUE_RULE).of(value));
        }
        if !EFFECTS.contains(&taint.effect.as_str()) {
            problems.push(Problem::not_supported(
                format!("{path}.effect"),
                &taint.effect,
                &EFFECTS,
            ));
        }
        if !seen.insert((&taint.key, &taint.effect)) {
            problems.push(Problem::duplicate(
                path,
                &format!("{}:{}", taint.key, taint.effect),
            ));
        }
    }
    tolerations("spec.tolerations", &spec.tolerations, &mut problems);
    problems
}

/// Checks tolerations, also by the rules of the schema, because a flavor of an earlier version may be stored.
pub(super) fn tolerations(path: &str, tolerations: &[Toleration], problems: &mut Vec<Problem>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (key, value) = (text(&toleration.key), text(&toleration.value));
        let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
        if !key.is_empty() && !is_label_key(&key) {
            problems.push(Problem::invalid(format!("{path}.key"), LABEL_KEY_RULE).of(&key));
        }
        if key.is_empty() && operator != "Exists" {
            let why = "must be Exists when key is empty, which means to match all values and all keys";
            problems.push(Problem::invalid(format!("{path}.operator"), why).of(&operator));
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            let why = "must be NoExecute when tolerationSeconds is set";
            problems.push(Problem::invalid(format!("{path}.effect"), why).of(&effect));
        }
        match operator.as_str() {
            "" | "Equal" if !is_label_value(&value) => {
                problems.push(Problem::invalid(format!("{path}.value"), LABEL_VALUE_RULE).of(&value));
            }
            "Exists" if !value.is_empty() => {
                let why = "must be empty when operator is Exists";
                problems.push(Problem::invalid(format!("{path}.value"), why).of(&value));
            }
            "" | "Equal" | "Exists" => {}
            other => {
                let field = format!("{path}.operator");
                problems.push(Problem::not_supported(field, other, &["Equal", "Exists"]));
            }
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect.as_str()) {
            problems.push(Problem::not_supported(
                format!("{path}.effect"),
                &effect,
                &EFFECTS,
            ));
        }
    }
}

#[cfg(test)]
mod tests;
