use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{Effect, Event, LATE, Link, Miss, Reason, SILENT};
use crate::condition::Truth;
use crate::lease::{Closing, Grant, Guard, Moment, Tenure, Terms};
use crate::state::fixtures::at;

fn up(secs: u64) -> Moment {
    Moment::after_start(Duration::from_secs(secs))
}

fn terms() -> Terms {
    Terms::of(Duration::from_mins(10))
}

fn new(second: i64) -> Link {
    Link::new(at(second), Grant::new(Moment::default(), terms()))
}

fn fails(link: &mut Link, why: &str, second: i64) {
    link.step(Event::NotConnected { why, now: at(second) });
}

/// Spec: multikueue 11.21
#[test]
fn waits_grow_from_five_seconds_to_320_and_the_condition_shows_them() {
    let mut link = new(0);
    let mut waits = Vec::new();
    for n in 1..=8_u32 {
        let now = 1_000 * i64::from(n);
        fails(&mut link, "refused", now);
        waits.push(link.next_attempt().unwrap().duration_since(at(now)).as_secs());
        assert_eq!(link.failed_attempts, n);
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 320]);
    let active = link.active().unwrap();
    assert_eq!(
        (active.truth, active.reason),
        (Truth::False, "ClientConnectionFailed")
    );
    assert_eq!(
        active.message,
        "refused; connection attempts: 8, next connection attempt: 1970-01-01T02:18:40Z"
    );
}

/// Spec: multikueue 11.22
#[test]
fn the_next_attempt_is_due_after_its_wait_or_with_new_credentials() {
    let mut link = new(0);
    fails(&mut link, "refused", 0);
    assert_eq!(link.next_attempt(), Some(at(5)));
    assert_eq!(link.failed_attempts, 1);
    link.step(Event::CredentialsChanged(at(4)));
    assert_eq!((link.next_attempt(), link.failed_attempts), (None, 0));
}

#[test]
fn a_wait_that_is_over_makes_the_next_attempt_due_and_forgets_no_failure() {
    let mut link = new(0);
    fails(&mut link, "refused", 0);
    link.step(Event::WaitOver);
    assert_eq!((link.next_attempt(), link.failed_attempts), (None, 1));
}

/// Spec: multikueue 2.4, 11.23
#[test]
fn an_attempt_may_take_one_minute_then_twice_as_long_up_to_ten() {
    let mut link = new(0);
    let timeouts: Vec<_> = (1..=6)
        .map(|n| {
            let timeout = link.open_timeout().as_secs();
            fails(&mut link, "hangs", 1_000 * n);
            timeout
        })
        .collect();
    assert_eq!(timeouts, [60, 120, 240, 480, 600, 600]);
}

/// Spec: multikueue 10.F7, 11.25, 11.26
#[test]
fn the_first_loss_counts_until_the_connection_is_whole() {
    let mut link = new(0);
    assert_eq!(
        link.loss_shows_from(),
        Some(Timestamp::MIN),
        "older than this process"
    );
    link.step(Event::Connected(at(2)));
    assert_eq!(link.lost_since(), None);
    link.step(Event::WatchEnded(at(10)));
    assert!(!link.is_connected());
    assert_eq!(
        link.active().unwrap().message,
        "Connected",
        "until an attempt fails"
    );
    link.step(Event::WatchEnded(at(11)));
    link.step(Event::CredentialsChanged(at(12)));
    fails(&mut link, "refused", 20);
    assert_eq!(link.active().unwrap().truth, Truth::False);
    assert_eq!(link.lost_since(), Some(at(10)));
    assert_eq!(link.loss_shows_from(), Some(at(10)));
    link.step(Event::Connected(at(30)));
    assert_eq!(link.active().unwrap().truth, Truth::True);
    assert_eq!(link.lost_since(), None);
}

