use proptest::prelude::*;

use super::capacity::{Amounts, Closed, QueueView, Room, Usage, room, spare};
use super::*;
use crate::amount::Amount;
use crate::name::{CohortName, ResourceName};
use crate::queue::StopPolicy;
use crate::state::fixtures;

const CPU: &str = "cpu";

fn amounts(cpu: i64) -> Amounts {
    Amounts::from([(ResourceName::from(CPU), Amount::new(cpu))])
}

fn view(nominal: i64, used: i64, pending: u32) -> QueueView {
    let groups = vec![fixtures::group(&[("f", &[(CPU, nominal)])])];
    QueueView {
        queue: fixtures::cluster_queue("q", groups),
        active: true,
        used: Usage::from([("f".into(), amounts(used))]),
        pending,
    }
}

fn in_cohort(mut view: QueueView) -> QueueView {
    view.queue.cohort = Some(CohortName::from("c"));
    view
}

fn fits(left: u32) -> Room {
    Room::Fits {
        borrows: false,
        pending: 0,
        left,
    }
}

fn of(view: &QueueView, cpu: i64) -> Room {
    room(view, &Usage::new(), &Amounts::new(), &amounts(cpu))
}

/// Spec: multikueue 4.3
#[test]
fn room_is_what_quota_less_usage_leaves() {
    assert_eq!(of(&view(10, 4, 0), 4), fits(200_000));
    assert_eq!(of(&view(10, 7, 2), 4), Room::Full { pending: 2 });
    assert_eq!(of(&view(10, 0, 0), 11), Room::TooLarge);
    let coming = amounts(3);
    let sent = room(&view(10, 4, 0), &Usage::new(), &coming, &amounts(4));
    assert_eq!(sent, Room::Full { pending: 0 }, "what was just sent there counts");
    let mut stopped = view(10, 0, 0);
    stopped.queue.stop = StopPolicy::Hold;
    assert_eq!(of(&stopped, 1), Room::Closed(Closed::QueueStopped));
    let gpu = Amounts::from([(ResourceName::from("gpu"), Amount::new(1))]);
    assert_eq!(
        room(&view(10, 0, 0), &Usage::new(), &Amounts::new(), &gpu),
        Room::TooLarge,
        "what the queue does not cover"
    );
}

/// Spec: multikueue 4.3
#[test]
fn a_cohort_lends_what_its_other_queues_leave() {
    let ours = in_cohort(view(10, 8, 0));
    let lent = spare([&in_cohort(view(10, 4, 0)), &in_cohort(view(10, 11, 0))]);
    let borrowed = Room::Fits {
        borrows: true,
        pending: 0,
        left: 0,
    };
    let at = |cpu| room(&ours, &lent, &Amounts::new(), &amounts(cpu));
    assert_eq!(at(2), fits(0));
    assert_eq!(at(7), borrowed);
    assert_eq!(at(8), Room::Full { pending: 0 });
    let mut limited = ours.clone();
    let quota = limited.queue.groups[0].flavors[0]
        .quotas
        .values_mut()
        .next()
        .unwrap();
    quota.borrowing_limit = Some(Amount::new(1));
    let at = |cpu| room(&limited, &lent, &Amounts::new(), &amounts(cpu));
    assert_eq!(at(3), borrowed);
    assert_eq!(at(4), Room::Full { pending: 0 });
    assert_eq!(at(12), Room::TooLarge);
}

/// Workers `a` to `d`, in this order of the config.
fn by_room(rooms: &[Room; 4]) -> Case {
    let mut case = Case::new();
    case.clusters = names(&["a", "b", "c", "d"]);
    for (name, room) in case.clusters.clone().into_iter().zip(rooms) {
        case.remotes.insert(name.clone(), reachable(None, None));
        let room = room.clone();
        case.sites.insert(
            name,
            Site {
                room,
                ..Site::default()
            },
        );
    }
    case.dispatcher = Dispatcher::Capacity;
    case
}

const FULL: Room = Room::Full { pending: 3 };

