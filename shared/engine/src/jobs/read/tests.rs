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
