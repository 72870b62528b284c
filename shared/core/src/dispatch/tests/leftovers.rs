//! Objects that remain on workers when their Workload is gone or has ended, and objects that a restart or a deleted config leaves alone.

use super::RemoteAction::{CreateWorkload, DeleteJob, DeleteWorkload, StripFinalizer};
use super::*;
use crate::cluster::link::Link;
use crate::lease::{Grant, Moment, Terms};

/// All our objects on a worker, in the order in which they go.
const ALL_GONE: [RemoteAction; 3] = [DeleteJob, StripFinalizer, DeleteWorkload];

/// Garbage collection only asks for this decision; the missing local Workload makes it.
///
/// Spec: multikueue 6, 11.80, 11.81, 11.82
#[test]
fn what_is_ours_goes_when_its_workload_is_gone_and_nothing_else_does() {
    let on_a = |there: Remote, local| {
        let mut case = Case::won().remote("a", there);
        case.local = local;
        case.plan().on("a").to_vec()
    };
    let foreign_copy = RemoteWorkload {
        origin: Origin::Foreign,
        ..admitted(1)
    };
    let foreign_job = RemoteJob {
        origin: Origin::Foreign,
        ..RUNNING
    };
    for (there, goes) in [
        (reachable(None, None), &[][..]),
        (reachable(Some(admitted(1)), Some(RUNNING)), &ALL_GONE),
        (reachable(Some(admitted(1)), None), &ALL_GONE[1..]),
        (reachable(None, Some(RUNNING)), &ALL_GONE[..1]),
        (reachable(Some(foreign_copy), Some(foreign_job)), &[]),
        (away(90), &[]),
    ] {
        assert_eq!(on_a(there.clone(), Local::Gone), goes, "{there:?}");
    }
    let there = reachable(Some(admitted(1)), Some(RUNNING));
    assert_eq!(on_a(there, Local::Present), []);
}

/// Unlike the anchor: no timer is needed, because every Workload with objects on a worker is looked at when the worker is back.
///
/// Spec: multikueue 3.3 R2, 11.66, 11.67, 10.F26
#[test]
fn what_a_worker_that_was_away_holds_of_an_ended_workload_goes_when_it_is_back() {
    let mut case = Case::won().remote("b", away(90)).condition("Finished", "x");
    case.job.finished = true;
    let plan = case.plan();
    assert!(plan.status.conditions.is_true("Finished"));
    assert_eq!(plan.on("a"), ALL_GONE);
    assert_eq!(plan.on("b"), []);
    assert_eq!(plan.wake_at, None);
    let back = case.remote("b", reachable(Some(remote()), None)).plan();
    assert_eq!(back.on("b"), &ALL_GONE[1..]);
}

/// The user deleted the job and created it again under the same name; the pods of the first job still end.
///
/// Spec: safety 1 I1, I7; multikueue 3.9
#[test]
fn a_former_job_of_the_same_name_is_waited_for_on_its_cluster_and_nowhere_else() {
    let former = RemoteJob {
        origin: Origin::Former,
        life: Life::Deleting,
        ..RUNNING
    };
    let case = Case::new()
        .nominated(&["a", "b"])
        .remote("a", reachable(None, Some(former)));
    let plan = case.plan();
    assert_eq!((plan.on("a"), plan.on("b")), (&[][..], &[CreateWorkload][..]));
    let offered = case
        .clone()
        .remote("a", reachable(Some(admitted(1)), Some(former)))
        .plan();
    assert_eq!(
        (offered.cluster(), offered.on("a")),
        (None, &ALL_GONE[1..]),
        "its copy cannot run there yet"
    );
    let elsewhere = case.remote("b", reachable(Some(admitted(1)), None)).plan();
    assert_eq!(elsewhere.cluster(), Some("b"));

    let won = Case::won().remote("a", reachable(Some(admitted(1)), Some(former)));
    let plan = won.plan();
    assert_eq!((plan.on("a"), plan.mirrors()), (&[][..], None));
    assert_eq!(plan.check().0, CheckPhase::Retry, "others may have room");
    let gone = won.remote("a", reachable(Some(admitted(1)), None));
    assert_eq!(gone.plan().on("a"), [RemoteAction::CreateJob]);
}

/// Spec: multikueue 10.F16
#[test]
fn a_copy_that_somebody_deletes_before_the_choice_is_made_again() {
    let copy = || reachable(Some(remote()), None);
    let case = Case::new().nominated(&["a", "b"]).remote("a", copy());
    assert!(case.clone().remote("b", copy()).plan().remote.is_empty());
    let plan = case.plan();
    assert_eq!((plan.on("a"), plan.on("b")), (&[][..], &[CreateWorkload][..]));
    assert_eq!(plan.check().0, CheckPhase::Pending);
}

/// Spec: multikueue 2.4, 11.75, 10.F12
#[test]
fn after_a_restart_a_lost_winner_has_the_whole_time_again() {
    let restart = 100;
    let grant = Grant::new(Moment::default(), Terms::written(600));
    let since = Link::new(at(restart), grant).lost_since().unwrap();
    let after = |minutes| {
        let silent = Remote::Unreachable {
            since,
            fence: Fence::Open,
        };
        let mut case = Case::won().remote("a", silent);
        case.lost = LostPolicy::RetryAnyway;
        case.now = restart + minutes;
        case.plan()
    };
    for minutes in [0, 10, TIMEOUT_MINS - 1] {
        let plan = after(minutes);
        assert_eq!((plan.check().0, plan.cluster()), (CheckPhase::Ready, Some("a")));
        assert_eq!(plan.wake_at, Some(at(restart + TIMEOUT_MINS)));
    }
    assert_eq!(after(TIMEOUT_MINS).check().0, CheckPhase::Retry);
}

/// Unlike the anchor, where the copies stay until the config is back.
///
/// Spec: multikueue 10.F33
#[test]
fn without_its_config_what_runs_goes_on_and_what_waits_is_offered_nowhere() {
    let mut running = Case::won();
    running.clusters.clear();
    let plan = running.plan();
    assert_eq!((plan.check().0, plan.mirrors()), (CheckPhase::Ready, Some("a")));
    assert!(plan.remote.is_empty());

    let mut waiting = Case::new()
        .nominated(&["a"])
        .remote("a", reachable(Some(remote()), None));
    waiting.clusters.clear();
    let plan = waiting.plan();
    assert!(plan.status.nominated.is_empty());
    assert_eq!(plan.waits_for(), Some("NoClusterListed"));

    waiting.status = plan.status;
    assert_eq!(waiting.plan().on("a"), &ALL_GONE[1..], "once that is stored");
    waiting.clusters = vec!["a".into()];
    let back = waiting.remote("a", reachable(None, None)).plan();
    assert_eq!(back.on("a"), [CreateWorkload]);
}

/// The answer to the copy's deletion is still under way, and the cluster has recovered from its failure.
///
/// Spec: multikueue 3.3 R6
#[test]
fn a_copy_that_was_asked_to_go_is_not_chosen_and_is_asked_again() {
    let leaving = RemoteWorkload {
        life: Life::Withdrawn,
        ..admitted(1)
    };
    let mut case = Case::new()
        .nominated(&["a", "b"])
        .remote("b", reachable(Some(leaving), None));
    let plan = case.plan();
    let asked_again = [StripFinalizer, DeleteWorkload];
    assert_eq!((plan.cluster(), plan.on("b")), (None, &asked_again[..]));
    case = case.remote("a", reachable(Some(admitted(2)), None));
    assert_eq!(case.plan().cluster(), Some("a"));
}
