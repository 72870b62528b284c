use super::RemoteAction::{
    CreateJob, CreateWorkload, DeleteJob, DeleteWorkload, SetPriority, StripFinalizer,
};
use super::*;

const GONE: [RemoteAction; 2] = [StripFinalizer, DeleteWorkload];
const ALL_GONE: [RemoteAction; 3] = [DeleteJob, StripFinalizer, DeleteWorkload];

fn foreign() -> RemoteWorkload {
    RemoteWorkload {
        origin: Origin::Foreign,
        ..admitted(1)
    }
}

fn finished(reason: &str) -> RemoteWorkload {
    RemoteWorkload {
        finished: Some(said(reason, "the end")),
        ..admitted(1)
    }
}

/// Spec: multikueue 3.3 R8, 4, 11.28, 11.29
#[test]
fn it_is_offered_to_every_connected_cluster_in_the_order_of_names() {
    let plan = Case::new().plan();
    assert_eq!(plan.nominated(), ["a", "b"]);
    assert_eq!(plan.on("a"), [CreateWorkload]);
    assert_eq!(plan.on("b"), [CreateWorkload]);
    assert_eq!(plan.waits_for(), Some("WaitingForWorkers"));
}

/// Spec: multikueue 11.36
#[test]
fn the_same_nominations_in_another_order_are_not_written() {
    let plan = Case::new().nominated(&["b", "a"]).plan();
    assert_eq!(plan.nominated(), ["b", "a"]);
}

/// Spec: multikueue 11.34, 11.35, 3.16
#[test]
fn a_worker_that_comes_back_is_offered_the_workload() {
    let away = Case::new().remote("b", away(1));
    let plan = away.plan();
    assert_eq!(plan.nominated(), ["a"]);
    assert_eq!((plan.on("a"), plan.on("b")), (&[CreateWorkload][..], &[][..]));
    assert_eq!(
        away.nominated(&["a"])
            .remote("b", reachable(None, None))
            .plan()
            .on("b"),
        [CreateWorkload]
    );
}

/// Spec: multikueue 3.3 R8, 11.37
#[test]
fn nothing_is_offered_before_the_other_checks_are_ready() {
    let mut case = Case::new();
    case.status
        .checks
        .insert("other".into(), CheckState::pending(at(0)));
    let plan = case.plan();
    assert!(plan.remote.is_empty() && plan.status.nominated.is_empty());
    assert_eq!(plan.waits_for(), Some("OtherChecksNotReady"));
    assert!(plan.waiting.unwrap().to_string().contains("\"other\""));
}

/// Spec: multikueue 6 (`QuotaReserved` and not `Evicted`)
#[test]
fn nothing_is_offered_without_quota_or_while_evicted() {
    let evicted = Case::new().condition("Evicted", "preempted").plan();
    assert!(evicted.remote.is_empty() && evicted.status.nominated.is_empty());
    let mut case = Case::new();
    case.status.conditions.remove("QuotaReserved");
    assert!(case.plan().remote.is_empty());
}

/// Spec: multikueue 11.39
#[test]
fn a_cluster_that_is_new_in_the_config_is_offered_what_waits() {
    let mut case = Case::new()
        .nominated(&["a"])
        .remote("a", reachable(Some(remote()), None));
    case.clusters = names(&["a"]);
    assert!(case.plan().remote.is_empty());
    case.clusters = names(&["a", "b"]);
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["a", "b"]);
    assert_eq!((plan.on("a"), plan.on("b")), (&[][..], &[CreateWorkload][..]));
}

