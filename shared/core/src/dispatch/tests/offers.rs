use super::RemoteAction::{CreateWorkload, DeleteWorkload, StripFinalizer};
use super::*;

/// Four workers `d`, `c`, `b`, `a` in this order of the config; two are asked per round of five minutes.
fn incremental() -> Case {
    let mut case = Case::new();
    case.clusters = names(&["d", "c", "b", "a"]);
    for name in ["c", "d"] {
        case = case.remote(name, reachable(None, None));
    }
    case.dispatcher = Dispatcher::Incremental {
        step: 2,
        order: Order::OfConfig,
    };
    case
}

/// Spec: multikueue 4.1, 11.47, 11.48
#[test]
fn a_round_asks_a_few_and_the_next_a_few_more() {
    let mut case = incremental();
    let first = case.plan();
    assert_eq!(first.nominated(), ["d", "c"]);
    assert_eq!((first.round, first.wake_at), (Some(at(100)), Some(at(105))));
    assert_eq!((first.on("d"), first.on("a")), (&[CreateWorkload][..], &[][..]));

    (case.status, case.round, case.now) = (first.status, Some(100), 104);
    let same = case.plan();
    assert_eq!((same.nominated(), same.round), (vec!["d", "c"], Some(at(100))));
    assert_eq!(same.wake_at, Some(at(105)));

    case.now = 105;
    let second = case.plan();
    assert_eq!(second.nominated(), ["d", "c", "b", "a"], "appended, not replaced");
    assert_eq!(second.round, Some(at(105)));

    (case.status, case.round, case.now) = (second.status, Some(105), 200);
    let last = case.plan();
    assert_eq!(last.nominated(), ["d", "c", "b", "a"]);
    assert_eq!(last.round, Some(at(105)));
    assert_eq!(last.waits_for(), Some("WaitingForWorkers"));
}

/// Spec: multikueue 4.1
#[test]
fn the_place_of_one_that_failed_is_taken_at_once() {
    let mut case = incremental();
    (case.round, case.now) = (Some(100), 101);
    let mut case = case.nominated(&["d"]);
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["d", "c"]);
    assert_eq!((plan.round, plan.wake_at), (Some(at(100)), Some(at(105))));
    case = case.nominated(&["d", "b"]);
    let full = case.plan();
    assert_eq!(full.nominated(), ["d", "b"], "no place is left");
}

/// Spec: multikueue 4.1, 4.2
#[test]
fn while_only_silent_clusters_are_asked_the_reason_names_them_and_no_dispatcher() {
    let mut case = incremental();
    (case.round, case.now) = (Some(100), 101);
    let case = case.nominated(&["d", "c"]);
    let plan = case.remote("d", away(1)).remote("c", away(1)).plan();
    assert_eq!(plan.nominated(), ["d", "c"]);
    let says = "no cluster that may take it is connected: \"d\", \"c\"";
    assert_eq!(
        plan.waiting.map(|waiting| waiting.to_string()).as_deref(),
        Some(says)
    );
}

/// Spec: multikueue 4.1, 11.49 (gate `MultiKueueIncrementalDispatcherRespectConfigOrder` off)
#[test]
fn without_the_gate_names_decide_the_order() {
    let mut case = incremental();
    case.dispatcher = Dispatcher::Incremental {
        step: 3,
        order: Order::OfName,
    };
    assert_eq!(case.plan().nominated(), ["a", "b", "c"]);
}

/// Unlike the anchor, where a worker that is away takes a place for five minutes.
#[test]
fn who_is_away_or_has_failed_takes_no_place_in_a_round() {
    let mut case = incremental().remote("d", away(1));
    case.failures.insert(
        "c".into(),
        Failure {
            until: at(500),
            cause: Cause::CreateRefused,
            detail: String::new(),
        },
    );
    assert_eq!(case.plan().nominated(), ["b", "a"]);

    // Every asked cluster failed, so the others are asked at once.
    let mut case = incremental().nominated(&["c"]);
    case.failures.insert(
        "c".into(),
        Failure {
            until: at(500),
            cause: Cause::CreateRefused,
            detail: String::new(),
        },
    );
    case.round = Some(99);
    assert_eq!(case.plan().nominated(), ["d", "b"]);
}

/// Unlike the anchor, where a restart asks the next workers at once.
#[test]
fn after_a_restart_the_round_counts_as_begun_now() {
    let case = incremental().nominated(&["d", "c"]);
    let plan = case.plan();
    assert_eq!((plan.nominated(), plan.round), (vec!["d", "c"], Some(at(100))));
}

/// The begin of a round is remembered only when the status is stored.
///
/// Spec: multikueue 11.52
#[test]
fn a_round_whose_write_failed_begins_with_the_next_one() {
    let mut case = incremental();
    let lost = case.plan();
    assert_eq!((lost.round, lost.wake_at), (Some(at(100)), Some(at(105))));
    case.now = 104;
    let again = case.plan();
    assert_eq!(again.status.nominated, lost.status.nominated);
    assert_eq!((again.round, again.wake_at), (Some(at(104)), Some(at(109))));
}

/// Spec: multikueue 11.51
#[test]
fn the_round_of_what_is_offered_no_more_is_forgotten() {
    let mut under_way = incremental().nominated(&["d", "c"]);
    under_way.round = Some(99);
    assert_eq!(under_way.plan().round, Some(at(99)));
    let finished = under_way.clone().condition("Finished", "x");
    let mut deleted = under_way.clone();
    deleted.local = Local::Gone;
    let mut released = under_way;
    released.status.conditions.remove("QuotaReserved");
    for case in [finished, deleted, released] {
        assert_eq!(case.plan().round, None);
    }
}

