//! Queues that stop or go while something is reserved.

use super::super::*;
use super::world::{NOW, World, at, job, pending, queue, reserve, texts};
use crate::condition::Conditions;
use crate::name::ClusterName;

/// Spec: admission-engine B048, B177.
#[test]
fn a_reservation_that_is_not_admitted_is_lost_when_its_queue_stops_or_goes() {
    let check = |change: fn(&mut World), reason: &str, message: &str| {
        let mut world = World::new();
        world.queue = Some(queue(&[("chk", &[]), ("slow", &[])]));
        world.reserve();
        world.verdict("chk", CheckPhase::Ready, "", None);
        world.workload.status.nominated = vec![ClusterName::from("w1")];
        change(&mut world);
        world.pass();
        world.check_false("QuotaReserved", reason, message);
        world.has_no_reservation();
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

/// A worker cluster may run it while another check of this cluster still delays its admission.
///
/// Spec: safety I4
#[test]
fn what_may_run_is_stopped_before_its_reservation_is_lost_also_when_it_is_not_admitted() {
    let mut world = World::new();
    world.queue = Some(queue(&[("chk", &[]), ("slow", &[])]));
    world.reserve();
    world.job = job(true, true);
    world.queue.as_mut().unwrap().stop = StopPolicy::Hold;
    world.pass();
    assert!(world.workload.has_quota(), "a running job stays");
    world.queue.as_mut().unwrap().stop = StopPolicy::HoldAndDrain;
    world.pass();
    world.check_true("Evicted", "ClusterQueueStopped", "The ClusterQueue is stopped");
    assert!(world.workload.has_quota(), "until it has stopped");
    world.job = job(false, true);
    world.pass();
    assert!(!world.workload.has_quota());
}

/// Spec: admission-engine 3.7. A reservation that an administrator writes by hand waits for no check and is admitted, whether its queues
/// exist or not; after that only an eviction or a stop takes it away.
#[test]
fn a_reservation_without_outstanding_checks_is_admitted_although_its_queue_is_missing() {
    let gone: [fn(&mut World); 3] = [
        |world| world.queue = None,
        |world| world.queue.as_mut().unwrap().terminating = true,
        |world| world.local_stop = None,
    ];
    for remove in gone {
        let mut world = World::new();
        world.queue = Some(queue(&[]));
        world.reserve();
        let mut by_hand = Conditions::default();
        by_hand.set("QuotaReserved", Truth::True, "ByHand", "", at(NOW));
        world.workload.status.conditions = by_hand;
        remove(&mut world);
        world.pass();
        world.check_true("Admitted", "Admitted", "The workload is admitted");
        world.pass();
        world.check_true("Admitted", "Admitted", "The workload is admitted");
        assert!(world.workload.has_quota());
    }
}

/// Spec: admission-engine 3.7
#[test]
fn a_reservation_in_a_missing_queue_is_not_admitted_for_the_moment_until_the_other_queue_drains_it() {
    let mut world = World::new();
    world.queue = Some(queue(&[]));
    world.reserve();
    let mut by_hand = Conditions::default();
    by_hand.set("QuotaReserved", Truth::True, "ByHand", "", at(NOW));
    world.workload.status.conditions = by_hand;
    world.queue = None;
    world.local_stop = Some(StopPolicy::HoldAndDrain);
    world.pass();
    assert!(!world.workload.has_quota());
    assert!(!world.workload.is_evicted());
}

/// Spec: api API-14. Gate `UnadmittedWorkloadsExplicitStatus`.
#[test]
fn what_nothing_was_decided_about_says_so_at_once_where_that_is_asked_for() {
    let mut world = World::new();
    world.pass();
    assert_eq!(world.workload.status.conditions.get("QuotaReserved"), None);
    assert_eq!(world.workload.status.conditions.get("Admitted"), None);
    world.policy.first_status = FirstStatus::AtOnce;
    world.pass();
    let message = "Workload is pending evaluation in the scheduling queue";
    world.check_false("QuotaReserved", "PendingEvaluation", message);
    world.has_no_reservation();
}

/// Spec: api API-9.6
#[test]
fn what_is_deactivated_waits_for_that_reason() {
    let mut world = World::new();
    world.workload.active = false;
    world.pass();
    world.check_false("QuotaReserved", "Deactivated", "The workload is deactivated");
    let mut world = World::admitted();
    world.workload.active = false;
    world.pass();
    world.job = job(false, true);
    world.pass();
    world.check_false("QuotaReserved", "Deactivated", "The workload is deactivated");
    world.check_true("Evicted", "Deactivated", "The workload is deactivated");
}

/// Spec: multikueue 4.3
#[test]
fn what_is_larger_than_every_worker_gives_its_reservation_back_unless_it_is_admitted() {
    let beyond = || Some("too large".to_owned());
    let lost = |world: &World| {
        let quota = world.workload.status.conditions.get(QUOTA_RESERVED).unwrap();
        assert!(world.workload.status.admission.is_none());
        (quota.truth, quota.reason.to_string(), quota.message.clone())
    };
    let told = (
        Truth::False,
        "ExceedsEveryWorker".to_owned(),
        "too large".to_owned(),
    );
    let mut proposed = World::new();
    proposed.workload.beyond = beyond();
    proposed.proposal = Some(reserve("spot"));
    proposed.pass();
    assert_eq!(lost(&proposed), told, "it was proposed before that was known");

    let mut reserved = World::admitted();
    let conditions = &mut reserved.workload.status.conditions;
    conditions.set(ADMITTED, Truth::False, "UnsatisfiedAdmissionChecks", "m", at(NOW));
    reserved.job = job(false, true);
    reserved.workload.beyond = beyond();
    reserved.pass();
    assert_eq!(lost(&reserved), told);
    assert!(!reserved.workload.is_evicted());

    let mut admitted = World::admitted();
    admitted.workload.beyond = beyond();
    admitted.pass();
    assert!(admitted.workload.has_quota() && !admitted.workload.is_evicted());
}

/// Spec: admission-engine 1.1
#[test]
fn admission_gates_are_told_once_and_so_is_their_end() {
    let mut world = World::new();
    world.queue = Some(queue(&[]));
    world.workload.gated_by = "x.io/a,x.io/b".to_owned();
    world.proposal = Some(pending("AdmissionGated", "Admission is gated by: x.io/a,x.io/b"));
    let (_, notes) = world.pass();
    let text = "Workload admission is gated by: x.io/a,x.io/b";
    assert_eq!(notes, [Note::normal("AdmissionGated", text)]);
    world.workload.gated_by = "x.io/b".to_owned();
    world.proposal = Some(pending("AdmissionGated", "Admission is gated by: x.io/b"));
    let (_, notes) = world.pass();
    assert_eq!(notes, []);
    let gated = world.workload.clone();
    world.workload.gated_by = String::new();
    world.proposal = Some(pending("WaitingForQuota", "insufficient quota"));
    let (_, notes) = world.pass();
    let cleared = (
        "AdmissionGateCleared",
        "Admission gate cleared, workload is now admissible",
    );
    assert_eq!(
        texts(&notes),
        [cleared, ("WaitingForQuota", "insufficient quota")]
    );
    world.workload = gated;
    world.workload.gated_by = String::new();
    world.proposal = Some(reserve("spot"));
    let (_, notes) = world.pass();
    assert_eq!(texts(&notes).first(), Some(&cleared));
    assert!(world.workload.has_quota());
}