/// The manager plans for each worker in a separate queue, which may not have seen the admission that the choosing pass saw. Such a queue
/// would delete the copy that is being chosen.
///
/// Spec: multikueue 11.31; safety 3 (the decision comes before the job); provisioning 15.53
#[test]
fn the_first_admitted_worker_wins_and_nothing_is_done_before_that_is_written() {
    let case = Case::new().nominated(&["a", "b"]);
    let case = case.remote("a", reachable(Some(admitted(1)), None));
    let mut case = case.remote("b", reachable(Some(remote()), None));
    let plan = case.plan();
    assert_eq!(
        plan.check(),
        (CheckPhase::Ready, "The workload was admitted on \"a\"")
    );
    assert_eq!(plan.cluster(), Some("a"));
    assert!(plan.status.nominated.is_empty());
    assert!(
        plan.remote.is_empty(),
        "and \"b\" loses nothing: {:?}",
        plan.remote
    );
    let note = &plan.notes[0];
    assert_eq!(note.severity, Severity::Routine);
    assert_eq!(note.reason.as_ref(), "MultiKueue");
    // The write was lost: the plan decides the same again, and still creates no job.
    assert_eq!(case.plan(), plan);
    case.status = plan.status;
    let next = case.plan();
    assert_eq!((next.on("a"), next.on("b")), (&[CreateJob][..], &GONE[..]));
    assert!(next.notes.is_empty());
}

/// Spec: safety 2 W2, multikueue 10.F15, 11.32
#[test]
fn clocks_of_workers_are_not_compared() {
    for minute in [1, 50] {
        let case = Case::new().nominated(&["a", "b"]);
        let case = case.remote("a", reachable(Some(admitted(1)), None));
        let plan = case.remote("b", reachable(Some(admitted(minute)), None)).plan();
        assert_eq!(plan.cluster(), Some("b"), "first in config order");
        assert!(plan.remote.is_empty(), "no job yet: {:?}", plan.remote);
    }
}

/// Spec: multikueue 1.6 (webhook), 11.41
#[test]
fn a_worker_that_was_not_nominated_does_not_win_until_it_is() {
    let mut case = Case::new().remote("a", reachable(Some(admitted(1)), None));
    let plan = case.plan();
    assert_eq!(plan.cluster(), None);
    assert_eq!(plan.nominated(), ["a", "b"]);
    case.status = plan.status;
    assert_eq!(case.plan().cluster(), Some("a"));
}

/// Spec: multikueue 11.29, 11.30, 11.86; provisioning 15.54
#[test]
fn a_worker_that_only_reserved_quota_ends_nothing() {
    let reserved = RemoteWorkload {
        answer: Answer::Reserved,
        ..remote()
    };
    let case = Case::fresh()
        .nominated(&["a", "b"])
        .remote("a", reachable(Some(reserved), None));
    let plan = case.remote("b", reachable(Some(remote()), None)).plan();
    assert!(plan.remote.is_empty());
    assert_eq!(plan.cluster(), None);
    assert_eq!(
        plan.waiting.unwrap().to_string(),
        "waiting for checks on \"a\", waiting for quota on \"b\""
    );
    assert_eq!(
        plan.status.checks[&CheckName::from(CHECK)].message,
        "",
        "b has not answered yet"
    );
}

/// Spec: experience P4
#[test]
fn the_check_says_why_it_waits_once_every_worker_has_answered() {
    let turned_down = RemoteWorkload {
        answer: Answer::TurnedDown,
        ..remote()
    };
    let case = Case::new()
        .nominated(&["a", "b"])
        .remote("a", reachable(Some(turned_down.clone()), None));
    let plan = case.remote("b", reachable(Some(turned_down), None)).plan();
    assert_eq!(
        plan.check(),
        (CheckPhase::Pending, "waiting for quota on \"b\", \"a\"")
    );
    assert!(plan.remote.is_empty() && plan.cluster().is_none());
}

