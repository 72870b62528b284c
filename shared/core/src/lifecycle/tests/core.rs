//! A process whose controller `core` is switched off.

use super::super::*;
use super::world::{World, ended, job, queue, reserve};

fn without_core() -> World {
    let mut world = World::new();
    world.policy.core = Core::Off;
    world
}

/// Spec: admission-engine 2.13
#[test]
fn without_core_what_asks_for_no_check_is_admitted_and_its_end_is_told() {
    let mut world = without_core();
    world.queue = Some(queue(&[]));
    world.proposal = Some(reserve("spot"));
    world.pass();
    world.check_true("Admitted", "Admitted", "The workload is admitted");
    world.proposal = None;
    ended(&mut world, true);
    world.pass();
    world.check_true("Finished", "Succeeded", "done");
}

/// Spec: admission-engine 3.2, 3.7
#[test]
fn without_core_checks_and_stopped_queues_take_nothing_away() {
    let mut world = without_core();
    world.queue = Some(queue(&[("a", &[])]));
    world.reserve();
    assert!(world.workload.has_quota());
    assert!(
        !world.workload.status.conditions.is_true("Admitted"),
        "no controller handles its check"
    );

    let mut admitted = World::admitted();
    admitted.policy.core = Core::Off;
    admitted.verdict("a", CheckPhase::Retry, "m", None);
    admitted.local_stop = Some(StopPolicy::HoldAndDrain);
    admitted.workload.active = false;
    admitted.job = job(false, false);
    admitted.pass();
    assert!(admitted.workload.has_quota() && !admitted.workload.is_evicted());
}
