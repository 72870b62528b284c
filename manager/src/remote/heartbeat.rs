//! Whether a worker gives signs of life: the renewals of our lease there, or answers when it is asked.
//!
//! *Source*: `spec/multikueue.md 2.4`, `spec/safety.md` F19.

use std::time::Duration;

use kube::Client;
use roadstead_core::cluster::link::{Event, Link};
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use super::Remote;
use super::fleet::{Fleet, NOT_ACCEPTED};
use crate::metrics::Ended;

/// How often a connected worker is to give a sign of life, and how long it may take to answer when it is asked for one.
const HEARTBEAT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// Ends, with the reason, when the worker has given no sign of life for a while or refuses our credential. Why needed: a cut
/// cable does not end a connection.
pub(super) async fn lost(fleet: &Fleet, remote: &Remote, client: &Client) -> String {
    let renewal_counts_for = || remote.link(|link| link.renewal_counts_for(fleet.lessor.uptime.now()));
    fleet.metrics.contact(&remote.name, (fleet.clock)());
    loop {
        tokio::select! {
            biased;
            () = remote.usable_again() => {
                fleet.changed.mark(remote.name.clone());
                continue;
            }
            () = tokio::time::sleep(renewal_counts_for().unwrap_or(HEARTBEAT.0)) => {}
        }
        let sign = match renewal_counts_for() {
            Some(_) => Sign::Lives,
            None => asks(fleet, remote, client).await,
        };
        let now = (fleet.clock)();
        match sign {
            Sign::Lives => {
                remote.step(Event::Heartbeat(now));
                fleet.metrics.contact(&remote.name, now);
            }
            // Why at once: open watches go on receiving for minutes, while the worker refuses every other request.
            Sign::Unauthorized => return NOT_ACCEPTED.to_owned(),
            Sign::Silent => {
                remote.step(Event::Silence);
            }
        }
        for (kind, silent_for) in remote.silences() {
            fleet.metrics.lag(&remote.name, kind, silent_for);
        }
        if let Some(since) = remote.link(Link::silent_since) {
            let secs = now.duration_since(since).as_secs();
            return format!("the API server has not answered for about {secs} s");
        }
    }
}

/// The answer to a question for a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Lives,
    /// The API server does not accept our credential.
    Unauthorized,
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
