//! The objects that must exist in a cluster before the pods of a job can run there, because their templates name them.
//!
//! Optional references are not included. Objects that a pod names but can start without are listed by [`wanted`]: Secrets for pulling
//! images, because the node may have the image, and the Service by whose name the pods of a group find each other.
//!
//! *Source*: `spec/experience.md 5`, `spec/safety.md 5.1`.

use std::collections::BTreeSet;
use std::fmt;

use roadstead_kinds::rows;
use serde_json::Value;

use crate::json;

/// The account that every namespace has by default.
const DEFAULT_ACCOUNT: &str = "default";

/// The `ConfigMap` that every namespace has by default, and that API servers mount into pods.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

/// Why objects of most kinds are not carried to a worker.
pub const NEVER_CARRIED: &str = "objects of its kind are never carried";

/// A kind of object that a pod can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// Argo's `ClusterWorkflowTemplate`, which has no namespace.
    ClusterWorkflowTemplate,
    /// `v1 ConfigMap`.
    ConfigMap,
    /// `v1 PersistentVolumeClaim`.
    PersistentVolumeClaim,
    /// `scheduling.k8s.io/v1 PriorityClass`, which has no namespace.
    PriorityClass,
    /// `node.k8s.io/v1 RuntimeClass`, which has no namespace.
    RuntimeClass,
    /// `v1 Secret`.
    Secret,
    /// `v1 Service`.
    Service,
    /// `v1 ServiceAccount`.
    ServiceAccount,
    /// Argo's `WorkflowTemplate`.
    WorkflowTemplate,
}

impl Thing {
    /// Group, version, kind and plural of its API.
    pub const fn api(self) -> [&'static str; 4] {
        match self {
            Self::ClusterWorkflowTemplate => [
                rows::WORKFLOW.group,
                rows::WORKFLOW.version,
                "ClusterWorkflowTemplate",
                "clusterworkflowtemplates",
            ],
            Self::ConfigMap => ["", "v1", "ConfigMap", "configmaps"],
            Self::PersistentVolumeClaim => ["", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"],
            Self::PriorityClass => ["scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"],
            Self::RuntimeClass => ["node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"],
            Self::Secret => ["", "v1", "Secret", "secrets"],
            Self::Service => ["", "v1", "Service", "services"],
            Self::ServiceAccount => ["", "v1", "ServiceAccount", "serviceaccounts"],
            Self::WorkflowTemplate => [
                rows::WORKFLOW.group,
                rows::WORKFLOW.version,
                "WorkflowTemplate",
                "workflowtemplates",
            ],
        }
    }

    /// Whether objects of this kind can be carried to a worker.
    pub const fn is_carried(self) -> bool {
        match self {
            Self::ConfigMap | Self::Secret | Self::Service => true,
            Self::ClusterWorkflowTemplate
            | Self::PersistentVolumeClaim
            | Self::PriorityClass
            | Self::RuntimeClass
            | Self::ServiceAccount
            | Self::WorkflowTemplate => false,
        }
    }

    /// Whether objects of this kind are in a namespace.
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::ConfigMap
            | Self::PersistentVolumeClaim
            | Self::Secret
            | Self::Service
            | Self::ServiceAccount
            | Self::WorkflowTemplate => true,
            Self::ClusterWorkflowTemplate | Self::PriorityClass | Self::RuntimeClass => false,
        }
    }
}

/// An object that the pods of a job name. [`fmt::Display`] prints it for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Its kind.
    pub thing: Thing,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, _, kind, _] = self.thing.api();
        write!(f, "{kind} \"{}\"", self.name)
    }
}

/// The objects that the pods of these templates name.
pub fn of<'a>(templates: impl IntoIterator<Item = &'a Value>) -> BTreeSet<Need> {
    let mut needs = Needs(BTreeSet::new());
    for template in templates {
        if let Some(spec) = json::at(template, &["spec"]) {
            needs.of_pod(spec);
        }
    }
    needs.0
}

/// The objects that the pods of these templates name and can start without.
pub fn wanted<'a>(templates: impl IntoIterator<Item = &'a Value>) -> BTreeSet<Need> {
    let mut wanted = Needs(BTreeSet::new());
    for template in templates {
        wanted.add(Thing::Service, json::text(template, &["spec", "subdomain"]));
        for secret in json::list(template, &["spec", "imagePullSecrets"]) {
            wanted.add(Thing::Secret, json::text(secret, &["name"]));
        }
    }
    wanted.0
}

