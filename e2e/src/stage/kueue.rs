//! Kueue in a cluster of the stage: its controller as a process, its definitions and webhooks from its own manifest.
//!
//! The user provides both, or they are built from Kueue's published module ([`Kueue::built`]). In a pod, Kueue makes its
//! certificate and puts it into a Secret, the kubelet mounts that into the pod, and Kueue writes its authority into the webhook
//! configurations. Here the harness acts as the kubelet ([`mount`]), and the Service of the webhooks is a name for this machine,
//! so the API server expects the certificate that Kueue has made.
//!
//! Invariant: it listens on loopback only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::objects::apply_named;
use super::{Error, PATIENCE, POLL, SYSTEM_NAMESPACE, controller, merge, system};
use crate::Progress;
use crate::binaries::Program;

/// The Service that its webhook configurations name.
const WEBHOOK_SERVICE: &str = "kueue-webhook-service";
/// The Secret with its certificate.
const CERTIFICATE: &str = "kueue-webhook-server-cert";
/// The prefix that its release adds to the names in its generated manifests.
const PREFIX: &str = "kueue";
/// The same Service as its generated manifests name it.
const WEBHOOK_SERVICE_BARE: &str = "webhook-service";
/// Definitions whose versions it converts.
const CONVERTED: [&str; 5] = [
    "clusterqueues.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
];
/// The kinds of a manifest that are installed; its Deployment, accounts and roles are not.
const INSTALLED: [&str; 3] = [
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];
/// Requests per second that its client may send: those of its release, not those of its code.
const CLIENT_QPS: u32 = 300;
/// Burst of the same client.
const CLIENT_BURST: u32 = 500;

/// The parts of Kueue that the stage needs.
#[derive(Debug)]
pub struct Kueue {
    controller: PathBuf,
    objects: Vec<Value>,
}

/// The files and ports of one of its processes.
#[derive(Debug)]
pub(super) struct Place {
    /// Its configuration file.
    pub(super) config: PathBuf,
    /// The directory from which it reads its certificate.
    pub(super) certificates: PathBuf,
    /// Ports of health, metrics and webhooks.
    pub(super) ports: [u16; 3],
}

impl Kueue {
    /// Reads the manifest of a release (`manifests.yaml`); `controller` is its program.
    ///
    /// *Errors*: a file cannot be read, or has nothing to install.
    pub fn read(controller: &Path, manifests: &Path) -> Result<Self, Error> {
        let doing = || format!("reading {}", manifests.display());
        let text = fs::read_to_string(manifests).map_err(system(doing()))?;
        let wrong = |why: String| system(doing())(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        // Why no budget: it protects against untrusted files, and definitions with pod templates exceed it.
        let options = serde_saphyr::options! { with_snippet: false, budget: None };
        let all: Vec<Value> = serde_saphyr::from_multiple_with_options(&text, options)
            .map_err(|error| wrong(error.to_string()))?;
        let installed = |object: &Value| INSTALLED.iter().any(|kind| object["kind"] == *kind);
        let objects: Vec<Value> = all.into_iter().filter(installed).collect();
        if objects.is_empty() {
            return Err(wrong("it defines no kinds".to_owned()));
        }
        let controller =
            fs::canonicalize(controller).map_err(system(format!("looking for {}", controller.display())))?;
        Ok(Self { controller, objects })
    }

    /// Kueue of the pinned module, as its release would install it; built if it was not built before.
    ///
    /// *Errors*: it cannot be built, or its manifests cannot be read.
    /// *Limits*: a first build takes minutes.
    pub async fn built(progress: &Progress) -> Result<Self, Error> {
        let binaries = controller::find_or_build(Program::Kueue, PREFIX, progress).await?;
        let objects = controller::objects(&binaries, Program::Kueue)?.into_iter();
        Ok(Self {
            controller: controller::path_of(&binaries, Program::Kueue)?.to_owned(),
            objects: objects.map(as_released).collect(),
        })
    }

    /// The program.
    pub(super) fn controller(&self) -> &Path {
        &self.controller
    }

    /// Installs definitions, webhook configurations and their Service, for a process that will listen on this port.
    pub(super) async fn install(
        &self,
        cluster: &str,
        client: &Client,
        webhook_port: u16,
    ) -> Result<(), Error> {
        let around = [
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CERTIFICATE, "namespace": SYSTEM_NAMESPACE},
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": WEBHOOK_SERVICE, "namespace": SYSTEM_NAMESPACE},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }),
        ];
        let theirs = self.objects.iter().map(|object| {
            let mut object = object.clone();
            lead_to(&mut object, webhook_port);
            object
        });
        for object in around.into_iter().chain(theirs) {
            apply_named(cluster, client, object).await?;
        }
        Ok(())
    }
}

