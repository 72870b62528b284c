//! Making room for others.

use super::super::*;
use super::world::{NOW, World, admission, at, job, pending, queue, reserve, texts};
use crate::name::{CheckName, ClusterName};
use crate::preempt::PreemptReason;
use crate::status::{CheckPhase, GatePosition, PreemptionGate};

const MESSAGE: &str =
    "Preempted to accommodate a workload (UID: u2, JobUID: j2) due to prioritization in the ClusterQueue";

fn make_room() -> Proposal {
    Proposal::Evict {
        reason: "Preempted",
        preempted_reason: PreemptReason::InClusterQueue,
        message: MESSAGE.to_owned(),
        priorities: "; both 0".to_owned(),
    }
}

/// Spec: admission-engine B172, B173, B129.
#[test]
fn a_victim_keeps_its_quota_until_its_pods_stopped_and_is_then_queued_again() {
    let mut world = World::admitted();
    world.proposal = Some(make_room());
    let (_, notes) = world.pass();
    let told = format!("{MESSAGE}; both 0");
    assert_eq!(
        texts(&notes),
        [("Preempted", told.as_str()), ("EvictedDueToPreempted", MESSAGE)]
    );
    world.check_true("Evicted", "Preempted", MESSAGE);
    world.check_true("Preempted", "InClusterQueue", MESSAGE);
    assert_eq!(
        world.workload.status.admission,
        Some(admission("spot")),
        "its pods still run"
    );

    world.job = job(true, true);
    world.pass();
    assert!(world.workload.has_quota());
    world.job = job(false, true);
    world.pass();
    world.check_true("Requeued", "Preempted", MESSAGE);
    world.check_false("QuotaReserved", "PendingEvaluation", MESSAGE);
    assert_eq!(world.workload.status.admission, None);

    world.proposal = Some(reserve("spot"));
    world.pass();
    let before = format!("Previously: {MESSAGE}");
    world.check_false("Evicted", "QuotaReserved", &before);
    world.check_false("Preempted", "QuotaReserved", &before);
}

/// Spec: admission-engine B113, B176.
#[test]
fn who_is_evicted_already_is_not_evicted_again() {
    let mut world = World::admitted();
    world.proposal = Some(make_room());
    world.pass();
    let evicted = world.workload.status.clone();
    world.now += 5;
    world.proposal = Some(Proposal::Evict {
        reason: "Preempted",
        preempted_reason: PreemptReason::InCohortReclamation,
        message: "for somebody else".to_owned(),
        priorities: String::new(),
    });
    let (_, notes) = world.pass();
    assert_eq!(notes, []);
    assert_eq!(world.workload.status, evicted);
    let key = ("Preempted".to_owned(), String::new());
    assert_eq!(world.workload.status.evictions, [(key, 1)].into());
}

/// Spec: admission-engine 3.3.
#[test]
fn an_eviction_resets_what_belonged_to_the_reservation() {
    let mut world = World::new();
    world.queue = Some(queue(&[("c", &[])]));
    world.proposal = Some(reserve("spot"));
    world.pass();
    world.verdict("c", CheckPhase::Ready, "", None);
    let status = &mut world.workload.status;
    status.cluster = Some(ClusterName::from("w1"));
    status.unhealthy_nodes = vec!["n1".to_owned()];
    let open = PreemptionGate {
        position: GatePosition::Open,
        since: at(1),
    };
    status.preemption_gates = [("kueue.x-k8s.io/multikueue".to_owned(), open)].into();
    world.proposal = Some(make_room());
    world.job = job(true, false);
    world.pass();
    let status = &world.workload.status;
    let check = &status.checks[&CheckName::from("c")];
    assert_eq!(check.phase, CheckPhase::Pending);
    assert_eq!(
        check.message,
        "Reset to Pending after eviction. Previously: Ready"
    );
    assert_eq!(status.cluster, None);
    assert!(status.unhealthy_nodes.is_empty());
    let closed = PreemptionGate {
        position: GatePosition::Closed,
        since: at(NOW),
    };
    assert!(status.preemption_gates.values().all(|gate| *gate == closed));
}

/// Spec: admission-engine 2.12.
#[test]
fn who_holds_nothing_or_is_being_switched_off_makes_no_room() {
    let mut pending = World::new();
    pending.proposal = Some(make_room());
    pending.pass();
    assert_eq!(pending.workload.status, Status::default());

    let mut rejected = World::admitted();
    rejected.verdict("c", CheckPhase::Rejected, "never", None);
    rejected.queue = Some(queue(&[("c", &[])]));
    rejected.proposal = Some(make_room());
    let (next, _) = rejected.pass();
    assert_eq!(next.active, Activation::Deactivate);
    assert!(!rejected.workload.is_evicted(), "the deactivation evicts it");
}

/// Nothing of the victim runs, so its quota is free in the same write.
///
/// Spec: admission-engine 3.4.
#[test]
fn a_victim_that_is_not_admitted_is_evicted_and_released_at_once() {
    let mut world = World::new();
    world.queue = Some(queue(&[("c", &[])]));
    world.proposal = Some(reserve("spot"));
    world.pass();
    world.proposal = Some(make_room());
    world.pass();
    world.check_true("Evicted", "Preempted", MESSAGE);
    world.check_true("Requeued", "Preempted", MESSAGE);
    assert!(!world.workload.has_quota());
}

/// Spec: admission-engine 2.11, 2.16; api API-9.6.
#[test]
fn a_preemption_that_its_gate_forbids_is_told_in_a_condition_of_its_own() {
    let mut world = World::new();
    let gate = PreemptionGate {
        position: GatePosition::Closed,
        since: at(NOW),
    };
    world.workload.status.preemption_gates = [("kueue.x-k8s.io/multikueue".to_owned(), gate)].into();
    let message = "Workload requires preemption, but it's gated";
    world.proposal = Some(pending("AdmissionGated", message));
    world.pass();
    world.check_false("QuotaReserved", "AdmissionGated", message);
    world.check_true("BlockedOnPreemptionGates", "PreemptionGated", message);
    world.proposal = Some(reserve("spot"));
    world.pass();
    let blocked = world.workload.status.conditions.get("BlockedOnPreemptionGates");
    assert_eq!(blocked.unwrap().truth, Truth::False);
}