/// The fields of an object that are carried to a worker. Metadata is not, because annotations may hold copies of the content.
///
/// *Errors*: why it is not carried.
pub fn carried(thing: Thing, object: &Value) -> Result<Value, &'static str> {
    let fields: &[&str] = match thing {
        Thing::ConfigMap => &["binaryData", "data"],
        Thing::Secret => match json::text(object, &["type"]) {
            None | Some("Opaque" | "kubernetes.io/dockerconfigjson") => &["data", "type"],
            Some(_) => return Err("a Secret of its type is never carried"),
        },
        Thing::Service => {
            if json::text(object, &["spec", "clusterIP"]) != Some("None") {
                return Err("only a headless Service is carried");
            }
            let mut spec = serde_json::json!({"clusterIP": "None"});
            for field in ["ports", "publishNotReadyAddresses", "selector"] {
                if let Some(value) = json::at(object, &["spec", field]) {
                    json::set(&mut spec, &[field], value.clone());
                }
            }
            return Ok(serde_json::json!({ "spec": spec }));
        }
        Thing::ClusterWorkflowTemplate
        | Thing::PersistentVolumeClaim
        | Thing::PriorityClass
        | Thing::RuntimeClass
        | Thing::ServiceAccount
        | Thing::WorkflowTemplate => return Err(NEVER_CARRIED),
    };
    let mut content = serde_json::json!({});
    for field in fields {
        if let Some(value) = json::at(object, &[field]) {
            json::set(&mut content, &[field], value.clone());
        }
    }
    Ok(content)
}

struct Needs(BTreeSet<Need>);

