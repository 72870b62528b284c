//! Victims that stop one after the other: no other workload is evicted meanwhile, and the quota they give back is kept.

use super::{Decision, fair, reclaiming, within, world, world_with};
use crate::cycle::claims::CLAIM_MAX;
use crate::name::Key;
use crate::queue::{ClusterQueue, LocalQueue, Reclaim, StopPolicy, Weight, WithinClusterQueue};
use crate::state::Event;
use crate::state::fixtures::{World, at, cluster_queue, evict, finish, group, in_cohort};

/// One way of giving up a claim.
type Way<'a> = &'a dyn Fn(&mut World);

fn any(name: &str, cpu: i64) -> ClusterQueue {
    reclaiming(in_cohort(name, "tree", cpu), Reclaim::Any)
}

/// Four workloads of 2 cores in `one`, which borrows all of 8, and `b` of that many cores in `two`.
fn shared(cpu: i64) -> World {
    let mut world = world_with(
        fair(),
        vec![in_cohort("pool", "tree", 8), any("one", 0), any("two", 0)],
    );
    for name in ["a1", "a2", "a3", "a4"] {
        world.ask("one", name, (0, 2_000));
        world.run();
        world.wait(1);
    }
    world.ask("two", "b", (0, cpu * 1_000));
    world
}

fn evicted(lines: &[String]) -> Vec<&str> {
    let evicted = lines.iter().filter(|line| line.contains(": In"));
    evicted.map(|line| &line[..2]).collect()
}

fn gone(world: &mut World, name: &str) {
    let (key, uid) = (Key::new("ns", name), format!("uid-{name}").into());
    world.workloads.remove(&key);
    world.tell(Event::WorkloadGone { key, uid });
}

/// Spec: admission-engine B130, 10.2.
#[test]
fn two_victims_that_stop_one_after_the_other_are_enough() {
    let mut world = shared(4);
    assert_eq!(evicted(&world.run()), ["a4", "a3"]);
    world.release("a4");
    let lines = world.run();
    assert_eq!(evicted(&lines), [""; 0], "{lines:?}");
    let waiting = &world.workloads[&Key::new("ns", "b")].status.conditions;
    let message = &waiting.get("QuotaReserved").unwrap().message;
    assert!(
        message.ends_with("2 more needed. Pending the preemption of 1 workload(s)"),
        "{message}"
    );
    assert!(
        lines.contains(&super::no_longer("a4")),
        "a4 leaves alone what it gave back: {lines:?}"
    );
    world.release("a3");
    let lines = world.run();
    assert_eq!(lines[0], "b: reserved");
    assert!(
        !lines[1..]
            .iter()
            .any(|line| line.contains("reserved") || line.contains(": In")),
        "{lines:?}"
    );
}

/// Spec: admission-engine B130.
#[test]
fn three_victims_may_stop_in_any_order_or_end_by_themselves() {
    for order in [["a4", "a3", "a2"], ["a2", "a4", "a3"], ["a3", "a2", "a4"]] {
        let mut world = shared(6);
        // Why classical: by shares two of four are the most that may be taken.
        world.state.settings.rules.preemption = crate::rules::PreemptionRules::Classical;
        world.tell(Event::ClusterQueue(Box::new(any("two", 6))));
        world.tell(Event::ClusterQueue(Box::new(in_cohort("pool", "tree", 2))));
        assert_eq!(evicted(&world.run()), ["a4", "a3", "a2"]);
        for (number, name) in order.into_iter().enumerate() {
            assert!(!world.run().contains(&"b: reserved".to_owned()));
            if number == 1 {
                world.edit(name, finish);
            } else {
                world.release(name);
            }
            world.wait(5);
            assert_eq!(evicted(&world.run()), [""; 0]);
        }
        assert!(world.workloads[&Key::new("ns", "b")].has_quota(), "{order:?}");
        assert!(world.workloads[&Key::new("ns", "a1")].has_quota());
    }
}

