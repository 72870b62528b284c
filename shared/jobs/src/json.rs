//! Reading and writing fields of untyped objects, and the difference of two objects as a merge patch.

use serde_json::{Map, Value, json};

/// The value at a path; `None` when a part of it is missing or null.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, key| value.get(key))
        .filter(|value| !value.is_null())
}

/// The text at a path.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(object, path)?.as_str()
}

/// The whole number at a path.
pub fn int(object: &Value, path: &[&str]) -> Option<i64> {
    at(object, path)?.as_i64()
}

/// Whether the value at a path is `true`.
pub fn is_true(object: &Value, path: &[&str]) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(false)
}

/// The list at a path; empty when there is none.
pub fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The status of a job in the form of a patch.
pub(crate) fn status_of(job: &Value) -> Value {
    json!({"status": at(job, &["status"]).cloned().unwrap_or_else(|| json!({}))})
}

/// Sets the value at a path. Objects on the way are created, and replace values that are no objects.
pub fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut place = object;
    for key in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry(*key).or_insert(Value::Null);
    }
    *place = value;
}

/// Removes the value at a path, if it is there.
pub fn remove(object: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let parent = parents.iter().try_fold(object, |value, key| value.get_mut(*key));
    if let Some(fields) = parent.and_then(Value::as_object_mut) {
        fields.remove(*last);
    }
}

/// The type of a value, for messages.
pub const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The JSON merge patch (RFC 7386) that turns `before` into `after`; `None` when nothing differs.
///
/// A null in `after` means the same as an absent field.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        let known = old.get(key).filter(|known| !known.is_null());
        match known {
            None if value.is_null() => {}
            None => {
                patch.insert(key.clone(), value.clone());
            }
            Some(known) => {
                if let Some(part) = difference(known, value) {
                    patch.insert(key.clone(), part);
                }
            }
        }
    }
    for (key, value) in old {
        if !value.is_null() && !new.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{at, difference, remove, set};

    #[test]
    fn the_difference_names_only_what_differs() {
        let check = |before: Value, after: Value, patch: Option<Value>| {
            assert_eq!(difference(&before, &after), patch);
        };
        check(
            json!({"a": 1, "b": {"c": [1]}}),
            json!({"a": 1, "b": {"c": [1]}}),
            None,
        );
        check(json!({"a": 1}), json!({"a": 2}), Some(json!({"a": 2})));
        check(
            json!({"a": 1, "b": {"c": 1, "d": 2}}),
            json!({"b": {"c": 1, "e": [3]}}),
            Some(json!({"a": null, "b": {"d": null, "e": [3]}})),
        );
        check(json!({"a": null}), json!({}), None);
        check(json!({}), json!({"a": null}), None);
    }

    #[test]
    fn paths_are_made_and_removed() {
        let mut object = json!({"spec": null});
        set(&mut object, &["spec", "template", "x"], json!(1));
        assert_eq!(at(&object, &["spec", "template", "x"]), Some(&json!(1)));
        remove(&mut object, &["spec", "template", "x"]);
        remove(&mut object, &["no", "such"]);
        assert_eq!(object, json!({"spec": {"template": {}}}));
    }
}
