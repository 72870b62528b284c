//! The fields of a Workflow that decide about the metadata and the nodes of its pods: of the Workflow, and of each template. Those of a
//! template replace those of the Workflow, but for labels and annotations.

use roadstead_api::constants::labels;
use serde_json::{Map, Value, json};

use super::pods;
use crate::json;
use crate::podset::{InjectError, PodSetInfo, inject as add};

/// The key of the Workflow's own fields among those that are kept; no template can have it.
const WHOLE: &str = "";
const NODES: [&str; 2] = ["nodeSelector", "tolerations"];

/// Adds the assignment of each pod set to the template of its name, and that of the first pod set also to the Workflow, for all other
/// templates. Returns the fields as they were before.
///
/// *Errors*: a field has another value, or two pod sets without a template of their name have different values.
pub(super) fn inject(workflow: &mut Value, infos: &[PodSetInfo]) -> Result<Value, InjectError> {
    let original = workflow.clone();
    let mut kept = Map::new();
    let mut whole = json!({"metadata": json::at(&original, &["spec", "podMetadata"])});
    for field in NODES {
        json::set(
            &mut whole,
            &["spec", field],
            json!(json::at(&original, &["spec", field])),
        );
    }
    kept.insert(WHOLE.to_owned(), whole.clone());
    let is_named = |info: &PodSetInfo| template(&original, &info.name).is_some();
    let first = infos.first().into_iter();
    for info in first.chain(infos.iter().skip(1).filter(|info| !is_named(info))) {
        // Why without the label of a pod set: the pods of several pod sets get these labels.
        let mut common = info.clone();
        common.labels.remove(labels::PODSET);
        add(&mut whole, &common)?;
    }
    write(workflow, WHOLE, &whole);
    for info in infos {
        let Some(own) = template(&original, &info.name) else {
            continue;
        };
        let before = json!({
            "metadata": json::at(own, &["metadata"]),
            "spec": {"nodeSelector": json::at(own, &["nodeSelector"]), "tolerations": json::at(own, &["tolerations"])},
        });
        let mut after = before.clone();
        for field in NODES {
            json::set(
                &mut after,
                &["spec", field],
                json!(pods::effective(&original, own, field)),
            );
        }
        add(&mut after, info)?;
        let name = json::text(own, &["name"]).unwrap_or_default();
        write(workflow, name, &after);
        kept.insert(name.to_owned(), before);
    }
    Ok(Value::Object(kept))
}

/// Puts the kept fields back.
pub(super) fn restore(workflow: &mut Value, kept: &Value) {
    for (place, fields) in kept.as_object().into_iter().flatten() {
        write(workflow, place, fields);
    }
}

/// The template whose pods are this pod set.
fn template<'a>(workflow: &'a Value, pod_set: &str) -> Option<&'a Value> {
    let mut all = json::list(workflow, &["spec", "templates"]).iter();
    all.find(|template| json::text(template, &["name"]).is_some_and(|name| pods::set_name(name) == pod_set))
}

fn write(workflow: &mut Value, place: &str, fields: &Value) {
    let (holder, metadata) = if place == WHOLE {
        (workflow.get_mut("spec"), "podMetadata")
    } else {
        let templates = workflow
            .pointer_mut("/spec/templates")
            .and_then(Value::as_array_mut);
        let mut all = templates.into_iter().flatten();
        let named = all.find(|template| json::text(template, &["name"]) == Some(place));
        (named, "metadata")
    };
    let Some(holder) = holder.filter(|holder| holder.is_object()) else {
        return;
    };
    for (field, path) in [
        (metadata, &["metadata"][..]),
        ("nodeSelector", &["spec", "nodeSelector"]),
        ("tolerations", &["spec", "tolerations"]),
    ] {
        match json::at(fields, path) {
            Some(value) => json::set(holder, &[field], value.clone()),
            None => json::remove(holder, &[field]),
        }
    }
}
