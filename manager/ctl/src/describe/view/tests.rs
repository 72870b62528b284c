use roadstead_convert::explanation::view::view;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-11-21T10:05:00Z".parse().unwrap()
}

fn condition(kind: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": "2026-11-21T10:04:00Z"})
}

fn described(status: &Value, events: &[Event]) -> Description {
    let workload: Workload = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "job-train", "namespace": "team-a", "creationTimestamp": "2026-11-21T10:03:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": true}]},
        "spec": {"queueName": "main", "priority": 7, "podSets": [{"name": "main", "count": 3, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}}}]},
        "status": status,
    }))
    .unwrap();
    let view = view(&workload, now());
    let facts = Facts {
        cluster_queue: Some("pool".to_owned()),
        events: events.to_vec(),
    };
    describe(Answer { workload, view }, facts)
}

/// Spec: experience 3, experience 5
#[test]
fn a_running_job_is_described_with_its_admission_its_cluster_and_its_events() {
    let status = json!({
        "clusterName": "east",
        "conditions": [condition("QuotaReserved", ""), condition("Admitted", "two\nlines")],
        "admissionChecks": [{"name": "mk", "state": "Ready", "message": "on east", "lastTransitionTime": "2026-11-21T10:04:00Z"}],
        "admission": {"clusterQueue": "other", "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1"}, "count": 2}]},
    });
    let event = serde_json::from_value(json!({
        "metadata": {}, "involvedObject": {"kind": "Job", "name": "train"}, "type": "Normal", "reason": "Started",
        "message": "m", "eventTime": "2026-11-21T10:04:30.000000Z",
    }));
    let one = described(&status, &[event.unwrap()]);
    assert_eq!(
        render(&one, now()),
        "team-a/job-train (Job train)\n\
         State:  running\n\
         Why:    Admitted: it runs on cluster \"east\" (since 60s)\n\
         Queue:    main (ClusterQueue other)\n\
         Cluster:  east\n\
         Priority: 7\n\
         Created:  2026-11-21T10:03:00Z (2m ago)\n\
         Pod sets:\n  \
           NAME   COUNT   REQUESTS OF ONE POD   FLAVORS\n  \
           main   2       cpu=500m              cpu=spot\n\
         Admission checks:\n  \
           NAME   STATE   AGE   MESSAGE\n  \
           mk     Ready   60s   on east\n\
         Conditions:\n  \
           TYPE            STATUS   REASON          AGE   MESSAGE\n  \
           QuotaReserved   True     QuotaReserved   60s   -\n  \
           Admitted        True     Admitted        60s   two lines\n\
         Events:\n  \
           LAST SEEN   TYPE     REASON    OBJECT      MESSAGE\n  \
           30s         Normal   Started   job/train   m"
    );
}

#[test]
fn a_job_that_waits_is_described_with_what_it_asks_for() {
    let one = described(&json!({}), &[]);
    let text = render(&one, now());
    for line in [
        "Queue:    main (ClusterQueue pool)",
        "Cluster:  -",
        "  main   3       cpu=500m              -",
        "Conditions: none",
        "Events: none",
    ] {
        assert!(text.lines().any(|of| of == line), "{line}: {text}");
    }
    let json = serde_json::to_value(&one).unwrap();
    assert_eq!(
        (&json["state"], &json["podSets"][0]["count"]),
        (&json!("WaitingForQuota"), &json!(3))
    );
}
