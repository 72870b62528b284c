//! Token and access reviews by the API server; the certificate authority of its front proxy; and the registration of our own
//! authority with it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec};
use kube::api::PostParams;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::config::Config;
use roadstead_api::install::owned;
use roadstead_api::visibility::{GROUP, SERVICE, VERSIONS};
use roadstead_kubeio::failure::{Failure, with_causes};
use roadstead_kubeio::retry::Backoff;
use roadstead_kubeio::trouble::Trouble;
use roadstead_kubeio::write;
use roadstead_serve::delegated::{Caller, FrontProxy, Guard, NotAsked, Question, Reviews, Token, Verdict};
use roadstead_serve::tls::{CA_CERT_KEY, CertSlot, Follower};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::leader::Leadership;

/// How often the cluster's published settings and our registration are checked.
const LOOK: Duration = Duration::from_secs(15);
/// Pauses after failures, the first and the longest. *Why* so long: where the visibility API is not installed the right is
/// missing for good, and all processes would only ask for refusals.
const RETRY: (Duration, Duration) = (Duration::from_secs(3), Duration::from_mins(1));
/// Where the cluster publishes the authority of its front proxy.
const PUBLISHED: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// The remedy when one of these reviews is refused.
const REVIEWER: &str = "the right to ask is in deploy/visibility/visibility.yaml";

/// The reviews for a guard, sent with this client.
pub(crate) fn of(client: &Client) -> Reviews {
    let who = Asker::new(client, "the user of a visibility request", "TokenReview");
    let whether = Asker::new(
        client,
        "the rights of a user of the visibility API",
        "SubjectAccessReview",
    );
    Reviews {
        token: Box::new(move |token| Box::pin(ask_who(who.clone(), token))),
        access: Box::new(move |caller, question| Box::pin(ask_whether(whether.clone(), caller, question))),
    }
}

#[derive(Clone)]
struct Asker {
    client: Client,
    /// The purpose and the resource of the review.
    what: &'static str,
    kind: &'static str,
    /// The last failure. *Why* shared: all reviews fail for the same reason, and one line of log is enough.
    trouble: Arc<Mutex<Trouble>>,
}

impl Asker {
    fn new(client: &Client, what: &'static str, kind: &'static str) -> Self {
        Self {
            client: client.clone(),
            what,
            kind,
            trouble: Arc::default(),
        }
    }

    async fn ask<K>(&self, review: &K) -> Result<K, NotAsked>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let api = Api::<K>::all(self.client.clone());
        let answer = api.create(&PostParams::default(), review).await;
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let (what, kind) = (self.what, self.kind);
        match answer {
            Ok(answer) => {
                if trouble.ends() {
                    tracing::info!("{what} can be found out again ({kind})");
                }
                Ok(answer)
            }
            Err(error) => {
                let why = write::describe(&error);
                if trouble.is_news(&why) {
                    tracing::warn!("{what} could not be found out ({kind}): {why}; {REVIEWER}");
                }
                Err(NotAsked)
            }
        }
    }
}

async fn ask_who(asker: Asker, token: Token) -> Result<Option<Caller>, NotAsked> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.reveal().to_owned(),
            audiences: None,
        },
        ..TokenReview::default()
    };
    let status = asker.ask(&review).await?.status.unwrap_or_default();
    let user = status.user.filter(|_| status.authenticated == Some(true));
    Ok(user.map(|user| Caller {
        user: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default().into_iter().collect(),
        extra: user.extra.unwrap_or_default(),
    }))
}

async fn ask_whether(asker: Asker, caller: Caller, question: Question) -> Result<Verdict, NotAsked> {
    let Caller {
        user,
        uid,
        groups,
        extra,
    } = caller;
    let mut spec = SubjectAccessReviewSpec {
        user: Some(user),
        uid: Some(uid).filter(|uid| !uid.is_empty()),
        groups: Some(groups.into_iter().collect()),
        extra: Some(extra),
        ..SubjectAccessReviewSpec::default()
    };
    match question {
        Question::Path { verb, path } => {
            spec.non_resource_attributes = Some(NonResourceAttributes {
                verb: Some(verb),
                path: Some(path),
            });
        }
        Question::Resource {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some(verb),
                group: Some(group.to_owned()),
                version: Some(version),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                namespace,
                name: Some(name),
                ..ResourceAttributes::default()
            });
        }
    }
    let review = SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    };
    let status = asker.ask(&review).await?.status.unwrap_or_default();
    Ok(if status.allowed {
        Verdict::Allowed
    } else {
        Verdict::Denied(status.reason.unwrap_or_default())
    })
}

