//! Queues that share quota.

use super::{reclaiming, world};
use crate::amount::Amount;
use crate::name::Key;
use crate::queue::{Reclaim, StopPolicy};
use crate::state::fixtures::{cohort, cores, finish, in_cohort, pod_set, workload};
use crate::state::{Event, Settings, State};

/// Spec: admission-engine B093.
#[test]
fn the_quota_of_a_stopped_queue_can_still_be_borrowed() {
    let mut stopped = in_cohort("a", "x", 10);
    stopped.stop = StopPolicy::Hold;
    let mut world = world(vec![stopped, in_cohort("b", "x", 0)]);
    world.ask("b", "w", (0, 10_000));
    assert_eq!(world.run(), ["w: reserved"]);
}

/// Spec: admission-engine B094.
#[test]
fn cohorts_in_a_circle_make_their_queues_inactive_until_it_is_broken() {
    let mut world = world(vec![in_cohort("q", "a", 4)]);
    world.tell(cohort("a", Some("b")));
    world.tell(cohort("b", Some("a")));
    world.ask("q", "w", (0, 1_000));
    let lines = world.run();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].starts_with("w: Suspended ClusterQueue q is inactive"),
        "{lines:?}"
    );
    world.tell(cohort("a", None));
    assert_eq!(world.run(), ["w: reserved"]);
}

/// Spec: admission-engine B096.
#[test]
fn quotas_without_bound_do_not_wrap() {
    let huge = |name: &str| {
        let mut queue = in_cohort(name, "x", 0);
        for quota in queue.groups[0].flavors[0].quotas.values_mut() {
            quota.nominal = Amount::UNLIMITED;
        }
        queue
    };
    let mut world = world(vec![huge("a"), huge("b")]);
    world.ask("a", "w", (0, i64::MAX - 1));
    world.ask("b", "v", (0, i64::MAX - 1));
    assert_eq!(world.run(), ["w: reserved", "v: reserved"]);
}

/// Spec: admission-engine B097.
#[test]
fn a_queue_that_moves_takes_its_usage_along_and_both_trees_look_again() {
    let mut world = world(vec![
        in_cohort("x1", "x", 4),
        in_cohort("y1", "y", 4),
        in_cohort("mover", "x", 0),
        in_cohort("x2", "x", 0),
    ]);
    world.ask("mover", "user", (0, 4_000));
    world.run();
    world.ask("x2", "waits", (0, 4_000));
    assert_eq!(world.run().len(), 1);
    world.tell(Event::ClusterQueue(Box::new(in_cohort("mover", "y", 0))));
    assert_eq!(world.run(), ["waits: reserved"]);
    world.ask("y1", "late", (0, 1_000));
    let lines = world.run();
    assert!(lines[0].contains("1 more needed"), "y is full now: {lines:?}");
}

/// Spec: admission-engine 1.5 (a release anywhere in the tree helps everywhere in it).
#[test]
fn quota_released_in_one_queue_wakes_its_cousins() {
    let mut world = world(vec![in_cohort("a", "l", 4), in_cohort("b", "r", 0)]);
    world.tell(cohort("l", Some("top")));
    world.tell(cohort("r", Some("top")));
    world.ask("a", "user", (0, 4_000));
    world.run();
    world.ask("b", "waits", (0, 3_000));
    assert_eq!(world.run().len(), 1);
    world.edit("user", finish);
    assert_eq!(world.run(), ["waits: reserved"]);
}

/// Spec: admission-engine B177 (the engine's part: quota stays held until the workload shows that it is not).
#[test]
fn quota_of_a_queue_that_is_gone_stays_held_until_it_is_released() {
    let mut world = world(vec![in_cohort("q", "x", 4)]);
    world.ask("q", "w", (0, 4_000));
    world.run();
    world.tell(Event::ClusterQueueGone("q".into()));
    assert!(world.state.cluster_queue_report(&"q".into()).is_none());
    world.add_queue(in_cohort("q", "x", 4));
    assert_eq!(
        world.state.cluster_queue_report(&"q".into()).unwrap().reserving,
        1
    );
    world.ask("q", "late", (0, 1_000));
    assert!(world.run()[0].contains("1 more needed"));
    world.tell(Event::ClusterQueueGone("q".into()));
    world.edit("w", finish);
    world.add_queue(in_cohort("q", "x", 4));
    assert!(world.run().contains(&"late: reserved".to_owned()));
}

