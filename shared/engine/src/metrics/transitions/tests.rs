use jiff::Timestamp;
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::{Value, json};

use super::{Owner, Part, gates_removed, of};
use crate::metrics::board::Change;
use crate::metrics::table::Metric;

pub(crate) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    })
}

/// A workload of 2 pods with 2 cores each, created at midnight, of priority class `high`.
pub(crate) fn workload(status: &Value) -> Workload {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": "w", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {
            "queueName": "lq",
            "priorityClassRef": { "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high" },
            "podSets": [{ "name": "main", "count": 2, "template": { "spec": { "containers": [
                { "name": "c", "resources": { "requests": { "cpu": "2" } } },
            ] } } }],
        },
        "status": status,
    }))
    .unwrap()
}

fn owner() -> Owner {
    Owner {
        cluster_queue: "cq".into(),
        local_queue: Some(("lq".into(), "ns".into())),
        cohorts: vec!["team".into(), "all".into()],
    }
}

/// The updates one and a half minutes after midnight, as lines `name{labels} change`, without those of LocalQueues.
fn told(old: &Value, new: &Value) -> Vec<String> {
    let now: Timestamp = "2026-01-01T00:01:30Z".parse().unwrap();
    of(&workload(old), &workload(new), &owner(), now)
        .into_iter()
        .filter(|update| !update.metric.definition().name.contains("local_queue"))
        .map(|update| {
            let name = update.metric.definition().name.trim_start_matches("kueue_");
            let change = match update.change {
                Change::Add(by) => format!("+{by}"),
                Change::Observe(seen) | Change::Set(seen) | Change::ObserveTimes(seen, _) => {
                    format!("{seen}")
                }
            };
            format!("{name}{{{}}} {change}", update.labels.join(","))
        })
        .collect()
}

fn reserved() -> Value {
    condition("QuotaReserved", "True", "QuotaReserved", "")
}

fn admitted() -> Value {
    condition("Admitted", "True", "Admitted", "")
}

#[test]
fn reservation_and_admission_in_one_write_are_both_counted() {
    let new = json!({ "conditions": [reserved(), admitted()] });
    assert_eq!(
        told(&json!({}), &new),
        [
            "quota_reserved_workloads_total{cq,high} +1",
            "quota_reserved_wait_time_seconds{cq,high} 90",
            "admitted_workloads_total{cq,high} +1",
            "admission_wait_time_seconds{cq,high} 90",
            "cohort_subtree_admitted_workloads_total{team,high} +1",
            "cohort_subtree_admitted_workloads_total{all,high} +1",
        ]
    );
    assert_eq!(told(&new, &new), [""; 0], "what was there is not counted again");
}

