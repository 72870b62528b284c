//! `Workload` in `v1beta1`.

use schemars::SchemaGenerator;
use serde_json::json;

use super::{LIST_TYPE, any_number_of_conditions, plain_list, with_description};
use crate::kueue::v1beta2;
use crate::older::Older;
use crate::schema;

/// Another form of the priority's class and of topology assignments, no preemption gates, fewer limits.
pub(crate) fn workload(schema: &mut Older) {
    schema.set(
        "",
        "x-kubernetes-validations",
        v1beta2::workload_object_rules(v1beta2::v1beta1_class_rules()),
    );
    spec(schema);
    topology_request(schema);
    status(schema);
    admission(schema);
}

fn spec(schema: &mut Older) {
    schema.require("spec", &["podSets"]);
    schema.require("spec.podSets[]", &["count", "template"]);
    schema.remove("spec", "preemptionGates");
    schema.remove("spec", "priorityClassRef");
    let name = schema::subdomain(&mut SchemaGenerator::default());
    schema.add(
        "spec",
        "priorityClassName",
        with_description(
            name.to_value(),
            "Name of the class the priority comes from. Ignored without priorityClassSource.",
        ),
    );
    schema.add(
        "spec",
        "priorityClassSource",
        json!({
            "description": "Kind of the class: kueue.x-k8s.io/workloadpriorityclass, scheduling.k8s.io/priorityclass, or empty \
                            (default) for none.",
            "type": "string",
            "enum": ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""],
            "default": "",
        }),
    );
    schema.reword("spec.priority", "priorityClassRef", "priorityClassName");
    schema.replace_rule(
        "spec",
        "priority should not be nil when priorityClassRef is set",
        json!({
            "rule": "!has(self.priorityClassName) || has(self.priority)",
            "message": "priority should not be nil when priorityClassName is set",
        }),
    );
}

fn topology_request(schema: &mut Older) {
    let request = "spec.podSets[].topologyRequest";
    for (name, limit, words) in [
        ("required", "maxLength", ": at most 63 characters"),
        ("preferred", "maxLength", ": at most 63 characters"),
        ("podIndexLabel", "maxLength", ": at most 317 characters"),
        ("subGroupIndexLabel", "maxLength", ": at most 317 characters"),
        ("subGroupCount", "minimum", ": at least 0"),
        ("podSetGroupName", "maxLength", ": at most 256 characters"),
        (
            "podSetSliceRequiredTopology",
            "maxLength",
            ": at most 63 characters",
        ),
    ] {
        schema.lift(&format!("{request}.{name}"), limit, words);
    }
    schema.remove(request, "podsetSliceRequiredTopologyConstraints");
}

fn status(schema: &mut Older) {
    any_number_of_conditions(schema);
    schema.cut("status.admissionChecks[].name", "minLength");
    schema.reword("status.admissionChecks[].name", "1 to 316", "at most 316");
    // Wire: misspelt in this version.
    schema.rename(
        "status",
        "accumulatedPastExecutionTimeSeconds",
        "accumulatedPastExexcutionTimeSeconds",
    );
    schema.lift(
        "status.schedulingStats.evictions",
        "maxItems",
        ": at most 256 entries",
    );
    schema.cut("status.nominatedClusterNames[]", "maxLength");
    schema.lift("status.clusterName", "maxLength", ": at most 256 characters");
    plain_list(schema, "status.unhealthyNodes");
    schema.remove("status", "preemptionGates");
}

fn admission(schema: &mut Older) {
    schema.require("status.admission", &["clusterQueue", "podSetAssignments"]);
    let assignments = "status.admission.podSetAssignments[]";
    schema.require(assignments, &["name"]);
    schema.cut(&format!("{assignments}.delayedTopologyRequest"), "enum");
    let text = |description: &str| {
        json!({
            "description": description, "type": "array", "minItems": 1, "maxItems": 16, "items": {"type": "string"},
            LIST_TYPE: "atomic",
        })
    };
    let domain = json!({
        "description": "A domain and how many pods go there.",
        "type": "object",
        "required": ["count", "values"],
        "properties": {
            "values": text("Value of each level's node label, in the order of the levels: 1 to 16."),
            "count": {
                "description": "Number of pods in the domain: at least 1.", "type": "integer", "format": "int32", "minimum": 1,
            },
        },
    });
    schema.add(
        assignments,
        "topologyAssignment",
        json!({
            "description": "Domains of the topology the pods go to.",
            "type": "object",
            "required": ["domains", "levels"],
            "properties": {
                "levels": text(
                    "Node labels of the levels that name a domain, from the widest to the narrowest: 1 to 16. Only \
                     kubernetes.io/hostname when that is the lowest level.",
                ),
                "domains": {
                    "description": "The domains, in the order of the pods' ranks.",
                    "type": "array", "items": domain, LIST_TYPE: "atomic",
                },
            },
        }),
    );
}
