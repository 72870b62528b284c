//! Merge patch, JSON patch and strategic merge patch.

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::schema::Node;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Kind {
    /// By the media type of the request.
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// Operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

pub(crate) fn json(mut object: Value, patch: &Value) -> Result<Value, Failure> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
    if operations.0.len() > OPERATIONS_MAX {
        return Err(Failure::bad_request(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.0.len()
        )));
    }
    json_patch::patch(&mut object, &operations).map_err(|_why| Failure::unprocessable())?;
    Ok(object)
}

pub(crate) fn merge(mut object: Value, patch: &Value) -> Value {
    json_patch::merge(&mut object, patch);
    object
}

/// Applies a strategic merge patch. *Errors*: a directive that makes no sense.
pub(crate) fn strategic(mut object: Value, patch: &Value, node: &Node) -> Result<Value, Failure> {
    merge_map(&mut object, patch, node)?;
    Ok(object)
}

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

fn merge_map(target: &mut Value, patch: &Value, node: &Node) -> Result<(), Failure> {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            let mut map = patch.clone();
            map.remove(DIRECTIVE);
            *target = Value::Object(map);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => {
            return Err(Failure::bad_request(format!("unknown patch type found: {other}")));
        }
    }
    let map = crate::json::object(target);
    if let Some(retain) = patch.get(RETAIN).and_then(Value::as_array) {
        map.retain(|name, _| retain.iter().any(|kept| kept == name.as_str()));
    }
    for (name, value) in patch {
        if name == DIRECTIVE || name == RETAIN || name.starts_with(ORDER) {
            continue;
        }
        if let Some(field) = name.strip_prefix(DELETE_PRIMITIVES) {
            if let (Some(list), Some(gone)) =
                (map.get_mut(field).and_then(Value::as_array_mut), value.as_array())
            {
                list.retain(|item| !gone.contains(item));
            }
            continue;
        }
        let field = node.field_or_any(name);
        if value.is_null() {
            map.remove(name);
        } else if value.is_object() {
            let deletes = value
                .get(DIRECTIVE)
                .is_some_and(|directive| directive == "delete");
            if deletes {
                map.remove(name);
                continue;
            }
            let there = map
                .entry(name.clone())
                .or_insert_with(|| Value::Object(Map::new()));
            if there.is_object() {
                merge_map(there, value, field)?;
            } else {
                *there = without_directives(value);
            }
        } else if let (Some(list), true) = (value.as_array(), field.merge) {
            let there = map
                .entry(name.clone())
                .or_insert_with(|| Value::Array(Vec::new()));
            merge_list(there, list, field)?;
        } else {
            map.insert(name.clone(), without_directives(value));
        }
    }
    for (name, order) in patch {
        let Some(field) = name.strip_prefix(ORDER) else {
            continue;
        };
        let node = node.field_or_any(field);
        if let (Some(list), Some(order)) =
            (map.get_mut(field).and_then(Value::as_array_mut), order.as_array())
        {
            sort_by(list, order, node.merge_key.as_deref());
        }
    }
    Ok(())
}

fn merge_list(target: &mut Value, patch: &[Value], node: &Node) -> Result<(), Failure> {
    let mut list = target.as_array().cloned().unwrap_or_default();
    let Some(key) = node.merge_key.as_deref() else {
        // A list of plain values is a set.
        for item in patch {
            if !list.contains(item) {
                list.push(item.clone());
            }
        }
        *target = list.into();
        return Ok(());
    };
    let replaces = patch.iter().any(|item| {
        item.as_object()
            .is_some_and(|map| map.len() == 1 && map.get(DIRECTIVE).is_some_and(|d| d == "replace"))
    });
    if replaces {
        list.clear();
    }
    for item in patch {
        let directive = item.get(DIRECTIVE).and_then(Value::as_str);
        if directive == Some("replace") && item.as_object().is_some_and(|map| map.len() == 1) {
            continue;
        }
        let Some(value) = item.get(key) else {
            return Err(Failure::internal_plain(&format!(
                "map: {item} does not contain declared merge key: {key}"
            )));
        };
        let at = list.iter().position(|other| other.get(key) == Some(value));
        match (directive, at) {
            (Some("delete"), Some(_)) => list.retain(|other| other.get(key) != Some(value)),
            (Some("delete"), None) => {}
            (_, Some(at)) => merge_map(&mut list[at], item, node.element())?,
            (_, None) => {
                let mut fresh = Value::Object(Map::new());
                merge_map(&mut fresh, item, node.element())?;
                list.push(fresh);
            }
        }
    }
    *target = list.into();
    Ok(())
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
            .map(|(name, value)| (name.clone(), without_directives(value)))
            .collect(),
        Value::Array(list) => list.iter().map(without_directives).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Sorts the elements that `order` names and puts the others behind them.
fn sort_by(list: &mut Vec<Value>, order: &[Value], key: Option<&str>) {
    let place = |item: &Value| {
        let name = key.map_or(Some(item), |key| item.get(key));
        order.iter().position(|entry| {
            let wanted = key.map_or(Some(entry), |key| entry.get(key));
            wanted.is_some() && wanted == name
        })
    };
    let mut named: Vec<(usize, Value)> = Vec::new();
    let mut others: Vec<Value> = Vec::new();
    for item in list.drain(..) {
        match place(&item) {
            Some(at) => named.push((at, item)),
            None => others.push(item),
        }
    }
    named.sort_by_key(|(at, _)| *at);
    // Why last: `order` does not know elements that another client added.
    list.extend(named.into_iter().map(|(_, item)| item));
    list.extend(others);
}