/// Spec: safety 2 W1, W4, W5
#[test]
fn only_the_winner_is_heard() {
    for other in [admitted(0), finished("Succeeded"), finished("OutOfSync")] {
        let evicted = RemoteWorkload {
            evicted: Some(said("Preempted", "x")),
            ..other.clone()
        };
        for other in [other, evicted] {
            let plan = Case::won().remote("b", reachable(Some(other), None)).plan();
            assert_eq!(plan.status, Case::won().status);
            assert_eq!(plan.on("b"), GONE);
            assert_eq!(plan.mirrors(), Some("a"));
        }
    }
    let plan = Case::won()
        .remote("b", reachable(Some(admitted(0)), Some(RUNNING)))
        .plan();
    assert_eq!(plan.on("b"), ALL_GONE);
}

/// Spec: safety 2 W1 (the reproduction), multikueue 10.F42
#[test]
fn a_stale_admission_elsewhere_is_not_followed_while_the_winner_is_away() {
    let case = Case::won().remote("a", away(99));
    let plan = case.remote("b", reachable(Some(admitted(0)), None)).plan();
    assert_eq!(plan.cluster(), Some("a"));
    assert_eq!(plan.on("b"), GONE);
}

/// Spec: multikueue 11.60, safety 3.7
#[test]
fn the_end_is_mirrored_before_the_remote_job_goes() {
    let mut case = Case::won().remote("a", reachable(Some(finished("Succeeded")), Some(ENDED)));
    let plan = case.plan();
    let condition = plan.status.conditions.when_true("Finished").unwrap();
    assert_eq!(condition.reason.as_ref(), "Succeeded");
    assert_eq!(condition.message.as_str(), "the end");
    assert_eq!((plan.mirrors(), plan.on("a")), (Some("a"), &[][..]));
    case.status = plan.status;
    let plan = case.plan();
    assert_eq!(
        (plan.mirrors(), plan.on("a")),
        (Some("a"), &[][..]),
        "after a crash"
    );
    case.job.finished = true;
    assert_eq!(case.plan().on("a"), ALL_GONE);
}

/// Spec: safety 2 W9
#[test]
fn a_finished_job_whose_workload_was_tidied_away_is_not_run_again() {
    let plan = Case::won().remote("a", reachable(None, Some(ENDED))).plan();
    assert_eq!((plan.check().0, plan.mirrors()), (CheckPhase::Ready, Some("a")));
    let plan = Case::won()
        .remote("a", reachable(Some(finished("Succeeded")), None))
        .plan();
    assert!(plan.status.conditions.is_true("Finished"));
    assert!(plan.remote.is_empty(), "no job is created to mirror it");
    let mut case = Case::won().remote("a", reachable(Some(finished("Succeeded")), None));
    case.status = plan.status;
    let plan = case.plan();
    assert!(
        plan.conclude,
        "the local job ends although there is no status to copy"
    );
    assert_eq!(plan.on("a"), GONE);
    case.job.finished = true;
    assert!(!case.plan().conclude);
}

/// Spec: multikueue 11.60 (Workload and job come by different watches)
#[test]
fn a_job_that_lags_behind_its_workload_is_waited_for_a_while() {
    let mut case = Case::won().remote("a", reachable(Some(finished("Succeeded")), Some(RUNNING)));
    case.status = case.plan().status;
    let plan = case.plan();
    assert_eq!(plan.mirrors(), Some("a"));
    assert!(!plan.conclude);
    assert_eq!(plan.on("a"), []);
    assert_eq!(plan.wake_at, Some(later(at(case.now), LAST_STATUS_WAIT)));
    case.now += 1;
    assert_eq!((case.plan().conclude, case.plan().on("a")), (true, &ALL_GONE[..]));
}

/// Spec: multikueue 11.61, 11.61b, 11.63
#[test]
fn a_false_end_of_the_winner_is_a_retry() {
    for (reason, cause) in [
        ("OutOfSync", Cause::OutOfSync),
        ("OwnerNotFound", Cause::OwnerNotFound),
    ] {
        let plan = Case::won()
            .remote("a", reachable(Some(finished(reason)), None))
            .plan();
        let text = "Remote workload on worker cluster \"a\" is out of sync with its user job, resetting for \
                    re-dispatch, Previously: \"Ready\"";
        assert_eq!(plan.check(), (CheckPhase::Retry, text));
        assert_eq!(plan.notes[0].severity, Severity::Warning);
        assert!(!plan.status.conditions.is_true("Finished"));
        assert_eq!(plan.failed, [("a".into(), cause)]);
    }
}