/// Spec: admission-engine B179.
#[test]
fn a_restart_counts_all_reservations_before_anything_is_decided() {
    let queues = || {
        vec![
            in_cohort("a", "x", 4),
            reclaiming(in_cohort("b", "x", 4), Reclaim::Any),
        ]
    };
    let mut before = world(queues());
    before.ask("a", "w1", (0, 6_000));
    before.ask("b", "w2", (0, 2_000));
    before.run();
    before.ask("a", "w3", (0, 1_000));
    before.run();
    let mut after = world(queues());
    after.state = State::new(Settings::default());
    for workload in before.workloads.values() {
        after.put(workload.clone());
    }
    assert_eq!(after.state.cycle(after.now), []);
    let fresh = world(queues());
    after.tell(Event::Flavor(
        fresh.state.flavors.values().next().unwrap().clone(),
    ));
    for queue in queues() {
        after.add_queue(queue);
    }
    after.tell(Event::Synced);
    assert_eq!(after.run(), [""; 0], "all is said and nothing is free");
    assert_eq!(
        after.state.cluster_queue_report(&"a".into()).unwrap().reserving,
        1
    );
}

/// Spec: admission-engine B065 (all pod sets or none).
#[test]
fn a_workload_is_admitted_whole_or_not_at_all() {
    let mut world = world(vec![in_cohort("q", "x", 5)]);
    let pods = |name: &str| pod_set(name, 1, &[("cpu", 3_000)]);
    let mut asked = workload("w", 1, vec![pods("one"), pods("two")]);
    asked.queue = "q".to_owned();
    world.put(asked);
    assert_eq!(world.run().len(), 1);
    assert_eq!(
        world.state.cluster_queue_report(&"q".into()).unwrap().reserving,
        0
    );
}

/// Spec: admission-engine B166, B163.
#[test]
fn fewer_pods_are_taken_only_with_partial_admission() {
    use super::{OFF, ruled, world_with};
    use crate::rules::Rules;
    for (rules, admitted) in [
        (Rules::default(), Some(6)),
        (
            Rules {
                partial_admission: OFF,
                ..Rules::default()
            },
            None,
        ),
    ] {
        let mut world = world_with(ruled(rules), vec![in_cohort("q", "x", 6)]);
        let mut pods = pod_set("main", 10, &[("cpu", 1_000)]);
        pods.min_count = Some(3);
        let mut asked = workload("w", 1, vec![pods]);
        asked.queue = "q".to_owned();
        world.put(asked);
        world.run();
        let admission = &world.workloads[&Key::new("ns", "w")].status.admission;
        assert_eq!(admission.as_ref().map(|a| a.pod_sets[0].count), admitted);
    }
}

/// Spec: admission-engine B052, B053, B057.
#[test]
fn what_is_reserved_is_told_in_full() {
    let mut queue = cores(9);
    queue.name = "q".into();
    let mut world = world(vec![queue]);
    let mut asked = workload("w", 1, vec![pod_set("main", 3, &[("cpu", 1_000)])]);
    asked.queue = "q".to_owned();
    world.put(asked);
    assert_eq!(world.run(), ["w: reserved"]);
    let admission = world.workloads[&Key::new("ns", "w")]
        .status
        .admission
        .clone()
        .unwrap();
    let assignment = &admission.pod_sets[0];
    assert_eq!((admission.cluster_queue.as_str(), assignment.count), ("q", 3));
    assert_eq!(assignment.flavors[&"cpu".into()].as_str(), "default");
    assert_eq!(assignment.usage[&"cpu".into()], Amount::new(3_000));
    world.ask("q", "more", (0, 6_000));
    assert_eq!(world.run(), ["more: reserved"]);
}
