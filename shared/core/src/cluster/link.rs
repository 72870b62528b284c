//! The link to one worker cluster: all that the manager knows about whether that worker is alive.
//!
//! The manager tells a [`Link`] each [`Event`] that it notices. A link answers five questions:
//!
//! | answer | what follows |
//! |---|---|
//! | [`Link::unusable`] | The breaker is open, so no new Workload is sent there. |
//! | [`Link::is_slow`] | A Workload with room elsewhere goes there instead. |
//! | [`Link::silent_since`] | The connection is closed and opened anew. |
//! | [`Link::lost_since`] | Nothing is read or written there. After a while its jobs are treated by their policy for lost workers. |
//! | [`Link::is_leaving`] | Its Secret is gone. It is kept only for the jobs there, and gets no new ones. |
//!
//! The transitions. Time passes only by the `now` of an event or a question. An empty cell: the event changes nothing there. `now` in the
//! column "lost since": only if the cluster is not lost already.
//!
//! | event | lost since | leaving | breaker | unanswered heartbeats | copies late | lease |
//! |---|---|---|---|---|---|---|
//! | `Connected` | none | | | 0 | | no record of an earlier process counts |
//! | `NotConnected`, `Refused`, `CredentialsChanged`, `WatchEnded` | `now` | no | | | | |
//! | `WaitOver` | | | | | | |
//! | `SecretGone` | | yes | | | | |
//! | `SecretBack` | | no | | | | |
//! | `RequestAnswered` | | | closed | | | |
//! | `RequestFailed` | | | open at the second in a row | | | |
//! | `RequestFailed`, without an answer | | | open | | | |
//! | `CopyAnswered` | | | | | | |
//! | `CopyLate`, `CopyLateNoMore` | | | | | one more, one less | |
//! | `Heartbeat` | | | closed, unless a write failed and the lease is renewed there | 0 | | |
//! | `Silence` | | | open | one more | | |
//! | `LeaseSent`, `LeaseSeen`, `LeaseMissing` | | | | | | see [`Grant`] |
//! | `LeaseRenewed` | | | closed | | | renewed |
//! | `LeaseRefused` | | | | | | not renewed |
//!
//! Why a heartbeat may leave the breaker open: an API server whose storage is full, or whose etcd has lost its quorum, answers every
//! read and fails every write. If an answer closed the breaker, a job would be sent there in vain each time.
//!
//! Invariant: the time of loss is that of the *first* loss and stays until the connection is whole again, so a worker that comes and
//! goes cannot reset the clock of its lost workloads.
//!
//! *Source*: `spec/multikueue.md 2.4, 4.3`, `spec/safety.md 3, F19, F21, F28`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use super::{CONNECT_RETRY, OPEN_TIMEOUT, Reason};
use crate::condition::{Active, Truth};
use crate::lease::{Grant, Moment, Terms};
use crate::moment::later;

/// Failures in a row that open the breaker. *Why* not one: a single answer may be lost on the way, and the next request finds what
/// was done.
const FAILURES_MAX: u32 = 2;
/// Unanswered heartbeats in a row after which the worker counts as silent.
const UNANSWERED_MAX: u32 = 2;
/// How long a renewal of the lease counts as a heartbeat: a little longer than the time between two renewals.
const RENEWAL_COUNTS: Duration = Duration::from_secs(6);
/// The text of an unanswered heartbeat.
const SILENT: &str = "no answer to the heartbeat request (GET /version)";
/// The factor, the lower bound and the upper bound: a copy is late after the usual time multiplied by the factor, kept within the bounds.
/// Why the usual time: only its own usual latency tells a worker with a hanging API server from a busy one.
const LATE: (u32, Duration, Duration) = (10, Duration::from_millis(200), Duration::from_secs(2));
/// The usual time is a moving average, in which the newest answer weighs one part in this number.
const MEMORY: u32 = 8;

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// At once: the connection broke, or the answer to a write was an error of the server.
    Error,
    /// It was not answered within the time allowed.
    NoAnswer,
}

