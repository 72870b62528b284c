//! I2, I3, I5, I12, I13: what is judged when everything is at rest.

use roadstead_apiserver::RESTORER;
use serde_json::json;

use super::scene::{
    CLUSTERS, JOBS, MANAGER, PERSON, QUEUES, SYSTEM, Scene, WORKER, WORKLOADS, condition, wl,
};
use crate::audit::End;
use crate::audit::ending::Outcome;

/// Spec: safety 1 I2.
#[test]
fn an_accepted_job_is_stored_and_only_people_delete_it() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.remove("manager", PERSON, JOBS, "a");
    scene.is_fine();
    let mut scene = Scene::new();
    scene.live("a", "east");
    scene.remove("manager", MANAGER, JOBS, "a");
    scene.rest();
    scene.is_fine();

    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.remove("manager", MANAGER, JOBS, "a");
    assert_eq!(scene.broken(), ["I2"], "deleted before it ended");
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.edit(
        "manager",
        MANAGER,
        JOBS,
        "a",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    assert_eq!(scene.broken(), ["I2"], "marked for deletion");
    let mut scene = Scene::new();
    scene.auditor.submitted(JOBS, "ns", "ghost", scene.now);
    scene.rest();
    assert_eq!(scene.broken(), ["I2"], "never stored");
}

/// The findings at rest for a job whose status replaces the one of [`Scene::submit`].
fn rests(status: serde_json::Value) -> Vec<&'static str> {
    let mut scene = Scene::new();
    scene.submit("a");
    scene.status("manager", MANAGER, "a", json!({"nominatedClusterNames": null}));
    scene.status("manager", MANAGER, "a", status);
    scene.rest();
    scene.broken()
}

/// Spec: safety 1 I3.
#[test]
fn at_rest_a_job_waits_with_a_reason() {
    let quota = |status: &str| condition("QuotaReserved", status, "Pending", 1);
    assert!(rests(json!({})).is_empty(), "the check says why");
    assert!(rests(json!({"conditions": [quota("False")], "admissionChecks": null})).is_empty());
    let silent = json!([{"name": "mk", "state": "Pending", "message": ""}]);
    assert_eq!(rests(json!({"admissionChecks": silent})), ["I3"]);
    assert_eq!(rests(json!({"conditions": [], "admissionChecks": null})), ["I3"]);
    let retry = json!([{"name": "mk", "state": "Retry", "message": "gone"}]);
    assert_eq!(rests(json!({"admissionChecks": retry})), ["I3"]);
    assert_eq!(
        rests(json!({"clusterName": "east"})),
        ["multikueue 3.3 R6", "I3", "I3"],
        "bound to a cluster"
    );
    let evicted = condition("Evicted", "True", "Preempted", 1);
    assert_eq!(rests(json!({"conditions": [quota("True"), evicted]})), ["I3"]);
    let ready = json!([{"name": "mk", "state": "Ready", "message": "there"}]);
    assert_eq!(rests(json!({"admissionChecks": ready})), ["I3"], "not admitted");
    let admitted = condition("Admitted", "True", "Ok", 1);
    let nowhere = json!({"conditions": [quota("True"), admitted], "admissionChecks": ready});
    assert_eq!(rests(nowhere), ["I3"], "no cluster");
}

/// Spec: safety 1 I3.
#[test]
fn at_rest_job_and_workload_have_both_ended_or_neither() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.end_there("a", "east");
    scene.finished("manager", MANAGER, "a", "Succeeded");
    scene.clean("a", "east");
    scene.rest();
    assert_eq!(scene.broken(), ["I3"]);
    let mut scene = Scene::new();
    scene.put(
        "manager",
        PERSON,
        JOBS,
        json!({"metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}}),
    );
    scene.rest();
    assert_eq!(scene.broken(), ["I3"], "a job in a queue without a Workload");
}

/// Spec: safety 1 I3.
#[test]
fn at_rest_an_admitted_job_has_a_pod() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.pod_ends("east", "a-0", "Succeeded");
    scene.rest();
    assert_eq!(scene.broken(), ["I3"]);
    let mut scene = Scene::new();
    scene.submit("a");
    scene.dispatch("a", "east");
    scene.rest();
    assert_eq!(
        scene.broken(),
        ["I3", "I3"],
        "no pod, and no job though it was given to east"
    );
}

