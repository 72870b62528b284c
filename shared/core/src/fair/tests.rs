//! Spec: admission-engine 2.8.2 and 2.10, behaviours B098, B099, B141 to B144.

use super::{Contender, Tournament, classical_order};
use crate::ground::Footprint;
use crate::nominate::scene::{Limits, Scene, cpu_group, own, queue};
use crate::queue::Weight;
use crate::rules::Switch;
use crate::state::fixtures::at;

const fn weight(value: u64) -> Weight {
    Weight::from_nano(value * 1_000_000_000)
}

fn head(scene: &Scene, queue: &str, flavor: &str, cpu: i64) -> Contender {
    Contender {
        node: scene.node(queue),
        usage: vec![(scene.pair(flavor, "cpu"), i128::from(cpu))],
        level: 0,
        priority: 0,
        queue_time: at(0),
        preemptor: false,
        second_pass: false,
    }
}

fn order(scene: &mut Scene, heads: &[Contender]) -> Vec<usize> {
    let mut tournament = Tournament::new(&scene.ground, heads.to_vec());
    std::iter::from_fn(|| tournament.next(&mut scene.ground, &scene.rules)).collect()
}

fn weighted(name: &str, cohort: &str, limits: Limits, weight: Weight) -> crate::queue::ClusterQueue {
    let mut queue = queue(name, cohort, limits);
    queue.weight = weight;
    queue
}

/// Spec: admission-engine B098, B099.
#[test]
fn without_fair_sharing_level_then_priority_then_age_decide() {
    let mut scene = Scene::default().queue(&queue("a", "", own(1)));
    let plain = head(&scene, "a", "default", 1);
    let before = |scene: &Scene, a: &Contender, b: &Contender| classical_order(&scene.rules, a, b).is_lt();
    let borrowing = Contender {
        level: 1,
        priority: 100,
        ..plain.clone()
    };
    assert!(before(&scene, &plain, &borrowing));
    let urgent = Contender {
        priority: 1,
        queue_time: at(9),
        ..plain.clone()
    };
    assert!(before(&scene, &urgent, &plain));
    let later = Contender {
        queue_time: at(1),
        ..plain.clone()
    };
    assert!(before(&scene, &plain, &later));
    let second_pass = Contender {
        second_pass: true,
        ..borrowing.clone()
    };
    assert!(before(&scene, &second_pass, &plain));
    let preemptor = Contender {
        preemptor: true,
        ..borrowing.clone()
    };
    assert!(before(&scene, &plain, &preemptor));
    scene.rules.prioritize_preemptor = Switch::On;
    assert!(before(&scene, &preemptor, &plain));
    scene.rules.priority_in_cohort = Switch::Off;
    assert!(before(&scene, &plain, &urgent));
}

/// Spec: admission-engine B141.
#[test]
fn the_smaller_share_goes_first_and_shares_are_computed_anew() {
    let mut scene = Scene::fair()
        .cohort("all", "", own(10_000), Weight::ONE)
        .queue(&queue("a", "all", own(0)))
        .queue(&weighted("b", "all", own(0), weight(2)))
        .holds("a", "a", 0, 4_000)
        .holds("b", "b", 0, 4_000);
    let heads = [
        head(&scene, "a", "default", 2_000),
        head(&scene, "b", "default", 2_000),
    ];
    let mut tournament = Tournament::new(&scene.ground, heads.to_vec());
    assert_eq!(tournament.next(&mut scene.ground, &scene.rules), Some(1));
    let mut scene = scene.holds("b", "admitted", 0, 2_000);
    assert_eq!(tournament.next(&mut scene.ground, &scene.rules), Some(0));
    let (node, pair) = (scene.node("a"), scene.pair("default", "cpu"));
    assert!(!scene.ground.fits(Footprint::of(node, &[(pair, 2_000)])));
    assert_eq!(tournament.next(&mut scene.ground, &scene.rules), None);
}

