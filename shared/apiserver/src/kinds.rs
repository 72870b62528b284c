//! The resources that the server serves: built-in ones, and those of custom resource definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::json;
use crate::names::Rule;
use crate::schema::{self, Node};

/// What can be done with a resource.
pub(crate) const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// Whether objects are in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Namespaced,
    Cluster,
}

/// Where a kind's rules come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Builtin,
    Custom,
}

/// Where a custom resource's replicas are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

/// How a custom resource is converted between versions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Conversion {
    /// Only `apiVersion` differs.
    None,
    /// This `clientConfig` is called.
    Webhook(Value),
}

/// One resource in one version.
#[expect(clippy::struct_field_names, reason = "the names are those of discovery")]
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) scope: Scope,
    pub(crate) origin: Origin,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    pub(crate) node: Arc<Node>,
    /// Name of the OpenAPI definition.
    pub(crate) definition: String,
    pub(crate) names: Rule,
    /// Fields by which lists can be selected besides name and namespace.
    pub(crate) selectable: Vec<String>,
    /// Columns of a custom resource's table.
    pub(crate) columns: Vec<Value>,
    pub(crate) storage_version: String,
    pub(crate) conversion: Conversion,
    /// The schema as published, for OpenAPI; null for built-in kinds.
    pub(crate) published: Value,
    pub(crate) resource: Arc<str>,
    /// Objects stored after this version have the shape and the defaults of the storage version.
    pub(crate) since: u64,
    /// The warning to clients, if the version is deprecated.
    pub(crate) deprecation: Option<String>,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// The version in which objects are stored.
    pub(crate) fn storage_api_version(&self) -> String {
        api_version(&self.group, &self.storage_version)
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.origin == Origin::Custom
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}

/// `v1` or `batch/v1`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// One line of the table of built-in kinds.
struct Line {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    scope: Scope,
    status: bool,
    short: &'static [&'static str],
    names: Rule,
    selectable: &'static [&'static str],
}

const fn line(group: &'static str, plural: &'static str, kind: &'static str, scope: Scope) -> Line {
    Line {
        group,
        plural,
        kind,
        scope,
        status: false,
        short: &[],
        names: Rule::Subdomain,
        selectable: &[],
    }
}

impl Line {
    const fn status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn short(mut self, short: &'static [&'static str]) -> Self {
        self.short = short;
        self
    }

    const fn names(mut self, names: Rule) -> Self {
        self.names = names;
        self
    }

    const fn selectable(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable = fields;
        self
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
/// The group of `APIService` objects, which name other processes that serve a group.
pub(crate) const REGISTRATION: &str = "apiregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The group of custom resource definitions.
pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";
/// The plural of custom resource definitions.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions";

const BUILTIN: &[Line] = &[
    line("", "configmaps", "ConfigMap", Scope::Namespaced).short(&["cm"]),
    line("", "events", "Event", Scope::Namespaced)
        .names(Rule::Segment)
        .short(&["ev"])
        .selectable(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]),
    line("", "limitranges", "LimitRange", Scope::Namespaced).short(&["limits"]),
    line("", "namespaces", "Namespace", Scope::Cluster)
        .status()
        .short(&["ns"])
        .names(Rule::Label)
        .selectable(&["status.phase"]),
    line("", "nodes", "Node", Scope::Cluster)
        .status()
        .short(&["no"])
        .selectable(&["spec.unschedulable"]),
    line("", "pods", "Pod", Scope::Namespaced)
        .status()
        .short(&["po"])
        .selectable(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]),
    line("", "podtemplates", "PodTemplate", Scope::Namespaced),
    line("", "secrets", "Secret", Scope::Namespaced).selectable(&["type"]),
    line("", "serviceaccounts", "ServiceAccount", Scope::Namespaced).short(&["sa"]),
    line("", "services", "Service", Scope::Namespaced)
        .status()
        .short(&["svc"])
        .names(Rule::Label)
        .selectable(&["spec.clusterIP", "spec.type"]),
    line(
        ADMISSION,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        Scope::Cluster,
    ),
    line(
        ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        Scope::Cluster,
    ),
    line(
        EXTENSIONS,
        DEFINITIONS,
        "CustomResourceDefinition",
        Scope::Cluster,
    )
    .status()
    .short(&["crd", "crds"]),
    line(REGISTRATION, "apiservices", "APIService", Scope::Cluster).status(),
    line("batch", "jobs", "Job", Scope::Namespaced)
        .status()
        .selectable(&["status.successful"]),
    line("coordination.k8s.io", "leases", "Lease", Scope::Namespaced),
    line("events.k8s.io", "events", "Event", Scope::Namespaced)
        .short(&["ev"])
        .selectable(&[
            "reason",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.uid",
            "type",
            "reportingController",
        ]),
    line("node.k8s.io", "runtimeclasses", "RuntimeClass", Scope::Cluster),
    line(RBAC, "clusterrolebindings", "ClusterRoleBinding", Scope::Cluster).names(Rule::Segment),
    line(RBAC, "clusterroles", "ClusterRole", Scope::Cluster).names(Rule::Segment),
    line(RBAC, "rolebindings", "RoleBinding", Scope::Namespaced).names(Rule::Segment),
    line(RBAC, "roles", "Role", Scope::Namespaced).names(Rule::Segment),
    line(
        "scheduling.k8s.io",
        "priorityclasses",
        "PriorityClass",
        Scope::Cluster,
    )
    .short(&["pc"]),
];

