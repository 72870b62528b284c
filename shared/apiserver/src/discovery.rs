//! Discovery, version, health and the OpenAPI pages.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::{Kind, VERBS, api_version};
use crate::openapi;
use crate::request::User;
use crate::server::{Answer, Server};

/// The Kubernetes version that this server behaves like.
const VERSION: &str = "v1.36.3";
/// Reviews, which are answered and never stored: group, resource, kind, whether in a namespace.
const REVIEWS: [(&str, &str, &str, bool); 6] = [
    (
        "authentication.k8s.io",
        "selfsubjectreviews",
        "SelfSubjectReview",
        false,
    ),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", false),
    (
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
    ),
];

/// A subresource in a discovery document.
struct Below {
    name: &'static str,
    kind: String,
    verbs: &'static [&'static str],
    /// Group and version where they differ from the resource's.
    of: Option<(&'static str, &'static str)>,
}

fn below(kind: &Kind) -> Vec<Below> {
    let mut out = Vec::new();
    let mut add = |name, kind: &str, verbs, of| {
        out.push(Below {
            name,
            kind: kind.to_owned(),
            verbs,
            of,
        });
    };
    if kind.plural == "pods" && !kind.is_custom() {
        add("binding", "Binding", &["create"][..], None);
    }
    if kind.scale.is_some() {
        add(
            "scale",
            "Scale",
            &["get", "patch", "update"],
            Some(("autoscaling", "v1")),
        );
    }
    if kind.status {
        add("status", &kind.kind, &["get", "patch", "update"], None);
    }
    if kind.plural == "namespaces" {
        add("finalize", "Namespace", &["update"], None);
    }
    if kind.plural == "serviceaccounts" {
        add(
            "token",
            "TokenRequest",
            &["create"],
            Some(("authentication.k8s.io", "v1")),
        );
    }
    out
}

/// Wire: custom resources list their verbs in another order.
const CUSTOM_VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

fn verbs(kind: &Kind) -> Vec<&'static str> {
    let all = if kind.is_custom() { CUSTOM_VERBS } else { VERBS }.into_iter();
    all.filter(|verb| !(kind.plural == "namespaces" && *verb == "deletecollection"))
        .collect()
}

/// The resources of one group and version, in the classic form.
fn resources(kinds: &[&Kind]) -> Vec<Value> {
    let mut out = Vec::new();
    for kind in kinds {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.is_namespaced(), "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = kind.short_names.clone().into();
        }
        if !kind.categories.is_empty() {
            entry["categories"] = kind.categories.clone().into();
        }
        out.push(entry);
        for sub in below(kind) {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.is_namespaced(),
                "kind": sub.kind, "verbs": sub.verbs,
            });
            if let Some((group, version)) = sub.of {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            out.push(entry);
        }
    }
    out
}

fn reviews(group: &str) -> Vec<Value> {
    REVIEWS
        .iter()
        .filter(|(own, ..)| *own == group)
        .map(|(_, plural, kind, namespaced)| {
            json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": namespaced, "kind": kind, "verbs": ["create"]})
        })
        .collect()
}

