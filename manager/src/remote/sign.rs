//! Whether a worker gives signs of life: the renewals of our lease there, or answers when it is asked.
//!
//! *Source*: `spec/multikueue.md 2.4`, `spec/safety.md` F19.

use std::time::Duration;

use kube::Client;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use super::supervisor::{Fleet, NOT_ACCEPTED};
use super::{Miss, Proof, Remote};
use crate::metrics::Ended;

/// How often a connected worker is to give a sign of life, and how long it may take to answer when it is asked for one.
const HEARTBEAT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));
/// How long a renewal of our lease counts as a sign of life: a little longer than the time between two renewals.
const RENEWAL_COUNTS: Duration = Duration::from_secs(6);
/// Unanswered signs of life after which a worker counts as lost.
const MISSED_MAX: u32 = 2;
/// The text of a miss of a worker that gives no sign of life.
const SILENT: &str = "it does not even tell its version";

/// Ends when the worker has not given a sign of life for a while, with the reason. Why needed: a cut cable does not end a
/// connection.
pub(super) async fn silence(fleet: &Fleet, remote: &Remote, client: &Client) -> String {
    let mut missed = 0;
    fleet.metrics.contact(&remote.name, (fleet.clock)());
    loop {
        tokio::select! {
            biased;
            () = remote.relieved() => {
                fleet.changed.mark(remote.name.clone());
                continue;
            }
            () = tokio::time::sleep(renewal_counts_for(remote).unwrap_or(HEARTBEAT.0)) => {}
        }
        let sign = match renewal_counts_for(remote) {
            Some(_) => Sign::Lives,
            None => asks(fleet, remote, client).await,
        };
        // Why at once: open watches go on receiving for minutes, while the worker refuses every other request.
        if sign == Sign::Unauthorized {
            return NOT_ACCEPTED.to_owned();
        }
        if sign == Sign::Lives {
            missed = 0;
            remote.proves_well(Proof::Answered);
            fleet.metrics.contact(&remote.name, (fleet.clock)());
        } else {
            missed += 1;
            remote.missed(Miss::Silent, SILENT);
        }
        for (kind, silent_for) in remote.silences() {
            fleet.metrics.lag(&remote.name, kind, silent_for);
        }
        if missed >= MISSED_MAX {
            let secs = (HEARTBEAT.0 + HEARTBEAT.1).as_secs() * u64::from(MISSED_MAX);
            return format!("the API server has not answered for about {secs} s");
        }
    }
}

/// How long the last renewal of our lease still counts as a sign of life, if it does.
fn renewal_counts_for(remote: &Remote) -> Option<Duration> {
    let left = RENEWAL_COUNTS.checked_sub(remote.last_renewed()?.elapsed());
    left.filter(|left| !left.is_zero())
}

/// The answer to a question for a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// Any answer.
    Lives,
    /// It does not accept our credential (any more).
    Unauthorized,
    /// No answer.
    Silent,
}

impl Sign {
    pub(super) fn of<T>(answer: Result<&Result<T, kube::Error>, &Elapsed>) -> Self {
        match answer {
            Ok(Err(kube::Error::Api(status))) if status.code == 401 => Self::Unauthorized,
            Ok(Ok(_) | Err(kube::Error::Api(_))) => Self::Lives,
            Ok(Err(_)) | Err(_) => Self::Silent,
        }
    }
}

/// Asks for a sign of life.
async fn asks(fleet: &Fleet, remote: &Remote, client: &Client) -> Sign {
    let started = Instant::now();
    let answer = tokio::time::timeout(HEARTBEAT.1, client.apiserver_version()).await;
    let sign = Sign::of(answer.as_ref());
    let ended = if sign == Sign::Silent {
        Ended::Failed
    } else {
        Ended::Answered
    };
    fleet.metrics.request(&remote.name, started.elapsed(), ended);
    sign
}
