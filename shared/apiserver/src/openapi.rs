//! OpenAPI v3, as much as kubectl needs to explain, validate and merge. Built-in kinds come without descriptions.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::json;
use crate::kinds::Kind;

static PUBLISHED: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("builtin/schemas.json")).unwrap_or_default());

/// The media type of OpenAPI v2 as kubectl asks for it.
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// OpenAPI v2 without descriptions of kinds.
///
/// Why: kubectl asks for it before it applies a `List`. kubectl leaves kinds without a description to the server, which
/// validates every object.
pub(crate) fn v2(version: &str) -> Value {
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": version}, "paths": {}, "definitions": {},
    })
}

/// The same in protobuf: fields 1 (`swagger`) and 2 (`info`, with `title` and `version`) of the document.
pub(crate) fn v2_protobuf(version: &str) -> Bytes {
    let info = [text_field(1, "Kubernetes"), text_field(2, version)].concat();
    [text_field(1, "2.0"), field(2, &info)].concat().into()
}

fn text_field(number: u8, text: &str) -> Vec<u8> {
    field(number, text.as_bytes())
}

/// A length-delimited field. *Limit*: a value longer than 127 bytes is cut; all values here are shorter.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX).min(0x7f);
    let bytes = bytes.get(..length.into()).unwrap_or_default();
    [&[number << 3 | 2, length], bytes].concat()
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

pub(crate) fn document(kinds: &[Arc<Kind>], group: &str, version: &str) -> Value {
    let mut schemas = Map::new();
    let mut wanted: Vec<String> = vec![META.to_owned()];
    let mut paths = Map::new();
    for kind in kinds {
        if kind.is_custom() {
            schemas.insert(kind.definition.clone(), custom(kind));
        } else {
            wanted.push(kind.definition.clone());
        }
        let (path, item) = path_of(kind, group, version);
        paths.insert(path, item);
    }
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(schema) = PUBLISHED.get(&name) {
            schemas.insert(name, published(schema, &mut wanted));
        }
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths, "components": {"schemas": schemas},
    })
}

fn path_of(kind: &Kind, group: &str, version: &str) -> (String, Value) {
    let root = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let namespace = if kind.is_namespaced() {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let gvk = json!({"group": group, "version": version, "kind": kind.kind});
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let operation = |action: &str| {
        json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk,
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "responses": {"200": {"description": "OK"}},
        })
    };
    let item = json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch"), "delete": operation("delete")});
    (format!("{root}{namespace}/{}/{{name}}", kind.plural), item)
}

/// A definition with its references resolved and without our own extensions.
fn published(schema: &Value, wanted: &mut Vec<String>) -> Value {
    let mut out = Map::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        match key.as_str() {
            "x-go" => {}
            "$ref" => {
                let name = value.as_str().unwrap_or_default();
                wanted.push(name.to_owned());
                out.insert(
                    "allOf".to_owned(),
                    json!([{"$ref": format!("#/components/schemas/{name}")}]),
                );
            }
            "properties" => {
                let properties: Map<String, Value> = value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, inner)| (name.clone(), published(inner, wanted)))
                    .collect();
                out.insert(key.clone(), properties.into());
            }
            "items" | "additionalProperties" => {
                out.insert(key.clone(), published(value, wanted));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

fn custom(kind: &Kind) -> Value {
    let mut schema = kind.published.clone();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    for (name, says) in [
        ("apiVersion", "The group and version of this kind."),
        ("kind", "The name of this kind."),
    ] {
        json::set(
            &mut schema,
            &["properties", name],
            json!({"type": "string", "description": says}),
        );
    }
    let meta = json!({"allOf": [{"$ref": format!("#/components/schemas/{META}")}], "description": "Standard metadata of the object."});
    json::set(&mut schema, &["properties", "metadata"], meta);
    let gvk = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    json::set(&mut schema, &["x-kubernetes-group-version-kind"], gvk);
    schema
}