/// Spec: safety 1 I3.
#[test]
fn at_rest_nothing_is_written_but_renewals() {
    let writes = |resource: &str, user: &str| {
        let mut scene = Scene::new();
        scene.live("a", "east");
        scene.pass(600);
        scene.put("east", user, resource, json!({"metadata": {"name": "x"}}));
        scene.pass(1);
        scene.auditor.at_rest(scene.now);
        scene.broken()
    };
    assert!(writes("leases.coordination.k8s.io", MANAGER).is_empty());
    assert!(writes("events", WORKER).is_empty());
    assert!(writes("configmaps", PERSON).is_empty());
    assert_eq!(writes("clusterqueues.kueue.x-k8s.io", WORKER), ["I3"]);
}

/// Spec: safety 1 I5.
#[test]
fn at_rest_nothing_of_ours_is_left_on_workers() {
    let mut scene = Scene::new();
    scene.live("a", "east");
    scene.offer("a", "west");
    scene.make_job("a", "west");
    scene.rest();
    assert_eq!(scene.broken(), ["I9", "I5", "I5"], "the Workload is Finished");

    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.offer("a", "west");
    scene.rest();
    assert_eq!(scene.broken(), ["I5"], "it was given to another");

    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.remove("manager", PERSON, JOBS, "a");
    scene.remove("manager", SYSTEM, WORKLOADS, &wl("a"));
    scene.rest();
    assert_eq!(scene.broken(), ["I5", "I5"], "nobody owns the job and its copy");

    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.auditor.left("east");
    scene.remove("manager", PERSON, JOBS, "a");
    scene.remove("manager", SYSTEM, WORKLOADS, &wl("a"));
    scene.rest();
    scene.is_fine();
}

/// A worker that has left keeps the lease of its manager, whose account there has no right to delete it.
///
/// Spec: safety 1 I5.
#[test]
fn at_rest_the_managers_own_lease_is_no_orphan_and_anything_else_of_ours_is() {
    let left = |resource: &str| {
        let mut scene = Scene::new();
        scene.live("a", "east");
        let meta = json!({"name": "roadstead-multikueue", "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}});
        scene.put("east", MANAGER, resource, json!({"metadata": meta}));
        scene.remove("manager", SYSTEM, CLUSTERS, "east");
        scene.rest();
        (scene.broken(), scene.auditor.ending().left_over.len())
    };
    assert_eq!(left("leases.coordination.k8s.io"), (vec![], 0));
    assert_eq!(left("configmaps"), (vec!["I10", "I5"], 1));
}

/// Spec: safety 1 I5.
#[test]
fn at_rest_no_pod_outlives_its_job() {
    let mut scene = Scene::new();
    scene.live("a", "east");
    scene.pod("a", "east");
    scene.rest();
    assert_eq!(scene.broken(), ["I5"]);
}

/// Spec: safety 1 I5.
#[test]
fn at_rest_a_copy_is_of_the_present_dispatch() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    let epoch = |number: &str| json!({"metadata": {"annotations": {"roadstead.dev/dispatch-epoch": number}}});
    scene.edit("manager", MANAGER, WORKLOADS, &wl("a"), epoch("2"));
    scene.edit("east", MANAGER, WORKLOADS, &wl("a"), epoch("2"));
    scene.rest();
    scene.is_fine();
    scene.edit("east", MANAGER, WORKLOADS, &wl("a"), epoch("1"));
    scene.rest();
    assert_eq!(scene.broken(), ["I6", "I5"]);
}

/// Spec: safety 1 I5.
#[test]
fn what_a_stranger_keeps_from_going_is_not_our_orphan() {
    let held = |finalizer: &str| {
        let mut scene = Scene::new();
        scene.live("a", "east");
        scene.offer("a", "east");
        let meta = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]});
        scene.edit("east", MANAGER, WORKLOADS, &wl("a"), json!({"metadata": meta}));
        scene.rest();
        scene.broken()
    };
    assert!(held("example.com/backup").is_empty());
    assert_eq!(held("kueue.x-k8s.io/resource-in-use"), ["I5"]);
}

/// A client on a worker writes into a copy that it is Finished, although the job was never created there.
///
/// Spec: safety 1 I3, I9.
#[test]
fn no_job_is_made_for_what_the_chosen_cluster_says_has_ended() {
    let told = |there: &str| {
        let mut scene = Scene::new();
        scene.submit("a");
        for cluster in ["east", "west"] {
            scene.offer("a", cluster);
            scene.admit("a", cluster);
        }
        scene.finished(there, PERSON, "a", "Succeeded");
        scene.choose("a", "east");
        scene.mirror_end("a");
        for cluster in ["east", "west"] {
            scene.remove(cluster, MANAGER, WORKLOADS, &wl("a"));
        }
        scene.rest();
        scene.broken()
    };
    assert!(told("east").is_empty());
    assert_eq!(told("west"), ["I9", "I3"]);
}