/// The resources of one group and version, in the aggregated form.
fn aggregated(kinds: &[&Kind], group: &str, version: &str) -> Value {
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let mut resources = Vec::new();
    for kind in kinds {
        let kind_of = |kind: &str, of: Option<(&str, &str)>| {
            let (group, version) = of.unwrap_or((group, version));
            json!({"group": group, "version": version, "kind": kind})
        };
        let mut entry = json!({
            "resource": kind.plural, "responseKind": kind_of(&kind.kind, None), "scope": scope(kind.is_namespaced()),
            "singularResource": kind.singular, "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = kind.short_names.clone().into();
        }
        if !kind.categories.is_empty() {
            entry["categories"] = kind.categories.clone().into();
        }
        let subs: Vec<Value> = below(kind)
            .into_iter()
            .map(|sub| json!({"subresource": sub.name, "responseKind": kind_of(&sub.kind, sub.of), "verbs": sub.verbs}))
            .collect();
        if !subs.is_empty() {
            entry["subresources"] = subs.into();
        }
        resources.push(entry);
    }
    for (own, plural, kind, namespaced) in REVIEWS {
        if own == group {
            resources.push(json!({
                "resource": plural, "responseKind": {"group": group, "version": version, "kind": kind},
                "scope": scope(namespaced), "singularResource": kind.to_lowercase(), "verbs": ["create"],
            }));
        }
    }
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

/// Groups with their versions, the preferred one first.
type Groups = BTreeMap<String, Vec<String>>;

impl Server {
    fn groups(&self) -> Groups {
        let mut groups = Groups::new();
        for kind in self.state().registry.all() {
            let versions = groups.entry(kind.group.clone()).or_default();
            if !versions.contains(&kind.version) {
                versions.push(kind.version.clone());
            }
        }
        for (group, ..) in REVIEWS {
            groups.insert(group.to_owned(), vec!["v1".to_owned()]);
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        }
        groups
    }

    fn kinds_of(&self, group: &str, version: &str) -> Vec<std::sync::Arc<Kind>> {
        let state = self.state();
        let mut kinds: Vec<_> = state
            .registry
            .all()
            .filter(|kind| kind.group == group && kind.version == version)
            .cloned()
            .collect();
        kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
        kinds
    }

    /// Answers a request for a path that is no resource.
    pub(crate) fn page(&self, request: &Request<Bytes>, user: &User) -> Result<Answer, Failure> {
        let path = request.uri().path();
        self.authorize_path(user, request.method(), path)?;
        let accept = request
            .headers()
            .get("accept")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let ok = |value: Value| Ok(Answer::Json(StatusCode::OK, value));
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Err(Failure::no_such_page());
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let group_version = |group: &str, version: &str| {
            let kinds = self.kinds_of(group, version);
            let refs: Vec<&Kind> = kinds.iter().map(AsRef::as_ref).collect();
            let mut list = resources(&refs);
            list.extend(reviews(group));
            if list.is_empty() {
                return Err(Failure::no_such_page());
            }
            ok(json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version), "resources": list,
            }))
        };
        match parts.as_slice() {
            ["api" | "apis"] if accept.contains("v=v2;") && accept.contains("as=APIGroupDiscoveryList") => {
                let core = parts == ["api"];
                Ok(Answer::Typed(
                    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                    self.discover(core),
                ))
            }
            ["api"] => ok(json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
            })),
            ["api", "v1"] => group_version("", "v1"),
            ["apis"] => {
                let groups: Vec<Value> = self
                    .groups()
                    .iter()
                    .filter(|(group, _)| !group.is_empty())
                    .map(|(group, versions)| group_json(group, versions))
                    .collect();
                ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
            }
            ["apis", group] => {
                let groups = self.groups();
                let versions = groups.get(*group).ok_or_else(Failure::no_such_page)?;
                let mut value = group_json(group, versions);
                value["kind"] = "APIGroup".into();
                value["apiVersion"] = "v1".into();
                ok(value)
            }
            ["apis", group, version] => group_version(group, version),
            ["version"] => ok(json!({
                "major": "1", "minor": "36", "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc", "platform": "linux/amd64",
                "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
            })),
            ["healthz" | "livez" | "readyz", ..] => Ok(Answer::Text(StatusCode::OK, "ok".to_owned())),
            ["openapi", "v3"] => {
                let paths: serde_json::Map<String, Value> = self
                    .groups()
                    .into_iter()
                    .flat_map(|(group, versions)| {
                        versions.into_iter().map(move |version| (group.clone(), version))
                    })
                    .map(|(group, version)| {
                        let path = group_path(&group, &version);
                        let url = format!("/openapi/v3/{path}?hash={}", self.state().registry.generation);
                        (path, json!({"serverRelativeURL": url}))
                    })
                    .collect();
                ok(json!({"paths": paths}))
            }
            ["openapi", "v3", "api", "v1"] => ok(openapi::document(&self.kinds_of("", "v1"), "", "v1")),
            ["openapi", "v3", "apis", group, version] => {
                ok(openapi::document(&self.kinds_of(group, version), group, version))
            }
            ["openapi", "v2"] if accept.contains("protobuf") => {
                Ok(Answer::Bytes(openapi::V2_PROTOBUF, openapi::v2_protobuf(VERSION)))
            }
            ["openapi", "v2"] => ok(openapi::v2(VERSION)),
            ["metrics"] => Err(Failure::not_implemented("the page of metrics")),
            _ => Err(Failure::no_such_page()),
        }
    }

    fn discover(&self, core: bool) -> Value {
        let items: Vec<Value> = self
            .groups()
            .into_iter()
            .filter(|(group, _)| group.is_empty() == core)
            .map(|(group, versions)| {
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|version| {
                        let kinds = self.kinds_of(&group, version);
                        let refs: Vec<&Kind> = kinds.iter().map(AsRef::as_ref).collect();
                        aggregated(&refs, &group, version)
                    })
                    .collect();
                let meta = if core {
                    json!({"creationTimestamp": null})
                } else {
                    json!({"name": group})
                };
                json!({"metadata": meta, "versions": versions})
            })
            .collect();
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
    }
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn group_json(group: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    json!({
        "name": group, "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

/// Stable before beta before alpha, then the higher number: the order that Kubernetes gives versions.
fn priority(version: &str) -> (u8, u64, u64) {
    let parse = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        for (word, rank) in [("beta", 1), ("alpha", 0)] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((rank, major.parse().ok()?, minor.parse().unwrap_or(0)));
            }
        }
        Some((2, rest.parse().ok()?, 0))
    };
    parse().unwrap_or((0, 0, 0))
}
