//! Copies of jobs on worker clusters: the part that all kinds have in common.
//!
//! *Source*: `spec/multikueue.md 5, 1.9`, `spec/jobs.md 10.1`.

use roadstead_api::constants::{annotations, labels};
use serde_json::{Value, json};

use crate::json;
use crate::kind::{JobKind, Member, RemoteIdentity};

/// The parts of every copy: name, namespace, labels and annotations, the whole spec without the managed-by field, the origin label, and the
/// name of its Workload. That name is an annotation and, for workers before 0.18, also a label when it fits.
pub fn skeleton(kind: &dyn JobKind, local: Member<'_>, identity: &RemoteIdentity<'_>) -> Value {
    let row = kind.kind();
    let mut copy = json!({"apiVersion": row.api_version(), "kind": row.kind, "metadata": {}});
    let meta = local.meta;
    for (field, value) in [
        ("name", meta.name.as_ref().map(|name| json!(name))),
        ("namespace", meta.namespace.as_ref().map(|name| json!(name))),
        ("labels", meta.labels.as_ref().map(|labels| json!(labels))),
        ("annotations", meta.annotations.as_ref().map(|all| json!(all))),
    ] {
        if let Some(value) = value {
            json::set(&mut copy, &["metadata", field], value);
        }
    }
    if let Some(spec) = json::at(local.data, &["spec"]) {
        json::set(&mut copy, &["spec"], spec.clone());
    }
    if let Some(managed_by) = row.managed_by {
        json::remove(&mut copy, managed_by.path);
    }
    let mut mark = |place: &str, key: &str, value: &str| {
        json::set(&mut copy, &["metadata", place, key], json!(value));
    };
    mark("labels", labels::MULTIKUEUE_ORIGIN, identity.origin);
    mark(
        "annotations",
        annotations::PREBUILT_WORKLOAD_NAME,
        identity.workload,
    );
    if labels::is_label_value(identity.workload) {
        mark("labels", labels::PREBUILT_WORKLOAD_NAME, identity.workload);
    } else {
        json::remove(&mut copy, &["metadata", "labels", labels::PREBUILT_WORKLOAD_NAME]);
    }
    copy
}
