//! The common parts of the tests, and a test that no mutated object makes a rule panic.

use proptest::prelude::*;
use roadstead_api::config::{FeatureGates, PodSetsMax};
use roadstead_jobs::problem::Problem;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{appwrapper, appwrapper_update, cluster_queue, cohort, resource_flavor, workload};

pub(super) fn gates(name: &str, on: bool) -> FeatureGates {
    FeatureGates::resolve([(name, on)]).unwrap()
}

/// Compares problems with the parts that their texts should contain, in order.
pub(super) fn compare(problems: &[Problem], expect: &[&str], about: &Value) {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), expect.len(), "{texts:#?} {about}");
    for (text, part) in texts.iter().zip(expect) {
        assert!(text.contains(part), "{text:?} should contain {part:?}");
    }
}

fn queue() -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {
            "cohortName": "c", "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1", "borrowingLimit": "1", "lendingLimit": "1"}]}]}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "x", "onFlavors": ["f"]}]},
            "fairSharing": {"weight": "1"},
            "concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors",
                "constraints": {"lastAcceptableFlavorName": "f"}}},
        },
    })
}

fn flavor() -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"},
        "spec": {"nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
            "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}]},
    })
}

fn whole_workload() -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "w", "namespace": "n", "annotations": {
            "kueue.x-k8s.io/admission-gated-by": "x.io/a", "kueue.x-k8s.io/elastic-job": "true"}},
        "spec": {"podSets": [{"name": "main", "count": 2, "minCount": 1,
            "topologyRequest": {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2},
            "template": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {
                "containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"memory": 5}}}],
                "initContainers": [{}], "resources": {"requests": {"cpu": "1"}}}}}]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "admission": {"clusterQueue": "q", "podSetAssignments": [
                {"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}]},
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [{"name": "x", "state": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "podSetUpdates": [{"name": "main", "labels": {"a": "b"},
                    "tolerations": [{"operator": "Exists"}]}]}],
            "nominatedClusterNames": ["east"],
        },
    })
}

fn wrapper() -> Value {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n"},
        "spec": {"parallelism": 2, "template": {"spec": {"containers": [{}]}}}});
    let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"},
        "spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"template": {"spec": {}}}}}]}});
    json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "a"},
    "spec": {"managedBy": "m", "components": [
        {"template": job, "podSets": [{"path": "template.spec.template", "replicas": 2}]},
        {"template": set, "podSets": [{"path": "template.spec.replicatedJobs[0].template.spec.template", "replicas": 2}]},
    ]}})
}

/// All places of an object, as JSON pointers.
fn places(object: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match object {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{path}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
        "[-+0-9.eEnumkKMGi]{0,12}".prop_map(Value::from),
        "[a-z0-9./,\\[\\]-]{0,70}".prop_map(Value::from),
        "template[.a-z\\[\\]0-9-]{0,30}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[], {}, null, 1, "x"])),
        Just(json!({"": null, "kueue.x-k8s.io/admission-gated-by": ",,"})),
    ]
}

fn mutated(object: Value) -> impl Strategy<Value = Value> {
    let mut all = Vec::new();
    places(&object, "", &mut all);
    prop::collection::vec((prop::sample::select(all), odd()), 0..4).prop_map(move |changes| {
        let mut changed = object.clone();
        for (place, value) in changes {
            if let Some(found) = changed.pointer_mut(&place) {
                *found = value;
            }
        }
        changed
    })
}

fn typed<K: DeserializeOwned>(value: &Value) -> Option<K> {
    serde_json::from_value(value.clone()).ok()
}

fn any_gates() -> impl Strategy<Value = FeatureGates> {
    any::<bool>().prop_map(|on| {
        let names = [
            "ConcurrentAdmission",
            "PriorityBoost",
            "RejectUpdatesToCQWithInvalidOnFlavors",
        ];
        FeatureGates::resolve(names.map(|name| (name, on))).unwrap()
    })
}

proptest! {
    #[test]
    fn no_cluster_queue_makes_a_rule_panic(old in mutated(queue()), new in mutated(queue()), gates in any_gates()) {
        if let Some(new) = typed(&new) {
            let _ = cluster_queue(typed(&old).as_ref(), &new, &gates);
        }
        if let Some(new) = typed(&new) {
            let _ = cohort(&new);
        }
    }

    #[test]
    fn no_flavor_makes_a_rule_panic(new in mutated(flavor())) {
        if let Some(new) = typed(&new) {
            let _ = resource_flavor(&new);
        }
    }

    #[test]
    fn no_workload_makes_a_rule_panic(
        old in mutated(whole_workload()), new in mutated(whole_workload()), gates in any_gates(),
    ) {
        if let Some(new) = typed(&new) {
            let _ = workload(typed(&old).as_ref(), &new, &gates);
        }
    }

    #[test]
    fn no_wrapper_makes_a_rule_panic(old in mutated(wrapper()), new in mutated(wrapper())) {
        let _ = appwrapper(&new, "n", PodSetsMax::default());
        let _ = appwrapper_update(&old, &new);
    }
}

/// The objects that are mutated are valid, so that the mutations start from inside the rules.
#[test]
fn the_objects_that_are_mutated_are_fine() {
    let gates = FeatureGates::default();
    compare(
        &cluster_queue(None, &typed(&queue()).unwrap(), &gates),
        &[],
        &queue(),
    );
    compare(&resource_flavor(&typed(&flavor()).unwrap()), &[], &flavor());
    let elastic = ["partial admission and elastic job cannot be used together"];
    compare(
        &workload(None, &typed(&whole_workload()).unwrap(), &gates),
        &elastic,
        &whole_workload(),
    );
    compare(
        &appwrapper(&wrapper(), "n", PodSetsMax::default()),
        &[],
        &wrapper(),
    );
}
