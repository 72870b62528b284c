//! The schemas of the group for `kubectl explain` and for the API server, which publishes them as its own.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use http::StatusCode;
use roadstead_api::visibility::{GROUP, PENDING_WORKLOADS as PENDING, VERSIONS};
use roadstead_serve::delegated::Reply;
use serde_json::{Map, Value, json};

/// `/openapi/v2`: all versions.
pub(super) fn v2(known: &str) -> Reply {
    tagged(&document_v2(), known)
}

/// `/openapi/v3`: where the document of each version is.
pub(super) fn v3() -> Reply {
    let paths: Map<String, Value> = VERSIONS
        .into_iter()
        .map(|version| {
            let path = format!("apis/{GROUP}/{version}");
            let url = format!("/openapi/v3/{path}?hash={}", tag(&document_v3(version)));
            (path, json!({ "serverRelativeURL": url }))
        })
        .collect();
    Reply::json(&json!({ "paths": paths }))
}

/// `/openapi/v3/apis/GROUP/VERSION`
pub(super) fn v3_of(version: &str, known: &str) -> Reply {
    tagged(&document_v3(version), known)
}

/// 304 for a client that has this document already.
fn tagged(document: &Value, known: &str) -> Reply {
    let etag = format!("\"{}\"", tag(document));
    let unchanged = known.split(',').any(|known| known.trim() == etag);
    let mut reply = Reply {
        etag,
        ..Reply::json(document)
    };
    if unchanged {
        reply.code = StatusCode::NOT_MODIFIED;
        reply.body = Vec::new();
    }
    reply
}

fn tag(document: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

fn document_v2() -> Value {
    let mut paths = Map::new();
    let mut definitions = Map::new();
    for version in VERSIONS {
        for (path, place) in places(version) {
            let answer =
                json!({ "$ref": format!("#/definitions/{}", name(version, "PendingWorkloadsSummary")) });
            let mut operation = operation(version, place, &parameters_v2(place));
            operation["produces"] = json!(["application/json"]);
            operation["schemes"] = json!(["https"]);
            operation["responses"] = json!({ "200": { "description": "OK", "schema": answer } });
            paths.insert(path, json!({ "get": operation }));
        }
        definitions.extend(schemas(version, "#/definitions/"));
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Roadstead visibility", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "definitions": definitions,
    })
}

fn document_v3(version: &str) -> Value {
    let mut paths = Map::new();
    for (path, place) in places(version) {
        let answer =
            json!({ "$ref": format!("#/components/schemas/{}", name(version, "PendingWorkloadsSummary")) });
        let parameters: Vec<Value> = parameters_v2(place)
            .into_iter()
            .map(|mut parameter| {
                let kind = parameter["type"].take();
                if let Some(fields) = parameter.as_object_mut() {
                    fields.remove("type");
                    fields.insert("schema".to_owned(), json!({ "type": kind }));
                }
                parameter
            })
            .collect();
        let mut operation = operation(version, place, &parameters);
        operation["responses"] = json!({ "200": { "description": "OK", "content": { "application/json": { "schema": answer } } } });
        paths.insert(path, json!({ "get": operation }));
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Roadstead visibility", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas(version, "#/components/schemas/") },
    })
}

/// Where a queue is in the API.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Cluster,
    Namespace,
}

fn places(version: &str) -> [(String, Place); 2] {
    let base = format!("/apis/{GROUP}/{version}");
    [
        (format!("{base}/clusterqueues/{{name}}/{PENDING}"), Place::Cluster),
        (
            format!("{base}/namespaces/{{namespace}}/localqueues/{{name}}/{PENDING}"),
            Place::Namespace,
        ),
    ]
}

fn operation(version: &str, place: Place, parameters: &[Value]) -> Value {
    let whose = match place {
        Place::Cluster => "ClusterQueue",
        Place::Namespace => "LocalQueue",
    };
    let title = version.replacen('v', "V", 1);
    json!({
        "description": format!("read the pending workloads of the specified {whose}, in order"),
        "operationId": format!("readVisibilityKueueXK8sIo{title}{whose}Pendingworkloads"),
        "tags": [format!("visibilityKueueXK8sIo_{version}")],
        "parameters": parameters,
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": { "group": GROUP, "version": version, "kind": "PendingWorkloadsSummary" },
    })
}

fn parameters_v2(place: Place) -> Vec<Value> {
    let in_path = |name: &str, text: &str| json!({ "name": name, "in": "path", "required": true, "type": "string", "description": text });
    let in_query = |name: &str, text: &str| json!({ "name": name, "in": "query", "required": false, "type": "integer", "description": text });
    let mut parameters = vec![in_path("name", "name of the queue")];
    if place == Place::Namespace {
        parameters.push(in_path("namespace", "namespace of the queue"));
    }
    parameters.push(in_query(
        "limit",
        "how many workloads at most; 1000 when absent or 0, at most 100000",
    ));
    parameters.push(in_query(
        "offset",
        "how many workloads are left out at the beginning",
    ));
    parameters
}

fn name(version: &str, kind: &str) -> String {
    format!("io.k8s.x-k8s.kueue.visibility.{version}.{kind}")
}

fn schemas(version: &str, prefix: &str) -> Map<String, Value> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number =
        |description: &str| json!({ "type": "integer", "format": "int32", "description": description });
    let meta = json!({ "type": "object", "description": "standard metadata" });
    let workload = json!({
        "type": "object",
        "description": "A workload that waits for admission.",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": meta,
            "priority": number("priority of the workload"),
            "localQueueName": text("name of the LocalQueue through which it came"),
            "positionInClusterQueue": number("its place in the ClusterQueue, from 0"),
            "positionInLocalQueue": number("its place in its LocalQueue, from 0"),
        },
    });
    let summary = json!({
        "type": "object",
        "description": "The workloads that wait in a queue, in the order in which they are tried.",
        "required": ["items"],
        "properties": {
            "apiVersion": text("version of this shape"),
            "kind": text("kind of this shape"),
            "metadata": meta,
            "items": { "type": "array", "items": { "$ref": format!("{prefix}{}", name(version, "PendingWorkload")) } },
        },
        "x-kubernetes-group-version-kind":
            [{ "group": GROUP, "version": version, "kind": "PendingWorkloadsSummary" }],
    });
    Map::from_iter([
        (name(version, "PendingWorkload"), workload),
        (name(version, "PendingWorkloadsSummary"), summary),
    ])
}
