use serde_json::{Value, json};

use super::*;
use crate::fixture::{WHY, apply, both, changed, one, outcome};
use crate::kind::MemberId;

fn look(job: &Value) -> Look {
    one(job, |job| BatchJob.look(job))
}

fn pod_sets(job: &Value) -> Vec<JobPodSet> {
    one(job, |job| BatchJob.pod_sets(job)).unwrap()
}

/// The patches that the writes of one job send, each with its target.
fn sent(writes: Vec<Write>) -> Vec<(Target, Value)> {
    let sent = |write: Write| {
        let Write::Patch { of, target, patch } = write else {
            panic!("nothing is deleted");
        };
        let (name, uid) = ("train".to_owned(), "u".to_owned());
        assert_eq!(of, MemberId { name, uid });
        (target, patch)
    };
    writes.into_iter().map(sent).collect()
}

fn started(job: &Value, infos: &[PodSetInfo]) -> Value {
    let writes = one(job, |job| BatchJob.start(job, infos)).unwrap();
    sent(writes)
        .iter()
        .fold(job.clone(), |job, (_, patch)| apply(&job, patch))
}

fn stop(job: &Value, original: &[JobPodSet]) -> Vec<(Target, Value)> {
    sent(one(job, |job| BatchJob.stop(job, original, &WHY)))
}

fn copy(job: &Value, identity: &RemoteIdentity<'_>, original: &[JobPodSet]) -> Value {
    let mut copies = one(job, |job| BatchJob.copies(job, identity, original));
    assert_eq!(copies.len(), 1);
    copies.remove(0)
}

fn mirror(local: &Value, remote: &Value, now: Timestamp) -> Mirror {
    both(local, remote, |local, remote| {
        BatchJob.mirror(local, Remote::Copies(remote), now)
    })
}

/// The status patch that shows that nothing runs, or how the job ended.
fn shown(local: &Value, remote: Remote<'_>, now: Timestamp) -> Option<Value> {
    let mirror = one(local, |local| BatchJob.mirror(local, remote, now));
    assert!(!mirror.is_deferred);
    let mut sent = sent(mirror.writes).into_iter().map(|(target, patch)| {
        assert_eq!(target, Target::Status);
        patch
    });
    sent.next_back()
}

fn sends(patch: Option<Value>, is_deferred: bool) -> Mirror {
    let write = |patch| Write::Patch {
        of: MemberId {
            name: "train".to_owned(),
            uid: "u".to_owned(),
        },
        target: Target::Status,
        patch,
    };
    Mirror {
        writes: patch.map(write).into_iter().collect(),
        is_deferred,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn job(spec: Value, status: Value) -> Value {
    let mut spec = spec;
    if spec.get("template").is_none() {
        spec["template"] = json!({"metadata": {"labels": {
            "app": "a", "controller-uid": "u", "job-name": "train",
            "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "train",
        }}, "spec": {"containers": [{"name": "c"}]}});
    }
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "lab", "uid": "u", "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "tests"},
            "ownerReferences": [{"kind": "Flow"}], "finalizers": ["x"]},
        "spec": spec, "status": status,
    })
}

fn info(count: u32) -> PodSetInfo {
    PodSetInfo {
        name: "main".to_owned(),
        count,
        labels: [("kueue.x-k8s.io/podset".to_owned(), "main".to_owned())].into(),
        node_selector: [("tier".to_owned(), "spot".to_owned())].into(),
        tolerations: vec![json!({"key": "spot"})],
        ..PodSetInfo::default()
    }
}

/// Spec: jobs 9.1, 15.66.
#[test]
fn a_job_has_one_pod_set() {
    let check = |spec: Value, count: u32| {
        assert_eq!(pod_sets(&job(spec, json!({})))[0].count, count);
    };
    check(json!({}), 1);
    check(json!({"parallelism": 5}), 5);
    check(json!({"parallelism": 5, "completions": 3}), 3);
    check(json!({"parallelism": 2, "completions": 9}), 2);
    check(json!({"parallelism": 0}), 0);
    let sets = pod_sets(&job(json!({}), json!({})));
    assert_eq!(sets[0].name, "main");
    assert_eq!(
        sets[0].template["metadata"]["labels"],
        json!({"app": "a", "batch.kubernetes.io/job-name": "train"})
    );
}

