//! `roadstead uninstall`: removes everything with the label of the installation, and proves that nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::config::Config;
use roadstead_api::constants::labels;
use roadstead_api::constants::names::{MUTATING_WEBHOOKS, REGISTRAR, VALIDATING_WEBHOOKS};
use roadstead_api::install::{Values, manifests, objects::definitions, owned};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_api::rights::Process;
use roadstead_kubeio::connect::Chosen;
use roadstead_kubeio::write::{self, Written};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::LOOK_EVERY;
use super::cluster::{Site, late, title};
use crate::args::Uninstall;
use crate::engines::{self, Found};
use crate::failure::{Failure, done};
use crate::objects::kind_of;
use crate::output::{self, say};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Removal {
    process: &'static str,
    removed: Vec<String>,
    /// Kinds that were listed afterwards and had no object of the installation.
    verified: Vec<String>,
    /// What is still there on purpose.
    kept: Vec<String>,
    elapsed_seconds: f64,
}

/// Removes an installation.
///
/// *Errors*: worker clusters are still registered, a request failed, or objects are left after the time limit.
pub async fn run(args: &Uninstall) -> Result<(), Failure> {
    let started = Instant::now();
    let process = args.part.process();
    let chosen = Chosen {
        kubeconfig: args.kubeconfig.as_deref(),
        context: args.context.as_deref(),
    };
    let site = Site::open(chosen, &args.namespace).await?;
    if process == Process::Manager {
        refuse_registered(&site).await?;
    }
    let kinds = kinds(process, &args.namespace);
    let mut found = site.marked(&kinds, process.name()).await?;
    let made = site.made_by_process(process).await?;
    add(&mut found, made);
    if process == Process::Manager {
        let nodes = kind_of(&json!({"apiVersion": "v1", "kind": "Node"}));
        found.extend(site.labelled(&[nodes], labels::VIRTUAL_NODE).await?);
    }
    let definitions = site.marked(&[definition()], owned::DEFINITIONS).await?;
    let data = site.data(&definitions).await?;
    say(&describe(args, &found, &definitions, &data));
    if process == Process::Worker {
        let workloads = kind_of(&json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}));
        let sent = site.labelled(&[workloads], labels::MULTIKUEUE_ORIGIN).await?;
        { sent_by_managers(&sent) }
            .iter()
            .for_each(|warning| say(warning));
    }
    let removes_definitions = args.definitions && !definitions.is_empty();
    if found.is_empty() && !removes_definitions {
        say("nothing of this installation is here");
        return Ok(());
    }
    output::consent(args.yes, "do this?")?;

    let mut removal = Removal {
        process: process.name(),
        removed: Vec::new(),
        verified: Vec::new(),
        kept: Vec::new(),
        elapsed_seconds: 0.0,
    };
    in_order(&mut found);
    for object in found.iter().filter(|object| is_gathering(object)) {
        site.end_gathering(object).await?;
    }
    for object in &found {
        removal.removed.push(site.delete(object).await?);
        // Why: a running process would write its webhook configurations again.
        if object["kind"] == "Deployment" {
            site.pods_are_gone(process, args.timeout).await?;
        }
    }
    if args.definitions {
        site.release_data(&definitions).await?;
        for definition in &definitions {
            removal.removed.push(site.delete(definition).await?);
        }
    } else {
        removal.kept.extend(definitions.iter().map(title));
    }
    site.is_gone(&kinds, process.name(), args.timeout).await?;
    if args.definitions {
        site.is_gone(&[definition()], owned::DEFINITIONS, args.timeout)
            .await?;
    }
    removal
        .verified
        .extend(kinds.iter().map(|kind| kind.plural.clone()));
    removal.elapsed_seconds = started.elapsed().as_secs_f64();
    output::result(args.output, &removal, &removal.removed.join("\n"), || {
        let mut lines = vec![format!(
            "{} is gone: {} objects removed, nothing of it is left ({:.1} s)",
            removal.process,
            removal.removed.len(),
            removal.elapsed_seconds
        )];
        if !removal.kept.is_empty() {
            lines.push(format!(
                "  kept {} definitions with their objects; --definitions removes them too",
                removal.kept.len()
            ));
        }
        lines.join("\n")
    })
}