/// Spec: safety 1 I12.
#[test]
fn a_healthy_worker_does_not_wait_for_a_hung_one() {
    let placed = |troubled: &[&str], wait| {
        let mut scene = Scene::new();
        for cluster in troubled {
            scene.auditor.troubled(cluster);
        }
        scene.submit("a");
        scene.dispatch("a", "east");
        scene.pass(wait);
        scene.make_job("a", "east");
        scene
    };
    placed(&["west"], 5).is_fine();
    let late = placed(&["west"], 120);
    assert_eq!(late.broken(), ["I12"]);
    assert!(late.auditor.violations()[0].story.contains("west"));
    assert!(
        late.auditor
            .placements()
            .iter()
            .any(|p| p.took.as_secs() >= 120 && p.healthy)
    );
    placed(&["east"], 120).is_fine();
    placed(&["manager"], 120).is_fine();
}

/// Spec: safety 1 I12.
#[test]
fn a_worker_that_has_just_recovered_is_given_time() {
    let placed = |pause| {
        let mut scene = Scene::new();
        scene.auditor.calm("east", scene.now);
        scene.pass(pause);
        scene.submit("a");
        scene.pass(60);
        scene.offer("a", "east");
        scene.broken()
    };
    assert!(placed(10).is_empty());
    assert_eq!(placed(600), ["I12"]);
}

/// Spec: safety 1 I13.
#[test]
fn two_runs_with_the_same_outcomes_are_the_same_wherever_they_ran() {
    let run = |cluster| {
        let mut scene = Scene::new();
        scene.live("a", cluster);
        scene.start("b", "east");
        scene
    };
    let (east, west) = (run("east").auditor.ending(), run("west").auditor.ending());
    assert!(east.differences(&west, |_| true).is_empty());
    assert_eq!(east.outcomes["jobs.batch ns/a"], Outcome::Ended(End::Succeeded));
    assert_eq!(east.outcomes["jobs.batch ns/b"], Outcome::Runs);

    let mut other = run("east");
    other.end_there("b", "east");
    other.mirror_end("b");
    let found = other.auditor.ending().differences(&east, |_| true);
    assert_eq!(
        found,
        [
            "jobs.batch ns/b: Ended(Succeeded) here, Runs there",
            "east jobs.batch ns/b is left over here",
            "east workloads.kueue.x-k8s.io ns/wl-b is left over here",
        ]
    );
    other.remove("manager", PERSON, JOBS, "a");
    assert!(east.differences(&other.auditor.ending(), |_| true)[0].contains("not there there"));
}

/// Spec: safety 1 I4.
#[test]
fn at_rest_a_queue_counts_what_holds_its_quota() {
    let counts = |user: &str, counted: u64| {
        let mut scene = Scene::new();
        scene.start("a", "east");
        let admission = json!({"status": {"admission": {"clusterQueue": "main"}}});
        scene.edit("east", WORKER, WORKLOADS, &wl("a"), admission);
        let queue = json!({"metadata": {"name": "main"}, "status": {"reservingWorkloads": counted}});
        scene.put("east", user, QUEUES, queue);
        scene.rest();
        scene.broken()
    };
    assert!(counts(WORKER, 1).is_empty());
    assert_eq!(counts(WORKER, 2), ["I4"]);
    assert_eq!(counts(WORKER, 0), ["I4"]);
    assert_eq!(
        counts(RESTORER, 2),
        ["I4"],
        "what a backup brings back is put right"
    );
}

/// Spec: safety 1 I3.
#[test]
fn what_configures_the_federation_is_usable_again() {
    let mut scene = Scene::new();
    scene.active("east", "False", "ClientConnectionFailed");
    scene.is_fine();
    scene.active("east", "True", "Active");
    scene.rest();
    scene.is_fine();
    scene.active("east", "False", "ClientConnectionFailed");
    scene.rest();
    assert_eq!(scene.broken(), ["I3"]);
    let told = &scene.auditor.violations()[0];
    assert_eq!(told.subject, "manager multikueueclusters.kueue.x-k8s.io east");
}
