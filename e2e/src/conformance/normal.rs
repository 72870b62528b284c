//! Renaming what must differ between two servers, so that what is left can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// What one server answered to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The body; for a watch the list of its events; a text where it was no JSON.
    pub body: Value,
    /// The `Warning` headers.
    pub warnings: Vec<String>,
}

/// Reasons whose wording is Go's or a library's and is not compared; code, reason and the fields are.
const LOOSE: [&str; 5] = [
    "BadRequest",
    "Invalid",
    "NotAcceptable",
    "UnsupportedMediaType",
    "",
];

/// Makes the answers of one server to a whole trace comparable.
pub fn normalize(answers: &mut [Answer]) {
    let mut names = Names::default();
    for answer in answers.iter() {
        names.learn(&answer.body);
    }
    names.rank();
    for answer in answers {
        for warning in &mut answer.warnings {
            *warning = names.rename(std::mem::take(warning));
        }
        let taken = std::mem::take(&mut answer.body);
        answer.body = names.value(taken, "");
        status(&mut answer.body);
        review(&mut answer.body);
        list(&mut answer.body);
    }
}

/// Identities of one server in the order in which they appeared.
#[derive(Default)]
struct Names {
    renamed: BTreeMap<String, String>,
    versions: BTreeSet<u64>,
    ranks: BTreeMap<u64, usize>,
}

impl Names {
    fn learn(&mut self, value: &Value) {
        if let Some(map) = value.as_object() {
            if let Some(meta) = map.get("metadata").filter(|_| !map.contains_key("items")) {
                self.learn_meta(meta);
            }
            map.values().for_each(|inner| self.learn(inner));
        } else if let Some(list) = value.as_array() {
            for inner in list {
                self.learn(inner);
            }
        }
    }

    fn learn_meta(&mut self, meta: &Value) {
        if let Some(uid) = meta["uid"].as_str() {
            let next = format!("uid-{}", self.renamed.len());
            self.renamed.entry(uid.to_owned()).or_insert(next);
            if let Some(version) = meta["resourceVersion"]
                .as_str()
                .and_then(|text| text.parse().ok())
            {
                self.versions.insert(version);
            }
        }
        if let Some(name) = meta["name"].as_str() {
            self.learn_name(name);
        }
        if let (Some(stem), Some(name)) = (meta["generateName"].as_str(), meta["name"].as_str())
            && name.starts_with(stem)
        {
            let next = format!("{stem}-{}", self.renamed.len());
            self.renamed.entry(name.to_owned()).or_insert(next);
        }
    }

    fn learn_name(&mut self, name: &str) {
        // Why: a limit range without a name is given an identity for one.
        let parts: Vec<usize> = name.split('-').map(str::len).collect();
        if parts == [8, 4, 4, 4, 12] {
            let next = format!("name-{}", self.renamed.len());
            self.renamed.entry(name.to_owned()).or_insert(next);
        }
    }

    fn rank(&mut self) {
        self.ranks = self
            .versions
            .iter()
            .enumerate()
            .map(|(rank, version)| (*version, rank))
            .collect();
    }

    fn text(&self, text: String, field: &str) -> Value {
        if field == "resourceVersion" {
            let rank = text
                .parse()
                .ok()
                .and_then(|version: u64| self.ranks.get(&version));
            return rank.map_or_else(|| "<version>".into(), |rank| format!("version-{rank}").into());
        }
        if let Some(name) = self.renamed.get(&text) {
            return name.as_str().into();
        }
        if text.len() >= 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok() {
            return "<time>".into();
        }
        if text.starts_with("JTI=") {
            return "<token>".into();
        }
        let mut text = self.rename(text);
        // Why: a real server says where its database keeps the object.
        if let Some((head, tail)) = text.split_once("StorageError: ")
            && let Some((_, rest)) = tail.split_once("AdditionalErrorMsg: ")
        {
            text = format!("{head}{rest}");
        }
        if let Some((head, _)) = text.split_once("in record (") {
            text.truncate(head.len());
        }
        // Why: what follows is said by a library for TLS or TCP.
        if let Some((head, _)) = text.split_once("failed to call webhook: ") {
            text.truncate(head.len());
        }
        // Why: so are errors of expressions.
        if let Some((head, _)) = text.split_once("resulted in error: ") {
            text.truncate(head.len());
        }
        // Why: the latest version and the oldest one that is still known differ.
        if let Some((head, _)) = text.split_once(", current: ") {
            text.truncate(head.len());
        }
        if let Some((head, _)) = text.split_once("too old resource version: ") {
            text = format!("{head}too old resource version");
        }
        // Why: a conflict says when the other manager wrote.
        if let Some((head, tail)) = text.split_once(" at 20")
            && let Some((_, rest)) = tail.split_once('Z')
        {
            text = format!("{head} at <time>{rest}");
        }
        text.into()
    }

    fn rename(&self, mut text: String) -> String {
        for (from, to) in &self.renamed {
            if text.contains(from) {
                text = text.replace(from, to);
            }
        }
        text
    }

    fn value(&self, value: Value, field: &str) -> Value {
        match value {
            Value::String(text) => self.text(text, field),
            Value::Array(list) => {
                let mut list: Vec<Value> = list.into_iter().map(|inner| self.value(inner, "")).collect();
                if field == "managedFields" {
                    // Why: they are sorted by second, which may tick between two writes on one server only.
                    list.sort_by_key(|entry| {
                        [
                            &entry["operation"],
                            &entry["manager"],
                            &entry["subresource"],
                            &entry["apiVersion"],
                        ]
                        .map(ToString::to_string)
                    });
                }
                list.into()
            }
            Value::Object(map) => {
                let mut out = Map::new();
                for (name, inner) in map {
                    if ["continue", "token", "remainingItemCount"].contains(&name.as_str())
                        && !inner.is_object()
                    {
                        out.insert(name, "<opaque>".into());
                        continue;
                    }
                    // Why parts too: a key of a list's element may be the identity of an owner.
                    let renamed = match self.renamed.get(&name) {
                        Some(renamed) => renamed.clone(),
                        None if name.starts_with("k:") => self.rename(name.clone()),
                        None => name.clone(),
                    };
                    let inner = self.value(inner, &name);
                    out.insert(renamed, inner);
                }
                out.into()
            }
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
        }
    }
}

