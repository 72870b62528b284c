//! Jobs.

use serde_json::{Value, json};

use super::pod;
use crate::failure::Cause;
use crate::json;

const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

pub(super) fn default(job: &mut Value) {
    if json::at(job, &["metadata", "labels"]).is_none()
        && let Some(labels) = json::at(job, &["spec", "template", "metadata", "labels"]).cloned()
    {
        json::set(job, &["metadata", "labels"], labels);
    }
    let Some(spec) = job.get_mut("spec") else { return };
    let indexed = spec["completionMode"] == "Indexed";
    if json::at(spec, &["completions"]).is_none() && json::at(spec, &["parallelism"]).is_none() {
        json::set(spec, &["completions"], 1);
    }
    json::default(spec, &["parallelism"], 1);
    let per_index = json::at(spec, &["backoffLimitPerIndex"]).is_some();
    let limit = if per_index && indexed {
        i64::from(i32::MAX)
    } else {
        6
    };
    json::default(spec, &["backoffLimit"], limit);
    json::default(spec, &["completionMode"], "NonIndexed");
    json::default(spec, &["suspend"], false);
    json::default(spec, &["manualSelector"], false);
    let policy = spec["podFailurePolicy"].is_object();
    let replacement = if policy { "Failed" } else { "TerminatingOrFailed" };
    json::default(spec, &["podReplacementPolicy"], replacement);
    for rule in json::items_mut(spec, &["podFailurePolicy", "rules"]) {
        for pattern in json::items_mut(rule, &["onPodConditions"]) {
            json::default(pattern, &["status"], "True");
        }
    }
    if let Some(template) = spec.get_mut("template") {
        pod::default_template(template);
    }
}

pub(super) fn prepare_create(job: &mut Value) {
    json::set(job, &["status"], json!({}));
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let uid = json::text(job, &["metadata", "uid"]).to_owned();
    let name = json::text(job, &["metadata", "name"]).to_owned();
    let template = ["spec", "template", "metadata", "labels"];
    // Why: a Job without own labels shares its template's, so it also gets the labels that are added here.
    let shared = json::at(job, &["metadata", "labels"]) == json::at(job, &template);
    for (labels, value) in [(UID_LABELS, &uid), (NAME_LABELS, &name)] {
        for label in labels {
            let path: Vec<&str> = template.into_iter().chain([label]).collect();
            json::default(job, &path, value.as_str());
        }
    }
    if shared && let Some(labels) = json::at(job, &template).cloned() {
        json::set(job, &["metadata", "labels"], labels);
    }
    if json::at(job, &["spec", "selector"]).is_none() {
        json::set(job, &["spec", "selector"], json!({}));
    }
    json::default(job, &["spec", "selector", "matchLabels", UID_LABELS[1]], uid);
}

pub(super) fn prepare_update(job: &mut Value, old: &Value) {
    json::copy(job, old, &["status"]);
}

pub(super) fn validate(job: &Value) -> Vec<Cause> {
    let spec = &job["spec"];
    let mut causes = Vec::new();
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        if let Some(n) = spec[field].as_i64()
            && n < 0
        {
            let says = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("spec.{field}"), &n.into(), says));
        }
    }
    let mode = json::text(spec, &["completionMode"]);
    if !["NonIndexed", "Indexed"].contains(&mode) {
        let allowed = ["NonIndexed", "Indexed"].map(str::to_owned);
        causes.push(Cause::not_supported(
            "spec.completionMode",
            &mode.into(),
            &allowed,
        ));
    }
    if mode == "Indexed" && json::at(spec, &["completions"]).is_none() {
        let says = "when completion mode is Indexed";
        causes.push(Cause::required("spec.completions", says));
    }
    let manager = json::text(spec, &["managedBy"]);
    if !(manager.is_empty() || manager.contains('/') && crate::names::is_qualified(manager)) {
        let says = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        causes.push(Cause::invalid("spec.managedBy", &manager.into(), says));
    }
    if json::at(spec, &["selector"]).is_none() {
        causes.push(Cause::required("spec.selector", ""));
    } else if spec["manualSelector"] != true {
        generated(job, &mut causes);
    }
    let template = &spec["template"];
    let restart = json::text(template, &["spec", "restartPolicy"]);
    causes.extend(pod::validate_template(template, "spec.template"));
    if restart == "Always" {
        let allowed = ["OnFailure", "Never"].map(str::to_owned);
        let field = "spec.template.spec.restartPolicy";
        causes.push(Cause::required(
            field,
            &format!("valid values: {:?}, {:?}", allowed[0], allowed[1]),
        ));
    }
    let labels = &template["metadata"]["labels"];
    let selector = crate::selector::Labels::of_object(&spec["selector"]);
    if json::at(spec, &["selector"]).is_none() || !selector.matches(template) {
        let says = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, says));
    }
    causes
}

