use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const LENGTH: Duration = Duration::from_secs(30);
/// How finely time passes.
const TICK: u64 = 50;
/// Histories of the property test; together they take a second or two.
const CASES: u32 = 256;

fn at(millis: u64) -> Moment {
    Moment::after_start(Duration::from_millis(millis))
}

fn terms() -> Terms {
    Terms::of(LENGTH)
}

#[expect(clippy::unnecessary_wraps, reason = "what a look shows may be nothing")]
fn seen(number: u64) -> Option<Seen> {
    Some(Seen {
        uid: "u".to_owned(),
        number,
        terms: terms(),
    })
}

/// A look each second, at the first three renewals.
fn renewed_thrice() -> Watch {
    let mut watch = Watch::default();
    for number in 1..=3 {
        watch.looked(at(number * 1_000), seen(number));
    }
    watch
}

/// Spec: safety 3.2, 3.5
#[test]
fn a_worker_takes_no_lease_for_longer_than_the_limit_whatever_is_written_there() {
    assert_eq!(Terms::written(600).length(), Duration::from_mins(10));
    assert_eq!(Terms::written(0).length(), Duration::from_secs(1));
    let most = LENGTH_MAX.as_secs();
    for secs in [most, most + 1, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(Terms::written(secs).length(), LENGTH_MAX, "{secs}");
    }
}

/// Spec: safety "how this fits" 3; safety 3.4
#[test]
fn a_lease_is_two_thirds_of_the_timeout_and_what_follows_ends_with_it() {
    let timeout = Duration::from_mins(15);
    let terms = Terms::for_timeout(timeout);
    assert_eq!(terms.length(), Duration::from_mins(10));
    assert_eq!(terms.closed_after(Duration::ZERO), timeout);
    assert_eq!(terms.beat(), Duration::from_secs(5));
    let long = Duration::from_mins(5);
    assert_eq!(
        terms.closed_after(long),
        timeout + (long.saturating_sub(terms.drain()))
    );
    assert_eq!(
        Terms::for_timeout(Duration::ZERO).length(),
        Duration::from_secs(1)
    );
}

/// Spec: safety 3.3
#[test]
fn starts_end_at_two_thirds_and_work_at_the_whole_length() {
    assert_eq!(Watch::default().standing(at(99_000)), Standing::Free);
    let mut watch = renewed_thrice();
    // The third renewal was sent after the second was stored, and the look that showed the first did not show the second.
    assert_eq!(watch.age(at(20_000)), Some(Duration::from_secs(19)));
    assert_eq!(watch.standing(at(20_999)), Standing::Held);
    assert_eq!(watch.changes_at(at(4_000)), Some(at(21_000)));
    assert_eq!(watch.standing(at(21_000)), Standing::Doubtful);
    assert_eq!(watch.changes_at(at(21_000)), Some(at(31_000)));
    assert_eq!(watch.standing(at(31_000)), Standing::Expired);
    watch.looked(at(31_000), seen(4));
    watch.looked(at(31_500), seen(5));
    watch.looked(at(32_000), seen(6));
    assert_eq!(watch.standing(at(32_000)), Standing::Held, "the manager is back");
}

#[test]
fn a_renewal_that_took_long_to_arrive_does_not_count_from_its_arrival() {
    let mut watch = renewed_thrice();
    for second in 4..25 {
        watch.looked(at(second * 1_000), seen(3));
    }
    watch.looked(at(25_000), seen(4));
    assert_eq!(watch.standing(at(32_000)), Standing::Expired);
    watch.looked(at(25_500), seen(4));
    watch.looked(at(26_000), seen(5));
    assert_eq!(
        watch.standing(at(40_000)),
        Standing::Held,
        "its successor was sent after it"
    );
}

#[test]
fn a_worker_that_has_just_started_trusts_nothing_until_it_has_proof() {
    let mut watch = Watch::default();
    watch.looked(at(0), seen(7));
    assert_eq!(watch.standing(at(0)), Standing::Doubtful);
    assert!(!watch.knows_its_age());
    let mut left_alone = watch.clone();
    watch.marked(at(100), &seen(7).unwrap());
    watch.looked(at(1_000), seen(8));
    assert!(watch.knows_its_age());
    assert_eq!(watch.standing(at(1_000)), Standing::Held);
    left_alone.looked(at(1_000), seen(7));
    assert_eq!(left_alone.standing(at(6_000)), Standing::Expired);
}