/// Spec: admission-engine 2.8.2: usage of a winner counts for the others of its queue and of its cohort.
#[test]
fn after_a_winner_the_side_it_belongs_to_stands_higher() {
    let mut scene = Scene::fair()
        .cohort("all", "", own(100_000), Weight::ONE)
        .cohort("left", "all", own(0), Weight::ONE)
        .cohort("right", "all", own(0), Weight::ONE)
        .queue(&queue("l1", "left", own(0)))
        .queue(&queue("l2", "left", own(0)))
        .queue(&queue("r1", "right", own(0)))
        .queue(&queue("r2", "right", own(0)));
    let heads: Vec<_> = [("l1", 1_000), ("l2", 1_000), ("r1", 1_500), ("r2", 1_500)]
        .iter()
        .map(|(name, cpu)| head(&scene, name, "default", *cpu))
        .collect();
    let mut tournament = Tournament::new(&scene.ground, heads.clone());
    let mut order = Vec::new();
    while let Some(winner) = tournament.next(&mut scene.ground, &scene.rules) {
        let won = &heads[winner];
        scene.ground.take(Footprint::of(won.node, &won.usage));
        order.push(winner);
    }
    assert_eq!(order, [0, 2, 1, 3]);
}

/// Spec: admission-engine B142.
#[test]
fn who_borrows_nothing_of_what_it_asks_for_goes_first() {
    let two = |name: &str, premium, cheap| {
        let mut queue = queue(name, "all", own(0));
        queue.groups = vec![cpu_group(&[("premium", own(premium)), ("cheap", own(cheap))])];
        queue
    };
    let mut scene = Scene::fair()
        .queue(&two("a", 3_000, 0))
        .queue(&two("b", 0, 6_000))
        .holds_of("premium", "a", "a1", 0, 2_000)
        .holds_of("cheap", "a", "a2", 0, 5_000);
    let heads = [
        head(&scene, "b", "premium", 1_000),
        head(&scene, "a", "premium", 1_000),
    ];
    assert_eq!(order(&mut scene, &heads), [1, 0]);
    scene.rules.fair_prioritize_non_borrowing = Switch::Off;
    assert_eq!(order(&mut scene, &heads), [0, 1]);
}

/// Spec: admission-engine B143.
#[test]
fn between_equal_shares_priority_then_age_then_the_given_order_decide() {
    let mut scene = Scene::fair()
        .cohort("all", "", own(10_000), Weight::ONE)
        .queue(&queue("a", "all", own(0)))
        .queue(&queue("b", "all", own(0)));
    let mut heads = [
        head(&scene, "a", "default", 1_000),
        head(&scene, "b", "default", 1_000),
    ];
    assert_eq!(order(&mut scene, &heads), [0, 1]);
    heads[0].queue_time = at(1);
    assert_eq!(order(&mut scene, &heads), [1, 0]);
    heads[0].priority = 1;
    assert_eq!(order(&mut scene, &heads), [0, 1]);
}

/// Spec: admission-engine B144.
#[test]
fn cohorts_play_before_their_queues() {
    let mut scene = Scene::fair()
        .cohort("all", "", own(10_000), Weight::ONE)
        .cohort("l", "all", own(0), weight(2))
        .cohort("r", "all", own(0), Weight::ONE)
        .queue(&queue("l1", "l", own(0)))
        .queue(&queue("r1", "r", own(0)))
        .queue(&queue("r2", "r", own(0)))
        .holds("l1", "l1", 0, 5_000)
        .holds("r1", "r1", 0, 3_000);
    // r2 uses nothing and l1 most, but of the cohorts l (300) stands below r (400).
    let heads = [
        head(&scene, "r2", "default", 1_000),
        head(&scene, "l1", "default", 1_000),
    ];
    assert_eq!(order(&mut scene, &heads), [1, 0]);
}

/// Spec: admission-engine 2.8.2 (QUIRK not copied: #14090).
#[test]
fn two_heads_of_one_queue_both_get_their_turn_second_pass_first() {
    let mut scene = Scene::fair()
        .queue(&queue("a", "", own(10)))
        .queue(&queue("b", "all", own(10)));
    let plain = |queue| head(&scene, queue, "default", 1);
    let again = |queue| Contender {
        second_pass: true,
        ..plain(queue)
    };
    let heads = [plain("b"), plain("a"), again("a"), again("b")];
    assert_eq!(order(&mut scene, &heads), [3, 0, 2, 1]);
}
