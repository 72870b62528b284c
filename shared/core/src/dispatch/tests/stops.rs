//! Evictions on the manager: a run is stopped, and a job that has ended is not run again.

use super::RemoteAction::{CreateWorkload, RequestStop};
use super::*;

/// Evicted on the manager while it ran on `a`; only the stored status still names that cluster.
fn evicted(why: &str) -> Case {
    let won = Case::won();
    let mut case = won.clone().condition("Evicted", why);
    case.status.cluster = None;
    case.check().phase = CheckPhase::Pending;
    case.stored = Some(won.status);
    case
}

/// A copy that its worker has stopped at the manager's request.
fn stopped() -> RemoteWorkload {
    RemoteWorkload {
        active: false,
        admitted: None,
        evicted: Some(said("DeactivatedDueToEvictedOnManagerCluster", "x")),
        stop: Stop::Requested,
        ..remote()
    }
}

/// Spec: multikueue 3.3 R6b.2, 3.8, 10.F23, 11.72
#[test]
fn an_eviction_on_the_manager_asks_the_winner_to_stop_and_mirrors_until_it_has() {
    let case = evicted("Preempted to make room");
    let plan = case.plan();
    let message = "Evicted on manager: Preempted to make room".to_owned();
    assert_eq!(plan.on("a"), [RequestStop { message }]);
    assert_eq!((plan.mirrors(), plan.cluster()), (Some("a"), Some("a")));
    let case = case.remote("a", reachable(Some(stopped()), Some(HELD)));
    let plan = case.plan();
    assert_eq!((plan.on("a"), plan.cluster()), (&[][..], None));
    assert_eq!(plan.mirrors(), Some("a"), "so that quota is released");
}

/// Most kinds do not count pods that are being ended, so such a copy never looks as if it had no pods.
///
/// Spec: safety 1 I1; multikueue 3.8
#[test]
fn a_stopped_copy_that_does_not_count_its_last_pods_goes_after_them() {
    let untold = RemoteJob {
        pods: PodsThere::Untold,
        ..RUNNING
    };
    let message = "Evicted on manager: x".to_owned();
    let case = |copy| evicted("x").remote("a", reachable(Some(copy), Some(untold)));
    let asked = case(admitted(1)).plan();
    assert_eq!(
        asked.on("a"),
        [RequestStop { message }],
        "its worker stops it first"
    );
    let plan = case(stopped()).plan();
    let gone = [
        RemoteAction::DeleteJob,
        RemoteAction::StripFinalizer,
        RemoteAction::DeleteWorkload,
    ];
    assert_eq!((plan.on("a"), plan.stopped), (&gone[..], false));
    assert_eq!(plan.cluster(), Some("a"), "it holds the job until that is gone");
    let plan = evicted("x").remote("a", reachable(None, None)).plan();
    assert_eq!(plan.cluster(), None);
}

/// The user deleted the Workload and not the job. The copy goes once its run is known to be over.
///
/// Spec: multikueue 3.9, jobs 5.1 row 11; safety 1 I1
#[test]
fn a_workload_that_is_deleted_takes_its_run_with_it() {
    let mut case = Case::won();
    case.deleting = true;
    let plan = case.plan();
    let message = "Evicted on manager: The workload is being deleted".to_owned();
    assert_eq!(plan.on("a"), [RequestStop { message }]);
    assert_eq!(plan.mirrors(), Some("a"));
    assert_eq!(plan.cluster(), Some("a"));
    assert!(!plan.stopped);
    assert_eq!(plan.waits_for(), Some("StoppingOnWorker"));
    let lost = case.clone().remote("a", away(90)).plan();
    assert_eq!(lost.cluster(), Some("a"));
    assert_eq!(lost.waits_for(), Some("WorkerLost"));
    assert!(!lost.stopped);
    let plan = case.remote("a", reachable(Some(stopped()), Some(HELD))).plan();
    assert_eq!((plan.cluster(), plan.stopped), (None, true));
}

