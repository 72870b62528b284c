//! Preemption as seen from the cycle: which workload waits, for how long, and what the status says.

use super::{Decision, OFF, reclaiming, round, ruled, strict, within, world, world_with};
use crate::name::Key;
use crate::queue::{ClusterQueue, Reclaim, WithinClusterQueue};
use crate::rules::Rules;
use crate::state::Event;
use crate::state::fixtures::{World, at, cores, evict, finish, in_cohort};
use crate::status::{GatePosition, PreemptionGate};
use crate::workload::Workload;

const SHORT: &str =
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default";

fn lower(name: &str, cpu: i64) -> ClusterQueue {
    let mut queue = within(cores(cpu), WithinClusterQueue::LowerPriority);
    queue.name = name.into();
    queue
}

/// A queue of 4 that `low` fills.
fn full() -> World {
    let mut world = world(vec![lower("q", 4)]);
    world.ask("q", "low", (0, 4_000));
    world.run();
    world
}

fn waits(name: &str, more: i64, count: usize) -> String {
    format!(
        "{name}: WaitingForPreemptedWorkloads {SHORT}, {more} more needed. Pending the preemption of {count} workload(s)"
    )
}

/// Spec: admission-engine B129, B173.
#[test]
fn the_preemptor_waits_until_the_victim_has_given_its_quota_back() {
    let mut world = full();
    world.ask("q", "high", (1, 4_000));
    assert_eq!(
        world.run(),
        ["low: InClusterQueue for high".to_owned(), waits("high", 4, 1)]
    );
    let reserving = |world: &World| {
        let report = world.state.cluster_queue_report(&"q".into()).unwrap();
        (report.reserving, report.reservation[0].resources[0].total.get())
    };
    assert_eq!(reserving(&world), (1, 4_000), "the victim still runs");
    assert_eq!(world.run(), [""; 0]);
    world.release("low");
    assert_eq!(world.run()[0], "high: reserved");
    assert_eq!(reserving(&world), (1, 4_000));
}

/// Spec: admission-engine B119, 2.12.
#[test]
fn the_victim_is_told_for_which_workload_and_job_it_makes_room() {
    let mut world = full();
    world.ask("q", "high", (1, 4_000));
    world.edit("high", |w| w.job_uid = Some("job-uid".into()));
    world.run();
    let victim = &world.workloads[&Key::new("ns", "low")];
    assert_eq!(
        victim.status.conditions.get("Preempted").unwrap().message,
        "Preempted to accommodate a workload (UID: uid-high, JobUID: job-uid) due to prioritization in the ClusterQueue; \
         preemptor path: /q; preemptee path: /q"
    );
}

/// Spec: admission-engine 2.11, 2.16.
#[test]
fn whose_gate_is_closed_is_admitted_only_without_preempting() {
    let gate = |position| {
        let gate = PreemptionGate {
            position,
            since: at(1),
        };
        move |w: &mut Workload| {
            w.status.preemption_gates = [("kueue.x-k8s.io/multikueue".to_owned(), gate)].into();
        }
    };
    for is_strict in [false, true] {
        let queue = if is_strict {
            strict(lower("q", 4))
        } else {
            lower("q", 4)
        };
        let mut world = world(vec![queue]);
        world.ask("q", "low", (0, 3_000));
        world.ask("q", "small", (0, 1_000));
        world.edit("small", gate(GatePosition::Closed));
        assert!(
            world.run().contains(&"small: reserved".to_owned()),
            "no workload stands in its way"
        );
        world.ask("q", "gated", (1, 4_000));
        world.edit("gated", gate(GatePosition::Closed));
        let told = "gated: AdmissionGated Workload requires preemption, but it's gated";
        assert_eq!(world.run(), [told], "{is_strict}");
        world.edit("gated", gate(GatePosition::Open));
        assert_eq!(world.run()[0], "low: InClusterQueue for gated", "{is_strict}");
    }
}

/// Spec: admission-engine 2.12
#[test]
fn events_about_a_preemption_tell_the_priorities_of_both() {
    let mut world = full();
    world.ask("q", "high", (7, 4_000));
    world.edit("high", |w| w.boost = -2);
    world.run();
    let [high, low, gone] = ["high", "low", "gone"].map(|name| Key::new("ns", name));
    assert_eq!(
        world.state.priorities(&high, &low).unwrap(),
        "; preemptor effective priority: 5 (base: 7, boost: -2); preemptee effective priority: 0 (base: 0, boost: 0)"
    );
    assert_eq!(world.state.priorities(&gone, &low), None);
}

