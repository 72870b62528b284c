//! Reads the facts from the cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use roadstead_api::config::Config;
use roadstead_api::install::owned;
use roadstead_api::rights::Process;
use roadstead_kubeio::write;
use roadstead_serve::config;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Objects read with one request.
const PAGE: u32 = 500;
/// Limit: pages read of one kind, 10,000 objects. Checks of a kind with more are unknown, because an object that was not read
/// would seem to be missing. Of Workloads, which no other object names, the first ones are checked.
const PAGES_MAX: usize = 20;
const WORKLOAD: &str = "Workload";
const KUEUE: &str = "kueue.x-k8s.io";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In all namespaces, or cluster-scoped.
    Everywhere,
    /// In the namespace of the process.
    Own,
}

pub(super) const KINDS: [(&str, &str, &str, Place); 22] = [
    ("apps", "v1", "Deployment", Place::Everywhere),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        Place::Everywhere,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        Place::Everywhere,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        Place::Everywhere,
    ),
    ("apiregistration.k8s.io", "v1", "APIService", Place::Everywhere),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        Place::Everywhere,
    ),
    ("", "v1", "Namespace", Place::Everywhere),
    ("", "v1", "Node", Place::Everywhere),
    ("", "v1", "Service", Place::Own),
    ("discovery.k8s.io", "v1", "EndpointSlice", Place::Own),
    ("", "v1", "Secret", Place::Own),
    ("", "v1", "ConfigMap", Place::Own),
    ("", "v1", "ServiceAccount", Place::Own),
    ("coordination.k8s.io", "v1", "Lease", Place::Own),
    (KUEUE, "v1beta2", "ClusterQueue", Place::Everywhere),
    (KUEUE, "v1beta2", "LocalQueue", Place::Everywhere),
    (KUEUE, "v1beta2", "ResourceFlavor", Place::Everywhere),
    (KUEUE, "v1beta2", "AdmissionCheck", Place::Everywhere),
    (KUEUE, "v1beta2", "MultiKueueCluster", Place::Everywhere),
    (KUEUE, "v1beta2", "MultiKueueConfig", Place::Everywhere),
    (KUEUE, "v1beta2", "ProvisioningRequestConfig", Place::Everywhere),
    (KUEUE, "v1beta2", WORKLOAD, Place::Everywhere),
];

/// Why a kind could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread(pub(super) String);

#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) namespace: String,
    /// The clock of this machine.
    pub(super) now: Timestamp,
    /// The clock of the API server, if known.
    pub(super) server_now: Option<Timestamp>,
    /// Version of Kubernetes, such as `v1.36.3`.
    pub(super) version: String,
    pub(super) objects: BTreeMap<&'static str, Result<Vec<Value>, Unread>>,
}

impl Facts {
    /// Reads everything.
    ///
    /// *Errors*: the API server does not answer at all.
    pub(super) async fn read(client: &Client, namespace: &str, now: Timestamp) -> Result<Self, Failure> {
        let version = client.apiserver_version().await;
        let version = version.map_err(|error| {
            Failure::request("the API server does not answer", &error).code(crate::failure::Code::Usage)
        })?;
        let mut objects = BTreeMap::new();
        for (group, version, kind, place) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = match place {
                Place::Everywhere => Api::all_with(client.clone(), &resource),
                Place::Own => Api::namespaced_with(client.clone(), namespace, &resource),
            };
            let listed = read_all(&api, kind, &resource.plural).await;
            objects.insert(kind, listed);
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            now,
            server_now: server_now(client).await,
            version: version.git_version,
            objects,
        })
    }

    pub(super) fn all(&self, kind: &str) -> Result<&[Value], Unread> {
        match self.objects.get(kind) {
            Some(Ok(objects)) => Ok(objects),
            Some(Err(unread)) => Err(unread.clone()),
            None => Err(Unread(format!("{kind} is not read"))),
        }
    }

    pub(super) fn named(&self, kind: &str, name: &str) -> Result<Option<&Value>, Unread> {
        Ok(self
            .all(kind)?
            .iter()
            .find(|object| object["metadata"]["name"] == name))
    }

    /// The configuration of the process; the defaults if it is not readable, which a check of its own reports.
    pub(super) fn config(&self) -> Config {
        let read = || {
            let map = { self.all("ConfigMap").ok()?.iter() }.find(|map| owned::by(map).is_some())?;
            let text = map["data"]["config.yaml"].as_str()?;
            config::parse("config.yaml", text, &[], &self.namespace).ok()
        };
        read().unwrap_or_else(|| Config::without_file(&self.namespace))
    }

    /// The Deployment of the installation in this namespace.
    pub(super) fn deployment(&self) -> Result<Option<&Value>, Unread> {
        let here = |object: &&Value| {
            object["metadata"]["namespace"] == self.namespace.as_str() && owned::by(object).is_some()
        };
        Ok(self.all("Deployment")?.iter().find(here))
    }

    pub(super) fn process(&self) -> Option<Process> {
        let name = self.deployment().ok()??["metadata"]["name"].as_str()?.to_owned();
        Process::ALL.into_iter().find(|process| process.name() == name)
    }
}

/// All objects of a kind, page by page.
async fn read_all(api: &Api<DynamicObject>, kind: &str, plural: &str) -> Result<Vec<Value>, Unread> {
    let mut objects = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    for _ in 0..PAGES_MAX {
        let listed = match api.list(&page).await {
            Ok(listed) => listed,
            // Why: a kind that is not served has no objects; the definitions have a check of their own.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => {
                return Err(Unread(format!(
                    "{plural} cannot be listed: {}",
                    write::describe(&error)
                )));
            }
        };
        objects.extend({ listed.items.into_iter() }.filter_map(|object| serde_json::to_value(object).ok()));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(objects),
        }
    }
    if kind == WORKLOAD {
        return Ok(objects);
    }
    Err(Unread(format!(
        "there are more than {} {plural}, which is more than this command reads",
        objects.len()
    )))
}

/// The API server's clock: it dates its answer to a review of our own identity.
async fn server_now(client: &Client) -> Option<Timestamp> {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = kube::core::Request::new("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let body = serde_json::to_vec(&question).ok()?;
    let request = request.create(&kube::api::PostParams::default(), body).ok()?;
    let answer: Value = client.request(request).await.ok()?;
    answer["metadata"]["creationTimestamp"].as_str()?.parse().ok()
}