/// The lifecycle has deactivated and evicted the Workload for its check.
///
/// Spec: multikueue 11.46
#[test]
fn a_check_that_is_rejected_while_it_waits_takes_the_copies_back() {
    let copy = || reachable(Some(remote()), None);
    let mut case = Case::new()
        .nominated(&["a", "b"])
        .remote("a", copy())
        .remote("b", copy())
        .condition("Evicted", "rejected");
    case.check().phase = CheckPhase::Rejected;
    let gone = [RemoteAction::StripFinalizer, RemoteAction::DeleteWorkload];
    let plan = case.plan();
    assert_eq!((plan.on("a"), plan.on("b")), (&gone[..], &gone[..]));
    assert!(plan.stopped, "quota need not wait for anybody");
    case.status.conditions.remove("QuotaReserved");
    let plan = case.plan();
    assert_eq!((plan.on("a"), plan.on("b")), (&gone[..], &gone[..]));
}

/// Spec: multikueue 3.8
#[test]
fn a_job_that_is_already_going_is_let_go_once() {
    let going = RemoteJob {
        life: Life::Deleting,
        kept: true,
        ..RUNNING
    };
    let plan = evicted("switched off")
        .remote("a", reachable(None, Some(going)))
        .plan();
    assert_eq!(plan.on("a"), [RemoteAction::DeleteJob]);
}

/// The worker preempted the copy and deleted its pods, which keep the finalizer of the worker's engine as long as the Workload exists.
///
/// Spec: jobs 12.8
#[test]
fn a_group_whose_pods_are_gone_on_their_nodes_is_let_go_with_its_workload() {
    let group = |pods| {
        let job = RemoteJob {
            life: Life::Deleting,
            kept: false,
            pods,
            ..RUNNING
        };
        let preempted = RemoteWorkload {
            evicted: Some(said("Preempted", "x")),
            ..admitted(1)
        };
        evicted("the worker preempted it").remote("a", reachable(Some(preempted), Some(job)))
    };
    assert_eq!(group(PodsThere::Some).plan().on("a"), []);
    assert_eq!(
        group(PodsThere::None).plan().on("a"),
        [RemoteAction::StripFinalizer, RemoteAction::DeleteWorkload]
    );
}

/// Spec: safety 1 I11
#[test]
fn a_run_that_ended_before_it_could_be_stopped_is_the_outcome() {
    let case = evicted("switched off");
    let ends = |reason| RemoteWorkload {
        finished: Some(said(reason, "x")),
        ..admitted(1)
    };
    let late = case.clone();
    let plan = late
        .remote("a", reachable(Some(ends("Succeeded")), Some(ENDED)))
        .plan();
    assert!(plan.status.conditions.is_true("Finished"));
    assert_eq!(plan.cluster(), Some("a"));
    assert_eq!(plan.mirrors(), Some("a"));
    assert_eq!(plan.epoch, 1);

    let tidied = case.clone().remote("a", reachable(None, Some(ENDED))).plan();
    assert_eq!(
        (tidied.cluster(), tidied.mirrors(), tidied.epoch),
        (Some("a"), Some("a"), 1),
        "the local job ends first"
    );
    let lost = case
        .remote("a", reachable(Some(ends("OwnerNotFound")), None))
        .plan();
    assert!(!lost.status.conditions.is_true("Finished"));
    assert_eq!((lost.cluster(), lost.epoch), (None, 2), "that is no outcome");
}

/// Another client deletes the job while it ends, for example with its namespace.
///
/// Spec: safety 1 I11, 2 W9
#[test]
fn an_end_that_stands_only_on_the_worker_is_shown_before_its_job_goes() {
    let done = RemoteJob {
        finished: true,
        life: Life::Deleting,
        kept: true,
        ..RUNNING
    };
    let stopping = evicted("x").remote("a", reachable(None, Some(done)));
    let mut released = stopping.clone();
    released.status.conditions.remove("QuotaReserved");
    let mut queued = stopping.clone();
    queued.status.conditions.remove("Evicted");
    for case in [stopping, released, queued] {
        let plan = case.plan();
        assert_eq!(plan.on("a"), []);
        assert_eq!(plan.cluster(), Some("a"));
        assert_eq!(plan.mirrors(), Some("a"));
        assert_eq!(plan.epoch, 1);
        let mut shown = case;
        shown.job.finished = true;
        assert_eq!(shown.plan().on("a"), [RemoteAction::DeleteJob]);
    }
}

