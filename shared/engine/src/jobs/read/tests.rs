use serde_json::{Value, json};

use super::*;

fn saying(conditions: &[(&str, &str)]) -> Workload {
    let said = |(kind, status): &(&str, &str)| -> Value {
        json!({"type": kind, "status": status, "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions: Vec<Value> = conditions.iter().map(said).collect();
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"podSets": []}, "status": {"conditions": conditions},
    }))
    .unwrap()
}

/// A job that was started without assignment failed.
///
/// Spec: jobs 5.18
#[test]
fn what_has_no_quota_is_not_admitted_whoever_says_so() {
    assert!(matches!(stage(&saying(&[("Admitted", "True")])), Stage::Pending));
    let taken = saying(&[("QuotaReserved", "False"), ("Admitted", "True")]);
    assert!(matches!(stage(&taken), Stage::Pending));
    let both = [("QuotaReserved", "True"), ("Admitted", "True")];
    assert!(matches!(stage(&saying(&both)), Stage::Admitted(_)));
    let evicted = [both[0], both[1], ("Evicted", "True")];
    assert!(matches!(stage(&saying(&evicted)), Stage::Evicted { .. }));
}

/// Spec: jobs 9.12, 9.13
#[test]
fn pods_have_the_gates_of_the_object_that_made_them() {
    let caches = Caches::new(&roadstead_jobs::registry());
    let pod = |parent: &str| -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {
                "name": "db-0", "namespace": "ns",
                "annotations": {annotations::POD_SUSPENDING_PARENT: parent, annotations::ADMISSION_GATED_BY: "x.io/pod"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": true}],
            },
        }))
        .unwrap()
    };
    let plain = gates(&caches, &pod(""));
    assert_eq!(plain.as_deref(), Some("x.io/pod"));
    assert_eq!(
        gates(&caches, &pod("statefulset")),
        None,
        "its set is not known yet"
    );
    let sets = caches.kind("apps", "StatefulSet").unwrap();
    let mut version = 0;
    for set_by in [json!({annotations::ADMISSION_GATED_BY: "x.io/set"}), json!({})] {
        version += 1;
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {
            "name": "db", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string(), "annotations": set_by,
        }});
        sets.objects.observe(serde_json::from_value(set).unwrap());
        let expected = set_by[annotations::ADMISSION_GATED_BY].as_str();
        let found = gates(&caches, &pod("statefulset"));
        assert_eq!(found.as_deref(), Some(expected.unwrap_or_default()));
    }
}