/// The OpenAPI name of a built-in group's definitions.
pub(crate) fn definition_group(group: &str) -> String {
    match group {
        "" => "io.k8s.api.core.v1".to_owned(),
        REGISTRATION => "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1".to_owned(),
        EXTENSIONS => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1".to_owned(),
        _ => format!("io.k8s.api.{}.v1", group.split('.').next().unwrap_or(group)),
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Line {
    fn build(&self) -> Option<Kind> {
        let definition = format!("{}.{}", definition_group(self.group), self.kind);
        schema::definition(&definition)?;
        let categories: &[&str] = match self.plural {
            "pods" | "jobs" | "services" => &["all"],
            "mutatingwebhookconfigurations"
            | "validatingwebhookconfigurations"
            | "apiservices"
            | DEFINITIONS => &["api-extensions"],
            _ => &[],
        };
        Some(Kind {
            group: self.group.to_owned(),
            version: "v1".to_owned(),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            short_names: strings(self.short),
            categories: strings(categories),
            scope: self.scope,
            origin: Origin::Builtin,
            status: self.status,
            scale: None,
            node: Arc::new(Node::reference(&definition)),
            definition,
            names: self.names,
            selectable: strings(self.selectable),
            columns: Vec::new(),
            storage_version: "v1".to_owned(),
            conversion: Conversion::None,
            published: Value::Null,
            // Why one key: both groups show the same events.
            resource: if self.plural == "events" {
                "events".into()
            } else {
                resource_key(self.group, self.plural)
            },
            since: 0,
            deprecation: None,
        })
    }
}

fn resource_key(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() {
        plural.into()
    } else {
        format!("{plural}.{group}").into()
    }
}

/// Reverse-DNS name of a custom kind's OpenAPI definition.
fn custom_definition(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

/// The kinds that one custom resource definition serves.
fn custom(definition: &Value, since: u64) -> Vec<Kind> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    let group = json::text(spec, &["group"]);
    let versions = json::items(spec, &["versions"]);
    let storage = versions
        .iter()
        .find(|version| version["storage"] == true)
        .map_or("", |version| json::text(version, &["name"]));
    let conversion = if spec["conversion"]["strategy"] == "Webhook" {
        Conversion::Webhook(spec["conversion"]["webhook"].clone())
    } else {
        Conversion::None
    };
    let build = |version: &Value| {
        let name = json::text(version, &["name"]);
        let published = &version["schema"]["openAPIV3Schema"];
        let subresources = &version["subresources"];
        let scale = subresources["scale"].is_object().then(|| Scale {
            spec: json::text(subresources, &["scale", "specReplicasPath"]).to_owned(),
            status: json::text(subresources, &["scale", "statusReplicasPath"]).to_owned(),
            selector: subresources["scale"]["labelSelectorPath"]
                .as_str()
                .map(str::to_owned),
        });
        let kind = json::text(names, &["kind"]);
        let plural = json::text(names, &["plural"]);
        let owned = |field: &str| -> Vec<String> { strings(&json::texts(names, &[field])) };
        Kind {
            group: group.to_owned(),
            version: name.to_owned(),
            plural: plural.to_owned(),
            singular: json::text(names, &["singular"]).to_owned(),
            kind: kind.to_owned(),
            list_kind: json::text(names, &["listKind"]).to_owned(),
            short_names: owned("shortNames"),
            categories: owned("categories"),
            scope: if spec["scope"] == "Namespaced" {
                Scope::Namespaced
            } else {
                Scope::Cluster
            },
            origin: Origin::Custom,
            status: subresources["status"].is_object(),
            scale,
            node: Arc::new(Node::custom(published)),
            definition: custom_definition(group, name, kind),
            names: Rule::Subdomain,
            selectable: json::items(version, &["selectableFields"])
                .iter()
                .map(|field| {
                    json::text(field, &["jsonPath"])
                        .trim_start_matches('.')
                        .to_owned()
                })
                .collect(),
            columns: json::items(version, &["additionalPrinterColumns"]).to_vec(),
            storage_version: storage.to_owned(),
            conversion: conversion.clone(),
            published: published.clone(),
            resource: resource_key(group, plural),
            since,
            deprecation: (version["deprecated"] == true).then(|| {
                let own = json::text(version, &["deprecationWarning"]);
                if own.is_empty() {
                    format!("{group}/{name} {kind} is deprecated")
                } else {
                    own.to_owned()
                }
            }),
        }
    };
    versions
        .iter()
        .filter(|version| version["served"] == true)
        .map(build)
        .collect()
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Registry {
    builtin: Vec<Arc<Kind>>,
    custom: BTreeMap<String, Vec<Arc<Kind>>>,
    /// Number of changes of the registry. A cache of published documents is valid for one number.
    pub(crate) generation: u64,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            builtin: BUILTIN
                .iter()
                .filter_map(|line| line.build().map(Arc::new))
                .collect(),
            custom: BTreeMap::new(),
            generation: 0,
        }
    }

    /// Registers the kinds of a definition written at `version`, or removes them if it is gone or not established.
    pub(crate) fn define(&mut self, name: &str, definition: Option<&Value>, version: u64) {
        self.generation += 1;
        match definition {
            Some(definition) if is_established(definition) => {
                let kinds = custom(definition, version).into_iter().map(Arc::new).collect();
                self.custom.insert(name.to_owned(), kinds);
            }
            _ => {
                self.custom.remove(name);
            }
        }
    }

    /// All kinds, built-in ones first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.builtin.iter().chain(self.custom.values().flatten())
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.all()
            .find(|kind| kind.version == version && kind.is(group, plural))
    }

    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        self.all()
            .any(|kind| kind.group == group && kind.version == version)
    }
}

/// Whether a definition's resource is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    condition(definition, "Established") == "True"
}

/// The status of a condition, or nothing.
pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> &'a str {
    json::items(object, &["status", "conditions"])
        .iter()
        .find(|condition| condition["type"] == name)
        .map_or("", |condition| json::text(condition, &["status"]))
}
