//! Sets of fields, as `fieldsV1` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::schema::{ListKind, Node, Type};

/// One step of a path. Its text is that of `fieldsV1`: `f:name`, `k:{...}`, `v:...`.
pub(crate) type Step = String;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) members: BTreeSet<Step>,
    pub(crate) children: BTreeMap<Step, Self>,
}

/// The step to an element of a list by its key fields; a missing key field counts with its default.
pub(crate) fn key_step(element: &Value, keys: &[String], node: &Node) -> Step {
    let mut named = Map::new();
    let mut sorted: Vec<&String> = keys.iter().collect();
    sorted.sort();
    for key in sorted {
        let default = || node.field(key).and_then(|field| field.default.clone());
        if let Some(value) = element.get(key).cloned().or_else(default) {
            named.insert(key.clone(), value);
        }
    }
    format!("k:{}", Value::Object(named))
}

/// The step to each element of a list, if its elements have keys.
pub(crate) fn steps(list: &[Value], node: &Node) -> Option<Vec<Step>> {
    match node.list_kind() {
        ListKind::Atomic => None,
        ListKind::Set => Some(list.iter().map(|item| format!("v:{item}")).collect()),
        ListKind::Map(keys) => Some(
            list.iter()
                .map(|item| key_step(item, keys, node.element()))
                .collect(),
        ),
    }
}

