//! How often a check was tried again.

use super::super::*;
use super::world::{World, at, queue};
use crate::name::CheckName;

/// Only a retry counts, a rejection still shows how often the check was retried, and a reactivated Workload begins at zero.
///
/// Spec: provisioning 15.28, 15.35, 15.41.
#[test]
fn an_eviction_counts_retries_and_forgets_them_with_every_other_verdict() {
    let after = |phase, retry_count| {
        let mut status = Status::default();
        let mut check = CheckState::pending(at(1));
        (check.phase, check.retry_count) = (phase, retry_count);
        status.checks.insert(CheckName::from("chk"), check);
        evict::reset_checks(&mut status, evict::AFTER_EVICTION, at(2), |_| true);
        let check = &status.checks[&CheckName::from("chk")];
        assert_eq!(check.phase, CheckPhase::Pending);
        check.retry_count
    };
    assert_eq!(after(CheckPhase::Retry, None), Some(1));
    assert_eq!(after(CheckPhase::Retry, Some(2)), Some(3));
    assert_eq!(after(CheckPhase::Ready, Some(2)), None, "preempted, say");
    assert_eq!(after(CheckPhase::Rejected, Some(3)), Some(3), "switched off");

    let mut world = World::new();
    world.queue = Some(queue(&[("chk", &[])]));
    world.reserve();
    world.verdict("chk", CheckPhase::Retry, "no room", Some(30));
    world.pass();
    world.now += 30;
    world.pass();
    world.reserve();
    let name = CheckName::from("chk");
    let check = world.workload.status.checks.get_mut(&name).unwrap();
    (check.phase, check.requeue_after_secs) = (CheckPhase::Rejected, None);
    world.pass();
    world.workload.active = false;
    world.pass();
    let check = &world.workload.status.checks[&name];
    assert_eq!((check.retry_count, check.requeue_after_secs), (Some(1), None));
    world.workload.active = true;
    world.pass();
    assert_eq!(world.workload.status.checks[&name].retry_count, None);
}
