//! Renews the tokens that `roadstead cluster join` wrote, long before they end.
//!
//! Invariant: a failed renewal leaves the old credential as it is; it is tried again with growing pauses.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt as _};
use roadstead_core::name::ClusterName;
use roadstead_engine::clock::Clock;
use roadstead_engine::until;
use roadstead_kubeconfigs::account::token::{Terms, plan_renewal, renew_secret};
use roadstead_kubeconfigs::check::Rules;
use roadstead_kubeconfigs::secret;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{self, Outcome};
use tokio_util::sync::CancellationToken;

use crate::remote::registry::Registry;

/// Renewals at the same time.
const WORKERS: usize = 4;

/// See the module.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) client: Client,
    pub(crate) secrets: Arc<Cache<Secret>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) rules: Rules,
    pub(crate) lifetime: Duration,
    pub(crate) clock: Clock,
}

impl Credentials {
    /// Renews until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let queue = Arc::new(Queue::new());
        let due = queue.clone();
        self.secrets.listen(move |change| {
            if change.new.is_some_and(|secret| secret::cluster(secret).is_some()) {
                due.add(change.key.name.to_string(), Lane::New);
            }
        });
        for secret in self.secrets.all() {
            queue.add(secret.name_any(), Lane::New);
        }
        reconcile::run("credentials", queue, WORKERS, stop, move |name| {
            let this = self.clone();
            async move { this.renew(&name).await }
        })
        .await;
    }

    async fn renew(&self, name: &str) -> Outcome {
        let all = self.secrets.all();
        let Some(stored) = all.iter().find(|secret| secret.name_any() == name) else {
            return Outcome::Done;
        };
        let (Some(cluster), Some(life)) = (secret::cluster(stored), secret::lifetime(stored)) else {
            return Outcome::Done;
        };
        let now = (self.clock)();
        // Why from the name: the point must stay the same from one look to the next, and differ between clusters.
        let jitter = f64::from(
            name.bytes()
                .fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte))
                % 1000,
        ) / 1000.0;
        let when = plan_renewal(now, life, jitter);
        if when > now {
            return until(Some(when), now).map_or(Outcome::Done, Outcome::After);
        }
        let Some(worker) = self
            .registry
            .get(&ClusterName::from(cluster))
            .and_then(|remote| remote.last_client())
        else {
            return Outcome::Failed(format!(
                "cluster {cluster}: not connected, so its credential cannot be renewed"
            ));
        };
        let terms = Terms {
            rules: self.rules,
            lifetime: self.lifetime,
            now,
        };
        match renew_secret(&self.client, &worker, stored, &terms).await {
            Ok(renewed) => {
                tracing::info!(cluster, secret = name, "credential renewed");
                self.secrets.observe(renewed);
                Outcome::Done
            }
            Err(error) => {
                let left = life.expires.duration_since(now);
                Outcome::Failed(format!(
                    "cluster {cluster}: renewing the credential failed, it ends in {left:#}: {error}"
                ))
            }
        }
    }
}
