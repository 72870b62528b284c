//! How the API server finds the conversion webhook: address and authority in the definitions of our kinds.
//!
//! Invariant: only `spec.conversion` is written, and only when it differs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
};
use kube::api::GetParams;
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::trouble::Troubles;
use roadstead_kubeio::write;
use roadstead_serve::webhook::CONVERT_PATH;
use serde::Deserialize;
use serde_json::{Value, json};

use super::registration::Reach;

/// The default port of a Service.
const HTTPS: i32 = 443;
/// The definitions of our kinds whose versions a webhook converts: a test holds them to [`roadstead_api::crd::all`].
///
/// Why not read from there: building all schemas takes more memory than anything else at the start of a process.
const CONVERTED: [&str; 5] = [
    "clusterqueues.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
];

/// The needed fields of a definition; the schemas are many times as large.
#[derive(Deserialize)]
struct Narrow {
    spec: NarrowSpec,
}

#[derive(Deserialize)]
struct NarrowSpec {
    conversion: Option<CustomResourceConversion>,
}

/// Puts address and authority into each definition that differs. Failures are logged once; returns whether there was none.
pub(super) async fn put_all(
    client: &Client,
    reach: &Reach,
    ca_bundle: Option<&str>,
    troubles: &Troubles<&'static str>,
) -> bool {
    let wanted = wanted(reach, ca_bundle);
    let mut all_done = true;
    for name in CONVERTED {
        if let Err(failure) = put(client, name, &wanted).await {
            all_done = false;
            if troubles.is_news(name, failure.text()) {
                tracing::warn!(definition = %name, "conversion webhook not registered: {failure}");
            }
        } else if troubles.ends(&name).is_some() {
            tracing::info!(definition = %name, "conversion webhook registered after all");
        }
    }
    all_done
}

/// The client settings by which the API server calls us for conversions.
fn wanted(reach: &Reach, ca_bundle: Option<&str>) -> WebhookClientConfig {
    let client = reach.client(CONVERT_PATH, ca_bundle);
    WebhookClientConfig {
        ca_bundle: client.ca_bundle,
        url: client.url,
        service: client.service.map(|service| ServiceReference {
            name: service.name,
            namespace: service.namespace,
            path: service.path,
            port: service.port,
        }),
    }
}

async fn get(client: &Client, name: &str) -> Result<Option<Narrow>, kube::Error> {
    let url = CustomResourceDefinition::url_path(&(), None);
    let request = Request::new(url).get(name, &GetParams::default());
    match client.request(request.map_err(kube::Error::BuildRequest)?).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

async fn put(client: &Client, name: &str, wanted: &WebhookClientConfig) -> Result<(), Failure> {
    let Some(found) = get(client, name).await? else {
        return Err(Failure::lasting(format!(
            "CustomResourceDefinition {name} does not exist; apply the definitions of this version (it is looked for again)"
        )));
    };
    if says(found.spec.conversion.as_ref(), wanted) {
        return Ok(());
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    match write::patch(&api, name, &patch(wanted)).await.stored()? {
        Some(_) => Ok(()),
        None => Err(Failure::passing(format!(
            "CustomResourceDefinition {name} was taken away"
        ))),
    }
}

/// Whether this webhook converts a definition already. Without an authority of ours, any authority is accepted.
fn says(conversion: Option<&CustomResourceConversion>, wanted: &WebhookClientConfig) -> bool {
    let Some(conversion) = conversion.filter(|conversion| conversion.strategy == "Webhook") else {
        return false;
    };
    let webhook = conversion.webhook.as_ref();
    let Some(found) = webhook.and_then(|webhook| webhook.client_config.as_ref()) else {
        return false;
    };
    let place = |config: &WebhookClientConfig| {
        let service = config.service.as_ref();
        let service = service.map(|s| {
            (
                s.namespace.clone(),
                s.name.clone(),
                s.path.clone(),
                s.port.unwrap_or(HTTPS),
            )
        });
        (config.url.clone(), service)
    };
    let trusted = wanted.ca_bundle.is_none() || found.ca_bundle == wanted.ca_bundle;
    trusted && place(found) == place(wanted)
}

/// A JSON merge patch: unwanted fields are set to null, so that a URL replaces a Service.
fn patch(wanted: &WebhookClientConfig) -> Value {
    let mut client = json!({ "url": wanted.url, "service": wanted.service });
    if let (Some(ca_bundle), Some(client)) = (&wanted.ca_bundle, client.as_object_mut()) {
        client.insert("caBundle".to_owned(), json!(ca_bundle));
    }
    json!({"spec": {"conversion": {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    }}})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::ResourceExt as _;

    use super::*;

    fn by_service() -> Reach {
        Reach::Service {
            name: "kueue-webhook-service".to_owned(),
            namespace: "kueue-system".to_owned(),
        }
    }

    fn converted(config: &WebhookClientConfig) -> CustomResourceConversion {
        serde_json::from_value(patch(config)["spec"]["conversion"].clone()).unwrap()
    }

    #[test]
    fn what_is_written_is_recognised_and_anything_else_is_not() {
        let url = Reach::Url("https://127.0.0.1:9443/".to_owned());
        let ours = wanted(&url, Some("ca"));
        assert_eq!(ours.url.as_deref(), Some("https://127.0.0.1:9443/convert"));
        assert!(says(Some(&converted(&ours)), &ours));
        assert!(!says(None, &ours));
        let other = [
            wanted(&url, Some("other")),
            wanted(&by_service(), Some("ca")),
            wanted(&Reach::Url("https://127.0.0.1:1".to_owned()), Some("ca")),
        ];
        for other in other {
            assert!(!says(Some(&converted(&other)), &ours), "{other:?}");
        }
        let mut none = converted(&ours);
        none.strategy = "None".to_owned();
        assert!(!says(Some(&none), &ours));
    }

    #[test]
    fn a_service_without_port_is_reached_at_443_and_a_foreign_authority_stays() {
        let ours = wanted(&by_service(), None);
        let mut found = wanted(&by_service(), Some("theirs"));
        if let Some(service) = &mut found.service {
            service.port = None;
        }
        assert!(says(Some(&converted(&found)), &ours));
        assert!(
            patch(&ours)["spec"]["conversion"]["webhook"]["clientConfig"]
                .get("caBundle")
                .is_none()
        );
    }

    /// Spec: api API-1.
    #[test]
    fn five_kinds_are_converted() {
        let by_webhook = |definition: &CustomResourceDefinition| {
            let conversion = definition.spec.conversion.as_ref();
            conversion.is_some_and(|conversion| conversion.strategy == "Webhook")
        };
        let all = roadstead_api::crd::all().into_iter().filter(by_webhook);
        let names: BTreeSet<String> = all.map(|definition| definition.name_any()).collect();
        assert_eq!(names, CONVERTED.map(str::to_owned).into());
    }
}
