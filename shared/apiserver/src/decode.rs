//! From what a client sent to what is stored: unknown fields are pruned and reported, wrong types refused, and a built-in
//! object is written the way Go writes it, with its zeros in the right places.

use serde_json::{Map, Value};

use crate::schema::{Go, Node, Type};

/// What was found on the way.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Paths of unknown fields, such as `spec.containers[0].nope`.
    pub(crate) unknown: Vec<String>,
    /// The first value of a wrong type, in words.
    pub(crate) wrong: Option<String>,
}

/// Decodes a built-in object.
pub(crate) fn builtin(value: Value, node: &Node, kind: &str) -> (Value, Findings) {
    let mut walk = Walk {
        findings: Findings::default(),
        kind,
    };
    let value = walk.value(value, node, "");
    (value, walk.findings)
}

/// Prunes a custom resource; its metadata is decoded as a built-in part.
pub(crate) fn custom(mut value: Value, node: &Node, kind: &str) -> (Value, Findings) {
    let mut walk = Walk {
        findings: Findings::default(),
        kind,
    };
    walk.prune(&mut value, node, "");
    (value, walk.findings)
}

struct Walk<'a> {
    findings: Findings,
    kind: &'a str,
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
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
    fn wrong(&mut self, path: &str, value: &Value, wanted: &str) {
        if self.findings.wrong.is_none() {
            let found = type_name(value);
            self.findings.wrong = Some(format!(
                "json: cannot unmarshal {found} into Go struct field {}.{path} of type {wanted}",
                self.kind
            ));
        }
    }

    fn value(&mut self, value: Value, node: &Node, path: &str) -> Value {
        let shape = node.shape();
        if value.is_null() {
            return Value::Null;
        }
        match shape.kind {
            Type::Object if shape.preserve || (shape.properties.is_empty() && shape.additional.is_none()) => {
                value
            }
            Type::Object => match value {
                Value::Object(map) => self.object(map, shape, path),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    self.wrong(path, &value, "map[string]interface {}");
                    Value::Null
                }
            },
            Type::Array => match value {
                Value::Array(list) => {
                    let element = node.element();
                    let decoded = list.into_iter().enumerate().map(|(index, item)| {
                        let item = self.value(item, element, &format!("{path}[{index}]"));
                        if item.is_null() { zero(element) } else { item }
                    });
                    Value::Array(decoded.collect())
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                    self.wrong(path, &value, "[]interface {}");
                    Value::Null
                }
            },
            Type::String => self.string(value, shape, path),
            Type::Integer => {
                let bits32 = shape.format == "int32";
                let fits = |n: i64| !bits32 || i32::try_from(n).is_ok();
                if let Some(n) = value.as_i64()
                    && fits(n)
                {
                    return value;
                }
                // Why: a number with an integral value is an integer to Kubernetes' decoder only without fraction.
                self.wrong(path, &value, if bits32 { "int32" } else { "int64" });
                Value::Null
            }
            Type::Number => {
                if !value.is_number() {
                    self.wrong(path, &value, "float64");
                }
                value
            }
            Type::Boolean => {
                if !value.is_boolean() {
                    self.wrong(path, &value, "bool");
                }
                value
            }
            Type::IntOrString => {
                if !(value.is_string() || value.as_i64().is_some_and(|n| i32::try_from(n).is_ok())) {
                    self.wrong(path, &value, "int32");
                }
                value
            }
            Type::Quantity => self.quantity(&value, path),
            Type::Any => value,
        }
    }

    fn string(&mut self, value: Value, shape: &Node, path: &str) -> Value {
        let Some(text) = value.as_str() else {
            // Why: Go also reads a list of numbers as bytes.
            if shape.format == "byte"
                && let Some(list) = value.as_array()
                && let Some(bytes) = list
                    .iter()
                    .map(|item| item.as_u64().and_then(|n| u8::try_from(n).ok()))
                    .collect::<Option<Vec<u8>>>()
            {
                use base64::Engine as _;
                return base64::engine::general_purpose::STANDARD.encode(bytes).into();
            }
            self.wrong(path, &value, "string");
            return Value::Null;
        };
        match shape.format.as_str() {
            "date-time" => match text.parse::<jiff::Timestamp>() {
                Ok(time)
                    if !path.ends_with("renewTime")
                        && !path.ends_with("acquireTime")
                        && !path.ends_with("eventTime")
                        && !path.ends_with("lastObservedTime") =>
                {
                    crate::clock::seconds(time).into()
                }
                Ok(time) => crate::clock::micros(time).into(),
                Err(_) => {
                    if self.findings.wrong.is_none() {
                        self.findings.wrong = Some(format!(
                            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
                        ));
                    }
                    value
                }
            },
            "byte" => {
                use base64::Engine as _;
                if base64::engine::general_purpose::STANDARD.decode(text).is_err()
                    && self.findings.wrong.is_none()
                {
                    self.findings.wrong = Some("illegal base64 data at input byte 0".to_owned());
                }
                value
            }
            _ => value,
        }
    }

    fn quantity(&mut self, value: &Value, path: &str) -> Value {
        let text = match value {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(path, value, "string");
                return Value::Null;
            }
        };
        match crate::quantity::canonical(&text) {
            Some(canonical) => canonical.into(),
            None => {
                if self.findings.wrong.is_none() {
                    self.findings.wrong = Some(
                        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                            .to_owned(),
                    );
                }
                Value::Null
            }
        }
    }

    fn object(&mut self, map: Map<String, Value>, shape: &Node, path: &str) -> Value {
        let mut out = Map::new();
        for (name, value) in map {
            let below = join(path, &name);
            if let Some(node) = shape.properties.get(&name) {
                let value = self.value(value, node, &below);
                let kept = match &node.go {
                    Some((Go::OmitZero, kind)) => !(is_zero(&value) && kind != "struct"),
                    Some((Go::Pointer, _)) => !value.is_null(),
                    Some((Go::NullPointer | Go::Always, _)) | None => true,
                };
                if kept {
                    out.insert(name, value);
                }
            } else if let Some(additional) = shape.additional.as_deref() {
                let value = self.value(value, additional, &below);
                let value = if value.is_null() { zero(additional) } else { value };
                out.insert(name, value);
            } else {
                self.findings.unknown.push(below);
            }
        }
        for (name, node) in &shape.properties {
            if let Some((Go::Always | Go::NullPointer, _)) = &node.go
                && out.get(name).is_none_or(Value::is_null)
            {
                out.insert(name.clone(), zero(node));
            }
        }
        Value::Object(out)
    }

    fn prune(&mut self, value: &mut Value, node: &Node, path: &str) {
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
            let names: Vec<String> = map.keys().cloned().collect();
            for name in names {
                let below = join(path, &name);
                let is_meta = name == "metadata" && (path.is_empty() || shape.embedded);
                match (shape.properties.get(&name), shape.additional.as_deref()) {
                    (Some(field), _) if is_meta => {
                        if let Some(meta) = map.remove(&name) {
                            let meta = self.value(meta, field, &below);
                            if meta.is_object() {
                                map.insert(name, meta);
                            }
                        }
                    }
                    (Some(field), _) | (None, Some(field)) => {
                        if let Some(inner) = map.get_mut(&name) {
                            self.prune(inner, field, &below);
                        }
                    }
                    (None, None) => {
                        if !shape.preserve {
                            self.findings.unknown.push(below);
                            map.remove(&name);
                        }
                    }
                }
            }
        } else if let Some(list) = value.as_array_mut() {
            let element = node.element();
            for (index, item) in list.iter_mut().enumerate() {
                self.prune(item, element, &format!("{path}[{index}]"));
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