/// Keeps the guard's trust and our registration up to date until `stop`.
pub(super) async fn follow(
    client: Client,
    config: Arc<Config>,
    guard: Arc<Guard>,
    leadership: Leadership,
    stop: CancellationToken,
) {
    let work = async {
        let (mut trouble, mut retry) = (Trouble::default(), Backoff::new(RETRY.0, RETRY.1));
        loop {
            let pause = match once(&client, &config, &guard, &leadership).await {
                Ok(()) => {
                    trouble.ends();
                    retry.reset();
                    LOOK
                }
                Err(failure) => {
                    if trouble.is_news(failure.text()) {
                        tracing::warn!("the visibility API may not be reachable: {failure}");
                    }
                    retry.pause()
                }
            };
            leadership.rest(pause).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
}

async fn once(
    client: &Client,
    config: &Config,
    guard: &Guard,
    leadership: &Leadership,
) -> Result<(), Failure> {
    let (namespace, name) = PUBLISHED;
    let published = get(client, namespace, name).await.map_err(|failure| {
        failure.reworded(|why| format!("{why}; the right to it is in deploy/visibility/visibility.yaml"))
    });
    let published: Option<ConfigMap> = published?;
    let data = published.and_then(|map| map.data).unwrap_or_default();
    let proxy = FrontProxy::from_config_map(&data);
    guard.trust(proxy.map_err(|error| Failure::lasting(error.to_string()))?);
    if config.roadstead.webhook.manage_configurations && leadership.leads() {
        register(client, config).await?;
    }
    Ok(())
}

/// Reads an object of a namespace; `None` when it does not exist.
async fn get<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, Failure>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await;
    let what = K::kind(&());
    found.map_err(|error| {
        Failure::of(&error).in_doing(format_args!("reading {what} {namespace}/{name} failed"))
    })
}

/// Puts our authority into those of our registrations that exist. One of another tool that skips TLS verification is left as it is.
async fn register(client: &Client, config: &Config) -> Result<(), Failure> {
    let services: Api<APIService> = Api::all(client.clone());
    let mut ours = Vec::new();
    for version in VERSIONS {
        let name = format!("{version}.{GROUP}");
        let found = services.get_opt(&name).await;
        let found = found.map_err(|error| {
            Failure::of(&error).in_doing(format_args!("reading APIService {name} failed"))
        })?;
        let found = found.filter(|found| is_ours(found, config));
        ours.extend(found.and_then(|found| found.spec).map(|spec| (name, spec)));
    }
    if ours.is_empty() {
        return Ok(());
    }
    let Some(authority) = authority(client, config).await? else {
        return Ok(());
    };
    for (name, spec) in ours {
        if spec.ca_bundle.as_ref() == Some(&authority) && !skips(&spec) {
            continue;
        }
        // Why both: the API server refuses an authority beside `insecureSkipTLSVerify`.
        let verified = json!({ "spec": { "caBundle": authority, "insecureSkipTLSVerify": false } });
        let answer = write::patch(&services, &name, &verified).await;
        let what = format_args!("changing APIService {name} failed");
        if answer
            .stored()
            .map_err(|failure| failure.in_doing(what))?
            .is_some()
        {
            tracing::info!(apiservice = name, "registered our authority");
        }
    }
    Ok(())
}

/// Whether a registration leads to us and trusts our authority. One of our installation that skips TLS verification has this field
/// from Kueue, whose manifests set it.
fn is_ours(found: &APIService, config: &Config) -> bool {
    let Some(spec) = &found.spec else { return false };
    let by_service = spec.service.as_ref().is_some_and(|service| {
        service.name.as_deref() == Some(SERVICE)
            && service.namespace.as_deref() == Some(config.namespace.as_str())
    });
    by_service && (!skips(spec) || found.labels().contains_key(owned::LABEL))
}

fn skips(spec: &APIServiceSpec) -> bool {
    spec.insecure_skip_tls_verify == Some(true)
}

/// The authorities of the certificate that we serve, PEM. `None` if the administrator's certificate comes without `ca.crt`: then another
/// tool registers them.
async fn authority(client: &Client, config: &Config) -> Result<Option<ByteString>, Failure> {
    if !config.cert_management.enable {
        let files = Follower::new(&config.webhook.cert_dir, CertSlot::empty());
        let folder = config.webhook.cert_dir.display();
        let found = files.authorities().await.map_err(|error| {
            Failure::lasting(format!("webhook.certDir {folder}: {}", with_causes(&error)))
        })?;
        return Ok(found.map(|pem| ByteString(pem.into_bytes())));
    }
    let secret = &config.cert_management.webhook_secret_name;
    let stored: Option<Secret> = get(client, &config.namespace, secret).await?;
    let authority = stored.and_then(|secret| secret.data?.remove(CA_CERT_KEY));
    match authority {
        Some(authority) => Ok(Some(authority)),
        None => Err(Failure::passing("there is no certificate yet")),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kube::client::Body;
    use roadstead_serve::tls::{Lifetimes, issue};

    use super::*;

    #[test]
    fn a_registration_that_kueue_left_without_verification_gets_our_authority_once_it_is_installed() {
        let config = Config::without_file("kueue-system");
        let of = |labels: serde_json::Value, skips: bool| -> APIService {
            serde_json::from_value(json!({
                "metadata": {"name": "v1beta2.visibility.kueue.x-k8s.io", "labels": labels},
                "spec": {
                    "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": skips,
                    "service": {"name": SERVICE, "namespace": "kueue-system"},
                },
            }))
            .unwrap()
        };
        let installed = json!({owned::LABEL: "roadstead-worker"});
        assert!(is_ours(&of(installed, true), &config));
        assert!(is_ours(&of(json!({}), false), &config));
        assert!(
            !is_ours(&of(json!({}), true), &config),
            "another tool may want it so"
        );
    }

    #[tokio::test]
    async fn the_authority_of_a_certificate_from_files_is_that_of_the_files() {
        let unasked = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("no request is expected"))
        });
        let client = Client::new(unasked, "default");
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::without_file("kueue-system");
        config.cert_management.enable = false;
        folder.path().clone_into(&mut config.webhook.cert_dir);
        assert_eq!(
            authority(&client, &config).await,
            Ok(None),
            "another tool registers it"
        );

        let bundle = issue(Timestamp::UNIX_EPOCH, &["a".to_owned()], &Lifetimes::default()).unwrap();
        std::fs::write(folder.path().join(CA_CERT_KEY), bundle.ca_bundle()).unwrap();
        let wanted = Some(ByteString(bundle.ca_bundle().into_bytes()));
        assert_eq!(authority(&client, &config).await, Ok(wanted));
    }
}