/// What the manager has noticed of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// All watches are open.
    Connected(Timestamp),
    /// An attempt to connect has failed.
    NotConnected {
        /// The cause.
        why: &'a str,
        /// The time.
        now: Timestamp,
    },
    /// The credentials cannot be used, or the cluster there must not be used. No attempt is counted.
    Refused {
        /// The reason of condition `Active`.
        reason: Reason,
        /// The message of condition `Active`.
        why: &'a str,
        /// The time.
        now: Timestamp,
    },
    /// The credentials changed: the next attempt is the first one again, and due at once.
    ///
    /// Why the time of loss is kept: new credentials say nothing about the jobs on the worker meanwhile.
    CredentialsChanged(Timestamp),
    /// The watch of Workloads ended, or the connection is given up: all is opened anew. Condition `Active` stays as it is until an attempt
    /// fails.
    WatchEnded(Timestamp),
    /// The wait for the next attempt to connect is over, for example because the worker answers again. Failed attempts stay counted.
    WaitOver,
    /// The Secret of a connected cluster is gone, and jobs are there.
    SecretGone {
        /// The reason of condition `Active`.
        reason: Reason,
        /// The message of condition `Active`.
        why: &'a str,
    },
    /// The Secret is there again, with the credentials of the open connection.
    SecretBack,
    /// The worker carried out a write.
    RequestAnswered,
    /// A request failed, with the text for the user.
    RequestFailed(Miss, &'a str),
    /// The creation of a copy was answered after this time.
    CopyAnswered(Duration),
    /// The creation of a copy takes longer than [`Link::late_after`].
    CopyLate,
    /// A late copy was answered or given up.
    CopyLateNoMore,
    /// The worker gave a sign of life.
    Heartbeat(Timestamp),
    /// The worker did not answer a heartbeat request.
    Silence,
    /// A renewal of the lease is about to be sent, or was found there and may have been sent until then.
    LeaseSent(Moment, Terms),
    /// The lease was read, or came with the answer to a renewal.
    LeaseSeen {
        /// The number of its last renewal.
        number: u64,
        /// The mark of the worker.
        mark: Option<&'a str>,
        /// The moment.
        now: Moment,
    },
    /// There is no lease on the worker.
    LeaseMissing,
    /// The renewal that was sent last is stored.
    LeaseRenewed(Moment),
    /// The manager may not keep a lease there; perhaps it could before.
    LeaseRefused,
}

/// What the manager does after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing follows.
    Nothing,
    /// A copy is late and none was before: the manager offers the other Workloads that wait for this worker to other workers too.
    Slow,
    /// The breaker is open: the manager sends no new Workload there.
    Unusable,
    /// The breaker was open and is closed: the manager looks again at the Workloads that may go there.
    UsableAgain,
    /// The number of the last renewal has gone back from `before` to `now`: the storage of the worker was restored from a backup. The
    /// manager lists all objects there again, because its caches cannot be believed any more.
    ///
    /// Why beside the versions of objects: those may have caught up before the worker can be reached again.
    ListAgain {
        /// The number that was seen before.
        before: u64,
        /// The number that is seen now; 0 when there is no lease.
        now: u64,
    },
}

/// Failed requests since the last success.
#[derive(Clone, Debug, Default)]
struct Failures {
    count: u32,
    of_writes: bool,
    /// The text of the last one.
    words: String,
}

/// The state of the link to one worker cluster.
#[derive(Clone, Debug)]
pub struct Link {
    was_connected: bool,
    leaving: bool,
    failed_attempts: u32,
    next_attempt: Option<Timestamp>,
    lost_since: Option<Timestamp>,
    /// The content of condition `Active`; `None` before the first attempt has ended.
    active: Option<Active>,
    failures: Failures,
    /// The last sign of life, and how many heartbeats were not answered since.
    heard: (Timestamp, u32),
    /// The usual time until the creation of a copy is answered.
    usual: Option<Duration>,
    copies_late: u32,
    grant: Grant,
    /// When the lease was last renewed; `None` where the manager keeps none.
    renewed: Option<Moment>,
    /// The number of the last renewal that is known to be stored; 0 before the first.
    renewal: u64,
}

