//! Which of several replicas of this process does the work: one leads, the others wait with filled caches and serve webhooks,
//! health and metrics.
//!
//! [`Leadership`] tells the parts of a process whether it leads; `candidate` takes part in the election. The rules of the
//! election are in [`roadstead_core::leader`].
//!
//! Invariant: nothing that writes runs before this replica leads. A replica that has led once never waits again: it leads until
//! its process ends. A write that is sent too late is stopped by the [`Permit`](roadstead_kubeio::permit::Permit).
//!
//! *Source*: `spec/safety.md F6`.

pub(crate) mod candidate;

use std::future::Future;
use std::time::Duration;

use roadstead_api::config::Config;
use tokio_util::sync::CancellationToken;

pub use candidate::Lost;

/// Whether this replica leads; clones share it.
#[derive(Clone, Debug)]
pub struct Leadership {
    elected: bool,
    /// Cancelled when this replica begins to lead.
    won: CancellationToken,
}

impl Leadership {
    /// For a process without an election: it leads, and its role is the configured one.
    pub fn assumed(config: &Config) -> Self {
        let leadership = Self::waiting();
        leadership.won.cancel();
        Self {
            elected: config.leader_election.leader_elect,
            ..leadership
        }
    }

    /// For a replica that has not won yet.
    pub fn waiting() -> Self {
        Self {
            elected: true,
            won: CancellationToken::new(),
        }
    }

    /// Makes this replica the leader from now on.
    pub fn win(&self) {
        self.won.cancel();
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        self.won.is_cancelled()
    }

    /// The value of label `replica_role`.
    pub fn role(&self) -> &'static str {
        match (self.elected, self.leads()) {
            (false, _) => "standalone",
            (true, true) => "leader",
            (true, false) => "follower",
        }
    }

    /// Waits until this replica leads; false when `stop` came first.
    pub async fn won(&self, stop: &CancellationToken) -> bool {
        // Why asked first: a replica that leads from the start must not wait, not even for a turn of the runtime.
        if self.leads() {
            return true;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = self.won.cancelled() => true,
        }
    }

    /// Runs `work` once this replica leads, unless `stop` comes first.
    pub async fn then(self, stop: CancellationToken, work: impl Future<Output = ()>) {
        if self.won(&stop).await {
            work.await;
        }
    }

    /// Waits for `pause`; a replica that does not lead yet stops waiting when it begins to lead.
    pub(crate) async fn rest(&self, pause: Duration) {
        if self.leads() {
            return tokio::time::sleep(pause).await;
        }
        tokio::select! {
            biased;
            () = self.won.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: safety F6
    #[tokio::test(start_paused = true)]
    async fn a_replica_follows_until_it_wins_and_its_parts_wait_for_that() {
        let leadership = Leadership::waiting();
        assert_eq!((leadership.role(), leadership.leads()), ("follower", false));
        let (stop, never) = (CancellationToken::new(), CancellationToken::new());
        let began = tokio::time::Instant::now();
        leadership.rest(Duration::from_secs(1)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        let waits = tokio::spawn(leadership.clone().then(stop.clone(), std::future::ready(())));
        let rests = leadership.clone();
        let rests = tokio::spawn(async move { rests.rest(Duration::from_mins(1)).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waits.is_finished() && !rests.is_finished());
        leadership.win();
        waits.await.unwrap();
        rests.await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        assert_eq!((leadership.role(), leadership.leads()), ("leader", true));
        stop.cancel();
        assert!(leadership.won(&stop).await, "it has won");
        never.cancel();
        assert!(!Leadership::waiting().won(&never).await);
    }

    #[test]
    fn who_elects_nobody_leads() {
        let mut config = Config::without_file("own");
        assert_eq!(Leadership::assumed(&config).role(), "leader");
        config.leader_election.leader_elect = false;
        let alone = Leadership::assumed(&config);
        assert_eq!((alone.role(), alone.leads()), ("standalone", true));
    }
}
