//! Spec: admission-engine 2.7, behaviours B104 to B128 and B130.

use crate::holders::PastUsage;
use crate::nominate::Mode;
use crate::nominate::scene::{Limits, Scene, asks, own, queue};
use crate::preempt::preemption_message;
use crate::queue::{BorrowWithinCohort, ClusterQueue, PreemptionPolicy, Reclaim, Weight, WithinClusterQueue};
use crate::state::fixtures::at;

const NONE: [&str; 0] = [];
const NEVER: PreemptionPolicy = PreemptionPolicy {
    within_cluster_queue: WithinClusterQueue::Never,
    reclaim_within_cohort: Reclaim::Never,
    borrow_within_cohort: BorrowWithinCohort::Never,
};

fn with(mut queue: ClusterQueue, policy: PreemptionPolicy) -> ClusterQueue {
    queue.preemption = policy;
    queue
}

fn policy(within: WithinClusterQueue, reclaim: Reclaim) -> PreemptionPolicy {
    PreemptionPolicy {
        within_cluster_queue: within,
        reclaim_within_cohort: reclaim,
        ..NEVER
    }
}

/// Fixture S: a queue of its own with 6 cores.
fn alone(within: WithinClusterQueue, holders: &[(&str, i64, i64)]) -> Scene {
    let queue = with(queue("s", "", own(6_000)), policy(within, Reclaim::Never));
    holders.iter().fold(
        Scene::default().queue(&queue),
        |scene, (name, priority, cores)| scene.holds("s", name, *priority, cores * 1_000),
    )
}

/// Spec: admission-engine B104, B105, B106, B107, B108, B109, B112.
#[test]
fn in_its_own_queue_a_workload_preempts_lower_priorities_and_no_more_than_needed() {
    use WithinClusterQueue::{LowerPriority, Never};
    type Case<'a> = (
        WithinClusterQueue,
        &'a [(&'a str, i64, i64)],
        i32,
        i64,
        &'a [&'a str],
    );
    let three: &[_] = &[("low", -1, 2), ("mid", 0, 2), ("high", 1, 2)];
    let two: &[_] = &[("low", -1, 3), ("mid", 0, 3)];
    let cases: &[Case<'_>] = &[
        (LowerPriority, three, 1, 2, &["low InClusterQueue"]),
        (
            LowerPriority,
            three,
            1,
            3,
            &["low InClusterQueue", "mid InClusterQueue"],
        ),
        (LowerPriority, two, -1, 1, &[]),
        (LowerPriority, two, 0, 4, &[]),
        (
            LowerPriority,
            &[("low", -1, 1), ("mid", 0, 1), ("high", 1, 3)],
            1,
            2,
            &["low InClusterQueue"],
        ),
        (
            LowerPriority,
            &[("low", -1, 1), ("mid", 0, 2), ("high", 1, 3)],
            1,
            2,
            &["mid InClusterQueue"],
        ),
        (Never, three, 9, 2, &[]),
    ];
    for (within, holders, priority, cores, expect) in cases {
        let mut scene = alone(*within, holders);
        assert_eq!(
            scene.victims("s", *priority, cores * 1_000),
            *expect,
            "{holders:?} {priority} {cores}"
        );
    }
}

/// Spec: admission-engine B110, B111.
#[test]
fn among_equals_the_latest_reservation_goes_and_newer_workloads_never_take_from_older_ones() {
    let holders: &[_] = &[("a", 0, 2), ("b", 0, 2), ("c", 0, 2)];
    let mut scene = alone(WithinClusterQueue::LowerPriority, holders);
    assert_eq!(scene.victims("s", 1, 2_000), ["c InClusterQueue"]);
    let mut scene = alone(WithinClusterQueue::LowerOrNewerEqualPriority, holders)
        .edit("b", |holder| holder.reserved_at = at(100));
    assert_eq!(scene.victims("s", 0, 2_000), ["b InClusterQueue"]);
    let mut newer = asks("incoming", 0, 2_000);
    newer.created = at(50);
    let nomination = scene.nominate("s", &newer);
    assert_eq!(
        (nomination.mode, nomination.targets.len()),
        (Mode::NoCandidates, 0)
    );
}

/// Spec: admission-engine B113, B130.
#[test]
fn who_is_evicted_already_is_taken_first_and_nobody_else_while_that_suffices() {
    let holders: &[_] = &[("a", -1, 2), ("b", 0, 2), ("c", 0, 2)];
    let mut scene =
        alone(WithinClusterQueue::LowerPriority, holders).edit("b", |holder| holder.evicted = true);
    assert_eq!(scene.victims("s", 1, 2_000), ["b InClusterQueue"]);
    assert_eq!(
        scene.victims("s", 1, 4_000),
        ["a InClusterQueue", "b InClusterQueue"]
    );
}