#[test]
fn a_malformed_job_is_an_error_that_names_the_field() {
    let refused = |job: &Value| one(job, |job| BatchJob.pod_sets(job)).unwrap_err();
    let error = refused(&json!({"spec": {"template": 1}}));
    assert_eq!(
        error.to_string(),
        "field spec.template of the job is a number, expected a pod template"
    );
    refused(&job(json!({"parallelism": -1}), json!({})));
}

/// Spec: jobs 9.1.
#[test]
fn the_end_is_read_from_the_conditions() {
    let end = |conditions: Value| look(&job(json!({}), json!({"conditions": conditions}))).ended;
    let complete = json!({"type": "Complete", "status": "True", "message": "done"});
    assert_eq!(
        end(json!([{"type": "Suspended", "status": "True"}, complete])),
        Some(outcome(true, "done"))
    );
    let failed = json!({"type": "Failed", "status": "True"});
    assert!(!end(json!([failed])).unwrap().success);
    assert_eq!(end(json!([{"type": "Failed", "status": "False"}])), None);
    assert_eq!(
        end(json!([{"type": "SuccessCriteriaMet", "status": "True"}])),
        None
    );
}

/// Spec: jobs 9.1, 15.69.
#[test]
fn pods_that_are_not_needed_any_more_are_counted() {
    let indexed = json!({"parallelism": 4, "completions": 6, "completionMode": "Indexed"});
    let status = json!({"completedIndexes": "0-2", "failedIndexes": "2,3"});
    assert_eq!(
        look(&job(indexed, status)).reclaimable,
        [("main".into(), 2)].into()
    );
    let plain = json!({"parallelism": 4, "completions": 6});
    let check = |succeeded, expected: Option<u32>| {
        let found = look(&job(plain.clone(), json!({"succeeded": succeeded}))).reclaimable;
        assert_eq!(found.values().next().copied(), expected);
    };
    check(0, None);
    check(2, None);
    check(3, Some(1));
    check(6, Some(4));
    assert!(
        look(&job(json!({"completions": 3}), json!({"succeeded": 2})))
            .reclaimable
            .is_empty()
    );
}

/// Spec: jobs 9.1.
#[test]
fn activity_and_readiness_are_read_from_the_status() {
    let status =
        json!({"active": 1, "ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u"]}});
    let running = job(json!({"parallelism": 3, "completions": 3}), status);
    let running = look(&running);
    assert!(running.pods == Pods::Alive && running.ready);
    let idle = job(json!({"parallelism": 3}), json!({"ready": 2}));
    let idle = look(&idle);
    assert!(idle.pods == Pods::None && !idle.ready);
}

/// Spec: jobs 9.1, 15.32, 15.70.
#[test]
fn starting_and_stopping_leads_back_to_the_original() {
    let original = job(json!({"suspend": true}), json!({}));
    let pod_sets = pod_sets(&original);
    let mut running = started(&original, &[info(1)]);
    assert_eq!(running["spec"]["suspend"], false);
    assert_eq!(
        running["spec"]["template"]["spec"]["nodeSelector"]["tier"],
        "spot"
    );
    running["status"] = json!({"startTime": "2026-01-01T00:00:00Z", "active": 1});

    let steps = stop(&running, &pod_sets);
    let targets: Vec<_> = steps.iter().map(|(target, _)| *target).collect();
    assert_eq!(
        targets,
        [Target::Main, Target::Status],
        "with a pod the template cannot be changed"
    );
    let mut stopped = running;
    for (done, (_, patch)) in steps.iter().enumerate() {
        stopped = apply(&stopped, patch);
        assert!(!look(&stopped).suspended, "a stop under way is no suspension");
        // A crash here: the next pass finds the rest.
        let rest = stop(&stopped, &pod_sets);
        assert_eq!(rest.len(), steps.len() - done - 1);
    }
    stopped["status"] = json!({});
    let steps = stop(&stopped, &pod_sets);
    let targets: Vec<_> = steps.iter().map(|(target, _)| *target).collect();
    assert_eq!(targets, [Target::Main]);
    stopped = apply(&stopped, &steps[0].1);
    assert!(look(&stopped).suspended);
    assert_eq!(stopped["spec"], original["spec"]);
    assert_eq!(stopped["metadata"]["annotations"], json!({}));
    assert_eq!(stop(&stopped, &pod_sets), []);
}

