//! I1, I6, I7, I8, I11: what is judged at every change.

use base64::Engine as _;
use roadstead_api::config::WorkerLostPolicy;
use roadstead_apiserver::RESTORER;
use serde_json::json;

use super::scene::{
    JOBS, MANAGER, PERSON, PODS, QUEUES, SYSTEM, Scene, WORKER, WORKLOADS, condition, rules, wl,
};
use crate::audit::{Clocks, Rules};

/// Quota that is still held.
fn quota() -> serde_json::Value {
    condition("QuotaReserved", "True", "Ok", 0)
}

impl Scene {
    /// The next dispatch of a job that the manager took back: the job runs in west.
    pub(super) fn go_west(&mut self, job: &str) {
        self.status("manager", MANAGER, job, json!({"clusterName": null}));
        self.dispatch(job, "west");
        self.run(job, "west");
    }
}

/// Spec: safety 1 I1 to I13, I15.
#[test]
fn a_job_that_lives_as_it_should_breaks_nothing() {
    let mut scene = Scene::new();
    scene.live("a", "east");
    scene.live("b", "west");
    scene.start("c", "east");
    scene.rest();
    scene.is_fine();
    assert!(
        scene
            .auditor
            .placements()
            .iter()
            .all(|placement| placement.healthy)
    );
    assert_eq!(
        scene.auditor.placements().len(),
        9,
        "two offers and a job for each of three"
    );
}

/// Spec: safety 1 I15.
#[test]
fn a_chosen_copy_that_the_manager_deletes_is_seen_unless_the_status_says_so_first() {
    let mut scene = Scene::new();
    for job in ["a", "b"] {
        scene.submit(job);
        scene.dispatch(job, "east");
    }
    let taken_back = json!({"admissionChecks": [{"name": "mk", "state": "Retry", "message": "gone"}]});
    scene.status("manager", MANAGER, "b", taken_back);
    scene.remove("east", MANAGER, WORKLOADS, &wl("b"));
    scene.is_fine();
    // The number of the first dispatch is only on the copy.
    let first = json!({"metadata": {"annotations": {"roadstead.dev/dispatch-epoch": "1"}}});
    scene.edit("east", MANAGER, WORKLOADS, &wl("a"), first);
    scene.remove("east", MANAGER, WORKLOADS, &wl("a"));
    assert_eq!(scene.broken(), ["I15"]);
}

/// Spec: safety 1 I1.
#[test]
fn a_job_let_go_on_a_second_cluster_is_a_double_run() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.offer("a", "west");
    scene.make_job("a", "west");
    assert!(!scene.broken().contains(&"I1"), "it is held there");
    scene.edit("west", WORKER, JOBS, "a", json!({"spec": {"suspend": false}}));
    assert!(scene.broken().contains(&"I1"));
    let violation = &scene.auditor.violations()[scene.broken().iter().position(|i| *i == "I1").unwrap()];
    assert_eq!(violation.subject, "ns/wl-a");
    for word in [
        "east jobs.batch ns/a",
        "west jobs.batch ns/a",
        "changed by roadstead-worker: let go",
    ] {
        assert!(violation.story.contains(word), "{violation}");
    }
}

/// Spec: safety 1 I1.
#[test]
fn an_overlap_under_retry_anyway_is_reported_and_must_end() {
    let overlapping = |policy| {
        let mut scene = Scene::under(Rules { policy, ..rules() });
        scene.start("a", "east");
        scene.offer("a", "west");
        scene.admit("a", "west");
        scene.status("manager", MANAGER, "a", json!({"clusterName": null}));
        scene.choose("a", "west");
        scene.run("a", "west");
        scene
    };
    let mut scene = overlapping(WorkerLostPolicy::RetryAnyway);
    scene.is_fine();
    scene.pass(60);
    scene.clean("a", "east");
    let overlaps = scene.auditor.overlaps();
    assert_eq!(overlaps.len(), 1);
    assert!(overlaps[0].until.duration_since(overlaps[0].from).as_secs() >= 60);
    scene.rest();
    scene.is_fine();

    let mut scene = overlapping(WorkerLostPolicy::RetryAnyway);
    scene.rest();
    assert_eq!(
        scene.broken(),
        ["I1", "I5", "I5"],
        "it never ended, and is left over"
    );
    for policy in [WorkerLostPolicy::Wait, WorkerLostPolicy::Fence] {
        assert_eq!(overlapping(policy).broken(), ["I1"]);
    }
}