/// Keeps of a failure what clients act on.
fn status(body: &mut Value) {
    if body["kind"] != "Status" {
        return;
    }
    let reason = body["reason"].as_str().unwrap_or_default().to_owned();
    if let Some(causes) = body["details"]["causes"].as_array_mut() {
        // Why: a real server lists them in the order of a Go map.
        causes.sort_by_key(ToString::to_string);
    }
    if LOOSE.contains(&reason.as_str()) && body["status"] == "Failure" {
        body["message"] = Value::Null;
        let mut causes: Vec<Value> = body["details"]["causes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|cause| json!([cause["reason"], cause["field"]]))
            .collect();
        causes.sort_by_key(ToString::to_string);
        causes.dedup();
        if body["details"].is_object() {
            body["details"]["causes"] = causes.into();
        }
    }
}

/// Nobody reads who owns the fields of a question, or says why it was allowed in the same words.
fn review(body: &mut Value) {
    let kind = body["kind"].as_str().unwrap_or_default().to_owned();
    if !kind.ends_with("Review") && kind != "TokenRequest" {
        return;
    }
    if let Some(meta) = body["metadata"].as_object_mut() {
        meta.remove("managedFields");
        meta.remove("uid");
    }
    if let Some(status) = body["status"].as_object_mut() {
        for said in ["reason", "error", "evaluationError", "incomplete"] {
            status.remove(said);
        }
    }
    for rules in ["resourceRules", "nonResourceRules"] {
        // Why: a real server lists them in the order of a Go map.
        let rules = body.get_mut("status").and_then(|status| status.get_mut(rules));
        if let Some(rules) = rules.and_then(Value::as_array_mut) {
            rules.sort_by_key(ToString::to_string);
        }
    }
}

/// What was owned through another version of a kind is compared by name here, and converted first by a real server.
fn owners_across_versions(value: &mut Value) {
    if value["kind"] == "Gadget"
        && let Some(meta) = value["metadata"].as_object_mut()
    {
        meta.remove("managedFields");
    }
    match value {
        Value::Array(list) => list.iter_mut().for_each(owners_across_versions),
        Value::Object(map) => map.values_mut().for_each(owners_across_versions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The version of a list is that of the whole server.
fn list(body: &mut Value) {
    owners_across_versions(body);
    for event in body.as_array_mut().into_iter().flatten() {
        // Why: how far a watch is, is a version of the whole server.
        if event["type"] == "BOOKMARK" {
            event["object"]["metadata"]["resourceVersion"] = Value::Null;
        }
    }
    let resources = body.get_mut("resources").and_then(Value::as_array_mut);
    if let Some(resources) = resources {
        // Why: a real server lists them in the order of a Go map.
        resources.sort_by_key(|resource| resource["name"].to_string());
    }
    let resources = body.get_mut("resources").and_then(Value::as_array_mut);
    for resource in resources.into_iter().flatten() {
        if let Some(resource) = resource.as_object_mut() {
            // Why: a digest that tells servers of one cluster from each other during an upgrade.
            resource.remove("storageVersionHash");
        }
    }
    if (body["items"].is_array() || body["kind"] == "Table") && body["metadata"].is_object() {
        body["metadata"]["resourceVersion"] = Value::Null;
    }
    if body["kind"] == "Table" {
        // Why: descriptions are prose, and an age depends on when it was asked.
        for column in body["columnDefinitions"].as_array_mut().into_iter().flatten() {
            column["description"] = Value::Null;
        }
        let ages: Vec<usize> = body["columnDefinitions"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, column)| {
                ["Age", "Last Seen", "First Seen", "Duration"]
                    .iter()
                    .any(|name| column["name"] == *name)
            })
            .map(|(at, _)| at)
            .collect();
        for row in body["rows"].as_array_mut().into_iter().flatten() {
            for at in &ages {
                row["cells"][*at] = Value::Null;
            }
        }
    }
}

/// Where two values differ, as `path: theirs | ours`, at most `max` lines.
pub fn differences(real: &Value, embedded: &Value, max: usize) -> Vec<String> {
    let mut out = Vec::new();
    walk(real, embedded, "", &mut out);
    out.truncate(max);
    out
}

fn walk(real: &Value, embedded: &Value, path: &str, out: &mut Vec<String>) {
    if real == embedded {
        return;
    }
    if let (Some(a), Some(b)) = (real.as_object(), embedded.as_object()) {
        let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for name in names {
            let null = Value::Null;
            walk(
                a.get(name).unwrap_or(&null),
                b.get(name).unwrap_or(&null),
                &format!("{path}.{name}"),
                out,
            );
        }
        if a.keys().ne(b.keys()) && out.is_empty() {
            out.push(format!("{path}: one of them says null and the other nothing"));
        }
    } else if let (Some(a), Some(b)) = (real.as_array(), embedded.as_array())
        && a.len() == b.len()
    {
        for (at, (a, b)) in a.iter().zip(b).enumerate() {
            walk(a, b, &format!("{path}[{at}]"), out);
        }
    } else {
        out.push(format!("{path}: {real} | {embedded}"));
    }
}
