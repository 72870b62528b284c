//! A cluster that does not serve the kind of the job, or whose jobs of that kind cannot be read.

use super::*;
use crate::kind::KindState;

fn unreadable() -> Remote {
    Remote::Unreadable {
        why: "jobs is forbidden".to_owned(),
    }
}

fn without_kind() -> Site {
    Site {
        kind: KindState::NotServed,
        ..Site::default()
    }
}

/// Spec: safety F26; multikueue 10.F6 (deviation)
#[test]
fn a_cluster_that_does_not_serve_the_kind_is_no_candidate_and_the_others_are() {
    for dispatcher in [
        Dispatcher::AllAtOnce,
        Dispatcher::Capacity,
        Dispatcher::Incremental {
            step: 1,
            order: Order::OfConfig,
        },
    ] {
        let mut case = Case::new();
        case.dispatcher = dispatcher;
        case.sites.insert("b".into(), without_kind());
        let plan = case.plan();
        assert_eq!(plan.nominated(), ["a"], "{dispatcher:?}");
        assert_eq!(plan.on("b"), []);
        assert_eq!(plan.on("a"), [RemoteAction::CreateWorkload]);
        assert_eq!(replies(&plan)[0], ("b", Reply::NotServed, "Job"));
        assert!(
            plan.failed.is_empty(),
            "nothing has failed: it is taken at once when it is served"
        );
    }
}

/// Spec: safety F26; experience 5
#[test]
fn where_no_cluster_serves_the_kind_one_reason_says_which_and_what_to_do() {
    let mut case = Case::new().remote("a", away(1));
    case.sites.insert("b".into(), without_kind());
    let plan = case.plan();
    let waiting = plan.waiting.as_ref().unwrap();
    assert_eq!(waiting.reason(), "KindNotServedOnCluster");
    assert_eq!(waiting.to_string(), "cluster \"b\" does not serve Job");
    let next = waiting.next_step();
    assert!(
        next.starts_with("install the CustomResourceDefinition of Job"),
        "{next}"
    );
    assert_eq!(plan.check().1, waiting.to_string());
    assert!(plan.is_settled());

    let mut full = case.remote("a", reachable(Some(remote()), None));
    full.clusters = vec!["b".into(), "a".into()];
    assert_eq!(
        full.plan().waits_for(),
        Some("WaitingForWorkers"),
        "there is more hope there"
    );
}

/// A copy that was sent to a cluster before the cluster lost the kind is removed.
///
/// Spec: safety F26
#[test]
fn a_copy_on_a_cluster_that_no_longer_serves_the_kind_is_removed_before_the_choice() {
    let mut case = Case::new().remote("b", reachable(Some(remote()), None));
    case.sites.insert("b".into(), without_kind());
    let plan = case.nominated(&["b", "a"]).plan();
    assert_eq!(plan.nominated(), ["a"]);
    assert_eq!(
        plan.on("b"),
        [RemoteAction::StripFinalizer, RemoteAction::DeleteWorkload]
    );
}

/// The worker's API server says that the kind is gone, so the jobs of that kind are gone too.
///
/// Spec: safety F26
#[test]
fn a_job_whose_kind_goes_from_the_worker_that_holds_it_is_sent_elsewhere() {
    let mut case = Case::won().remote("a", reachable(Some(admitted(1)), None));
    case.sites.insert("a".into(), without_kind());
    let plan = case.plan();
    assert_eq!(
        plan.check(),
        (
            CheckPhase::Retry,
            "Worker cluster \"a\" does not serve the kind of the job, resetting for re-dispatch, Previously: \"Ready\""
        )
    );
    case.sites.clear();
    assert_eq!(case.plan().on("a"), [RemoteAction::CreateJob]);
}

/// A cluster that cannot be read is not an empty cluster: a run there is neither given up nor collected, however long that lasts, and
/// whatever the policy.
///
/// Spec: safety F26, I1, I2
#[test]
fn while_the_kind_cannot_be_read_on_a_cluster_nothing_of_it_is_decided_there() {
    for lost in [LostPolicy::Wait, LostPolicy::Fence, LostPolicy::RetryAnyway] {
        let mut case = Case::won().remote("a", unreadable());
        (case.lost, case.now) = (lost, 10_000);
        let plan = case.plan();
        assert_eq!(plan.cluster(), Some("a"), "{lost:?}");
        assert_eq!(plan.check().0, CheckPhase::Ready);
        assert_eq!((plan.on("a"), plan.on("b")), (&[][..], &[][..]));
        assert_eq!((plan.wake_at, plan.epoch), (None, 1));
        let waiting = plan.waiting.as_ref().unwrap();
        assert_eq!(waiting.reason(), "KindNotReadableOnCluster");
        assert_eq!(
            waiting.to_string(),
            "jobs of Job cannot be read on cluster \"a\": jobs is forbidden"
        );
        assert!(replies(&plan).contains(&("a", Reply::NotReadable, "jobs is forbidden")));

        let stopping = case.clone().condition("Evicted", "preempted").plan();
        assert_eq!(stopping.cluster(), Some("a"), "it may still run there");
        assert!(!stopping.stopped && stopping.remote.is_empty());
        let finished = case.clone().condition("Finished", "done").plan();
        assert!(finished.remote.is_empty() && !finished.conclude);
        case.local = Local::Gone;
        assert!(case.plan().remote.is_empty());
    }
}

/// Spec: safety F26
#[test]
fn a_cluster_where_the_kind_cannot_be_read_gets_no_job_and_one_that_can_does() {
    let plan = Case::new().remote("b", unreadable()).plan();
    assert_eq!(plan.nominated(), ["a"]);
    let asked = Case::new().nominated(&["b"]).remote("b", unreadable());
    let mut asked_only = asked.clone();
    asked_only.dispatcher = Dispatcher::Incremental {
        step: 1,
        order: Order::OfConfig,
    };
    let plan = asked_only.plan();
    assert_eq!(plan.nominated(), ["b"], "it may hold a copy: it stays asked");
    let mut alone = asked.remote("a", away(1));
    alone.clusters = vec!["b".into()];
    assert_eq!(alone.plan().waits_for(), Some("KindNotReadableOnCluster"));
}

/// Spec: jobs 12.9
#[test]
fn a_copy_that_lacks_a_later_change_gets_it_and_its_run_goes_on() {
    let outdated = RemoteJob {
        twins: Twins::Outdated,
        ..RUNNING
    };
    let of = |job: RemoteJob| Case::won().remote("a", reachable(Some(admitted(1)), Some(job)));
    let mut case = of(outdated);
    let failure = Failure {
        until: at(99),
        cause: Cause::NoAnswer,
        detail: String::new(),
    };
    for failures in [BTreeMap::new(), [("a".into(), failure)].into()] {
        case.failures = failures;
        let plan = case.plan();
        assert_eq!(plan.on("a"), [RemoteAction::UpdateJob]);
        assert_eq!((plan.check().0, plan.cluster()), (CheckPhase::Ready, Some("a")));
    }
    let ended = RemoteJob {
        finished: true,
        ..outdated
    };
    assert!(!of(ended).plan().on("a").contains(&RemoteAction::UpdateJob));
}
