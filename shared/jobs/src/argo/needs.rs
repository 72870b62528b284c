//! The objects that a Workflow names, and that must exist where it runs.
//!
//! Limit: what a `WorkflowTemplate` names is not known, nor is a name that depends on a parameter.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::json;
use crate::needs::{self, Need, Thing};

/// The fields by which a pod gets the content of one key, with the kind of object that holds it.
const KEYS: [(&str, Thing); 2] = [
    ("configMapKeyRef", Thing::ConfigMap),
    ("secretKeyRef", Thing::Secret),
];
/// The fields that name a template of another object.
const REFERENCES: [&str; 2] = ["workflowTemplateRef", "templateRef"];

/// The objects without which the Workflow, or one of its steps, fails.
pub(super) fn of(workflow: &Value) -> BTreeSet<Need> {
    let mut needs = needs::of(&pods(workflow));
    if let Some(spec) = json::at(workflow, &["spec"]) {
        add_named(spec, &mut needs);
    }
    needs.retain(is_known);
    needs
}

/// The objects that its pods name and can start without.
pub(super) fn wanted(workflow: &Value) -> BTreeSet<Need> {
    let mut wanted = needs::wanted(&pods(workflow));
    wanted.retain(is_known);
    wanted
}

fn is_known(need: &Need) -> bool {
    !need.name.contains("{{")
}

/// The pods of its templates, as far as they name objects.
fn pods(workflow: &Value) -> Vec<Value> {
    let none = json!({});
    let spec = json::at(workflow, &["spec"]).unwrap_or(&none);
    let executor =
        |holder: &Value| json::text(holder, &["executor", "serviceAccountName"]).map(str::to_owned);
    let pod = |template: &Value| {
        let either =
            |own: &str, common: &str| json::at(template, &[own]).or_else(|| json::at(spec, &[common]));
        let listed = |holder: &Value, field: &str| json::list(holder, &[field]).to_vec();
        let main = ["container", "script"].iter();
        let main: Vec<Value> = main
            .filter_map(|field| json::at(template, &[field]).cloned())
            .collect();
        let set = json::list(template, &["containerSet", "containers"]).to_vec();
        let containers = [main, set, listed(template, "sidecars")].concat();
        let volumes = [listed(spec, "volumes"), listed(template, "volumes")].concat();
        json!({"spec": {
            "serviceAccountName": either("serviceAccountName", "serviceAccountName"),
            "priorityClassName": either("priorityClassName", "podPriorityClassName"),
            "initContainers": listed(template, "initContainers"),
            "containers": containers, "volumes": volumes,
            "imagePullSecrets": listed(spec, "imagePullSecrets"),
        }})
    };
    let templates = json::list(spec, &["templates"]);
    let executors = templates.iter().chain([spec]).filter_map(executor);
    let executors = executors.map(|name| json!({"spec": {"serviceAccountName": name}}));
    // Why a pod of no template too: all templates may be in another object, and the fields of the Workflow name objects too.
    templates
        .iter()
        .chain([&none])
        .map(pod)
        .chain(executors)
        .collect()
}

/// Adds the objects that are named anywhere in it: templates, keys of `ConfigMaps` and Secrets.
fn add_named(value: &Value, needs: &mut BTreeSet<Need>) {
    match value {
        Value::Object(fields) => {
            let has_default = fields.get("default").is_some_and(|value| !value.is_null());
            for (field, value) in fields {
                let thing = thing_of(field, value).filter(|_| !has_default);
                let name = json::text(value, &["name"]).filter(|name| !name.is_empty());
                if let (Some(thing), Some(name), false) = (thing, name, json::is_true(value, &["optional"])) {
                    let name = name.to_owned();
                    needs.insert(Need { thing, name });
                }
                add_named(value, needs);
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| add_named(entry, needs)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The kind of the object that this field names.
fn thing_of(field: &str, value: &Value) -> Option<Thing> {
    if REFERENCES.contains(&field) {
        return Some(if json::is_true(value, &["clusterScope"]) {
            Thing::ClusterWorkflowTemplate
        } else {
            Thing::WorkflowTemplate
        });
    }
    // Credentials of artifacts: `accessKeySecret` and others.
    let is_credential = field.ends_with("Secret") && json::at(value, &["key"]).is_some();
    let of_key = KEYS
        .iter()
        .find(|(name, _)| *name == field)
        .map(|(_, thing)| *thing);
    of_key.or_else(|| is_credential.then_some(Thing::Secret))
}