/// Spec: jobs 9.1.
#[test]
fn a_job_that_was_never_touched_is_stopped_in_one_write() {
    let loose = job(json!({"suspend": false}), json!({}));
    let pod_sets = pod_sets(&loose);
    assert_eq!(
        stop(&loose, &pod_sets),
        [(Target::Main, json!({"spec": {"suspend": true}}))]
    );
    assert_eq!(stop(&loose, &[]).len(), 1);
    let held = job(json!({"suspend": true}), json!({}));
    assert_eq!(stop(&held, &pod_sets), []);
}

/// Spec: jobs 15.67.
#[test]
fn fewer_pods_are_started_when_the_job_allows_it() {
    let mut partial = job(json!({"suspend": true, "parallelism": 5}), json!({}));
    partial["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let pod_sets = pod_sets(&partial);
    assert_eq!((pod_sets[0].count, pod_sets[0].min_count), (5, Some(2)));
    let running = started(&partial, &[info(3)]);
    assert_eq!(running["spec"]["parallelism"], 3);
    let steps = stop(&running, &pod_sets);
    let stopped = steps.iter().fold(running, |job, (_, patch)| apply(&job, patch));
    assert_eq!(stopped["spec"]["parallelism"], 5);
}

/// Spec: multikueue 1.9, 5, 11.68, 11.103, jobs 10.1.
#[test]
fn a_copy_carries_the_whole_spec_and_its_origin() {
    let mut local = job(
        json!({
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "selector": {"matchLabels": {}},
            "ttlSecondsAfterFinished": 5, "fieldOfTheFuture": {"a": [1]},
        }),
        json!({"active": 1}),
    );
    let pod_sets = pod_sets(&local);
    let identity = RemoteIdentity {
        origin: "mgr",
        workload: "job-train-abcde",
    };
    local = started(&local, &[info(1)]);
    assert_eq!(
        copy(&local, &identity, &pod_sets),
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "train", "namespace": "lab",
                "labels": {
                    "kueue.x-k8s.io/queue-name": "tests",
                    "kueue.x-k8s.io/multikueue-origin": "mgr",
                    "kueue.x-k8s.io/prebuilt-workload-name": "job-train-abcde",
                },
                "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "job-train-abcde"},
            },
            "spec": {
                "suspend": true, "fieldOfTheFuture": {"a": [1]},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}},
            },
        })
    );
    let long = "w".repeat(64);
    let identity = RemoteIdentity {
        origin: "mgr",
        workload: &long,
    };
    let copy = copy(&local, &identity, &pod_sets);
    let key = "kueue.x-k8s.io/prebuilt-workload-name";
    assert_eq!(copy["metadata"]["annotations"][key], json!(long));
    assert_eq!(copy["metadata"]["labels"].get(key), None);
}

/// Spec: multikueue 5.1, 11.57, 11.58, 11.59, 11.102; jobs 10.3, 15.118.
#[test]
fn the_status_is_copied_unless_the_local_job_is_held_while_the_remote_runs() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let running = json!({"active": 1, "startTime": "2026-01-01T00:00:00Z"});
    let held = |status: Value| job(json!({"suspend": true}), status);
    let loose = |status: Value| job(json!({"suspend": false}), status);
    let check = |local: Value, remote: Value, expected: Mirror| {
        assert_eq!(mirror(&local, &remote, now), expected);
        let remote = changed(&remote, |copy| BatchJob.forget_details(copy));
        assert_eq!(remote["spec"].get("template"), None);
        assert_eq!(mirror(&local, &remote, now), expected, "not by its details");
    };
    check(
        loose(json!({"active": 2, "ready": 1})),
        loose(running.clone()),
        sends(
            Some(json!({"status": {"active": 1, "ready": null, "startTime": "2026-01-01T00:00:00Z"}})),
            false,
        ),
    );
    check(loose(running.clone()), loose(running.clone()), sends(None, false));
    check(
        held(json!({"active": 1})),
        held(json!({})),
        sends(Some(json!({"status": {"active": null}})), false),
    );
    let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    check(
        held(json!({})),
        loose(done.clone()),
        sends(Some(json!({"status": done})), false),
    );
    let mark = json!({
        "type": "Suspended", "status": "True", "reason": "MultiKueueAdapter", "message": "Set by MultiKueue adapter",
        "lastProbeTime": "2027-01-15T08:00:00Z", "lastTransitionTime": "2027-01-15T08:00:00Z",
    });
    check(
        held(json!({})),
        loose(running.clone()),
        sends(Some(json!({"status": {"conditions": [mark]}})), true),
    );
    check(
        held(json!({"conditions": [mark]})),
        loose(running),
        sends(None, true),
    );
}

