//! The cluster of an installation: reads existing objects, and writes.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use roadstead_api::install::objects::may_be_of_others;
use roadstead_api::install::owned;
use roadstead_api::rights::Process;
use roadstead_kubeio::connect::Chosen;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::LOOK_EVERY;
use super::plan::{Step, refuse_namespace, refuse_newer, refuse_others, refuse_webhooks};
use crate::access;
use crate::cluster::account::{State, holds};
use crate::engines;
use crate::failure::{Code, Failure};
use crate::objects::{api_of, kind_of};

/// A cluster, and the namespace of the process in it.
pub(super) struct Site {
    pub(super) client: Client,
    pub(super) namespace: String,
}

/// Kind and name, as kubectl writes them.
pub(super) fn title(object: &Value) -> String {
    let resource = kind_of(object);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&object["metadata"]["name"]);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{}/{namespace}/{name}", resource.kind.to_lowercase()),
        None => format!("{}/{name}", resource.kind.to_lowercase()),
    }
}

impl Site {
    pub(super) async fn open(chosen: Chosen<'_>, namespace: &str) -> Result<Self, Failure> {
        Ok(Self {
            client: access::local(chosen, "--kubeconfig").await?,
            namespace: namespace.to_owned(),
        })
    }

    /// Refuses if Kueue or another installation runs here, or has left webhooks that would refuse our pods.
    pub(super) async fn nothing_is_in_the_way(&self, process: Process) -> Result<(), Failure> {
        refuse_others(process, &self.namespace, &engines::found(&self.client).await?)?;
        let mut configurations = Vec::new();
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let kind = kind_of(&json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}));
            configurations.extend(self.labelled(&[kind], "").await?);
        }
        refuse_webhooks(&self.namespace, &configurations)
    }

    /// The existing object of that name; `None` if there is none or the kind is not served.
    pub(super) async fn stands(&self, object: &Value) -> Result<Option<Value>, Failure> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match api_of(&self.client, object).get_opt(name).await {
            Ok(found) => Ok(found.and_then(|found| serde_json::to_value(found).ok())),
            // Why: for a kind that is not served, the API server's answer does not name the object.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(Failure::request(
                format!("reading {} failed", title(object)),
                &error,
            )),
        }
    }

    /// Compares every object with the existing one.
    ///
    /// *Errors*: an existing object must not be overwritten, or a request failed.
    pub(super) async fn compare(&self, objects: Vec<Value>) -> Result<Vec<Step>, Failure> {
        let mut steps = Vec::with_capacity(objects.len());
        for object in objects {
            steps.push(self.step(object).await?);
        }
        Ok(steps)
    }

    async fn step(&self, object: Value) -> Result<Step, Failure> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let stands = self.stands(&object).await?;
        let is_others = stands.as_ref().is_some_and(|found| owned::by(found).is_none());
        let mut left = None;
        match (object["kind"].as_str(), &stands) {
            (Some("Namespace"), Some(found)) => {
                refuse_namespace(&object, found)?;
                left = is_others.then_some("it was there before");
            }
            (Some("CustomResourceDefinition"), Some(found)) => {
                refuse_newer(name, found)?;
                left = (is_others && may_be_of_others(name)).then_some("others have installed it");
            }
            (Some("ServiceMonitor"), None) if !self.serves_monitors().await? => {
                left = Some("this cluster does not serve that kind");
            }
            _ => {}
        }
        let state = match &stands {
            None => State::Missing,
            Some(found) if holds(found, &object) => State::Same,
            Some(_) => State::Different,
        };
        Ok(Step {
            title: title(&object),
            object,
            state,
            left,
        })
    }

    async fn serves_monitors(&self) -> Result<bool, Failure> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let found = definitions.get_opt("servicemonitors.monitoring.coreos.com").await;
        let found = found
            .map_err(|error| Failure::request("reading the definition of ServiceMonitors failed", &error))?;
        Ok(found.is_some())
    }

    /// Waits until a kind that was just defined is served.
    pub(super) async fn wait_served(&self, step: &Step, limit: Duration) -> Result<(), Failure> {
        let started = Instant::now();
        while started.elapsed() < limit {
            let stands = self.stands(&step.object).await?.unwrap_or_default();
            let conditions = stands["status"]["conditions"].as_array().into_iter().flatten();
            if { conditions }.any(|each| each["type"] == "Established" && each["status"] == "True") {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
        Err(late(
            &step.title,
            "the API server does not serve that kind yet",
            limit,
        ))
    }

    /// Waits until every replica runs the present template and is ready.
    pub(super) async fn wait_ready(&self, process: Process, limit: Duration) -> Result<(), Failure> {
        let name = process.name();
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let started = Instant::now();
        let mut seen = "it is not there".to_owned();
        while started.elapsed() < limit {
            let found = deployments.get_opt(name).await;
            let found = found
                .map_err(|error| Failure::request(format!("reading deployment/{name} failed"), &error))?;
            if let Some(found) = found {
                let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                let status = found.status.unwrap_or_default();
                let is_current = status.observed_generation == found.metadata.generation;
                let (updated, ready) = (
                    status.updated_replicas.unwrap_or(0),
                    status.ready_replicas.unwrap_or(0),
                );
                if is_current && updated >= wanted && ready >= wanted {
                    return Ok(());
                }
                seen = format!("{ready} of {wanted} replicas are ready");
            }
            sleep(LOOK_EVERY).await;
        }
        Err(late(&format!("deployment/{name}"), &seen, limit))
    }
}

/// The failure when something did not happen in time.
pub(super) fn late(what: &str, seen: &str, limit: Duration) -> Failure {
    Failure::new(
        format!("{what} is not ready after {} s", limit.as_secs()),
        seen,
        "look at its events: kubectl get events -A --sort-by=.lastTimestamp; then run the same command again",
    )
    .code(Code::TimedOut)
}
