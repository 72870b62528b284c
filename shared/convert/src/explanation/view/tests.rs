use jiff::Timestamp;
use proptest::prelude::*;
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::{Value, json};

use roadstead_core::dispatch::NOT_MANAGED;

use roadstead_core::flavor::Category;
use roadstead_core::reason::Reason;

use super::{Line, State, view};

const EXPLANATION: &str = r#"{"reason":"WaitingForWorkers","message":"waiting for quota on \"east\"",
    "next":"look there","since":"2026-11-21T10:00:00Z","clusters":[
    {"name":"east","answer":"NoRoom","detail":"2 cpu more needed","since":"2026-11-21T10:01:00Z"},
    {"name":"west","answer":"NotConnected","since":"2026-11-21T08:00:00Z"}]}"#;

fn now() -> Timestamp {
    "2026-11-21T10:02:30Z".parse().unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-21T10:00:00Z"})
}

fn workload(active: bool, status: &Value, annotation: Option<&str>) -> Workload {
    let annotations = annotation.map(|text| json!({"roadstead.dev/explanation": text}));
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "job-train", "namespace": "team-a", "annotations": annotations,
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": true}]},
        "spec": {"active": active, "queueName": "q", "podSets": []},
        "status": status,
    }))
    .unwrap()
}

fn pending_check(state: &str) -> Value {
    json!([{"name": "mk", "state": state, "message": "m", "lastTransitionTime": "2026-11-21T10:00:00Z"}])
}

/// Spec: experience 5
#[test]
fn a_workload_that_waits_for_workers_shows_what_each_of_them_said() {
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", "");
    let status = json!({"conditions": [reserved], "admissionChecks": pending_check("Pending")});
    let view = view(&workload(true, &status, Some(EXPLANATION)), now());
    assert_eq!(
        (view.state, view.reason.as_str()),
        (State::WaitingForPlacement, "WaitingForWorkers")
    );
    assert_eq!(view.job.as_deref(), Some("Job train"));
    assert_eq!(
        (view.message.as_str(), view.next.as_str()),
        ("waiting for quota on \"east\"", "look there")
    );
    let answers: Vec<_> = { view.clusters.iter() }
        .map(|row| (row.cluster.as_str(), row.answer.as_str(), row.age_seconds))
        .collect();
    assert_eq!(
        answers,
        [
            ("east", "NoRoom", Some(90)),
            ("west", "NotConnected", Some(7_350))
        ]
    );
}

/// Spec: experience 5
#[test]
fn each_state_has_its_own_reason() {
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", "");
    let evicted = condition("Evicted", "True", "DeactivatedDueToAdmissionCheck", "no adapter");
    let cases = [
        (true, json!({}), State::WaitingForQuota, "PendingEvaluation"),
        (
            true,
            json!({"conditions": [condition("QuotaReserved", "False", "ExceedsMaxQuota", "too much")]}),
            State::WaitingForQuota,
            "ExceedsMaxQuota",
        ),
        (
            true,
            json!({"conditions": [condition("QuotaReserved", "False", "Pending", ""),
                condition("Requeued", "False", "AdmissionCheck", "again later")]}),
            State::WaitingForQuota,
            "AdmissionCheck",
        ),
        (false, json!({}), State::Deactivated, "Deactivated"),
        (
            false,
            json!({"conditions": [evicted]}),
            State::Deactivated,
            "DeactivatedDueToAdmissionCheck",
        ),
        (
            true,
            json!({"conditions": [reserved, condition("Evicted", "True", "Preempted", "by x")]}),
            State::Stopping,
            "Preempted",
        ),
        (
            true,
            json!({"conditions": [reserved], "admissionChecks": pending_check("Retry")}),
            State::WaitingForChecks,
            "WaitingForChecks",
        ),
        (
            true,
            json!({"conditions": [reserved, condition("Admitted", "True", "Admitted", "")],
                "clusterName": "east", "admissionChecks": pending_check("Ready")}),
            State::Running,
            "Admitted",
        ),
        (
            true,
            json!({"conditions": [condition("Finished", "True", "Succeeded", "Job finished successfully")]}),
            State::Finished,
            "Succeeded",
        ),
    ];
    for (active, status, state, reason) in cases {
        // The record of an earlier round must not matter for these.
        let left = (state == State::Running).then_some(EXPLANATION);
        let view = view(&workload(active, &status, left), now());
        assert_eq!((view.state, view.reason.as_str()), (state, reason), "{status}");
    }
}

