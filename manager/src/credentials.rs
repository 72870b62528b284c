//! Renews the tokens that `roadstead cluster join` wrote, long before they end.
//!
//! Invariant: a failed renewal leaves the old credential as it is and is tried again with growing pauses. The connected API server
//! makes the token, and the manager shows it to the server that the Secret names. So nothing is renewed unless both are the same
//! server: a label alone could send a token of one cluster to another (`spec/safety.md S7`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{LocationType, MultiKueueCluster};
use roadstead_core::name::ClusterName;
use roadstead_engine::clock::Clock;
use roadstead_engine::until;
use roadstead_kubeconfigs::account::token::{self, Terms, plan_renewal, renew_secret};
use roadstead_kubeconfigs::check::{Rules, check};
use roadstead_kubeconfigs::place::Place;
use roadstead_kubeconfigs::secret;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::failure::{Failure, with_causes};
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{self, Outcome};
use roadstead_kubeio::trouble::Trouble;
use tokio_util::sync::CancellationToken;

use crate::remote::registry::Registry;

/// Renewals at the same time.
const WORKERS: usize = 4;
/// How often the manager looks again at a credential that it does not renew: the cluster may be connected anew, or changed.
const SKIPPED_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) client: Client,
    pub(crate) secrets: Arc<Cache<Secret>>,
    pub(crate) clusters: Arc<Cache<MultiKueueCluster>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) rules: Rules,
    pub(crate) lifetime: Duration,
    pub(crate) clock: Clock,
}

/// Why credentials are not renewed, by Secret.
type Skipped = Mutex<BTreeMap<String, Trouble>>;

impl Credentials {
    /// Renews until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let queue = Arc::new(Queue::default());
        let due = queue.clone();
        self.secrets.listen(move |change| {
            if change.new.is_some_and(|secret| secret::cluster(secret).is_some()) {
                due.add(change.key.name.to_string(), Lane::New);
            }
        });
        for secret in self.secrets.all() {
            queue.add(secret.name_any(), Lane::New);
        }
        let skipped = Arc::<Skipped>::default();
        reconcile::run("credentials", queue, WORKERS, stop, move |name| {
            let (this, skipped) = (self.clone(), skipped.clone());
            async move { this.renew(&name, &skipped).await }
        })
        .await;
    }

    async fn renew(&self, name: &str, skipped: &Skipped) -> Outcome {
        let skipped = || skipped.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.secrets.all();
        let Some(stored) = all.iter().find(|secret| secret.name_any() == name) else {
            skipped().remove(name);
            return Outcome::Done;
        };
        let (Some(cluster), Some(life)) = (secret::cluster(stored), secret::lifetime(stored)) else {
            return Outcome::Done;
        };
        let now = (self.clock)();
        // Why from the name: the time of renewal must stay the same from one pass to the next, and differ between clusters.
        let jitter = f64::from(
            name.bytes()
                .fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte))
                % 1000,
        ) / 1000.0;
        let when = plan_renewal(now, life, jitter);
        if when > now {
            return until(Some(when), now).map_or(Outcome::Done, Outcome::After);
        }
        let Some((worker, place)) = self
            .registry
            .get(&ClusterName::from(cluster))
            .and_then(|remote| remote.last_client())
        else {
            return Failure::passing(format!(
                "cluster {cluster}: not connected, so its credential in Secret {name} cannot be renewed and ends at {:.0}: connect it \
                 before then, or run \"roadstead cluster join\" for it again",
                life.expires
            ))
            .into();
        };
        if let Some(why) = self.mismatch(stored, cluster, &place) {
            if skipped().entry(name.to_owned()).or_default().is_news(&why) {
                tracing::warn!(cluster, secret = name, "its credential is not renewed: {why}");
            }
            return Outcome::After(SKIPPED_PAUSE);
        }
        skipped().remove(name);
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
            Err(error) => Failure::passing(not_renewed(cluster, name, life, &error)).into(),
        }
    }

    /// Why the credential in a Secret must not be renewed: it is not that of the connected cluster that its label names. `None`
    /// if it is.
    fn mismatch(&self, secret: &Secret, cluster: &str, place: &Place) -> Option<String> {
        let name = secret.name_any();
        let named = self.clusters.named(cluster);
        let uses_it = named.is_some_and(|named| {
            let source = named.spec.cluster_source.kube_config.as_ref();
            source.is_some_and(|it| it.location_type == LocationType::Secret && it.location == name)
        });
        if !uses_it {
            return Some(format!(
                "label {} of the Secret names MultiKueueCluster \"{cluster}\", which does not take its kubeconfig from there; correct \
                 the label, or delete the Secret if it is not used",
                secret::CREDENTIAL_LABEL
            ));
        }
        let stored = secret::read(&name, Some(secret)).and_then(|bytes| check(bytes, &self.rules));
        match stored {
            Ok(endpoint) if Place::of(&endpoint) == *place => None,
            Ok(_) => Some(
                "its Secret names another server or certificate authority than the open connection; the credential is renewed once the \
                 manager is connected to that one"
                    .to_owned(),
            ),
            Err(refusal) => Some(refusal.message),
        }
    }
}

