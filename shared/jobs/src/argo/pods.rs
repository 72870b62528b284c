//! The pod of a template, as far as it costs quota or decides where it may run.

use std::collections::BTreeMap;

use roadstead_core::amount::Amount;
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use serde_json::{Value, json};

use crate::json;

/// The container that runs the work of a step.
const MAIN: &str = "main";
/// Counts the pods of a level beside what they request, so that a wider level never seems smaller.
const PODS: &str = "pods";

/// Amounts by resource.
pub(super) type Amounts = BTreeMap<ResourceName, Amount>;

/// A field of a template that replaces the Workflow's field of the same name.
pub(super) fn effective<'a>(workflow: &'a Value, template: &'a Value, field: &str) -> Option<&'a Value> {
    let is_set = |value: &&Value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    json::at(template, &[field])
        .filter(is_set)
        .or_else(|| json::at(workflow, &["spec", field]))
}

/// The name of the pod set of a template: names of templates may have characters that names of pod sets do not have.
pub(super) fn set_name(template: &str) -> String {
    let name = template.chars().map(|c| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9') => c,
        _ => '-',
    });
    name.collect::<String>().trim_matches('-').to_owned()
}

/// The pod of a template that runs these containers.
pub(super) fn pod(workflow: &Value, template: &Value, containers: &[Value]) -> Value {
    let mut spec = json!({"restartPolicy": "Never", "containers": containers});
    let init: Vec<Value> = { json::list(template, &["initContainers"]).iter() }
        .map(|container| slim(container, None))
        .collect();
    if !init.is_empty() {
        json::set(&mut spec, &["initContainers"], Value::Array(init));
    }
    for field in ["nodeSelector", "tolerations", "affinity"] {
        if let Some(value) = effective(workflow, template, field) {
            json::set(&mut spec, &[field], value.clone());
        }
    }
    let class = json::at(template, &["priorityClassName"])
        .or_else(|| json::at(workflow, &["spec", "podPriorityClassName"]));
    if let Some(class) = class {
        json::set(&mut spec, &["priorityClassName"], class.clone());
    }
    let mut metadata = json!({});
    for part in ["labels", "annotations"] {
        let places = [
            json::at(workflow, &["spec", "podMetadata", part]),
            json::at(template, &["metadata", part]),
        ];
        for (key, value) in { places.into_iter().flatten() }
            .filter_map(Value::as_object)
            .flatten()
        {
            json::set(&mut metadata, &[part, key.as_str()], value.clone());
        }
    }
    json!({"metadata": metadata, "spec": spec})
}

/// The containers of a template that runs as a pod; `None` for one that makes no pod.
pub(super) fn containers(template: &Value) -> Option<Vec<Value>> {
    let main = ["container", "script"]
        .iter()
        .find_map(|field| json::at(template, &[field]));
    let mut all = match main {
        Some(main) => vec![slim(main, Some(MAIN))],
        None => {
            let set = json::list(template, &["containerSet", "containers"]).iter();
            set.map(|container| slim(container, None)).collect()
        }
    };
    // Why a container without requests: the executor itself does the work of such a template.
    let by_executor = |field: &str| json::at(template, &[field]).is_some();
    if all.is_empty() && (by_executor("resource") || by_executor("data")) {
        all.push(json!({"name": MAIN}));
    }
    if all.is_empty() {
        return None;
    }
    let beside = json::list(template, &["sidecars"]).iter();
    all.extend(beside.map(|container| slim(container, None)));
    Some(all)
}

/// A container without what depends on the parameters of a step.
fn slim(container: &Value, name: Option<&str>) -> Value {
    let own = json::text(container, &["name"]);
    let mut slim = json!({"name": name.or(own).unwrap_or(MAIN)});
    for field in ["image", "resources"] {
        if let Some(value) = json::at(container, &[field]) {
            json::set(&mut slim, &[field], value.clone());
        }
    }
    slim
}

/// What one pod of a template costs: its requests, its limits where requests are missing, and itself as one of [`PODS`].
///
/// *Errors*: a quantity cannot be parsed, for example because it is a parameter; a phrase.
pub(super) fn requests(pod: &Value) -> Result<Amounts, String> {
    let mut sum = Amounts::new();
    for container in json::list(pod, &["spec", "containers"]) {
        for (name, amount) in of_container(container)? {
            let known = sum.entry(name).or_default();
            *known = known.plus(amount);
        }
    }
    for container in json::list(pod, &["spec", "initContainers"]) {
        for (name, amount) in of_container(container)? {
            let known = sum.entry(name).or_default();
            *known = amount.max(*known);
        }
    }
    sum.insert(ResourceName::from(PODS), Amount::new(1));
    Ok(sum)
}

fn of_container(container: &Value) -> Result<Amounts, String> {
    let mut amounts = Amounts::new();
    // Why in this order: requests replace limits.
    for part in ["limits", "requests"] {
        let all = json::at(container, &["resources", part]).and_then(Value::as_object);
        for (resource, value) in all.into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    value.to_string()
                }
            };
            let amount = quantity::parse(resource, &text)
                .map_err(|error| format!("{part} of {resource} are {text:?}: {error}"))?;
            amounts.insert(ResourceName::from(resource.as_str()), amount);
        }
    }
    Ok(amounts)
}