/// Spec: experience 5
#[test]
fn a_worker_is_sought_once_one_is_nominated_and_other_checks_are_ready() {
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", "");
    let other = EXPLANATION.replace("WaitingForWorkers", "OtherChecksNotReady");
    for (nominated, record, state, rows) in [
        (json!([]), None, State::WaitingForChecks, 0),
        (json!(["east", "west"]), None, State::WaitingForPlacement, 2),
        (json!([]), Some(EXPLANATION), State::WaitingForPlacement, 2),
        (json!([]), Some(other.as_str()), State::WaitingForChecks, 0),
    ] {
        let status = json!({"conditions": [reserved], "admissionChecks": pending_check("Pending"),
            "nominatedClusterNames": nominated});
        let view = view(&workload(true, &status, record), now());
        assert_eq!(
            (view.state, view.clusters.len()),
            (state, rows),
            "{nominated} {record:?}"
        );
    }
}

/// Spec: experience 5
#[test]
fn a_lost_worker_is_named_as_long_as_the_record_says_so() {
    let lost = EXPLANATION.replace("WaitingForWorkers", "WorkerLost");
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", "");
    let status = json!({"conditions": [reserved, condition("Admitted", "True", "Admitted", "")],
        "clusterName": "east", "admissionChecks": pending_check("Ready")});
    let view = view(&workload(true, &status, Some(&lost)), now());
    assert_eq!(
        (view.state, view.reason.as_str()),
        (State::WorkerLost, "WorkerLost")
    );
}

proptest! {
    /// Every Workload has exactly one reason, and every waiting one has a next step.
    ///
    /// Spec: experience 5
    #[test]
    fn every_workload_has_a_reason_and_who_waits_a_next_step(
        active in any::<bool>(),
        flags in proptest::collection::vec((0..7_usize, 0..3_usize), 0..7),
        check in 0..5_usize, cluster in any::<bool>(), record in any::<bool>(),
    ) {
        let kinds = ["QuotaReserved", "Admitted", "Evicted", "Finished", "Requeued", "PodsReady", "Preempted"];
        let conditions: std::collections::BTreeMap<_, _> = flags.into_iter().map(|(kind, truth)| {
            let status = ["True", "False", "Unknown"][truth];
            (kinds[kind], condition(kinds[kind], status, "Because", "so"))
        }).collect();
        let conditions: Vec<_> = conditions.into_values().collect();
        let mut status = json!({"conditions": conditions});
        if let Some(state) = ["Pending", "Ready", "Retry", "Rejected"].get(check) {
            status["admissionChecks"] = pending_check(state);
        }
        if cluster {
            status["clusterName"] = "east".into();
        }
        let view = view(&workload(active, &status, record.then_some(EXPLANATION)), now());
        prop_assert!(!view.reason.is_empty());
        let rests = matches!(view.state, State::Finished | State::Running);
        prop_assert!(rests || !view.next.is_empty(), "{view:?}");
    }
}

/// A field that is fixed when the job is created cannot be corrected by activating its Workload again.
///
/// Spec: experience 5; multikueue 1.8
#[test]
fn the_next_step_for_a_job_that_came_before_its_queue_is_to_create_it_again() {
    let next = |why: &str| {
        let evicted = condition("Evicted", "True", "DeactivatedDueToAdmissionCheck", why);
        view(&workload(false, &json!({"conditions": [evicted]}), None), now()).next
    };
    let refused =
        format!("Admission check(s): [federation], were rejected: {NOT_MANAGED}: Expecting spec.managedBy");
    assert!(next(&refused).starts_with("delete the job and create it again"));
    assert!(next("no adapter").starts_with("correct what the message names"));
}