/// Spec: safety 3.6.
#[test]
fn under_fence_an_overlap_is_accepted_only_where_the_engine_of_the_first_cluster_was_dead() {
    let overlapping = |dead: Option<&str>| {
        let mut scene = Scene::under(Rules {
            policy: WorkerLostPolicy::Fence,
            ..rules()
        });
        scene.start("a", "east");
        if let Some(dead) = dead {
            scene.auditor.engine_ends(dead, scene.now);
        }
        scene.pass(900);
        scene.offer("a", "west");
        scene.admit("a", "west");
        scene.status("manager", MANAGER, "a", json!({"clusterName": null}));
        scene.choose("a", "west");
        scene.run("a", "west");
        scene
    };
    assert_eq!(overlapping(None).broken(), ["I1"]);
    assert_eq!(overlapping(Some("west")).broken(), ["I1"]);
    overlapping(Some("east")).is_fine();
}

/// Spec: safety F15.
#[test]
fn what_a_backup_brings_back_is_nobodys_fault_until_it_stays() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    let job = scene.get("east", JOBS, "a").clone();
    scene.clean("a", "east");
    scene.go_west("a");
    scene.put("east", RESTORER, JOBS, job);
    scene.is_fine();
    scene.rest();
    assert!(scene.broken().contains(&"I1"), "{:?}", scene.broken());
}

/// A restore removes a job, and its controller creates one more pod before it sees that.
///
/// Spec: safety F15
#[test]
fn a_pod_of_a_job_that_a_backup_took_away_is_nobodys_fault_until_it_stays() {
    let late = |user: &str| {
        let mut scene = Scene::new();
        scene.start("a", "east");
        for (resource, name) in [(JOBS, "a"), (PODS, "a-0"), (WORKLOADS, &*wl("a"))] {
            scene.remove("east", user, resource, name);
        }
        scene.pod("a", "east");
        scene.go_west("a");
        scene
    };
    let mut scene = late(RESTORER);
    scene.is_fine();
    scene.rest();
    assert!(scene.broken().contains(&"I1"), "{:?}", scene.broken());
    assert_eq!(late(SYSTEM).broken(), ["I1"]);
}

/// Spec: safety 1 I11.
#[test]
fn a_workload_ends_once() {
    let mut scene = Scene::new();
    scene.live("a", "east");
    scene.status(
        "manager",
        PERSON,
        "a",
        json!({"conditions": [quota(), condition("Finished", "False", "", 4)]}),
    );
    scene.is_fine();
    scene.status(
        "manager",
        MANAGER,
        "a",
        json!({"conditions": [condition("Finished", "True", "Succeeded", 5)]}),
    );
    assert_eq!(scene.broken(), ["I11"]);
}

/// Spec: safety 1 I11, 2 W9.
#[test]
fn a_job_that_ended_is_not_run_again() {
    let again = |policy| {
        let mut scene = Scene::under(Rules { policy, ..rules() });
        scene.start("a", "east");
        scene.end_there("a", "east");
        scene.clean("a", "east");
        scene.go_west("a");
        scene
    };
    assert_eq!(again(WorkerLostPolicy::Wait).broken(), ["I11"]);
    again(WorkerLostPolicy::RetryAnyway).is_fine();
    let mut scene = again(WorkerLostPolicy::RetryAnyway);
    scene.end_there("a", "west");
    scene.mirror_end("a");
    scene.is_fine();
    scene.edit("west", WORKER, JOBS, "a", json!({"status": {"conditions": []}}));
    assert_eq!(
        scene.broken(),
        ["I6", "I11"],
        "it is let go after the Workload is Finished"
    );
}

