//! From what a client sent to what is stored: unknown fields are pruned and reported, wrong types refused, and a built-in
//! object is written the way Go writes it, with its zeros in the right places.

use roadstead_core::quantity;
use serde_json::{Map, Value};

use crate::place::Place;
use crate::schema::{Go, Node, Type};

/// Unknown fields and wrong types that decoding found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Paths of unknown fields, such as `spec.containers[0].nope`.
    pub(crate) unknown: Vec<String>,
    /// The first value of a wrong type, in words.
    pub(crate) wrong: Option<String>,
}

pub(crate) fn builtin(mut value: Value, node: &Node, kind: &str) -> (Value, Findings) {
    let mut walk = Walk {
        findings: Findings::default(),
        kind,
    };
    walk.value(&mut value, node, &Place::Top);
    (value, walk.findings)
}

/// Prunes a custom resource; its metadata is decoded as a built-in part.
pub(crate) fn custom(mut value: Value, node: &Node, kind: &str) -> (Value, Findings) {
    let mut walk = Walk {
        findings: Findings::default(),
        kind,
    };
    walk.prune(&mut value, node, &Place::Top);
    (value, walk.findings)
}

struct Walk<'a> {
    findings: Findings,
    kind: &'a str,
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

impl Walk<'_> {
    fn wrong(&mut self, place: &Place<'_>, value: &Value, wanted: &str) {
        if self.findings.wrong.is_none() {
            let found = type_name(value);
            self.findings.wrong = Some(format!(
                "json: cannot unmarshal {found} into Go struct field {}.{place} of type {wanted}",
                self.kind
            ));
        }
    }

    /// Records that a value has a wrong type, and drops it.
    fn refuse(&mut self, place: &Place<'_>, value: &mut Value, wanted: &str) {
        self.wrong(place, value, wanted);
        *value = Value::Null;
    }

    fn value(&mut self, value: &mut Value, node: &Node, place: &Place<'_>) {
        let shape = node.shape();
        if value.is_null() {
            return;
        }
        match shape.kind {
            Type::Object if shape.preserve || (shape.properties.is_empty() && shape.additional.is_none()) => {
            }
            Type::Object => match value {
                Value::Object(map) => self.object(map, shape, place),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    self.refuse(place, value, "map[string]interface {}");
                }
            },
            Type::Array => match value {
                Value::Array(list) => {
                    let element = node.element();
                    for (index, item) in list.iter_mut().enumerate() {
                        self.value(item, element, &place.item(index));
                        if item.is_null() {
                            *item = zero(element);
                        }
                    }
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                    self.refuse(place, value, "[]interface {}");
                }
            },
            Type::String => self.string(value, shape, place),
            Type::Integer => {
                let bits32 = shape.format == "int32";
                let fits = |n: i64| !bits32 || i32::try_from(n).is_ok();
                // Why: Kubernetes' decoder refuses `1.0` as an integer.
                if !value.as_i64().is_some_and(fits) {
                    self.refuse(place, value, if bits32 { "int32" } else { "int64" });
                }
            }
            Type::Number => {
                if !value.is_number() {
                    self.wrong(place, value, "float64");
                }
            }
            Type::Boolean => {
                if !value.is_boolean() {
                    self.wrong(place, value, "bool");
                }
            }
            Type::IntOrString => {
                if !(value.is_string() || value.as_i64().is_some_and(|n| i32::try_from(n).is_ok())) {
                    self.wrong(place, value, "int32");
                }
            }
            Type::Quantity => self.quantity(value, place),
            Type::Any => {}
        }
    }

    fn string(&mut self, value: &mut Value, shape: &Node, place: &Place<'_>) {
        let Some(text) = value.as_str() else {
            // Why: Go's decoder also accepts a list of numbers as bytes.
            if shape.format == "byte"
                && let Some(list) = value.as_array()
                && let Some(bytes) = list
                    .iter()
                    .map(|item| item.as_u64().and_then(|n| u8::try_from(n).ok()))
                    .collect::<Option<Vec<u8>>>()
            {
                use base64::Engine as _;
                *value = base64::engine::general_purpose::STANDARD.encode(bytes).into();
                return;
            }
            self.refuse(place, value, "string");
            return;
        };
        match shape.format.as_str() {
            "date-time" => {
                let micros = ["renewTime", "acquireTime", "eventTime", "lastObservedTime"]
                    .iter()
                    .any(|name| place.name().ends_with(name));
                if crate::clock::is_written(text, micros) {
                    return;
                }
                match text.parse::<jiff::Timestamp>() {
                    Ok(time) if micros => *value = crate::clock::micros(time).into(),
                    Ok(time) => *value = crate::clock::seconds(time).into(),
                    Err(_) => {
                        if self.findings.wrong.is_none() {
                            self.findings.wrong = Some(format!(
                                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
                            ));
                        }
                    }
                }
            }
            "byte" => {
                use base64::Engine as _;
                if base64::engine::general_purpose::STANDARD.decode(text).is_err()
                    && self.findings.wrong.is_none()
                {
                    self.findings.wrong = Some("illegal base64 data at input byte 0".to_owned());
                }
            }
            _ => {}
        }
    }

    fn quantity(&mut self, value: &mut Value, place: &Place<'_>) {
        let canonical = match &*value {
            Value::Number(number) => quantity::canonical(&number.to_string()).ok(),
            Value::String(text) => quantity::canonical(text).ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.refuse(place, value, "string");
                return;
            }
        };
        if canonical.is_none() && self.findings.wrong.is_none() {
            self.findings.wrong = Some(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                    .to_owned(),
            );
        }
        *value = canonical.map_or(Value::Null, Value::from);
    }

    fn object(&mut self, map: &mut Map<String, Value>, shape: &Node, place: &Place<'_>) {
        map.retain(|name, value| {
            let below = place.field(name);
            if let Some(node) = shape.properties.get(name) {
                self.value(value, node, &below);
                match &node.go {
                    Some((Go::OmitZero, kind)) => !(is_zero(value) && kind != "struct"),
                    Some((Go::Pointer, _)) => !value.is_null(),
                    Some((Go::NullPointer | Go::Always, _)) | None => true,
                }
            } else if let Some(additional) = shape.additional.as_deref() {
                self.value(value, additional, &below);
                if value.is_null() {
                    *value = zero(additional);
                }
                true
            } else {
                self.findings.unknown.push(below.to_string());
                false
            }
        });
        for (name, node) in &shape.properties {
            if let Some((Go::Always | Go::NullPointer, _)) = &node.go
                && map.get(name).is_none_or(Value::is_null)
            {
                map.insert(name.clone(), zero(node));
            }
        }
    }

    fn prune(&mut self, value: &mut Value, node: &Node, place: &Place<'_>) {
        let shape = node.shape();
        if shape.preserve && shape.properties.is_empty() {
            return;
        }
        if let Some(map) = value.as_object_mut() {
            if shape.kind == Type::Any
                && !shape.embedded
                && shape.properties.is_empty()
                && shape.additional.is_none()
            {
                return;
            }
            map.retain(|name, inner| {
                let below = place.field(name);
                let is_meta = name == "metadata" && (place.is_top() || shape.embedded);
                match (shape.properties.get(name), shape.additional.as_deref()) {
                    (Some(field), _) if is_meta => {
                        self.value(inner, field, &below);
                        inner.is_object()
                    }
                    (Some(field), _) | (None, Some(field)) => {
                        self.prune(inner, field, &below);
                        true
                    }
                    (None, None) if shape.preserve => true,
                    (None, None) => {
                        self.findings.unknown.push(below.to_string());
                        false
                    }
                }
            });
        } else if let Some(list) = value.as_array_mut() {
            let element = node.element();
            for (index, item) in list.iter_mut().enumerate() {
                self.prune(item, element, &place.item(index));
            }
        }
    }
}

/// An object in which nothing was set: for a built-in kind its zeros, for a custom resource nothing.
pub(crate) fn empty(node: &Node) -> Value {
    match node.definition_name() {
        Some(_) => zero(node),
        None => Value::Object(Map::new()),
    }
}

/// What Go writes for a field that was never set.
fn zero(node: &Node) -> Value {
    let go_kind = node.go.as_ref().map_or("", |(_, kind)| kind.as_str());
    if let Some((Go::NullPointer, _)) = &node.go {
        return Value::Null;
    }
    match go_kind {
        "Time" | "MicroTime" | "slice" | "map" | "bytes" => return Value::Null,
        _ => {}
    }
    let shape = node.shape();
    match shape.kind {
        Type::Object if shape.additional.is_none() => {
            let mut out = Map::new();
            for (name, field) in &shape.properties {
                if let Some((Go::Always | Go::NullPointer, _)) = &field.go {
                    out.insert(name.clone(), zero(field));
                }
            }
            Value::Object(out)
        }
        Type::String => "".into(),
        Type::Integer | Type::Number | Type::IntOrString => 0.into(),
        Type::Boolean => false.into(),
        Type::Quantity => "0".into(),
        Type::Object | Type::Array | Type::Any => Value::Null,
    }
}
