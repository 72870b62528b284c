//! Objects that are applied to the clusters of a stage.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::{Api, Client, ResourceExt};
use roadstead_api::constants::controllers::{CLASS_CHECK_CAPACITY, MULTIKUEUE, PROVISIONING_REQUEST};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{CAPACITY, Error, PATIENCE, POLL, Part, Queue, SYSTEM_NAMESPACE};

/// Field manager of everything that the harness applies.
const FIELD_MANAGER: &str = "roadstead-harness";
/// The one flavor of all quotas.
const FLAVOR: &str = "default";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// Objects that all clusters of a stage have in common.
#[derive(Debug)]
pub(super) struct Clusters {
    /// Name of the MultiKueueConfig with the workers of the manager's queues, and of its AdmissionCheck.
    pub(super) config: String,
    pub(super) namespaces: Vec<String>,
    pub(super) queues: Vec<Queue>,
    pub(super) priorities: Vec<(String, i32)>,
}

impl Clusters {
    /// One namespace and one queue.
    pub(super) fn one(config: &str, namespace: &str, queue: Queue) -> Self {
        Self {
            config: config.to_owned(),
            namespaces: vec![namespace.to_owned()],
            queues: vec![queue],
            priorities: Vec::new(),
        }
    }

    /// Applies namespaces, flavor, checks, queues and priorities.
    pub(super) async fn apply_to(&self, cluster: &str, part: Part, client: &Client) -> Result<(), Error> {
        let mut objects =
            vec![json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}})];
        let namespaces = self.namespaces.iter().map(|name| namespace(name));
        objects.extend(namespaces);
        objects.extend(self.priorities.iter().map(|(name, value)| {
            json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
        }));
        match part {
            Part::Manager => {
                objects.push(check(&self.config, MULTIKUEUE, "MultiKueueConfig", &self.config));
            }
            Part::Worker if self.queues.iter().any(|queue| queue.asks_capacity) => objects.extend([
                json!({
                    "apiVersion": KUEUE,
                    "kind": "ProvisioningRequestConfig",
                    "metadata": {"name": CAPACITY},
                    "spec": {"provisioningClassName": CLASS_CHECK_CAPACITY},
                }),
                check(
                    CAPACITY,
                    PROVISIONING_REQUEST,
                    "ProvisioningRequestConfig",
                    CAPACITY,
                ),
            ]),
            Part::Worker => {}
        }
        for queue in &self.queues {
            objects.push(cluster_queue(queue, cluster, part, &self.config));
            objects.extend(self.namespaces.iter().map(|namespace| {
                json!({
                    "apiVersion": KUEUE,
                    "kind": "LocalQueue",
                    "metadata": {"name": queue.name, "namespace": namespace},
                    "spec": {"clusterQueue": queue.name},
                })
            }));
        }
        for object in objects {
            apply_named(cluster, client, object).await?;
        }
        Ok(())
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn check(name: &str, controller: &str, kind: &str, parameters: &str) -> Value {
    json!({
        "apiVersion": KUEUE,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {
            "controllerName": controller,
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": kind, "name": parameters},
        },
    })
}

fn cluster_queue(queue: &Queue, cluster: &str, part: Part, config: &str) -> Value {
    let covered: BTreeSet<&String> = queue.quota.values().flat_map(|quota| quota.keys()).collect();
    let here = queue.quota.get(cluster);
    let amount = |resource: &str| {
        here.and_then(|quota| quota.get(resource))
            .map_or("0", String::as_str)
    };
    let quotas: Vec<Value> = covered
        .iter()
        .map(|resource| json!({"name": resource, "nominalQuota": amount(resource)}))
        .collect();
    let mut object = json!({
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": queue.name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": covered, "flavors": [{"name": FLAVOR, "resources": quotas}]}],
        },
    });
    let check = match part {
        Part::Manager => Some(config),
        Part::Worker => queue.asks_capacity.then_some(CAPACITY),
    };
    if let Some(check) = check {
        object["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": check}]});
    }
    object
}

/// Creates the namespace of the processes.
pub(super) async fn make_own_namespace(cluster: &str, client: &Client) -> Result<(), Error> {
    apply_named(cluster, client, namespace(SYSTEM_NAMESPACE)).await
}

