//! A job that failed on one worker and is tried on another one.

use super::*;

fn failed() -> RemoteWorkload {
    RemoteWorkload {
        finished: Some(said("Failed", "it gave up")),
        ..admitted(1)
    }
}

/// The job was sent to `a` and failed there; it is tried elsewhere up to `limit` times.
fn failed_on_a(limit: usize) -> Case {
    let mut case = Case::won().remote("a", reachable(Some(failed()), Some(ENDED)));
    case.elsewhere.limit = limit;
    case
}

/// Spec: multikueue 3.3 R3 (deviation); safety 3.1
#[test]
fn a_job_that_failed_is_tried_on_another_cluster_with_a_new_number() {
    let plan = failed_on_a(2).plan();
    assert_eq!(
        plan.check(),
        (
            CheckPhase::Retry,
            "The job failed on worker cluster \"a\", resetting for re-dispatch to another one, 1 of 2 times (it gave up), \
             Previously: \"Ready\""
        )
    );
    assert_eq!((plan.epoch, plan.failed_on), (2, Some("a".into())));
    assert_eq!(plan.mirror, None, "its end is not the end");
    assert!(!plan.status.conditions.is_true("Finished"));
}

#[test]
fn a_job_has_failed_when_no_try_is_left() {
    let ends = |case: &Case| {
        let plan = case.plan();
        assert!(plan.status.conditions.is_true("Finished"));
        assert_eq!(plan.mirrors(), Some("a"));
        assert_eq!(plan.epoch, 1);
        assert_eq!(plan.failed_on, None);
    };
    ends(&failed_on_a(0));
    let mut twice = failed_on_a(1);
    twice.elsewhere.failed_on.insert("b".into());
    ends(&twice);
    let mut alone = failed_on_a(3);
    alone.clusters = vec!["a".into()];
    ends(&alone);
    let well = RemoteWorkload {
        finished: Some(said("Succeeded", "done")),
        ..admitted(1)
    };
    ends(&failed_on_a(2).remote("a", reachable(Some(well), Some(ENDED))));
}

#[test]
fn an_end_is_shown_only_when_it_is_known_whether_it_is_one() {
    let undecided = |limit| failed_on_a(limit).remote("a", reachable(Some(admitted(1)), Some(ENDED)));
    assert_eq!(undecided(1).plan().mirror, None);
    assert_eq!(undecided(0).plan().mirrors(), Some("a"));
    let running = failed_on_a(1).remote("a", reachable(Some(admitted(1)), Some(RUNNING)));
    assert_eq!(running.plan().mirrors(), Some("a"));
}

/// The manager died after it had written the number of the next dispatch and before it wrote the status.
///
/// Spec: safety 1 I11
#[test]
fn what_failed_is_not_believed_any_more() {
    let mut case = failed_on_a(2);
    case.epoch = 2;
    case.elsewhere.failed_on.insert("a".into());
    let plan = case.plan();
    assert_eq!(plan.check().0, CheckPhase::Retry);
    assert!(!plan.status.conditions.is_true("Finished"));
    assert_eq!(plan.mirror, None);
    let mut evicted = case.condition("Evicted", "to be tried elsewhere");
    evicted.check().phase = CheckPhase::Retry;
    let plan = evicted.plan();
    assert_eq!((plan.cluster(), plan.mirror.as_ref()), (None, None));
    assert!(!plan.status.conditions.is_true("Finished"));
}

#[test]
fn where_it_failed_it_is_not_offered_again() {
    let mut case = Case::fresh();
    case.elsewhere = Elsewhere {
        limit: 2,
        failed_on: ["a".into()].into(),
    };
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["b"]);
    assert!(plan.failed.is_empty(), "it is stored, not remembered");
    case.elsewhere.failed_on.insert("b".into());
    let plan = case.plan();
    assert_eq!(plan.status.nominated, []);
    assert_eq!(plan.waits_for(), Some("JobFailedOnCluster"));
}
