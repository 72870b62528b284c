use super::fixtures::{
    World, asks, at, cluster_queue, cores, finish, flavor, group, local_queue, pod_set, release, rule,
    workload,
};
use super::{Event, Pace, Settings, State};
use crate::amount::Amount;
use crate::check::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use crate::condition::Truth;
use crate::cycle::{Decision, HEADS_PER_CYCLE};
use crate::name::{ClusterQueueName, Key};
use crate::queue::{Check, LocalQueue, QueueRef, Selector, StopPolicy, Strategy};
use crate::rules::Switch;
use crate::status::{CheckPhase, CheckState, Requeue};
use crate::workload::{Operator, Requirement, Workload};

mod pause;

fn more_needed(name: &str, cpu: i64) -> String {
    format!(
        "{name}: WaitingForQuota couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor \
         default, {cpu} more needed"
    )
}

fn strict(cpu: i64) -> World {
    let mut queue = cores(cpu);
    queue.strategy = Strategy::StrictFifo;
    World::new(queue)
}

/// The explanation for a workload whose queue is inactive; the queue itself says why.
const INACTIVE: &str = "a: Suspended ClusterQueue cq is inactive";

fn why(world: &World) -> String {
    let message = world.report().active.message.into_owned();
    let why = message.strip_prefix("Can't admit new workloads: ");
    why.unwrap_or(&message).trim_end_matches('.').to_owned()
}

fn team(value: &str) -> Selector {
    Selector(vec![Requirement {
        key: "team".to_owned(),
        operator: Operator::In,
        values: vec![value.to_owned()],
    }])
}

fn namespace(value: &str) -> Event {
    Event::Namespace {
        name: "ns".into(),
        labels: [("team".to_owned(), value.to_owned())].into(),
    }
}

fn told(workload: &mut Workload, kind: &'static str, truth: Truth, reason: &'static str) {
    workload.status.conditions.set(kind, truth, reason, "", at(1));
}

fn check(name: &str, controller: &str) -> Check {
    Check {
        name: name.into(),
        controller: controller.to_owned(),
        active: true,
    }
}

/// Spec: admission-engine 1.3, 9.2 B032.
#[test]
fn strict_fifo_blocks_behind_a_head_that_does_not_fit() {
    let mut world = strict(10);
    world.put(asks("user", 0, 8));
    assert_eq!(world.run(), ["user: reserved"]);
    world.put(asks("big", 1, 5));
    world.put(asks("small", 2, 1));
    assert_eq!(world.run(), [more_needed("big", 3)]);
    assert_eq!(
        world.run(),
        [""; 0],
        "the same head is not tried again for nothing"
    );
    world.edit("user", finish);
    assert_eq!(world.run(), ["big: reserved", "small: reserved"]);
}

/// Spec: admission-engine 1.3 1.5, 9.2 B033 B034, 9.15 B226.
#[test]
fn best_effort_fifo_tries_the_next_and_wakes_the_first_when_quota_comes_free() {
    let mut world = World::new(cores(10));
    world.put(asks("user", 0, 8));
    world.run();
    world.put(asks("big", 1, 5));
    world.put(asks("small", 2, 1));
    assert_eq!(world.run(), [more_needed("big", 3), "small: reserved".to_owned()]);
    assert_eq!((world.report().pending, world.report().inadmissible), (1, 1));
    world.edit("user", finish);
    assert_eq!(world.run(), ["big: reserved"]);
}

/// Spec: admission-engine 1.3, 1.8, 9.2 B035 B049 B050.
#[test]
fn a_namespace_that_does_not_match_is_parked_until_its_labels_match() {
    let mut queue = cores(10);
    queue.strategy = Strategy::StrictFifo;
    queue.namespaces = Some(team("b"));
    let mut world = World::new(queue);
    let text = "a: Misconfigured workload namespace doesn't match ClusterQueue selector";
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), [text]);
    world.tell(namespace("c"));
    assert_eq!(world.run(), [""; 0]);
    world.tell(namespace("b"));
    assert_eq!(world.run(), ["a: reserved"]);

    let mut queue = cores(10);
    queue.namespaces = None;
    let mut world = World::new(queue);
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), [text]);
}