/// A restore removes the only stored end of a job, before the manager has read it.
///
/// Spec: safety 1 I11, F15
#[test]
fn an_end_that_a_backup_takes_back_is_known_to_nobody() {
    let again = |user: &str, restored: &str, shown: bool| {
        let mut scene = Scene::under(rules());
        scene.start("a", "east");
        scene.end_there("a", "east");
        if shown {
            let complete = json!({"status": {"conditions": [condition("Complete", "True", "", 3)]}});
            scene.edit("manager", MANAGER, JOBS, "a", complete);
        }
        if restored == "east" {
            for (resource, name) in [(JOBS, "a"), (PODS, "a-0"), (WORKLOADS, &*wl("a"))] {
                scene.remove("east", user, resource, name);
            }
        } else {
            scene.clean("a", "east");
            let other = json!({"metadata": {"name": "b"}});
            scene.put("west", user, JOBS, other);
        }
        scene.go_west("a");
        scene.broken()
    };
    assert!(again(RESTORER, "east", false).is_empty());
    assert_eq!(again(RESTORER, "east", true), ["I11"]);
    assert_eq!(again(RESTORER, "west", false), ["I11"]);
    assert_eq!(again(SYSTEM, "east", false), ["I11"]);
}

/// An administrator removes the manager's finalizer, which would have kept the job until the manager had read its end.
///
/// Spec: safety 1 I11, F26
#[test]
fn an_end_that_an_administrator_destroys_by_force_does_not_count() {
    let again = |user: &str, shown: bool| {
        let mut scene = Scene::under(rules());
        scene.start("a", "east");
        let held = json!({"metadata": {"finalizers": ["roadstead.dev/outcome"]}});
        scene.edit("east", MANAGER, JOBS, "a", held);
        scene.end_there("a", "east");
        if shown {
            let complete = json!({"status": {"conditions": [condition("Complete", "True", "", 3)]}});
            scene.edit("manager", MANAGER, JOBS, "a", complete);
        }
        let bare = json!({"metadata": {"finalizers": null}});
        scene.edit("east", user, JOBS, "a", bare);
        scene.clean("a", "east");
        scene.go_west("a");
        scene.broken()
    };
    assert!(again(SYSTEM, false).is_empty());
    assert_eq!(again(SYSTEM, true), ["I11"]);
    assert_eq!(again(MANAGER, false), ["I11"]);
    assert_eq!(again(WORKER, false), ["I11"]);
}

/// A restore brings back the job of an earlier dispatch for a moment, and its pods end.
///
/// Spec: safety 1 I11, F15
#[test]
fn the_end_of_an_earlier_dispatch_that_a_backup_brought_back_is_no_end() {
    let again = |user: &str, number: &str| {
        let mut scene = Scene::under(rules());
        scene.start("a", "east");
        let mark =
            |number: &str| json!({"metadata": {"annotations": {"roadstead.dev/dispatch-epoch": number}}});
        scene.edit("east", MANAGER, JOBS, "a", mark("1"));
        let job = scene.get("east", JOBS, "a").clone();
        scene.clean("a", "east");
        scene.edit("manager", MANAGER, WORKLOADS, &wl("a"), mark(number));
        scene.put("east", user, JOBS, job);
        let complete = json!({"status": {"conditions": [condition("Complete", "True", "", 4)]}});
        scene.edit("east", SYSTEM, JOBS, "a", complete);
        scene.remove("east", SYSTEM, JOBS, "a");
        scene.go_west("a");
        scene.broken()
    };
    assert!(again(RESTORER, "2").is_empty());
    assert_eq!(again(RESTORER, "1"), ["I11"]);
    assert_eq!(again(SYSTEM, "2"), ["I11"]);
}

/// When the backup was made, a job of another manager had the same name.
///
/// Spec: safety 1 I1, F15
#[test]
fn what_a_backup_puts_in_the_place_of_a_job_is_not_that_job() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    let theirs = json!({"metadata": {
        "name": "a", "uid": "theirs", "labels": {"kueue.x-k8s.io/multikueue-origin": "other"},
    }, "spec": {"suspend": false}});
    scene.put("east", RESTORER, JOBS, theirs);
    scene.remove("east", RESTORER, PODS, "a-0");
    scene.remove("east", RESTORER, WORKLOADS, &wl("a"));
    scene.go_west("a");
    scene.is_fine();
}

/// A foreground deletion ends the pods first, and the job counts them. The worker then unsuspends the job before it sees the deletion.
#[test]
fn a_job_that_is_being_deleted_does_not_start_by_being_let_go() {
    let let_go = |deleting: bool, reason: &str| {
        let mut scene = Scene::new();
        scene.submit("a");
        scene.dispatch("a", "east");
        scene.make_job("a", "east");
        scene.finished("manager", MANAGER, "a", reason);
        if deleting {
            let mark = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:04Z"}});
            scene.edit("east", MANAGER, JOBS, "a", mark);
        }
        scene.edit("east", WORKER, JOBS, "a", json!({"spec": {"suspend": false}}));
        scene.broken()
    };
    assert!(let_go(false, "Succeeded").contains(&"I11"));
    assert!(!let_go(true, "Succeeded").contains(&"I11"));
    assert!(
        !let_go(false, "OwnerNotFound").contains(&"I11"),
        "there is no outcome (seed 7198)"
    );
}