/// Unlike the anchor, where rounds pass before anything may be sent.
#[test]
fn no_round_begins_before_the_other_checks_are_ready() {
    let mut case = incremental();
    case.status
        .checks
        .insert("other".into(), CheckState::pending(at(0)));
    let plan = case.plan();
    assert_eq!((plan.status.nominated, plan.round), (names(&[]), None));
}

/// Spec: multikueue 4.2
#[test]
fn an_external_dispatcher_is_followed_and_waited_for() {
    let mut case = Case::new();
    case.dispatcher = Dispatcher::External;
    let plan = case.plan();
    assert_eq!(plan.status.nominated.len(), 0);
    assert_eq!(plan.waits_for(), Some("NotNominated"));
    assert!(plan.remote.values().all(Vec::is_empty));

    let plan = case.clone().nominated(&["nobody"]).plan();
    let says = "the external dispatcher has nominated \"nobody\", which the MultiKueueConfig does not list";
    assert_eq!(
        plan.waiting.map(|waiting| waiting.to_string()).as_deref(),
        Some(says)
    );

    let case = case.nominated(&["b", "nobody"]);
    let silent = case.clone().remote("b", away(1)).plan();
    let says = "no cluster that may take it is connected: \"b\"";
    assert_eq!(
        silent.waiting.map(|waiting| waiting.to_string()).as_deref(),
        Some(says)
    );
    let mut cordoned = case.clone();
    let closed = Site {
        cordon: Cordon::Closed,
        ..Site::default()
    };
    cordoned.sites.insert("b".into(), closed);
    assert_eq!(cordoned.plan().waits_for(), Some("ClusterCordoned"));

    let plan = case.plan();
    assert_eq!(plan.nominated(), ["b", "nobody"], "the list is theirs");
    assert_eq!((plan.on("a"), plan.on("b")), (&[][..], &[CreateWorkload][..]));

    let chosen = case
        .remote("a", reachable(Some(admitted(1)), None))
        .remote("b", reachable(Some(admitted(2)), None))
        .plan();
    assert_eq!(chosen.cluster(), Some("b"), "only a nominated cluster may win");
    assert!(chosen.status.nominated.is_empty());
}

/// Spec: multikueue 4.2, 11.53
#[test]
fn a_copy_follows_the_list_of_an_external_dispatcher() {
    let mut case = Case::new().nominated(&["a"]);
    case.dispatcher = Dispatcher::External;
    let first = case.plan();
    assert_eq!((first.on("a"), first.on("b")), (&[CreateWorkload][..], &[][..]));
    let moved = case
        .nominated(&["b"])
        .remote("a", reachable(Some(remote()), None))
        .plan();
    assert_eq!(moved.on("a"), [StripFinalizer, DeleteWorkload]);
    assert_eq!(moved.on("b"), [CreateWorkload]);
}

/// Unlike the anchor: there a named cluster that is cut off is an error, retried again and again.
///
/// Spec: multikueue 4.2, 11.54
#[test]
fn a_cluster_that_an_external_dispatcher_names_is_waited_for_while_it_is_away() {
    let mut case = Case::new().nominated(&["b"]).remote("b", away(1));
    case.dispatcher = Dispatcher::External;
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["b"]);
    assert!(plan.remote.values().all(Vec::is_empty) && plan.waiting.is_some());
    let back = case.remote("b", reachable(None, None)).plan();
    assert_eq!(back.on("b"), [CreateWorkload]);
}

/// Why: if all were offered at once, different clusters could take pods that must run in one cluster.
///
/// Spec: jobs 9.11, 9.13
#[test]
fn a_workload_behind_another_is_not_offered_until_that_one_has_a_cluster() {
    let mut case = Case::new();
    case.behind = Some(Behind::Placed("pod-web-1".to_owned()));
    let plan = case.plan();
    assert_eq!(plan.waits_for(), Some("BehindAnotherWorkload"));
    assert_eq!((plan.status.nominated.len(), plan.remote.len()), (0, 0));
    let waiting = plan.waiting.as_ref().unwrap();
    assert_eq!(
        waiting.to_string(),
        "it goes to the cluster that takes workload \"pod-web-1\", which has none yet"
    );
    assert!(waiting.next_step().contains("roadstead.dev/spread"));
    assert_eq!(plan.check().1, waiting.to_string(), "it waits for long");
    let mut fresh = Case::fresh();
    fresh.behind = Some(Behind::Placed("pod-web-1".to_owned()));
    assert_eq!(fresh.plan().check().1, "");

    case.behind = Some(Behind::SameJob("first".to_owned()));
    let plan = case.plan();
    assert_eq!(plan.waits_for(), Some("BehindAnotherWorkload"));
    assert_eq!(plan.check().1, "workload \"first\" of the same job goes first");
    assert!(
        plan.waiting
            .unwrap()
            .next_step()
            .starts_with("a job has one workload: delete")
    );

    case.behind = None;
    assert_eq!(case.plan().status.nominated.len(), 2);

    let mut admitted = Case::new()
        .nominated(&["a"])
        .remote("a", reachable(Some(admitted(1)), None));
    admitted.behind = Some(Behind::Placed("pod-web-1".to_owned()));
    let kept = admitted.plan();
    assert_eq!((kept.cluster(), kept.remote.len()), (None, 0), "its copy stays");
    admitted.behind = None;
    assert_eq!(admitted.plan().cluster(), Some("a"));
}