/// Spec: admission-engine 2.11, B132 (what one large victim leaves over is kept for the preemptor that was promised it).
#[test]
fn two_preemptors_that_wait_for_the_same_victims_are_both_served() {
    let mut world = world(vec![
        any("c1", 4),
        any("c2", 4),
        in_cohort("bq", "tree", 0),
        any("c3", 0),
    ]);
    world.ask("bq", "x", (0, 3_000));
    world.ask("bq", "y", (0, 5_000));
    world.run();
    world.ask("c1", "h1", (0, 4_000));
    world.ask("c2", "h2", (0, 4_000));
    let lines = world.run();
    assert_eq!(evicted(&lines).len(), 2, "{lines:?}");
    world.ask("c3", "late", (9, 1_000));
    world.release("x");
    assert_eq!(evicted(&world.run()), [""; 0]);
    assert!(!world.workloads[&Key::new("ns", "late")].has_quota());
    world.release("y");
    let lines = world.run();
    assert!(lines.contains(&"h1: reserved".to_owned()) && lines.contains(&"h2: reserved".to_owned()));
    assert_eq!(evicted(&lines), [""; 0]);
}

/// A queue with so many cores of a first and of a second flavor, which takes back what is its own.
fn of_two_flavors(name: &str, first: i64, second: i64) -> ClusterQueue {
    let flavors: [(&str, &[(&str, i64)]); 2] = [
        ("default", &[("cpu", first * 1_000)]),
        ("spare", &[("cpu", second * 1_000)]),
    ];
    let mut queue = reclaiming(cluster_queue(name, vec![group(&flavors)]), Reclaim::Any);
    queue.cohort = Some("tree".into());
    queue
}

/// Spec: admission-engine 2.5.5 (found by the duel: it went on with the second flavor, where it can never fit, and was not tried
/// again when the first one had room).
#[test]
fn a_victim_that_went_on_with_its_last_flavor_comes_back_when_the_first_has_room() {
    let mut world = world(vec![
        of_two_flavors("borrows", 5, 1),
        of_two_flavors("owns", 4, 0),
    ]);
    world.tell(Event::Flavor(crate::state::fixtures::flavor("spare")));
    world.ask("borrows", "large", (0, 9_000));
    world.run();
    world.ask("owns", "small", (0, 2_000));
    assert_eq!(evicted(&world.run()), ["la"]);
    world.release("large");
    assert!(world.run().contains(&"small: reserved".to_owned()));
    assert!(!world.workloads[&Key::new("ns", "large")].has_quota());
    world.edit("small", finish);
    let lines = world.run();
    assert!(world.workloads[&Key::new("ns", "large")].has_quota(), "{lines:?}");
}

/// Spec: admission-engine 2.5.4, B130 (a second preemptor does not get the flavor that was freed for the first).
#[test]
fn the_flavor_that_is_freed_for_one_is_not_given_to_another() {
    let mut world = world(
        [("c1", 4), ("c2", 4), ("bq", 0)]
            .map(|(name, cores)| of_two_flavors(name, cores, 0))
            .into(),
    );
    world.tell(Event::Flavor(crate::state::fixtures::flavor("spare")));
    for name in ["w", "x", "y", "z"] {
        world.ask("bq", name, (0, 2_000));
    }
    world.run();
    world.ask("c1", "h1", (0, 4_000));
    let first: Vec<String> = evicted(&world.run()).into_iter().map(str::to_owned).collect();
    assert_eq!(first.len(), 2);
    world.release(first[0].trim_end_matches(':'));
    world.run();
    world.ask("c2", "h2", (5, 2_000));
    let second: Vec<String> = evicted(&world.run()).into_iter().map(str::to_owned).collect();
    assert!(
        !world.workloads[&Key::new("ns", "h2")].has_quota(),
        "2 cores are free, and h1's"
    );
    world.release(first[1].trim_end_matches(':'));
    assert!(world.run().contains(&"h1: reserved".to_owned()));
    let late: Vec<String> = evicted(&world.run()).into_iter().map(str::to_owned).collect();
    assert!(second.len() + late.len() <= 1, "{second:?} {late:?}");
}

