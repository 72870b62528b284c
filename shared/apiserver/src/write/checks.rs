//! Checks of a write before it is stored.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::builtin::{self, Part};
use crate::decode::Findings;
use crate::failure::{Cause, Failure};
use crate::kinds::{Kind, Scope};
use crate::managed::Set;
use crate::names;
use crate::request::{Call, FieldValidation};
use crate::server::Server;
use crate::{custom, json};

const OBJECT_BYTES_MAX: usize = 1_500_000;

impl Server {
    pub(super) fn validate_create(call: &Call, object: &Value) -> Vec<Cause> {
        let kind = &call.kind;
        let mut causes = names::check_meta(object, kind.names, finalizers_of(kind));
        let blocked = causes.iter().any(Cause::blocks);
        causes.extend(Self::validate(kind, object, None, blocked));
        if !kind.is_custom() {
            causes.extend(builtin::validate(kind, object));
        }
        causes
    }

    fn validate(kind: &Kind, object: &Value, old: Option<&Value>, blocked: bool) -> Vec<Cause> {
        if !kind.is_custom() {
            return Vec::new();
        }
        let complaints = custom::validate(object, &kind.node);
        let mut causes = complaints.causes;
        for path in kind.scale.iter().flat_map(|scale| [&scale.spec, &scale.status]) {
            let steps: Vec<&str> = path.split('.').filter(|step| !step.is_empty()).collect();
            let broken = (1..steps.len())
                .any(|length| json::at(object, &steps[..length]).is_some_and(|above| !above.is_object()));
            let value = json::at(object, &steps);
            if broken || value.is_some_and(|value| value.as_i64().is_none_or(|n| n < 0)) {
                let says = "should be a non-negative integer";
                causes.push(Cause::invalid(path.as_str(), value.unwrap_or(&Value::Null), says));
            }
        }
        if complaints.blocking || blocked {
            if kind.node.has_rules() {
                causes.push(Cause::unchecked());
            }
        } else {
            causes.extend(custom::rules(object, old, &kind.node));
        }
        if let Some(old) = old
            && !causes.is_empty()
        {
            // Why: a violation that the stored object already has is let through.
            let before = custom::validate(old, &kind.node).causes;
            if !before.is_empty() {
                causes.retain(|cause| !before.contains(cause));
            }
        }
        causes
    }

    pub(super) fn validate_update(call: &Call, part: Part, object: &Value, old: &Value) -> Vec<Cause> {
        let kind = &call.kind;
        let mut causes = Vec::new();
        for field in ["name", "namespace", "generateName"] {
            if field != "generateName" && object["metadata"][field] != old["metadata"][field] {
                causes.push(Cause::immutable(
                    format!("metadata.{field}"),
                    &object["metadata"][field],
                ));
            }
        }
        causes.extend(names::check_meta(object, kind.names, finalizers_of(kind)));
        if old["metadata"]["deletionTimestamp"].is_string() {
            let before = json::items(old, &["metadata", "finalizers"]);
            let new: Vec<&str> = json::texts(object, &["metadata", "finalizers"])
                .into_iter()
                .filter(|finalizer| !before.iter().any(|known| known == finalizer))
                .collect();
            if !new.is_empty() {
                let says = format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    new.iter()
                        .map(|name| format!("{name:?}"))
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                causes.push(Cause::forbidden("metadata.finalizers", &says));
            }
        }
        let blocked = causes.iter().any(Cause::blocks);
        causes.extend(Self::validate(kind, object, Some(old), blocked));
        if !kind.is_custom() {
            if part == Part::Main {
                causes.extend(builtin::validate(kind, object));
            }
            causes.extend(builtin::validate_update(kind, part, object, old));
        }
        causes
    }
}

fn finalizers_of(kind: &Kind) -> names::Finalizers {
    let plain = ["coordination.k8s.io", "node.k8s.io", crate::kinds::EXTENSIONS];
    let event = kind.is("", "events");
    if kind.is_custom() || event || plain.contains(&kind.group.as_str()) {
        names::Finalizers::Any
    } else {
        names::Finalizers::Qualified
    }
}

