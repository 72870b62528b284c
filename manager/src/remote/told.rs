//! What was logged of each worker: a lasting trouble is logged once, again when its text changes, and when it is over.
//!
//! Why one entry per action: a worker may be lost while its condition cannot be written either, and the end of one trouble does
//! not end the other.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_core::name::ClusterName;
use roadstead_kubeio::cache::Health;
use roadstead_kubeio::trouble::Troubles;

/// What to do when the manager's own API server does not take a write of ours.
pub(crate) const REMEDY: &str =
    "it is tried again until it succeeds; if this is a refusal, apply deploy/rights on the manager";

const CONNECTING: &str = "connecting";

/// The troubles of the workers of this manager.
#[derive(Debug, Default)]
pub(crate) struct Told(Troubles<(ClusterName, &'static str)>);

impl Told {
    /// Logs that an action on a cluster has failed.
    pub(crate) fn failed(&self, cluster: &str, what: &'static str, why: &str) {
        if self.0.is_news((cluster.into(), what), why) {
            tracing::warn!(cluster, "{why}");
        } else {
            tracing::debug!(cluster, "{why}");
        }
    }

    /// Logs that an action on a cluster has succeeded again.
    pub(crate) fn succeeded(&self, cluster: &str, what: &'static str) {
        if let Some(attempts) = self.0.ends(&(cluster.into(), what)) {
            tracing::info!(cluster, attempts, "{what} has succeeded after failed attempts");
        }
    }

    /// Logs that a cluster serves this kind of jobs again, and that they can be read there.
    pub(super) fn serves(&self, cluster: &str, kind: &'static str) {
        if self.0.ends(&(cluster.into(), kind)).is_some() {
            tracing::info!(cluster, kind, "jobs of this kind can be sent there now");
        }
    }

    pub(super) fn not_connected(&self, cluster: &str, why: &str, next: Timestamp) {
        if self.0.is_news((cluster.into(), CONNECTING), why) {
            tracing::warn!(
                cluster,
                next_attempt = %next,
                "not connected, so nothing is sent there: {why}; it is tried again until it succeeds, and condition Active of its \
                 MultiKueueCluster says the same"
            );
        } else {
            tracing::debug!(cluster, next_attempt = %next, "still not connected: {why}");
        }
    }

    pub(super) fn connected(&self, cluster: &str) {
        let failed_attempts = self.0.ends(&(cluster.into(), CONNECTING)).unwrap_or_default();
        tracing::info!(cluster, failed_attempts, "connected");
    }

    pub(super) fn left(&self, cluster: &str) {
        self.0.retain(|(name, _)| name.as_str() != cluster);
    }
}

/// The warnings about objects that are not listed after a while, with what to do.
pub(super) fn unlisted(clusters: &Health, secrets: &Health, namespace: &str, after: Duration) -> Vec<String> {
    let why = |health: &Health| match health {
        Health::Live | Health::NotServed => None,
        Health::Starting => Some("the API server has not answered".to_owned()),
        Health::Failing(why) => Some(why.clone()),
    };
    let secs = after.as_secs();
    let clusters = why(clusters).map(|why| {
        format!(
            "MultiKueueClusters are not listed after {secs} s, so no worker is known yet: {why}; see that the kind is served \
             (deploy/crds) and that this manager may list and watch it (deploy/rights)"
        )
    });
    let secrets = why(secrets).map(|why| {
        format!(
            "Secrets in namespace \"{namespace}\" are not listed after {secs} s, so workers whose kubeconfig is in one are said to have \
             none: {why}; see that this manager may list and watch Secrets there (deploy/rights)"
        )
    });
    clusters.into_iter().chain(secrets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_for_a_cluster_has_troubles_of_its_own_until_it_leaves() {
        let told = Told::default();
        told.failed("east", "writing", "refused");
        told.not_connected("east", "no answer", Timestamp::UNIX_EPOCH);
        told.not_connected("west", "no answer", Timestamp::UNIX_EPOCH);
        told.connected("east");
        let is_news = |cluster: &str, what, why| told.0.is_news((cluster.into(), what), why);
        assert!(!is_news("east", "writing", "refused"), "that lasts");
        assert!(
            is_news("east", CONNECTING, "no answer"),
            "it was connected in between"
        );
        told.left("east");
        assert!(is_news("east", "writing", "refused"), "another one by that name");
        assert!(!is_news("west", CONNECTING, "no answer"));
    }

    #[test]
    fn what_is_not_listed_is_blamed_and_nothing_else() {
        let texts = |clusters, secrets| unlisted(&clusters, &secrets, "ns", Duration::from_secs(5));
        let refused = || Health::Failing("forbidden".to_owned());
        assert!(texts(Health::Live, Health::Live).is_empty());
        let of_clusters = texts(refused(), Health::Live);
        assert!(
            of_clusters[0].starts_with("MultiKueueClusters are not listed"),
            "{of_clusters:?}"
        );
        assert!(
            of_clusters.len() == 1 && of_clusters[0].contains("forbidden"),
            "{of_clusters:?}"
        );
        let of_secrets = texts(Health::Live, Health::Starting);
        assert!(
            of_secrets[0].starts_with("Secrets in namespace \"ns\""),
            "{of_secrets:?}"
        );
        assert!(
            of_secrets.len() == 1 && of_secrets[0].contains("has not answered"),
            "{of_secrets:?}"
        );
        assert_eq!(texts(refused(), refused()).len(), 2);
    }
}