/// Spec: safety 1 I11.
#[test]
fn a_job_that_failed_because_it_was_deleted_may_run_again() {
    let again = |deleted: bool, end: &str| {
        let mut scene = Scene::under(rules());
        scene.start("a", "east");
        if deleted {
            let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
            scene.edit("east", MANAGER, JOBS, "a", deleted);
        }
        let ended = json!({"status": {"conditions": [condition(end, "True", "", 4)]}});
        scene.edit("east", SYSTEM, JOBS, "a", ended);
        // A later change of the same object adds no new end.
        scene.edit(
            "east",
            MANAGER,
            JOBS,
            "a",
            json!({"metadata": {"finalizers": ["foregroundDeletion"]}}),
        );
        scene.clean("a", "east");
        scene.go_west("a");
        scene.broken()
    };
    assert!(again(true, "Failed").is_empty());
    assert_eq!(again(false, "Failed"), ["I11"]);
    assert_eq!(again(true, "Complete"), ["I11"], "what was done is done");
}

/// Spec: safety 1 I11.
#[test]
fn job_and_workload_tell_the_same_end() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.end_there("a", "east");
    scene.mirror_end("a");
    scene.clean("a", "east");
    scene.finished("manager", PERSON, "a", "Failed");
    scene.rest();
    assert_eq!(scene.broken(), ["I11"]);
}

/// Spec: safety 1 I6.
#[test]
fn what_ended_stays_ended() {
    let mut scene = Scene::new();
    scene.live("a", "east");
    scene.status(
        "manager",
        MANAGER,
        "a",
        json!({"conditions": [quota(), condition("Finished", "False", "", 9)]}),
    );
    assert_eq!(scene.broken(), ["I6"]);
    let mut scene = Scene::new();
    scene.live("a", "east");
    let none = json!({"status": {"conditions": []}});
    scene.edit("manager", MANAGER, JOBS, "a", none);
    assert_eq!(scene.broken(), ["I6"]);
}

/// Spec: safety 1 I6.
#[test]
fn counts_of_one_dispatch_do_not_fall() {
    let counted = |then: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::new();
        scene.start("a", "east");
        scene.edit("manager", MANAGER, JOBS, "a", json!({"status": {"succeeded": 2}}));
        then(&mut scene);
        scene.edit("manager", MANAGER, JOBS, "a", json!({"status": {"succeeded": 1}}));
        scene
    };
    assert_eq!(counted(&|_| {}).broken(), ["I6"]);
    // Another dispatch counts anew.
    let evicted = counted(&|scene| {
        scene.status(
            "manager",
            MANAGER,
            "a",
            json!({"conditions": [quota(), condition("Evicted", "True", "Preempted", 9)]}),
        );
    });
    evicted.is_fine();
}

/// Spec: safety 1 I6.
#[test]
fn dispatches_are_counted_upwards() {
    let mut scene = Scene::new();
    scene.submit("a");
    let epoch = |number: &str| json!({"metadata": {"annotations": {"roadstead.dev/dispatch-epoch": number}}});
    scene.edit("manager", MANAGER, WORKLOADS, &wl("a"), epoch("9"));
    scene.edit("manager", MANAGER, WORKLOADS, &wl("a"), epoch("10"));
    scene.is_fine();
    scene.edit("manager", MANAGER, WORKLOADS, &wl("a"), epoch("9"));
    assert_eq!(scene.broken(), ["I6"]);
}

/// Spec: safety 1 I6.
#[test]
fn times_of_conditions_do_not_go_back_unless_clocks_do() {
    let back = |clocks| {
        let mut scene = Scene::under(Rules { clocks, ..rules() });
        scene.submit("a");
        for secs in [50, 40] {
            let quota = condition("QuotaReserved", "True", "Ok", secs);
            scene.status("manager", MANAGER, "a", json!({"conditions": [quota]}));
        }
        scene
    };
    assert_eq!(back(Clocks::Steady).broken(), ["I6"]);
    back(Clocks::Jump).is_fine();
}