#[test]
fn a_lease_that_vanishes_gives_no_more_time_and_its_successor_needs_proof_of_its_own() {
    let mut watch = renewed_thrice();
    watch.looked(at(4_000), None);
    assert_eq!(watch.standing(at(31_000)), Standing::Expired);
    let successor = |number| {
        seen(number).map(|seen| Seen {
            uid: "v".to_owned(),
            ..seen
        })
    };
    watch.looked(at(20_000), successor(1));
    assert_eq!(
        watch.standing(at(31_000)),
        Standing::Expired,
        "a first one may be as old as one likes"
    );
    watch.looked(at(20_500), successor(2));
    assert_eq!(
        watch.changes_at(at(30_000)),
        Some(at(34_000)),
        "the look that did not show it counts"
    );
}

/// Spec: safety 3.3
#[test]
fn a_number_after_which_none_comes_does_not_keep_a_lease_for_ever() {
    let mut watch = renewed_thrice();
    for second in 4..40 {
        watch.looked(at(second * 1_000), seen(u64::MAX));
    }
    assert_eq!(
        watch.standing(at(31_000)),
        Standing::Expired,
        "the edit is no renewal: it counts from the third"
    );
    assert_eq!((next_renewal(7), next_renewal(u64::MAX)), (8, 1));
}

/// Spec: safety 3.2, 3.3, F15
#[test]
fn a_lease_whose_number_went_back_is_kept_by_the_renewals_that_follow() {
    let mut watch = Watch::default();
    for number in 501..=503 {
        watch.looked(at((number - 500) * 1_000), seen(number));
    }
    watch.looked(at(4_000), seen(7));
    assert_eq!(
        watch.changes_at(at(21_000)),
        Some(at(31_000)),
        "it proves nothing"
    );
    watch.looked(at(5_000), seen(8));
    assert_eq!(
        watch.changes_at(at(21_000)),
        Some(at(31_000)),
        "it may have been under way"
    );
    watch.looked(at(6_000), seen(9));
    assert_eq!(
        watch.changes_at(at(24_000)),
        Some(at(34_000)),
        "it was sent after the look at 7"
    );
}

/// Spec: safety 3.3
#[test]
fn a_restarted_worker_that_misses_a_lease_fences_unless_it_is_made_anew_in_time() {
    let mut watch = Watch::missing(at(1_000), terms());
    watch.looked(at(1_000), None);
    assert_eq!(watch.standing(at(1_000)), Standing::Doubtful);
    assert_eq!(watch.changes_at(at(1_000)), Some(at(7_000)));
    let mut renewed = watch.clone();
    watch.looked(at(6_000), None);
    assert_eq!(watch.standing(at(7_000)), Standing::Expired);
    renewed.looked(at(3_000), seen(1));
    assert_eq!(
        renewed.standing(at(7_000)),
        Standing::Expired,
        "the first one may be as old as one likes"
    );
    renewed.looked(at(4_000), seen(2));
    assert_eq!(renewed.standing(at(7_000)), Standing::Held);
    assert_eq!(renewed.changes_at(at(30_000)), Some(at(31_000)));
}

/// Spec: safety 3.6
#[test]
fn a_worker_whose_engine_had_stopped_before_it_was_lost_never_closes() {
    let mut grant = Grant::new(at(0), terms());
    assert_eq!(grant.closing(Duration::ZERO), Closing::Never);
    assert_eq!(grant.guard(), Guard::Unmarked);
    grant.answered(None, at(500));
    assert_eq!(
        (grant.guard(), grant.closing(Duration::ZERO)),
        (Guard::Unmarked, Closing::Never)
    );
    grant.sending(at(1_000), terms());
    grant.answered(Some("1"), at(1_000));
    assert_eq!(grant.guard(), Guard::Looks);
    assert_eq!(grant.closing(Duration::ZERO), Closing::At(at(46_000)));
    grant.answered(Some("1"), at(31_000));
    assert_eq!(grant.closing(Duration::ZERO), Closing::At(at(46_000)));
    grant.answered(Some("1"), at(31_001));
    assert_eq!(grant.closing(Duration::ZERO), Closing::Never);
    assert_eq!(grant.guard(), Guard::Stopped);
    grant.answered(Some("2"), at(32_000));
    assert_eq!(grant.guard(), Guard::Looks, "it is back");
}

