//! The child that is created from a template. *Source*: `spec/appwrapper.md 1.7, 4.3`.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_api::appwrapper::v1beta2::{AppWrapper, AppWrapperPodSetInfo};
use roadstead_core::appwrapper::autopilot::Autopilot;
use roadstead_core::appwrapper::observed::Component;
use roadstead_core::appwrapper::status::LABEL;
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use roadstead_jobs::appwrapper::ROW;
use roadstead_jobs::appwrapper::path::pod_template_mut;
use roadstead_jobs::json;
use serde_json::{Value, json};

/// The administrator's settings for children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Building {
    /// `schedulerName`: the scheduler of pods that name none; `None` leaves that to the cluster.
    pub scheduler: Option<String>,
    /// How pods avoid sick nodes; `None` switches it off.
    pub autopilot: Option<Autopilot>,
}

/// The child of a component.
///
/// *Errors*: why it can never be created, in the words of the reference.
pub fn child(
    wrapper: &AppWrapper,
    index: usize,
    component: &Component,
    building: &Building,
) -> Result<Value, String> {
    let meta = &wrapper.metadata;
    let (name, namespace) = (meta.name.as_deref(), meta.namespace.as_deref());
    let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
    let spec = wrapper.spec.components.get(index);
    let spec = spec.ok_or_else(|| format!("component {index} does not exist"))?;
    let mut child = spec.template.to_value();
    let elsewhere = json::text(&child, &["metadata", "namespace"]).unwrap_or_default();
    if !elsewhere.is_empty() && elsewhere != namespace {
        return Err(format!("cannot create an object in namespace {elsewhere}"));
    }
    for (place, set) in component.pod_sets.iter().enumerate() {
        let none = AppWrapperPodSetInfo::default();
        let info = spec.pod_set_infos.get(place).unwrap_or(&none);
        let template = pod_template_mut(&mut child, &set.path)?;
        pods(template, info, name, building)?;
    }
    json::set(&mut child, &["metadata", "namespace"], json!(namespace));
    json::set(&mut child, &["metadata", "name"], json!(component.identity.name));
    json::remove(&mut child, &["metadata", "generateName"]);
    if json::at(&child, &["metadata", "labels", LABEL]).is_none() {
        json::set(&mut child, &["metadata", "labels", LABEL], json!(name));
    }
    own(&mut child, name, meta.uid.as_deref().unwrap_or_default())?;
    Ok(child)
}

/// Makes the `AppWrapper` the controller of the child.
fn own(child: &mut Value, name: &str, uid: &str) -> Result<(), String> {
    let mut owners = json::list(child, &["metadata", "ownerReferences"]).to_vec();
    let controller = owners.iter().find(|owner| json::is_true(owner, &["controller"]));
    if let Some(other) = controller {
        let other = json::text(other, &["name"]).unwrap_or_default();
        return Err(format!("the template is already controlled by {other}"));
    }
    owners.push(json!({
        "apiVersion": ROW.api_version(), "kind": ROW.kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }));
    json::set(child, &["metadata", "ownerReferences"], Value::Array(owners));
    Ok(())
}