/// Spec: multikueue 11.62, 13.B1, B18, 10.F20, 10.F40
#[test]
fn before_the_choice_a_failure_removes_one_candidate() {
    let rejected = RemoteWorkload {
        active: false,
        ..remote()
    };
    let drifted = RemoteWorkload {
        drift: Drift::Spec,
        ..remote()
    };
    let failures = [
        (finished("OutOfSync"), Cause::OutOfSync),
        (finished("OwnerNotFound"), Cause::OwnerNotFound),
        (finished("Succeeded"), Cause::FinishedEarly),
        (rejected, Cause::Rejected),
        (drifted, Cause::SpecDrift),
    ];
    for (copy, cause) in failures {
        let words = copy.finished.as_ref().map(|end| end.message.clone());
        let words = words.filter(|words| !words.is_empty());
        let case = Case::new()
            .nominated(&["a", "b"])
            .remote("a", reachable(Some(copy), None));
        let plan = case.plan();
        assert_eq!((plan.on("a"), plan.on("b")), (&GONE[..], &[CreateWorkload][..]));
        assert_eq!(plan.nominated(), ["b"]);
        assert_eq!(plan.failed, [("a".into(), cause)]);
        assert_eq!(plan.words.get(&"a".into()).cloned(), words);
        assert!(!plan.status.conditions.is_true("Finished"));
    }
}

/// Spec: safety 1 I7, multikueue 10.F21, 11.64, 11.65
#[test]
fn what_is_foreign_is_never_touched_and_never_chosen() {
    let foreign_job = RemoteJob {
        origin: Origin::Foreign,
        ..RUNNING
    };
    let case = Case::new().nominated(&["a", "b"]);
    let case = case.remote("a", reachable(Some(foreign()), Some(foreign_job)));
    let plan = case.plan();
    assert_eq!((plan.on("a"), &plan.status.nominated), (&[][..], &names(&["b"])));
    assert_eq!(plan.failed, [("a".into(), Cause::NameConflict)]);
    assert_eq!(
        case.remote("b", away(1)).plan().waits_for(),
        Some("NameConflictOnCluster")
    );
    for copy in [admitted(1), finished("Succeeded")] {
        let case = Case::won().remote("a", reachable(Some(copy), Some(foreign_job)));
        let plan = case.plan();
        assert_eq!(plan.check().0, CheckPhase::Retry);
        assert_eq!(plan.on("a"), []);
        assert_eq!(plan.mirrors(), None);
        assert!(!plan.status.conditions.is_true("Finished"));
    }
    let mut gone = Case::won().remote("b", reachable(Some(foreign()), Some(foreign_job)));
    gone.local = Local::Gone;
    assert_eq!(gone.plan().on("a"), ALL_GONE);
    assert_eq!(gone.plan().on("b"), []);
}

/// Spec: multikueue 11.69, 3.3 R4, 13.B6; provisioning 15.55
#[test]
fn an_eviction_by_the_winner_is_a_retry() {
    let evicted = |reason| RemoteWorkload {
        evicted: Some(said(reason, "x")),
        admitted: None,
        ..remote()
    };
    let plan = Case::won()
        .remote("a", reachable(Some(evicted("Preempted")), Some(RUNNING)))
        .plan();
    let text = "Workload evicted on worker cluster: \"a\", resetting for re-admission. Previously: \"Ready\"";
    assert_eq!(plan.check(), (CheckPhase::Retry, text));
    assert_eq!(plan.mirrors(), Some("a"));
    assert_eq!(
        plan.failed,
        [("a".into(), Cause::Evicted)],
        "it is not offered there again at once"
    );
    let copy = evicted("DeactivatedDueToAdmissionCheck");
    let plan = Case::won().remote("a", reachable(Some(copy), None)).plan();
    assert_eq!(plan.check(), (CheckPhase::Retry, text));
    assert_eq!(plan.failed, [("a".into(), Cause::Rejected)]);
}