impl Needs {
    fn add(&mut self, thing: Thing, name: Option<&str>) {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let name = name.to_owned();
            self.0.insert(Need { thing, name });
        }
    }

    /// Adds the object that a field names, unless the reference is optional.
    fn refer(&mut self, thing: Thing, object: &Value, path: &[&str], name: &str) {
        let Some(reference) = json::at(object, path) else {
            return;
        };
        let named = json::text(reference, &[name]);
        let is_everywhere = thing == Thing::ConfigMap && named == Some(ROOT_CERTIFICATES);
        if !json::is_true(reference, &["optional"]) && !is_everywhere {
            self.add(thing, named);
        }
    }

    fn of_pod(&mut self, spec: &Value) {
        let account =
            json::text(spec, &["serviceAccountName"]).or_else(|| json::text(spec, &["serviceAccount"]));
        self.add(
            Thing::ServiceAccount,
            account.filter(|name| *name != DEFAULT_ACCOUNT),
        );
        self.add(Thing::PriorityClass, json::text(spec, &["priorityClassName"]));
        self.add(Thing::RuntimeClass, json::text(spec, &["runtimeClassName"]));
        for volume in json::list(spec, &["volumes"]) {
            self.of_volume(volume);
            for source in json::list(volume, &["projected", "sources"]) {
                self.refer(Thing::ConfigMap, source, &["configMap"], "name");
                self.refer(Thing::Secret, source, &["secret"], "name");
            }
        }
        for containers in ["initContainers", "containers"] {
            for container in json::list(spec, &[containers]) {
                self.of_container(container);
            }
        }
    }

    fn of_volume(&mut self, volume: &Value) {
        self.refer(Thing::ConfigMap, volume, &["configMap"], "name");
        self.refer(Thing::Secret, volume, &["secret"], "secretName");
        self.refer(
            Thing::PersistentVolumeClaim,
            volume,
            &["persistentVolumeClaim"],
            "claimName",
        );
    }

    fn of_container(&mut self, container: &Value) {
        for source in json::list(container, &["envFrom"]) {
            self.refer(Thing::ConfigMap, source, &["configMapRef"], "name");
            self.refer(Thing::Secret, source, &["secretRef"], "name");
        }
        for variable in json::list(container, &["env"]) {
            self.refer(
                Thing::ConfigMap,
                variable,
                &["valueFrom", "configMapKeyRef"],
                "name",
            );
            self.refer(Thing::Secret, variable, &["valueFrom", "secretKeyRef"], "name");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
    fn named(spec: Value) -> Vec<String> {
        let template = json!({ "spec": spec });
        of([&template, &template])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// Spec: experience 5
    #[test]
    fn everything_that_a_pod_cannot_start_without_is_named_once() {
        let spec = json!({
            "serviceAccountName": "trainer", "priorityClassName": "high", "runtimeClassName": "gvisor",
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"name": "a", "configMap": {"name": "settings"}},
                {"name": "b", "secret": {"secretName": "token"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "d", "projected": {"sources": [{"secret": {"name": "key"}}, {"configMap": {"name": "settings"}}]}},
                {"name": "e", "emptyDir": {}},
            ],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "first"}}]}],
            "containers": [{
                "name": "c",
                "envFrom": [{"secretRef": {"name": "token"}}],
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "password", "key": "k"}}},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "second", "key": "k"}}},
                ],
            }],
        });
        let expected = [
            "ConfigMap \"first\"",
            "ConfigMap \"second\"",
            "ConfigMap \"settings\"",
            "PersistentVolumeClaim \"data\"",
            "PriorityClass \"high\"",
            "RuntimeClass \"gvisor\"",
            "Secret \"key\"",
            "Secret \"password\"",
            "Secret \"token\"",
            "ServiceAccount \"trainer\"",
        ];
        assert_eq!(named(spec), expected);
    }

    /// Spec: safety 5.1
    #[test]
    fn what_pods_can_start_without_is_wanted() {
        let template = json!({"spec": {
            "subdomain": "web", "imagePullSecrets": [{"name": "pull"}, {}], "volumes": [{"secret": {"secretName": "token"}}],
        }});
        let wanted: Vec<String> = wanted([&template]).iter().map(ToString::to_string).collect();
        assert_eq!(wanted, ["Secret \"pull\"", "Service \"web\""]);
    }

    /// Spec: safety 5.1
    #[test]
    fn only_the_content_is_carried_and_never_a_token_or_a_claim() {
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "secret"});
        let secret = |kind: &str| {
            json!({
                "metadata": {"name": "s", "annotations": annotations}, "type": kind, "data": {"k": "dg=="}, "immutable": true,
            })
        };
        let registry = "kubernetes.io/dockerconfigjson";
        for kind in ["Opaque", registry] {
            let expected = json!({"type": kind, "data": {"k": "dg=="}});
            assert_eq!(carried(Thing::Secret, &secret(kind)), Ok(expected));
        }
        for kind in [
            "kubernetes.io/service-account-token",
            "kubernetes.io/tls",
            "bootstrap.kubernetes.io/token",
        ] {
            assert!(carried(Thing::Secret, &secret(kind)).is_err(), "{kind}");
        }
        let map = json!({"metadata": {"name": "m"}, "data": {"a": "b"}, "binaryData": {"c": "dg=="}});
        let expected = json!({"data": {"a": "b"}, "binaryData": {"c": "dg=="}});
        assert_eq!(carried(Thing::ConfigMap, &map), Ok(expected));
        let service = |ip: &str| {
            json!({"spec": {
                "clusterIP": ip, "clusterIPs": [ip], "selector": {"app": "web"}, "ports": [{"port": 80}], "ipFamilies": ["IPv6"],
            }})
        };
        let expected =
            json!({"spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
        assert_eq!(carried(Thing::Service, &service("None")), Ok(expected));
        assert!(carried(Thing::Service, &service("10.0.0.1")).is_err());
        for thing in [
            Thing::PersistentVolumeClaim,
            Thing::ServiceAccount,
            Thing::PriorityClass,
            Thing::RuntimeClass,
            Thing::WorkflowTemplate,
            Thing::ClusterWorkflowTemplate,
        ] {
            assert!(carried(thing, &json!({})).is_err());
        }
    }

    #[test]
    fn what_is_optional_or_there_anyway_or_nonsense_is_not_needed() {
        let optional = |name: &str| json!({"name": name, "secretName": name, "optional": true});
        let spec = json!({
            "serviceAccountName": "default", "priorityClassName": "",
            "volumes": [{"secret": optional("a")}, {"configMap": optional("b")}, {"secret": 3}, {"configMap": {"name": []}}, null],
            "containers": [{"envFrom": [{"secretRef": optional("c")}], "env": "x"}, 7],
        });
        assert_eq!(named(spec), [""; 0]);
        assert_eq!(named(json!("x")), [""; 0]);
    }
}
