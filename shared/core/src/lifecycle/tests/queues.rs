//! Queues that stop or go while something is reserved.

use super::super::*;
use super::world::{World, job, queue, reserve};
use crate::name::ClusterName;

/// Spec: admission-engine B048, B177.
#[test]
fn a_reservation_that_is_not_admitted_is_lost_when_its_queue_stops_or_goes() {
    let check = |change: fn(&mut World), reason: &str, message: &str| {
        let mut world = World::new();
        world.queue = Some(queue(&[("chk", &[]), ("slow", &[])]));
        world.proposal = Some(reserve("spot"));
        world.pass();
        world.proposal = None;
        world.verdict("chk", CheckPhase::Ready, "", None);
        world.workload.status.nominated = vec![ClusterName::from("w1")];
        change(&mut world);
        world.pass();
        world.check("QuotaReserved", Truth::False, reason, message);
        world.check(
            "Admitted",
            Truth::False,
            "NoReservation",
            "The workload has no reservation",
        );
        assert!(!world.workload.is_evicted());
        assert_eq!(world.workload.status.admission, None);
        assert_eq!(world.workload.status.nominated, []);
        assert!(
            world
                .workload
                .status
                .checks
                .values()
                .all(|c| c.phase == CheckPhase::Pending)
        );
    };
    let hold: fn(&mut World) = |w| w.queue.as_mut().unwrap().stop = StopPolicy::Hold;
    check(hold, "Suspended", "ClusterQueue team is stopped");
    check(
        |w| w.local_stop = Some(StopPolicy::HoldAndDrain),
        "Suspended",
        "LocalQueue tests is stopped",
    );
    check(
        |w| w.queue = None,
        "Misconfigured",
        "ClusterQueue team is terminating or missing",
    );
    check(
        |w| w.queue.as_mut().unwrap().terminating = true,
        "Misconfigured",
        "ClusterQueue team is terminating or missing",
    );
    check(
        |w| w.local_stop = None,
        "Misconfigured",
        "LocalQueue tests is terminating or missing",
    );
}

/// A worker cluster may run it while another check of this cluster still holds its admission back.
///
/// Spec: safety I4
#[test]
fn what_may_run_is_stopped_before_its_reservation_is_lost_also_when_it_is_not_admitted() {
    let mut world = World::new();
    world.queue = Some(queue(&[("chk", &[]), ("slow", &[])]));
    world.proposal = Some(reserve("spot"));
    world.pass();
    world.proposal = None;
    world.job = job(true, true);
    world.queue.as_mut().unwrap().stop = StopPolicy::Hold;
    world.pass();
    assert!(
        world.workload.status.conditions.is_true("QuotaReserved"),
        "who runs stays"
    );
    world.queue.as_mut().unwrap().stop = StopPolicy::HoldAndDrain;
    world.pass();
    world.check(
        "Evicted",
        Truth::True,
        "ClusterQueueStopped",
        "The ClusterQueue is stopped",
    );
    assert!(
        world.workload.status.conditions.is_true("QuotaReserved"),
        "until it has stopped"
    );
    world.job = job(false, true);
    world.pass();
    assert!(!world.workload.status.conditions.is_true("QuotaReserved"));
}
