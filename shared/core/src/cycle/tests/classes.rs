//! Workloads with equal requests share one fate.

use super::{Decision, reclaiming, strict, world};
use crate::queue::Reclaim;
use crate::reason::Reason;
use crate::state::Event;
use crate::state::fixtures::{World, cluster_queue, finish, flavor, group, in_cohort, pod_set, workload};

const BYPASSED: &str =
    "WaitingForQuota Bypassed scheduling evaluation because an equivalent workload recently failed";

/// A queue with 1 GPU, in use, and 1 free core.
fn full() -> World {
    let queue = cluster_queue(
        "q",
        vec![
            group(&[("gpus", &[("gpu", 1)])]),
            group(&[("default", &[("cpu", 1_000)])]),
        ],
    );
    let mut world = world(vec![queue]);
    world.tell(Event::Flavor(flavor("gpus")));
    gpu(&mut world, "user", 0, 0);
    world.run();
    world
}

fn gpu(world: &mut World, name: &str, created: i64, priority: i32) {
    let mut asked = workload(name, created, vec![pod_set("main", 1, &[("gpu", 1)])]);
    asked.queue = "q".to_owned();
    asked.priority = priority;
    world.put(asked);
}

fn counts(world: &World) -> (usize, usize) {
    let report = world.state.cluster_queue_report(&"q".into()).unwrap();
    (report.pending, report.inadmissible)
}

/// Spec: admission-engine B038, B039.
#[test]
fn equals_of_one_that_failed_are_put_aside_unseen() {
    let mut world = full();
    for number in 0..1_000 {
        gpu(&mut world, &format!("g{number:04}"), 1 + number, 0);
    }
    world.ask("q", "cpu", (-1, 1_000));
    world.state.take_outcome();
    let decisions = world.decide();
    let bypassed = |d: &&Decision| {
        matches!(
            d,
            Decision::NotAdmitted {
                reason: Reason::Bypassed(_),
                ..
            }
        )
    };
    assert_eq!(decisions.iter().filter(bypassed).count(), 999);
    assert!(
        decisions
            .iter()
            .any(|d| matches!(d, Decision::Reserve { key, .. } if *key.name == *"cpu"))
    );
    assert_eq!(world.state.take_outcome().heads, 2, "one of a thousand was tried");
    assert_eq!(counts(&world), (1_000, 1_000));
    gpu(&mut world, "late", 5_000, 0);
    assert!(world.state.ready.is_empty());
    assert_eq!(counts(&world), (1_001, 1_001));
    assert_eq!(world.run(), [format!("late: {BYPASSED}")]);
    world.edit("user", finish);
    assert_eq!(world.run()[0], "g0000: reserved");
    world.state.take_outcome();
    world.edit("g0000", finish);
    world.decide();
    assert_eq!(
        world.state.take_outcome().heads,
        1,
        "one is served, no workload is tried in vain"
    );
}

/// Spec: admission-engine B040.
#[test]
fn another_priority_is_another_class() {
    let mut world = full();
    gpu(&mut world, "high", 1, 1);
    gpu(&mut world, "low", 2, 0);
    let lines = world.run();
    assert_eq!(lines.len(), 2);
    assert!(
        lines.iter().all(|line| line.contains("1 more needed")),
        "{lines:?}"
    );
}

/// Spec: admission-engine B037.
#[test]
fn who_fails_while_its_queue_changes_is_tried_again() {
    let mut world = world(vec![cluster_queue(
        "q",
        vec![group(&[("default", &[("cpu", 1_000)])])],
    )]);
    world.ask("q", "w", (0, 2_000));
    // Both happen before the failure is written: the change comes last, and counts.
    let failed = world.decide();
    assert_eq!((failed.len(), counts(&world)), (1, (1, 1)));
    let wider = cluster_queue("q", vec![group(&[("default", &[("cpu", 2_000)])])]);
    world.tell(Event::ClusterQueue(Box::new(wider)));
    assert_eq!(counts(&world), (1, 0), "it is in the heap again");
    for decision in failed {
        world.write(decision);
    }
    assert_eq!(world.run(), ["w: reserved"]);
}

/// Spec: admission-engine 1.5, 10.1 (many sizes: after a release only those workloads are tried for which it is enough).
#[test]
fn of_many_who_lack_the_same_only_the_first_is_tried() {
    let mut world = world(vec![cluster_queue(
        "q",
        vec![group(&[("default", &[("cpu", 10_000)])])],
    )]);
    for number in 0..10 {
        world.ask("q", &format!("user{number}"), (0, 1_000));
    }
    world.run();
    for number in 0..100 {
        // Why: each asks for something else, so that there are as many classes.
        world.ask("q", &format!("w{number:03}"), (0, 2_000 - number));
    }
    assert_eq!(world.run().len(), 100);
    world.state.take_outcome();
    world.edit("user0", finish);
    assert_eq!(world.run(), [""; 0]);
    assert_eq!(
        world.state.take_outcome().heads,
        0,
        "one core is too little for each"
    );
    world.edit("user1", finish);
    assert_eq!(world.run(), ["w000: reserved"]);
    assert_eq!(
        world.state.take_outcome().heads,
        1,
        "no other workload is tried in vain"
    );
    world.edit("w000", finish);
    assert_eq!(world.run(), ["w001: reserved"]);
    assert_eq!(world.state.take_outcome().heads, 1);
}

/// Spec: admission-engine B036, 10.1 (released quota is spread once, whichever workload gave it back).
#[test]
fn many_releases_are_one_flush() {
    let mut world = world(vec![cluster_queue(
        "q",
        vec![group(&[("default", &[("cpu", 5_000)])])],
    )]);
    for number in 0..5 {
        world.ask("q", &format!("user{number}"), (0, 1_000));
    }
    world.run();
    world.ask("q", "big", (0, 5_000));
    world.run();
    world.state.take_outcome();
    for number in 0..5 {
        world.edit(&format!("user{number}"), finish);
    }
    assert_eq!(world.run(), ["big: reserved"]);
    assert_eq!(world.state.take_outcome().heads, 1);
}

/// Spec: admission-engine 10.1 (a workload that lacks something else sleeps on).
#[test]
fn a_release_wakes_only_those_who_lack_what_came_free() {
    let mut world = full();
    gpu(&mut world, "g", 1, 0);
    world.ask("q", "cpu", (0, 1_000));
    world.run();
    world.state.take_outcome();
    world.edit("cpu", finish);
    assert_eq!(world.run(), [""; 0]);
    assert_eq!(world.state.take_outcome().heads, 0);
    assert_eq!(counts(&world), (1, 1));
    world.edit("user", finish);
    assert_eq!(world.run(), ["g: reserved"]);
}

/// A strict head that lays claim to quota takes part in every round; the heads of another queue are put aside unseen meanwhile.
///
/// Spec: admission-engine 1.4, 2.11.
#[test]
fn rounds_end_while_a_strict_head_claims_and_equal_requests_are_bypassed() {
    let mut world = world(vec![
        strict(reclaiming(in_cohort("strict", "x", 4), Reclaim::LowerPriority)),
        in_cohort("other", "x", 0),
    ]);
    world.ask("other", "runs", (0, 3_000));
    world.run();
    world.ask("strict", "head", (0, 4_000));
    world.ask("other", "one", (0, 2_000));
    world.ask("other", "two", (0, 2_000));
    world.state.cycle(world.now);
    assert!(!world.state.has_work());
    assert!(world.state.take_outcome().heads < 8);
}