/// Spec: admission-engine B172 (a preempted workload is pending again, at its old place).
#[test]
fn a_victim_is_pending_again_and_served_when_there_is_room() {
    let mut world = full();
    world.ask("q", "high", (1, 4_000));
    world.ask("q", "later", (0, 4_000));
    world.run();
    world.release("low");
    world.run();
    world.edit("high", finish);
    assert_eq!(world.run()[0], "low: reserved", "its age is kept");
}

/// Spec: admission-engine B130.
#[test]
fn nobody_else_is_evicted_while_the_victims_stop() {
    let mut world = world(vec![lower("q", 4)]);
    world.ask("q", "low", (0, 2_000));
    world.ask("q", "mid", (1, 2_000));
    world.run();
    world.ask("q", "high", (2, 2_000));
    assert_eq!(world.run()[0], "low: InClusterQueue for high");
    for _ in 0..3 {
        world.wait(10);
        world.ask("q", &format!("noise{}", world.workloads.len()), (0, 9_000));
        assert!(world.run().iter().all(|line| line.contains("noise")));
    }
    world.release("low");
    assert!(world.run().contains(&"high: reserved".to_owned()));
}

/// Spec: admission-engine 2.12 (no duplicates while an eviction is on its way, and a new one if it never arrives).
#[test]
fn an_eviction_is_told_once_and_again_when_it_got_lost() {
    let mut world = full();
    world.ask("q", "high", (1, 4_000));
    let told = |decisions: Vec<Decision>| {
        let evictions = decisions.iter().filter(|d| matches!(d, Decision::Preempt { .. }));
        evictions.count()
    };
    assert_eq!(told(world.decide()), 1);
    world.edit("high", |w| w.priority = 2);
    assert_eq!(told(world.decide()), 0, "it is still on its way");
    assert_eq!(world.state.next_wake(), Some(at(1_060)));
    world.wait(60);
    assert_eq!(told(world.decide()), 1, "it got lost");
    let (key, uid) = (Key::new("ns", "low"), "uid-low".into());
    world.tell(Event::ReserveFailed { key, uid });
    assert_eq!(told(world.decide()), 1, "the writer gave up");
    world.edit("low", |w| evict(w, "InClusterQueue", String::new(), at(1_060)));
    assert_eq!(world.state.next_wake(), Some(at(1_660)), "only the claim ends");
}

/// A reservation that is not visible yet cannot be ended by a write; the eviction is reported when it shows.
#[test]
fn an_eviction_waits_until_the_reservation_is_visible() {
    let mut world = world(vec![lower("q", 4)]);
    world.ask("q", "low", (0, 4_000));
    let reserve = world.decide();
    world.ask("q", "high", (1, 4_000));
    let decisions = world.decide();
    assert!(
        !decisions.iter().any(|d| matches!(d, Decision::Preempt { .. })),
        "{decisions:?}"
    );
    for decision in reserve {
        world.write(decision);
    }
    assert!(world.run().contains(&"low: InClusterQueue for high".to_owned()));
}

/// Spec: admission-engine B041.
#[test]
fn who_waits_for_victims_stays_head_even_before_higher_priority() {
    let mut world = full();
    world.ask("q", "w", (1, 4_000));
    world.run();
    world.ask("q", "h", (100, 4_000));
    assert_eq!(world.run(), [""; 0], "w is still head");
    let first = world.state.pending_in_order(&"q".into(), 1).unwrap();
    assert_eq!(*first[0].key.name, *"w");
    world.release("low");
    assert_eq!(world.run()[0], "w: reserved");
    let mut world = full();
    world.ask("q", "w", (1, 4_000));
    world.run();
    world.ask("q", "h", (100, 4_000));
    let (key, uid) = (Key::new("ns", "w"), "uid-w".into());
    world.tell(Event::WorkloadGone { key, uid });
    world.release("low");
    assert_eq!(world.run()[0], "h: reserved", "w left");
}

/// Spec: admission-engine 1.6 (the mark goes with any other failure, unlike the quirk).
#[test]
fn a_preemptor_that_fails_otherwise_is_no_longer_first() {
    let mut world = full();
    world.ask("q", "w", (1, 4_000));
    world.run();
    world.tell(Event::ClusterQueue(Box::new(lower("q", 2))));
    world.run();
    let q = world.state.queue_named(&"q".into()).unwrap();
    let id = world.state.records.id(&Key::new("ns", "w")).unwrap();
    assert!(!q.pending.is_sticky(id));
}