/// The quota that a preemptor would have got is free for others once the preemptor has given up.
///
/// Spec: admission-engine 10.2.
#[test]
fn a_preemptor_that_gives_up_keeps_nothing() {
    let stopped = |world: &mut World, stop| {
        let key = Key::new("ns", "two");
        let cluster_queue = "two".into();
        world.tell(Event::LocalQueue(LocalQueue {
            key,
            cluster_queue,
            stop,
            weight: Weight::ONE,
        }));
    };
    let ways: [(&str, Way<'_>); 5] = [
        ("gone", &|world| gone(world, "b")),
        ("inactive", &|world| world.edit("b", |w| w.active = false)),
        ("asks for another size", &|world| {
            world.edit("b", |w| {
                w.pod_sets[0]
                    .requests
                    .insert("cpu".into(), crate::amount::Amount::new(9_000));
                w.generation += 1;
            });
        }),
        ("its LocalQueue is stopped", &|world| {
            stopped(world, StopPolicy::Hold);
        }),
        ("its ClusterQueue is gone", &|world| {
            world.tell(Event::ClusterQueueGone("two".into()));
        }),
    ];
    for (way, give_up) in ways {
        let mut world = shared(4);
        world.run();
        world.release("a4");
        world.run();
        assert!(
            !world.workloads[&Key::new("ns", "a4")].has_quota(),
            "{way}: too early"
        );
        give_up(&mut world);
        let lines = world.run();
        assert!(lines.contains(&"a4: reserved".to_owned()), "{way}: {lines:?}");
        assert_eq!(world.state.next_wake(), None, "{way}");
    }
}

/// Spec: admission-engine 10.2 (a time limit, so that stuck terminations do not hold quota for ever).
#[test]
fn freed_quota_is_not_kept_for_ever() {
    let mut world = world(vec![
        within(any("p", 8), WithinClusterQueue::LowerPriority),
        any("other", 0),
    ]);
    world.ask("p", "v1", (0, 2_000));
    world.ask("p", "v2", (0, 6_000));
    world.run();
    world.ask("p", "high", (5, 8_000));
    world.run();
    world.release("v1");
    world.ask("other", "small", (9, 2_000));
    world.run();
    assert!(!world.workloads[&Key::new("ns", "small")].has_quota());
    let end = world.now.checked_add(CLAIM_MAX).unwrap();
    assert_eq!(world.state.next_wake(), Some(end));
    world.now = end;
    let lines = world.run();
    assert!(lines.contains(&"small: reserved".to_owned()), "{lines:?}");
}

/// Spec: admission-engine 2.12 (an eviction that never arrives is decided anew, by shares as well).
#[test]
fn an_eviction_that_got_lost_is_decided_anew_for_the_same_victim() {
    let mut world = shared(4);
    let decisions = world.decide();
    for decision in decisions {
        if let Decision::Preempt { key, uid, .. } = &decision
            && *key.name == *"a3"
        {
            let (key, uid) = (key.clone(), uid.clone());
            world.tell(Event::ReserveFailed { key, uid });
        } else {
            world.write(decision);
        }
    }
    world.release("a4");
    assert_eq!(evicted(&world.run()), ["a3"]);
    world.release("a3");
    assert_eq!(world.run()[0], "b: reserved");
}

/// A preemptor that is gone before its victim was told needs no victim.
///
/// Spec: admission-engine 2.12.
#[test]
fn a_victim_is_spared_if_its_preemptor_has_gone_before_it_is_told() {
    let mut world = world(vec![within(any("p", 4), WithinClusterQueue::LowerPriority)]);
    world.ask("p", "low", (0, 4_000));
    let reserve = world.decide();
    world.ask("p", "high", (1, 4_000));
    world.decide();
    gone(&mut world, "high");
    for decision in reserve {
        world.write(decision);
    }
    let lines = world.run();
    assert_eq!(evicted(&lines), [""; 0], "{lines:?}");
    assert_eq!(world.state.next_wake(), None);
    world.edit("low", |w| evict(w, "InClusterQueue", String::new(), at(2_000)));
}
