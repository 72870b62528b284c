use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::afs::UsagePolicy;
use crate::amount::Amount;
use crate::condition::Truth;
use crate::name::{CohortName, Key, ResourceName};
use crate::queue::{Cohort, QueueRef, UsageOrder};
use crate::state::fixtures::{World, asks, at, cores, finish, hold, local_queue};
use crate::state::{Event, Settings, State};
use crate::status::{Admission, Assignment};
use crate::workload::Workload;

/// A Workload that holds `cpu` cores of `cq`, whether or not there is quota for it.
fn holder(name: &str, cpu: i64) -> Workload {
    let mut workload = asks(name, 0, cpu);
    let assignment = Assignment {
        name: "main".into(),
        flavors: [("cpu".into(), "default".into())].into(),
        usage: [("cpu".into(), Amount::new(cpu * 1_000))].into(),
        count: 1,
    };
    let admission = Admission {
        cluster_queue: "cq".into(),
        pod_sets: vec![assignment],
    };
    hold(&mut workload, admission, at(900));
    workload
}

fn cohort(name: &str, parent: Option<&str>) -> Event {
    Event::Cohort(Cohort {
        name: name.into(),
        parent: parent.map(CohortName::from),
        ..Cohort::default()
    })
}

/// `cq` with 4 cores of its own in cohort `team` below `all`, beside `other` with 6.
fn family() -> World {
    let mut queue = cores(4);
    queue.cohort = Some("team".into());
    let mut world = World::new(queue);
    world.tell(cohort("team", Some("all")));
    let mut other = cores(6);
    other.name = "other".into();
    other.cohort = Some("team".into());
    world.tell(Event::ClusterQueue(Box::new(other)));
    world
}

/// Spec: admission-engine B224.
#[test]
fn what_exceeds_the_nominal_quota_is_borrowed_only_in_a_cohort() {
    for (cohort, borrowed) in [(Some("team".into()), 2_000), (None, 0)] {
        let mut queue = cores(4);
        queue.cohort = cohort;
        let mut world = World::new(queue);
        world.put(holder("a", 6));
        let total = &world.report().reservation[0].resources[0];
        assert_eq!((total.total.get(), total.borrowed.get()), (6_000, borrowed));
        assert_eq!(
            world.local_report().reservation[0].resources[0].borrowed,
            Amount::ZERO
        );
    }
}

/// Spec: admission-engine B225.
#[test]
fn what_is_reserved_but_not_admitted_is_no_usage() {
    let mut world = World::new(cores(4));
    world.put(holder("a", 2));
    let report = world.report();
    assert_eq!(report.reservation[0].resources[0].total.get(), 2_000);
    assert_eq!(report.usage[0].resources[0].total, Amount::ZERO);
}

/// Spec: admission-engine 7.
#[test]
fn a_cohort_counts_what_a_queue_below_it_holds_even_if_that_lends_nothing() {
    let mut queue = cores(4);
    queue.cohort = Some("team".into());
    for quota in queue.groups[0].flavors[0].quotas.values_mut() {
        quota.lending_limit = Some(Amount::ZERO);
    }
    let mut world = World::new(queue);
    world.put(holder("a", 3));
    let team = world.state.cohort_report(&"team".into()).unwrap();
    let held = { team.reservation.iter() }.map(|(_, _, amount)| amount.get());
    assert_eq!(held.collect::<Vec<_>>(), [3_000]);
}

/// Spec: admission-engine 2.8.1, 7.
#[test]
fn shares_and_cohorts_are_reported() {
    let mut world = family();
    world.put(holder("a", 6));
    let kinship = world.report().kinship.unwrap();
    assert_eq!((kinship.parent.as_str(), kinship.root.as_str()), ("team", "all"));
    assert_eq!(kinship.share.reported(), 200, "2 of 10 that can be lent");
    let team = world.state.cohort_report(&"team".into()).unwrap();
    assert_eq!(team.kinship.unwrap().root.as_str(), "all");
    let amounts = |all: &[(_, _, Amount)]| all.iter().map(|(_, _, a)| a.get()).collect::<Vec<_>>();
    assert_eq!(amounts(&team.quota), [10_000]);
    assert_eq!(amounts(&team.reservation), [6_000]);
    assert_eq!(team.admitted, 0);
    let all = world.state.cohort_report(&"all".into()).unwrap();
    assert!(all.kinship.is_none(), "a root has no share");
    world.set("a", "Admitted", Truth::True, "Admitted", at(950));
    assert_eq!(world.state.cohort_report(&"all".into()).unwrap().admitted, 1);
    assert!(world.state.cohort_report(&"stranger".into()).is_none());
}

