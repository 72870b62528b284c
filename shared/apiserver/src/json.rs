//! Reading and writing fields of JSON objects.

use serde::Serialize;
use serde_json::{Map, Value};

/// A value as JSON bytes. Why not its `Display`: that checks each piece of text once more.
pub(crate) fn bytes(value: &impl Serialize) -> Vec<u8> {
    // Why no error: serialization fails only for maps whose keys are not strings.
    serde_json::to_vec(value).unwrap_or_default()
}

/// The value below the fields of `path`, if all are there.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(value, |value, field| value.get(field))
        .filter(|value| !value.is_null())
}

pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list at `path`, or none.
pub(crate) fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The strings of the list at `path`, or none.
pub(crate) fn texts<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a str> {
    items(value, path).iter().filter_map(Value::as_str).collect()
}

/// The value as an object; any other value is replaced by an empty object.
pub(crate) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("it was made an object above")
        }
    }
}

/// Sets a field and creates missing objects on the way.
pub(crate) fn set(value: &mut Value, path: &[&str], to: impl Into<Value>) {
    let Some((last, way)) = path.split_last() else {
        *value = to.into();
        return;
    };
    let mut here = value;
    for field in way {
        here = object(here).entry((*field).to_owned()).or_insert(Value::Null);
    }
    object(here).insert((*last).to_owned(), to.into());
}

/// Sets a field that is absent or null.
pub(crate) fn default(value: &mut Value, path: &[&str], to: impl Into<Value>) {
    if at(value, path).is_none() {
        set(value, path, to);
    }
}

/// Takes a field away.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    let mut here = value;
    for field in way {
        here = here.get_mut(field)?;
    }
    here.as_object_mut()?.remove(*last)
}

/// Copies a field from another object, or removes it where the other has none.
pub(crate) fn copy(to: &mut Value, from: &Value, path: &[&str]) {
    match at(from, path) {
        Some(value) => set(to, path, value.clone()),
        None => drop(remove(to, path)),
    }
}

/// The value at `path`, mutable; creates nothing.
pub(crate) fn at_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter()
        .try_fold(value, |value, field| value.get_mut(field))
        .filter(|value| !value.is_null())
}

/// The elements of the list at `path`, mutable; creates nothing.
pub(crate) fn items_mut<'a>(
    value: &'a mut Value,
    path: &[&str],
) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    at_mut(value, path)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}