/// Spec: admission-engine 1.7, 9.2 B042; provisioning 15.30.
#[test]
fn a_workload_in_back_off_is_pending_but_not_head() {
    let mut world = strict(10);
    let mut waiting = asks("a", 1, 1);
    waiting.status.requeue = Some(Requeue {
        count: None,
        at: Some(at(1_060)),
    });
    world.put(waiting);
    world.put(asks("b", 2, 1));
    assert_eq!(world.run(), ["b: reserved"]);
    assert_eq!(world.report().pending, 1);
    assert_eq!(world.state.next_wake(), Some(at(1_060)));
    world.wait(60);
    assert_eq!(world.run(), ["a: reserved"]);
    assert_eq!(world.state.next_wake(), None);
}

/// Spec: admission-engine 1.7.
#[test]
fn a_false_requeued_condition_holds_back_without_a_time() {
    let mut world = World::new(cores(10));
    let mut waiting = asks("a", 1, 1);
    let conditions = &mut waiting.status.conditions;
    conditions.set("Requeued", Truth::False, "AdmissionCheck", "", at(900));
    world.put(waiting);
    assert_eq!(world.run(), [""; 0]);
    assert_eq!(world.state.next_wake(), None);
    world.set("a", "Requeued", Truth::True, "BackoffFinished", at(1_000));
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: admission-engine 1.1, 9.2 B043.
#[test]
fn a_gated_workload_is_told_so_and_admitted_when_the_gate_goes() {
    let mut world = World::new(cores(10));
    let mut gated = asks("a", 1, 1);
    gated.gated_by = "x.io/a,x.io/b".to_owned();
    world.put(gated);
    let text = "a: AdmissionGated Admission is gated by: x.io/a,x.io/b";
    assert_eq!(world.run(), [text]);
    world.edit("a", |w| w.gated_by.clear());
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: admission-engine 1.1.
#[test]
fn what_must_not_be_queued_is_not_queued() {
    type Edit = fn(&mut Workload);
    let edits: [Edit; 5] = [
        |w| w.active = false,
        |w| w.deleting = true,
        |w| told(w, "QuotaReserved", Truth::False, "OnHold"),
        |w| told(w, "WaitingForReplacementPods", Truth::True, "x"),
        |w| told(w, "Finished", Truth::True, "Succeeded"),
    ];
    for edit in edits {
        let mut world = World::new(cores(10));
        let mut out = asks("a", 1, 1);
        edit(&mut out);
        world.put(out);
        assert_eq!(world.run(), [""; 0]);
        assert_eq!(world.report().pending, 0);
    }
}

/// Spec: admission-engine 1.1, 9.2 B044.
#[test]
fn a_missing_queue_is_named_and_its_arrival_is_enough() {
    let mut world = World::new(cores(10));
    world.tell(Event::LocalQueueGone(Key::new("ns", "lq")));
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), ["a: Misconfigured LocalQueue lq doesn't exist"]);
    world.tell(Event::LocalQueue(local_queue("other")));
    assert_eq!(world.run(), ["a: Misconfigured ClusterQueue other doesn't exist"]);
    world.tell(Event::LocalQueue(local_queue("cq")));
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: admission-engine 1.8, 9.2 B045; api API-3.
#[test]
fn a_stopped_local_queue_takes_its_workloads_out() {
    let mut world = World::new(cores(0));
    for name in ["a", "b", "c"] {
        world.put(asks(name, 1, 1));
    }
    world.run();
    assert_eq!((world.local_report().pending, world.report().pending), (3, 3));
    let stopped = LocalQueue {
        stop: StopPolicy::Hold,
        ..local_queue("cq")
    };
    world.tell(Event::LocalQueue(stopped));
    assert_eq!((world.local_report().pending, world.report().pending), (0, 0));
    let active = world.local_report().active;
    assert_eq!(
        (active.reason, active.message.as_ref()),
        ("Stopped", "LocalQueue is stopped")
    );
    assert_eq!(world.run()[0], "a: Suspended LocalQueue lq is inactive");
    world.tell(Event::LocalQueue(local_queue("cq")));
    assert_eq!((world.local_report().pending, world.report().pending), (3, 3));
}

/// Spec: admission-engine 1.8, 9.2 B046; api API-2.3, API-3.
#[test]
fn a_stopped_cluster_queue_keeps_its_workloads_and_admits_none() {
    let mut world = strict(2);
    let stopped = |stop| {
        let mut queue = cores(2);
        queue.strategy = Strategy::StrictFifo;
        queue.stop = stop;
        Event::ClusterQueue(Box::new(queue))
    };
    world.tell(stopped(StopPolicy::Hold));
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), [INACTIVE]);
    assert_eq!(why(&world), "is stopped");
    let report = world.report();
    assert_eq!(
        (report.pending, report.inadmissible),
        (1, 1),
        "none waits for its turn"
    );
    assert_eq!(world.local_report().inadmissible, 1);
    let report = world.report();
    assert_eq!(
        (report.pending, report.active.truth, report.active.reason),
        (1, Truth::False, "Stopped")
    );
    assert_eq!(world.local_report().active.reason, "ClusterQueueIsInactive");
    world.put(asks("b", 2, 2));
    world.put(asks("c", 3, 2));
    assert_eq!(world.run().len(), 2);
    world.tell(stopped(StopPolicy::None));
    let last = "c: PendingEvaluation Workload is pending evaluation in the scheduling queue";
    assert_eq!(
        world.run(),
        ["a: reserved".to_owned(), more_needed("b", 1), last.to_owned()]
    );
}