#[test]
fn a_change_of_usage_changes_the_reports_of_all_cohorts_above() {
    let mut world = family();
    world.state.take_changed_queues();
    world.put(holder("a", 6));
    let changed = world.state.take_changed_queues();
    let cohort = |name: &str| QueueRef::Cohort(name.into());
    assert_eq!(
        changed,
        [
            QueueRef::Cluster("cq".into()),
            QueueRef::Local(Key::new("ns", "lq")),
            cohort("all"),
            cohort("team")
        ]
    );
    assert_eq!(world.state.take_changed_queues(), []);
}

/// A state in which past usage orders the workloads of `cq`.
fn counting(now: Timestamp) -> World {
    let mut queue = cores(10);
    queue.usage_order = UsageOrder::LeastUsedFirst;
    let mut world = World::new(queue.clone());
    world.state = State::new(Settings {
        past_usage: Some(UsagePolicy {
            half_life: Duration::from_mins(10),
            sampling_interval: Duration::from_mins(5),
            resource_weights: BTreeMap::new(),
        }),
        ..Settings::default()
    });
    world.now = now;
    world.tell(Event::ClusterQueue(Box::new(queue)));
    world.tell(Event::LocalQueue(local_queue("cq")));
    world.tell(Event::Synced);
    world
}

fn consumed(world: &World) -> i64 {
    let (past, _) = world.local_report().past.unwrap();
    let cpu = past.consumed.get(&ResourceName::from("cpu"));
    cpu.map_or(0, |amount| amount.get())
}

/// Spec: admission-engine B219, B220, B222.
#[test]
fn past_usage_is_reported_and_sampled() {
    let mut world = counting(at(1_000));
    assert_eq!(world.state.next_wake(), Some(at(1_300)));
    world.put(holder("a", 8));
    assert_eq!(consumed(&world), 0);
    let (_, score) = world.local_report().past.unwrap();
    assert!((score.value() - 8.0 * 0.292_893).abs() < 1e-3, "{score:?}");
    world.set("a", "Admitted", Truth::True, "Admitted", at(1_000));
    assert_eq!(consumed(&world), 2_343);
    world.state.take_changed_queues();
    world.wait(300);
    world.decide();
    assert_eq!(
        world.state.take_changed_queues(),
        [QueueRef::Local(Key::new("ns", "lq"))]
    );
    assert_eq!(consumed(&world), 4_000, "half of the way after half of the time");
    world.edit("a", finish);
    world.wait(600);
    world.decide();
    assert_eq!(consumed(&world), 2_000);
}

/// Spec: admission-engine B223.
#[test]
fn past_usage_survives_a_restart() {
    let mut world = counting(at(1_000));
    world.put(holder("a", 8));
    world.set("a", "Admitted", Truth::True, "Admitted", at(1_000));
    let (past, _) = world.local_report().past.unwrap();
    let mut again = counting(at(1_200));
    again.tell(Event::PastUsage {
        local: Key::new("ns", "lq"),
        past: past.clone(),
    });
    assert_eq!(again.local_report().past.unwrap().0, past);
}

/// Spec: admission-engine 7. Every LocalQueue shows it where it is configured, with a zero for a resource that was never used.
#[test]
fn past_usage_is_reported_wherever_it_is_configured_and_nowhere_else() {
    let world = World::new(cores(1));
    assert_eq!(world.local_report().past, None);
    let zero = [(ResourceName::from("cpu"), Amount::ZERO)].into();
    let mut world = counting(at(1_000));
    assert_eq!(world.local_report().past.unwrap().0.consumed, zero);
    world.tell(Event::ClusterQueue(Box::new(cores(10))));
    assert_eq!(
        world.local_report().past.unwrap().0.consumed,
        zero,
        "another order"
    );
}

/// Spec: admission-engine 7. A ClusterQueue that was removed by force is gone while its workloads run.
#[test]
fn a_local_queue_without_its_cluster_queue_counts_nothing_that_is_held() {
    let mut world = counting(at(1_000));
    world.put(holder("a", 8));
    assert_eq!(world.local_report().reserving, 1);
    world.tell(Event::ClusterQueueGone("cq".into()));
    let report = world.local_report();
    assert_eq!(report.active.reason, "ClusterQueueDoesNotExist");
    assert_eq!((report.reserving, report.admitted), (0, 0));
    assert_eq!((report.reservation, report.past), (Vec::new(), None));
}