/// Adds to a pod template the fields of the admission, the label and the administrator.
fn pods(
    template: &mut Value,
    info: &AppWrapperPodSetInfo,
    name: &str,
    building: &Building,
) -> Result<(), String> {
    let mut labels = info.labels.clone();
    if labels
        .insert(LABEL.to_owned(), name.to_owned())
        .is_some_and(|other| other != name)
    {
        return Err(format!(
            "conflict updating labels: {LABEL} of the pod set infos is not {name}"
        ));
    }
    merge(template, &["metadata", "annotations"], &info.annotations)?;
    merge(template, &["metadata", "labels"], &labels)?;
    merge(template, &["spec", "nodeSelector"], &info.node_selector)?;
    let mut tolerations = json::list(template, &["spec", "tolerations"]).to_vec();
    let count = tolerations.len();
    for toleration in &info.tolerations {
        let toleration = serde_json::to_value(toleration).unwrap_or_default();
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    if tolerations.len() > count {
        json::set(template, &["spec", "tolerations"], Value::Array(tolerations));
    }
    let mut gates = json::list(template, &["spec", "schedulingGates"]).to_vec();
    let count = gates.len();
    for gate in &info.scheduling_gates {
        if !gates
            .iter()
            .any(|known| json::text(known, &["name"]) == Some(&gate.name))
        {
            gates.push(json!({"name": gate.name}));
        }
    }
    if gates.len() > count {
        json::set(template, &["spec", "schedulingGates"], Value::Array(gates));
    }
    if let Some(scheduler) = &building.scheduler
        && json::text(template, &["spec", "schedulerName"]).is_none_or(str::is_empty)
    {
        json::set(template, &["spec", "schedulerName"], json!(scheduler));
    }
    if let Some(autopilot) = &building.autopilot {
        avoid(template, autopilot);
    }
    Ok(())
}

/// Adds missing entries. Two values for one key are a conflict.
fn merge(template: &mut Value, path: &[&str; 2], added: &BTreeMap<String, String>) -> Result<(), String> {
    for (key, new) in added {
        let place = [path[0], path[1], key.as_str()];
        let old =
            json::at(template, &place).map(|old| old.as_str().map_or_else(|| old.to_string(), str::to_owned));
        if let Some(old) = old.filter(|old| old != new) {
            let what = path[1];
            return Err(format!(
                "conflict updating {what}: conflict for key={key}, value1={old}, value2={new}"
            ));
        }
        json::set(template, &place, json!(new));
    }
    Ok(())
}

/// Makes pods avoid nodes that are marked for a resource they request.
fn avoid(template: &mut Value, autopilot: &Autopilot) {
    let avoid = autopilot.avoid(&asked(template));
    let expressions = |all: &BTreeMap<String, Vec<String>>| -> Vec<Value> {
        let all = all.iter();
        all.map(|(key, values)| json!({"key": key, "operator": "NotIn", "values": values}))
            .collect()
    };
    let (required, preferred) = (expressions(&avoid.required), expressions(&avoid.preferred));
    let affinity = ["spec", "affinity", "nodeAffinity"];
    let mut shape = affinity.iter().scan(&*template, |place, key| {
        *place = place.get(*key).unwrap_or(&Value::Null);
        Some(*place)
    });
    // Why a malformed affinity is skipped: the API server reports it when the pod is created.
    if shape.any(|value| !value.is_null() && !value.is_object()) {
        return;
    }
    if !required.is_empty() {
        let path = [
            affinity[0],
            affinity[1],
            affinity[2],
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ];
        let mut terms = json::list(template, &path).to_vec();
        if terms.is_empty() {
            terms.push(json!({}));
        }
        // Why every term: a node has to match only one of the terms.
        for term in &mut terms {
            let mut all = json::list(term, &["matchExpressions"]).to_vec();
            all.extend(required.iter().cloned());
            json::set(term, &["matchExpressions"], Value::Array(all));
        }
        json::set(template, &path, Value::Array(terms));
    }
    if !preferred.is_empty() {
        let path = [
            affinity[0],
            affinity[1],
            affinity[2],
            "preferredDuringSchedulingIgnoredDuringExecution",
        ];
        let mut terms = json::list(template, &path).to_vec();
        terms.push(json!({"weight": autopilot.weight, "preference": {"matchExpressions": preferred}}));
        json::set(template, &path, Value::Array(terms));
    }
}

/// The resources with a request or limit above zero in a template.
fn asked(template: &Value) -> BTreeSet<ResourceName> {
    let lists = ["containers", "initContainers"];
    let containers = lists
        .iter()
        .flat_map(|list| json::list(template, &["spec", list]));
    containers.flat_map(container_asks).collect()
}

/// The resources with a request or limit above zero in a container.
fn container_asks(container: &Value) -> BTreeSet<ResourceName> {
    let lists = ["requests", "limits"];
    let lists = lists
        .iter()
        .filter_map(|list| json::at(container, &["resources", list])?.as_object());
    let asked = lists.flatten().filter(|(name, amount)| {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        quantity::parse(name, &text).is_ok_and(|amount| amount.get() != 0)
    });
    asked.map(|(name, _)| ResourceName::from(name.as_str())).collect()
}

#[cfg(test)]
mod tests;
