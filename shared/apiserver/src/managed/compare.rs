//! Which fields differ between two objects.

use serde_json::{Map, Value};

use super::set::{Set, is_leaf, steps};
use crate::schema::Node;

/// The fields that differ.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Fields that were added or have another value.
    pub(super) changed: Set,
    pub(super) removed: Set,
}

impl Difference {
    pub(super) fn between(old: &Value, new: &Value, node: &Node) -> Self {
        let mut difference = Self::default();
        difference.maps(old, new, node);
        difference
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    fn child(&mut self, step: String, old: Option<&Value>, new: Option<&Value>, node: &Node) {
        match (old, new) {
            (None, None) => {}
            (None, Some(new)) => add(&mut self.changed, step, new, node),
            (Some(old), None) => add(&mut self.removed, step, old, node),
            (Some(old), Some(new)) => {
                if old == new {
                    return;
                }
                // Why: Go writes this field as null, so the field itself exists already and only its content is new.
                let is_there = old.is_null() && node.go.is_some();
                if is_there && (new.is_object() || new.is_array()) && !is_leaf(new, node) {
                    let nothing = if new.is_array() {
                        Value::Array(Vec::new())
                    } else {
                        Value::Object(Map::new())
                    };
                    self.child(step, Some(&nothing), Some(new), node);
                    return;
                }
                // Why not the field itself: a structure that becomes null has only lost its content.
                if new.is_null() && (old.is_object() || old.is_array()) && !is_leaf(old, node) {
                    let nothing = if old.is_array() {
                        Value::Array(Vec::new())
                    } else {
                        Value::Object(Map::new())
                    };
                    let below = Self::between(old, &nothing, node);
                    if !below.removed.is_empty() {
                        self.removed.children.insert(step, below.removed);
                    }
                    return;
                }
                let same_shape = (old.is_object() && new.is_object()) || (old.is_array() && new.is_array());
                if !same_shape || is_leaf(old, node) || is_leaf(new, node) {
                    self.changed.members.insert(step);
                    return;
                }
                let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
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
            for (name, value) in before {
                self.child(
                    format!("f:{name}"),
                    Some(value),
                    after.get(name),
                    node.field_or_any(name),
                );
            }
            for (name, value) in after {
                if !before.contains_key(name) {
                    self.child(format!("f:{name}"), None, Some(value), node.field_or_any(name));
                }
            }
        } else if let (Some(before), Some(after)) = (old.as_array(), new.as_array())
            && let (Some(steps_before), Some(steps_after)) = (steps(before, node), steps(after, node))
        {
            let element = node.element();
            for (index, step) in steps_before.iter().enumerate() {
                let there = steps_after.iter().position(|other| other == step);
                let other = there.and_then(|at| after.get(at));
                self.child(step.clone(), before.get(index), other, element);
            }
            for (index, step) in steps_after.iter().enumerate() {
                if !steps_before.contains(step) {
                    self.child(step.clone(), None, after.get(index), element);
                }
            }
        }
    }
}

/// Adds a value that only one of the two objects has, and everything below it.
fn add(set: &mut Set, step: String, value: &Value, node: &Node) {
    set.members.insert(step.clone());
    if is_leaf(value, node) {
        return;
    }
    let mut below = Set::default();
    if let Some(map) = value.as_object() {
        for (name, inner) in map {
            add(&mut below, format!("f:{name}"), inner, node.field_or_any(name));
        }
    } else if let Some(list) = value.as_array()
        && let Some(steps) = steps(list, node)
    {
        for (step, inner) in steps.into_iter().zip(list) {
            if step.starts_with("v:") {
                below.members.insert(step);
            } else {
                add(&mut below, step, inner, node.element());
            }
        }
    }
    if !below.is_empty() {
        set.children.insert(step, below);
    }
}