/// Spec: multikueue 11.70, provisioning 12 (Retry before a win)
#[test]
fn an_eviction_before_the_choice_changes_nothing() {
    let evicted = RemoteWorkload {
        evicted: Some(said("AdmissionCheck", "x")),
        ..admitted(1)
    };
    let case = Case::new()
        .nominated(&["a", "b"])
        .remote("a", reachable(Some(evicted), None));
    let plan = case.remote("b", reachable(Some(remote()), None)).plan();
    assert_eq!((plan.check().0, plan.cluster()), (CheckPhase::Pending, None));
    assert!(plan.remote.is_empty());
}

/// Spec: multikueue 11.76, 10.F17
#[test]
fn a_vanished_copy_of_the_winner_is_a_retry_and_is_not_created_again() {
    for (copy, job) in [
        (None, None),
        (Some(remote()), None),
        (None, Some(RUNNING)),
        (Some(foreign()), None),
    ] {
        let plan = Case::won().remote("a", reachable(copy, job)).plan();
        let text = "Admitting remote no longer exists, Previously: \"Ready\"";
        assert_eq!(plan.check(), (CheckPhase::Retry, text));
        assert!(plan.remote.is_empty());
    }
}

/// Spec: multikueue 10.F18
#[test]
fn a_vanished_job_is_created_again_unless_the_local_one_ended() {
    let mut case = Case::won().remote("a", reachable(Some(admitted(1)), None));
    assert_eq!(case.plan().on("a"), [CreateJob]);
    case.job.finished = true;
    assert_eq!(case.plan().on("a"), []);
    case.job = LocalJob {
        present: false,
        finished: false,
    };
    assert_eq!(case.plan().on("a"), []);
}

/// A pod on a virtual node stays until its copy is gone, also the last one of its group.
///
/// Spec: jobs 12.9
#[test]
fn copies_without_a_member_go_when_the_last_members_are_going() {
    let running = RemoteJob {
        twins: Twins::Some,
        ..RUNNING
    };
    let mut case = Case::won().remote("a", reachable(Some(admitted(1)), Some(running)));
    case.job.present = false;
    assert_eq!(case.plan().on("a"), [CreateJob]);
}

/// Spec: multikueue 11.77
#[test]
fn a_ready_check_without_a_cluster_is_a_retry() {
    let mut case = Case::won();
    case.status.cluster = None;
    let plan = case.plan();
    assert_eq!(plan.check().0, CheckPhase::Retry);
    assert!(
        plan.check()
            .1
            .starts_with("Admission check is Ready but no admitting cluster is recorded; this")
    );
}

/// Spec: multikueue 10.F7, 10.F9, 11.73, 11.74, safety 3.5
#[test]
fn a_lost_winner_is_waited_for_as_the_policy_says() {
    let lost = |policy, now| {
        let mut case = Case::won().remote("a", away(90));
        case.lost = policy;
        case.now = now;
        case.plan()
    };
    let before = lost(LostPolicy::RetryAnyway, 104);
    assert_eq!(before.check().0, CheckPhase::Ready);
    assert_eq!(before.wake_at, Some(at(105)));
    assert_eq!(before.waits_for(), Some("WorkerLost"));
    let after = lost(LostPolicy::RetryAnyway, 105);
    assert_eq!(
        after.check(),
        (CheckPhase::Retry, "Admitting remote lost, Previously: \"Ready\"")
    );
    let kept = lost(LostPolicy::Wait, 9_000);
    assert_eq!((kept.check().0, kept.cluster()), (CheckPhase::Ready, Some("a")));
    let waiting = kept.waiting.unwrap();
    assert_eq!(
        waiting.to_string(),
        "cluster \"a\" does not answer since 1970-01-01T01:30:00Z, and the job is not started elsewhere"
    );
    assert!(waiting.next_step().contains("roadstead cluster give-up a"));
}

