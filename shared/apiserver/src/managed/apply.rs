//! Server-side apply.

use serde_json::{Map, Value, json};

use super::compare::Difference;
use super::entries::{Change, Manager, Operation, put, rob, take, unowned};
use super::set::{Set, is_leaf, steps};
use crate::failure::Failure;
use crate::schema::{ListKind, Node};

/// What an apply makes of an object.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) object: Value,
}

/// Applies `config` onto `live` (null if there is none). *Errors*: fields that others own, unless `force`.
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
    let wanted = Set::of(config, change.node)
        .without(&unowned())
        .without_below(change.reset);
    let own = |manager: &Manager| manager.is(change, Operation::Apply);
    let last = managers
        .iter()
        .find(|manager| own(manager))
        .map(|manager| manager.fields.clone())
        .unwrap_or_default();
    let mut merged = merge(&before, config, change.node);
    // Why by the set and not by the old configuration: the set is all that is kept of it.
    let mut given_up = last.without(&wanted);
    for other in managers.iter().filter(|manager| !own(manager)) {
        given_up = spare(&given_up, &other.fields);
    }
    let given_up = spare(&given_up, &wanted);
    drop_fields(&mut merged, &given_up, change.node);
    let mut difference = Difference::between(&before, &merged, change.node);
    let quiet = difference.is_empty() && live.is_object();
    difference.changed = difference.changed.without_below(change.reset);
    difference.removed = difference.removed.without_below(change.reset);
    if force == Force::No {
        conflicts(&managers, &difference, &own)?;
    }
    rob(&mut managers, &difference, own);
    // Why: an apply that changes nothing but who owns what has no time of its own.
    let now = if quiet { None } else { Some(change.now) };
    match managers.iter_mut().find(|manager| own(manager)) {
        Some(manager) => {
            if let Some(now) = now {
                now.clone_into(&mut manager.time);
            }
            manager.fields = wanted;
        }
        None => managers.push(Manager {
            name: change.manager.to_owned(),
            operation: Operation::Apply,
            api_version: change.api_version.to_owned(),
            subresource: change.subresource.to_owned(),
            time: now.unwrap_or_default().to_owned(),
            fields: wanted,
        }),
    }
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
        let paths = manager.fields.common(&difference.changed).paths();
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

/// What is left of `fields` when everything that `others` own, and what holds it, is spared.
fn spare(fields: &Set, others: &Set) -> Set {
    let mut left = Set::default();
    for member in &fields.members {
        if !others.touches(member) {
            left.members.insert(member.clone());
        }
    }
    for (step, child) in &fields.children {
        let child = match others.child(step) {
            Some(theirs) => spare(child, theirs),
            None => child.clone(),
        };
        if !child.is_empty() {
            left.children.insert(step.clone(), child);
        }
    }
    left
}

/// Removes fields of a set from a value.
fn drop_fields(value: &mut Value, fields: &Set, node: &Node) {
    if let Some(map) = value.as_object_mut() {
        let names: Vec<String> = map.keys().cloned().collect();
        for name in names {
            let step = format!("f:{name}");
            if fields.members.contains(&step) {
                map.remove(&name);
            } else if let Some(child) = fields.child(&step)
                && let Some(inner) = map.get_mut(&name)
            {
                drop_fields(inner, child, node.field_or_any(&name));
                let emptied = inner.as_object().is_some_and(Map::is_empty)
                    || inner.as_array().is_some_and(Vec::is_empty);
                if emptied {
                    map.remove(&name);
                }
            }
        }
    } else if let Some(list) = value.as_array_mut()
        && let Some(steps) = steps(list, node)
    {
        let mut steps = steps.into_iter();
        let element = node.element();
        list.retain_mut(|item| {
            let Some(step) = steps.next() else { return true };
            if fields.members.contains(&step) {
                return false;
            }
            if let Some(child) = fields.child(&step) {
                drop_fields(item, child, element);
            }
            true
        });
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

/// Keeps the order of both lists where they agree, and that of the applied one where they do not.
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
            // It comes at its place in the applied list, or has come.
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

/// Refuses lists that name an element twice.
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
