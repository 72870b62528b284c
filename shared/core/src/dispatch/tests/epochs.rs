use super::*;
use crate::lease::Tenure;
use RemoteAction::{CreateJob, CreateWorkload, DeleteJob, DeleteWorkload, StripFinalizer};

const ALL_GONE: &[RemoteAction] = &[DeleteJob, StripFinalizer, DeleteWorkload];

fn old(workload: RemoteWorkload) -> RemoteWorkload {
    RemoteWorkload { epoch: 1, ..workload }
}

/// The second dispatch: worker `a` is chosen and stored.
fn second() -> Case {
    let mut case = Case::won();
    case.epoch = 2;
    case
}

fn silent(since: i64, fence: Fence) -> Case {
    let mut case = Case::won().remote(
        "a",
        Remote::Unreachable {
            since: at(since),
            fence,
        },
    );
    case.lost = LostPolicy::Fence;
    case
}

/// Spec: safety 3.1
#[test]
fn the_number_rises_when_a_dispatch_ends_and_before_the_next_one_is_sent() {
    let mut case = Case::won().condition("Evicted", "x");
    case.check().phase = CheckPhase::Pending;
    let stopped = RemoteWorkload {
        active: false,
        ..remote()
    };
    let running = case.clone().plan();
    assert_eq!(
        (running.cluster(), running.epoch),
        (Some("a"), 1),
        "it still runs there"
    );
    let case = case.remote("a", reachable(Some(stopped), None));
    let plan = case.plan();
    assert_eq!((plan.cluster(), plan.epoch), (None, 2));
    let mut next = Case::new();
    next.stored = Some(case.status);
    next.status.cluster = None;
    assert_eq!(next.plan().on("b"), []);
    assert_eq!(next.plan().epoch, 2);
    (next.stored, next.epoch) = (None, 2);
    assert_eq!(next.plan().on("b"), [CreateWorkload]);
}

/// Spec: safety 3.1, W1, W4, W5
#[test]
fn a_copy_of_an_earlier_dispatch_neither_wins_nor_ends_nor_evicts() {
    let mut case = Case::new().nominated(&["a", "b"]);
    case.epoch = 2;
    let case = case.remote("a", reachable(Some(old(admitted(1))), None));
    let plan = case.plan();
    assert_eq!(plan.cluster(), None);
    assert_eq!(plan.on("a"), [StripFinalizer, DeleteWorkload]);
    let ended = RemoteWorkload {
        finished: Some(said("Succeeded", "done")),
        ..old(admitted(1))
    };
    let plan = second().remote("a", reachable(Some(ended), Some(ENDED))).plan();
    assert!(!plan.status.conditions.is_true("Finished"));
    assert_eq!((plan.mirrors(), plan.check().0), (None, CheckPhase::Retry));
    assert_eq!(plan.failed, [("a".into(), Cause::Outdated)]);
}

/// Spec: safety F15
#[test]
fn a_job_of_an_earlier_dispatch_makes_room_for_this_one() {
    let copy = numbered(2);
    let plan = second()
        .remote("a", reachable(Some(copy.clone()), Some(RUNNING)))
        .plan();
    assert_eq!((plan.on("a"), plan.mirrors()), (&[DeleteJob][..], None));
    let plan = second().remote("a", reachable(Some(copy), None)).plan();
    assert_eq!(plan.on("a"), [CreateJob]);
}

/// Spec: safety F15
#[test]
fn a_manager_that_forgot_its_last_dispatches_takes_a_number_above_them() {
    let ahead = numbered(5);
    let case = Case::new()
        .nominated(&["a", "b"])
        .remote("a", reachable(Some(ahead), None));
    let plan = case.plan();
    assert_eq!((plan.epoch, plan.cluster(), plan.on("b")), (6, None, &[][..]));
}

/// Spec: safety 1 I9, F15
#[test]
fn a_number_that_another_worker_made_up_ends_no_run_and_is_passed_when_the_run_is_over() {
    let forged = numbered(1_000);
    let case = Case::won().remote("b", reachable(Some(forged), None));
    let plan = case.plan();
    assert_eq!((plan.epoch, plan.check().0), (1, CheckPhase::Ready));
    assert_eq!((plan.mirrors(), plan.highest), (Some("a"), 1_000));
    assert_eq!(plan.on("b"), [StripFinalizer, DeleteWorkload]);
    let mut away = case.clone().remote("a", away(99));
    assert_eq!(away.plan().epoch, 1, "it may go on there");

    // The copy is gone from `b`, and the run on `a` is evicted.
    away = Case::won().condition("Evicted", "x");
    (away.highest, away.check().phase) = (1_000, CheckPhase::Pending);
    assert_eq!(away.plan().epoch, 1, "its end still counts");
    let over = away.remote("a", reachable(None, None)).plan();
    assert_eq!((over.epoch, over.cluster()), (1_001, None));
}