/// Spec: multikueue 2.4, 11.75 (a new client counts as lost since its creation)
#[test]
fn a_new_link_is_lost_since_now_and_says_nothing() {
    let link = new(7);
    assert_eq!(link.lost_since(), Some(at(7)));
    assert_eq!(link.active(), None);
}

/// Spec: multikueue 2.2, 10.F2, 11.10, 11.11
#[test]
fn refused_credentials_disconnect_without_counting() {
    let mut link = new(0);
    link.step(Event::Connected(at(0)));
    link.step(Event::Refused {
        reason: Reason::InsecureKubeConfig,
        why: "load client config failed: tokenFile is not allowed",
        now: at(9),
    });
    let active = link.active().unwrap();
    assert_eq!(active.reason, "InsecureKubeConfig");
    assert_eq!(
        active.message,
        "load client config failed: tokenFile is not allowed"
    );
    assert!(!link.is_connected(), "so it is no candidate");
    assert_eq!(link.lost_since(), Some(at(9)));
}

/// Spec: safety F28
#[test]
fn a_cluster_without_its_secret_stays_connected_and_says_so_until_the_secret_is_back() {
    let mut link = new(0);
    link.step(Event::Connected(at(0)));
    let reason = Reason::BadKubeConfig;
    let gone = Event::SecretGone {
        reason,
        why: "load client config failed: no Secret",
    };
    link.step(gone);
    assert!(link.is_leaving() && link.is_connected());
    let active = link.active().unwrap();
    assert_eq!(active.message, "load client config failed: no Secret");
    link.step(Event::SecretBack);
    assert!(!link.is_leaving());
    assert_eq!(link.active().unwrap().truth, Truth::True);
    link.step(gone);
    link.step(Event::WatchEnded(at(5)));
    assert!(!link.is_leaving(), "it is lost");
}

/// Spec: multikueue 4.3; safety I12
#[test]
fn one_lost_answer_opens_no_breaker_two_or_a_long_silence_do_and_a_write_closes_it() {
    let mut link = new(0);
    let failed = Event::RequestFailed(Miss::Error, "no space");
    assert!(!link.is_slow());
    assert_eq!(link.step(failed), Effect::Nothing);
    assert!(link.is_slow(), "others are preferred from the first one on");
    assert_eq!(link.step(Event::RequestAnswered), Effect::Nothing);
    assert_eq!(link.step(failed), Effect::Nothing, "they were not in a row");
    assert_eq!(link.unusable(), None);
    assert_eq!(link.step(failed), Effect::Unusable);
    assert_eq!(link.unusable(), Some("no space"));
    assert_eq!(link.step(Event::RequestAnswered), Effect::UsableAgain);
    assert_eq!(link.unusable(), None);
    let silent = Event::RequestFailed(Miss::NoAnswer, "no answer");
    assert_eq!(link.step(silent), Effect::Unusable);
}

/// Spec: multikueue 4.3; safety F21
#[test]
fn a_worker_that_fails_writes_and_answers_reads_stays_unusable_while_renewals_would_show_the_end() {
    let mut link = new(0);
    let renewed = Event::LeaseRenewed(up(1));
    let failed = Event::RequestFailed(Miss::Error, "no space");
    link.step(renewed);
    link.step(failed);
    link.step(failed);
    assert_eq!(link.step(Event::Heartbeat(at(1))), Effect::Nothing);
    assert!(link.unusable().is_some());
    assert_eq!(link.step(renewed), Effect::UsableAgain, "that is a write");
    link.step(failed);
    link.step(failed);
    link.step(Event::LeaseRefused);
    assert_eq!(link.step(Event::Heartbeat(at(2))), Effect::UsableAgain);
    link.step(renewed);
    link.step(Event::Silence);
    assert_eq!(
        link.step(Event::Heartbeat(at(3))),
        Effect::UsableAgain,
        "a server that was only silent is believed again when it speaks"
    );
}

