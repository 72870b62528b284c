//! From text to documents, with every unknown key and wrong value found in one go.
//!
//! Why keys are removed and the text is read again: a serde reader stops at its first error. So the error is noted, its key is
//! removed from the tree, and the rest is read again, at most [`PROBLEMS_MAX`] times.

use std::collections::BTreeSet;

use roadstead_api::config::{Document, DocumentKind};
use serde_saphyr::Error;

use super::near;
use super::tree::{Node, may_hold_secret};
use super::{Findings, PROBLEMS_MAX};

/// Reads all documents of a text; what cannot be read is in `findings`.
pub(super) fn documents(text: &str, findings: &mut Findings) -> Vec<Document> {
    let options = serde_saphyr::options! { with_snippet: false };
    let nodes: Vec<Node> = match serde_saphyr::from_multiple_with_options(text, options) {
        Ok(nodes) => nodes,
        Err(error) => {
            findings.add_at(
                position(&error),
                "",
                format!("not YAML that can be read: {error}"),
            );
            return Vec::new();
        }
    };
    let mut kinds = Vec::new();
    let mut documents = Vec::new();
    for mut node in nodes {
        if node.is_null() {
            continue;
        }
        if !node.is_map() {
            findings.add_at(
                Some(node.position()),
                "",
                format!("a document must be a mapping; {}", allowed()),
            );
            continue;
        }
        let Some(kind) = kind_of(&node, findings) else {
            continue;
        };
        if kinds.iter().any(|earlier| same_slot(*earlier, kind)) {
            let message = format!("a second document of kind {}; join the two", kind.names().1);
            findings.add_at(Some(node.position()), "kind", message);
            continue;
        }
        kinds.push(kind);
        node.name_paths(String::new(), &mut findings.positions);
        documents.extend(document(kind, node, findings));
    }
    documents
}

fn position(error: &Error) -> Option<(u64, u64)> {
    error
        .location()
        .map(|location| (location.line(), location.column()))
}

const fn same_slot(one: DocumentKind, other: DocumentKind) -> bool {
    matches!(one, DocumentKind::Roadstead) == matches!(other, DocumentKind::Roadstead)
}

fn allowed() -> String {
    let names = DocumentKind::ALL.iter().map(|kind| {
        let (api_version, name) = kind.names();
        format!("{api_version} {name}")
    });
    format!("allowed are {}", names.collect::<Vec<_>>().join(", "))
}

fn kind_of(node: &Node, findings: &mut Findings) -> Option<DocumentKind> {
    let api_version = node.child("apiVersion").and_then(Node::text);
    let kind = node.child("kind").and_then(Node::text);
    let found = DocumentKind::named(api_version.unwrap_or_default(), kind.unwrap_or_default());
    if found.is_none() {
        let version_known = DocumentKind::ALL
            .iter()
            .any(|candidate| Some(candidate.names().0) == api_version);
        let (key, value) = if version_known {
            ("kind", kind)
        } else {
            ("apiVersion", api_version)
        };
        let place = node.child(key).unwrap_or(node).position();
        let message = match value {
            None => format!("missing; {}", allowed()),
            Some(value) => format!("unknown value `{value}`; {}", allowed()),
        };
        findings.add_at(Some(place), key, message);
    }
    found
}

fn document(kind: DocumentKind, mut node: Node, findings: &mut Findings) -> Option<Document> {
    let mut taken = BTreeSet::new();
    for _ in 0..PROBLEMS_MAX {
        let mut track = serde_path_to_error::Track::new();
        let message = match kind.read(serde_path_to_error::Deserializer::new(&node, &mut track)) {
            Ok(document) => return Some(document),
            Err(error) => error.to_string(),
        };
        let way = track.path();
        let Some(culprit) = node.take(&way.iter().collect::<Vec<_>>()) else {
            findings.add(way.to_string(), message);
            return None;
        };
        let path = culprit.path().to_owned();
        if !follows_from(&taken, &path, &message) {
            let names_a_key = ["unknown field", "missing field"]
                .iter()
                .any(|start| message.starts_with(start));
            let message = if may_hold_secret(&path) && !names_a_key {
                if path.rsplit('.').next() == Some("value") || path.contains(".args[") {
                    "must be text".into()
                } else {
                    "has another form than it should; it is not shown, because it may be a secret".into()
                }
            } else {
                near::with_hint(plain(&message))
            };
            findings.add_at(Some(culprit.position()), path.as_str(), message);
        }
        taken.insert(path);
    }
    None
}

/// Whether a key is missing only because its wrong value was removed; that is no new problem.
fn follows_from(taken: &BTreeSet<String>, path: &str, message: &str) -> bool {
    let key = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    key.is_some_and(|key| taken.contains(&format!("{path}.{key}")))
}

/// Serde's message in the terms of a configuration file.
fn plain(message: &str) -> String {
    message
        .replacen("unknown field", "unknown key", 1)
        .replacen("unknown variant", "unknown value", 1)
        .replacen("missing field", "missing key", 1)
}