/// Spec: safety 1 I7.
#[test]
fn the_manager_touches_only_its_own_on_workers() {
    let foreign = |origin: &str| json!({"metadata": {"name": "x", "labels": {"kueue.x-k8s.io/multikueue-origin": origin}}});
    for origin in ["", "another"] {
        let mut scene = Scene::new();
        scene.put("east", PERSON, JOBS, foreign(origin));
        scene.edit("east", WORKER, JOBS, "x", json!({"spec": {"suspend": false}}));
        scene.remove("east", PERSON, JOBS, "x");
        scene.is_fine();
        scene.put("east", PERSON, JOBS, foreign(origin));
        scene.edit("east", MANAGER, JOBS, "x", json!({"spec": {"suspend": true}}));
        assert_eq!(scene.broken(), ["I7"], "changed");
        let mut scene = Scene::new();
        scene.put("east", PERSON, JOBS, foreign(origin));
        scene.remove("east", MANAGER, JOBS, "x");
        assert_eq!(scene.broken(), ["I7"], "deleted");
        let mut scene = Scene::new();
        scene.put("manager", PERSON, JOBS, foreign(""));
        scene.put("east", MANAGER, JOBS, foreign(origin));
        assert_eq!(scene.broken(), ["I7"], "made");
    }
}

/// Spec: safety 1 I7.
#[test]
fn the_lease_of_the_manager_needs_no_label() {
    let mut scene = Scene::new();
    let lease = json!({"metadata": {"name": "manager"}});
    scene.put("east", MANAGER, "leases.coordination.k8s.io", lease);
    scene.is_fine();
}

/// Spec: safety 1 I8, 5 S9.
#[test]
fn a_secret_stands_in_secrets_only() {
    let canary = "eyJhbGciOiJub25lIn0.canary-token-0001";
    let scene = || {
        Scene::under(Rules {
            canaries: vec![canary.to_owned()],
            ..rules()
        })
    };
    let with = |text: String| json!({"metadata": {"name": "x", "annotations": {"last": text}}});
    let mut fine = scene();
    fine.put("manager", PERSON, "secrets", with(format!("token: {canary}")));
    fine.put(
        "manager",
        MANAGER,
        "events",
        with("token: eyJhbGciOiJub25lIn0".to_owned()),
    );
    fine.is_fine();
    let hidden =
        |before: &str| base64::engine::general_purpose::STANDARD.encode(format!("{before}{canary} and more"));
    for text in [
        format!("invalid token {canary}"),
        hidden(""),
        hidden("a"),
        hidden("ab"),
        hidden("abc"),
    ] {
        let mut scene = scene();
        scene.put("east", WORKER, "events", with(text));
        assert_eq!(scene.broken(), ["I8"]);
        let told = scene.auditor.violations()[0].to_string();
        assert!(told.contains(".metadata.annotations.last"), "{told}");
        assert!(!told.contains("canary"), "the auditor tells no secret either");
    }
}

/// Spec: safety 1 I1.
#[test]
fn pods_of_a_deleted_job_still_run() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.remove("east", MANAGER, JOBS, "a");
    scene.status("manager", MANAGER, "a", json!({"clusterName": null}));
    scene.dispatch("a", "west");
    scene.make_job("a", "west");
    scene.is_fine();
    scene.pod("a", "west");
    assert_eq!(scene.broken(), ["I1"]);
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.remove("east", MANAGER, JOBS, "a");
    scene.pod_ends("east", "a-0", "Failed");
    scene.go_west("a");
    scene.is_fine();
}