/// Spec: multikueue 4.3
#[test]
fn the_one_with_room_is_asked_and_the_full_ones_are_left_alone() {
    let case = by_room(&[FULL, fits(100), fits(700), Room::TooLarge]);
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["c"]);
    assert_eq!(plan.on("c"), [RemoteAction::CreateWorkload]);
    for other in ["a", "b", "d"] {
        assert!(plan.on(other).is_empty());
    }
    assert_eq!(plan.wake_at, Some(at(100) + WIDEN));
}

/// Spec: multikueue 4.3
#[test]
fn a_refusal_asks_the_next_with_room_at_once_and_time_asks_the_rest() {
    let mut case = by_room(&[FULL, fits(100), fits(700), Room::TooLarge]).nominated(&["c"]);
    case.round = Some(100);
    let refused = RemoteWorkload {
        answer: Answer::TurnedDown,
        ..remote()
    };
    assert_eq!(case.plan().nominated(), ["c"], "it has not answered yet");
    case = case.remote("c", reachable(Some(refused.clone()), None));
    assert_eq!(case.plan().nominated(), ["c", "b"]);

    case = case
        .nominated(&["c", "b"])
        .remote("b", reachable(Some(refused), None));
    assert_eq!(case.plan().nominated(), ["c", "b"], "nobody else has room");
    case.now = 101;
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["c", "b", "a", "d"]);
    assert_eq!(plan.wake_at, None, "everybody is asked");
}

/// Spec: multikueue 4.3; safety I12
#[test]
fn one_that_is_late_with_the_receipt_is_not_waited_for_when_another_has_room() {
    let late = |mut case: Case, names: &[&str]| {
        for name in names {
            case.sites.get_mut(&ClusterName::from(*name)).unwrap().late = true;
        }
        case
    };
    let rooms = [FULL, fits(100), fits(700), Room::TooLarge];
    let mut case = late(by_room(&rooms), &["c"]).nominated(&["c"]);
    case.round = Some(100);
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["c", "b"]);
    assert_eq!(plan.on("b"), [RemoteAction::CreateWorkload]);

    let received = case.remote("c", reachable(Some(remote()), None));
    assert_eq!(
        received.plan().nominated(),
        ["c"],
        "this copy is there: its queue decides"
    );

    let fresh = late(by_room(&rooms), &["c"]).plan();
    assert_eq!(fresh.nominated(), ["b"]);
    let last = late(by_room(&[FULL, Room::TooLarge, fits(700), FULL]), &["c"]);
    assert_eq!(last.plan().nominated(), ["c"], "room is worth waiting for");
    let both = late(by_room(&rooms), &["b", "c"]).nominated(&["c"]);
    assert_eq!(both.plan().nominated(), ["c"], "nobody is quicker");
}

/// Spec: multikueue 4.3
#[test]
fn without_knowledge_everybody_is_asked_and_a_missing_queue_is_named() {
    let unknown = by_room(&[const { Room::Unknown }; 4]).plan();
    assert_eq!(unknown.nominated(), ["a", "b", "c", "d"]);
    let missing = by_room(&[const { Room::Closed(Closed::QueueMissing) }; 4]).plan();
    assert_eq!(missing.status.nominated.len(), 0);
    assert_eq!(missing.waits_for(), Some("QueueMissingOnCluster"));
    assert!(missing.check().1.contains("is missing on a, b, c, d"));
    let name = || "gpus".to_owned();
    let behind = [(); 4].map(|()| Room::Closed(Closed::ClusterQueueMissing { name: name() }));
    let behind = by_room(&behind).plan();
    assert_eq!(behind.waits_for(), Some("QueueMissingOnCluster"));
    assert!(
        behind
            .check()
            .1
            .contains("has no ClusterQueue \"gpus\", which its LocalQueue names")
    );
    let next = behind.waiting.unwrap().next_step();
    assert!(
        next.starts_with("create ClusterQueue \"gpus\" on cluster"),
        "{next}"
    );
}