/// Spec: multikueue 10.F31, 10.F32, safety 3.5 (an admin's word)
#[test]
fn a_cluster_that_left_the_config_keeps_its_run_while_it_answers() {
    let mut case = Case::won();
    case.clusters = vec!["b".into()];
    let plan = case.plan();
    assert_eq!((plan.check().0, plan.mirrors()), (CheckPhase::Ready, Some("a")));
    let mut case = case.remote("a", away(90));
    assert_eq!(
        case.plan().check().0,
        CheckPhase::Ready,
        "that is no word about its run"
    );
    case.sites.entry("a".into()).or_default().given_up = true;
    assert_eq!(case.plan().check().0, CheckPhase::Retry);
    let mut waiting = Case::new().nominated(&["a", "b"]);
    waiting.clusters = vec!["b".into()];
    let mut waiting = waiting.remote("a", reachable(Some(remote()), None));
    waiting.status = waiting.plan().status;
    assert_eq!(waiting.plan().on("a"), GONE, "once that is stored");
}

/// Spec: safety 1 I1; multikueue 10.F9
#[test]
fn an_evicted_workload_is_not_offered_again_before_the_lost_winner_answers() {
    let mut case = Case::new().remote("a", away(1));
    case.status.cluster = Some("a".into());
    let plan = case.plan();
    assert!(plan.remote.is_empty() && plan.status.nominated.is_empty());
    assert_eq!(plan.cluster(), Some("a"));
    assert_eq!(plan.waits_for(), Some("WorkerLost"));
    case.lost = LostPolicy::RetryAnyway;
    let plan = case.plan();
    assert_eq!((plan.cluster(), plan.epoch, plan.on("b")), (None, 2, &[][..]));
    (case.status.cluster, case.epoch) = (None, 2);
    let plan = case.plan();
    assert_eq!((plan.epoch, plan.on("b")), (2, &[CreateWorkload][..]));
    let back = case.remote("a", reachable(Some(admitted(1)), Some(RUNNING)));
    assert_eq!(back.plan().on("a"), ALL_GONE);
    assert_eq!(back.plan().waits_for(), Some("StoppingOnWorker"));
}

/// Spec: safety 1 I1 (a decision that is not stored is none)
#[test]
fn a_job_is_created_only_when_the_stored_status_names_the_cluster() {
    let mut case = Case::won().remote("a", reachable(Some(admitted(1)), None));
    case.stored = Some(Case::new().nominated(&["a"]).status);
    assert_eq!(case.plan().on("a"), []);
    case.stored = None;
    assert_eq!(case.plan().on("a"), [CreateJob]);
}

/// Spec: safety 1 I1
#[test]
fn no_winner_is_chosen_while_an_earlier_run_is_alive() {
    let case = Case::new().nominated(&["a", "b"]);
    let case = case.remote("a", reachable(Some(admitted(1)), Some(RUNNING)));
    let mut case = case.remote("b", reachable(Some(admitted(1)), None));
    let plan = case.plan();
    assert_eq!((plan.cluster(), plan.on("a")), (None, &ALL_GONE[..]));
    // The counts of a job may be older than its last pods.
    let plan = case.clone().remote("a", reachable(None, Some(HELD))).plan();
    assert_eq!(plan.cluster(), None);
    assert_eq!(plan.waits_for(), Some("StoppingOnWorker"));
    case.refusals
        .insert("a".into(), "jobs \"j\" is forbidden".to_owned());
    let plan = case.plan();
    assert_eq!(plan.waits_for(), Some("DeletionRefusedByCluster"));
    let said = plan.waiting.as_ref().unwrap();
    assert!(
        said.to_string()
            .ends_with("an earlier run: jobs \"j\" is forbidden"),
        "{said}"
    );
    assert!(
        said.next_step().contains("account used on cluster \"a\""),
        "{}",
        said.next_step()
    );
    let of_a = plan
        .seen
        .iter()
        .find(|seen| seen.cluster.as_str() == "a")
        .unwrap();
    assert_eq!(of_a.reply, Reply::Stopping);
    assert_eq!(of_a.detail.as_str(), "jobs \"j\" is forbidden");
    let plan = case.clone().remote("a", reachable(None, Some(ENDED))).plan();
    assert_eq!(plan.cluster(), Some("b"), "what has ended has no pods");
    case = case.remote("a", reachable(None, None));
    assert_eq!(case.plan().cluster(), Some("b"));
}