/// Creates that namespace and the definitions of all kinds, and waits until they are served.
pub(super) async fn install_definitions(cluster: &str, client: &Client) -> Result<(), Error> {
    make_own_namespace(cluster, client).await?;
    define(cluster, client, &roadstead_api::crd::all()).await
}

/// Creates the definition of ProvisioningRequests, and waits until it is served.
pub(super) async fn install_provisioning(cluster: &str, client: &Client) -> Result<(), Error> {
    let all = roadstead_api::crd::all().into_iter();
    let asked: Vec<_> = { all }
        .filter(|definition| definition.spec.names.kind == "ProvisioningRequest")
        .collect();
    define(cluster, client, &asked).await
}

/// Creates definitions of kinds, and waits until they are served.
pub(super) async fn define(
    cluster: &str,
    client: &Client,
    wanted: &[CustomResourceDefinition],
) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    for definition in wanted {
        let name = definition.name_any();
        api.patch(&name, &params, &Patch::Apply(definition))
            .await
            .map_err(|source| apply_error(cluster, format!("CustomResourceDefinition {name}"), source))?;
    }
    let started = Instant::now();
    loop {
        let listed = api
            .list(&ListParams::default())
            .await
            .map_err(|source| apply_error(cluster, "CustomResourceDefinitions".to_owned(), source))?;
        let is_wanted = |name: &str| wanted.iter().any(|definition| definition.name_any() == name);
        let established = listed
            .iter()
            .filter(|definition| is_wanted(&definition.name_any()) && is_established(definition))
            .count();
        if established >= wanted.len() {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::NotReady {
                what: format!(
                    "{cluster} serves only {established} of {} definitions",
                    wanted.len()
                ),
                waited: PATIENCE,
                detail: String::new(),
            });
        }
        sleep(POLL).await;
    }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Waits until the condition `Active` of a cluster-scoped object of `kueue.x-k8s.io` is True.
pub(super) async fn wait_active(client: &Client, kind: &str, name: &str) -> Result<(), Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(KUEUE, kind));
    let started = Instant::now();
    loop {
        let found = api.get_opt(name).await;
        let seen = found.ok().flatten().map(|object| object.data).unwrap_or_default();
        let conditions = seen["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let active = conditions.iter().find(|condition| condition["type"] == "Active");
        if active.is_some_and(|condition| condition["status"] == "True") {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::NotReady {
                what: format!("{kind} {name} is not Active"),
                waited: PATIENCE,
                detail: active
                    .map(|condition| condition["message"].to_string())
                    .unwrap_or_default(),
            });
        }
        sleep(POLL).await;
    }
}

/// Applies one object (server-side, as the harness) and returns the stored object.
///
/// While the kind is not served or a webhook does not answer, it tries again for a minute.
pub async fn apply(client: &Client, object: Value) -> Result<DynamicObject, kube::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (name, namespace) = (
        text(&object["metadata"]["name"]),
        &object["metadata"]["namespace"],
    );
    let resource = resource(&version, &kind);
    let api: Api<DynamicObject> = match namespace.as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let started = Instant::now();
    loop {
        match api.patch(&name, &params, &Patch::Apply(&object)).await {
            Err(kube::Error::Api(status))
                if (status.code == 404 || status.code >= 500) && started.elapsed() < PATIENCE =>
            {
                sleep(POLL).await;
            }
            result => return result,
        }
    }
}

pub(super) async fn apply_named(cluster: &str, client: &Client, object: Value) -> Result<(), Error> {
    let what = format!("{} {}", object["kind"], object["metadata"]["name"]).replace('"', "");
    apply(client, object)
        .await
        .map(drop)
        .map_err(|source| apply_error(cluster, what, source))
}

pub(super) fn apply_error(cluster: &str, object: String, source: kube::Error) -> Error {
    Error::Apply {
        object,
        cluster: cluster.to_owned(),
        source: Box::new(source),
    }
}

fn resource(version: &str, kind: &str) -> ApiResource {
    let types = TypeMeta {
        api_version: version.to_owned(),
        kind: kind.to_owned(),
    };
    let unknown = || GroupVersionKind::gvk("", version, kind);
    ApiResource::from_gvk(&GroupVersionKind::try_from(types).unwrap_or_else(|_| unknown()))
}
