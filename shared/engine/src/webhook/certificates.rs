//! Certificates of the webhook server, and their registration with the API server. They are made here, kept in a Secret and
//! renewed in time, or read from files that the administrator's tool provides.
//!
//! Conversion webhooks are registered at once, because the caches cannot be filled while stored objects need conversion.
//! Admission webhooks are registered when the caches are filled.
//!
//! Of several replicas the leader makes and registers the certificates; the others read the Secret and serve with it.
//!
//! Invariant: the API server trusts a new authority before a certificate of it is served, because the registered bundle always
//! holds both the new and the old one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, SelfSubjectReviewStatus};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use roadstead_api::config::Config;
use roadstead_api::constants::labels;
use roadstead_api::constants::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use roadstead_api::visibility::SERVICE as VISIBILITY_SERVICE;
use roadstead_jobs::JobKind;
use roadstead_kinds::rows;
use roadstead_kubeio::failure::{Failure, with_causes};
use roadstead_kubeio::trouble::{Trouble, Troubles};
use roadstead_serve::health::Condition;
use roadstead_serve::tls::{
    self, Bundle, CertSlot, FILES_POLL_WAIT, Follower, Lifetimes, Rotation, issue, plan_rotation, renew,
    service_names,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::definitions;
use super::filled::Filled;
use super::registration::{Queues, Reach, Registration};
use super::takeover::{self, Deletion};
use crate::caches::{Caches, api_resource};
use crate::clock::Clock;
use crate::leader::Leadership;

/// How often certificates and registrations are checked.
const LOOK: Duration = Duration::from_mins(1);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Registrations are checked at every n-th check of the files, unless the files changed.
const LOOKS_PER_REGISTRATION: u32 = 6;
/// Pause after a definition was missing or could not be written.
const DEFINITIONS_RETRY: Duration = Duration::from_secs(5);
/// Pause between attempts to reach our own webhook.
const PROBE: Duration = Duration::from_millis(50);
/// Attempts to reach our own webhook before the reason is logged.
const PROBES_MAX: u32 = 200;

pub(crate) struct Certificates {
    pub(crate) client: Client,
    pub(crate) config: Arc<Config>,
    pub(crate) kinds: Vec<&'static dyn JobKind>,
    pub(crate) slot: Arc<CertSlot>,
    pub(crate) ready: Condition,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) clock: Clock,
    pub(crate) caches: Caches,
    pub(crate) leadership: Leadership,
}

/// What was done so far.
struct Progress {
    /// Why definitions could not be changed.
    definitions: Troubles<&'static str>,
    /// Follows the files, when certificates come from files.
    files: Option<Follower>,
    /// How often the files were checked.
    looks: u32,
    /// The authorities with which the API server has been seen to call our webhook.
    answered: Option<Authorities>,
    /// Whether this process has registered the webhooks.
    registered: bool,
    /// Whether the registrations were deleted since.
    deletion: Deletion,
    /// Why new files were not accepted, so that the earlier certificate is still served.
    kept: Trouble,
}

/// Authorities in PEM; none when another tool registers them.
#[derive(PartialEq, Eq)]
struct Authorities(Option<String>);