/// Spec: safety 1 I9
#[test]
fn a_number_after_which_none_could_come_is_not_believed() {
    let last = numbered(u64::MAX);
    let plan = Case::new()
        .nominated(&["a", "b"])
        .remote("a", reachable(Some(last), None))
        .plan();
    assert_eq!((plan.epoch, plan.cluster()), (1, None));
    assert_eq!(plan.on("a"), [StripFinalizer, DeleteWorkload]);
    assert_eq!(plan.on("b"), [CreateWorkload]);
}

/// Spec: safety 3.1
#[test]
fn without_a_number_of_our_own_nothing_is_believed() {
    let stranger = RemoteWorkload {
        epoch: 0,
        finished: Some(said("Succeeded", "done")),
        ..admitted(1)
    };
    let mut case = Case::won().remote("a", reachable(Some(stranger), None));
    case.epoch = 0;
    assert!(!case.plan().status.conditions.is_true("Finished"));
}

/// Spec: safety 3.4, 3.5
#[test]
fn under_fence_a_lost_run_moves_when_the_worker_has_stopped_it_and_not_before() {
    let closes = Fence::Closes { at: at(101) };
    let before = silent(60, closes).plan();
    assert_eq!(before.check().0, CheckPhase::Ready);
    assert_eq!(before.wake_at, Some(at(101)));
    let mut case = silent(60, closes);
    case.now = 101;
    let after = case.plan();
    assert_eq!(after.check().0, CheckPhase::Retry);
    assert!(after.notes.is_empty(), "nothing can run twice");
}

/// Spec: safety 3.4
#[test]
fn a_fence_of_which_only_an_earlier_process_knows_counts_and_is_said_to_be_uncertain() {
    let recorded = Fence::Recorded { at: at(1) };
    let before = silent(90, recorded).plan();
    assert_eq!(before.wake_at, Some(at(90 + TIMEOUT_MINS)));
    let after = silent(80, recorded).plan();
    assert_eq!(after.check().0, CheckPhase::Retry);
    assert!(after.notes[0].message.contains("may run twice"));
    assert_eq!(after.notes[0].severity, Severity::Warning);
    let later = silent(80, Fence::Recorded { at: at(500) }).plan();
    assert_eq!(later.wake_at, Some(at(500)));
}

/// Spec: safety "how this fits" 2, safety 3.5
#[test]
fn under_fence_a_worker_without_one_is_waited_for_until_an_administrator_gives_it_up() {
    let mut case = silent(1, Fence::Open);
    case.now = 90_000;
    let plan = case.plan();
    assert_eq!((plan.check().0, plan.wake_at), (CheckPhase::Ready, None));
    let next = plan.waiting.unwrap().next_step();
    assert!(
        next.contains("roadstead cluster give-up a") && next.contains("policy RetryAnyway"),
        "{next}"
    );
    let given_up = Site {
        given_up: true,
        ..Site::default()
    };
    for policy in [LostPolicy::Fence, LostPolicy::Wait, LostPolicy::RetryAnyway] {
        // At once: an administrator who gives a cluster up has checked that nothing runs there.
        let mut case = silent(100, Fence::Open);
        case.sites.insert("a".into(), given_up.clone());
        case.lost = policy;
        let plan = case.plan();
        assert_eq!(
            (plan.check().0, plan.notes.len()),
            (CheckPhase::Retry, 0),
            "{policy:?}"
        );
    }
}

/// Spec: safety 3.6
#[test]
fn under_fence_a_worker_that_nobody_looks_after_is_waited_for() {
    let mut case = silent(1, Fence::Open);
    case.now = 90_000;
    let plan = case.plan();
    assert_eq!((plan.check().0, plan.wake_at), (CheckPhase::Ready, None));
}

/// Spec: safety 3.3
#[test]
fn a_fenced_run_is_dispatched_again_and_its_worker_is_not_blamed() {
    let fenced = RemoteWorkload {
        active: false,
        fenced: true,
        evicted: Some(said("Deactivated", "The workload is deactivated")),
        ..remote()
    };
    let case = Case::won().remote("a", reachable(Some(fenced.clone()), Some(RUNNING)));
    let plan = case.plan();
    assert_eq!((plan.check().0, plan.failed.len()), (CheckPhase::Retry, 0));
    let offered = Case::new().remote("a", reachable(Some(fenced), None)).plan();
    assert_eq!(offered.on("a"), [StripFinalizer, DeleteWorkload]);
    assert!(offered.failed.is_empty());
}

