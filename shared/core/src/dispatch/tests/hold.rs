//! The run of a Workload whose ClusterQueue names another MultiKueue check, or none.

use super::RemoteAction::{DeleteJob, DeleteWorkload, RequestStop, StripFinalizer};
use super::*;
use crate::lifecycle::ADMITTED;

/// Admitted and running on `a`.
fn running() -> Case {
    Case::won().condition(ADMITTED, "")
}

/// The ClusterQueue names a new check; the entry of the old one is gone.
fn renamed() -> Case {
    let mut case = running();
    let stored = case.status.clone();
    *case.check() = CheckState::pending(at(99));
    case.stored = Some(stored);
    case
}

fn is_ours(name: &CheckName) -> bool {
    name.as_str().starts_with(CHECK)
}

fn without_check(mut case: Case) -> Case {
    case.ours = None;
    case.status.checks.clear();
    case
}

/// Spec: safety 1 I1
#[test]
fn where_it_runs_is_not_forgotten_before_anything_is_known() {
    let stored = running().status;
    let mut status = Status::default();
    hold(&stored, &mut status);
    assert_eq!(status.cluster, Some("a".into()));
    assert_eq!(status.checks, stored.checks, "the check may still be ours");
    assert_eq!(
        status.conditions,
        Status::default().conditions,
        "nothing else is said"
    );
    let mut unplaced = Status::default();
    hold(&Case::new().status, &mut unplaced);
    assert_eq!(unplaced, Status::default());
}

/// Spec: multikueue 3.3 R6b
#[test]
fn another_check_follows_the_run_where_it_is() {
    let plan = renamed().plan();
    assert_eq!(
        plan.check(),
        (CheckPhase::Ready, "The workload was admitted on \"a\"")
    );
    assert_eq!((plan.cluster(), plan.mirrors()), (Some("a"), Some("a")));
    assert_eq!((plan.on("a"), plan.on("b")), (&[][..], &[][..]));
    assert_eq!(plan.epoch, 1);
    let lost = renamed().remote("a", away(1)).plan();
    assert_eq!(
        (lost.cluster(), lost.waits_for()),
        (Some("a"), Some("WorkerLost"))
    );
    let gone = renamed().remote("a", reachable(None, None)).plan();
    assert_eq!(gone.check().0, CheckPhase::Retry, "it runs nowhere");
}

/// After an eviction the same facts mean a run that is being stopped.
///
/// Spec: safety 1 I1
#[test]
fn a_run_that_was_evicted_is_not_followed_under_another_check() {
    let mut case = renamed();
    case.status.conditions.remove(ADMITTED);
    let plan = case.plan();
    assert_eq!(plan.on("a"), [DeleteJob, StripFinalizer, DeleteWorkload]);
    assert_eq!(
        (plan.cluster(), plan.waits_for()),
        (Some("a"), Some("StoppingOnWorker"))
    );
}

/// Spec: safety 1 I1
#[test]
fn the_entry_stays_while_a_cluster_holds_the_workload() {
    let stored = running().status;
    let composed = || {
        let mut status = stored.clone();
        status.checks.clear();
        status
    };
    let mut kept = composed();
    keep_check(&stored, &mut kept, is_ours, at(100));
    assert_eq!(kept, stored);

    let mut replaced = composed();
    replaced.checks.insert("mk2".into(), CheckState::pending(at(99)));
    let before = replaced.clone();
    keep_check(&stored, &mut replaced, is_ours, at(100));
    assert_eq!(replaced, before, "the new check follows the run");

    let mut evicted = composed();
    evicted
        .conditions
        .set("Evicted", Truth::True, "Preempted", "", at(99));
    keep_check(&stored, &mut evicted, is_ours, at(100));
    assert_eq!(
        evicted.checks[&CheckName::from(CHECK)],
        CheckState::pending(at(100))
    );

    let mut unplaced = composed();
    keep_check(&Case::new().status, &mut unplaced, is_ours, at(100));
    assert_eq!(unplaced.checks.len(), 0);
}

/// An administrator deletes the AdmissionCheck itself.
///
/// Spec: safety 1 I1
#[test]
fn without_its_check_a_run_goes_on_and_can_be_stopped() {
    let plan = without_check(running()).plan();
    assert_eq!((plan.cluster(), plan.mirrors()), (Some("a"), Some("a")));
    assert_eq!((plan.on("a"), plan.stopped), (&[][..], false));

    let evicted = without_check(running().condition("Evicted", "x"));
    let plan = evicted.plan();
    let message = "Evicted on manager: x".to_owned();
    assert_eq!(plan.on("a"), [RequestStop { message }]);
    assert_eq!((plan.cluster(), plan.stopped), (Some("a"), false));
    let over = evicted.remote("a", reachable(None, None)).plan();
    assert_eq!((over.cluster(), over.stopped, over.epoch), (None, true, 2));

    let mut released = without_check(running());
    released.status.conditions.remove("QuotaReserved");
    let plan = released.plan();
    assert_eq!(plan.on("a"), [DeleteJob, StripFinalizer, DeleteWorkload]);
    assert_eq!(plan.cluster(), Some("a"));
}

/// The job of a Workload that was never placed may run in the manager's own cluster.
#[test]
fn nothing_is_said_about_a_workload_that_no_cluster_holds() {
    let local = without_check(Case::new().condition(ADMITTED, "").condition("Evicted", "x"));
    let plan = local.plan();
    assert_eq!(
        (plan.stopped, plan.mirrors(), plan.remote.len()),
        (false, None, 0)
    );
}

/// An administrator gives a queue its first MultiKueue check while jobs of the queue run in the manager's own cluster.
///
/// Spec: safety 1 I1
#[test]
fn what_was_admitted_here_before_its_queue_named_the_check_is_offered_to_nobody_and_not_rejected() {
    let mut here = Case::new().condition(ADMITTED, "");
    here.owner = Owner::NotManaged {
        field: "spec.managedBy".to_owned(),
        value: String::new(),
    };
    for owner in [Owner::Managed, here.owner.clone()] {
        let case = Case {
            owner,
            ..here.clone()
        };
        let plan = case.plan();
        assert_eq!(plan.check(), (CheckPhase::Pending, ""));
        assert_eq!((plan.nominated().len(), plan.remote.len()), (0, 0));
    }
    let offered = here.remote("a", reachable(Some(admitted(1)), None));
    for case in [offered.clone(), without_check(offered)] {
        assert_eq!(
            case.plan().on("a"),
            [StripFinalizer, DeleteWorkload],
            "it runs here"
        );
    }
}