/// The reference's dispatchers ask such a cluster too.
///
/// Spec: multikueue 4.4
#[test]
fn a_queue_that_takes_nothing_is_the_reason_whichever_dispatcher_asks_and_no_wait_for_quota() {
    let incremental = Dispatcher::Incremental {
        step: 3,
        order: Order::OfConfig,
    };
    for dispatcher in [Dispatcher::AllAtOnce, incremental] {
        let mut case = Case::new();
        case.dispatcher = dispatcher;
        let mut close = |cluster: &str, why| {
            let room = Room::Closed(why);
            case.sites.insert(
                cluster.into(),
                Site {
                    room,
                    ..Site::default()
                },
            );
        };
        close("a", Closed::QueueMissing);
        close("b", Closed::QueueMissing);
        let plan = case.plan();
        assert_eq!(plan.nominated().len(), 2, "they are asked as before");
        assert_eq!(plan.waits_for(), Some("QueueMissingOnCluster"));
        assert!(
            plan.check().1.ends_with(" is missing on a, b"),
            "{}",
            plan.check().1
        );

        let stopped = Closed::QueueStopped;
        let site = Site {
            room: Room::Closed(stopped),
            ..Site::default()
        };
        case.sites = BTreeMap::from([("a".into(), site)]);
        case.clusters = names(&["a"]);
        let mut case = case.remote("a", reachable(Some(remote()), None));
        let plan = case.plan();
        assert_eq!(plan.waits_for(), Some("QueueStoppedOnCluster"));
        let reply = ("a", Reply::NotSuitable, "QueueStoppedOnCluster");
        assert_eq!(replies(&plan), [reply]);
        let reserved = RemoteWorkload {
            answer: Answer::Reserved,
            ..remote()
        };
        case = case.remote("a", reachable(Some(reserved), None));
        assert_eq!(case.plan().check().1, "waiting for checks on \"a\"");
    }
}

/// Spec: multikueue 4.3, 4.4
#[test]
fn a_cluster_that_does_not_answer_is_named_with_the_last_words_that_were_heard_of_it() {
    assert_eq!(observed::UNKNOWN, Site::default());
    let mut case = Case::fresh().remote("a", reachable(None, None));
    case.clusters = names(&["a"]);
    case.dispatcher = Dispatcher::Capacity;
    let site = Site {
        room: Room::Closed(Closed::NotAnswering {
            words: "etcdserver: no space".to_owned(),
        }),
        ..Site::default()
    };
    case.sites.insert("a".into(), site);
    let plan = case.plan();
    assert_eq!(plan.waits_for(), Some("ClusterNotAnswering"));
    let sentence = "cluster \"a\" leaves requests unanswered, or fails them: etcdserver: no space";
    assert_eq!(plan.check().1, sentence);
    assert_eq!(plan.seen[0].detail, "ClusterNotAnswering: etcdserver: no space");
}

/// Spec: experience 3 (cordon)
#[test]
fn a_cordoned_cluster_gets_nothing_new_and_keeps_what_it_runs_unless_drained() {
    let cordon = |case: &mut Case, cordon| {
        let site = Site {
            cordon,
            ..Site::default()
        };
        case.sites.insert("a".into(), site);
    };
    let mut seeking = Case::new()
        .nominated(&["a", "b"])
        .remote("a", reachable(Some(admitted(1)), None));
    cordon(&mut seeking, Cordon::Closed);
    let plan = seeking.plan();
    assert_eq!((plan.cluster(), plan.nominated()), (None, vec!["b"]));
    // Another pass may be storing the choice of `a` just now.
    assert!(plan.on("a").is_empty());
    let mut stored = seeking.clone();
    stored.status = plan.status;
    assert!(stored.plan().on("a").contains(&RemoteAction::DeleteWorkload));
    cordon(&mut seeking, Cordon::Open);
    assert_eq!(seeking.plan().cluster(), Some("a"));

    for stays in [Cordon::Closed, Cordon::Leaving] {
        let mut case = Case::won();
        cordon(&mut case, stays);
        assert_eq!(case.plan().cluster(), Some("a"));
        assert_eq!(case.plan().mirrors(), Some("a"));
    }
    let mut case = Case::won();
    cordon(&mut case, Cordon::Drained);
    let plan = case.plan();
    assert_eq!(plan.check().0, CheckPhase::Retry);
    assert!(plan.check().1.contains("is being drained"));

    let mut alone = Case::new();
    alone.clusters = names(&["a"]);
    cordon(&mut alone, Cordon::Closed);
    assert_eq!(alone.plan().waits_for(), Some("ClusterCordoned"));
}

