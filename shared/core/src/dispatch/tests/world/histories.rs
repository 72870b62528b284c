//! Histories of the world: some that once broke a rule, and many random ones.

use proptest::test_runner::RngSeed;

use super::*;

/// Histories per property; all three together take about two seconds.
const CASES: u32 = 256;
const DISPATCHERS: [Dispatcher; 2] = [Dispatcher::AllAtOnce, Dispatcher::Capacity];

/// Spec: safety 1 I1, W1, W3
#[test]
fn a_worker_that_evicts_then_vanishes_then_starts_again_is_not_joined_by_another() {
    let (a, b) = (0, 1);
    let runs_on_a = round(a);
    let evicted_and_cut = [
        Op::Evict(a),
        Op::Work(a),
        Op::Pass(NO_CRASH),
        Op::Cut(a),
        Op::Pass(NO_CRASH),
    ];
    let new_round = [
        Op::ReleaseQuota,
        Op::Reserve,
        Op::Pass(NO_CRASH),
        Op::Admit(a),
        Op::Work(a),
    ];
    let elsewhere = [
        Op::Admit(b),
        Op::Pass(NO_CRASH),
        Op::Pass(NO_CRASH),
        Op::Work(b),
        Op::Pass(NO_CRASH),
    ];
    let mut world = World::new(LostPolicy::Wait, Dispatcher::AllAtOnce);
    for op in [&runs_on_a[..], &evicted_and_cut, &new_round, &elsewhere].concat() {
        world.step(op);
        assert!(
            world.running().len() <= 1,
            "runs on {:?} after {op:?}",
            world.running()
        );
    }
    assert_eq!(
        world.running(),
        [&ClusterName::from("a")],
        "it started there again"
    );
    assert_eq!(world.stored.cluster, Some("a".into()));
}

/// Spec: safety 1 I1, W3
#[test]
fn an_eviction_while_the_worker_is_away_starts_nothing_elsewhere() {
    let (a, b) = (0, 1);
    let mut world = World::new(LostPolicy::Wait, Dispatcher::AllAtOnce);
    let runs_on_a = round(a);
    let evicted_away = [
        Op::Cut(a),
        Op::EvictHere,
        Op::Pass(NO_CRASH),
        Op::ReleaseQuota,
        Op::Reserve,
    ];
    let elsewhere = [
        Op::Pass(NO_CRASH),
        Op::Admit(b),
        Op::Pass(NO_CRASH),
        Op::Pass(NO_CRASH),
        Op::Work(b),
    ];
    for op in [&runs_on_a[..], &evicted_away, &elsewhere].concat() {
        world.step(op);
    }
    assert_eq!(world.running(), [&ClusterName::from("a")]);
}

/// The steps of a run on a site.
fn round(site: usize) -> Vec<Op> {
    vec![
        Op::Pass(NO_CRASH),
        Op::Admit(site),
        Op::Pass(NO_CRASH),
        Op::Pass(NO_CRASH),
        Op::Work(site),
    ]
}

/// The steps of an eviction and a new reservation.
fn restart() -> Vec<Op> {
    vec![Op::EvictHere, Op::Pass(NO_CRASH), Op::ReleaseQuota, Op::Reserve]
}

/// Single steps, and now and then a sequence that single steps rarely make.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let steps = prop_oneof![
        8 => op().prop_map(|op| vec![op]),
        2 => (0..SITES.len()).prop_map(round),
        1 => Just(restart()),
    ];
    proptest::collection::vec(steps, 0..60).prop_map(|steps| steps.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, rng_seed: RngSeed::Fixed(693), failure_persistence: None, ..ProptestConfig::default() })]

    /// Spec: safety 1 I1, safety 3
    #[test]
    fn under_wait_and_under_fence_it_never_runs_twice(ops in ops(), fence: bool, dispatcher in 0..2_usize) {
        let lost = if fence { LostPolicy::Fence } else { LostPolicy::Wait };
        let mut world = World::new(lost, DISPATCHERS[dispatcher]);
        for op in ops {
            // A worker whose storage is restored runs the jobs of that time again, and the manager cannot prevent that.
            if !matches!(op, Op::Rewind(_)) {
                world.step(op);
            }
            prop_assert!(world.running().len() <= 1, "runs on {:?} after {op:?}", world.running());
        }
    }

    /// Spec: safety 1 I1, I3, I5, I7, I13
    #[test]
    fn after_the_faults_it_ends_once_and_leaves_nothing(ops in ops(), policy in 0..3_usize, dispatcher in 0..2_usize) {
        let lost = [LostPolicy::RetryAnyway, LostPolicy::Wait, LostPolicy::Fence][policy];
        let mut world = World::new(lost, DISPATCHERS[dispatcher]);
        for op in ops {
            let foreign = world.foreign();
            world.step(op);
            if !matches!(op, Op::PutForeign(_)) {
                prop_assert_eq!(foreign, world.foreign());
            }
        }
        let foreign = world.foreign();
        world.make_peace();
        prop_assert_eq!(foreign, world.foreign());
        prop_assert!(world.local == Local::Gone || world.job.finished, "{:?}", world.plan());
        prop_assert!(world.local == Local::Gone || world.has("Finished"));
        for (name, site) in &world.sites {
            prop_assert!(site.copies.our_job().is_none() && site.copies.our_workload().is_none(), "{} has {:?}", name, site);
        }
    }

    /// Spec: safety 1 I3
    #[test]
    fn when_nothing_changes_nothing_is_written(ops in ops(), dispatcher in 0..2_usize) {
        let mut world = World::new(LostPolicy::Wait, DISPATCHERS[dispatcher]);
        for op in ops {
            world.step(op);
        }
        world.settle();
    }
}