#[test]
fn waiting_for_checks_is_told_of_workloads_that_have_some() {
    let checks = json!([{ "name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:01:10Z" }]);
    let old = json!({ "conditions": [reserved()], "admissionChecks": checks });
    let new = json!({ "conditions": [reserved(), admitted()], "admissionChecks": checks });
    let lines = told(&old, &new);
    assert!(
        lines.contains(&"admission_checks_wait_time_seconds{cq,high} 30".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn time_in_the_queue_counts_from_the_last_requeuing() {
    let old = json!({ "conditions": [condition("Requeued", "True", "BackoffFinished", "")] });
    let new = json!({ "conditions": [condition("Requeued", "True", "BackoffFinished", ""), reserved()] });
    assert!(told(&old, &new).contains(&"quota_reserved_wait_time_seconds{cq,high} 30".to_owned()));
}

#[test]
fn ready_pods_are_told_from_creation_and_from_admission() {
    let old = json!({ "conditions": [reserved(), admitted()] });
    let new =
        json!({ "conditions": [reserved(), admitted(), condition("PodsReady", "True", "Started", "")] });
    assert_eq!(
        told(&old, &new),
        [
            "ready_wait_time_seconds{cq,high} 90",
            "admitted_until_ready_wait_time_seconds{cq,high} 30"
        ]
    );
}

fn evicted(count: i32, conditions: &[Value]) -> Value {
    json!({
        "conditions": conditions,
        "schedulingStats": { "evictions": [{ "reason": "Preempted", "underlyingCause": "", "count": count }] },
    })
}

/// Spec: admission-engine B230.
#[test]
fn a_preemption_is_counted_for_the_preemptor_and_as_an_eviction_of_the_victim() {
    let message = "Preempted to accommodate a workload (UID: u2, JobUID: UNKNOWN) due to reclamation within the cohort; \
                   preemptor path: /all/team/p; preemptee path: /all/team/cq";
    let old = json!({ "conditions": [reserved(), admitted()] });
    let marks = [
        reserved(),
        admitted(),
        condition("Evicted", "True", "Preempted", message),
        condition("Preempted", "True", "InCohortReclamation", message),
    ];
    assert_eq!(
        told(&old, &evicted(1, &marks)),
        [
            "evicted_workloads_once_total{cq,Preempted,,high} +1",
            "evicted_workloads_total{cq,Preempted,,high} +1",
            "preempted_workloads_total{p,InCohortReclamation} +1",
        ]
    );
}

/// Spec: admission-engine B231.
#[test]
fn a_second_eviction_counts_as_an_eviction_but_not_as_an_evicted_workload() {
    let lines = told(&evicted(1, &[]), &evicted(2, &[]));
    assert_eq!(lines, ["evicted_workloads_total{cq,Preempted,,high} +1"]);
}

#[test]
fn an_eviction_tells_how_long_pods_were_ready_and_how_long_quota_stayed_held() {
    let ready = condition("PodsReady", "True", "Started", "");
    let old = json!({ "conditions": [reserved(), admitted(), ready] });
    let marks = [
        condition("Evicted", "True", "Preempted", "m"),
        condition("QuotaReserved", "False", "PendingEvaluation", "m"),
    ];
    let lines = told(&old, &evicted(1, &marks));
    assert!(
        lines.contains(&"pods_ready_to_evicted_time_seconds{cq,Preempted,} 30".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"workload_eviction_latency_seconds{cq,Preempted} 30".to_owned()),
        "{lines:?}"
    );
}

/// Spec: admission-engine 8. The last admission began 60 s after midnight; 100 s were spent in earlier ones.
#[test]
fn the_end_tells_how_long_it_was_admitted_over_all_its_admissions() {
    let finished = |at: &str| {
        let mut finished = condition("Finished", "True", "Succeeded", "");
        finished["lastTransitionTime"] = json!(at);
        finished
    };
    let old = json!({ "conditions": [reserved(), admitted()] });
    let mut new = json!({ "conditions": [reserved(), admitted(), finished("2026-01-01T00:01:20Z")] });
    let finished_once = "finished_workloads_total{cq,high} +1";
    assert_eq!(
        told(&old, &new),
        [finished_once, "execution_time_seconds{cq,high} 20"]
    );
    new["accumulatedPastExecutionTimeSeconds"] = json!(100);
    assert_eq!(
        told(&old, &new),
        [finished_once, "execution_time_seconds{cq,high} 120"]
    );
    let never = json!({ "conditions": [finished("2026-01-01T00:01:20Z")] });
    assert_eq!(told(&json!({}), &never), [finished_once]);
}

/// Spec: jobs 12.8
#[test]
fn pods_that_are_let_go_tell_how_long_ago_their_workload_was_admitted() {
    let now: Timestamp = "2026-01-01T00:01:30Z".parse().unwrap();
    let status = json!({ "conditions": [reserved(), admitted()], "admission": {"clusterQueue": "cq"} });
    for (part, is_group) in [(Part::Whole, "false"), (Part::OfGroup, "true")] {
        let update = gates_removed(&workload(&status), (part, 3), now).unwrap();
        assert_eq!(update.metric, Metric::PodSchedulingGateRemoval);
        assert_eq!(update.change, Change::ObserveTimes(30.0, 3));
        let labels: Vec<&str> = update.labels.iter().map(|label| &**label).collect();
        assert_eq!(labels, ["kueue.x-k8s.io/admission", "cq", is_group]);
    }
    let waiting = json!({ "conditions": [reserved()], "admission": {"clusterQueue": "cq"} });
    assert_eq!(gates_removed(&workload(&waiting), (Part::Whole, 1), now), None);
}

#[test]
fn a_replaced_slice_is_told_apart() {
    let new = json!({ "conditions": [condition("Finished", "True", "WorkloadSliceReplaced", "")] });
    assert!(told(&json!({}), &new).contains(&"replaced_workload_slices_total{cq} +1".to_owned()));
}
