//! Each rule of the schemas with an example that the server takes and one that it refuses, with its words.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the tables write values on the spot; a borrow in front of each would hide them"
)]

mod federation;
mod quotas;
mod statuses;
mod workloads;
mod wrappers;

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::fixture::{Shared, on_plane};

const TIME: &str = "2026-01-01T00:00:00Z";
const UNIQUE: &str = "Duplicate value";
const REQUIRED: &str = "Required value";
const PATTERN: &str = "should match";
const POSITIVE: &str = "greater than or equal to 1";
const NOT_NEGATIVE: &str = "greater than or equal to 0";
const IMMUTABLE: &str = "field is immutable";
const AT_LEAST_ONE: &str = "at least 1 items";
const NOT_EMPTY: &str = "at least 1 chars long";

/// One object and what the server says: nothing, or a refusal with these words.
#[derive(Clone, Debug)]
struct Case {
    kind: &'static str,
    /// Fields of the object that is there before, if this is a change.
    before: Option<Value>,
    /// Fields of the object; the status is written after the rest, as the server wants it.
    fields: Value,
    refusal: Option<&'static str>,
}

/// A new object that is taken.
fn ok(kind: &'static str, spec: Value) -> Case {
    Case {
        kind,
        before: None,
        fields: json!({"spec": spec}),
        refusal: None,
    }
}

/// A new object that is refused.
fn no(kind: &'static str, spec: Value, words: &'static str) -> Case {
    ok(kind, spec).refused(words)
}

/// A change of the spec that is taken.
fn change(kind: &'static str, old: Value, new: Value) -> Case {
    ok(kind, new).after(json!({"spec": old}))
}

/// A change of the spec that is refused.
fn no_change(kind: &'static str, old: Value, new: Value, words: &'static str) -> Case {
    change(kind, old, new).refused(words)
}

impl Case {
    fn refused(mut self, words: &'static str) -> Self {
        self.refusal = Some(words);
        self
    }

    fn after(mut self, before: Value) -> Self {
        self.before = Some(before);
        self
    }

    /// What the server says; `Ok` if it takes it.
    async fn said(&self, shared: &Shared, version: &str, name: &str) -> Result<(), String> {
        let create = async |fields: &Value| {
            // Why: the server drops the status of a new object.
            let made = shared
                .create(version, self.kind, name, &without_status(fields))
                .await?;
            with_status(shared, made, fields).await
        };
        let Some(before) = &self.before else {
            return create(&self.fields).await.map(drop);
        };
        let mut stored = create(before).await.map_err(|error| format!("before: {error}"))?;
        for (field, value) in without_status(&self.fields).as_object().unwrap() {
            stored[field] = value.clone();
        }
        if self.fields.get("spec").is_some() {
            stored = shared.replace(&stored).await?;
        }
        with_status(shared, stored, &self.fields).await.map(drop)
    }
}

fn without_status(fields: &Value) -> Value {
    let mut fields = fields.clone();
    fields.as_object_mut().unwrap().remove("status");
    fields
}

async fn with_status(shared: &Shared, mut stored: Value, fields: &Value) -> Result<Value, String> {
    let Some(status) = fields.get("status") else {
        return Ok(stored);
    };
    stored["status"] = status.clone();
    shared.replace_status(&stored).await
}

/// Runs cases in a version and complains of all that went otherwise.
async fn check(shared: &Shared, version: &str, cases: Vec<Case>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut wrong = Vec::new();
    for case in cases {
        let name = format!("rule-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let said = case.said(shared, version, &name).await;
        let right = match (&said, case.refusal) {
            (Ok(()), None) => true,
            (Err(message), Some(words)) => message.contains(words) && !message.starts_with("before: "),
            (Ok(()), Some(_)) | (Err(_), None) => false,
        };
        if !right {
            let fields: String = case.fields.to_string().chars().take(300).collect();
            wrong.push(format!(
                "{version} {} {fields}: wanted {:?}, got {said:?}",
                case.kind, case.refusal
            ));
        }
        let stored = &shared.definition(case.kind).spec.versions[0].name;
        let path = format!("{}/{name}", shared.path(case.kind, stored));
        let _ = shared.ask("DELETE", &path, None).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs cases in these versions.
fn in_versions(versions: &'static [&'static str], cases: impl Fn() -> Vec<Case>) {
    on_plane(|shared| async move {
        for version in versions {
            check(shared, version, cases()).await;
        }
    });
}

/// The fields of both.
fn merged(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// So many entries made from their number.
fn many(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    (0..count).map(entry).collect()
}

/// So many characters.
fn long(count: usize) -> String {
    "a".repeat(count)
}

/// Rules of a list of tolerations at the place that `put` fills.
fn tolerations(put: impl Fn(Value) -> Case) -> Vec<Case> {
    let one = |toleration: Value| put(json!([toleration]));
    vec![
        one(json!({"operator": "Exists"})),
        one(
            json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}),
        ),
        one(json!({"operator": "Equal", "value": "b"}))
            .refused("operator must be Exists when 'key' is empty"),
        one(json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}))
            .refused("effect must be 'NoExecute' when 'tolerationSeconds' is set"),
        one(json!({"key": "a", "operator": "Like"})).refused("supported toleration operators"),
        one(json!({"key": "a", "operator": "Exists", "value": "b"}))
            .refused("a value must be empty when 'operator' is 'Exists'"),
        one(json!({"key": "a", "effect": "Nope"})).refused("supported toleration effects"),
        put(many(8, |_| json!({"key": "a"}))),
        put(many(9, |_| json!({"key": "a"}))).refused("at most 8 items"),
    ]
}
