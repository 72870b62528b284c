use jiff::{SignedDuration, Timestamp};

use super::{Attempt, Connection, Reason};
use crate::condition::Truth;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn open(connection: &mut Connection, second: i64) -> i64 {
    match connection.attempt(at(second)) {
        Attempt::Open { timeout } => timeout.as_secs(),
        other @ (Attempt::Connected | Attempt::Wait { .. }) => panic!("expected to open, got {other:?}"),
    }
}

/// Spec: multikueue 11.21
#[test]
fn waits_grow_from_five_seconds_to_320_and_the_condition_shows_them() {
    let mut connection = Connection::new(at(0));
    let mut waits = Vec::new();
    for n in 1..=8_u32 {
        open(&mut connection, 1_000 * i64::from(n));
        let now = at(1_000 * i64::from(n));
        waits.push(connection.failed("refused", now).duration_since(now).as_secs());
        assert_eq!(connection.failed_attempts(), n);
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 320]);
    let active = connection.active().unwrap();
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
fn asking_too_early_makes_no_attempt_but_new_credentials_do() {
    let mut connection = Connection::new(at(0));
    open(&mut connection, 0);
    connection.failed("refused", at(0));
    assert_eq!(connection.attempt(at(4)), Attempt::Wait { until: at(5) });
    assert_eq!(connection.failed_attempts(), 1);
    connection.credentials_changed(at(4));
    assert_eq!(open(&mut connection, 4), 60);
    assert_eq!(connection.failed_attempts(), 0);
}

/// Spec: multikueue 2.4
#[test]
fn an_attempt_may_take_one_minute_then_twice_as_long_up_to_ten() {
    let mut connection = Connection::new(at(0));
    let timeouts: Vec<_> = (1..=6)
        .map(|n| {
            let timeout = open(&mut connection, 1_000 * n);
            connection.failed("hangs", at(1_000 * n));
            timeout
        })
        .collect();
    assert_eq!(timeouts, [60, 120, 240, 480, 600, 600]);
}

/// Spec: multikueue 11.23
#[test]
fn a_pending_attempt_is_not_started_twice() {
    let mut connection = Connection::new(at(0));
    open(&mut connection, 0);
    assert_eq!(connection.attempt(at(1)), Attempt::Wait { until: at(6) });
    assert_eq!(connection.failed_attempts(), 0);
}

/// Spec: multikueue 10.F7, 11.25, 11.26
#[test]
fn the_first_loss_counts_until_the_connection_is_whole() {
    let mut connection = Connection::new(at(0));
    open(&mut connection, 1);
    connection.opened();
    assert_eq!(connection.lost_since(), None);
    connection.watch_ended(at(10));
    assert!(!connection.is_connected());
    assert_eq!(
        connection.active().unwrap().message,
        "Connected",
        "until an attempt fails"
    );
    connection.watch_ended(at(11));
    connection.credentials_changed(at(12));
    open(&mut connection, 12);
    connection.failed("refused", at(20));
    assert_eq!(connection.active().unwrap().truth, Truth::False);
    assert_eq!(connection.lost_since(), Some(at(10)));
    open(&mut connection, 30);
    connection.opened();
    assert_eq!(connection.active().unwrap().truth, Truth::True);
    assert_eq!(connection.lost_since(), None);
    assert_eq!(connection.attempt(at(31)), Attempt::Connected);
}

/// Spec: multikueue 2.4, 11.75 (a new client counts as lost since its creation)
#[test]
fn a_new_connection_is_lost_since_now_and_says_nothing() {
    let connection = Connection::new(at(7));
    assert_eq!(connection.lost_since(), Some(at(7)));
    assert_eq!(connection.active(), None);
}

/// Spec: multikueue 2.2, 10.F2, 11.10, 11.11
#[test]
fn refused_credentials_disconnect_without_counting() {
    let mut connection = Connection::new(at(0));
    open(&mut connection, 0);
    connection.opened();
    connection.refused(Reason::InsecureKubeConfig, "tokenFile is not allowed", at(9));
    let active = connection.active().unwrap();
    assert_eq!(active.reason, "InsecureKubeConfig");
    assert_eq!(
        active.message,
        "load client config failed: tokenFile is not allowed"
    );
    assert!(!connection.is_connected(), "so it is no candidate");
    assert_eq!(connection.lost_since(), Some(at(9)));
    assert_eq!(
        SignedDuration::ZERO,
        at(9).duration_since(connection.lost_since().unwrap())
    );
}