/// Whether a value is owned as a whole here.
pub(crate) fn is_leaf(value: &Value, node: &Node) -> bool {
    match value {
        Value::Object(_) => node.is_atomic_map() || node.shape().kind == Type::Quantity,
        Value::Array(_) => *node.list_kind() == ListKind::Atomic,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub(crate) fn of(value: &Value, node: &Node) -> Self {
        let mut set = Self::default();
        set.add_value(value, node);
        set
    }

    fn add_value(&mut self, value: &Value, node: &Node) {
        if let Some(map) = value.as_object() {
            let shape = node.shape();
            for (name, inner) in map {
                let step = format!("f:{name}");
                let below = node.field_or_any(name);
                let empty_map = inner.as_object().is_some_and(Map::is_empty);
                let dynamic = !shape.properties.contains_key(name);
                if is_leaf(inner, below) || empty_map {
                    self.members.insert(step);
                    continue;
                }
                if dynamic {
                    self.members.insert(step.clone());
                }
                let child = Self::of(inner, below);
                if !child.is_empty() {
                    self.children.insert(step, child);
                }
            }
        } else if let Some(list) = value.as_array()
            && let Some(steps) = steps(list, node)
        {
            for (step, item) in steps.into_iter().zip(list) {
                self.members.insert(step.clone());
                if !step.starts_with("v:") {
                    let child = Self::of(item, node.element());
                    if !child.is_empty() {
                        self.children.insert(step, child);
                    }
                }
            }
        }
    }

    pub(crate) fn from_json(fields: &Value) -> Self {
        let mut set = Self::default();
        for (step, below) in fields.as_object().into_iter().flatten() {
            if step == "." {
                continue;
            }
            let step = normal_step(step);
            let empty = below.as_object().is_none_or(Map::is_empty);
            if empty || below.get(".").is_some() {
                set.members.insert(step.clone());
            }
            let child = Self::from_json(below);
            if !child.is_empty() {
                set.children.insert(step, child);
            }
        }
        set
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut out = Map::new();
        for member in &self.members {
            out.insert(member.clone(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            if child.is_empty() {
                continue;
            }
            let mut below = match child.to_json() {
                Value::Object(map) => map,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Map::new()
                }
            };
            if self.members.contains(step) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(step.clone(), Value::Object(below));
        }
        Value::Object(out)
    }

    /// Whether `written`, a `fieldsV1`, has one of these fields or something below one.
    pub(crate) fn meets(&self, written: &Value) -> bool {
        written.as_object().is_some_and(|map| {
            self.members.iter().any(|step| map.contains_key(step)) || { self.children.iter() }
                .any(|(step, child)| map.get(step).is_some_and(|below| child.meets(below)))
        })
    }

    /// Whether `written`, a `fieldsV1`, has all of these fields.
    pub(crate) fn is_in(&self, written: &Value) -> bool {
        let map = written.as_object();
        let below = |step: &Step| map.and_then(|map| map.get(step));
        let is_member = |below: &Value| {
            let map = below.as_object();
            map.is_none_or(|map| map.is_empty() || map.contains_key("."))
        };
        self.members.iter().all(|step| below(step).is_some_and(is_member)) && { self.children.iter() }
            .all(|(step, child)| child.is_empty() || below(step).is_some_and(|below| child.is_in(below)))
    }

    /// Takes a single field out.
    pub(crate) fn forget(&mut self, way: &[&str]) {
        match way {
            [] => {}
            [step] => drop(self.members.remove(*step)),
            [step, rest @ ..] => {
                if let Some(child) = self.children.get_mut(*step) {
                    child.forget(rest);
                    if child.is_empty() {
                        self.children.remove(*step);
                    }
                }
            }
        }
    }

    /// The set with every structure that contains one of its fields.
    #[must_use]
    pub(crate) fn with_structures(&self, node: &Node) -> Self {
        let mut out = Self {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        let shape = node.shape();
        for (step, child) in &self.children {
            let below = match step.strip_prefix("f:") {
                Some(name) => {
                    if shape.properties.contains_key(name) {
                        out.members.insert(step.clone());
                    }
                    node.field_or_any(name)
                }
                None => node.element(),
            };
            out.children.insert(step.clone(), child.with_structures(below));
        }
        out
    }

    pub(crate) fn union(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            self.children.entry(step.clone()).or_default().union(child);
        }
    }

    /// The set without the fields of another set.
    #[must_use]
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.filter(
            &|member| !other.members.contains(member),
            &|step, child| match other.children.get(step) {
                Some(theirs) => child.without(theirs),
                None => child.clone(),
            },
        )
    }

    /// The set without the fields of another set and everything below them.
    #[must_use]
    pub(crate) fn without_below(&self, other: &Self) -> Self {
        self.filter(&|member| !other.members.contains(member), &|step, child| {
            if other.members.contains(step) {
                return Self::default();
            }
            match other.children.get(step) {
                Some(theirs) => child.without_below(theirs),
                None => child.clone(),
            }
        })
    }

    /// The fields that are also in another set.
    #[must_use]
    pub(crate) fn common(&self, other: &Self) -> Self {
        self.filter(
            &|member| other.members.contains(member),
            &|step, child| match other.children.get(step) {
                Some(theirs) => child.common(theirs),
                None => Self::default(),
            },
        )
    }

    fn filter(&self, member: &dyn Fn(&Step) -> bool, child: &dyn Fn(&Step, &Self) -> Self) -> Self {
        let children = self
            .children
            .iter()
            .map(|(step, below)| (step.clone(), child(step, below)));
        Self {
            members: self.members.iter().filter(|step| member(step)).cloned().collect(),
            children: children.filter(|(_, below)| !below.is_empty()).collect(),
        }
    }

    pub(crate) fn child(&self, step: &str) -> Option<&Self> {
        self.children.get(step)
    }

    /// Each field as a path such as `.spec.containers[name="c"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.add_paths("", &mut paths);
        paths
    }

    fn add_paths(&self, above: &str, paths: &mut Vec<String>) {
        for step in &self.members {
            paths.push(format!("{above}{}", step_in_words(step)));
        }
        for (step, child) in &self.children {
            child.add_paths(&format!("{above}{}", step_in_words(step)), paths);
        }
    }
}

/// A step with its JSON normalized, so that equal steps are equal strings.
fn normal_step(step: &str) -> Step {
    match step.split_at_checked(2) {
        Some((kind @ ("k:" | "v:"), json)) => match serde_json::from_str::<Value>(json) {
            Ok(value) => format!("{kind}{value}"),
            Err(_) => step.to_owned(),
        },
        _ => step.to_owned(),
    }
}

fn step_in_words(step: &str) -> String {
    match step.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("k:", json)) => {
            let keys: Value = serde_json::from_str(json).unwrap_or_default();
            let mut words = String::from("[");
            for (index, (key, value)) in keys.as_object().into_iter().flatten().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let _infallible = write!(words, "{comma}{key}={value}");
            }
            words.push(']');
            words
        }
        Some(("v:", json)) => format!("[={json}]"),
        _ => step.to_owned(),
    }
}