/// Spec: admission-engine 2.7.2 (usage-based admission fair sharing).
#[test]
fn past_usage_of_a_local_queue_comes_before_priority_within_a_queue() {
    let holders: &[_] = &[("a", -1, 3), ("b", 0, 3)];
    let scene = alone(WithinClusterQueue::LowerPriority, holders);
    let mut scene = scene
        .edit("a", |holder| holder.past = Some(PastUsage::new(1.0)))
        .edit("b", |holder| holder.past = Some(PastUsage::new(2.0)));
    assert_eq!(scene.victims("s", 1, 2_000), ["b InClusterQueue"]);
}

/// Spec: admission-engine B114.
#[test]
fn who_holds_only_other_flavors_is_no_candidate() {
    use crate::nominate::scene::cpu_group;
    let mut two = queue("s", "", own(0));
    two.groups = vec![cpu_group(&[("alpha", own(3_000)), ("beta", own(3_000))])];
    let two = with(two, policy(WithinClusterQueue::LowerPriority, Reclaim::Never));
    let mut scene = Scene::default()
        .queue(&two)
        .holds_of("beta", "s", "b", -2, 3_000)
        .holds_of("alpha", "s", "a", -1, 3_000);
    assert_eq!(scene.victims("s", 1, 2_000), ["a InClusterQueue"]);
}

/// Fixture C.
fn pair(c2: Reclaim) -> Scene {
    let limits: Limits = (6_000, Some(6_000), None);
    let c1 = policy(WithinClusterQueue::LowerPriority, Reclaim::LowerPriority);
    Scene::default()
        .queue(&with(queue("c1", "all", limits), c1))
        .queue(&with(
            queue("c2", "all", limits),
            policy(WithinClusterQueue::Never, c2),
        ))
}

/// Spec: admission-engine B115, B116, B117, B118.
#[test]
fn quota_is_reclaimed_from_queues_that_borrow_until_they_do_not() {
    let mut scene = pair(Reclaim::Any)
        .holds("c1", "c1-low", -1, 3_000)
        .holds("c2", "c2-mid", 0, 3_000)
        .holds("c2", "c2-high", 1, 6_000);
    assert_eq!(scene.victims("c1", 1, 3_000), ["c2-mid InCohortReclamation"]);

    let mut scene = pair(Reclaim::Any)
        .holds("c1", "c1-high", 9, 6_000)
        .holds("c2", "c2-low", -1, 6_000);
    assert_eq!(scene.victims("c1", 1, 1_000), NONE);

    let borrowed = || {
        pair(Reclaim::Any)
            .holds("c1", "c1-big", 0, 8_000)
            .holds("c2", "c2-big", 0, 4_000)
    };
    assert_eq!(borrowed().victims("c2", 0, 2_000), ["c1-big InCohortReclamation"]);
    let mut lower = pair(Reclaim::LowerPriority)
        .holds("c1", "c1-big", 0, 8_000)
        .holds("c2", "c2-big", 0, 4_000);
    assert_eq!(lower.victims("c2", 0, 2_000), NONE);

    // Removing the first brings c2 down to nominal, so the second is safe although it has a lower priority than c1's own.
    let mut scene = pair(Reclaim::Any)
        .holds("c2", "c2-a", -5, 1_000)
        .holds("c2", "c2-b", -4, 6_000)
        .holds("c1", "c1-mid", 0, 5_000);
    assert_eq!(scene.victims("c1", 1, 2_000), ["c1-mid InClusterQueue"]);
}

/// `q` shares the quota of cohort `c`; `q_borrowing` has none and is outside of it.
fn subtree() -> Scene {
    Scene::default()
        .cohort("r", "", own(0), Weight::ONE)
        .cohort("c", "r", own(2_000), Weight::ONE)
        .queue(&with(
            queue("q", "c", own(0)),
            policy(WithinClusterQueue::Never, Reclaim::Any),
        ))
        .queue(&queue("q_borrowing", "r", own(0)))
}

/// Spec: admission-engine B119.
#[test]
fn the_message_names_both_and_the_way_to_both() {
    let mut scene = subtree().holds("q_borrowing", "victim", 0, 2_000);
    let nomination = scene.nominate("q", &asks("incoming", 0, 2_000));
    let text = |uid: &str, job: Option<&str>| {
        let job = job.map(crate::name::Uid::from);
        let node = scene.node("q");
        preemption_message(
            scene.ground.quotas(),
            Some(&uid.into()),
            job.as_ref(),
            node,
            &nomination.targets[0],
        )
    };
    assert_eq!(
        text("wl-in", Some("job-in")),
        "Preempted to accommodate a workload (UID: wl-in, JobUID: job-in) due to reclamation within the cohort; \
         preemptor path: /r/c/q; preemptee path: /r/q_borrowing"
    );
    assert!(
        text("", None).starts_with("Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due")
    );
}