/// Adds the objects that are not there yet.
fn add(objects: &mut Vec<Value>, more: Vec<Value>) {
    for object in more {
        if objects.iter().all(|known| title(known) != title(&object)) {
            objects.push(object);
        }
    }
}

/// Whether a process has written the object, by the field manager of its server-side apply.
fn is_registered_by_us(object: &Value) -> bool {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    { entries }.any(|entry| entry["manager"] == REGISTRAR && entry["operation"] == "Apply")
}

fn definition() -> ApiResource {
    kind_of(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}))
}

/// The kinds of an installation's objects.
pub(super) fn kinds(process: Process, namespace: &str) -> Vec<ApiResource> {
    let objects = manifests(process, namespace, &Values::default()).unwrap_or_default();
    let named: BTreeMap<String, ApiResource> = { objects.iter() }
        .map(|object| {
            let kind = kind_of(object);
            (format!("{}/{}", kind.api_version, kind.kind), kind)
        })
        .collect();
    named.into_values().collect()
}

/// The process first, so that it creates nothing again; aggregating roles and the namespace last.
pub(super) fn in_order(objects: &mut [Value]) {
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some("Deployment") => 0,
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => 1,
        Some("Namespace") => 4,
        Some("ClusterRole") if is_gathering(object) => 3,
        Some(_) | None => 2,
    });
}

/// Whether an object is a role that aggregates the rules of other roles.
///
/// Why it matters: when those roles are deleted, the controller of aggregating roles writes this role again. It even creates a
/// role that was just deleted, without our label.
pub(super) fn is_gathering(object: &Value) -> bool {
    object["aggregationRule"].is_object()
}

async fn refuse_registered(site: &Site) -> Result<(), Failure> {
    let clusters: Api<MultiKueueCluster> = Api::all(site.client.clone());
    let registered = match clusters.list(&ListParams::default()).await {
        Ok(registered) => registered.items,
        // Why: without the definitions no cluster can be registered.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(Failure::request("listing the worker clusters failed", &error)),
    };
    let names: Vec<String> = registered.iter().map(kube::ResourceExt::name_any).collect();
    match names.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            format!("worker clusters are still registered: {}", names.join(", ")),
            "their accounts, and jobs that run there, would stay without a manager",
            format!("roadstead cluster leave {first} --kubeconfig {first}.kubeconfig"),
        )),
    }
}

fn describe(args: &Uninstall, found: &[Value], definitions: &[Value], data: &[String]) -> String {
    let mut lines = vec![format!("plan: take {} away", args.part.process().name())];
    lines.extend(found.iter().map(|object| match object["kind"].as_str() {
        Some("Namespace") => format!("  delete {} with everything in it", title(object)),
        Some(_) | None => format!("  delete {}", title(object)),
    }));
    for definition in definitions {
        let verb = if args.definitions { "delete" } else { "keep  " };
        lines.push(format!("  {verb} {}", title(definition)));
    }
    if args.definitions {
        lines.extend(data.iter().map(|data| format!("  LOST: {data}")));
    }
    lines.join("\n")
}

/// What the jobs of managers would miss without the process.
fn sent_by_managers(workloads: &[Value]) -> Option<String> {
    let origin = |workload: &Value| {
        workload["metadata"]["labels"][labels::MULTIKUEUE_ORIGIN]
            .as_str()
            .map(str::to_owned)
    };
    let origins: BTreeSet<String> = workloads.iter().filter_map(origin).collect();
    let origins: Vec<String> = origins.into_iter().collect();
    (!origins.is_empty()).then(|| {
        format!(
            "warning: {} Workloads of managers are here (multiKueue.origin {}): without this process their waiting jobs do not start, and \
             running ones are not stopped if their manager is lost; first take the cluster out of its federation, on the management \
             cluster: roadstead cluster leave NAME --kubeconfig FILE",
            workloads.len(),
            origins.join(", ")
        )
    })
}

impl Site {
    /// Objects with the label of an installation.
    pub(super) async fn marked(&self, kinds: &[ApiResource], name: &str) -> Result<Vec<Value>, Failure> {
        self.labelled(kinds, &format!("{}={name}", owned::LABEL)).await
    }

