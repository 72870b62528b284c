use serde_json::{Value, json};

use super::*;

fn workload(name: &str, true_conditions: &[&str], mut status: Value) -> Workload {
    let conditions = true_conditions.iter().map(|kind| {
        json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    });
    status["conditions"] = conditions.collect();
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "team"}, "spec": {"podSets": []}, "status": status,
    }))
    .unwrap()
}

fn placed(cluster: &str, cpu: &str) -> Value {
    json!({"clusterName": cluster, "admission": {"clusterQueue": "pool", "podSetAssignments": [
        {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": cpu}, "count": 1}]}})
}

/// Spec: experience P5
#[test]
fn clusters_count_their_jobs_and_sum_up_what_these_use() {
    let cluster: MultiKueueCluster = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "east"},
        "spec": {"clusterSource": {}},
        "status": {"conditions": [{"type": "Active", "status": "False", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))
    .unwrap();
    let rows = rows(
        &[cluster],
        &[
            workload("runs", &["QuotaReserved", "Admitted"], placed("east", "1500m")),
            workload("placed", &["QuotaReserved"], placed("east", "500m")),
            workload(
                "ended",
                &["QuotaReserved", "Admitted", "Finished"],
                placed("east", "9"),
            ),
            workload(
                "asks",
                &["QuotaReserved"],
                json!({"nominatedClusterNames": ["east", "unknown"]}),
            ),
            workload("waits", &[], json!({})),
            workload("left", &["QuotaReserved", "Admitted"], placed("gone", "1")),
        ],
    );
    assert_eq!(
        render(&rows),
        "CLUSTER   CONNECTED       CLOSED   PLACED   RUNNING   OFFERED   USED\n\
         east      False           -        2        1         1         cpu=2\n\
         gone      NotRegistered   -        1        1         0         cpu=1"
    );
}