/// Spec: experience 5
#[test]
fn a_job_of_a_manager_that_waits_says_that_it_is_suspended() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let shown = |spec: Value, status: Value| {
        let write = one(&job(spec, status), |job| BatchJob.show_wait(job, now));
        sent(write.into_iter().collect()).pop()
    };
    let ours = json!({"suspend": true, "managedBy": "kueue.x-k8s.io/multikueue"});
    let (target, patch) = shown(ours.clone(), json!({})).unwrap();
    assert_eq!(target, Target::Status);
    let said = &patch["status"]["conditions"][0];
    assert_eq!(
        (&said["type"], &said["status"]),
        (&json!("Suspended"), &json!("True"))
    );
    assert_eq!(
        shown(ours.clone(), patch["status"].clone()),
        None,
        "it says so already"
    );
    let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    assert_eq!(shown(ours, done), None);
    assert_eq!(
        shown(json!({"suspend": true}), json!({})),
        None,
        "the Job controller says it"
    );
    let started = json!({"suspend": false, "managedBy": "kueue.x-k8s.io/multikueue"});
    assert_eq!(shown(started, json!({})), None);
}

/// Spec: jobs 9.1, 15.68.
#[test]
fn bounds_of_partial_admission_are_checked() {
    let with = |annotation: &str, value: &str, spec: Value| {
        let mut job = job(spec, json!({}));
        job["metadata"]["annotations"] = json!({annotation: value});
        job
    };
    let messages = |job: &Value| -> Vec<String> {
        one(job, |job| BatchJob.own_problems(job.first()))
            .into_iter()
            .map(|problem| problem.message)
            .collect()
    };
    let changes = |old: &Value, new: &Value| {
        both(old, new, |old, new| {
            BatchJob.own_update_problems(old.first(), new.first())
        })
    };
    let min = "kueue.x-k8s.io/job-min-parallelism";
    for (value, expected) in [
        ("5", vec!["should be between 0 and 4"]),
        ("0", vec!["should be between 0 and 4"]),
        ("x", vec!["must be an integer"]),
        ("2", vec![]),
    ] {
        assert_eq!(
            messages(&with(min, value, json!({"parallelism": 5}))),
            expected,
            "{value}"
        );
    }
    let sync = "kueue.x-k8s.io/job-completions-equal-parallelism";
    assert_eq!(
        messages(&with(sync, "true", json!({}))),
        ["should not be enabled for NonIndexed jobs"]
    );
    let indexed =
        |completions| json!({"completionMode": "Indexed", "parallelism": 3, "completions": completions});
    assert_eq!(messages(&with(sync, "true", indexed(4))).len(), 1);
    assert_eq!(messages(&with(sync, "true", indexed(3))), Vec::<String>::new());
    let old = with(min, "2", json!({"parallelism": 5, "suspend": false}));
    let new = with(min, "2", json!({"parallelism": 4, "suspend": false}));
    assert_eq!(changes(&old, &new).len(), 1);
    let held = with(min, "2", json!({"parallelism": 4, "suspend": true}));
    assert_eq!(changes(&old, &held), []);
    // A start with the least number of pods, and the way back.
    let full = with(min, "2", json!({"parallelism": 5, "suspend": true}));
    let few = with(min, "2", json!({"parallelism": 2, "suspend": false}));
    assert_eq!(changes(&full, &few), []);
    let mut stopping = with(min, "2", json!({"parallelism": 2, "suspend": true}));
    stopping["metadata"]["annotations"][annotations::STOPPING] = json!("true");
    assert_eq!(changes(&few, &stopping), []);
    assert_eq!(changes(&stopping, &full), []);
    let wrong = with(min, "5", json!({"parallelism": 5, "suspend": true}));
    assert_eq!(changes(&full, &wrong).len(), 1);
}

