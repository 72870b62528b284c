//! Certificates of the webhook server: made here, kept in a Secret, renewed in time, and known to the API server.
//!
//! Invariant: the API server trusts a new authority before a certificate of it is served, because the bundle that is
//! registered always holds both the new and the old one.

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
use roadstead_api::visibility::SERVICE as VISIBILITY_SERVICE;
use roadstead_jobs::JobKind;
use roadstead_kubeio::write::{self, Written};
use roadstead_serve::health::Condition;
use roadstead_serve::tls::{
    Bundle, CertSlot, Lifetimes, Rotation, issue, plan_rotation, renew, service_names,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::registration::{Reach, Registration};
use crate::caches::api_resource;
use crate::clock::Clock;

/// How often certificates and registrations are looked at.
const LOOK: Duration = Duration::from_mins(1);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Pause between attempts to see our own webhook answer.
const PROBE: Duration = Duration::from_millis(50);
/// Attempts to see our own webhook answer before saying why it does not.
const PROBES_MAX: u32 = 200;
/// Who writes the configurations, in server-side apply.
const MANAGER: &str = "roadstead";

/// See the module.
pub(crate) struct Certificates {
    pub(crate) client: Client,
    pub(crate) config: Arc<Config>,
    pub(crate) kinds: Vec<&'static dyn JobKind>,
    pub(crate) slot: Arc<CertSlot>,
    pub(crate) ready: Condition,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) clock: Clock,
}

impl Certificates {
    /// Keeps certificates and registrations in order until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = async {
            let mut registered: Option<String> = None;
            loop {
                match self.once(&mut registered).await {
                    Ok(()) => {
                        self.ready.ready();
                        tokio::time::sleep(LOOK).await;
                    }
                    Err(why) => {
                        tracing::warn!("webhooks are not ready: {why}");
                        self.ready.not_ready(why);
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    async fn once(&self, registered: &mut Option<String>) -> Result<(), String> {
        let names = self.names()?;
        let bundle = self.bundle(&names).await?;
        let authorities = bundle.ca_bundle();
        if registered.as_ref() != Some(&authorities) {
            self.register(&authorities).await?;
        }
        let key = bundle.certified_key().map_err(|error| error.to_string())?;
        self.slot.fill(key);
        if registered.as_ref() != Some(&authorities) {
            self.see_it_answer().await?;
            *registered = Some(authorities);
        }
        Ok(())
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

    fn names(&self) -> Result<Vec<String>, String> {
        let mut names = service_names(VISIBILITY_SERVICE, &self.config.namespace);
        names.extend(self.webhook_names()?);
        Ok(names)
    }

    fn webhook_names(&self) -> Result<Vec<String>, String> {
        match self.reach() {
            Reach::Service { name, namespace } => Ok(service_names(&name, &namespace)),
            Reach::Url(url) => {
                let uri: http::Uri = url
                    .parse()
                    .map_err(|_invalid| format!("webhook.url {url} is not a URL"))?;
                let host = uri
                    .host()
                    .ok_or_else(|| format!("webhook.url {url} names no host"))?;
                Ok(vec![host.trim_matches(['[', ']']).to_owned()])
            }
        }
    }

    /// The bundle of the Secret, renewed when it is due; a new one when there is none or it is damaged.
    async fn bundle(&self, names: &[String]) -> Result<Bundle, String> {
        let name = &self.config.cert_management.webhook_secret_name;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.config.namespace);
        let stored = api.get_opt(name).await.map_err(|error| write::describe(&error))?;
        let now = (self.clock)();
        let old = stored.as_ref().and_then(|secret| {
            let data = secret.data.clone().unwrap_or_default();
            let data: BTreeMap<String, Vec<u8>> =
                data.into_iter().map(|(key, value)| (key, value.0)).collect();
            Bundle::from_secret(&data).ok()
        });
        let rotation = old
            .as_ref()
            .map_or(Rotation::RenewAll, |old| plan_rotation(now, old, names));
        let fresh = match &old {
            Some(old) if rotation == Rotation::Keep => return Ok(old.clone()),
            Some(old) => renew(rotation, now, old, names, &self.lifetimes),
            None => issue(now, names, &self.lifetimes),
        };
        let fresh = fresh.map_err(|error| error.to_string())?;
        tracing::info!(secret = %format!("{}/{name}", self.config.namespace), ?rotation, "new webhook certificate");
        let data = fresh
            .to_secret()
            .into_iter()
            .map(|(key, value)| (key, ByteString(value)))
            .collect();
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(self.config.namespace.clone()),
                resource_version: stored.as_ref().and_then(|s| s.metadata.resource_version.clone()),
                ..stored.map(|s| s.metadata).unwrap_or_default()
            },
            data: Some(data),
            ..Secret::default()
        };
        let written = if secret.metadata.resource_version.is_some() {
            api.replace(name, &PostParams::default(), &secret).await
        } else {
            api.create(&PostParams::default(), &secret).await
        };
        // Why the failure counts: a certificate that only we know would be another one after a restart, and two replicas
        // would serve two authorities of which one is registered.
        written.map(|_| fresh).map_err(|error| {
            format!(
                "storing Secret {}/{name} failed: {}",
                self.config.namespace,
                write::describe(&error)
            )
        })
    }

    async fn register(&self, ca_bundle: &str) -> Result<(), String> {
        if !self.config.roadstead.webhook.manage_configurations {
            return Ok(());
        }
        let user = self.own_user().await;
        let reach = self.reach();
        let registration = Registration {
            kinds: &self.kinds,
            reach: &reach,
            ca_bundle,
            namespace: &self.config.namespace,
            own_user: user.as_deref(),
        };
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        done(write::apply(&mutating, &registration.mutating(), MANAGER).await)?;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        done(write::apply(&validating, &registration.validating(), MANAGER).await)
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

    /// Creates a job in dry-run until it comes back held: the API server needs a moment to take a registration in.
    async fn see_it_answer(&self) -> Result<(), String> {
        let kind = self.kinds.iter().find(|kind| kind.gvk().group == "batch");
        let (Some(kind), true) = (kind, self.config.roadstead.webhook.manage_configurations) else {
            return Ok(());
        };
        let job: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "generateName": "roadstead-probe-", "labels": { labels::QUEUE_NAME: "roadstead-probe" } },
            "spec": { "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "probe", "image": "probe" }] } } },
        }))
        .map_err(|error| error.to_string())?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &api_resource(*kind));
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let mut last = String::new();
        for _ in 0..PROBES_MAX {
            match api.create(&params, &job).await {
                Ok(answer) if answer.data.pointer("/spec/suspend") == Some(&json!(true)) => return Ok(()),
                Ok(_) => "the API server does not call them yet".clone_into(&mut last),
                // Why: without the right to create jobs this cannot be seen; the registration itself has succeeded.
                Err(kube::Error::Api(status)) if status.code == 403 => return Ok(()),
                Err(error) => last = write::describe(&error),
            }
            tokio::time::sleep(PROBE).await;
        }
        Err(last)
    }
}

fn done<K>(answer: Written<K>) -> Result<(), String> {
    match answer {
        Written::Done(_) => Ok(()),
        Written::Gone | Written::Conflict | Written::AlreadyExists => {
            Err("the registration was taken away".into())
        }
        Written::Refused(why) | Written::Unclear(why) => {
            Err(format!("registering the webhooks failed: {why}"))
        }
    }
}