/// Spec: multikueue 3.3 R2, 11.66, 11.78, 11.80
#[test]
fn without_quota_or_owner_everything_remote_goes() {
    let stale = || reachable(Some(remote()), None);
    let mut released = Case::won().remote("b", stale());
    released.status.conditions.remove("QuotaReserved");
    let mut deleted = Case::won().remote("b", stale());
    deleted.local = Local::Gone;
    let mut finished = Case::won().remote("b", stale()).condition("Finished", "x");
    finished.job.finished = true;
    for case in [released, deleted, finished] {
        let plan = case.plan();
        assert_eq!((plan.on("a"), plan.on("b")), (&ALL_GONE[..], &GONE[..]));
    }
}

/// Spec: multikueue 3.4
#[test]
fn a_copy_that_is_being_deleted_only_loses_our_finalizer() {
    let deleting = RemoteWorkload {
        life: Life::Deleting,
        ..remote()
    };
    let plan = Case::new().remote("a", reachable(Some(deleting), None)).plan();
    assert_eq!(plan.on("a"), [StripFinalizer]);
}

/// Spec: multikueue 10.F39, 11.83, 11.84
#[test]
fn a_new_priority_is_copied_without_starting_again() {
    let copy = RemoteWorkload {
        drift: Drift::Priority,
        ..admitted(1)
    };
    let plan = Case::won()
        .remote("a", reachable(Some(copy.clone()), Some(RUNNING)))
        .plan();
    assert_eq!(plan.check().0, CheckPhase::Ready);
    assert_eq!(plan.on("a"), [SetPriority]);
    let waiting = RemoteWorkload {
        admitted: None,
        ..copy
    };
    let plan = Case::new().remote("a", reachable(Some(waiting), None)).plan();
    assert_eq!(plan.on("a"), [SetPriority]);
}

/// Spec: multikueue 3.2, 10.F28, 11.43, 11.44
#[test]
fn an_owner_that_cannot_be_dispatched_is_rejected() {
    let rejected = |owner| {
        let mut case = Case::new();
        case.owner = owner;
        let plan = case.plan();
        assert!(plan.remote.is_empty());
        assert_eq!(plan.check().0, CheckPhase::Rejected);
        plan.check().1.to_owned()
    };
    let other = Owner::NotManaged {
        field: "spec.managedBy".to_owned(),
        value: "x".to_owned(),
    };
    assert_eq!(
        rejected(other),
        "The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"x\", \
         Previously: \"Pending\""
    );
    let kind = Some("apps/v1, Kind=Deployment".to_owned());
    assert_eq!(
        rejected(Owner::NoAdapter { kind }),
        "No multikueue adapter found for owner kind \"apps/v1, Kind=Deployment\", Previously: \"Pending\""
    );
    assert_eq!(
        rejected(Owner::NoAdapter { kind: None }),
        "No multikueue adapter found, Previously: \"Pending\""
    );
    let gate = "MultiKueueAdaptersForCustomJobs";
    assert_eq!(
        rejected(Owner::SwitchedOff { gate }),
        "The owner is not managed by Kueue: MultiKueueAdaptersForCustomJobs feature gate is disabled, Previously: \"Pending\""
    );
}