impl Link {
    /// The link to a cluster to which the manager was never connected; it counts as lost since `now`.
    ///
    /// After a restart of the manager `now` is the start, so the lost timeout starts again (`spec/multikueue.md 2.4`).
    pub fn new(now: Timestamp, grant: Grant) -> Self {
        Self {
            was_connected: false,
            leaving: false,
            failed_attempts: 0,
            next_attempt: None,
            lost_since: Some(now),
            active: None,
            failures: Failures::default(),
            heard: (now, 0),
            usual: None,
            copies_late: 0,
            grant,
            renewed: None,
            renewal: 0,
        }
    }

    /// Takes an event; returns what the manager does about it.
    pub fn step(&mut self, event: Event<'_>) -> Effect {
        match event {
            Event::Connected(now) => {
                self.was_connected = true;
                self.failed_attempts = 0;
                self.next_attempt = None;
                self.lost_since = None;
                self.heard = (now, 0);
                self.grant.connected();
                self.shows_connected();
            }
            Event::NotConnected { why, now } => {
                self.failed_attempts = self.failed_attempts.saturating_add(1);
                self.next_attempt = Some(later(now, CONNECT_RETRY.delay(self.failed_attempts, 0.0)));
                self.shows(Reason::ClientConnectionFailed, why);
                self.lose(now);
            }
            Event::Refused { reason, why, now } => {
                self.shows(reason, why);
                self.lose(now);
            }
            Event::CredentialsChanged(now) => {
                self.failed_attempts = 0;
                self.next_attempt = None;
                self.lose(now);
            }
            Event::WatchEnded(now) => self.lose(now),
            Event::WaitOver => self.next_attempt = None,
            Event::SecretGone { reason, why } => {
                self.leaving = true;
                self.shows(reason, why);
            }
            Event::SecretBack => {
                self.leaving = false;
                self.shows_connected();
            }
            Event::RequestAnswered => return self.succeeds(),
            Event::RequestFailed(failure, words) => return self.fails(failure, words),
            Event::CopyAnswered(took) => {
                let usual = self
                    .usual
                    .map_or(took, |usual| (usual * (MEMORY - 1) + took) / MEMORY);
                self.usual = Some(usual);
            }
            Event::CopyLate => {
                self.copies_late = self.copies_late.saturating_add(1);
                if self.copies_late == 1 {
                    return Effect::Slow;
                }
            }
            Event::CopyLateNoMore => self.copies_late = self.copies_late.saturating_sub(1),
            Event::Heartbeat(now) => {
                self.heard = (now, 0);
                // Why not always: after a failed write a heartbeat shows only that reads work. Where the manager renews a lease, the next
                // renewal shows whether writes work again.
                if !(self.failures.of_writes && self.renewed.is_some()) {
                    return self.succeeds();
                }
            }
            Event::Silence => {
                self.heard.1 = self.heard.1.saturating_add(1);
                return self.fails(Miss::NoAnswer, SILENT);
            }
            Event::LeaseSent(at, terms) => self.grant.sending(at, terms),
            Event::LeaseSeen { number, mark, now } => {
                self.grant.answered(mark, now);
                return self.sees(number);
            }
            Event::LeaseMissing => return self.sees(0),
            Event::LeaseRenewed(now) => {
                self.grant.renewed();
                self.renewed = Some(now);
                return self.succeeds();
            }
            Event::LeaseRefused => self.renewed = None,
        }
        Effect::Nothing
    }

    /// Whether all watches are open.
    pub const fn is_connected(&self) -> bool {
        self.lost_since.is_none()
    }

    /// Whether all watches were ever open.
    pub const fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// When the next attempt to connect is due; `None`: at once.
    pub const fn next_attempt(&self) -> Option<Timestamp> {
        self.next_attempt
    }

    /// How long the next attempt to connect may take.
    pub fn open_timeout(&self) -> Duration {
        let next = self.failed_attempts.saturating_add(1);
        OPEN_TIMEOUT.delay(next, 0.0).unsigned_abs()
    }

    /// Since when the cluster is lost; `None` while it is connected.
    pub const fn lost_since(&self) -> Option<Timestamp> {
        self.lost_since
    }

