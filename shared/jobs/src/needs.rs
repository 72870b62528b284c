//! The objects that must exist in a cluster before the pods of a job can run there, because their templates name them.
//!
//! Not included are optional references, and Secrets for pulling images: without these a pod starts where its node has the image.
//!
//! *Source*: `spec/experience.md 5`.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::json;

/// The account that every namespace has by default.
const DEFAULT_ACCOUNT: &str = "default";

/// The `ConfigMap` that every namespace has by default, and that API servers mount into pods.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

/// A kind of object that a pod can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
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
    /// `v1 ServiceAccount`.
    ServiceAccount,
}

impl Thing {
    /// Group, version, kind and plural of its API.
    pub const fn api(self) -> [&'static str; 4] {
        match self {
            Self::ConfigMap => ["", "v1", "ConfigMap", "configmaps"],
            Self::PersistentVolumeClaim => ["", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"],
            Self::PriorityClass => ["scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"],
            Self::RuntimeClass => ["node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"],
            Self::Secret => ["", "v1", "Secret", "secrets"],
            Self::ServiceAccount => ["", "v1", "ServiceAccount", "serviceaccounts"],
        }
    }

    /// Whether objects of this kind are in a namespace.
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::ConfigMap | Self::PersistentVolumeClaim | Self::Secret | Self::ServiceAccount => true,
            Self::PriorityClass | Self::RuntimeClass => false,
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
