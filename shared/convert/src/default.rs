//! The changes that the mutating webhooks make to objects of our own kinds.
//!
//! Invariant: each function is idempotent and touches only the fields it names.

mod appwrapper;

pub use appwrapper::appwrapper_submitter;

use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::finalizers;
use serde_json::{Value, json};

/// Adds the finalizer `kueue.x-k8s.io/resource-in-use` to a new object. The queue controllers remove it at the end of the object.
///
/// *Source*: `spec/api.md API-2.4, API-5`.
pub fn in_use_finalizer(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let list = metadata.entry("finalizers").or_insert(Value::Null);
    let wanted = json!(finalizers::RESOURCE_IN_USE);
    match list {
        Value::Array(list) if list.contains(&wanted) => {}
        Value::Array(list) => list.push(wanted),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            *list = json!([wanted]);
        }
    }
}

/// Removes `minCount` from all pod sets of a Workload when partial admission is off.
///
/// *Source*: `spec/api.md API-9.5`.
pub fn workload_min_counts(workload: &mut Value, gates: &FeatureGates) {
    if gates.enabled(FeatureGate::PartialAdmission) {
        return;
    }
    let sets = workload
        .pointer_mut("/spec/podSets")
        .and_then(Value::as_array_mut);
    for set in sets.into_iter().flatten() {
        if let Some(set) = set.as_object_mut() {
            set.remove("minCount");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: api API-2.4; admission-engine B001.
    #[test]
    fn the_finalizer_is_added_once_beside_others() {
        let mut object = json!({"metadata": {"name": "q", "finalizers": ["other.example/x"]}});
        in_use_finalizer(&mut object);
        in_use_finalizer(&mut object);
        assert_eq!(
            object["metadata"]["finalizers"],
            json!(["other.example/x", "kueue.x-k8s.io/resource-in-use"])
        );
        let mut bare = json!({"metadata": {}});
        in_use_finalizer(&mut bare);
        assert_eq!(
            bare["metadata"]["finalizers"],
            json!(["kueue.x-k8s.io/resource-in-use"])
        );
    }

    /// Spec: api API-9.5.
    #[test]
    fn minimum_counts_go_only_when_partial_admission_is_off() {
        let workload = json!({"spec": {"podSets": [{"name": "a", "minCount": 1}, {"name": "b"}]}});
        let mut kept = workload.clone();
        workload_min_counts(&mut kept, &FeatureGates::default());
        assert_eq!(kept, workload);
        let off = FeatureGates::resolve([("PartialAdmission", false)]).unwrap();
        workload_min_counts(&mut kept, &off);
        assert_eq!(kept["spec"]["podSets"], json!([{"name": "a"}, {"name": "b"}]));
    }
}