/// Spec: multikueue 2.4
#[test]
fn a_worker_is_silent_after_two_unanswered_heartbeats_since_the_last_sign_of_life() {
    let mut link = new(0);
    link.step(Event::Connected(at(1)));
    link.step(Event::Heartbeat(at(6)));
    link.step(Event::Silence);
    assert_eq!(link.silent_since(), None);
    assert_eq!(
        link.unusable(),
        Some(SILENT),
        "nothing new is sent there from the first one on"
    );
    link.step(Event::Silence);
    assert_eq!(link.silent_since(), Some(at(6)));
    link.step(Event::WatchEnded(at(26)));
    link.step(Event::Connected(at(30)));
    assert_eq!(link.silent_since(), None);
}

/// Spec: multikueue 4.3
#[test]
fn what_is_late_depends_on_what_is_usual() {
    let (mut link, ms) = (new(0), Duration::from_millis);
    assert_eq!(link.late_after(), LATE.2, "nothing is known yet");
    link.step(Event::CopyAnswered(ms(4)));
    assert_eq!(link.late_after(), LATE.1);
    for _ in 0..50 {
        link.step(Event::CopyAnswered(ms(100)));
    }
    let after = link.late_after();
    assert!(after > ms(950) && after <= ms(1000), "{after:?}");
    for _ in 0..50 {
        link.step(Event::CopyAnswered(ms(3000)));
    }
    assert_eq!(link.late_after(), LATE.2);
}

#[test]
fn a_worker_is_slow_as_long_as_one_copy_is_late() {
    let mut link = new(0);
    assert_eq!(link.step(Event::CopyLate), Effect::Slow);
    assert_eq!(link.step(Event::CopyLate), Effect::Nothing, "it was slow before");
    link.step(Event::CopyLateNoMore);
    assert!(link.is_slow());
    link.step(Event::CopyLateNoMore);
    assert!(!link.is_slow());
}

/// Spec: safety F19
#[test]
fn a_renewal_counts_as_a_heartbeat_for_a_little_longer_than_the_time_between_two() {
    let mut link = new(0);
    assert_eq!(
        (link.lease_age(up(3)), link.renewal_counts_for(up(3))),
        (None, None)
    );
    link.step(Event::LeaseRenewed(up(4)));
    assert_eq!(link.lease_age(up(9)), Some(Duration::from_secs(5)));
    assert_eq!(link.renewal_counts_for(up(9)), Some(Duration::from_secs(1)));
    assert_eq!(link.renewal_counts_for(up(10)), None);
    link.step(Event::LeaseRefused);
    assert_eq!(link.lease_age(up(9)), None);
}

/// Spec: safety F15
#[test]
fn a_lease_that_has_gone_back_or_is_missing_shows_that_the_storage_was_restored() {
    let mut link = new(0);
    let seen = |number| Event::LeaseSeen {
        number,
        mark: None,
        now: up(1),
    };
    assert_eq!(link.step(Event::LeaseMissing), Effect::Nothing);
    assert_eq!(link.step(seen(7)), Effect::Nothing);
    assert_eq!(link.step(seen(7)), Effect::Nothing);
    assert_eq!(link.step(seen(5)), Effect::ListAgain { before: 7, now: 5 });
    assert_eq!(
        link.step(Event::LeaseMissing),
        Effect::ListAgain { before: 5, now: 0 }
    );
    assert_eq!(link.step(seen(1)), Effect::Nothing);
}

/// What one row of the table in the docs of the module says, by column. `None`: the cell is empty.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    lost: Option<bool>,
    leaving: Option<bool>,
    breaker: Option<Breaker>,
    unanswered: Option<u32>,
    late: i32,
    renewed: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaker {
    Closes,
    /// Closed by this event unless a write failed where the lease is renewed.
    ClosesUnlessWritesFail,
    /// Opened by this event at once.
    Opens,
    /// Opened by this event when it is the second in a row.
    OpensAtSecond,
}

