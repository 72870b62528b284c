//! Server-side apply.

use serde_json::{Map, Value, json};

use super::compare::Difference;
use super::entries::{Change, Manager, Operation, UNOWNED, put, rob, take};
use super::set::{Set, is_leaf, steps};
use crate::failure::Failure;
use crate::schema::{ListKind, Node};

#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) object: Value,
}

/// Applies `config` onto `live` (null if there is none). *Errors*: fields that other managers own, unless `force`.
pub(crate) fn apply(
    live: &Value,
    config: &Value,
    change: &Change<'_>,
    force: Force,
) -> Result<Applied, Failure> {
    duplicates(config, change.node, "")?;
    let mut before = live.clone();
    let mut managers = take(&mut before);
    if before.is_null() {
        before = json!({});
    }
    let said = Set::of(config, change.node).without_below(change.reset);
    let wanted = said.without(&UNOWNED);
    let own = |manager: &Manager| manager.is(change, Operation::Apply);
    let last = managers
        .iter()
        .find(|manager| own(manager))
        .map(|manager| manager.fields.set().clone())
        .unwrap_or_default();
    let mut merged = merge(&before, config, change.node);
    if !last.is_empty() {
        // Why `said`, which includes unowned fields such as the name: otherwise the metadata would be pruned.
        let mut managed = said;
        for other in managers.iter().filter(|manager| !own(manager)) {
            managed.union(other.fields.set());
        }
        merged = prune(&merged, &last, &managed, change.node);
    }
    let mut difference = Difference::between(&before, &merged, change.node);
    let quiet = difference.is_empty() && live.is_object();
    difference.changed = difference.changed.without_below(change.reset);
    difference.removed = difference.removed.without_below(change.reset);
    if force == Force::No {
        conflicts(&managers, &difference, &own)?;
    }
    rob(&mut managers, &difference, own);
    // Why: an apply that changes only ownership does not set a time.
    let now = if quiet { None } else { Some(change.now) };
    match managers.iter_mut().find(|manager| own(manager)) {
        Some(manager) => {
            if let Some(now) = now {
                now.clone_into(&mut manager.time);
            }
            manager.fields = wanted.into();
        }
        None => managers.push(Manager {
            name: change.manager.to_owned(),
            operation: Operation::Apply,
            api_version: change.api_version.to_owned(),
            subresource: change.subresource.to_owned(),
            time: now.unwrap_or_default().to_owned(),
            fields: wanted.into(),
        }),
    }
    crate::json::object(&mut merged);
    put(&mut merged, managers);
    Ok(Applied { object: merged })
}

/// Whether an apply may take fields from their owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    Yes,
    No,
}

fn conflicts(
    managers: &[Manager],
    difference: &Difference,
    own: &dyn Fn(&Manager) -> bool,
) -> Result<(), Failure> {
    let mut fields = Vec::new();
    let mut by_manager: Vec<(String, Vec<String>)> = Vec::new();
    let mut others: Vec<&Manager> = managers.iter().filter(|manager| !own(manager)).collect();
    others.sort_by_key(|manager| (&manager.name, manager.operation, &manager.api_version));
    for manager in others {
        let paths = manager.fields.set().common(&difference.changed).paths();
        if paths.is_empty() {
            continue;
        }
        let mut words = format!("{:?}", manager.name);
        if !manager.subresource.is_empty() {
            words = format!("{words} with subresource {:?}", manager.subresource);
        }
        if manager.operation == Operation::Update {
            words = format!("{words} using {}", manager.api_version);
        }
        for path in &paths {
            fields.push((format!("conflict with {words}"), path.clone()));
        }
        by_manager.push((words, paths));
    }
    if fields.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = by_manager
        .iter()
        .map(|(words, paths)| {
            if by_manager.len() == 1
                && let [path] = paths.as_slice()
            {
                return format!("conflict with {words}: {path}");
            }
            let list: Vec<String> = paths.iter().map(|path| format!("- {path}")).collect();
            format!("conflicts with {words}:\n{}", list.join("\n"))
        })
        .collect();
    let plural = if fields.len() == 1 { "" } else { "s" };
    let message = format!(
        "Apply failed with {} conflict{plural}: {}",
        fields.len(),
        lines.join("\n")
    );
    Err(Failure::apply_conflict(message, &fields))
}