/// Spec: admission-engine 9.2 B048.
#[test]
fn the_words_with_which_a_stopped_queue_took_quota_back_stay() {
    let mut queue = cores(2);
    queue.stop = StopPolicy::Hold;
    let mut world = World::new(queue);
    let mut lost = asks("a", 1, 1);
    let text = "ClusterQueue cq is stopped";
    lost.status
        .conditions
        .set("QuotaReserved", Truth::False, "Suspended", text, at(1));
    world.put(lost);
    assert_eq!(world.run(), [""; 0]);
    world.tell(Event::ClusterQueue(Box::new(cores(0))));
    assert!(world.run()[0].starts_with("a: ExceedsMaxQuota"));
}

/// Spec: admission-engine 1.5, 9.2 B051.
#[test]
fn only_a_relevant_change_wakes_a_parked_workload() {
    let mut world = World::new(cores(1));
    world.put(asks("a", 1, 2));
    assert_eq!(world.run().len(), 1);
    world.edit("a", |w| {
        w.status.conditions.set("PodsReady", Truth::False, "x", "", at(1));
    });
    assert!(world.state.ready.is_empty());
    world.edit("a", |w| w.priority = 5);
    assert!(!world.state.ready.is_empty());
    assert_eq!(world.run(), [""; 0], "but the same answer is not written twice");
}