impl Certificates {
    /// Keeps certificates and registrations up to date until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let files = || Follower::new(&self.config.webhook.cert_dir, self.slot.clone());
        let mut trouble = Trouble::default();
        let mut progress = Progress {
            definitions: Troubles::default(),
            files: (!self.config.cert_management.enable).then(files),
            looks: 0,
            answered: None,
            registered: false,
            deletion: Deletion::default(),
            kept: Trouble::default(),
        };
        let filled = Filled::new(&self.caches);
        let work = async {
            loop {
                let pause = match self.once(&mut progress, &filled).await {
                    Ok(pause) => {
                        if trouble.ends() {
                            tracing::info!("certificates and registrations of webhooks are in order again");
                        }
                        pause
                    }
                    Err(failure) => {
                        if trouble.is_news(failure.text()) {
                            tracing::warn!(
                                "webhooks are not ready: {failure}; it is tried again until it succeeds, and this process is not ready \
                                 meanwhile"
                            );
                        }
                        self.ready.not_ready(failure);
                        RETRY
                    }
                };
                let soon = async {
                    // Why: admission is registered as soon as the caches are filled, not at the next check.
                    if progress.answered.is_none() && !filled.is_true() {
                        filled.wait().await;
                    } else {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = soon => {}
                    () = self.leadership.rest(pause) => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Checks everything once; returns how long to wait for the next check.
    async fn once(&self, progress: &mut Progress, filled: &Filled) -> Result<Duration, Failure> {
        let (authorities, key) = match &mut progress.files {
            Some(files) => match self.read(files).await {
                Ok(authorities) => {
                    if progress.kept.ends() {
                        tracing::info!("the files of the webhook certificate can be read again");
                    }
                    (Authorities(authorities), None)
                }
                Err(failure) if self.slot.is_filled() => {
                    // Why not an error: the last certificate is still served; perhaps the files are just being written.
                    if progress.kept.is_news(failure.text()) {
                        tracing::warn!(
                            "the new files of the webhook certificate cannot be used, so the earlier certificate is served on until it \
                             expires: {failure}; they are looked at again every {} s",
                            FILES_POLL_WAIT.as_secs()
                        );
                    }
                    return Ok(FILES_POLL_WAIT);
                }
                Err(failure) => return Err(failure),
            },
            None => {
                let Some(bundle) = self.bundle(&self.names()?).await? else {
                    self.ready
                        .not_ready("the replica that leads has made no webhook certificate yet");
                    return Ok(RETRY);
                };
                let key = bundle.certified_key();
                let key = key.map_err(|error| Failure::lasting(error.to_string()))?;
                (Authorities(Some(bundle.ca_bundle())), Some(key))
            }
        };
        let mut pause = LOOK;
        if progress.files.is_some() {
            pause = FILES_POLL_WAIT;
            progress.looks = progress.looks.wrapping_add(1);
            // Why: files are cheap to check, registrations are not.
            if progress.answered.as_ref() == Some(&authorities)
                && !progress.looks.is_multiple_of(LOOKS_PER_REGISTRATION)
            {
                return Ok(pause);
            }
        }
        let leads = self.leadership.leads();
        if leads && self.config.roadstead.webhook.manage_configurations {
            let ca_bundle = authorities.0.as_deref();
            let troubles = &progress.definitions;
            if !definitions::put_all(&self.client, &self.reach(), ca_bundle, troubles).await {
                pause = DEFINITIONS_RETRY;
            }
            if filled.is_true() && self.may_register(progress).await? {
                self.register(ca_bundle).await?;
                progress.registered = true;
            }
        }
        if let Some(key) = key {
            self.slot.fill(key);
        }
        if !filled.is_true() {
            return Ok(pause);
        }
        // Why only the leader: any replica may answer the test, so it is enough that the leader has seen an answer.
        if leads && progress.answered.as_ref() != Some(&authorities) {
            self.see_it_answer().await?;
            progress.answered = Some(authorities);
        }
        self.ready.ready();
        Ok(pause)
    }

    /// Reads the files if they changed; returns the authorities to register.
    async fn read(&self, files: &mut Follower) -> Result<Option<String>, Failure> {
        let folder = self.config.webhook.cert_dir.display();
        let explain = |error: tls::Error| {
            Failure::lasting(format!("webhook.certDir {folder}: {}", with_causes(&error)))
        };
        if files.look().await.map_err(explain)? {
            tracing::info!(%folder, "webhook certificate loaded");
        }
        files.authorities().await.map_err(explain)
    }

    fn reach(&self) -> Reach {
        match &self.config.roadstead.webhook.url {
            Some(url) => Reach::Url(url.clone()),
            None => Reach::Service {
                name: self.config.cert_management.webhook_service_name.clone(),
                namespace: self.config.namespace.clone(),
            },
        }
    }

    fn names(&self) -> Result<Vec<String>, Failure> {
        let mut names = service_names(VISIBILITY_SERVICE, &self.config.namespace);
        names.extend(self.webhook_names()?);
        Ok(names)
    }

    fn webhook_names(&self) -> Result<Vec<String>, Failure> {
        match self.reach() {
            Reach::Service { name, namespace } => Ok(service_names(&name, &namespace)),
            Reach::Url(url) => {
                let wrong = |what: &str| Failure::lasting(format!("webhook.url {url} {what}"));
                let uri: http::Uri = url.parse().map_err(|_invalid| wrong("is not a URL"))?;
                let host = uri.host().ok_or_else(|| wrong("names no host"))?;
                Ok(vec![host.trim_matches(['[', ']']).to_owned()])
            }
        }
    }

    /// The bundle of the Secret, renewed when it is due; a new one when there is none or it is damaged. A replica that does not
    /// lead takes the bundle as it is, or has none yet.
    async fn bundle(&self, names: &[String]) -> Result<Option<Bundle>, Failure> {
        let name = &self.config.cert_management.webhook_secret_name;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.config.namespace);
        let stored = api.get_opt(name).await?;
        let now = (self.clock)();
        let old = stored.as_ref().and_then(|secret| {
            let data = secret.data.clone().unwrap_or_default();
            let data: BTreeMap<String, Vec<u8>> =
                data.into_iter().map(|(key, value)| (key, value.0)).collect();
            Bundle::from_secret(&data).ok()
        });
        if !self.leadership.leads() {
            return Ok(old);
        }
        let rotation = old
            .as_ref()
            .map_or(Rotation::RenewAll, |old| plan_rotation(now, old, names));
        let fresh = match &old {
            Some(old) if rotation == Rotation::Keep => return Ok(Some(old.clone())),
            Some(old) => renew(rotation, now, old, names, &self.lifetimes),
            None => issue(now, names, &self.lifetimes),
        };
        let fresh = fresh.map_err(|error| Failure::lasting(error.to_string()))?;
        tracing::info!(secret = %format!("{}/{name}", self.config.namespace), ?rotation, "new webhook certificate");
        let data = fresh
            .to_secret()
            .into_iter()
            .map(|(key, value)| (key, ByteString(value)))
            .collect();
        let secret = replaced(stored, name, &self.config.namespace, data);
        let written = if secret.metadata.resource_version.is_some() {
            api.replace(name, &PostParams::default(), &secret).await
        } else {
            api.create(&PostParams::default(), &secret).await
        };
        // Why the failure counts: a certificate that is not stored would be replaced after a restart, and two replicas would
        // serve two authorities of which only one is registered.
        written.map(|_| Some(fresh)).map_err(|error| {
            let namespace = &self.config.namespace;
            Failure::of(&error).in_doing(format_args!("storing Secret {namespace}/{name} failed"))
        })
    }

    /// Whether the webhooks may be registered: not while an uninstallation may be deleting them.
    async fn may_register(&self, progress: &mut Progress) -> Result<bool, Failure> {
        if !progress.registered {
            return Ok(true);
        }
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let both_exist = takeover::exists(&mutating, MUTATING_WEBHOOKS).await?
            && takeover::exists(&validating, VALIDATING_WEBHOOKS).await?;
        let may = progress.deletion.may_register(both_exist, (self.clock)());
        if !may {
            tracing::warn!(
                "a webhook configuration of this process was deleted, so jobs start without waiting for their queue; it is written \
                 again if this process still runs in a minute"
            );
        }
        Ok(may)
    }

    async fn register(&self, ca_bundle: Option<&str>) -> Result<(), Failure> {
        let user = self.own_user().await;
        let reach = self.reach();
        let registration = Registration {
            kinds: &self.kinds,
            reach: &reach,
            queues: if self.config.manage_jobs_without_queue_name {
                Queues::Any
            } else {
                Queues::Named
            },
            ca_bundle,
            namespace: &self.config.namespace,
            own_user: user.as_deref(),
            accounts: &self.config.roadstead.multi_kueue.lease_namespace,
        };
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        takeover::put(&mutating, &registration.mutating()).await?;
        takeover::put(&validating, &registration.validating()).await
    }

    async fn own_user(&self) -> Option<String> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let review = api
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
            .ok()?;
        let SelfSubjectReviewStatus { user_info } = review.status?;
        user_info?.username
    }

    /// Creates a job in dry-run until it comes back held: the API server needs a moment to apply a registration.
    async fn see_it_answer(&self) -> Result<(), Failure> {
        let kind = self.kinds.iter().find(|kind| kind.kind() == &rows::JOB);
        let (Some(kind), true) = (kind, self.config.roadstead.webhook.manage_configurations) else {
            return Ok(());
        };
        let job: DynamicObject = serde_json::from_value(json!({
            "apiVersion": rows::JOB.api_version(), "kind": rows::JOB.kind,
            "metadata": { "generateName": "roadstead-probe-", "labels": { labels::QUEUE_NAME: "roadstead-probe" } },
            "spec": { "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "probe", "image": "probe" }] } } },
        }))?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &api_resource(*kind));
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let mut last = Failure::passing("the API server does not call them yet");
        for _ in 0..PROBES_MAX {
            match api.create(&params, &job).await {
                Ok(answer) if answer.data.pointer("/spec/suspend") == Some(&json!(true)) => return Ok(()),
                Ok(_) => last = Failure::passing("the API server does not call them yet"),
                // Why: without the right to create jobs this cannot be tested; the registration itself has succeeded.
                Err(kube::Error::Api(status)) if status.code == 403 => return Ok(()),
                Err(error) => last = Failure::of(&error),
            }
            tokio::time::sleep(PROBE).await;
        }
        Err(last)
    }
}

/// The Secret to write in place of the stored one. It keeps its type, which the API server lets no client change: cert-manager, which
/// Kueue may have used, writes another one than we.
fn replaced(
    stored: Option<Secret>,
    name: &str,
    namespace: &str,
    data: BTreeMap<String, ByteString>,
) -> Secret {
    let stored = stored.unwrap_or_default();
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..stored.metadata
        },
        data: Some(data),
        type_: stored.type_,
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_cert_manager_left_keeps_its_type_and_version() {
        let stored: Secret = serde_json::from_value(json!({
            "type": "kubernetes.io/tls", "metadata": {"resourceVersion": "7", "labels": {"a": "b"}}, "data": {"tls.crt": "b2xk"},
        }))
        .unwrap();
        let data = BTreeMap::from([("ca.key".to_owned(), ByteString(b"new".to_vec()))]);
        let secret = replaced(Some(stored), "cert", "ours", data.clone());
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        assert_eq!(secret.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(secret.metadata.namespace.as_deref(), Some("ours"));
        assert_eq!(
            secret.data.as_ref(),
            Some(&data),
            "nothing of the old certificate is left"
        );
        assert_eq!(replaced(None, "cert", "ours", data).type_, None);
    }
}