/// Changes a generated object as its release does: names, the conversion webhook, and no webhook for its own pods.
fn as_released(mut object: Value) -> Value {
    name_service(&mut object);
    let metadata = &object["metadata"]["name"];
    let name = metadata.as_str().unwrap_or_default().to_owned();
    if CONVERTED.contains(&name.as_str()) {
        let service = json!({"namespace": SYSTEM_NAMESPACE, "name": WEBHOOK_SERVICE, "path": "/convert"});
        object["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "clientConfig": {"service": service}, "conversionReviewVersions": ["v1"],
        }});
    }
    if object.get("webhooks").is_some() {
        object["metadata"]["name"] = format!("{PREFIX}-{name}").into();
    }
    for webhook in object
        .get_mut("webhooks")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if webhook["rules"][0]["apiGroups"][0] != "kueue.x-k8s.io" {
            let system = json!(["kube-system", SYSTEM_NAMESPACE]);
            let key = "kubernetes.io/metadata.name";
            webhook["namespaceSelector"] = json!({"matchExpressions": [
                {"key": key, "operator": "NotIn", "values": system},
            ]});
        }
    }
    object
}

/// Sets the release's name and namespace in every reference to its webhook Service.
fn name_service(object: &mut Value) {
    match object {
        Value::Object(fields) => {
            for (field, value) in fields {
                if field == "service" && value["name"] == WEBHOOK_SERVICE_BARE {
                    value["name"] = WEBHOOK_SERVICE.into();
                    value["namespace"] = SYSTEM_NAMESPACE.into();
                } else {
                    name_service(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(name_service),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sets the port of every reference to the webhook Service in an object.
fn lead_to(object: &mut Value, port: u16) {
    match object {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "service" && value["name"] == WEBHOOK_SERVICE {
                    value["port"] = port.into();
                } else {
                    lead_to(value, port);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| lead_to(item, port)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Its `Configuration`: the release's, for jobs and pods, on loopback. JSON is YAML.
pub(super) fn render_config(place: &Place, over: &Value) -> String {
    let [health, metrics, webhook] = place.ports;
    let mut configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": SYSTEM_NAMESPACE,
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "metrics": {"bindAddress": format!("127.0.0.1:{metrics}")},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": place.certificates},
        "leaderElection": {"leaderElect": false},
        "internalCertManagement": {
            "enable": true, "webhookServiceName": WEBHOOK_SERVICE, "webhookSecretName": CERTIFICATE,
        },
        "clientConnection": {"qps": CLIENT_QPS, "burst": CLIENT_BURST},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "multiKueue": {"gcInterval": "10s", "workerLostTimeout": "15m"},
        // Why off: it would write its certificate to the root of the file system.
        "featureGates": {"VisibilityOnDemand": false},
    });
    merge(&mut configuration, over);
    format!("{configuration:#}\n")
}

/// Waits until a starting Kueue has made its certificate, and writes it to the directory from which Kueue reads it.
pub(super) async fn mount(cluster: &str, client: &Client, into: &Path) -> Result<(), Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let started = Instant::now();
    loop {
        let found = secrets.get_opt(CERTIFICATE).await;
        let data = found.ok().flatten().and_then(|secret| secret.data);
        if let Some(data) = data.filter(|data| data.contains_key("tls.crt")) {
            fs::create_dir_all(into).map_err(system(format!("creating {}", into.display())))?;
            for (name, bytes) in data {
                let path = into.join(name);
                fs::write(&path, bytes.0).map_err(system(format!("writing {}", path.display())))?;
            }
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::NotReady {
                what: format!("Kueue of {cluster} has made no certificate"),
                waited: PATIENCE,
                detail: String::new(),
            });
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_manifest_is_named_as_in_a_release() {
        let service = json!({"name": WEBHOOK_SERVICE_BARE, "namespace": "system", "path": "/mutate"});
        let hook =
            |group: &str| json!({"clientConfig": {"service": service}, "rules": [{"apiGroups": [group]}]});
        let hooks = as_released(json!({
            "kind": "MutatingWebhookConfiguration", "metadata": {"name": "mutating-webhook-configuration"},
            "webhooks": [hook("batch"), hook("kueue.x-k8s.io")],
        }));
        assert_eq!(hooks["metadata"]["name"], "kueue-mutating-webhook-configuration");
        let [of_jobs, of_queues] = [&hooks["webhooks"][0], &hooks["webhooks"][1]];
        assert_eq!(of_jobs["clientConfig"]["service"]["name"], WEBHOOK_SERVICE);
        assert!(of_jobs["namespaceSelector"].is_object() && of_queues["namespaceSelector"].is_null());
        let definition = as_released(json!({"metadata": {"name": CONVERTED[0]}, "spec": {}}));
        assert_eq!(definition["spec"]["conversion"]["strategy"], "Webhook");
    }

    #[test]
    fn every_webhook_of_the_manifest_leads_to_the_port() {
        let service = || json!({"service": {"name": WEBHOOK_SERVICE, "namespace": SYSTEM_NAMESPACE, "path": "/convert"}});
        let mut object = json!({
            "webhooks": [{"clientConfig": service()}],
            "spec": {"conversion": {"webhook": {"clientConfig": service()}}, "service": {"name": "another"}},
        });
        lead_to(&mut object, 7);
        assert_eq!(object["webhooks"][0]["clientConfig"]["service"]["port"], 7);
        assert_eq!(
            object["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"],
            7
        );
        assert_eq!(object["spec"]["service"], json!({"name": "another"}));
    }
}