/// Spec: admission-engine 9.3 B058 B059; api API-2.3.
#[test]
fn a_missing_flavor_makes_the_queue_inactive_until_it_arrives() {
    let mut world = World::new(cores(10));
    let queue = |stop| {
        let mut queue = cluster_queue("cq", vec![group(&[("spot", &[("cpu", 9_000)])])]);
        queue.stop = stop;
        Event::ClusterQueue(Box::new(queue))
    };
    world.tell(queue(StopPolicy::None));
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), [INACTIVE]);
    assert_eq!(why(&world), "references missing ResourceFlavor(s): spot");
    assert_eq!(world.report().active.reason, "FlavorNotFound");
    world.tell(queue(StopPolicy::Hold));
    world.run();
    assert_eq!(
        why(&world),
        "is stopped, references missing ResourceFlavor(s): spot"
    );
    assert_eq!(world.report().active.reason, "Stopped");
    world.tell(queue(StopPolicy::None));
    world.tell(Event::Flavor(flavor("spot")));
    assert_eq!(world.run(), ["a: reserved"]);
    let active = world.report().active;
    assert_eq!(
        (active.reason, active.message.as_ref()),
        ("Ready", "Can admit new workloads")
    );
}

/// Spec: admission-engine 9.3 B060; api API-2.3.
#[test]
fn a_terminating_queue_admits_nothing_and_its_usage_stays() {
    let mut world = World::new(cores(10));
    world.put(asks("user", 0, 8));
    world.run();
    let mut queue = cores(10);
    queue.terminating = true;
    world.tell(Event::ClusterQueue(Box::new(queue)));
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), [INACTIVE]);
    assert_eq!(
        why(&world),
        "Can't admit new workloads; clusterQueue is terminating"
    );
    assert_eq!(world.report().reserving, 1);
    world.edit("user", finish);
    assert_eq!(
        (world.report().reserving, world.report().active.reason),
        (0, "Terminating")
    );
}

/// Spec: multikueue 1.5, 10.F35, 11.87; api API-2.3; provisioning 15.7.
#[test]
fn checks_that_cannot_work_make_the_queue_inactive() {
    let mut world = World::new(cores(10));
    world.tell(Event::Check(check("mk1", MULTIKUEUE_CONTROLLER)));
    world.tell(Event::Check(check("mk2", MULTIKUEUE_CONTROLLER)));
    world.tell(Event::Check(check("prov", PROVISIONING_CONTROLLER)));
    let mut off = check("off", "example.com/other");
    off.active = false;
    world.tell(Event::Check(off));
    for (checks, reason, part) in [
        (vec!["mk1"], "Ready", ""),
        (
            vec!["z", "b"],
            "AdmissionCheckNotFound",
            "references missing AdmissionCheck(s): b,z",
        ),
        (
            vec!["off"],
            "AdmissionCheckInactive",
            "references inactive AdmissionCheck(s): off",
        ),
        (
            vec!["mk2", "mk1"],
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: mk1,mk2",
        ),
        (
            vec!["prov", "mk1"],
            "MultiKueueWithProvisioningRequest",
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: mk1, prov",
        ),
    ] {
        let mut queue = cores(10);
        queue.checks = checks.into_iter().map(rule).collect();
        world.tell(Event::ClusterQueue(Box::new(queue)));
        let active = world.report().active;
        assert_eq!(active.reason, reason);
        if reason != "Ready" {
            assert_eq!(active.message, format!("Can't admit new workloads: {part}."));
        }
    }
}

/// Spec: multikueue 1.5, 11.38.
#[test]
fn a_multikueue_check_may_not_be_for_some_flavors_only() {
    let mut world = World::new(cores(10));
    world.tell(Event::Flavor(flavor("spot")));
    world.tell(Event::Check(check("mk", MULTIKUEUE_CONTROLLER)));
    let flavors: [(&str, &[(&str, i64)]); 2] = [("default", &[("cpu", 1)]), ("spot", &[("cpu", 1)])];
    let mut queue = cluster_queue("cq", vec![group(&flavors)]);
    queue.checks = vec![rule("mk")];
    world.tell(Event::ClusterQueue(Box::new(queue.clone())));
    assert_eq!(world.report().active.reason, "Ready", "for the whole queue");
    queue.checks[0].on_flavors = vec!["spot".into()];
    world.tell(Event::ClusterQueue(Box::new(queue.clone())));
    assert_eq!(
        world.report().active.reason,
        "MultiKueueAdmissionCheckAppliedPerFlavor"
    );
    queue.checks[0].on_flavors = vec!["spot".into(), "default".into()];
    world.tell(Event::ClusterQueue(Box::new(queue)));
    assert_eq!(world.report().active.reason, "Ready");
}

