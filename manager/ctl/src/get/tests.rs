use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-11-21T10:05:00Z".parse().unwrap()
}

fn asked(what: What, scope: Scope) -> Asked {
    Asked {
        what,
        name: None,
        selector: None,
        scope,
    }
}

fn team() -> Scope {
    Scope::One("team-a".to_owned())
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn workload(job: &str, status: &Value) -> DynamicObject {
    object(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": format!("job-{job}"), "namespace": "team-a", "creationTimestamp": "2026-11-21T10:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": "u", "controller": true}]},
        "spec": {"queueName": "main", "podSets": [], "priority": 7}, "status": status,
    }))
}

fn conditions(of: &[(&str, &str, &str)]) -> Value {
    let all = of.iter().map(|(kind, status, reason)| {
        json!({"type": kind, "status": status, "reason": reason, "message": "said", "lastTransitionTime": "2026-11-21T10:00:00Z"})
    });
    all.collect()
}

/// Spec: experience 3
#[test]
fn jobs_are_shown_with_state_and_cluster_and_wide_with_the_reason() {
    let running = [
        ("QuotaReserved", "True", "QuotaReserved"),
        ("Admitted", "True", "Admitted"),
    ];
    let objects = [
        workload(
            "waits",
            &json!({"conditions": conditions(&[("QuotaReserved", "False", "WaitingForQuota")])}),
        ),
        workload(
            "runs",
            &json!({"conditions": conditions(&running), "clusterName": "east"}),
        ),
        workload(
            "ended",
            &json!({"conditions": conditions(&[("Finished", "True", "Failed")])}),
        ),
    ];
    let asked = asked(What::Jobs, team());
    let text = Sheet::new(&asked, ListFormat::Table).rows(&objects, now());
    assert_eq!(
        text,
        "NAME        QUEUE   STATE             CLUSTER   AGE\n\
         job/waits   main    WaitingForQuota   -         5m\n\
         job/runs    main    Running           east      5m\n\
         job/ended   main    Failed            -         5m"
    );
    let text = Sheet::new(&asked, ListFormat::Wide).rows(&objects[..1], now());
    assert_eq!(
        text,
        "NAME        QUEUE   STATE             CLUSTER   AGE   PRIORITY   WORKLOAD    REASON\n\
         job/waits   main    WaitingForQuota   -         5m    7          job-waits   WaitingForQuota: said"
    );
}

#[test]
fn all_namespaces_have_a_column_for_them_and_an_empty_list_has_no_header() {
    let everywhere = asked(What::Queues, Scope::All);
    let queue = object(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": "team-a", "creationTimestamp": "2026-11-19T10:00:00Z"},
        "spec": {"clusterQueue": "pool"},
        "status": {"pendingWorkloads": 2, "admittedWorkloads": 1,
            "conditions": conditions(&[("Active", "False", "ClusterQueueDoesNotExist")])},
    }));
    assert_eq!(
        Sheet::new(&everywhere, ListFormat::Table).rows(&[queue], now()),
        "NAMESPACE   NAME   CLUSTERQUEUE   ACTIVE   WAITING   ADMITTED   AGE\n\
         team-a      main   pool           False    2         1          2d"
    );
    assert_eq!(Sheet::new(&everywhere, ListFormat::Table).rows(&[], now()), "");
    assert_eq!(everywhere.none(), "no LocalQueues in any namespace");
}

#[test]
fn clusters_say_whether_they_are_connected_and_take_new_work() {
    let cluster = object(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": {"name": "east", "creationTimestamp": "2026-11-21T10:00:00Z", "annotations": {"roadstead.dev/cordon": "true"}},
        "spec": {"clusterSource": {"kubeConfig": {"location": "roadstead-east", "locationType": "Secret"}}},
        "status": {"conditions": conditions(&[("Active", "True", "Active")])},
    }));
    // Why all scopes: the kind has no namespace.
    for scope in [Scope::All, team()] {
        assert_eq!(
            Sheet::new(&asked(What::Clusters, scope), ListFormat::Wide)
                .rows(std::slice::from_ref(&cluster), now()),
            "NAME   CONNECTED   CLOSED     AGE   SECRET           REASON\n\
             east   True        cordoned   5m    roadstead-east   Active: said"
        );
    }
}

#[test]
fn an_object_that_is_not_understood_leaves_the_others_alone() {
    let mut strange = workload("strange", &json!({}));
    strange.data["spec"] = json!({"podSets": 3});
    let objects = [strange, workload("plain", &json!({}))];
    let text = Sheet::new(&asked(What::Jobs, team()), ListFormat::Table).rows(&objects, now());
    assert_eq!(
        text,
        "NAME          QUEUE   STATE             CLUSTER   AGE\n\
         job-strange   -       -                 -         5m\n\
         job/plain     main    WaitingForQuota   -         5m"
    );
}

#[test]
fn a_name_means_a_workload_or_those_of_a_job() {
    let mut named = asked(What::Jobs, team());
    let object = workload("train", &json!({}));
    for (name, is_meant) in [
        ("train", true),
        ("job/train", true),
        ("jobs/train", true),
        ("job-train", true),
        ("workload/job-train", true),
        ("workload/train", false),
        ("jobset/train", false),
        ("other", false),
    ] {
        named.name = Some(name.to_owned());
        assert_eq!(named.means(&object), is_meant, "{name}");
    }
}