fn row(event: Event<'_>) -> Row {
    let none = Row::default();
    match event {
        Event::Connected(_) => Row {
            lost: Some(false),
            unanswered: Some(0),
            ..none
        },
        Event::NotConnected { .. }
        | Event::Refused { .. }
        | Event::CredentialsChanged(_)
        | Event::WatchEnded(_) => Row {
            lost: Some(true),
            leaving: Some(false),
            ..none
        },
        Event::SecretGone { .. } => Row {
            leaving: Some(true),
            ..none
        },
        Event::SecretBack => Row {
            leaving: Some(false),
            ..none
        },
        Event::RequestAnswered => Row {
            breaker: Some(Breaker::Closes),
            ..none
        },
        Event::RequestFailed(Miss::Error, _) => Row {
            breaker: Some(Breaker::OpensAtSecond),
            ..none
        },
        Event::RequestFailed(Miss::NoAnswer, _) => Row {
            breaker: Some(Breaker::Opens),
            ..none
        },
        Event::CopyLate => Row { late: 1, ..none },
        Event::CopyLateNoMore => Row { late: -1, ..none },
        Event::Heartbeat(_) => Row {
            breaker: Some(Breaker::ClosesUnlessWritesFail),
            unanswered: Some(0),
            ..none
        },
        Event::Silence => Row {
            breaker: Some(Breaker::Opens),
            unanswered: Some(1),
            ..none
        },
        Event::LeaseRenewed(_) => Row {
            breaker: Some(Breaker::Closes),
            renewed: Some(true),
            ..none
        },
        Event::LeaseRefused => Row {
            renewed: Some(false),
            ..none
        },
        Event::WaitOver
        | Event::CopyAnswered(_)
        | Event::LeaseSent(..)
        | Event::LeaseSeen { .. }
        | Event::LeaseMissing => none,
    }
}

fn event() -> impl Strategy<Value = Event<'static>> {
    let (now, why) = (at(0), "words");
    let one = |event| Just(event).boxed();
    let reason = Reason::BadKubeConfig;
    let seen = (0..9_u64).prop_map(|number| Event::LeaseSeen {
        number,
        mark: Some("mark"),
        now: up(0),
    });
    prop::strategy::Union::new([
        one(Event::Connected(now)),
        one(Event::NotConnected { why, now }),
        one(Event::Refused { reason, why, now }),
        one(Event::CredentialsChanged(now)),
        one(Event::WatchEnded(now)),
        one(Event::WaitOver),
        one(Event::SecretGone { reason, why }),
        one(Event::SecretBack),
        one(Event::RequestAnswered),
        one(Event::RequestFailed(Miss::Error, why)),
        one(Event::RequestFailed(Miss::NoAnswer, why)),
        one(Event::CopyAnswered(Duration::from_millis(5))),
        one(Event::CopyLate),
        one(Event::CopyLateNoMore),
        one(Event::Heartbeat(now)),
        one(Event::Silence),
        one(Event::LeaseSent(up(0), terms())),
        seen.boxed(),
        one(Event::LeaseMissing),
        one(Event::LeaseRenewed(up(0))),
        one(Event::LeaseRefused),
    ])
}