/// Spec: safety 3.5, I1.
#[test]
fn a_job_is_judged_by_what_its_queue_says_about_lost_workers() {
    let twice = |policy: WorkerLostPolicy, said: Option<&str>| {
        let mut scene = Scene::under(Rules { policy, ..rules() });
        let notes = json!({"roadstead.dev/worker-lost-policy": said});
        let queue = json!({"metadata": {"name": "cq", "annotations": notes}});
        scene.put("manager", PERSON, QUEUES, queue);
        let local = json!({"metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}});
        scene.put("manager", PERSON, "localqueues.kueue.x-k8s.io", local);
        scene.start("a", "east");
        scene.go_west("a");
        scene.broken()
    };
    assert!(twice(WorkerLostPolicy::RetryAnyway, None).is_empty());
    assert_eq!(twice(WorkerLostPolicy::RetryAnyway, Some("Wait")), ["I1"]);
    assert_eq!(twice(WorkerLostPolicy::RetryAnyway, Some("Fence")), ["I1"]);
    assert_eq!(twice(WorkerLostPolicy::Wait, None), ["I1"]);
    assert!(twice(WorkerLostPolicy::Wait, Some("RetryAnyway")).is_empty());
}

impl Scene {
    /// A job that the job of `name` on a worker created, and a pod of it.
    fn child(&mut self, name: &str, child: &str, cluster: &str) {
        self.attempt(name, child, cluster, 1);
    }

    /// As [`Scene::child`], created by an `AppWrapper` for this attempt.
    fn attempt(&mut self, name: &str, child: &str, cluster: &str, attempt: u32) {
        let owner =
            |uid: String| json!([{"kind": "AppWrapper", "name": "any", "uid": uid, "controller": true}]);
        let made = format!("{cluster}-{child}-{attempt}");
        let job = json!({
            "metadata": {"name": child, "uid": made, "ownerReferences": owner(format!("{cluster}-job-{name}"))},
            "spec": {"suspend": false},
        });
        self.put(cluster, SYSTEM, JOBS, job);
        let pod = json!({
            "metadata": {"name": format!("{child}-{attempt}"), "ownerReferences": owner(made)},
            "status": {"phase": "Running"},
        });
        self.put(cluster, SYSTEM, PODS, pod);
    }
}

/// Spec: safety 1 I11.
#[test]
fn what_a_job_of_jobs_made_ends_and_begins_without_being_a_run_of_its_own() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.child("a", "a-leader-0", "east");
    let complete = json!({"status": {"conditions": [condition("Complete", "True", "", 3)]}});
    scene.edit("east", SYSTEM, JOBS, "a-leader-0", complete);
    scene.child("a", "a-worker-0", "east");
    scene.is_fine();
}

/// Spec: safety 1 I1, I5.
#[test]
fn a_pod_of_a_job_that_a_job_made_counts_for_the_one_at_the_top() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.child("a", "a-leader-0", "east");
    scene.clean("a", "east");
    scene.edit(
        "east",
        SYSTEM,
        JOBS,
        "a-leader-0",
        json!({"spec": {"suspend": true}}),
    );
    scene.go_west("a");
    assert_eq!(scene.broken(), ["I1"]);
    scene.rest();
    let told = |name: &str| {
        let mut all = scene.auditor.violations().iter();
        all.any(|violation| violation.invariant == "I5" && violation.subject == format!("east {name}"))
    };
    assert!(
        told("jobs.batch ns/a-leader-0"),
        "its maker is gone and it lives on"
    );
}

/// Spec: appwrapper 2.3, 2.5; safety 1 I4
#[test]
fn an_attempt_of_a_wrapper_begins_without_pods_of_the_last_and_its_quota_is_held_as_long_as_they_live() {
    let attempts = |ends: bool| {
        let mut scene = Scene::new();
        scene.start("a", "east");
        scene.attempt("a", "a-wrapped", "east", 1);
        if ends {
            scene.pod_ends("east", "a-wrapped-1", "Failed");
        }
        scene.remove("east", WORKER, JOBS, "a-wrapped");
        scene.attempt("a", "a-wrapped", "east", 2);
        scene
    };
    attempts(true).is_fine();
    assert_eq!(attempts(false).broken(), ["appwrapper 2.3"]);
    let frees = |first: &str| {
        let mut scene = attempts(true);
        let held = json!({"conditions": [condition("QuotaReserved", "False", "Pending", 4)]});
        if first == "pods" {
            scene.pod_ends("east", "a-wrapped-2", "Failed");
        }
        scene.status("east", WORKER, "a", held);
        scene
    };
    frees("pods").is_fine();
    assert_eq!(frees("quota").broken(), ["appwrapper 2.5"]);
    let mut deleted = attempts(true);
    let goes = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    deleted.edit("east", MANAGER, JOBS, "a", goes);
    let held = json!({"conditions": [condition("QuotaReserved", "False", "Pending", 4)]});
    deleted.status("east", WORKER, "a", held);
    deleted.is_fine();
}
