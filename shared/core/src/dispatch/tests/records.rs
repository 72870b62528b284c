use super::record::{Record, Seen};
use super::*;

fn turned_down(words: &str) -> RemoteWorkload {
    RemoteWorkload {
        answer: Answer::TurnedDown,
        words: words.to_owned(),
        ..remote()
    }
}

/// Spec: experience 5
#[test]
fn every_cluster_has_one_answer_with_its_own_words() {
    let mut case = Case::fresh()
        .nominated(&["a", "b"])
        .remote("a", reachable(Some(turned_down("no cpu left")), None))
        .remote("c", away(1))
        .remote("d", reachable(None, None))
        .remote("e", reachable(None, None));
    case.clusters = ["b", "a", "c", "d", "e"].map(ClusterName::from).into();
    case.failures.insert(
        "d".into(),
        Failure {
            until: at(500),
            cause: Cause::CreateRefused,
            detail: "no".to_owned(),
        },
    );
    let closed = Site {
        cordon: Cordon::Closed,
        ..Site::default()
    };
    case.sites.insert("e".into(), closed);
    let plan = case.plan();
    assert_eq!(
        replies(&plan),
        [
            ("b", Reply::Asked, ""),
            ("a", Reply::NoRoom, "no cpu left"),
            ("c", Reply::NotConnected, ""),
            ("d", Reply::Failed, "CreateRefusedByCluster: no"),
            ("e", Reply::Cordoned, ""),
        ]
    );
    assert!(!plan.is_settled(), "b has not answered");
    let mut late = case.clone();
    late.now = 101;
    let patience = SignedDuration::from_secs(30);
    assert_eq!(plan.wake_at, Some(at(100) + patience));
    let plan = late.plan();
    assert_eq!((plan.seen[0].reply, plan.is_settled()), (Reply::Mute, true));
    assert_eq!(plan.check().1, "waiting for quota on \"b\", \"a\"");
    let case = case.remote("b", reachable(Some(turned_down("")), None));
    assert!(case.plan().is_settled());
}

/// Spec: experience 5
#[test]
fn what_runs_has_no_record_and_what_is_lost_names_the_cluster() {
    assert!(Case::won().plan().seen.is_empty());
    let lost = Case::won().remote("a", away(99)).plan();
    assert_eq!(lost.waits_for(), Some("WorkerLost"));
    assert!(replies(&lost).contains(&("a", Reply::NotConnected, "")));
    assert!(lost.is_settled());
}

fn seen(cluster: &str, reply: Reply) -> Seen {
    Seen {
        cluster: cluster.into(),
        reply,
        detail: String::new(),
    }
}

#[test]
fn times_move_only_with_what_is_said() {
    let waiting = Waiting::NotNominated { unlisted: Vec::new() };
    let first = Record::after(
        None,
        &waiting,
        &[seen("a", Reply::Asked), seen("b", Reply::Asked)],
        at(1),
    );
    let second = [seen("a", Reply::NoRoom), seen("b", Reply::Asked)];
    let second = Record::after(Some(&first), &waiting, &second, at(2));
    let since: Vec<_> = second.answers.iter().map(|a| a.since).collect();
    assert_eq!((second.since, since), (at(1), vec![at(2), at(1)]));
    assert!(!second.says_the_same_as(&first));
    let other = Record::after(Some(&second), &Waiting::NoClusterListed, &[], at(3));
    assert_eq!((other.since, other.reason.as_str()), (at(3), "NoClusterListed"));

    let says = |words: &str| {
        let mut seen = [seen("a", Reply::NoRoom), seen("b", Reply::Asked)];
        words.clone_into(&mut seen[0].detail);
        Record::after(Some(&second), &waiting, &seen, at(4))
    };
    let third = says("cpu: 13 more needed");
    assert!(!third.says_the_same_as(&second), "words where none were");
    assert!(
        third.says_the_same_as(&says("cpu: 9 more needed")),
        "a worker's numbers change with every job there"
    );
    assert!(!third.says_the_same_as(&says("memory: 13 more needed")));
}

#[test]
fn a_record_says_something_else_when_its_sentence_or_its_next_step_does() {
    let record = |words: &str| {
        let waiting = Waiting::StoppingOnWorker {
            cluster: "a".into(),
            refusal: words.to_owned(),
        };
        Record::after(None, &waiting, &[], at(1))
    };
    assert!(record("forbidden").says_the_same_as(&record("forbidden")));
    assert!(!record("forbidden").says_the_same_as(&record("denied by a webhook")));
    let mut other = record("forbidden");
    other.next = "ask the administrator".to_owned();
    assert!(!record("forbidden").says_the_same_as(&other));
}
