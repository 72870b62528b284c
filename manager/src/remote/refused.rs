//! What follows when the kubeconfig of a cluster is refused: the refusal is logged, and the manager waits.
//!
//! Why it does not wait only for a change of the Secret: DNS may give another address for the server without such a change. One
//! bad answer of DNS would keep the cluster out for ever.
//!
//! *Source*: `spec/safety.md` S4.

use std::time::Duration;

use roadstead_core::name::ClusterName;
use roadstead_kubeconfigs::check::Refusal;
use roadstead_kubeio::retry::Backoff;
use roadstead_kubeio::trouble::Trouble;
use tokio::sync::Notify;

/// First and longest pause until the next try: those of attempts to connect (`spec/multikueue.md 2.4`).
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(320));

/// The refusals of one cluster since its kubeconfig was last accepted.
#[derive(Debug, Default)]
pub(super) struct Refused {
    told: Trouble,
    again: Option<Backoff>,
}

impl Refused {
    /// Forgets the refusals: the kubeconfig is accepted.
    pub(super) fn ends(&mut self) {
        self.told.ends();
        self.again = None;
    }

    /// Logs a refusal, unless the same one was logged last.
    pub(super) fn tell(&mut self, cluster: &ClusterName, refusal: &Refusal) {
        if self.told.is_news(&refusal.message) {
            tracing::warn!(%cluster, reason = refusal.reason.as_str(), "{}", refusal.message);
        }
    }

    /// Waits for a change; if the refusal may pass by itself, at most until the end of the back-off.
    pub(super) async fn wait(&mut self, refusal: &Refusal, nudge: &Notify) {
        let new = || Backoff::new(AGAIN.0, AGAIN.1);
        let pause = refusal
            .may_pass
            .then(|| self.again.get_or_insert_with(new).pause());
        tokio::select! {
            biased;
            () = nudge.notified() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Spec: safety S4
    #[tokio::test(start_paused = true)]
    async fn what_depends_on_dns_is_tried_again_and_the_rest_when_something_has_changed() {
        let (mut refused, nudge) = (Refused::default(), Notify::new());
        let of_file = Refusal::bad("key is missing");
        let by_name = Refusal {
            may_pass: true,
            ..of_file.clone()
        };
        for secs in [6, 12, 24] {
            let waits = refused.wait(&by_name, &nudge);
            assert!(timeout(Duration::from_secs(secs), waits).await.is_ok(), "{secs}");
        }
        let day = Duration::from_hours(24);
        assert!(timeout(day, refused.wait(&of_file, &nudge)).await.is_err());
        for refusal in [&of_file, &by_name] {
            nudge.notify_one();
            assert!(
                timeout(Duration::ZERO, refused.wait(refusal, &nudge))
                    .await
                    .is_ok()
            );
        }
        refused.ends();
        let waits = refused.wait(&by_name, &nudge);
        assert!(
            timeout(Duration::from_secs(6), waits).await.is_ok(),
            "from the start"
        );
    }
}
