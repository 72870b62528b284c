//! Order by past usage of LocalQueues.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Settings, within, world_with};
use crate::afs::{PastUsage, UsagePolicy};
use crate::amount::Amount;
use crate::name::Key;
use crate::queue::{ClusterQueue, LocalQueue, StopPolicy, UsageOrder, Weight, WithinClusterQueue};
use crate::state::Event;
use crate::state::fixtures::{World, at, cores, finish};

fn counting() -> ClusterQueue {
    let mut queue = cores(4);
    queue.name = "q".into();
    queue.usage_order = UsageOrder::LeastUsedFirst;
    queue
}

/// Two LocalQueues `a` and `b` of one queue, with weights in tenths and past usage in cores.
fn rivals(queue: ClusterQueue, a: (u64, i64), b: (u64, i64)) -> World {
    let settings = Settings {
        past_usage: Some(UsagePolicy {
            half_life: Duration::from_mins(10),
            sampling_interval: Duration::from_mins(5),
            resource_weights: BTreeMap::new(),
        }),
        ..Settings::default()
    };
    let mut world = world_with(settings, vec![queue]);
    for (name, (tenths, cpu)) in [("a", a), ("b", b)] {
        world.tell(Event::LocalQueue(LocalQueue {
            key: Key::new("ns", name),
            cluster_queue: "q".into(),
            stop: StopPolicy::None,
            weight: Weight::from_nano(tenths * 100_000_000),
        }));
        world.tell(Event::PastUsage {
            local: Key::new("ns", name),
            past: PastUsage {
                consumed: [("cpu".into(), Amount::new(cpu * 1_000))].into(),
                at: at(999),
            },
        });
    }
    world
}

fn heads(world: &World) -> Vec<String> {
    let order = world.state.pending_in_order(&"q".into(), 9).unwrap();
    order.iter().map(|entry| entry.key.name.to_string()).collect()
}

/// Spec: admission-engine B218, B223.
#[test]
fn who_used_less_for_its_weight_goes_first() {
    let mut world = rivals(counting(), (10, 8), (5, 6));
    world.ask("b", "b1", (9, 4_000));
    world.ask("a", "a1", (0, 4_000));
    assert_eq!(heads(&world), ["a1", "b1"]);
    assert_eq!(world.run()[0], "a1: reserved");
}

/// Spec: admission-engine B221.
#[test]
fn weight_zero_goes_last() {
    let mut world = rivals(counting(), (0, 0), (10, 100));
    world.ask("a", "a1", (9, 4_000));
    world.ask("b", "b1", (0, 4_000));
    assert_eq!(heads(&world), ["b1", "a1"]);
    assert_eq!(world.run()[0], "b1: reserved");
}

/// Spec: admission-engine B220, B222, 6 (each reservation counts at once, so rivals take turns).
#[test]
fn rivals_with_equal_pasts_take_turns() {
    let mut world = rivals(counting(), (10, 0), (10, 0));
    for name in ["a1", "a2", "a3"] {
        world.ask("a", name, (0, 1_000));
    }
    world.ask("b", "b1", (0, 1_000));
    assert_eq!(
        world.run(),
        ["a1: reserved", "b1: reserved", "a2: reserved", "a3: reserved"]
    );
}

/// Spec: admission-engine 6 (samples reorder the heap).
#[test]
fn a_sample_reorders_those_who_wait() {
    let mut world = rivals(counting(), (10, 0), (10, 3));
    world.ask("a", "user", (0, 4_000));
    world.run();
    world.edit("user", |w| {
        let conditions = &mut w.status.conditions;
        conditions.set(
            "Admitted",
            crate::condition::Truth::True,
            "Admitted",
            "",
            at(1_000),
        );
    });
    world.ask("a", "a1", (0, 4_000));
    world.ask("b", "b1", (0, 4_000));
    world.run();
    assert_eq!(heads(&world), ["a1", "b1"]);
    world.wait(3_000);
    world.run();
    assert_eq!(heads(&world), ["b1", "a1"]);
    world.edit("user", finish);
    assert_eq!(world.run()[0], "b1: reserved");
}

/// Spec: admission-engine 2.7.2 (in one queue, a workload whose LocalQueue used more is preempted first).
#[test]
fn who_used_more_is_preempted_first() {
    let queue = within(counting(), WithinClusterQueue::LowerPriority);
    for (a, b, victim) in [((10, 9), (10, 1), "a1"), ((10, 1), (10, 9), "b1")] {
        let mut world = rivals(queue.clone(), a, b);
        world.ask("a", "a1", (0, 2_000));
        world.ask("b", "b1", (0, 2_000));
        world.run();
        world.ask("b", "high", (1, 2_000));
        assert_eq!(world.run()[0], format!("{victim}: InClusterQueue for high"));
    }
}
