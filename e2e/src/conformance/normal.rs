//! Renames values that must differ between two servers, so that the rest can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// One server's answer to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The body; for a watch the list of its events; a string if it was no JSON.
    pub body: Value,
    /// The `Warning` headers.
    pub warnings: Vec<String>,
}

/// Reasons whose messages come from Go or a library. Their messages are not compared; code, reason and fields are.
const LOOSE: [&str; 5] = [
    "BadRequest",
    "Invalid",
    "NotAcceptable",
    "UnsupportedMediaType",
    "",
];

/// Normalizes the answers of one server to a whole trace.
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

/// Identities of one server in the order of their appearance.
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
        // Why: a limit range without a name gets a UUID as its name.
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
        // Why: a real server names the object's key in its database.
        if let Some((head, tail)) = text.split_once("StorageError: ")
            && let Some((_, rest)) = tail.split_once("AdditionalErrorMsg: ")
        {
            text = format!("{head}{rest}");
        }
        if let Some((head, _)) = text.split_once("in record (") {
            text.truncate(head.len());
        }
        // Why: the rest of the message comes from a library for TLS or TCP.
        if let Some((head, _)) = text.split_once("failed to call webhook: ") {
            text.truncate(head.len());
        }
        // Why: the rest of the message comes from a library for CEL.
        if let Some((head, _)) = text.split_once("resulted in error: ") {
            text.truncate(head.len());
        }
        // Why: the latest and the oldest kept version differ between the servers.
        if let Some((head, _)) = text.split_once(", current: ") {
            text.truncate(head.len());
        }
        if let Some((head, _)) = text.split_once("too old resource version: ") {
            text = format!("{head}too old resource version");
        }
        // Why: a conflict names the time at which the other manager wrote.
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
                    // Why: entries are sorted by second, and a second may end between two writes on one server only.
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
                    // Why parts too: the key of a list's element may contain an owner's UID.
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

/// Keeps the parts of a failure that clients act on.
fn status(body: &mut Value) {
    if body["kind"] != "Status" {
        return;
    }
    let reason = body["reason"].as_str().unwrap_or_default().to_owned();
    if let Some(causes) = body["details"]["causes"].as_array_mut() {
        // Why: a real server lists them in the random order of a Go map.
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

/// Removes from a review the ownership of its fields, which no client reads, and the wording of the reason.
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
        // Why: a real server lists them in the random order of a Go map.
        let rules = body.get_mut("status").and_then(|status| status.get_mut(rules));
        if let Some(rules) = rules.and_then(Value::as_array_mut) {
            rules.sort_by_key(ToString::to_string);
        }
    }
}

/// Removes ownership from objects of the kind with two versions: a real server converts owned fields between versions, and the
/// embedded one compares them by name.
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

/// Removes the version of a list, which is that of the whole server, and other values that differ.
fn list(body: &mut Value) {
    owners_across_versions(body);
    for event in body.as_array_mut().into_iter().flatten() {
        // Why: a bookmark's version is that of the whole server.
        if event["type"] == "BOOKMARK" {
            event["object"]["metadata"]["resourceVersion"] = Value::Null;
        }
    }
    let resources = body.get_mut("resources").and_then(Value::as_array_mut);
    if let Some(resources) = resources {
        // Why: a real server lists them in the random order of a Go map.
        resources.sort_by_key(|resource| resource["name"].to_string());
    }
    let resources = body.get_mut("resources").and_then(Value::as_array_mut);
    for resource in resources.into_iter().flatten() {
        if let Some(resource) = resource.as_object_mut() {
            // Why: a digest by which the servers of one cluster differ during an upgrade.
            resource.remove("storageVersionHash");
        }
    }
    if (body["items"].is_array() || body["kind"] == "Table") && body["metadata"].is_object() {
        body["metadata"]["resourceVersion"] = Value::Null;
    }
    if body["kind"] == "Table" {
        // Why: descriptions are prose, and an age depends on the time of the request.
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