/// Fixture W.
fn borrowers() -> Scene {
    let borrow = |within| PreemptionPolicy {
        within_cluster_queue: within,
        reclaim_within_cohort: Reclaim::Any,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority {
            max_priority: Some(0),
        },
    };
    let one: Limits = (1_000, Some(12_000), None);
    Scene::default()
        .queue(&with(
            queue("a_standard", "w", one),
            borrow(WithinClusterQueue::Never),
        ))
        .queue(&with(
            queue("b_standard", "w", one),
            borrow(WithinClusterQueue::LowerPriority),
        ))
        .queue(&queue("a_best", "w", one))
        .queue(&queue("b_best", "w", (0, Some(13_000), None)))
        .queue(&queue("shared", "w", own(10_000)))
}

/// Spec: admission-engine B120, B121, B122, B123, B124.
#[test]
fn who_must_borrow_takes_only_from_low_priorities() {
    let mut scene = borrowers()
        .holds("a_best", "a", -1, 10_000)
        .holds("b_best", "b", -1, 1_000);
    assert_eq!(
        scene.victims("a_standard", 0, 10_000),
        ["a InCohortReclaimWhileBorrowing"]
    );
    let mut scene = borrowers().holds("b_standard", "b", 1, 10_000);
    assert_eq!(scene.victims("a_standard", 2, 10_000), NONE);
    let mut scene = borrowers().holds("b_standard", "b", 1, 13_000);
    assert_eq!(scene.victims("a_standard", 2, 1_000), ["b InCohortReclamation"]);
    let mut scene = borrowers().holds("a_standard", "a", 1, 13_000);
    assert_eq!(scene.victims("a_standard", 2, 1_000), NONE);
    let mut scene = borrowers()
        .holds("b_standard", "b2", 2, 10_000)
        .holds("b_standard", "b1", 1, 1_000)
        .holds("a_best", "a-1", -1, 1_000)
        .holds("a_best", "a-2", -2, 1_000);
    assert_eq!(
        scene.victims("b_standard", 2, 2_000),
        ["a-2 InCohortReclaimWhileBorrowing", "b1 InClusterQueue"]
    );
}

/// Spec: admission-engine B125, B126.
#[test]
fn what_fits_in_the_quota_of_a_subtree_takes_from_outside_of_it() {
    let mut scene = subtree().holds("q_borrowing", "victim", 0, 2_000);
    assert_eq!(scene.victims("q", 0, 2_000), ["victim InCohortReclamation"]);
    let mut scene = subtree()
        .queue(&queue("q_nominal", "r", own(2_000)))
        .holds("q_borrowing", "victim", 0, 2_000)
        .holds("q_nominal", "rightful", -10, 2_000);
    assert_eq!(scene.victims("q", 0, 2_000), ["victim InCohortReclamation"]);
}

/// Spec: admission-engine B127.
#[test]
fn a_subtree_within_its_quota_is_left_alone() {
    let mut scene = Scene::default()
        .cohort("r", "", own(0), Weight::ONE)
        .cohort("c", "r", own(2_000), Weight::ONE)
        .cohort("o", "r", own(2_000), Weight::ONE)
        .queue(&with(
            queue("q", "c", own(0)),
            policy(WithinClusterQueue::Never, Reclaim::Any),
        ))
        .queue(&queue("q_same", "c", own(0)))
        .queue(&queue("q_other", "o", own(0)))
        .holds("q_other", "other", -10, 2_000)
        .holds("q_same", "same", 0, 2_000);
    assert_eq!(scene.victims("q", 0, 2_000), NONE);
}

/// Spec: admission-engine B128.
#[test]
fn what_lending_limits_hold_back_cannot_be_preempted() {
    let all = policy(WithinClusterQueue::LowerPriority, Reclaim::Any);
    let mut scene = Scene::default()
        .queue(&with(queue("lend1", "all", (6_000, None, Some(4_000))), all))
        .queue(&queue("lend2", "all", (6_000, None, Some(2_000))))
        .holds("lend2", "other", -10, 8_000);
    let nomination = scene.nominate("lend1", &asks("incoming", 0, 9_000));
    assert_eq!((nomination.mode, nomination.targets.len()), (Mode::NoFit, 0));
    let refusal = nomination.refusal.unwrap();
    assert_eq!(refusal.category, crate::flavor::Category::ExceedsMaxQuota);
}