/// Complains if the labels or the selector differ from the generated ones.
fn generated(job: &Value, causes: &mut Vec<Cause>) {
    let (uid, name) = (&job["metadata"]["uid"], &job["metadata"]["name"]);
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let mut expected = json!({});
    for (keys, value) in [(UID_LABELS, uid), (NAME_LABELS, name)] {
        for key in keys {
            json::set(&mut expected, &["metadata", "labels", key], value.clone());
            let field = format!("spec.template.metadata.labels[{key}]");
            let says = format!("must be '{}'", value.as_str().unwrap_or_default());
            if labels[key].is_null() {
                causes.push(Cause::required(field, &says));
            } else if labels[key] != *value {
                causes.push(Cause::invalid(field, &labels[key], &says));
            }
        }
    }
    let selector = &job["spec"]["selector"];
    if !crate::selector::Labels::of_object(selector).matches(&expected) {
        let says = "`selector` not auto-generated";
        causes.push(Cause::invalid("spec.selector", selector, says));
    }
}

/// Parts of the pod template that may change while the job has not started.
const SCHEDULING: [&[&str]; 6] = [
    &["metadata", "labels"],
    &["metadata", "annotations"],
    &["spec", "nodeSelector"],
    &["spec", "affinity"],
    &["spec", "tolerations"],
    &["spec", "schedulingGates"],
];

pub(super) fn validate_update(job: &Value, old: &Value) -> Vec<Cause> {
    let (spec, before) = (&job["spec"], &old["spec"]);
    let mut causes = Vec::new();
    let elastic = spec["completionMode"] == "Indexed"
        && spec["completions"] == spec["parallelism"]
        && before["completions"] == before["parallelism"];
    if spec["completions"] != before["completions"] && !elastic {
        causes.push(Cause::immutable("spec.completions", &spec["completions"]));
    }
    if spec["selector"] != before["selector"] {
        causes.push(Cause::immutable("spec.selector", &spec["selector"]));
    }
    let flexible = is_flexible(old);
    if !same_template(job, old, flexible) {
        let field = if flexible {
            "spec.template.spec"
        } else {
            "spec.template"
        };
        causes.push(Cause::immutable(field, &spec["template"]));
    }
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        if spec[field] != before[field] {
            causes.push(Cause::immutable(format!("spec.{field}"), &spec[field]));
        }
    }
    causes
}

/// Whether the job is suspended and nothing of it runs, so that its pods may be directed elsewhere.
fn is_flexible(old: &Value) -> bool {
    let never_ran = json::at(old, &["status", "startTime"]).is_none();
    let halted = crate::kinds::condition(old, "Suspended") == "True"
        && old["status"]["active"].as_i64().unwrap_or(0) == 0;
    old["spec"]["suspend"] == true && (never_ran || halted)
}

fn same_template(job: &Value, old: &Value, flexible: bool) -> bool {
    let mut template = job["spec"]["template"].clone();
    let before = &old["spec"]["template"];
    if flexible {
        for path in SCHEDULING {
            json::copy(&mut template, before, path);
        }
        for list in ["containers", "initContainers"] {
            let resources: Vec<Value> = json::items(before, &["spec", list])
                .iter()
                .map(|container| container["resources"].clone())
                .collect();
            let containers = json::items_mut(&mut template, &["spec", list]);
            for (container, resources) in containers.zip(resources) {
                json::set(container, &["resources"], resources);
            }
        }
    }
    template == *before
}