fn leased(tenure: Tenure) -> Case {
    let mut case = Case::new();
    case.lost = LostPolicy::Fence;
    let site = Site {
        lease: tenure,
        ..Site::default()
    };
    case.sites.insert("a".into(), site);
    case
}

/// Spec: safety 3.3
#[test]
fn under_fence_nothing_is_sent_where_the_lease_has_lapsed_until_it_is_kept_again() {
    let case = leased(Tenure::Lapsed).remote("a", reachable(Some(remote()), None));
    let plan = case.plan();
    assert_eq!(plan.on("a"), [StripFinalizer, DeleteWorkload]);
    assert_eq!(plan.nominated(), ["b"]);
    assert!(plan.failed.is_empty(), "the next renewal ends it");
    let says = plan
        .seen
        .iter()
        .find(|seen| seen.cluster.as_str() == "a")
        .unwrap();
    assert_eq!(says.reply, Reply::Failed);
    assert_eq!(&*says.detail, "LeaseLapsedOnCluster");
    let mut alone = leased(Tenure::Lapsed);
    alone.clusters = vec!["a".into()];
    assert_eq!(alone.plan().waits_for(), Some("LeaseLapsedOnCluster"));
    for open in [leased(Tenure::Held), leased(Tenure::Never), {
        let mut waits = leased(Tenure::Lapsed);
        waits.lost = LostPolicy::Wait;
        waits
    }] {
        assert_eq!(open.plan().status.nominated.len(), 2);
    }
}

/// Spec: safety 3.3
#[test]
fn a_worker_that_fences_although_this_manager_never_saw_a_lease_there_is_left_out_for_a_while() {
    let fenced = RemoteWorkload {
        active: false,
        fenced: true,
        evicted: Some(said("Deactivated", "The workload is deactivated")),
        ..remote()
    };
    let plan = leased(Tenure::Never)
        .remote("a", reachable(Some(fenced.clone()), None))
        .plan();
    assert_eq!(plan.failed, [("a".into(), Cause::LeaseLapsed)]);
    assert_eq!(plan.on("a"), [StripFinalizer, DeleteWorkload]);
    let mut won = Case::won().remote("a", reachable(Some(fenced), Some(RUNNING)));
    won.lost = LostPolicy::Fence;
    won.sites = leased(Tenure::Never).sites;
    assert_eq!(won.plan().failed, [("a".into(), Cause::LeaseLapsed)]);
}

/// Spec: safety 3.7, W9; multikueue 10.F18
#[test]
fn a_job_deleted_on_its_worker_is_let_go_when_its_outcome_is_known_or_when_it_can_have_none() {
    let vanished = RemoteWorkload {
        finished: Some(said("OwnerNotFound", "x")),
        ..admitted(1)
    };
    let ended = RemoteJob {
        finished: true,
        life: Life::Deleting,
        ..RUNNING
    };
    let plan = Case::won()
        .remote("a", reachable(Some(vanished.clone()), Some(ended)))
        .plan();
    assert_eq!((plan.mirrors(), plan.check().0), (Some("a"), CheckPhase::Ready));
    assert_eq!(plan.on("a"), []);
    let mut over = Case::won().remote("a", reachable(Some(vanished), Some(ended)));
    over.job.finished = true;
    over = over.condition("Finished", "done");
    assert_eq!(over.plan().on("a"), ALL_GONE);
    let dying = RemoteJob {
        life: Life::Deleting,
        ..RUNNING
    };
    let case = Case::won().remote("a", reachable(Some(admitted(1)), Some(dying)));
    assert_eq!(case.plan().check().0, CheckPhase::Retry);
    let mut evicted = case.condition("Evicted", "x");
    evicted.check().phase = CheckPhase::Pending;
    assert!(
        evicted.plan().on("a").contains(&DeleteJob),
        "it stops only when it is let go"
    );
}

/// Spec: safety 1 I1
#[test]
fn nothing_is_sent_elsewhere_before_a_deleted_job_is_gone_with_its_pods() {
    let deleted = RemoteJob {
        life: Life::Deleting,
        pods: PodsThere::None,
        kept: false,
        ..RUNNING
    };
    let mut case = Case::won().remote("a", reachable(None, Some(deleted)));
    case.check().phase = CheckPhase::Pending;
    let plan = case.plan();
    assert_eq!((plan.cluster(), plan.epoch), (Some("a"), 1));
    assert_eq!(plan.waits_for(), Some("StoppingOnWorker"));
    assert!(plan.remote.is_empty());
    let gone = case.remote("a", reachable(None, None)).plan();
    assert_eq!((gone.cluster(), gone.epoch), (None, 2));
}
