//! Which fields differ between two objects.

use serde_json::Value;

use super::set::{Set, is_leaf, is_meta, steps};
use crate::schema::{Go, Node};

/// The fields that differ.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Those that were added or have another value.
    pub(super) changed: Set,
    pub(super) removed: Set,
}

impl Difference {
    pub(super) fn between(old: &Value, new: &Value, node: &Node) -> Self {
        let mut difference = Self::default();
        difference.maps(old, new, node);
        difference
    }

    fn child(&mut self, step: String, old: Option<&Value>, new: Option<&Value>, node: &Node, dynamic: Dynamic) {
        match (old, new) {
            (None, None) => {}
            (None, Some(new)) => add(&mut self.changed, step, new, node, dynamic),
            (Some(old), None) => add(&mut self.removed, step, old, node, dynamic),
            (Some(old), Some(new)) => {
                if old == new {
                    return;
                }
                let same_shape = (old.is_object() && new.is_object()) || (old.is_array() && new.is_array());
                if !same_shape || is_leaf(old, node) || is_leaf(new, node) {
                    self.changed.members.insert(step);
                    return;
                }
                let empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
                if empty(new) {
                    self.changed.members.insert(step.clone());
                } else if empty(old) {
                    self.removed.members.insert(step.clone());
                }
                let below = Self::between(old, new, node);
                if !below.changed.is_empty() {
                    self.changed.children.insert(step.clone(), below.changed);
                }
                if !below.removed.is_empty() {
                    self.removed.children.insert(step, below.removed);
                }
            }
        }
    }

    fn maps(&mut self, old: &Value, new: &Value, node: &Node) {
        if let (Some(before), Some(after)) = (old.as_object(), new.as_object()) {
            let shape = node.shape();
            for (name, value) in before {
                let dynamic = Dynamic::of(!shape.properties.contains_key(name));
                self.child(format!("f:{name}"), Some(value), after.get(name), node.field_or_any(name), dynamic);
            }
            for (name, value) in after {
                if !before.contains_key(name) {
                    let dynamic = Dynamic::of(!shape.properties.contains_key(name));
                    self.child(format!("f:{name}"), None, Some(value), node.field_or_any(name), dynamic);
                }
            }
        } else if let (Some(before), Some(after)) = (old.as_array(), new.as_array())
            && let (Some(steps_before), Some(steps_after)) = (steps(before, node), steps(after, node))
        {
            let element = node.element();
            for (index, step) in steps_before.iter().enumerate() {
                let there = steps_after.iter().position(|other| other == step);
                let other = there.and_then(|at| after.get(at));
                self.child(step.clone(), before.get(index), other, element, Dynamic::Yes);
            }
            for (index, step) in steps_after.iter().enumerate() {
                if !steps_before.contains(step) {
                    self.child(step.clone(), None, after.get(index), element, Dynamic::Yes);
                }
            }
        }
    }
}

/// Whether a field is owned itself besides what is below it: keys of maps and elements of lists are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dynamic {
    Yes,
    No,
}

impl Dynamic {
    fn of(dynamic: bool) -> Self {
        if dynamic { Self::Yes } else { Self::No }
    }
}

fn add(set: &mut Set, step: String, value: &Value, node: &Node, dynamic: Dynamic) {
    let empty = value.as_object().is_some_and(serde_json::Map::is_empty);
    let unsaid = value.is_null() || (value == "" && matches!(node.go, Some((Go::Always, _))));
    if unsaid || (empty && is_meta(node)) {
        return;
    }
    if is_leaf(value, node) || empty {
        set.members.insert(step);
        return;
    }
    // Why also for maps and lists that are new as a whole: what holds them is owned by whoever brought them.
    let shape = node.shape();
    if dynamic == Dynamic::Yes || value.is_array() || shape.properties.is_empty() {
        set.members.insert(step.clone());
    }
    let mut below = Set::default();
    if let Some(map) = value.as_object() {
        for (name, inner) in map {
            let dynamic = Dynamic::of(!shape.properties.contains_key(name));
            add(&mut below, format!("f:{name}"), inner, node.field_or_any(name), dynamic);
        }
    } else if let Some(list) = value.as_array()
        && let Some(steps) = steps(list, node)
    {
        for (step, inner) in steps.into_iter().zip(list) {
            if step.starts_with("v:") {
                below.members.insert(step);
            } else {
                add(&mut below, step, inner, node.element(), Dynamic::Yes);
            }
        }
    }
    if !below.is_empty() {
        set.children.insert(step, below);
    }
}
