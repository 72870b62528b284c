//! Version `v1beta1` of `kueue.x-k8s.io`: how its schemas differ from those of [`super::v1beta2`].
//!
//! It is served and never stored; `roadstead-convert` turns its objects in to `v1beta2` and back. Source: the columns
//! "v1beta1" of `spec/api.md`.

mod clusterqueue;
mod workload;

use schemars::SchemaGenerator;
use serde_json::{Value, json};

use crate::older::Older;
use crate::schema;

pub(crate) use clusterqueue::clusterqueue;
pub(crate) use workload::workload;

/// The list type of a list for which an older version declares no merging.
const PLAIN: &str = "atomic";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";

/// `ResourceFlavor`: no difference.
pub(crate) const fn resourceflavor(_: &mut Older) {}

/// `LocalQueue`: another name of the usage, and a copy of the flavors that is never filled.
pub(crate) fn localqueue(schema: &mut Older) {
    any_number_of_conditions(schema);
    schema.rename("status", "flavorsUsage", "flavorUsage");
    let mut generator = SchemaGenerator::default();
    let with_doc = |field: schemars::Schema, text: &str| with_description(field.to_value(), text);
    let flavor = json!({
        "description": "A flavor of the queue.",
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": with_doc(schema::subdomain(&mut generator), "Name of the ResourceFlavor."),
            "resources": {
                "description": "Resources that the flavor offers: at most 64.",
                "type": "array", "maxItems": 64, "items": {"type": "string"}, LIST_TYPE: "set",
            },
            "nodeLabels": with_doc(schema::node_labels(&mut generator), "Labels of the nodes of the flavor: at most 8."),
            "nodeTaints": with_doc(schema::taints(&mut generator), "Taints of the nodes of the flavor: at most 8."),
            "topology": {
                "description": "Topology of the nodes of the flavor.",
                "type": "object",
                "required": ["levels", "name"],
                "properties": {
                    "name": with_doc(schema::subdomain(&mut generator), "Name of the Topology."),
                    "levels": {
                        "description": "Node labels of its levels, from the widest to the narrowest: 1 to 16.",
                        "type": "array", "minItems": 1, "maxItems": 16, "items": {"type": "string"}, LIST_TYPE: "atomic",
                    },
                },
            },
        },
    });
    schema.add(
        "status",
        "flavors",
        json!({
            "description": "Not used any more: flavors of the queue, at most 64.",
            "type": "array", "maxItems": 64, "items": flavor, LIST_TYPE: "map", LIST_KEYS: ["name"],
        }),
    );
}

/// `Cohort`: an unused part of the status.
pub(crate) fn cohort(schema: &mut Older) {
    schema.add(
        "status.fairSharing",
        "admissionFairSharingStatus",
        unused_past_usage(),
    );
}

/// `AdmissionCheck`: fewer limits, and a delay that is never read.
pub(crate) fn admissioncheck(schema: &mut Older) {
    any_number_of_conditions(schema);
    schema.cut("spec.controllerName", "minLength");
    schema.lift("spec.controllerName", "maxLength", ", 1 to 253 characters");
    for (name, max) in [("apiGroup", "253"), ("kind", "63"), ("name", "63")] {
        let path = format!("spec.parameters.{name}");
        schema.cut(&path, "minLength");
        schema.reword(&path, &format!("1 to {max}"), &format!("at most {max}"));
    }
    schema.add(
        "spec",
        "retryDelayMinutes",
        json!({"description": "Not used any more; default 15.", "type": "integer", "format": "int64", "default": 15}),
    );
}

/// `Topology`: the levels never change.
pub(crate) fn topology(schema: &mut Older) {
    schema.reword(
        "spec.levels",
        "They can be changed only when the last one is kubernetes.io/hostname before and after.",
        "Immutable.",
    );
    schema.replace_rule(
        "spec.levels",
        "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change",
        json!({"rule": "self == oldSelf", "message": "field is immutable"}),
    );
}

/// `WorkloadPriorityClass`: a description of any length.
pub(crate) fn workloadpriorityclass(schema: &mut Older) {
    schema.lift("description", "maxLength", ": at most 2048 characters");
}

/// `MultiKueueCluster`: the sources of the credentials stand in the spec.
pub(crate) fn multikueuecluster(schema: &mut Older) {
    any_number_of_conditions(schema);
    schema.require("spec.clusterSource.kubeConfig", &["location", "locationType"]);
    for source in ["kubeConfig", "clusterProfileRef"] {
        let field = schema.remove("spec.clusterSource", source);
        schema.add("spec", source, field);
    }
    schema.remove("spec", "clusterSource");
    schema.require("spec", &["kubeConfig"]);
}

/// `MultiKueueConfig`: names of any length in a set, and no word on quotas.
pub(crate) fn multikueueconfig(schema: &mut Older) {
    schema.cut("spec.clusters[]", "maxLength");
    schema.reword("spec.clusters", ", each at most 256 characters", "");
    schema.cut("spec.clusters", "x-kubernetes-validations");
    schema.set("spec.clusters", LIST_TYPE, "set");
    schema.remove("spec", "quotaManagement");
}

/// `ProvisioningRequestConfig`: the selectors are a plain list.
pub(crate) fn provisioningrequestconfig(schema: &mut Older) {
    schema.cut("spec.provisioningClassName", "minLength");
    schema.reword("spec.provisioningClassName", "1 to 253", "at most 253");
    plain_list(schema, "spec.podSetUpdates.nodeSelector");
}

/// A list that was a map by some key becomes one that is replaced as a whole.
fn plain_list(schema: &mut Older, path: &str) {
    schema.cut(path, LIST_KEYS);
    schema.set(path, LIST_TYPE, PLAIN);
}

fn any_number_of_conditions(schema: &mut Older) {
    schema.lift("status.conditions", "maxItems", " At most 16.");
}

/// The schema of past usage, which is never filled here.
fn unused_past_usage() -> Value {
    let consumed = schema::quantities(&mut SchemaGenerator::default());
    json!({
        "description": "Not used.",
        "type": "object",
        "required": ["consumedResources", "lastUpdate"],
        "properties": {
            "consumedResources": with_description(consumed.to_value(), "Not used."),
            "lastUpdate": {"description": "Not used.", "type": "string", "format": "date-time"},
        },
    })
}

fn with_description(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}
