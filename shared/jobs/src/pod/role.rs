//! Roles of the pods of a group: pods are alike if they request the same from the scheduler. *Source*: `spec/jobs.md 12.3`.

use std::collections::BTreeMap;

use roadstead_api::constants::annotations;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::json;
use crate::kind::Member;
use crate::labels::annotation;

/// The number of bytes of the hash that are written, two digits each.
const HASH_BYTES: usize = 4;
/// The fields of a pod's spec that are hashed unchanged, beside its containers.
const FIELDS: [&str; 9] = [
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
    "initContainers",
];

/// The role of a pod: from its annotation, or otherwise from its requests.
pub(super) fn of(pod: Member<'_>) -> String {
    match annotation(pod.meta, annotations::ROLE_HASH) {
        Some(role) => role.to_owned(),
        None => hash(pod.data),
    }
}

/// The hash of a pod's role. Wire: byte-exact with the reference, so that a group of pods from both has one pod set per role.
pub(crate) fn hash(pod: &Value) -> String {
    let spec = |field: &str| json::at(pod, &["spec", field]).cloned().unwrap_or_default();
    let mut shape: BTreeMap<&str, Value> = FIELDS.iter().map(|field| (*field, spec(field))).collect();
    for list in ["containers", "initContainers"] {
        shape.insert(list, containers(&spec(list)));
    }
    if let Some(requests) = json::at(pod, &["spec", "resources"]) {
        shape.insert(
            "resources",
            json!({ "requests": json::at(requests, &["requests"]) }),
        );
    }
    let text = sorted(&json!({ "spec": shape })).to_string();
    let digest = Sha256::digest(text.as_bytes());
    let number = digest
        .iter()
        .take(HASH_BYTES)
        .fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
    format!("{number:08x}")
}

fn containers(list: &Value) -> Value {
    let Some(list) = list.as_array().filter(|list| !list.is_empty()) else {
        return Value::Null;
    };
    let shape = |container: &Value| {
        json!({
            "ports": json::at(container, &["ports"]),
            "resources": { "requests": json::at(container, &["resources", "requests"]) },
        })
    };
    Value::Array(list.iter().map(shape).collect())
}

/// The same value with the keys of all objects in order, whatever order the map keeps.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> =
                fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            json!(fields)
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: jobs 12.3, 15.95
    #[test]
    fn hashes_are_those_of_the_reference() {
        let of = |container: Value| hash(&json!({"spec": {"containers": [container]}}));
        assert_eq!(of(json!({"resources": {"requests": {}}})), "a9f06f3a");
        assert_eq!(of(json!({"name": "c", "image": "i"})), "7aa6c7b8");
        assert_eq!(of(json!({"resources": {"requests": {"cpu": "1"}}})), "dc85db45");
    }

    /// Spec: jobs 12.3
    #[test]
    fn only_what_scheduling_asks_for_makes_a_role() {
        let plain = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        let with = |path: &[&str], value: Value| {
            let mut pod = plain.clone();
            json::set(&mut pod, path, value);
            hash(&pod)
        };
        assert_eq!(
            with(&["spec", "serviceAccountName"], json!("other")),
            hash(&plain)
        );
        for (field, value) in [
            ("nodeSelector", json!({"zone": "a"})),
            ("tolerations", json!([{"key": "spot"}])),
            ("runtimeClassName", json!("gvisor")),
            ("resources", json!({"requests": {"cpu": "2"}})),
        ] {
            assert_ne!(with(&["spec", field], value), hash(&plain), "{field}");
        }
    }
}