/// Fields that a request to the object itself cannot set, if the kind has a status subresource.
static NOT_BY_MAIN: LazyLock<Set> = LazyLock::new(|| Set::from_json(&json!({"f:status": {}})));
/// Fields that a request to the status cannot set.
static NOT_BY_STATUS: LazyLock<Set> = LazyLock::new(|| Set::from_json(&json!({"f:spec": {}})));
static NOT_BY_POD_STATUS: LazyLock<Set> = LazyLock::new(|| {
    Set::from_json(&json!({"f:spec": {}, "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}}))
});
static NOT_BY_CUSTOM_STATUS: LazyLock<Set> = LazyLock::new(|| {
    Set::from_json(&json!({"f:spec": {}, "f:metadata": {
        ".": {}, "f:labels": {}, "f:annotations": {}, "f:finalizers": {}, "f:ownerReferences": {},
        "f:deletionTimestamp": {}, "f:managedFields": {}, "f:selfLink": {},
    }}))
});
static NOTHING: LazyLock<Set> = LazyLock::new(Set::default);

/// The fields that a request to one part of an object cannot set.
pub(super) fn reset_fields(kind: &Kind, part: Part) -> &'static Set {
    match part {
        Part::Main if kind.status => &NOT_BY_MAIN,
        Part::Main => &NOTHING,
        Part::Status if kind.is_custom() => &NOT_BY_CUSTOM_STATUS,
        Part::Status if kind.plural == "pods" => &NOT_BY_POD_STATUS,
        Part::Status => &NOT_BY_STATUS,
    }
}

/// Whether nothing changed, apart from the version and the times of ownership entries.
pub(super) fn same(object: &Value, old: &Value) -> bool {
    let times = |entry: &Value, other: &Value| equal_but(entry, other, "time", |_, _| true);
    let entries = |list: &Value, other: &Value| match (list.as_array(), other.as_array()) {
        (Some(list), Some(other)) => {
            list.len() == other.len() && list.iter().zip(other).all(|(entry, other)| times(entry, other))
        }
        _ => list == other,
    };
    let meta = |meta: &Value, other: &Value| {
        let (Some(map), Some(others)) = (meta.as_object(), other.as_object()) else {
            return meta == other;
        };
        let counts =
            |(name, _): &(&String, &Value)| !["resourceVersion", "managedFields"].contains(&name.as_str());
        let number = |map: &Map<String, Value>| map.iter().filter(counts).count();
        number(map) == number(others)
            && { map.iter() }
                .filter(counts)
                .all(|(name, value)| others.get(name) == Some(value))
            && entries(&meta["managedFields"], &other["managedFields"])
    };
    equal_but(object, old, "metadata", meta)
}

/// Whether two objects are equal, where `alike` compares the one field `field`.
fn equal_but(one: &Value, other: &Value, field: &str, alike: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(map), Some(others)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let plain = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(field));
    plain(map) == plain(others)
        && map
            .iter()
            .all(|(name, value)| name == field || others.get(name) == Some(value))
        && alike(&one[field], &other[field])
}

/// Sets the namespace to the path's. *Errors*: the object names another one.
pub(super) fn settle_namespace(call: &Call, object: &mut Value) -> Result<(), Failure> {
    let given = json::text(object, &["metadata", "namespace"]).to_owned();
    match call.kind.scope {
        Scope::Cluster => {
            json::remove(object, &["metadata", "namespace"]);
            Ok(())
        }
        Scope::Namespaced => {
            if !given.is_empty() && given != call.path.namespace {
                return Err(Failure::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            json::set(object, &["metadata", "namespace"], call.path.namespace.as_str());
            Ok(())
        }
    }
}

pub(super) fn too_big(object: &Value) -> Result<(), Failure> {
    // Why first: ordinary objects are far below the limit, and an estimate is cheaper than serialization.
    if bytes_at_most(object) <= OBJECT_BYTES_MAX {
        return Ok(());
    }
    let mut length = Length(0);
    // Why ignored: counting cannot fail.
    drop(serde_json::to_writer(&mut length, object));
    if length.0 > OBJECT_BYTES_MAX {
        return Err(Failure::too_large(OBJECT_BYTES_MAX));
    }
    Ok(())
}

/// An upper bound of the bytes of a value as JSON.
fn bytes_at_most(value: &Value) -> usize {
    /// Bytes of one number with its punctuation.
    const NUMBER: usize = 40;
    const ESCAPED: usize = 6;
    let text = |text: &str| text.len() * ESCAPED + 4;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => NUMBER,
        Value::String(inner) => text(inner),
        Value::Array(all) => all.iter().map(bytes_at_most).sum::<usize>() + all.len() + 2,
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, inner)| text(name) + bytes_at_most(inner));
            fields.sum::<usize>() + 4
        }
    }
}

/// A writer that only counts bytes.
struct Length(usize);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Refuses or reports what decoding found.
pub(super) fn report(call: &Call, findings: &Findings, warnings: &mut Vec<String>) -> Result<(), Failure> {
    let kind = &call.kind;
    if let Some(wrong) = &findings.wrong {
        return Err(Failure::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {wrong}",
            kind.kind, kind.version, kind.kind
        )));
    }
    unknown(call, findings, warnings)
}

fn unknown(call: &Call, findings: &Findings, warnings: &mut Vec<String>) -> Result<(), Failure> {
    let kind = &call.kind;
    let lines = || {
        findings
            .unknown
            .iter()
            .map(|path| format!("unknown field {path:?}"))
    };
    if findings.unknown.is_empty() {
        return Ok(());
    }
    match call.field_validation()? {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(lines()),
        FieldValidation::Strict => {
            let all: Vec<String> = lines().collect();
            let subject = if call.content_type().contains("patch") {
                "strict decoding error".to_owned()
            } else {
                format!(
                    "{} in version {:?} cannot be handled as a {}: strict decoding error",
                    kind.kind, kind.version, kind.kind
                )
            };
            return Err(Failure::bad_request(format!("{subject}: {}", all.join(", "))));
        }
    }
    Ok(())
}

/// Refuses an apply with unknown fields, whatever `fieldValidation` says.
pub(super) fn report_apply(call: &Call, findings: &Findings) -> Result<(), Failure> {
    match findings.unknown.first() {
        None => Ok(()),
        Some(path) => Err(untyped(call, &format!(".{path}: field not declared in schema"))),
    }
}

/// The failure of an apply whose configuration does not fit the shape of its kind.
pub(super) fn untyped(call: &Call, message: &str) -> Failure {
    Failure::internal_plain(&format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {message}",
        call.path.namespace,
        call.path.name,
        call.kind.api_version(),
        call.kind.kind
    ))
}

/// Takes the values of the sent fields from the decoded object.
pub(super) fn keep_said(said: &mut Value, typed: &Value) {
    if let (Some(map), Some(other)) = (said.as_object_mut(), typed.as_object()) {
        map.retain(|_, value| !value.is_null());
        for (name, value) in map.iter_mut() {
            if let Some(other) = other.get(name) {
                keep_said(value, other);
            }
        }
    } else if let (Some(list), Some(other)) = (said.as_array_mut(), typed.as_array()) {
        for (value, other) in list.iter_mut().zip(other) {
            keep_said(value, other);
        }
    } else if !typed.is_null() {
        *said = typed.clone();
    }
}