/// Removes fields that the applier owned, no longer applies, and no other manager owns. Structures are removed as a whole and
/// then restored with the fields that a manager still owns, so unowned fields go with their structure.
fn prune(merged: &Value, last: &Set, managed: &Set, node: &Node) -> Value {
    let of = |value: &Value| Set::of(value, node).with_structures(node);
    let (last, all) = (last.with_structures(node), of(merged));
    let mut kept = of(&remove(merged, &last, node));
    kept.union(&managed.with_structures(node));
    let back = of(&remove(merged, &all.without(&kept), node));
    remove(merged, &all.without(&back).common(&last), node)
}

/// A value without the fields of a set. Wire: a structure that becomes empty is null, as on a real server.
fn remove(value: &Value, fields: &Set, node: &Node) -> Value {
    if let Some(map) = value.as_object() {
        if node.is_atomic_map() {
            return Value::Null;
        }
        let mut out = Map::new();
        for (name, inner) in map {
            let step = format!("f:{name}");
            if fields.members.contains(&step) {
                continue;
            }
            let left = match fields.child(&step) {
                Some(child) if !child.is_empty() => remove(inner, child, node.field_or_any(name)),
                _ => inner.clone(),
            };
            out.insert(name.clone(), left);
        }
        return if out.is_empty() {
            Value::Null
        } else {
            Value::Object(out)
        };
    }
    let Some(list) = value.as_array() else {
        return value.clone();
    };
    let Some(steps) = steps(list, node) else {
        return Value::Null;
    };
    let mut out = Vec::new();
    for (step, item) in steps.iter().zip(list) {
        if fields.members.contains(step) {
            continue;
        }
        out.push(match fields.child(step) {
            Some(child) if !child.is_empty() => remove(item, child, node.element()),
            _ => item.clone(),
        });
    }
    if out.is_empty() {
        Value::Null
    } else {
        Value::Array(out)
    }
}

/// The union of two objects, where the second wins.
fn merge(live: &Value, config: &Value, node: &Node) -> Value {
    match (live, config) {
        (Value::Object(before), Value::Object(after)) if !node.is_atomic_map() => {
            let mut out = before.clone();
            for (name, value) in after {
                let merged = match before.get(name) {
                    Some(old) => merge(old, value, node.field_or_any(name)),
                    None => value.clone(),
                };
                out.insert(name.clone(), merged);
            }
            Value::Object(out)
        }
        (Value::Array(before), Value::Array(after)) if !is_leaf(config, node) => {
            merge_lists(before, after, node)
        }
        _ => config.clone(),
    }
}

/// Merges two lists by the keys of their elements; without keys the applied list wins. Where the orders differ, its order wins.
fn merge_lists(before: &[Value], after: &[Value], node: &Node) -> Value {
    let (Some(old_steps), Some(new_steps)) = (steps(before, node), steps(after, node)) else {
        return after.to_vec().into();
    };
    let old_at = |step: &String| old_steps.iter().position(|other| other == step);
    let mut shared = new_steps.iter().filter(|step| old_steps.contains(step));
    let mut next_shared = shared.next();
    let mut out = Vec::new();
    let (mut old, mut new) = (0, 0);
    while old < before.len() || new < after.len() {
        let here = old_steps.get(old);
        let there = new_steps.get(new);
        if let Some(step) = here
            && !new_steps.contains(step)
        {
            out.push(before[old].clone());
            old += 1;
        } else if let Some(step) = here
            && next_shared != Some(step)
        {
            // This element is placed where the applied list has it.
            old += 1;
        } else if let Some(step) = there {
            match old_at(step) {
                None => out.push(after[new].clone()),
                Some(at) => {
                    out.push(merge(&before[at], &after[new], node.element()));
                    next_shared = shared.next();
                    if here == Some(step) {
                        old += 1;
                    }
                }
            }
            new += 1;
        } else {
            old += 1;
        }
    }
    out.into()
}

/// Refuses a list that has two elements with the same key.
fn duplicates(value: &Value, node: &Node, path: &str) -> Result<(), Failure> {
    if let Some(map) = value.as_object() {
        for (name, inner) in map {
            duplicates(inner, node.field_or_any(name), &format!("{path}.{name}"))?;
        }
    } else if let Some(list) = value.as_array()
        && let Some(steps) = steps(list, node)
    {
        for (index, (step, item)) in steps.iter().zip(list).enumerate() {
            if steps[..index].contains(step) {
                let shown = step.split_at(2).1;
                let what = match node.list_kind() {
                    ListKind::Map(_) => format!("duplicate entries for key {shown}"),
                    ListKind::Set | ListKind::Atomic => format!("duplicate entries for key [={shown}]"),
                };
                return Err(Failure::internal_apply(&format!("{path}: {what}")));
            }
            duplicates(item, node.element(), &format!("{path}[{index}]"))?;
        }
    }
    Ok(())
}