/// The words are those of the engine itself. Each cause has a command that shows it.
///
/// Spec: experience 5
#[test]
fn what_waits_for_quota_is_told_the_next_step_for_the_words_of_the_engine() {
    let next = |reason: &Reason| {
        let quota = condition(
            "QuotaReserved",
            "False",
            reason.word().as_str(),
            &reason.to_string(),
        );
        view(&workload(true, &json!({"conditions": [quota]}), None), now()).next
    };
    let no_room = |category| Reason::NoRoom {
        category,
        text: "couldn't assign flavors".to_owned(),
    };
    let inactive = |why| Reason::QueueInactive {
        queue: "pool".into(),
        why,
    };
    let wait = "wait, or see which workloads use the quota behind LocalQueue \"q\"";
    let correct = "correct what the message names; the queue: kubectl get localqueue q -n team-a -o yaml";
    let described = "kubectl describe clusterqueue pool";
    for (reason, step) in [
        (no_room(Category::WaitingForQuota), wait),
        (no_room(Category::ExceedsMaxQuota), "give the queue more quota"),
        (no_room(Category::NoMatchingFlavor), correct),
        (Reason::AwaitsVictimsOfOthers, wait),
        (Reason::VictimsTaken, wait),
        (Reason::NoLongerFits, wait),
        (Reason::PodsNotReady, wait),
        (Reason::ChecksFailed, wait),
        (Reason::AwaitsTurn, wait),
        (Reason::NamespaceMismatch, correct),
        (Reason::RequestInvalid(vec!["wrong".to_owned()]), correct),
        (
            Reason::RequestInvalid(vec![
                "resources didn't satisfy LimitRange constraints: spec.x: too much".to_owned(),
            ]),
            "kubectl describe limitrange -n team-a",
        ),
        (
            Reason::ExceedsEveryWorker("nowhere".to_owned()),
            "behind LocalQueue \"q\" more quota on a worker",
        ),
        (inactive(None), described),
        (inactive(Some("the cohorts above it form a circle")), described),
        (
            Reason::LocalQueueMissing("q".to_owned()),
            "kubectl get localqueues -n team-a",
        ),
        (
            Reason::LocalQueueStopped("q".to_owned()),
            "kubectl get localqueue q -n team-a -o jsonpath='{.spec.stopPolicy}'",
        ),
        (
            Reason::QueueMissing("pool".into()),
            "kubectl get localqueue q -n team-a -o yaml",
        ),
        (Reason::AdmissionPaused, "sets admission.paused to false"),
        (Reason::PreemptionGated, "who set the gate must remove it"),
        (
            Reason::Gated("example.com/gate".to_owned()),
            "who set the gate must remove it",
        ),
    ] {
        let next = next(&reason);
        assert!(next.contains(step), "{reason}: {next}");
    }
}

/// Spec: experience 5
#[test]
fn what_a_check_sent_back_is_told_when_it_is_queued_again() {
    let requeued = condition("Requeued", "False", "AdmissionCheck", "m");
    let status = json!({"conditions": [requeued], "requeueState": {"requeueAt": "2026-11-21T10:05:00Z"}});
    let next = view(&workload(true, &status, None), now()).next;
    assert_eq!(
        next,
        "nothing: it is queued again at 2026-11-21T10:05:00Z; what a provisioning check said: kubectl get provisioningrequests -n team-a"
    );
}

/// Spec: experience 5
#[test]
fn who_stands_behind_another_is_told_whom_to_ask_about() {
    let mut view = view(&workload(true, &json!({}), None), now());
    view.stands_in(&Line {
        head: "job first".to_owned(),
        namespace: "team-b".to_owned(),
        queue: "pool".to_owned(),
        position: 3,
    });
    assert_eq!(view.reason, "PendingEvaluation");
    assert_eq!(
        view.message,
        "waits behind job first in StrictFIFO queue pool, position 3"
    );
    assert_eq!(view.next, "roadstead explain first -n team-b");
}