/// What happened, until when the old credential is valid, and what to do. Why no remaining time: the text would change each time.
fn not_renewed(cluster: &str, secret: &str, life: secret::Lifetime, error: &token::Error) -> String {
    let why = with_causes(error);
    format!(
        "cluster {cluster}: the credential in Secret {secret} could not be renewed, and ends at {:.0}: {why}; if this stays, run \
         \"roadstead cluster join\" for this cluster again before then",
        life.expires
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use jiff::Timestamp;
    use kube::client::Body;
    use roadstead_core::cluster::link::Link;
    use roadstead_core::lease::{self, Grant, Moment};
    use roadstead_kubeio::connect::{Credential, Endpoint};
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::remote::Remote;

    const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn endpoint(server: &str) -> Endpoint {
        Endpoint {
            server: server.to_owned(),
            authority: AUTHORITY.to_owned(),
            credential: Credential::Token("t".to_owned().into()),
        }
    }

    fn secret(name: &str, server: &str) -> Secret {
        let kubeconfig = secret::render("east", &endpoint(server));
        let life = secret::Lifetime {
            issued: Timestamp::UNIX_EPOCH,
            expires: Timestamp::UNIX_EPOCH,
        };
        secret::build(name, "ns", "east", &kubeconfig, life)
    }

    /// A manager with one connected cluster, whose API server counts what it is asked and refuses it.
    fn connected(server: &str) -> (Credentials, Arc<AtomicU32>) {
        let asked = Arc::<AtomicU32>::default();
        let count = asked.clone();
        let refuses = tower::service_fn(move |_: http::Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Err::<http::Response<Body>, _>(std::io::Error::other("no")))
        });
        let client = Client::new(refuses, "ns");
        let registry = Arc::<Registry>::default();
        let remote = Remote::new(
            "east".into(),
            (&[], &Arc::default()),
            Link::new(
                Timestamp::UNIX_EPOCH,
                Grant::new(Moment::default(), lease::Terms::of(Duration::from_mins(10))),
            ),
        );
        registry.insert(Arc::new(remote.dialled(client.clone(), &endpoint(server))));
        let credentials = Credentials {
            client,
            secrets: Cache::new(),
            clusters: Cache::new(),
            registry,
            rules: Rules::default(),
            lifetime: Duration::from_hours(1),
            clock: Arc::new(Timestamp::now),
        };
        (credentials, asked)
    }

    #[test]
    fn a_renewal_that_failed_says_why_with_all_causes_and_until_when_the_old_credential_is_good() {
        let life = secret::Lifetime {
            issued: Timestamp::UNIX_EPOCH,
            expires: Timestamp::from_second(3600).unwrap(),
        };
        let refusal = check(b"{}", &Rules::default()).unwrap_err();
        let words = refusal.message.clone();
        let said = not_renewed("east", "own", life, &token::Error::Refused { source: refusal });
        assert!(
            said.contains("Secret own could not be renewed, and ends at 1970-01-01T01:00:00Z"),
            "{said}"
        );
        assert!(
            said.contains(&format!("the kubeconfig in use is refused: {words}")),
            "{said}"
        );
        assert!(said.contains("roadstead cluster join"), "{said}");
    }

    /// Spec: safety S7
    #[tokio::test]
    async fn a_token_is_asked_for_only_where_it_will_be_shown_and_by_the_secret_that_is_used() {
        let (east, west) = ("https://east.example:6443", "https://west.example:6443");
        let (credentials, asked) = connected(east);
        let skipped = Skipped::default();
        let cluster = |source: Value| {
            credentials.clusters.observe(
                from_value(json!({
                    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
                    "metadata": {"name": "east"},
                    "spec": {"clusterSource": {"kubeConfig": source}},
                }))
                .unwrap(),
            );
        };
        let renew = async |name, server| {
            credentials.secrets.observe(secret(name, server));
            let outcome = credentials.renew(name, &skipped).await;
            let is_skipped = matches!(outcome, Outcome::After(SKIPPED_PAUSE));
            (is_skipped, asked.swap(0, Ordering::Relaxed) > 0)
        };
        let (skips, asks) = ((true, false), (false, true));
        assert_eq!(renew("own", east).await, skips, "there is no such cluster");
        cluster(json!({"location": "own", "locationType": "Secret"}));
        assert_eq!(renew("own", east).await, asks);
        assert_eq!(renew("other", east).await, skips, "the label lies");
        assert_eq!(renew("own", west).await, skips, "another server");
        assert_eq!(renew("own", "https://127.0.0.1").await, skips, "it is refused");
        cluster(json!({"location": "own", "locationType": "Path"}));
        assert_eq!(renew("own", east).await, skips, "it is a file");
    }
}
