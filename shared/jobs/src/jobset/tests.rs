use serde_json::{Value, json};

use super::*;
use crate::fixture::{Tested, apply, outcome};
use crate::kind::{Pods, RemoteIdentity};
use crate::podset::PodSetInfo;

const KIND: Tested = Tested(&JOBSET);

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}})
}

/// Two replicated jobs: `Driver`, two Jobs of three pods, and `worker`, one Job of two pods.
#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn jobset(status: Value) -> Value {
    let job = |spec: Value| {
        let mut spec = spec;
        spec["template"] = template();
        json!({"spec": spec})
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "lab", "labels": {"kueue.x-k8s.io/queue-name": "tests"}},
        "spec": {
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "ttlSecondsAfterFinished": 5,
            "fieldOfTheFuture": {"a": [1]},
            "replicatedJobs": [
                {"name": "Driver", "replicas": 2, "template": job(json!({"parallelism": 3}))},
                {"name": "worker", "template": job(json!({"parallelism": 4, "completions": 2}))},
            ],
        },
        "status": status,
    })
}

fn counted(driver: Value, worker: Value) -> Value {
    let named = |name: &str, mut counts: Value| {
        counts["name"] = json!(name);
        counts
    };
    json!({"replicatedJobsStatus": [named("worker", worker), named("Driver", driver)]})
}

fn infos() -> [PodSetInfo; 2] {
    ["driver", "worker"].map(|name| PodSetInfo {
        name: name.to_owned(),
        labels: [("kueue.x-k8s.io/podset".to_owned(), name.to_owned())].into(),
        node_selector: [("tier".to_owned(), "spot".to_owned())].into(),
        tolerations: vec![json!({"key": name})],
        ..PodSetInfo::default()
    })
}

/// Spec: jobs 9.2, 15.71
#[test]
fn each_replicated_job_is_a_pod_set() {
    let sets = KIND.pod_sets(&jobset(json!({}))).unwrap();
    let sizes: Vec<_> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!(sizes, [("driver", 6), ("worker", 2)]);
    assert_eq!(sets[0].template, template());
    assert_eq!(
        KIND.template_paths(&jobset(json!({}))),
        [
            "spec.replicatedJobs[0].template.spec.template",
            "spec.replicatedJobs[1].template.spec.template"
        ]
    );
    let empty = KIND
        .pod_sets(&json!({"spec": {"replicatedJobs": []}}))
        .unwrap_err();
    assert_eq!(
        empty.to_string(),
        "field spec.replicatedJobs of the job is without pods, expected at least one pod set"
    );
}

/// Spec: jobs 9.2
#[test]
fn its_status_counts_jobs_and_not_pods() {
    let none = json!({"active": 0, "ready": 0, "succeeded": 0});
    let idle = jobset(counted(none.clone(), none.clone()));
    assert!(KIND.look(&idle).pods != Pods::Alive && !KIND.look(&idle).ready);
    let starting = jobset(counted(json!({"active": 1}), none.clone()));
    assert!(KIND.look(&starting).pods == Pods::Alive && !KIND.look(&starting).ready);
    let ready = jobset(counted(json!({"active": 2, "ready": 2}), json!({"succeeded": 1})));
    assert!(KIND.look(&ready).ready);
    assert!(!KIND.look(&jobset(json!({}))).ready);
}

/// Spec: jobs 9.2, 5.11
#[test]
fn the_pods_of_jobs_that_have_succeeded_are_not_needed_any_more() {
    let spare = |driver: i64, worker: i64| {
        let job = jobset(counted(
            json!({"succeeded": driver}),
            json!({"succeeded": worker}),
        ));
        let whole = KIND.look(&job).reclaimable;
        assert_eq!(
            KIND.look(&KIND.slimmed(&job)).reclaimable,
            whole,
            "not by its templates"
        );
        whole
            .into_iter()
            .map(|(name, pods)| (name.to_string(), pods))
            .collect::<Vec<_>>()
    };
    assert_eq!(spare(0, 0), []);
    assert_eq!(spare(1, 0), [("driver".to_owned(), 3)]);
    assert_eq!(spare(2, 1), [("driver".to_owned(), 6), ("worker".to_owned(), 2)]);
    assert_eq!(spare(3, -1), [], "numbers that cannot be");
}

/// Spec: jobs 9.2
#[test]
fn its_end_is_a_condition() {
    let end = |kind: &str, status: &str| {
        let condition = json!({"type": kind, "status": status, "message": "m"});
        KIND.look(&jobset(json!({"conditions": [condition]}))).ended
    };
    let outcome = |success| Some(outcome(success, "m"));
    assert_eq!(end("Completed", "True"), outcome(true));
    assert_eq!(end("Failed", "True"), outcome(false));
    assert_eq!(end("Failed", "False"), None);
    assert_eq!(end("Suspended", "True"), None);
}