/// The status of the first run must not keep the second run from being shown: an API server refuses a status that takes a verdict or a
/// counter back.
///
/// Spec: multikueue 5.1 (what an API server refuses).
#[test]
fn a_job_that_failed_on_one_worker_can_still_end_on_another() {
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let mirrored = |local: &Value, remote: &Value| {
        let mirror = mirror(local, remote, now);
        assert!(!mirror.is_deferred, "nothing is to be waited for");
        let sent = sent(mirror.writes);
        sent.iter()
            .fold(local.clone(), |job, (_, patch)| apply(&job, patch))
    };
    let loose = |status: Value| job(json!({"suspend": false}), status);
    let is = |kind: &str, truth: &str| json!({"type": kind, "status": truth});
    let failing = loose(
        json!({"active": 1, "failed": 2, "startTime": "2026-01-01T00:04:00Z",
        "conditions": [is("Suspended", "False"), is("FailureTarget", "True")]}),
    );
    let first = mirrored(&loose(json!({})), &failing);
    assert_eq!(
        first["status"],
        json!({"active": 1, "failed": 2, "startTime": "2026-01-01T00:04:00Z", "conditions": [is("Suspended", "False")]}),
        "its verdict may be overtaken by the loss of the worker"
    );
    let ended = [is("SuccessCriteriaMet", "True"), is("Complete", "True")];
    // The clock of this worker is behind that of the first one.
    let complete = loose(json!({"succeeded": 1, "startTime": "2026-01-01T00:03:00Z",
        "completionTime": "2026-01-01T00:03:30Z", "conditions": ended}));
    let second = mirrored(&first, &complete);
    assert_eq!(
        second["status"],
        json!({"succeeded": 1, "failed": 2, "startTime": "2026-01-01T00:04:00Z",
            "completionTime": "2026-01-01T00:04:00Z", "conditions": ended})
    );
    assert_eq!(mirror(&second, &complete, now), sends(None, false));
}

/// A copy that is taken back is deleted in the foreground: its pods are deleted first, and it counts them as failed.
///
/// Spec: safety 1 I1, I11.
#[test]
fn a_copy_that_fails_because_it_is_deleted_does_not_end_the_job() {
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let copy = |deleted: Option<&str>, failing: &str| {
        let is = |kind, at: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        let conditions = [is("FailureTarget", failing), is("Failed", "2026-01-01T00:04:00Z")];
        let mut copy = job(
            json!({"suspend": false}),
            json!({"failed": 1, "conditions": conditions}),
        );
        if let Some(deleted) = deleted {
            copy["metadata"]["deletionTimestamp"] = json!(deleted);
        }
        let shown = mirror(&job(json!({"suspend": false}), json!({})), &copy, now);
        let patch = sent(shown.writes).remove(0).1;
        assert_eq!(
            patch["status"]["failed"], 1,
            "its failed pods are shown in any case"
        );
        let ends = !json::list(&patch, &["status", "conditions"]).is_empty();
        assert_eq!(ends, !look(&copy).killed);
        ends
    };
    let deleted = Some("2026-01-01T00:03:00Z");
    assert!(!copy(deleted, "2026-01-01T00:03:00Z"));
    assert!(copy(deleted, "2026-01-01T00:02:59Z"), "it had failed before");
    assert!(copy(None, "2026-01-01T00:03:00Z"));
}

/// Spec: multikueue 5.1 (what an API server refuses).
#[test]
fn the_start_of_a_job_moves_only_when_it_goes_on_and_an_elastic_job_may_count_less() {
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let start = |minute: u32, truth: &str| json!({"startTime": format!("2026-01-01T00:0{minute}:00Z"), "conditions": [{"type": "Suspended", "status": truth}]});
    let check = |spec: Value, local: Value, remote: Value, changed: Value| {
        let (local, remote) = (job(spec.clone(), local), job(spec, remote));
        let patch = sends(Some(json!({"status": changed})), false);
        assert_eq!(mirror(&local, &remote, now), patch);
    };
    let loose = json!({"suspend": false});
    check(
        loose.clone(),
        start(1, "True"),
        start(2, "False"),
        start(2, "False"),
    );
    let paused = json!({"conditions": start(1, "True")["conditions"]});
    check(loose, start(1, "False"), paused.clone(), paused.clone());
    let gone = json!({"startTime": null, "conditions": paused["conditions"]});
    check(json!({"suspend": true}), start(1, "False"), paused, gone);
    let elastic = json!({"suspend": false, "completionMode": "Indexed", "completions": 3, "parallelism": 3});
    check(
        elastic,
        json!({"succeeded": 4, "failed": 4}),
        json!({"succeeded": 2}),
        json!({"succeeded": 2}),
    );
}