/// `c1(4)`, `c2(4)` that take back anything, and `bq(0)` that borrows all of it.
fn lenders(rules: Rules) -> World {
    world_with(
        ruled(rules),
        vec![
            reclaiming(in_cohort("c1", "x", 4), Reclaim::Any),
            reclaiming(in_cohort("c2", "x", 4), Reclaim::Any),
            in_cohort("bq", "x", 0),
        ],
    )
}

/// Spec: admission-engine B131.
#[test]
fn two_preemptors_of_one_round_find_different_victims() {
    let mut world = lenders(Rules::default());
    world.ask("bq", "x", (0, 4_000));
    world.ask("bq", "y", (0, 4_000));
    world.run();
    world.ask("c1", "h1", (0, 4_000));
    world.ask("c2", "h2", (0, 4_000));
    let lines = round(&mut world, "c1");
    let evicted: Vec<_> = lines
        .iter()
        .filter(|l| l.contains("InCohortReclamation"))
        .collect();
    assert_eq!(evicted.len(), 2, "{lines:?}");
    assert_eq!(
        lines.iter().filter(|l| l.contains("WaitingForPreempted")).count(),
        2
    );
}

const DEFERRED: &str = "h2: WaitingForPreemptedWorkloads Workload has overlapping preemption targets with another \
                        workload, but will fit after these preemptions complete";

/// Spec: admission-engine B132.
#[test]
fn one_large_victim_serves_two_preemptors() {
    let mut world = lenders(Rules::default());
    world.ask("bq", "xy", (0, 8_000));
    world.run();
    world.ask("c1", "h1", (0, 4_000));
    world.ask("c2", "h2", (0, 4_000));
    assert_eq!(
        world.run(),
        [
            "xy: InCohortReclamation for h1".to_owned(),
            waits("h1", 4, 1),
            DEFERRED.to_owned()
        ]
    );
    world.release("xy");
    let lines = world.run();
    assert!(lines.contains(&"h1: reserved".to_owned()) && lines.contains(&"h2: reserved".to_owned()));
}

/// Spec: admission-engine B133.
#[test]
fn without_a_second_look_the_second_preemptor_is_skipped() {
    let mut world = lenders(Rules {
        recompute_overlap: OFF,
        ..Rules::default()
    });
    world.ask("bq", "xy", (0, 8_000));
    world.run();
    world.ask("c1", "h1", (0, 4_000));
    world.ask("c2", "h2", (0, 4_000));
    let text = "h2: WaitingForQuota Workload has overlapping preemption targets with another workload";
    assert_eq!(round(&mut world, "c1")[2], text);
    assert_eq!(world.state.take_outcome().preemption_skips[&"c2".into()], 1);
}

/// Two workloads that fit now do not both take what one preemptor leaves over.
#[test]
fn quota_that_victims_still_hold_is_given_to_nobody() {
    let mut world = world(vec![
        reclaiming(
            within(in_cohort("p", "x", 10), WithinClusterQueue::LowerPriority),
            Reclaim::Any,
        ),
        in_cohort("f", "x", 0),
        in_cohort("g", "x", 0),
    ]);
    world.ask("p", "victim", (0, 8_000));
    world.run();
    world.ask("p", "preemptor", (9, 4_000));
    world.ask("f", "small1", (0, 2_000));
    world.ask("g", "small2", (0, 2_000));
    let lines = world.run();
    let served = lines
        .iter()
        .filter(|line| line.contains("small") && line.contains("reserved"));
    assert_eq!(served.count(), 1, "{lines:?}");
    world.release("victim");
    assert!(world.run().contains(&"preemptor: reserved".to_owned()));
}

/// Spec: admission-engine 1.3 (strict order: a preemptor blocks those behind it).
#[test]
fn a_strict_preemptor_blocks_its_queue() {
    let mut world = world(vec![strict(lower("q", 4))]);
    world.ask("q", "low", (0, 3_000));
    world.run();
    world.ask("q", "high", (5, 4_000));
    world.ask("q", "small", (1, 1_000));
    let lines = world.run();
    assert_eq!(lines.len(), 2, "{lines:?}");
    world.release("low");
    assert_eq!(world.run()[0], "high: reserved");
}
