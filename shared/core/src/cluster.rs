//! The connection to one worker cluster: when to try, the text of its `Active` condition, since when it is lost.
//!
//! Invariant: the time of loss is that of the *first* loss and stays until the connection is whole again, so a worker
//! that comes and goes cannot reset the clock of its lost workloads.

pub mod identity;
pub mod word;

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

pub use crate::condition::Active;
use crate::condition::Truth;
use crate::moment::later;
use crate::retry::RetryPolicy;

/// Delay between failed attempts: 5 s, doubled each time, at most 320 s. *Source*: `spec/multikueue.md 2.4`.
pub const CONNECT_RETRY: RetryPolicy = RetryPolicy {
    base: SignedDuration::from_secs(5),
    factor: 2,
    max: SignedDuration::from_secs(320),
    jitter: 0.0,
};
/// How long the first attempt may take to open everything. *Source*: `spec/multikueue.md 2.4`.
pub const OPEN_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);
/// The longest an attempt may take. *Source*: `spec/multikueue.md 2.4`.
pub const OPEN_TIMEOUT_MAX: SignedDuration = SignedDuration::from_secs(600);
/// When to look again while an opening is still pending. *Source*: `spec/multikueue.md 2.4`.
pub const OPEN_PENDING_RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Why a connection could not be made: the reason of condition `Active`. *Source*: `spec/multikueue.md 2.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The Secret or its key is missing, or the file cannot be read.
    BadKubeConfig,
    /// The kubeconfig is refused or cannot be parsed.
    InsecureKubeConfig,
    /// The `ClusterProfile` is missing or gives no access.
    BadClusterProfile,
    /// The credentials obtained through the `ClusterProfile` are refused.
    BadRestConfig,
    /// `ClusterProfiles` are switched off.
    ClusterProfileDisabled,
    /// The worker's API server cannot be used.
    ClientConnectionFailed,
    /// Another manager uses the worker with our origin.
    ///
    /// Unlike the anchor: there the two delete each other's work (`spec/multikueue.md` 10.F36).
    OriginTaken,
    /// This manager has the worker under another name already.
    RegisteredTwice,
    /// The Secret leads to another cluster than the one where jobs run.
    ClusterChanged,
}

impl Reason {
    /// The reason token of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadKubeConfig => "BadKubeConfig",
            Self::InsecureKubeConfig => "InsecureKubeConfig",
            Self::BadClusterProfile => "BadClusterProfile",
            Self::BadRestConfig => "BadRestConfig",
            Self::ClusterProfileDisabled => "MultiKueueClusterProfileFeatureDisabled",
            Self::ClientConnectionFailed => "ClientConnectionFailed",
            Self::OriginTaken => "OriginTaken",
            Self::RegisteredTwice => "RegisteredTwice",
            Self::ClusterChanged => "ClusterChanged",
        }
    }
}

/// The answer to a request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It is connected already.
    Connected,
    /// Open it now, within this time.
    Open {
        /// After this long the attempt has failed.
        timeout: SignedDuration,
    },
    /// Not before this time.
    Wait {
        /// When to ask again.
        until: Timestamp,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Opening,
    Up,
}

/// The state of the connection to one worker cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    link: Link,
    failed_attempts: u32,
    next_attempt: Option<Timestamp>,
    lost_since: Option<Timestamp>,
    /// The content of `Active`. `None`: no attempt has ended yet.
    verdict: Option<Result<(), (Reason, String)>>,
}

impl Connection {
    /// A connection that was never tried; it counts as lost since `now`.
    ///
    /// After a restart of the manager `now` is the start, so the lost timeout starts again (`spec/multikueue.md 2.4`).
    pub const fn new(now: Timestamp) -> Self {
        Self {
            link: Link::Down,
            failed_attempts: 0,
            next_attempt: None,
            lost_since: Some(now),
            verdict: None,
        }
    }

    /// Whether every watch is open.
    pub fn is_connected(&self) -> bool {
        self.link == Link::Up
    }

    /// Since when the cluster is lost; `None` while it is connected.
    pub const fn lost_since(&self) -> Option<Timestamp> {
        self.lost_since
    }

    /// How many attempts failed since the last success or change of credentials.
    pub const fn failed_attempts(&self) -> u32 {
        self.failed_attempts
    }

    /// Asks for a connection. Asking too early changes nothing and does not count as an attempt.
    pub fn attempt(&mut self, now: Timestamp) -> Attempt {
        match (self.link, self.next_attempt) {
            (Link::Up, _) => Attempt::Connected,
            (Link::Opening, _) => Attempt::Wait {
                until: later(now, OPEN_PENDING_RETRY),
            },
            (Link::Down, Some(until)) if until > now => Attempt::Wait { until },
            (Link::Down, _) => {
                self.link = Link::Opening;
                Attempt::Open {
                    timeout: open_timeout(self.failed_attempts),
                }
            }
        }
    }

    /// All watches are open.
    pub fn opened(&mut self) {
        self.link = Link::Up;
        self.failed_attempts = 0;
        self.next_attempt = None;
        self.lost_since = None;
        self.verdict = Some(Ok(()));
    }

    /// An attempt failed. Returns when the next one is due.
    pub fn failed(&mut self, error: impl Into<String>, now: Timestamp) -> Timestamp {
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        let next = later(now, CONNECT_RETRY.delay(self.failed_attempts, 0.0));
        self.next_attempt = Some(next);
        self.verdict = Some(Err((Reason::ClientConnectionFailed, error.into())));
        self.lose(now);
        next
    }

    /// The credentials cannot be used. No attempt is made, so none is counted.
    pub fn refused(&mut self, reason: Reason, error: &str, now: Timestamp) {
        self.verdict = Some(Err((reason, format!("load client config failed: {error}"))));
        self.lose(now);
    }

    /// The cluster there must not be used. No attempt is counted.
    pub fn not_ours(&mut self, reason: Reason, sentence: String, now: Timestamp) {
        self.verdict = Some(Err((reason, sentence)));
        self.lose(now);
    }

    /// A watch ended: the whole connection is opened anew. `Active` stays as it is until an attempt fails.
    pub fn watch_ended(&mut self, now: Timestamp) {
        self.lose(now);
    }

    /// The worker answers: the next attempt is due at once. The count is not reset.
    pub fn retry_now(&mut self) {
        self.next_attempt = None;
    }

    /// The credentials changed: the count starts again and the next attempt is due at once.
    ///
    /// Why the time of loss is kept: new credentials say nothing about the runs on the worker meanwhile.
    pub fn credentials_changed(&mut self, now: Timestamp) {
        self.failed_attempts = 0;
        self.next_attempt = None;
        self.lose(now);
    }

    /// The content of condition `Active`; `None` before the first result. *Source*: `spec/multikueue.md 2.2`.
    pub fn active(&self) -> Option<Active> {
        Some(match self.verdict.as_ref()? {
            Ok(()) => Active {
                truth: Truth::True,
                reason: "Active",
                message: Cow::Borrowed("Connected"),
            },
            Err((reason, error)) => {
                let mut message = error.clone();
                if let (1.., Some(next)) = (self.failed_attempts, self.next_attempt) {
                    let next = next.strftime("%Y-%m-%dT%H:%M:%SZ");
                    // Writing to a String cannot fail.
                    let _ = write!(
                        message,
                        "; connection attempts: {}, next connection attempt: {next}",
                        self.failed_attempts
                    );
                }
                Active {
                    truth: Truth::False,
                    reason: reason.as_str(),
                    message: Cow::Owned(message),
                }
            }
        })
    }

    fn lose(&mut self, now: Timestamp) {
        self.link = Link::Down;
        // Invariant: the first loss counts.
        self.lost_since.get_or_insert(now);
    }
}

fn open_timeout(failed_attempts: u32) -> SignedDuration {
    let policy = RetryPolicy {
        base: OPEN_TIMEOUT,
        factor: 2,
        max: OPEN_TIMEOUT_MAX,
        jitter: 0.0,
    };
    policy.delay(failed_attempts.saturating_add(1), 0.0)
}

#[cfg(test)]
mod tests;
