//! Access to the fields of an object that was not checked.
//!
//! Invariant: absent and null are the same; every other value of a wrong type is an error that names the field.

use serde_json::{Map, Value};

/// The fields of a JSON object.
pub(super) type Fields = Map<String, Value>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Path from the root, `[]` for any element of a list.
    pub(super) field: &'static str,
    pub(super) expected: &'static str,
}

impl Wrong {
    pub(super) const fn new(field: &'static str, expected: &'static str) -> Self {
        Self { field, expected }
    }
}

fn leaf(path: &'static str) -> &'static str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The object at the path's last name below `parent`.
pub(super) fn object<'a>(
    parent: &'a mut Fields,
    path: &'static str,
) -> Result<Option<&'a mut Fields>, Wrong> {
    match parent.get_mut(leaf(path)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields)),
        Some(_) => Err(Wrong::new(path, "an object")),
    }
}

/// The object at the path's last name below `parent`; created if missing.
pub(super) fn object_or_new<'a>(parent: &'a mut Fields, path: &'static str) -> Result<&'a mut Fields, Wrong> {
    let value = parent.entry(leaf(path)).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Fields::new());
    }
    value.as_object_mut().ok_or_else(|| Wrong::new(path, "an object"))
}

/// The list at the path's last name below `parent`; empty if missing.
pub(super) fn objects<'a>(
    parent: &'a mut Fields,
    path: &'static str,
) -> Result<impl Iterator<Item = Result<&'a mut Fields, Wrong>>, Wrong> {
    let items: &mut [Value] = match parent.get_mut(leaf(path)) {
        None | Some(Value::Null) => &mut [],
        Some(Value::Array(items)) => items,
        Some(_) => return Err(Wrong::new(path, "a list")),
    };
    Ok(items.iter_mut().map(move |item| {
        item.as_object_mut()
            .ok_or_else(|| Wrong::new(path, "a list of objects"))
    }))
}

/// Removes and returns the value of a name; null counts as missing.
pub(super) fn take(parent: &mut Fields, name: &str) -> Option<Value> {
    parent.remove(name).filter(|value| !value.is_null())
}

/// Removes and returns the text at the path's last name.
pub(super) fn take_text(parent: &mut Fields, path: &'static str) -> Result<Option<String>, Wrong> {
    match take(parent, leaf(path)) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Wrong::new(path, "text")),
    }
}

pub(super) fn rename(parent: &mut Fields, from: &str, to: &str) {
    if let Some(value) = parent.remove(from) {
        parent.insert(to.to_owned(), value);
    }
}