/// Spec: safety 3.6
#[test]
fn a_mark_that_a_manager_finds_when_it_starts_proves_nothing_until_it_changes() {
    let mut grant = Grant::new(at(0), terms());
    grant.sending(at(0), terms());
    grant.answered(Some("1"), at(0));
    grant.answered(Some("1"), at(4_000));
    assert_eq!(grant.closing(Duration::ZERO), Closing::Never);
    assert_eq!(grant.guard(), Guard::Unproven);
    assert_eq!(
        grant.tenure(at(4_000)),
        Tenure::Held,
        "work is sent there meanwhile"
    );
    grant.answered(Some("2"), at(5_000));
    assert_eq!(grant.closing(Duration::ZERO), Closing::At(at(45_000)));
    assert_eq!(grant.guard(), Guard::Looks);
}

/// Spec: safety 3.3
#[test]
fn a_manager_knows_when_its_lease_has_lapsed_and_when_there_never_was_one() {
    let mut grant = Grant::new(at(0), terms());
    grant.sending(at(0), terms());
    assert_eq!(grant.tenure(at(99_000)), Tenure::Never);
    // The predecessor's lease is there, and this process may not renew it: it ends as if the predecessor had renewed it when this process
    // began.
    grant.answered(None, at(1_000));
    assert_eq!(grant.tenure(at(19_999)), Tenure::Held);
    assert_eq!(
        grant.tenure(at(20_000)),
        Tenure::Never,
        "the worker does not look at it"
    );
    grant.answered(Some("once"), at(2_000));
    assert_eq!(grant.tenure(at(19_999)), Tenure::Held);
    assert_eq!(grant.tenure(at(20_000)), Tenure::Lapsed);
    grant.sending(at(30_000), terms());
    assert_eq!(
        grant.tenure(at(30_000)),
        Tenure::Lapsed,
        "it is not known yet whether it arrives"
    );
    grant.renewed();
    assert_eq!(grant.tenure(at(49_999)), Tenure::Held);
    assert_eq!(grant.tenure(at(50_000)), Tenure::Lapsed);
}

#[test]
fn a_longer_lease_that_was_sent_before_counts_as_long_as_it_may_be_in_force() {
    let mut grant = Grant::new(at(0), terms()).with_record();
    let short = Terms::of(Duration::from_secs(10));
    grant.sending(at(40_000), short);
    assert_eq!(grant.closing(Duration::ZERO), Closing::Recorded(at(55_000)));
    grant.sending(at(20_000), Terms::of(Duration::from_mins(1)));
    assert_eq!(grant.closing(Duration::ZERO), Closing::Recorded(at(110_000)));
}

/// Spec: safety 3.4, 3.6
#[test]
fn what_an_earlier_process_has_recorded_counts_until_this_one_hears_of_the_worker() {
    let recorded = || Grant::new(at(0), terms()).with_record();
    let mut grant = recorded();
    grant.sending(at(1_000), terms());
    assert_eq!(grant.closing(Duration::ZERO), Closing::Recorded(at(46_000)));
    grant.connected();
    assert_eq!(
        grant.closing(Duration::ZERO),
        Closing::Never,
        "it may keep no lease there"
    );
    for mark in [None, Some("7")] {
        let mut grant = recorded();
        grant.answered(mark, at(1_000));
        assert_eq!(grant.closing(Duration::ZERO), Closing::Never, "{mark:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u64),
    /// The manager sends a renewal made from what it knows.
    Send,
    /// One of the messages under way is applied.
    Deliver(usize),
    Lose(usize),
    /// The manager learns what is stored.
    Learn,
    LookBegins,
    /// The look of the worker is answered by the server; the answer is under way.
    LookIsAnswered,
    LookEnds,
    Mark,
    RestartWorker,
    /// The worker's engine stops for good.
    StopEngine,
    RestartManager,
    /// The next process of the manager cannot reach the worker; it knows only what this process has recorded.
    RestartManagerAway,
    /// A user deletes the lease, and it is not created again.
    Delete,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..6_000_u64).prop_map(Op::Wait),
        1 => (0..40_000_u64).prop_map(Op::Wait),
        6 => Just(Op::Send),
        6 => (0..4_usize).prop_map(Op::Deliver),
        1 => (0..4_usize).prop_map(Op::Lose),
        6 => Just(Op::Learn),
        6 => Just(Op::LookBegins),
        6 => Just(Op::LookIsAnswered),
        6 => Just(Op::LookEnds),
        2 => Just(Op::Mark),
        1 => Just(Op::RestartWorker),
        1 => Just(Op::StopEngine),
        1 => Just(Op::RestartManager),
        1 => Just(Op::RestartManagerAway),
        1 => Just(Op::Delete),
    ]
}