/// Spec: multikueue 1.5, 10.F10 (all workers down means that the queue reserves nothing more).
#[test]
fn a_check_that_becomes_active_resumes_admission() {
    let mut queue = cores(10);
    queue.checks = vec![rule("mk")];
    let mut world = World::new(queue);
    let mut mk = check("mk", MULTIKUEUE_CONTROLLER);
    mk.active = false;
    world.tell(Event::Check(mk.clone()));
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), [INACTIVE]);
    assert_eq!(why(&world), "references inactive AdmissionCheck(s): mk");
    mk.active = true;
    world.tell(Event::Check(mk));
    assert_eq!(world.run(), ["a: reserved"]);
    world.tell(Event::CheckGone("mk".into()));
    assert_eq!(world.report().active.reason, "AdmissionCheckNotFound");
    assert_eq!(
        world.report().reserving,
        1,
        "those that hold quota are left alone"
    );
}

/// Not built yet, and reported instead of ignored (unlike the anchor).
///
/// Spec: multikueue 11.88; provisioning 15.50 (deviation)
#[test]
fn topologies_are_refused_with_a_way_out() {
    let mut world = World::new(cores(10));
    let mut placed = flavor("default");
    placed.topology = Some("racks".to_owned());
    world.tell(Event::Flavor(placed));
    assert_eq!(world.report().active.reason, "TopologyNotFound");
    world.tell(Event::Check(check("mk", MULTIKUEUE_CONTROLLER)));
    let mut queue = cores(10);
    queue.checks = vec![rule("mk")];
    world.tell(Event::ClusterQueue(Box::new(queue)));
    assert_eq!(
        world.report().active.reason,
        "Ready",
        "placement happens on the worker"
    );
}