    /// The earliest time that condition `Active` can show for the begin of the present loss; `None` while the cluster is connected. A
    /// process that was never connected may be younger than the loss, so any time is possible.
    pub fn loss_shows_from(&self) -> Option<Timestamp> {
        let since = self.lost_since?;
        // Times of conditions have whole seconds.
        let whole = Timestamp::from_second(since.as_second()).unwrap_or(since);
        Some(if self.was_connected { whole } else { Timestamp::MIN })
    }

    /// The last sign of life of a worker that has not answered the last two heartbeats; `None` while it answers.
    pub fn silent_since(&self) -> Option<Timestamp> {
        (self.heard.1 >= UNANSWERED_MAX).then_some(self.heard.0)
    }

    /// Whether the Secret of the cluster is gone, so that the link is kept only for the jobs there.
    pub const fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// The text of the last failure while the breaker is open, so that no new Workload is sent there; `None` while it is closed.
    pub fn unusable(&self) -> Option<&str> {
        (self.failures.count >= FAILURES_MAX).then_some(self.failures.words.as_str())
    }

    /// Whether a Workload that has room elsewhere should rather go elsewhere: a copy is late here, or the last request failed.
    pub const fn is_slow(&self) -> bool {
        self.copies_late > 0 || self.failures.count > 0
    }

    /// After which time without an answer the creation of a copy is late.
    pub fn late_after(&self) -> Duration {
        self.usual
            .map_or(LATE.2, |usual| (usual * LATE.0).clamp(LATE.1, LATE.2))
    }

    /// What the manager knows of its lease there.
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The time since the lease was last renewed; `None` where the manager keeps none.
    pub fn lease_age(&self, now: Moment) -> Option<Duration> {
        self.renewed.map(|at| now.since(at))
    }

    /// How long the last renewal of the lease still counts as a heartbeat; `None` when it does not.
    pub fn renewal_counts_for(&self, now: Moment) -> Option<Duration> {
        let left = RENEWAL_COUNTS.checked_sub(self.lease_age(now)?);
        left.filter(|left| !left.is_zero())
    }

    /// The content of condition `Active`; `None` before the first result. *Source*: `spec/multikueue.md 2.2`.
    pub const fn active(&self) -> Option<&Active> {
        self.active.as_ref()
    }

    fn lose(&mut self, now: Timestamp) {
        self.leaving = false;
        // Invariant: a later failure does not move the time of the first loss.
        self.lost_since.get_or_insert(now);
    }

    fn shows_connected(&mut self) {
        self.active = Some(Active {
            truth: Truth::True,
            reason: "Active",
            message: Cow::Borrowed("Connected"),
        });
    }

    fn shows(&mut self, reason: Reason, why: &str) {
        let mut message = why.to_owned();
        if let (1.., Some(next)) = (self.failed_attempts, self.next_attempt) {
            let next = next.strftime("%Y-%m-%dT%H:%M:%SZ");
            // Writing to a String cannot fail.
            let _ = write!(
                message,
                "; connection attempts: {}, next connection attempt: {next}",
                self.failed_attempts
            );
        }
        self.active = Some(Active {
            truth: Truth::False,
            reason: reason.as_str(),
            message: Cow::Owned(message),
        });
    }

    fn succeeds(&mut self) -> Effect {
        let was_open = self.unusable().is_some();
        self.failures = Failures::default();
        if was_open {
            Effect::UsableAgain
        } else {
            Effect::Nothing
        }
    }

    fn fails(&mut self, miss: Miss, words: &str) -> Effect {
        let (more, of_writes) = match miss {
            Miss::Error => (1, true),
            Miss::NoAnswer => (FAILURES_MAX, false),
        };
        self.failures.count = self.failures.count.saturating_add(more);
        self.failures.of_writes |= of_writes;
        words.clone_into(&mut self.failures.words);
        match self.unusable() {
            Some(_) => Effect::Unusable,
            None => Effect::Nothing,
        }
    }

    fn sees(&mut self, number: u64) -> Effect {
        let before = std::mem::replace(&mut self.renewal, number);
        if number >= before {
            return Effect::Nothing;
        }
        Effect::ListAgain { before, now: number }
    }
}

#[cfg(test)]
mod tests;
