//! The discovery documents of the group, for the API server and for clients.

use roadstead_api::visibility::{GROUP, PENDING_WORKLOADS as PENDING, VERSIONS};
use roadstead_serve::delegated::Reply;
use serde_json::{Value, json};

/// The media type by which API servers ask for everything at once.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const SUMMARY: &str = "PendingWorkloadsSummary";

/// Plural, singular, kind, and whether it is namespaced.
const PARENTS: [(&str, &str, &str, bool); 2] = [
    ("clusterqueues", "clusterqueue", "ClusterQueue", false),
    ("localqueues", "localqueue", "LocalQueue", true),
];

/// `/apis`: the list of groups, or everything at once if `accept` asks for that.
pub(super) fn groups(accept: &str) -> Reply {
    let whole = accept
        .split(',')
        .any(|form| form.replace(' ', "").starts_with(AGGREGATED));
    if whole {
        return Reply {
            content_type: AGGREGATED,
            ..Reply::json(&everything())
        };
    }
    Reply::json(&json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [this_group()] }))
}

/// `/apis/GROUP`
pub(super) fn group() -> Reply {
    let mut group = this_group();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Reply::json(&group)
}

/// `/apis/GROUP/VERSION`
pub(super) fn resources(version: &str) -> Reply {
    let parents = PARENTS.iter().flat_map(|(plural, singular, kind, namespaced)| {
        [
            json!({
                "name": plural, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": [],
            }),
            json!({
                "name": format!("{plural}/{PENDING}"), "singularName": "", "namespaced": namespaced, "kind": SUMMARY,
                "verbs": ["get"],
            }),
        ]
    });
    Reply::json(&json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{version}"),
        "resources": parents.collect::<Vec<_>>(),
    }))
}

fn this_group() -> Value {
    let versions =
        VERSIONS.map(|version| json!({ "groupVersion": format!("{GROUP}/{version}"), "version": version }));
    json!({ "name": GROUP, "versions": versions, "preferredVersion": versions[0] })
}

fn everything() -> Value {
    let versions = VERSIONS.map(|version| {
        let of = |kind: &str| json!({ "group": GROUP, "version": version, "kind": kind });
        let resources = PARENTS.map(|(plural, singular, kind, namespaced)| {
            json!({
                "resource": plural,
                "responseKind": of(kind),
                "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": singular,
                "verbs": [],
                "subresources": [{ "subresource": PENDING, "responseKind": of(SUMMARY), "verbs": ["get"] }],
            })
        });
        json!({ "version": version, "resources": resources, "freshness": "Current" })
    });
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{ "metadata": { "name": GROUP }, "versions": versions }],
    })
}