/// The manager holds the quota until the copy cannot run any more, and the worker would start the copy again.
///
/// Spec: safety I4; multikueue 13.B2
#[test]
fn an_evicted_copy_that_its_worker_could_start_again_is_removed() {
    let queued = RemoteWorkload {
        admitted: None,
        evicted: Some(said("Preempted", "x")),
        ..remote()
    };
    let case = evicted("x").remote("a", reachable(Some(queued), Some(HELD)));
    let plan = case.plan();
    assert_eq!(
        plan.on("a"),
        [
            RemoteAction::DeleteJob,
            RemoteAction::StripFinalizer,
            RemoteAction::DeleteWorkload
        ]
    );
    assert!(!plan.stopped);
    assert_eq!(plan.cluster(), Some("a"));
    assert_eq!(plan.mirrors(), Some("a"));
    let plan = case.remote("a", reachable(None, None)).plan();
    assert_eq!((plan.stopped, plan.cluster(), plan.epoch), (true, None, 2));
}

/// Spec: multikueue 11.71
#[test]
fn when_both_are_evicted_only_the_job_status_is_mirrored() {
    let evicted = RemoteWorkload {
        evicted: Some(said("Preempted", "x")),
        ..remote()
    };
    let case = Case::won().condition("Evicted", "x");
    let plan = case.remote("a", reachable(Some(evicted), Some(RUNNING))).plan();
    assert!(plan.remote.is_empty());
    assert_eq!(plan.mirrors(), Some("a"));
}

/// Spec: multikueue 10.F41, 13.B19; admission-engine 4.2
#[test]
fn a_time_limit_that_the_worker_notices_first_ends_the_workload_and_is_not_run_elsewhere() {
    let copy = RemoteWorkload {
        evicted: Some(said("DeactivatedDueToMaximumExecutionTimeExceeded", "x")),
        active: false,
        admitted: None,
        ..remote()
    };
    let mut case = Case::won().remote("a", reachable(Some(copy), Some(RUNNING)));
    case.max_execution_secs = Some(60);
    case.status.accumulated_secs = Some(20);
    let plan = case.plan();
    let target = plan.status.conditions.when_true("DeactivationTarget").unwrap();
    assert_eq!(&*target.reason, "MaximumExecutionTimeExceeded");
    assert_eq!(&*target.message, "exceeding the maximum execution time");
    assert_eq!(plan.status.accumulated_secs, None);
    assert_eq!(plan.notes.len(), 1);
    assert_eq!(
        (plan.check().0, plan.cluster(), plan.mirrors()),
        (CheckPhase::Ready, Some("a"), Some("a")),
        "quota is held until it has stopped"
    );
    assert!(plan.failed.is_empty(), "nothing is wrong with the worker");

    case.status = plan.status;
    assert!(case.plan().notes.is_empty(), "it is said once");
}

/// Spec: multikueue 3.4
#[test]
fn a_cluster_name_that_an_administrator_has_cleared_is_not_written_back() {
    let mut cleared = Case::new().remote("a", away(1)).nominated(&["a", "b"]);
    let plan = cleared.plan();
    assert_eq!((plan.cluster(), plan.on("b")), (None, &[CreateWorkload][..]));
    cleared = cleared.condition("Evicted", "off");
    let plan = cleared.plan();
    assert_eq!(
        (plan.cluster(), plan.stopped),
        (None, true),
        "nothing holds its quota"
    );
    // A run that the administrator wrongly gave up is stopped before the job is sent elsewhere.
    let back = cleared
        .clone()
        .remote("a", reachable(Some(admitted(1)), Some(RUNNING)));
    let plan = back.plan();
    assert_eq!((plan.cluster(), plan.stopped), (None, false));
    assert!(matches!(plan.on("a"), [RequestStop { .. }]), "{:?}", plan.on("a"));
}
