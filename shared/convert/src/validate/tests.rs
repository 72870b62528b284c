use roadstead_api::kueue::v1beta2 as api;
use serde_json::{Value, json};

use super::validate_workload;

fn workload(patch: &Value) -> api::Workload {
    let mut base = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": "w", "namespace": "ns" },
        "spec": { "podSets": [{ "name": "main", "count": 2, "template": { "spec": { "containers": [
            { "resources": { "requests": { "cpu": "1" } } } ] } } }] },
        "status": {},
    });
    json_patch::merge(&mut base, patch);
    serde_json::from_value(base).unwrap()
}

fn reserved() -> Value {
    json!({
        "conditions": [{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "admission": { "clusterQueue": "q", "podSetAssignments": [
            { "name": "main", "count": 2, "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "2" } }] },
        "nominatedClusterNames": ["east"],
    })
}

fn check(old: Option<&Value>, new: &Value, expect: &[&str]) {
    let old = old.map(workload);
    let problems = validate_workload(old.as_ref(), &workload(new));
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), expect.len(), "{texts:?}");
    for (text, part) in texts.iter().zip(expect) {
        assert!(text.contains(part), "{text:?} should contain {part:?}");
    }
}

/// Spec: api API-9.5.2, 9.5.4.
#[test]
fn resources_and_minimum_counts_are_checked() {
    check(None, &json!({}), &[]);
    let pod = |resources: Value| json!({ "spec": { "containers": [{ "resources": resources }] } });
    let set = |name: &str, template: Value| json!({ "name": name, "count": 1, "minCount": 1, "template": template });
    let sets = json!([
        set(
            "a",
            pod(json!({ "requests": { "pods": 1 }, "limits": { "cpu": "-1" } }))
        ),
        set("b", json!({})),
    ]);
    check(
        None,
        &json!({ "spec": { "podSets": sets } }),
        &[
            "reserved for internal kueue use",
            "greater than or equal to 0",
            "at most one podSet can use minCount",
        ],
    );
}

/// Spec: api API-9.5.5, 9.5.6, 9.5.7, 9.5.8.
#[test]
fn statuses_must_fit_the_spec() {
    let mut status = reserved();
    status["admission"] = Value::Null;
    check(
        None,
        &json!({ "status": status }),
        &["must be set while the QuotaReserved condition is true"],
    );
    let old = json!({ "status": status });
    check(Some(&old), &old, &[]);
    let mut status = reserved();
    status["admission"]["podSetAssignments"] = json!([
        { "name": "main", "count": 2, "resourceUsage": { "cpu": "2001m" } }, { "name": "other", "count": 1 }]);
    status["reclaimablePods"] = json!([{ "name": "main", "count": 3 }, { "name": "x", "count": 1 }]);
    status["admissionChecks"] = json!([{ "name": "c", "state": "Ready", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "podSetUpdates": [{ "name": "y" }] }]);
    check(
        None,
        &json!({ "status": status }),
        &[
            "is not a multiple of 2",
            "\"other\"",
            "less or equal to 2",
            "\"x\"",
            "podSetUpdates[0].name",
        ],
    );
}

/// Spec: api API-9.5.9.
#[test]
fn gates_are_domain_prefixed_unique_and_can_only_be_removed() {
    let gated =
        |by: &str| json!({ "metadata": { "annotations": { "kueue.x-k8s.io/admission-gated-by": by } } });
    check(None, &gated("example.com/a,example.com/b"), &[]);
    check(
        None,
        &gated("a,,x/y,x/y"),
        &["\"a\" must be", "empty names", "Duplicate value: \"x/y\""],
    );
    check(Some(&gated("x/a,x/b")), &gated("x/b"), &[]);
    check(Some(&gated("x/a")), &gated("x/b"), &["can only remove gates"]);
}

/// Spec: api API-9.5.10, multikueue 1.6.
#[test]
fn what_is_reserved_stays_as_it_is() {
    let old = json!({ "status": reserved() });
    let mut new = old.clone();
    new["spec"] = json!({ "podSets": [{ "name": "main", "count": 3, "template": {} }] });
    check(Some(&old), &new, &["spec.podSets: field is immutable"]);
    let mut new = old.clone();
    new["status"]["admission"]["clusterQueue"] = json!("other");
    check(Some(&old), &new, &["status.admission: field is immutable"]);
    let mut new = old.clone();
    new["status"]["nominatedClusterNames"] = Value::Null;
    new["status"]["clusterName"] = json!("east");
    check(Some(&old), &new, &[]);
    new["status"]["clusterName"] = json!("west");
    check(Some(&old), &new, &["must be one of the nominatedClusterNames"]);
}
