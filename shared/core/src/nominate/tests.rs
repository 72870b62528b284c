//! Spec: admission-engine 2.6, 2.9, 2.11, behaviours B163 to B165; and what holds for every nomination.

use std::sync::Arc;

use proptest::prelude::{ProptestConfig, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::scene::{Scene, asks, own, queue};
use super::{Mode, Restriction};
use crate::ground::Footprint;
use crate::queue::{BorrowWithinCohort, ClusterQueue, PreemptionPolicy, Reclaim, Weight, WithinClusterQueue};
use crate::rules::{PreemptionRules, Switch};
use crate::state::fixtures::{pod_set, workload};
use crate::workload::Workload;

fn elastic(count: u32, least: u32) -> Workload {
    let mut pods = pod_set("main", count, &[("cpu", 1_000)]);
    pods.min_count = Some(least);
    workload("incoming", 0, vec![pods])
}

fn lower_priority(mut queue: ClusterQueue) -> ClusterQueue {
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    queue
}

/// Spec: admission-engine B163, B164, B166.
#[test]
fn a_workload_that_may_be_smaller_gets_the_largest_size_there_is() {
    let at = |cores: i64| Scene::default().queue(&queue("q", "", own(cores * 1_000)));
    let nomination = at(6).nominate("q", &elastic(10, 3));
    assert_eq!((nomination.mode, nomination.pod_sets[0].count), (Mode::Fit, 6));
    assert_eq!(nomination.usage[0].1, 6_000);
    let nomination = at(2).nominate("q", &elastic(10, 3));
    assert_eq!((nomination.mode, nomination.pod_sets[0].count), (Mode::NoFit, 10));
    assert!(
        nomination
            .refusal
            .unwrap()
            .message
            .contains("current podset request (10)")
    );
    let nomination = at(6)
        .rules(|rules| rules.partial_admission = Switch::Off)
        .nominate("q", &elastic(10, 3));
    assert_eq!(nomination.mode, Mode::NoFit);
}

/// Spec: admission-engine B165.
#[test]
fn the_full_size_with_preemption_is_better_than_a_smaller_one_without() {
    let mut scene = Scene::default()
        .queue(&lower_priority(queue("q", "", own(6_000))))
        .holds("q", "low", -1, 4_000);
    let nomination = scene.nominate("q", &elastic(6, 2));
    assert_eq!(
        (nomination.mode, nomination.pod_sets[0].count),
        (Mode::Preempt, 6)
    );
    assert_eq!(nomination.targets.len(), 1);
}

/// Spec: admission-engine 2.5, 4.6: pods that are already reclaimable are not requested.
#[test]
fn reclaimable_pods_are_not_asked_for() {
    let mut workload = elastic(10, 10);
    workload.status.reclaimable.insert("main".into(), 4);
    let mut scene = Scene::default().queue(&queue("q", "", own(6_000)));
    assert_eq!(scene.nominate("q", &workload).pod_sets[0].count, 6);
}

/// Spec: admission-engine 2.11.1, B131, B132.
#[test]
fn victims_of_others_count_as_gone_and_are_never_taken_twice() {
    let member = |name| {
        let mut queue = lower_priority(queue(name, "all", own(4_000)));
        queue.preemption.reclaim_within_cohort = Reclaim::Any;
        queue
    };
    let world = || {
        Scene::default()
            .queue(&member("c1"))
            .queue(&member("c2"))
            .queue(&queue("bq", "all", own(0)))
    };
    let gone = |scene: &Scene, name: &str| {
        vec![Arc::clone(
            scene.holders.get(&format!("uid-{name}").into()).unwrap(),
        )]
    };

    // One large victim makes room for both.
    let mut scene = world().holds("bq", "x", 0, 8_000);
    let first = scene.nominate("c1", &asks("incoming", 0, 4_000));
    assert_eq!(first.mode, Mode::Reclaim);
    let gone_x = gone(&scene, "x");
    let restriction = Restriction {
        pinned: Some(&first),
        gone: &gone_x,
    };
    let second = scene.nominate_with("c2", &asks("incoming", 0, 4_000), None, Some(&restriction));
    assert_eq!((second.mode, second.fits_only_with_gone), (Mode::Fit, true));

    // Of two victims the second preemptor chooses the other one.
    let mut scene = world().holds("bq", "x", 0, 4_000).holds("bq", "y", 0, 4_000);
    let node = scene.node("c1");
    let first = scene.nominate("c1", &asks("incoming", 0, 4_000));
    assert_eq!(&*first.targets[0].holder.key.name, "y");
    scene.ground.take(Footprint::of(node, &first.usage));
    let gone_y = gone(&scene, "y");
    let restriction = Restriction {
        pinned: None,
        gone: &gone_y,
    };
    let second = scene.nominate_with("c2", &asks("incoming", 0, 4_000), None, Some(&restriction));
    assert_eq!(&*second.targets[0].holder.key.name, "x");
    assert!(!second.fits_only_with_gone);
}

/// For wake-ups: how much must become free at least.
#[test]
fn a_refusal_says_what_is_lacking() {
    let mut scene = Scene::default()
        .queue(&queue("q", "", own(6_000)))
        .holds("q", "full", 0, 5_000);
    let cpu = scene.pair("default", "cpu");
    let lacks = |scene: &mut Scene, cpu: i64| {
        scene
            .nominate("q", &asks("incoming", 0, cpu))
            .refusal
            .unwrap()
            .lacks
    };
    assert_eq!(lacks(&mut scene, 3_000), [(cpu, 2_000)]);
    let mut scene = scene
        .queue(&lower_priority(queue("q", "", own(6_000))))
        .holds("q", "low", -1, 500);
    let any = lacks(&mut scene, 3_000);
    assert!(
        any.is_empty(),
        "with candidates for preemption, any release may be enough"
    );
}

/// A queue: cohort, nominal, borrowing limit, lending limit, policies by number.
type QueuePlan = (usize, i64, Option<i64>, Option<i64>, (usize, usize, usize));

fn queue_of(index: usize, plan: &QueuePlan) -> ClusterQueue {
    let (cohort, nominal, borrow, lend, (within, reclaim, borrowing)) = *plan;
    let cohort = ["", "root", "left", "right"][cohort];
    let limits = if cohort.is_empty() {
        own(nominal)
    } else {
        (nominal, borrow, lend)
    };
    let mut queue = queue(&format!("q{index}"), cohort, limits);
    let policies = [
        WithinClusterQueue::Never,
        WithinClusterQueue::LowerPriority,
        WithinClusterQueue::LowerOrNewerEqualPriority,
    ];
    queue.preemption = PreemptionPolicy {
        within_cluster_queue: policies[within],
        reclaim_within_cohort: [Reclaim::Never, Reclaim::LowerPriority, Reclaim::Any][reclaim],
        borrow_within_cohort: [
            BorrowWithinCohort::Never,
            BorrowWithinCohort::LowerPriority { max_priority: None },
            BorrowWithinCohort::LowerPriority {
                max_priority: Some(0),
            },
        ][borrowing],
    };
    queue
}

fn scene_of(queues: &[QueuePlan], holders: &[(usize, i64, i64)], preemption: PreemptionRules) -> Scene {
    let mut scene = Scene::default()
        .rules(|rules| rules.preemption = preemption)
        .cohort("left", "root", own(2), Weight::ONE)
        .cohort("right", "root", (1, None, Some(0)), Weight::ONE);
    for (index, plan) in queues.iter().enumerate() {
        scene = scene.queue(&queue_of(index, plan));
    }
    for (index, (queue, priority, cpu)) in holders.iter().enumerate() {
        let queue = format!("q{}", queue % queues.len());
        scene = scene.holds(&queue, &format!("h{index:02}"), *priority, *cpu);
        if index % 5 == 4 {
            scene = scene.edit(&format!("h{index:02}"), |holder| holder.evicted = true);
        }
    }
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// The scene audits every nomination: the ground is unchanged, the same question gives the same answer, the victims suffice and none of
    /// them is superfluous. Spec: admission-engine 2.7.3.
    #[test]
    fn nominations_are_pure_and_victims_minimal(
        queues in prop::collection::vec(
            (0..4_usize, 0..6_i64, prop::option::of(0..6_i64), prop::option::of(0..6_i64),
             (0..3_usize, 0..3_usize, 0..3_usize)), 1..5),
        holders in prop::collection::vec((0..4_usize, -2..2_i64, 1..5_i64), 0..10),
        (head, priority, cpu) in (0..4_usize, -1..3_i32, 1..9_i64),
        fair in 0..2_usize,
    ) {
        let preemption = [PreemptionRules::Classical, PreemptionRules::fair_sharing()][fair].clone();
        let mut scene = scene_of(&queues, &holders, preemption);
        let queue = format!("q{}", head % queues.len());
        let nomination = scene.nominate(&queue, &asks("incoming", priority, cpu));
        for target in &nomination.targets {
            let in_tree = scene.ground.quotas().root(target.holder.node) == scene.ground.quotas().root(scene.node(&queue));
            prop_assert!(in_tree, "victims are of the same tree");
        }
    }

    /// Spec: admission-engine 2.9: without preemption feasibility is monotone, and the size is the largest that fits.
    #[test]
    fn partial_admission_never_picks_less_than_there_is(
        queues in prop::collection::vec(
            (0..4_usize, 0..8_i64, prop::option::of(0..6_i64), prop::option::of(0..6_i64),
             (0..1_usize, 0..1_usize, 0..1_usize)), 1..4),
        holders in prop::collection::vec((0..4_usize, -2..2_i64, 1..4_i64), 0..6),
        (head, count, least) in (0..4_usize, 1..12_u32, 1..12_u32),
    ) {
        let mut scene = scene_of(&queues, &holders, PreemptionRules::Classical);
        let queue = format!("q{}", head % queues.len());
        let sized = |count, least| {
            let mut workload = elastic(count, least);
            workload.pod_sets[0].requests = [("cpu".into(), crate::amount::Amount::new(1))].into();
            workload
        };
        let largest = (least.min(count)..=count)
            .rev()
            .find(|size| scene.nominate(&queue, &sized(*size, *size)).mode == Mode::Fit);
        let nomination = scene.nominate(&queue, &sized(count, least.min(count)));
        let found = (nomination.mode == Mode::Fit).then(|| nomination.pod_sets[0].count);
        prop_assert_eq!(found, largest);
    }
}
