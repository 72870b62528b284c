use jiff::Timestamp;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::afs::{PastUsage, Score};
use roadstead_core::amount::Amount;
use roadstead_core::condition::{Active, Truth};
use roadstead_core::hierarchy::Forest;
use roadstead_core::name::{CheckName, ClusterName};
use roadstead_core::report::{CohortReport, Kinship, LocalQueueReport};
use roadstead_core::status::{CheckState, GatePosition};
use serde_json::{Value, json};

use super::{Shares, cohort_status, local_queue_status, request_stop, status_patch};

fn workload(status: &Value) -> api::Workload {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": "w", "namespace": "ns", "generation": 3, "resourceVersion": "7" },
        "spec": { "podSets": [{ "name": "main", "count": 2, "template": { "spec": { "containers": [] } } }] },
        "status": status,
    }))
    .unwrap()
}

fn full() -> Value {
    json!({
        "conditions": [
            { "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m",
              "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 },
            { "type": "example.com/Custom", "status": "Unknown", "reason": "X", "message": "",
              "lastTransitionTime": "2026-01-01T00:00:00Z" },
        ],
        "admission": { "clusterQueue": "q", "podSetAssignments": [{ "name": "main", "count": 2,
            "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "2", "memory": "1536Mi" } }] },
        "admissionChecks": [{ "name": "c", "state": "Ready", "message": "ok", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "retryCount": 1, "podSetUpdates": [{ "name": "main", "nodeSelector": { "a": "b" } }] }],
        "requeueState": { "count": 2, "requeueAt": "2026-01-01T00:01:00Z" },
        "nominatedClusterNames": ["east", "west"],
        "unhealthyNodes": [{ "name": "n1" }],
        "resourceRequests": [{ "name": "main", "resources": { "cpu": "1500m", "memory": "1Gi" } }],
        "preemptionGates": [{ "name": "g", "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "schedulingStats": { "evictions": [{ "reason": "Preempted", "underlyingCause": "", "count": 4 }] },
    })
}

#[test]
fn what_was_read_and_not_changed_needs_no_write() {
    let stored = workload(&full());
    let status = crate::workload(&stored).status;
    assert_eq!(status_patch(&stored, &status), None);
}

/// Spec: api API-1.2
#[test]
fn messages_are_cut_to_what_the_api_takes_and_are_the_same_afterwards() {
    let stored = workload(&full());
    let mut status = crate::workload(&stored).status;
    let long = "ä".repeat(20_000);
    status
        .checks
        .values_mut()
        .for_each(|check| check.message.clone_from(&long));
    status.conditions.set(
        "QuotaReserved",
        Truth::True,
        "QuotaReserved",
        long,
        Timestamp::UNIX_EPOCH,
    );
    let patch = status_patch(&stored, &status).unwrap();
    let mut after = full();
    for (list, at) in [("admissionChecks", 0), ("conditions", 0)] {
        let kept = patch["status"][list][at]["message"].as_str().unwrap();
        assert!(
            kept.len() <= 32_768 && kept.ends_with('…'),
            "{list}: {}",
            kept.len()
        );
        after[list] = patch["status"][list].clone();
    }
    assert_eq!(status_patch(&workload(&after), &status), None);
}

/// The patch is a merge patch, so that it removes a list of clusters whichever client wrote the list. It carries the resource version that
/// was read.
///
/// Spec: multikueue 11.55.
#[test]
fn only_what_changed_is_written_and_unknown_conditions_survive() {
    let stored = workload(&full());
    let now: Timestamp = "2026-01-01T00:05:00.7Z".parse().unwrap();
    let mut status = crate::workload(&stored).status;
    status.conditions.set(
        "Admitted",
        Truth::True,
        "Admitted",
        "The workload is admitted",
        now,
    );
    status.nominated.clear();
    status.cluster = Some(ClusterName::from("east"));
    let patch = status_patch(&stored, &status).unwrap();
    let fields: Vec<&String> = patch["status"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["clusterName", "conditions", "nominatedClusterNames"]);
    assert_eq!(patch["status"]["nominatedClusterNames"], Value::Null);
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 3);
    assert_eq!(conditions[1]["type"], "example.com/Custom");
    assert_eq!(
        conditions[0]["observedGeneration"], 1,
        "untouched conditions stay as they are"
    );
    assert_eq!(conditions[2]["observedGeneration"], 3);
    assert_eq!(conditions[2]["lastTransitionTime"], "2026-01-01T00:05:00Z");
}

#[test]
fn a_field_that_goes_away_is_written_as_null_also_inside_objects() {
    let stored = workload(&full());
    let mut status = crate::workload(&stored).status;
    status.admission = None;
    status.requeue = Some(roadstead_core::status::Requeue {
        count: Some(2),
        at: None,
    });
    status
        .checks
        .insert(CheckName::from("d"), CheckState::pending(Timestamp::UNIX_EPOCH));
    let patch = status_patch(&stored, &status).unwrap();
    assert_eq!(patch["status"]["admission"], Value::Null);
    assert_eq!(
        patch["status"]["requeueState"],
        json!({ "count": 2, "requeueAt": null })
    );
    assert_eq!(patch["status"]["admissionChecks"].as_array().unwrap().len(), 2);
}

/// Spec: admission-engine 2.15, 3.3.
#[test]
fn requests_gates_and_nodes_are_written_when_they_change() {
    let stored = workload(&full());
    let mut status = crate::workload(&stored).status;
    status.unhealthy_nodes.clear();
    for gate in status.preemption_gates.values_mut() {
        gate.position = GatePosition::Closed;
    }
    status.requests = [("main".into(), [("cpu".into(), Amount::new(3000))].into())].into();
    let patch = status_patch(&stored, &status).unwrap();
    assert_eq!(
        patch["status"],
        json!({
            "resourceRequests": [{ "name": "main", "resources": { "cpu": "3" } }],
            "preemptionGates": [{ "name": "g", "position": "Closed", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "unhealthyNodes": null,
        })
    );
    status.requests.clear();
    let patch = status_patch(&stored, &status).unwrap();
    assert_eq!(patch["status"]["resourceRequests"], Value::Null);
}

/// Spec: multikueue 3.8.
#[test]
fn a_stop_request_keeps_the_other_conditions_and_carries_the_version() {
    let patch = request_stop(
        &workload(&full()),
        "Evicted on manager: why",
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 3);
    assert_eq!(conditions[2]["reason"], "EvictedOnManagerCluster");
}

/// Spec: admission-engine B223.
#[test]
fn past_usage_of_a_local_queue_is_read_back_as_it_was_written() {
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let stored: api::LocalQueue = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": { "name": "q", "namespace": "ns" }, "spec": { "clusterQueue": "cq" },
    }))
    .unwrap();
    let past = PastUsage {
        consumed: [
            ("cpu".into(), Amount::new(2_930)),
            ("memory".into(), Amount::new(1 << 30)),
        ]
        .into(),
        at: now,
    };
    let report = LocalQueueReport {
        cluster_queue: "cq".into(),
        active: Active::new(Truth::True, "Ready", "Can submit new workloads to localQueue"),
        pending: 0,
        inadmissible: 0,
        reserving: 0,
        admitted: 0,
        reservation: Vec::new(),
        usage: Vec::new(),
        past: Some((past.clone(), Score::ZERO)),
    };
    let patch = local_queue_status(&stored, &report, now).unwrap();
    let written = &patch["status"]["fairSharing"];
    assert_eq!(
        written["admissionFairSharingStatus"],
        json!({ "consumedResources": { "cpu": "2930m", "memory": "1Gi" }, "lastUpdate": "2026-01-01T00:05:00Z" })
    );
    let mut again = stored;
    again.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
    assert_eq!(crate::past_usage(&again), Some(past));
    assert_eq!(
        local_queue_status(&again, &report, now),
        None,
        "what is there is not written again"
    );
}

/// Spec: admission-engine 7.
#[test]
fn shares_are_written_only_with_fair_sharing_and_below_a_root() {
    let stored: api::Cohort = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": { "name": "c" }, "spec": {},
    }))
    .unwrap();
    let mut forest = Forest::default();
    let node = forest.put_cohort(&crate::cohort(&stored));
    let mut report = CohortReport {
        kinship: Some(Kinship {
            parent: "all".into(),
            root: "all".into(),
            share: forest.share(node),
        }),
        quota: Vec::new(),
        reservation: Vec::new(),
        admitted: 0,
    };
    let shown = json!({ "status": { "fairSharing": { "weightedShare": 0 } } });
    assert_eq!(cohort_status(&stored, &report, Shares::Shown), Some(shown));
    assert_eq!(cohort_status(&stored, &report, Shares::Hidden), None);
    report.kinship = None;
    assert_eq!(cohort_status(&stored, &report, Shares::Shown), None);
}
