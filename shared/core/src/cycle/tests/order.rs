//! Which workload is served first in a round.

use super::{fair, no_longer, reclaiming, round, strict, world, world_with};
use crate::queue::Reclaim;
use crate::state::fixtures::{asks, in_cohort};

/// Spec: admission-engine B098.
#[test]
fn who_need_not_borrow_goes_before_who_has_priority() {
    let mut world = world(vec![in_cohort("a", "x", 0), in_cohort("b", "x", 4)]);
    world.ask("a", "high", (100, 4_000));
    world.ask("b", "low", (0, 4_000));
    assert_eq!(
        round(&mut world, "a"),
        ["low: reserved".to_owned(), no_longer("high")]
    );
}

/// Spec: admission-engine B099.
#[test]
fn at_equal_levels_priority_decides_and_then_age() {
    let queues = || {
        vec![
            in_cohort("a", "x", 4),
            in_cohort("b", "x", 0),
            in_cohort("c", "x", 0),
        ]
    };
    let mut tree = world(queues());
    tree.ask("b", "old", (0, 3_000));
    tree.ask("c", "high", (1, 3_000));
    assert_eq!(
        round(&mut tree, "b"),
        ["high: reserved".to_owned(), no_longer("old")]
    );
    let mut tree = world(queues());
    tree.ask("c", "old", (0, 3_000));
    tree.ask("b", "young", (0, 3_000));
    assert_eq!(
        round(&mut tree, "b"),
        ["old: reserved".to_owned(), no_longer("young")]
    );
}

/// Spec: admission-engine B100.
#[test]
fn two_borrowers_of_one_round_are_both_served_while_quota_adds_up() {
    let mut world = world(vec![
        in_cohort("lender", "x", 10),
        in_cohort("a", "x", 0),
        in_cohort("b", "x", 0),
    ]);
    world.ask("a", "four", (0, 4_000));
    world.ask("b", "five", (0, 5_000));
    assert_eq!(round(&mut world, "a"), ["four: reserved", "five: reserved"]);
}

/// Spec: admission-engine B101.
#[test]
fn who_no_longer_fits_is_told_so_and_looked_at_again() {
    let mut world = world(vec![
        in_cohort("lender", "x", 5),
        in_cohort("a", "x", 0),
        in_cohort("b", "x", 0),
    ]);
    world.ask("a", "first", (0, 4_000));
    world.ask("b", "second", (0, 4_000));
    assert_eq!(
        round(&mut world, "a"),
        ["first: reserved".to_owned(), no_longer("second")]
    );
    let text = "second: WaitingForQuota couldn't assign flavors to pod set main: insufficient unused quota for cpu in \
                flavor default, 3 more needed";
    assert_eq!(world.run(), [text]);
}

/// Spec: admission-engine B102.
#[test]
fn a_head_without_candidates_keeps_what_is_its_own_from_younger_borrowers() {
    let milli = |name: &str, milli: i64| {
        let mut queue = in_cohort(name, "x", 0);
        for flavor in &mut queue.groups[0].flavors {
            for quota in flavor.quotas.values_mut() {
                quota.nominal = crate::amount::Amount::new(milli);
            }
        }
        queue
    };
    let short = "g2: WaitingForQuota couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor \
                 default, 100m more needed"
        .to_owned();
    let lent = short.replace("100m", "200m");
    for (policy, is_strict, after) in [
        (Reclaim::Never, false, vec!["be1: reserved"]),
        (Reclaim::Never, true, vec![]),
        (Reclaim::Any, true, vec![lent.as_str()]),
    ] {
        let guaranteed = reclaiming(milli("g", 200), policy);
        let guaranteed = if is_strict { strict(guaranteed) } else { guaranteed };
        let mut world = world(vec![guaranteed, milli("be", 0)]);
        world.ask("g", "g1", (0, 100));
        world.run();
        world.ask("g", "g2", (0, 200));
        world.ask("be", "be1", (0, 100));
        let expected = match policy {
            Reclaim::Any => ["be1: reserved".to_owned(), short.clone()],
            Reclaim::Never | Reclaim::LowerPriority => [short.clone(), no_longer("be1")],
        };
        assert_eq!(round(&mut world, "g"), expected, "{policy:?}");
        assert_eq!(world.run(), after, "{policy:?} {is_strict}");
        assert_eq!(world.run(), [""; 0]);
    }
}

/// Spec: admission-engine B103.
#[test]
fn one_call_serves_all_queues_and_goes_on_with_those_behind() {
    let mut world = world((0..30).map(|n| in_cohort(&format!("q{n}"), "x", 40)).collect());
    for n in 0..30 {
        world.ask(&format!("q{n}"), &format!("one{n}"), (0, 1_000));
        world.ask("q0", &format!("more{n:02}"), (0, 1_000));
    }
    let decisions = world.state.cycle(world.now);
    assert_eq!(decisions.len(), 60);
    let order: Vec<_> = decisions
        .iter()
        .map(|d| d.key().name.to_string())
        .filter(|name| name.starts_with("more"))
        .collect();
    assert!(order.is_sorted(), "{order:?}");
    assert!(!world.state.has_work());
    let outcome = world.state.take_outcome();
    assert_eq!((outcome.heads, outcome.failures), (60, 0));
}

/// Spec: admission-engine 9.9 B141 (the lower share goes first), B143.
#[test]
fn with_fair_sharing_the_lower_share_goes_first() {
    use crate::queue::Weight;
    let mut b = in_cohort("b", "x", 0);
    b.weight = Weight::from_nano(2_000_000_000);
    let mut world = world_with(
        fair(),
        vec![in_cohort("lender", "x", 10), in_cohort("a", "x", 0), b],
    );
    world.ask("a", "a1", (0, 4_000));
    world.ask("b", "b1", (0, 4_000));
    world.run();
    world.ask("a", "a2", (0, 2_000));
    world.ask("b", "b2", (0, 2_000));
    assert_eq!(
        round(&mut world, "a"),
        ["b2: reserved".to_owned(), no_longer("a2")]
    );
}

/// The same heads are served in the same order whatever the order of arrival.
#[test]
fn the_order_of_arrival_decides_nothing() {
    let served = |flip: bool| {
        let mut queues = vec![
            in_cohort("l", "x", 3),
            in_cohort("a", "x", 0),
            in_cohort("b", "x", 0),
        ];
        let mut jobs = vec![("a", "w1"), ("b", "w2")];
        if flip {
            queues.reverse();
            jobs.reverse();
        }
        let mut world = world(queues);
        for (queue, name) in jobs {
            let mut asked = asks(name, 5, 2);
            asked.queue = queue.to_owned();
            world.put(asked);
        }
        round(&mut world, "a")
    };
    assert_eq!(served(false), served(true));
    assert_eq!(served(false), ["w1: reserved".to_owned(), no_longer("w2")]);
}
