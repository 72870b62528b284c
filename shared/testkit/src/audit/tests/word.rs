//! The effect of giving up a lost cluster, and that no other action of an administrator has this effect.

use roadstead_api::config::WorkerLostPolicy;
use serde_json::{Value, json};

use super::scene::{CLUSTERS, CONFIGS, MANAGER, PERSON, SYSTEM, Scene, condition, rules};
use crate::audit::Rules;

/// A job runs in east, and then `then` happens.
fn in_the_east(then: impl FnOnce(&mut Scene)) -> Scene {
    let mut scene = Scene::new();
    scene.start("a", "east");
    then(&mut scene);
    scene
}

fn is_lost(scene: &mut Scene) {
    scene.active("east", "False", "ClientConnectionFailed");
}

fn answers(scene: &mut Scene) {
    scene.active("east", "True", "Active");
}

fn is_given_up(scene: &mut Scene) {
    scene.give_up("east");
}

fn is_taken_out(scene: &mut Scene) {
    let patch = json!({"spec": {"clusters": ["west"]}});
    scene.edit("manager", PERSON, CONFIGS, "all", patch);
}

fn is_deleted(scene: &mut Scene) {
    let patch = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    scene.edit("manager", PERSON, CLUSTERS, "east", patch);
}

/// The rules that are broken if the job runs in west after these steps, while its run in east goes on.
fn goes_west(steps: &[fn(&mut Scene)]) -> Vec<&'static str> {
    let mut scene = in_the_east(|scene| steps.iter().for_each(|step| step(scene)));
    scene.pass(1_000);
    let retry = json!([{"name": "mk", "state": "Retry", "message": "lost"}]);
    scene.status("manager", MANAGER, "a", json!({"admissionChecks": retry}));
    scene.go_west("a");
    scene.broken()
}

/// Spec: safety 1 I1; safety 3.5.
#[test]
fn a_run_of_which_an_administrator_said_that_it_is_lost_may_go_on_beside_the_next() {
    assert!(goes_west(&[is_lost, is_given_up]).is_empty());
    assert!(goes_west(&[is_deleted, is_lost, is_taken_out, is_given_up]).is_empty());
    let without: [&[fn(&mut Scene)]; 6] = [
        &[is_lost],
        &[is_given_up, is_lost],
        &[is_lost, is_taken_out],
        &[is_lost, is_deleted],
        &[is_lost, is_given_up, answers],
        &[is_lost, is_given_up, answers, is_lost],
    ];
    for (number, steps) in without.iter().enumerate() {
        assert_eq!(goes_west(steps), ["multikueue 10.F8", "I1"], "case {number}");
    }
}

/// Spec: safety 1 I1, I11; safety 3.5.
#[test]
fn what_ended_unseen_may_run_again_once_it_was_said_to_be_lost() {
    let again = |word: bool| {
        let mut scene = in_the_east(is_lost);
        let complete = json!({"status": {"conditions": [condition("Complete", "True", "", 3)]}});
        scene.edit("east", SYSTEM, "jobs.batch", "a", complete);
        scene.pod_ends("east", "a-0", "Succeeded");
        if word {
            is_given_up(&mut scene);
        }
        scene.go_west("a");
        // Why: a given-up run stays given up when its cluster answers again.
        answers(&mut scene);
        scene.broken()
    };
    assert!(again(true).is_empty());
    assert_eq!(again(false), ["I11"]);
}

/// Spec: safety 3.5.
#[test]
fn what_was_said_to_be_lost_is_let_go_at_once() {
    let held = |secs: i64, troubled: &str| {
        let rules = Rules {
            policy: WorkerLostPolicy::Fence,
            ..rules()
        };
        let mut scene = Scene::under(rules);
        if !troubled.is_empty() {
            scene.auditor.troubled(troubled);
        }
        scene.start("a", "east");
        is_lost(&mut scene);
        is_given_up(&mut scene);
        scene.pass(secs);
        answers(&mut scene);
        scene.broken()
    };
    assert!(held(29, "").is_empty());
    assert_eq!(held(30, ""), ["safety 3.5"]);
    assert!(held(30, "manager").is_empty());
    assert_eq!(held(30, "east"), ["safety 3.5"]);
}

/// Spec: safety 1 I5; multikueue 4.5.
#[test]
fn what_is_left_on_a_cluster_that_was_lost_when_it_went_is_nobodys_until_it_comes_back() {
    let left = |steps: &[fn(&mut Scene)]| {
        let mut scene = in_the_east(|scene| steps.iter().for_each(|step| step(scene)));
        scene.remove("manager", SYSTEM, CLUSTERS, "east");
        scene.remove("manager", PERSON, "jobs.batch", "a");
        scene.remove("manager", SYSTEM, "workloads.kueue.x-k8s.io", "wl-a");
        scene
    };
    let mut lost = left(&[is_lost, is_deleted]);
    lost.rest();
    lost.is_fine();
    lost.put(
        "manager",
        PERSON,
        CLUSTERS,
        json!({"metadata": {"name": "east"}, "status": Value::Null}),
    );
    answers(&mut lost);
    lost.rest();
    assert_eq!(lost.broken(), ["I5", "I5"]);
    let mut seen = left(&[is_deleted]);
    seen.rest();
    assert_eq!(seen.broken(), ["I5", "I5"]);
}