    pub(super) async fn labelled(
        &self,
        kinds: &[ApiResource],
        selector: &str,
    ) -> Result<Vec<Value>, Failure> {
        let ours = ListParams::default().labels(selector);
        let mut found = Vec::new();
        for kind in kinds {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), kind);
            let listed = match api.list(&ours).await {
                Ok(listed) => listed.items,
                // Why: a kind that is not served has no objects.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(error) => {
                    return Err(Failure::request(
                        format!("listing {} failed", kind.plural),
                        &error,
                    ));
                }
            };
            found.extend(listed.into_iter().filter_map(|mut object| {
                object.types = Some(kube::core::TypeMeta {
                    api_version: kind.api_version.clone(),
                    kind: kind.kind.clone(),
                });
                serde_json::to_value(object).ok()
            }));
        }
        Ok(found)
    }

    /// Objects that the process created while it ran, known by name. Without the process, these names may belong to Kueue: then
    /// only webhook configurations are returned that a process has written, if no engine runs that may use them.
    async fn made_by_process(&self, process: Process) -> Result<Vec<Value>, Failure> {
        let config = Config::without_file(&self.namespace);
        let admission = "admissionregistration.k8s.io/v1";
        let here = &self.namespace;
        let candidates = [
            json!({"apiVersion": admission, "kind": "MutatingWebhookConfiguration", "metadata": {"name": MUTATING_WEBHOOKS}}),
            json!({"apiVersion": admission, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": VALIDATING_WEBHOOKS}}),
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": config.cert_management.webhook_secret_name, "namespace": here},
            }),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": config.leader_election.resource_name, "namespace": here},
            }),
        ];
        let engines = engines::found(&self.client).await?;
        let is_installed = { engines.iter() }
            .any(|each| each.namespace == *here && each.installed.as_deref() == Some(process.name()));
        let is_unused = !engines.iter().any(Found::is_engine);
        let mut found = Vec::new();
        for candidate in candidates {
            let stands = self.stands(&candidate).await?;
            found.extend(stands.filter(|object| is_installed || (is_unused && is_registered_by_us(object))));
        }
        Ok(found)
    }

    /// The number of objects of each kind that would be deleted with its definition.
    async fn data(&self, wanted: &[Value]) -> Result<Vec<String>, Failure> {
        let mut data = Vec::new();
        for kind in self.kinds_of(wanted) {
            let count = self.objects(&kind).await?.len();
            if count > 0 {
                data.push(format!("{count} {}", kind.plural));
            }
        }
        Ok(data)
    }

    /// The kinds that these definitions define.
    fn kinds_of(&self, wanted: &[Value]) -> Vec<ApiResource> {
        let is_wanted = |name: &Value| wanted.iter().any(|each| each["metadata"]["name"] == *name);
        definitions(&self.namespace)
            .iter()
            .filter(|definition| is_wanted(&definition["metadata"]["name"]))
            .map(|definition| {
                let text = |pointer: &str| {
                    definition
                        .pointer(pointer)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };
                let version = format!("{}/{}", text("/spec/group"), text("/spec/versions/0/name"));
                kind_of(&json!({"apiVersion": version, "kind": text("/spec/names/kind")}))
            })
            .collect()
    }

    /// All objects of a kind; none if it is not served.
    async fn objects(&self, kind: &ApiResource) -> Result<Vec<DynamicObject>, Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), kind);
        match api.list(&ListParams::default()).await {
            Ok(listed) => Ok(listed.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(Failure::request(
                format!("listing {} failed", kind.plural),
                &error,
            )),
        }
    }

    /// Removes the finalizers from all objects of our kinds. Why: only the process removes them, and it is gone, so the
    /// definitions would stay for ever.
    async fn release_data(&self, wanted: &[Value]) -> Result<(), Failure> {
        for kind in self.kinds_of(wanted) {
            let held = self.objects(&kind).await?.into_iter();
            for object in held.filter(|object| !object.finalizers().is_empty()) {
                let api: Api<DynamicObject> = match object.namespace() {
                    Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &kind),
                    None => Api::all_with(self.client.clone(), &kind),
                };
                let free = json!({"metadata": {"finalizers": null}});
                let what = format!("releasing {}/{} failed", kind.plural, object.name_any());
                let answer = write::patch(&api, &object.name_any(), &free).await;
                if !matches!(answer, Written::Gone) {
                    done(&what, answer)?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn delete(&self, object: &Value) -> Result<String, Failure> {
        let title = title(object);
        let kind = kind_of(object);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let answer = write::delete(&api, name, object["metadata"]["uid"].as_str()).await;
        if !matches!(answer, Written::Gone) {
            done(&format!("deleting {title} failed"), answer)?;
        }
        Ok(title)
    }

    /// Removes the aggregation from a role, so that its controller leaves it alone.
    pub(super) async fn end_gathering(&self, role: &Value) -> Result<(), Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind_of(role));
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let answer = write::patch(&api, name, &json!({"aggregationRule": null})).await;
        if !matches!(answer, Written::Gone) {
            done(&format!("changing {} failed", title(role)), answer)?;
        }
        Ok(())
    }

    /// Waits until no pod of the process is left.
    async fn pods_are_gone(&self, process: Process, limit: Duration) -> Result<(), Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={}", process.name()));
        let started = Instant::now();
        loop {
            let left = pods.list(&ours).await;
            let left =
                left.map_err(|error| Failure::request("listing the pods of the process failed", &error))?;
            let Some(first) = left.items.first() else {
                return Ok(());
            };
            if started.elapsed() > limit {
                return Err(late(
                    "the end of the process",
                    &format!("still there: pod/{}", first.name_any()),
                    limit,
                ));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until no object of the installation is left.
    async fn is_gone(&self, kinds: &[ApiResource], name: &str, limit: Duration) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            let left = self.marked(kinds, name).await?;
            let Some(first) = left.first() else { return Ok(()) };
            if started.elapsed() > limit {
                return Err(late(
                    "the end of the installation",
                    &format!("still there: {}", title(first)),
                    limit,
                ));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_configurations_of_a_process_are_known_by_its_field_manager_alone() {
        let of = |manager: &str, operation: &str| {
            json!({"metadata": {"managedFields": [
                {"manager": "helm", "operation": "Update"}, {"manager": manager, "operation": operation},
            ]}})
        };
        assert!(is_registered_by_us(&of(REGISTRAR, "Apply")));
        assert!(!is_registered_by_us(&of("kueue", "Apply")));
        assert!(!is_registered_by_us(&json!({"metadata": {}})));
    }

    #[test]
    fn a_worker_with_jobs_of_a_manager_is_not_taken_away_without_a_word() {
        let of = |origin: &str| json!({"metadata": {"labels": {labels::MULTIKUEUE_ORIGIN: origin}}});
        assert_eq!(sent_by_managers(&[]), None);
        let warning = sent_by_managers(&[of("b"), of("a"), of("b")]).unwrap();
        assert!(
            warning.contains("3 Workloads") && warning.contains("origin a, b"),
            "{warning}"
        );
        assert!(warning.contains("roadstead cluster leave"), "{warning}");
    }

    #[test]
    fn an_object_that_is_labelled_and_known_by_name_is_deleted_once() {
        let object = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "ours"}});
        let mut found = vec![object("a")];
        add(&mut found, vec![object("a"), object("b")]);
        assert_eq!(found, [object("a"), object("b")]);
    }

    #[test]
    fn the_process_goes_first_and_its_namespace_last() {
        let mut objects: Vec<Value> = [
            "Namespace",
            "Role",
            "ValidatingWebhookConfiguration",
            "Deployment",
        ]
        .map(|kind| json!({"kind": kind}))
        .into();
        objects.insert(1, json!({"kind": "ClusterRole", "aggregationRule": {}}));
        in_order(&mut objects);
        let order: Vec<&str> = objects
            .iter()
            .filter_map(|object| object["kind"].as_str())
            .collect();
        assert_eq!(
            order,
            [
                "Deployment",
                "ValidatingWebhookConfiguration",
                "Role",
                "ClusterRole",
                "Namespace"
            ]
        );
    }
}