/// Spec: jobs 5.8, 5.9
#[test]
fn it_is_started_and_stopped_in_one_write_each() {
    let held = jobset(json!({}));
    let original = KIND.pod_sets(&held).unwrap();
    let running = apply(&held, &KIND.start(&held, &infos()).unwrap());
    assert_eq!(running["spec"]["suspend"], false);
    let driver = &running["spec"]["replicatedJobs"][0];
    assert_eq!(
        (&driver["name"], &driver["replicas"]),
        (&json!("Driver"), &json!(2))
    );
    let pods = &driver["template"]["spec"]["template"];
    assert_eq!(pods["spec"]["nodeSelector"], json!({"tier": "spot"}));
    assert_eq!(
        pods["metadata"]["labels"],
        json!({"app": "a", "kueue.x-k8s.io/podset": "driver"})
    );
    let steps = KIND.stop(&running, &original);
    assert_eq!(apply(&running, &steps.unwrap()), held);
    assert_eq!(KIND.stop(&held, &original), None);
}

/// Spec: jobs 15.28
#[test]
fn a_conflict_with_the_template_is_told() {
    let mut held = jobset(json!({}));
    held["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["nodeSelector"] =
        json!({"tier": "own"});
    let error = KIND.start(&held, &infos()).unwrap_err();
    assert!(
        error.is_permanent() && error.to_string().contains("conflict for nodeSelector"),
        "{error}"
    );
}

/// Spec: multikueue 1.9, 5, jobs 10.1
#[test]
fn a_copy_carries_the_whole_spec_and_nothing_of_this_cluster() {
    let held = jobset(json!({"restarts": 1}));
    let original = KIND.pod_sets(&held).unwrap();
    let local = apply(&held, &KIND.start(&held, &infos()).unwrap());
    let identity = RemoteIdentity {
        origin: "mgr",
        workload: "jobset-train-abcde",
    };
    let copy = KIND.copy(&local, &identity, &original);
    let mut spec = held["spec"].clone();
    for field in ["managedBy", "ttlSecondsAfterFinished"] {
        spec.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(
        copy,
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {
                "name": "train", "namespace": "lab",
                "labels": {
                    "kueue.x-k8s.io/queue-name": "tests",
                    "kueue.x-k8s.io/multikueue-origin": "mgr",
                    "kueue.x-k8s.io/prebuilt-workload-name": "jobset-train-abcde",
                },
                "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "jobset-train-abcde"},
            },
            "spec": spec,
        })
    );
}

/// Spec: multikueue 5, 11.57; jobs 10.3
#[test]
fn the_whole_status_is_mirrored_and_only_when_it_differs() {
    let running = counted(json!({"active": 2}), json!({"active": 1}));
    let (local, remote) = (jobset(json!({"restarts": 2})), jobset(running));
    let remote = KIND.slimmed(&remote);
    assert_eq!(
        remote["spec"]["replicatedJobs"][0]["template"]["spec"]["template"],
        Value::Null
    );
    let patch = KIND.mirror(&local, &remote).expect("it differs");
    let local = apply(&local, &patch);
    assert_eq!(local["status"], remote["status"]);
    assert_eq!(KIND.mirror(&local, &remote), None);
}

/// Spec: safety 1 I11
#[test]
fn a_copy_that_failed_because_it_was_deleted_shows_nothing() {
    let at = |second: &str| format!("2026-01-01T00:00:{second}Z");
    let failed = json!({"type": "Failed", "status": "True", "lastTransitionTime": at("05")});
    let copy = |deleted: &str| {
        let mut copy = jobset(json!({"conditions": [failed]}));
        copy["metadata"]["deletionTimestamp"] = json!(at(deleted));
        copy
    };
    let mirrored = |copy: &Value| KIND.mirror(&jobset(json!({})), copy);
    assert!(KIND.look(&copy("05")).killed);
    assert_eq!(mirrored(&copy("04")), None);
    assert!(!KIND.look(&copy("06")).killed);
    assert!(mirrored(&copy("06")).is_some());
}

/// Spec: safety 2 W9
#[test]
fn an_end_without_a_copy_is_written_with_the_words_of_the_workload() {
    let local = jobset(counted(json!({"active": 2, "ready": 1}), json!({"active": 0})));
    let outcome = outcome(true, "ended there");
    let patch = KIND.conclusion(&local, &outcome).unwrap();
    let ended = apply(&local, &patch);
    assert_eq!(KIND.look(&ended).ended, Some(outcome.clone()));
    assert_eq!(ended["status"]["terminalState"], "Completed");
    assert!(KIND.look(&ended).pods != Pods::Alive);
    assert_eq!(KIND.conclusion(&ended, &outcome), None);
}