/// Spec: admission-engine 2.5.2; multikueue 11.88 (deviation)
#[test]
fn pods_that_ask_for_places_by_topology_wait_unless_a_worker_places_them() {
    let placed = || {
        let mut workload = asks("a", 1, 1);
        workload.pod_sets[0].asks_topology = true;
        workload
    };
    let mut world = World::new(cores(10));
    world.put(placed());
    let told = world.run();
    assert!(
        told[0].starts_with("a: NoMatchingFlavor couldn't assign flavors"),
        "{told:?}"
    );
    world.tell(Event::Check(check("mk", MULTIKUEUE_CONTROLLER)));
    let mut queue = cores(10);
    queue.checks = vec![rule("mk")];
    world.tell(Event::ClusterQueue(Box::new(queue)));
    assert_eq!(world.run(), ["a: reserved"]);

    let mut world = World::new(cores(10));
    world.state.settings.rules.topology = Switch::Off;
    world.put(placed());
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: admission-engine 9.3 B062.
#[test]
fn lowering_a_quota_evicts_nobody_and_raising_it_wakes_the_parked() {
    let mut world = World::new(cores(10));
    world.put(asks("user", 0, 10));
    world.run();
    world.tell(Event::ClusterQueue(Box::new(cores(4))));
    world.put(asks("a", 1, 1));
    assert_eq!(world.run(), [more_needed("a", 1)]);
    assert_eq!(
        world.report().reservation[0].resources[0].total,
        Amount::new(10_000)
    );
    world.tell(Event::ClusterQueue(Box::new(cores(11))));
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: admission-engine 2.3, 9.3 B063.
#[test]
fn heads_that_cannot_work_are_told_before_flavors_are_tried() {
    let mut world = World::new(cores(10));
    let mut wrong = asks("a", 1, 1);
    wrong.problems = vec!["resources validation failed: requests must not exceed its limits".to_owned()];
    world.put(wrong);
    let mut failed = asks("b", 2, 1);
    let mut state = CheckState::pending(at(1));
    state.phase = CheckPhase::Retry;
    failed.status.checks.insert("mk".into(), state);
    world.put(failed);
    assert_eq!(
        world.run(),
        [
            "a: Misconfigured resources validation failed: requests must not exceed its limits",
            "b: PendingEvaluation The workload has failed admission checks",
        ]
    );
    world.edit("b", |w| w.status.checks.clear());
    assert_eq!(world.run(), ["b: reserved"]);
}

/// Spec: admission-engine 2.13, 9.3 B066.
#[test]
fn a_failed_reservation_frees_its_quota_and_is_tried_again() {
    let mut world = World::new(cores(1));
    world.put(asks("a", 1, 1));
    world.put(asks("b", 2, 1));
    let decisions = world.decide();
    assert!(matches!(&decisions[0], Decision::Reserve { key, .. } if *key.name == *"a"));
    let (key, uid) = (Key::new("ns", "a"), "uid-a".into());
    world.tell(Event::ReserveFailed { key, uid });
    assert_eq!(world.run()[0], "a: reserved");
}

/// Spec: admission-engine 0 (assumed workloads count as reserved).
#[test]
fn an_assumption_survives_late_events_and_ends_with_the_reservation_it_stands_for() {
    let mut world = World::new(cores(1));
    world.put(asks("a", 1, 1));
    let decisions = world.decide();
    // An explanation that was already on its way arrives late: the quota stays held.
    world.edit("a", |w| {
        w.status
            .conditions
            .set("QuotaReserved", Truth::False, "Misconfigured", "old", at(1));
    });
    assert_eq!(world.report().reserving, 1);
    assert_eq!(world.run(), [""; 0]);
    // The watch skips the reservation and shows only that it was lost again.
    assert_eq!(decisions.len(), 1);
    world.edit("a", |w| release(w, at(1_001)));
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: admission-engine 3.4, 3.6; multikueue 11.105.
#[test]
fn quota_is_released_by_finish_by_release_and_by_deletion() {
    type Ending = fn(&mut World);
    let endings: [Ending; 3] = [
        |world| world.edit("user", finish),
        |world| {
            world.edit("user", |w| {
                release(w, at(1_001));
                w.active = false;
            });
        },
        |world| {
            let (key, uid) = (Key::new("ns", "user"), "uid-user".into());
            world.tell(Event::WorkloadGone { key, uid });
        },
    ];
    for ending in endings {
        let mut world = World::new(cores(4));
        world.put(asks("user", 0, 4));
        world.put(asks("a", 1, 4));
        assert_eq!(world.run(), ["user: reserved".to_owned(), more_needed("a", 4)]);
        ending(&mut world);
        assert_eq!(world.run(), ["a: reserved"]);
        assert_eq!(world.report().reserving, 1);
    }
}

/// Spec: admission-engine 4.6, B195.
#[test]
fn reclaimable_pods_free_quota_at_once() {
    let mut world = World::new(cores(5));
    world.put(workload("user", 0, vec![pod_set("main", 5, &[("cpu", 1_000)])]));
    world.put(asks("a", 1, 2));
    assert_eq!(world.run(), ["user: reserved".to_owned(), more_needed("a", 2)]);
    world.edit("user", |w| {
        w.status.reclaimable.insert("main".into(), 2);
    });
    assert_eq!(world.run(), ["a: reserved"]);
    assert_eq!(
        world.report().reservation[0].resources[0].total,
        Amount::new(5_000),
        "three of the first and two of the second"
    );
}

/// Spec: admission-engine 9.15 B224 B225.
#[test]
fn reservation_counts_what_is_reserved_and_usage_what_is_admitted() {
    let mut world = World::new(cores(4));
    world.put(asks("a", 0, 2));
    world.run();
    let total = |totals: &[crate::report::FlavorTotal]| totals[0].resources[0].total.get();
    let report = world.report();
    assert_eq!((total(&report.reservation), total(&report.usage)), (2_000, 0));
    assert_eq!((report.reserving, report.admitted), (1, 0));
    world.state.take_changed_queues();
    world.edit("a", |w| {
        let conditions = &mut w.status.conditions;
        conditions.set("Admitted", Truth::True, "Admitted", "", at(1_000));
    });
    let (report, local) = (world.report(), world.local_report());
    assert_eq!((total(&report.usage), total(&local.usage)), (2_000, 2_000));
    assert_eq!((report.admitted, local.admitted), (1, 1));
    assert_eq!(report.usage[0].resources[0].borrowed, Amount::ZERO);
    let (cluster, local) = (ClusterQueueName::from("cq"), Key::new("ns", "lq"));
    assert_eq!(
        world.state.take_changed_queues(),
        [QueueRef::Cluster(cluster), QueueRef::Local(local)]
    );
}

/// Spec: admission-engine 9.4 B067.
#[test]
fn the_next_flavor_is_used_when_the_first_is_full() {
    let flavors: [(&str, &[(&str, i64)]); 2] = [("default", &[("cpu", 4_000)]), ("f2", &[("cpu", 10_000)])];
    let mut world = World::new(cluster_queue("cq", vec![group(&flavors)]));
    world.tell(Event::Flavor(flavor("f2")));
    world.put(asks("user", 0, 3));
    world.put(asks("a", 1, 2));
    assert_eq!(world.run(), ["user: reserved", "a: reserved"]);
    assert_eq!(
        (world.flavor_of("user"), world.flavor_of("a")),
        ("default".to_owned(), "f2".to_owned())
    );
}

/// A call of `cycle` is bounded, however many workloads wait.
#[test]
fn a_cycle_tries_a_bounded_number_of_heads_and_says_that_more_are_left() {
    let mut world = World::new(cores(10_000));
    for number in 0..=HEADS_PER_CYCLE {
        world.put(asks(&format!("w{number:04}"), 1, 1));
    }
    assert_eq!(world.state.cycle(world.now).len(), HEADS_PER_CYCLE);
    assert!(world.state.has_work());
    assert_eq!(world.state.cycle(world.now).len(), 1);
    assert!(!world.state.has_work());
}

/// A workload with a reused name is another workload.
#[test]
fn a_workload_that_was_recreated_starts_afresh() {
    let mut world = World::new(cores(4));
    world.put(asks("a", 1, 4));
    world.run();
    let mut again = asks("a", 2, 3);
    again.uid = "uid-2".into();
    world.put(again);
    assert_eq!(world.report().reserving, 0);
    let (key, uid) = (Key::new("ns", "a"), "uid-a".into());
    world.tell(Event::WorkloadGone { key, uid });
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: multikueue 4.3
#[test]
fn what_is_larger_than_every_worker_holds_up_no_other_and_is_tried_again_when_it_is_not() {
    for strategy in [Strategy::StrictFifo, Strategy::BestEffortFifo] {
        let mut queue = cores(10);
        queue.strategy = strategy;
        let mut world = World::new(queue);
        let mut wide = asks("a", 1, 6);
        wide.beyond = Some("No worker cluster can ever hold the workload".to_owned());
        world.put(wide);
        world.put(asks("b", 2, 6));
        assert_eq!(
            world.run(),
            [
                "a: ExceedsEveryWorker No worker cluster can ever hold the workload",
                "b: reserved"
            ],
            "{strategy:?}"
        );
        world.edit("b", finish);
        assert_eq!(world.run(), [""; 0], "{strategy:?}");
        world.edit("a", |workload| workload.beyond = None);
        assert_eq!(world.run(), ["a: reserved"], "{strategy:?}");
    }
}