/// A quiet time in which all goes well, so that histories do not consist of faults only.
fn beat() -> Vec<Op> {
    vec![
        Op::Wait(1_000),
        Op::Learn,
        Op::Send,
        Op::Deliver(0),
        Op::LookBegins,
        Op::LookIsAnswered,
        Op::LookEnds,
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let step = prop_oneof![3 => op().prop_map(|op| vec![op]), 1 => Just(beat())];
    proptest::collection::vec(step, 1..80).prop_map(|steps| steps.concat())
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    version: u64,
    number: u64,
    /// How often the worker has marked it.
    marks: u64,
}

/// A look of the worker at the server.
#[derive(Clone, Copy, Debug)]
enum Look {
    Asks,
    /// With what the server holds.
    Answered(Option<Stored>),
}

/// One manager, one server, one worker whose clock runs at its own rate.
struct World {
    now: u64,
    /// Clock rate per mille of the manager's.
    worker_rate: u64,
    stored: Stored,
    known: Stored,
    under_way: Vec<Stored>,
    grant: Grant,
    watch: Watch,
    deleted: bool,
    look: Option<(Moment, Look)>,
    fenced_at: Option<u64>,
    engine_ended_at: Option<u64>,
    manager_began_at: u64,
}

impl World {
    fn new(worker_rate: u64) -> Self {
        let stored = Stored {
            version: 1,
            number: 1,
            marks: 0,
        };
        let mut world = Self {
            now: 0,
            worker_rate,
            stored,
            known: stored,
            under_way: Vec::new(),
            grant: Grant::new(at(0), terms()),
            watch: Watch::default(),
            deleted: false,
            look: None,
            fenced_at: None,
            engine_ended_at: None,
            manager_began_at: 0,
        };
        world.look_at_once();
        world
    }

    fn worker_now(&self) -> Moment {
        at(self.now * self.worker_rate / 1_000)
    }

    /// The first look of a process. The jobs there show that there was a lease, and its length.
    fn look_at_once(&mut self) {
        let now = self.worker_now();
        if self.deleted {
            self.watch = Watch::missing(now, terms());
        }
        self.watch
            .looked(now, self.shown().and_then(|lease| seen(lease.number)));
    }

    fn shown(&self) -> Option<Stored> {
        (!self.deleted).then_some(self.stored)
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Wait(millis) => {
                let until = self.now + millis;
                while self.now < until {
                    self.now += TICK;
                    self.judge();
                }
            }
            Op::Send => {
                self.grant.sending(at(self.now), terms());
                self.under_way.push(Stored {
                    number: self.known.number + 1,
                    ..self.known
                });
            }
            Op::Deliver(which) => {
                if which < self.under_way.len() {
                    let message = self.under_way.remove(which);
                    if message.version == self.stored.version && !self.deleted {
                        self.stored.version += 1;
                        self.stored.number = message.number;
                    }
                }
            }
            Op::Lose(which) => {
                if which < self.under_way.len() {
                    self.under_way.remove(which);
                }
            }
            Op::Learn => self.learn(),
            Op::LookBegins | Op::LookIsAnswered | Op::LookEnds | Op::Mark | Op::RestartWorker
                if self.engine_ended_at.is_some() => {}
            Op::LookBegins => self.look = Some((self.worker_now(), Look::Asks)),
            Op::LookIsAnswered => {
                let shown = self.shown();
                if let Some((_, look @ Look::Asks)) = &mut self.look {
                    *look = Look::Answered(shown);
                }
            }
            Op::LookEnds => {
                if let Some((began, Look::Answered(shown))) = self.look {
                    self.watch
                        .looked(began, shown.and_then(|lease| seen(lease.number)));
                    self.look = None;
                }
            }
            Op::Mark if self.deleted => {}
            Op::Mark => {
                self.stored.version += 1;
                self.stored.marks += 1;
                self.watch
                    .marked(self.worker_now(), &seen(self.stored.number).unwrap());
            }
            Op::RestartWorker => {
                // Why only then: a process that never lives long enough to know the age counts as dead (safety 3.6).
                if self.watch.knows_its_age() {
                    self.watch = Watch::default();
                    self.look = None;
                    self.look_at_once();
                }
            }
            Op::StopEngine => {
                self.engine_ended_at.get_or_insert(self.now);
            }
            Op::RestartManager => {
                self.grant = Grant::new(at(self.now), terms());
                self.manager_began_at = self.now;
                self.learn();
            }
            Op::RestartManagerAway => {
                let is_recorded = !matches!(self.grant.closing(Duration::ZERO), Closing::Never);
                let grant = Grant::new(at(self.now), terms());
                self.grant = if is_recorded { grant.with_record() } else { grant };
                self.manager_began_at = self.now;
            }
            Op::Delete => self.deleted = true,
        }
        self.judge();
    }

    fn learn(&mut self) {
        self.known = self.stored;
        if !self.deleted {
            let mark = (self.stored.marks > 0).then(|| self.stored.marks.to_string());
            self.grant.answered(mark.as_deref(), at(self.now));
        }
    }

    fn judge(&mut self) {
        let lives = self.engine_ended_at.is_none();
        if lives && self.fenced_at.is_none() && self.watch.standing(self.worker_now()) == Standing::Expired {
            self.fenced_at = Some(self.now);
        }
    }

    /// Whether the manager counts the worker as closed.
    fn is_closed(&self) -> bool {
        match self.grant.closing(Duration::ZERO) {
            Closing::At(closed) | Closing::Recorded(closed) => closed <= at(self.now),
            Closing::Never => false,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default() })]

    /// Spec: safety 3.2, 3.3, 3.4, 3.6; safety 1 I1
    #[test]
    fn the_worker_fences_before_the_manager_counts_on_it(ops in ops(), worker_rate in 910_u64..1_100) {
        let mut world = World::new(worker_rate);
        let drain = u64::try_from(terms().drain().as_millis()).unwrap();
        let mut rest = vec![Op::Wait(60_000)];
        rest.splice(0..0, ops);
        for op in rest {
            world.step(op);
            let was_seen = world.engine_ended_at.is_none_or(|ended| ended > world.manager_began_at);
            prop_assert!(was_seen || !matches!(world.grant.closing(Duration::ZERO), Closing::At(_)), "no worker was there");
            if world.is_closed() && world.engine_ended_at.is_some() {
                // The worker's promise ends with its engine (safety 3.6).
                return Ok(());
            }
            if world.is_closed() {
                let fenced = world.fenced_at;
                prop_assert!(fenced.is_some_and(|at| at + drain <= world.now), "{fenced:?} at {}", world.now);
                return Ok(());
            }
        }
        let closing = world.grant.closing(Duration::ZERO);
        prop_assert_eq!(closing, Closing::Never, "a manager that sends nothing more counts on the fence in the end");
    }

    /// Spec: safety "how this fits" 3
    #[test]
    fn a_manager_that_renews_in_time_is_never_fenced(pauses in proptest::collection::vec(0..6_000_u64, 1..60), worker_rate in 910_u64..1_100) {
        let mut world = World::new(worker_rate);
        for pause in pauses {
            world.step(Op::Wait(pause / 4));
            for op in beat().into_iter().skip(1) {
                world.step(op);
            }
            prop_assert_eq!(world.fenced_at, None);
        }
    }
}