/// Spec: safety I1, 3.5; multikueue 3.10, 13.B8
#[test]
fn a_lost_cluster_that_leaves_is_given_up_as_the_policy_says_or_when_an_administrator_says_so() {
    let mut case = Case::won().remote("a", away(100));
    let mut leaving = Site {
        cordon: Cordon::Leaving,
        ..Site::default()
    };
    case.sites.insert("a".into(), leaving.clone());
    case.now = 1000;
    assert_eq!(case.plan().check().0, CheckPhase::Ready, "Wait keeps it for ever");
    let mut unlisted = case.clone();
    unlisted.clusters = vec!["b".into()];
    unlisted.sites.clear();
    let plan = unlisted.plan();
    assert_eq!(plan.check().0, CheckPhase::Ready, "out of the config is no word");
    let next = plan.waiting.unwrap().next_step();
    assert!(next.contains("roadstead cluster give-up a"), "{next}");

    let mut fenced = case.clone();
    fenced.lost = LostPolicy::Fence;
    let closes = Fence::Closes { at: at(1001) };
    let since = at(100);
    let mut fenced = fenced.remote("a", Remote::Unreachable { since, fence: closes });
    assert_eq!(fenced.plan().check().0, CheckPhase::Ready);
    fenced.now = 1001;
    assert_eq!(fenced.plan().check().0, CheckPhase::Retry);
    let mut anyway = case.clone();
    anyway.lost = LostPolicy::RetryAnyway;
    assert_eq!(anyway.plan().check().0, CheckPhase::Retry);
    assert!(anyway.plan().notes[0].message.contains("may run twice"));

    leaving.given_up = true;
    case.sites.insert("a".into(), leaving);
    let plan = case.plan();
    assert_eq!((plan.check().0, plan.notes.len()), (CheckPhase::Retry, 0));
}

fn any_room() -> impl Strategy<Value = Room> {
    prop_oneof![
        Just(Room::Unknown),
        (any::<bool>(), 0..3_u32, 0..1_000_000_u32).prop_map(|(borrows, pending, left)| Room::Fits {
            borrows,
            pending,
            left
        }),
        (0..3_u32).prop_map(|pending| Room::Full { pending }),
        Just(Room::TooLarge),
        Just(Room::Closed(Closed::QueueMissing)),
        Just(Room::Closed(Closed::QueueStopped)),
    ]
}

fn has_room(room: &Room) -> bool {
    matches!(room, Room::Fits { .. })
}

proptest! {
    /// A cluster with room is asked before one without. A cluster that was asked stays asked. After enough time every cluster that
    /// can be asked is asked. The number of steps grows with the logarithm of the number of workers.
    ///
    /// Spec: multikueue 4.3
    #[test]
    fn asking_goes_from_room_to_none_never_back_and_reaches_everybody(rooms in proptest::array::uniform4(any_room())) {
        let mut case = by_room(&rooms);
        let first = case.plan();
        if rooms.iter().any(has_room) {
            prop_assert_eq!(first.status.nominated.len(), 1);
            let index = case.clusters.iter().position(|name| *name == first.status.nominated[0]).unwrap();
            prop_assert!(has_room(&rooms[index]));
        }
        let mut asked = first.status.nominated;
        for _ in 0..4 {
            case = case.nominated(&asked.iter().map(ClusterName::as_str).collect::<Vec<_>>());
            case.round = Some(case.now);
            case.now += 10;
            let next = case.plan().status.nominated;
            prop_assert!(next.starts_with(&asked), "{next:?} after {asked:?}");
            asked = next;
        }
        let open = rooms.iter().filter(|room| !matches!(room, Room::Closed(_))).count();
        prop_assert_eq!(asked.len(), open);
    }

    /// Spec: multikueue 4.3
    #[test]
    fn what_fits_fits_without_what_others_have(nominal in 1..100_i64, used in 0..100_i64, asked in 1..100_i64) {
        let fits_now = matches!(of(&view(nominal, used, 0), asked), Room::Fits { .. });
        prop_assert_eq!(fits_now, used + asked <= nominal);
        prop_assert_eq!(of(&view(nominal, used, 0), asked) == Room::TooLarge, asked > nominal);
    }
}