/// Spec: multikueue 13.B2.
#[test]
fn pods_that_are_certainly_gone_are_no_longer_counted_and_the_job_can_be_restored() {
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let held = job(json!({"suspend": true}), json!({}));
    let original = pod_sets(&held);
    let mut running = started(&held, &[info(1)]);
    running["status"] = json!({"active": 2, "ready": 1, "succeeded": 3, "startTime": "2026-01-01T00:00:00Z"});
    for (_, patch) in stop(&running, &original) {
        running = apply(&running, &patch);
    }
    let stopping = look(&running);
    assert!(stopping.pods == Pods::Alive && !stopping.suspended);
    let patch = shown(&running, Remote::AtRest, now).unwrap();
    assert_eq!(patch, json!({"status": {"active": 0, "ready": 0}}));
    running = apply(&running, &patch);
    assert_eq!(shown(&running, Remote::AtRest, now), None);
    for (_, patch) in stop(&running, &original) {
        running = apply(&running, &patch);
    }
    assert!(look(&running).suspended);
    assert_eq!(pod_sets(&running), original);
}

/// Spec: safety 1 I1; admission-engine 3.4.
#[test]
fn pods_that_are_being_ended_free_quota_but_are_not_gone() {
    let ending = job(json!({"suspend": true}), json!({"active": 0, "terminating": 1}));
    let ending = look(&ending);
    assert!(ending.pods == Pods::Ending && !ending.at_rest());
    let gone = job(json!({"suspend": true}), json!({"active": 0, "terminating": 0}));
    assert!(look(&gone).at_rest());
}

/// Spec: safety W9.
#[test]
fn a_job_whose_last_status_is_lost_ends_as_its_workload_did() {
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    for (success, words) in [
        (true, ["SuccessCriteriaMet", "Complete"]),
        (false, ["FailureTarget", "Failed"]),
    ] {
        let outcome = outcome(success, "as the workload says");
        let running = job(
            json!({}),
            json!({"active": 2, "ready": 2, "terminating": 0, "conditions": [{"type": "Suspended", "status": "False"}],
                "uncountedTerminatedPods": {"succeeded": ["x"]}}),
        );
        let ended = apply(&running, &shown(&running, Remote::Ended(&outcome), now).unwrap());
        assert_eq!(look(&ended).ended, Some(outcome.clone()));
        assert_eq!(look(&ended).pods, Pods::None);
        let kinds: Vec<_> = json::list(&ended, &["status", "conditions"])
            .iter()
            .map(|c| c["type"].clone())
            .collect();
        assert_eq!(kinds, [json!("Suspended"), json!(words[0]), json!(words[1])]);
        assert_eq!(ended["status"]["startTime"], "2026-01-01T00:05:00Z");
        assert_eq!(ended["status"].get("completionTime").is_some(), success);
        assert_eq!(ended["status"].get("uncountedTerminatedPods"), None);
        assert_eq!(shown(&ended, Remote::Ended(&outcome), now), None);
        let ahead = job(json!({}), json!({"startTime": "2026-01-01T00:06:00Z"}));
        let ended = apply(&ahead, &shown(&ahead, Remote::Ended(&outcome), now).unwrap());
        let end = success.then(|| json!("2026-01-01T00:06:00Z"));
        assert_eq!(
            ended["status"].get("completionTime"),
            end.as_ref(),
            "not before its start"
        );
    }
}

/// Spec: jobs 15.67; admission-engine 2.9.
#[test]
fn a_copy_asks_for_all_its_pods_also_when_fewer_were_admitted_here() {
    let mut full = job(
        json!({"suspend": true, "parallelism": 5, "completions": 5}),
        json!({}),
    );
    full["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let original = pod_sets(&full);
    assert_eq!(original[0].min_count, Some(2));
    let started = started(&full, &[info(3)]);
    assert_eq!(started["spec"]["parallelism"], 3);
    let identity = RemoteIdentity {
        origin: "m",
        workload: "w",
    };
    let copy = copy(&started, &identity, &original);
    assert_eq!(copy["spec"]["parallelism"], 5);
}
