use roadstead_api::constants::finalizers::RESOURCE_IN_USE;
use roadstead_api::kueue::v1beta2::{ClusterQueue, ResourceFlavor};
use serde_json::{Value, json};

use super::{Object, Use, names, wanted};

fn flavor(metadata: &Value) -> ResourceFlavor {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": metadata, "spec": {},
    }))
    .unwrap()
}

/// Spec: admission-engine B060, B061.
#[test]
fn the_finalizer_is_added_while_the_object_lives_and_goes_when_nothing_refers_to_a_deleted_one() {
    let fresh = flavor(&json!({ "name": "f", "finalizers": ["other"] }));
    let both = Some(vec!["other".to_owned(), RESOURCE_IN_USE.to_owned()]);
    assert_eq!(wanted(&fresh, Use::Free), both);
    assert_eq!(wanted(&fresh, Use::InUse), both);
    let held = flavor(&json!({ "name": "f", "finalizers": ["other", RESOURCE_IN_USE] }));
    assert_eq!(wanted(&held, Use::Free), None);
    let deleted = flavor(&json!({
        "name": "f", "finalizers": ["other", RESOURCE_IN_USE], "deletionTimestamp": "2026-01-01T00:00:00Z",
    }));
    assert_eq!(wanted(&deleted, Use::InUse), None);
    assert_eq!(wanted(&deleted, Use::Free), Some(vec!["other".to_owned()]));
    let going = flavor(&json!({ "name": "f", "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    assert_eq!(
        wanted(&going, Use::InUse),
        None,
        "the API server refuses new ones now"
    );
}

#[test]
fn a_cluster_queue_refers_to_its_flavors_and_checks() {
    let queue: ClusterQueue = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "q" },
        "spec": {
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "spot", "resources": [{ "name": "cpu", "nominalQuota": "1" }] },
                { "name": "reserved", "resources": [{ "name": "cpu", "nominalQuota": "1" }] },
            ]}],
            "admissionChecksStrategy": { "admissionChecks": [{ "name": "prov" }] },
        },
    }))
    .unwrap();
    let expected = [
        Object::Flavor("spot".into()),
        Object::Flavor("reserved".into()),
        Object::Check("prov".into()),
    ];
    assert_eq!(names(&queue), expected);
}