fn timed(event: Event<'static>, second: u32) -> Event<'static> {
    let (time, moment) = (at(i64::from(second)), up(u64::from(second)));
    match event {
        Event::Connected(_) => Event::Connected(time),
        Event::NotConnected { why, .. } => Event::NotConnected { why, now: time },
        Event::Refused { reason, why, .. } => Event::Refused {
            reason,
            why,
            now: time,
        },
        Event::CredentialsChanged(_) => Event::CredentialsChanged(time),
        Event::WatchEnded(_) => Event::WatchEnded(time),
        Event::Heartbeat(_) => Event::Heartbeat(time),
        Event::LeaseSent(_, terms) => Event::LeaseSent(moment, terms),
        Event::LeaseSeen { number, mark, .. } => Event::LeaseSeen {
            number,
            mark,
            now: moment,
        },
        Event::LeaseRenewed(_) => Event::LeaseRenewed(moment),
        Event::WaitOver
        | Event::SecretGone { .. }
        | Event::SecretBack
        | Event::RequestAnswered
        | Event::RequestFailed(..)
        | Event::CopyAnswered(_)
        | Event::CopyLate
        | Event::CopyLateNoMore
        | Event::Silence
        | Event::LeaseMissing
        | Event::LeaseRefused => event,
    }
}

/// The state that follows from the rows of all events so far.
#[derive(Debug)]
struct Sum {
    lost_since: Option<Timestamp>,
    leaving: bool,
    failures: u32,
    writes_fail: bool,
    unanswered: u32,
    heard: Timestamp,
    late: i32,
    renewed: bool,
}

impl Sum {
    fn add(&mut self, row: Row, now: Timestamp) {
        match row.lost {
            Some(true) => self.lost_since = self.lost_since.or(Some(now)),
            Some(false) => self.lost_since = None,
            None => {}
        }
        self.leaving = row.leaving.unwrap_or(self.leaving);
        self.renewed = row.renewed.unwrap_or(self.renewed);
        match row.breaker {
            Some(Breaker::ClosesUnlessWritesFail) if self.writes_fail && self.renewed => {}
            Some(Breaker::Closes | Breaker::ClosesUnlessWritesFail) => {
                (self.failures, self.writes_fail) = (0, false);
            }
            Some(Breaker::Opens) => self.failures += 2,
            Some(Breaker::OpensAtSecond) => (self.failures, self.writes_fail) = (self.failures + 1, true),
            None => {}
        }
        match row.unanswered {
            Some(0) => (self.unanswered, self.heard) = (0, now),
            Some(more) => self.unanswered += more,
            None => {}
        }
        self.late = (self.late + row.late).max(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    /// Spec: multikueue 2.4, 4.3
    #[test]
    fn every_answer_is_what_the_table_of_transitions_says(
        events in prop::collection::vec(event(), 1..60),
    ) {
        let (mut link, mut alone) = (new(0), Grant::new(Moment::default(), terms()));
        let mut sum = Sum {
            lost_since: Some(at(0)), leaving: false, failures: 0, writes_fail: false, unanswered: 0, heard: at(0), late: 0, renewed: false,
        };
        for (event, second) in events.into_iter().zip(1_u32..) {
            let (event, now, moment) = (timed(event, second), at(i64::from(second)), up(u64::from(second)));
            let was_unusable = link.unusable().is_some();
            let effect = link.step(event);
            sum.add(row(event), now);
            prop_assert_eq!(link.lost_since(), sum.lost_since);
            prop_assert_eq!(link.is_connected(), sum.lost_since.is_none());
            prop_assert_eq!(link.is_leaving(), sum.leaving);
            let is_unusable = link.unusable().is_some();
            prop_assert_eq!(is_unusable, sum.failures >= 2);
            prop_assert_eq!(link.is_slow(), sum.failures > 0 || sum.late > 0);
            prop_assert_eq!(link.silent_since(), (sum.unanswered >= 2).then_some(sum.heard));
            prop_assert_eq!(link.lease_age(moment).is_some(), sum.renewed);
            prop_assert_eq!(effect == Effect::UsableAgain, was_unusable && !is_unusable);
            prop_assert!(effect != Effect::Unusable || is_unusable);
            if let Event::Connected(_) = event {
                alone.connected();
            } else if let Event::LeaseSent(at, terms) = event {
                alone.sending(at, terms);
            } else if let Event::LeaseSeen { mark, now, .. } = event {
                alone.answered(mark, now);
            } else if let Event::LeaseRenewed(_) = event {
                alone.renewed();
            }
            let asked = |grant: &Grant| -> (Guard, Tenure, Closing) {
                (grant.guard(), grant.tenure(moment), grant.closing(Duration::ZERO))
            };
            prop_assert_eq!(asked(link.grant()), asked(&alone), "the lease is heard of by its own events alone");
        }
    }
}
