//! Events: one object in two groups with different field names. Stored in the form of the core group.

use serde_json::Value;

use crate::failure::Cause;
use crate::json;

/// Names in `events.k8s.io` and in the core group.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

fn rename(event: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    for (from, to) in names {
        if let Some(value) = json::remove(event, &[from]) {
            json::set(event, &[to], value);
        }
    }
}

/// Into the form of the core group.
pub(crate) fn to_core(event: &mut Value) {
    rename(event, NAMES.into_iter());
    json::set(event, &["apiVersion"], "v1");
}

/// Into the form of `events.k8s.io`.
pub(crate) fn from_core(event: &mut Value) {
    rename(event, NAMES.into_iter().map(|(new, core)| (core, new)));
    for unset in ["regarding", "related"] {
        if event[unset].as_object().is_some_and(serde_json::Map::is_empty) && unset == "related" {
            json::remove(event, &[unset]);
        }
    }
    if event["note"] == "" {
        json::remove(event, &["note"]);
    }
    json::set(event, &["apiVersion"], "events.k8s.io/v1");
}

pub(super) fn validate(event: &Value) -> Vec<Cause> {
    let about = json::text(event, &["involvedObject", "namespace"]);
    let own = json::text(event, &["metadata", "namespace"]);
    let right = about == own || (about.is_empty() && own == "default");
    if right {
        Vec::new()
    } else {
        let says = "does not match event.namespace";
        vec![Cause::invalid("involvedObject.namespace", &about.into(), says)]
    }
}
