//! Custom resources by their structural schema: defaults, limits and CEL rules.

use serde_json::Value;

use crate::failure::Cause;
use crate::json;
use crate::place::Place;
use crate::schema::{ListKind, Node, Rules, Type};

pub(crate) fn default(value: &mut Value, node: &Node) {
    if node.definition_name().is_some() {
        return;
    }
    if let Some(map) = value.as_object_mut() {
        for (name, field) in &node.properties {
            let absent = match map.get(name) {
                None => true,
                Some(there) => there.is_null() && !field.nullable,
            };
            if absent && let Some(default) = &field.default {
                map.insert(name.clone(), default.clone());
            }
            if let Some(inner) = map.get_mut(name) {
                default_below(inner, field);
            }
        }
        if let Some(additional) = node.additional.as_deref() {
            for (name, inner) in map.iter_mut() {
                if !node.properties.contains_key(name) {
                    if inner.is_null()
                        && !additional.nullable
                        && let Some(default) = &additional.default
                    {
                        *inner = default.clone();
                    }
                    default_below(inner, additional);
                }
            }
        }
    } else if let Some(list) = value.as_array_mut()
        && let Some(element) = node.items.as_deref()
    {
        for inner in list {
            if inner.is_null()
                && !element.nullable
                && let Some(default) = &element.default
            {
                *inner = default.clone();
            }
            default_below(inner, element);
        }
    }
}

fn default_below(value: &mut Value, node: &Node) {
    default(value, node);
}

/// Removes nulls of optional fields that are neither nullable nor have a default.
pub(crate) fn drop_nulls(value: &mut Value, node: &Node) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|name, inner| {
            let Some(field) = node.properties.get(name) else {
                return true;
            };
            !(inner.is_null()
                && !field.nullable
                && field.default.is_none()
                && field.definition_name().is_none())
                || node.required.contains(name)
        });
        for (name, inner) in map.iter_mut() {
            if let Some(field) = node.properties.get(name).or(node.additional.as_deref()) {
                drop_nulls(inner, field);
            }
        }
    } else if let Some(list) = value.as_array_mut()
        && let Some(element) = node.items.as_deref()
    {
        for inner in list {
            drop_nulls(inner, element);
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Violations of a schema, and whether its CEL rules may still be evaluated.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    pub(crate) causes: Vec<Cause>,
    /// The shape itself is wrong, so the rules cannot be evaluated.
    pub(crate) blocking: bool,
}

/// Complains about everything that the schema forbids.
pub(crate) fn validate(value: &Value, node: &Node) -> Complaints {
    let mut complaints = Complaints::default();
    check(value, node, &Place::Top, &mut complaints);
    list_keys(value, node, &Place::Top, &mut complaints);
    complaints
}

fn check(value: &Value, node: &Node, path: &Place<'_>, out: &mut Complaints) {
    if node.definition_name().is_some() {
        return;
    }
    if value.is_null() {
        if !node.nullable && node.kind != Type::Any {
            out.causes.push(Cause::required(path, ""));
            out.blocking = true;
        }
        return;
    }
    let right = match node.kind {
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || value.is_i64(),
        Type::Quantity | Type::Any => true,
    };
    if !right {
        wrong_type(value, node, path, out);
        one_of_enum(value, node, path, out);
        return;
    }
    limits(value, node, path, out);
    if let Some(map) = value.as_object() {
        for name in &node.required {
            if !map.contains_key(name) {
                out.causes.push(Cause::required(&path.field(name), ""));
                out.blocking = true;
            }
        }
        for (name, inner) in map {
            if let Some(field) = node.properties.get(name) {
                check(inner, field, &path.field(name), out);
            } else if let Some(additional) = node.additional.as_deref() {
                check(inner, additional, &path.field(name), out);
            }
        }
    } else if let Some(list) = value.as_array()
        && let Some(element) = node.items.as_deref()
    {
        for (index, inner) in list.iter().enumerate() {
            check(inner, element, &path.item(index), out);
        }
    }
}

fn wrong_type(value: &Value, node: &Node, path: &Place<'_>, out: &mut Complaints) {
    let wanted = match node.kind {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
        Type::Quantity | Type::Any => "any",
    };
    let found = type_name(value);
    let says = format!("{path} in body must be of type {wanted}: {found:?}");
    out.causes.push(Cause::invalid_type(path, found, &says));
    out.blocking = true;
}

fn limits(value: &Value, node: &Node, path: &Place<'_>, out: &mut Complaints) {
    if let Some(text) = value.as_str()
        && !node.format.is_empty()
        && !right_format(text, &node.format)
    {
        let says = format!("{path} in body must be of type {}: {text:?}", node.format);
        out.causes.push(Cause::invalid_type(path, "string", &says));
        out.blocking = true;
    }
    let Some(limits) = node.limits.as_deref() else {
        return;
    };
    let source = &limits.source;
    let number = |key: &str| source[key].as_u64();
    let invalid = |out: &mut Complaints, value: &Value, says: String| {
        out.causes
            .push(Cause::invalid(path, value, &format!("{path} in body {says}")));
    };
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if let Some(max) = number("maxLength")
            && length > max
        {
            out.causes.push(Cause::too_long(path, max));
            out.blocking = true;
        }
        if let Some(min) = number("minLength")
            && length < min
        {
            invalid(out, value, format!("should be at least {min} chars long"));
        }
        if let Some(pattern) = &limits.pattern
            && !pattern.is_match(text)
        {
            let says = format!("should match '{}'", pattern.as_str());
            invalid(out, value, says);
        }
    }
    if let Some(n) = value.as_f64() {
        number_limits(n, value, source, path, out);
    }
    if let Some(list) = value.as_array() {
        if let Some(max) = number("maxItems")
            && list.len() as u64 > max
        {
            out.causes.push(Cause::too_many(path, list.len(), max));
            out.blocking = true;
        }
        if let Some(min) = number("minItems")
            && (list.len() as u64) < min
        {
            invalid(
                out,
                &list.len().into(),
                format!("should have at least {min} items"),
            );
        }
    }
    if let Some(map) = value.as_object() {
        if let Some(max) = number("maxProperties")
            && map.len() as u64 > max
        {
            out.causes.push(Cause::too_many(path, map.len(), max));
            out.blocking = true;
        }
        if let Some(min) = number("minProperties")
            && (map.len() as u64) < min
        {
            invalid(
                out,
                &map.len().into(),
                format!("should have at least {min} properties"),
            );
        }
    }
    one_of_enum(value, node, path, out);
    for branch in &limits.all_of {
        check(value, branch, path, out);
    }
    let holds = |branch: &Node| {
        let mut inner = Complaints::default();
        check(value, branch, path, &mut inner);
        inner.causes.is_empty()
    };
    if !limits.any_of.is_empty() && !limits.any_of.iter().any(holds) {
        invalid(out, value, "must validate at least one schema (anyOf)".to_owned());
    }
    if !limits.one_of.is_empty() && limits.one_of.iter().filter(|branch| holds(branch)).count() != 1 {
        invalid(
            out,
            value,
            "must validate one and only one schema (oneOf)".to_owned(),
        );
    }
    if let Some(not) = limits.not.as_deref()
        && holds(not)
    {
        invalid(out, value, "must not validate the schema (not)".to_owned());
    }
}

fn one_of_enum(value: &Value, node: &Node, path: &Place<'_>, out: &mut Complaints) {
    let Some(limits) = node.limits.as_deref() else {
        return;
    };
    let allowed = json::items(&limits.source, &["enum"]);
    if allowed.is_empty() || allowed.contains(value) {
        return;
    }
    let allowed: Vec<String> = allowed
        .iter()
        .map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned))
        .collect();
    out.causes.push(Cause::not_supported(path, value, &allowed));
    out.blocking = true;
}

fn number_limits(n: f64, value: &Value, source: &Value, path: &Place<'_>, out: &mut Complaints) {
    let mut invalid = |says: String| {
        out.causes
            .push(Cause::invalid(path, value, &format!("{path} in body {says}")));
    };
    if let Some(min) = source["minimum"].as_f64() {
        let open = source["exclusiveMinimum"] == true;
        if n < min || (open && n <= min) {
            let or = if open { "" } else { " or equal to" };
            invalid(format!("should be greater than{or} {min}"));
        }
    }
    if let Some(max) = source["maximum"].as_f64() {
        let open = source["exclusiveMaximum"] == true;
        if n > max || (open && n >= max) {
            let or = if open { "" } else { " or equal to" };
            invalid(format!("should be less than{or} {max}"));
        }
    }
    if let Some(of) = source["multipleOf"].as_f64()
        && of != 0.0
        && n % of != 0.0
    {
        invalid(format!("should be a multiple of {of}"));
    }
}

fn right_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "uri" => url::Url::parse(text).is_ok(),
        _ => true,
    }
}

/// Complains about a list that has two elements with the same key.
fn list_keys(value: &Value, node: &Node, path: &Place<'_>, out: &mut Complaints) {
    if node.definition_name().is_some() {
        return;
    }
    if let Some(map) = value.as_object() {
        for (name, inner) in map {
            if let Some(field) = node.properties.get(name).or(node.additional.as_deref()) {
                list_keys(inner, field, &path.field(name), out);
            }
        }
    } else if let Some(list) = value.as_array() {
        let mut seen: Vec<Value> = Vec::new();
        for (index, item) in list.iter().enumerate() {
            let name = match &node.list {
                ListKind::Atomic => break,
                ListKind::Set => item.clone(),
                ListKind::Map(keys) => keys
                    .iter()
                    .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
                    .collect(),
            };
            if seen.contains(&name) {
                out.causes.push(Cause::duplicate(&path.item(index), &name));
            }
            seen.push(name);
        }
        if let Some(element) = node.items.as_deref() {
            for (index, item) in list.iter().enumerate() {
                list_keys(item, element, &path.item(index), out);
            }
        }
    }
}

/// Evaluates all CEL rules. `old` is the stored value, if any.
pub(crate) fn rules(value: &Value, old: Option<&Value>, node: &Node) -> Vec<Cause> {
    let mut causes = Vec::new();
    ask(value, old, node, &Place::Top, &mut causes);
    causes
}

fn ask(value: &Value, old: Option<&Value>, node: &Node, path: &Place<'_>, causes: &mut Vec<Cause>) {
    if node.definition_name().is_some() {
        return;
    }
    if let Some(rules) = node.rules.as_deref() {
        causes.extend(ask_here(value, old, rules, path));
    }
    if let Some(map) = value.as_object() {
        for (name, inner) in map {
            if let Some(field) = node.properties.get(name).or(node.additional.as_deref()) {
                let before = old.and_then(|old| old.get(name));
                ask(inner, before, field, &path.field(name), causes);
            }
        }
    } else if let (Some(list), Some(element)) = (value.as_array(), node.items.as_deref()) {
        for (index, item) in list.iter().enumerate() {
            // Why only by key: elements without keys have no identity, so none of them has an old value.
            let before = match &node.list {
                ListKind::Map(keys) => old.and_then(Value::as_array).and_then(|old| {
                    old.iter()
                        .find(|other| keys.iter().all(|key| other.get(key) == item.get(key)))
                }),
                ListKind::Set | ListKind::Atomic => None,
            };
            ask(item, before, element, &path.item(index), causes);
        }
    }
}

fn ask_here(value: &Value, old: Option<&Value>, rules: &Rules, path: &Place<'_>) -> Vec<Cause> {
    let Err(errors) = kube_cel::validate_compiled(&rules.compiled, value, old) else {
        return Vec::new();
    };
    errors
        .into_vec()
        .into_iter()
        .map(|error| {
            let path = path.to_string();
            let field = match (path.as_str(), error.field_path.trim_start_matches('.')) {
                (path, "") => path.to_owned(),
                ("", own) => own.to_owned(),
                (path, own) => format!("{path}.{own}"),
            };
            let field = if field.is_empty() {
                "<nil>".to_owned()
            } else {
                field
            };
            let given = rules
                .given
                .iter()
                .find(|given| given["rule"].as_str() == Some(error.rule.as_str()));
            let reason = given.and_then(|given| given["reason"].as_str());
            match reason {
                Some("FieldValueForbidden") => Cause::forbidden(field, &error.message),
                Some("FieldValueRequired") => Cause::required(field, &error.message),
                Some("FieldValueDuplicate") => Cause::duplicate(field, value),
                _ => Cause::invalid_typed(field, value, &error.message),
            }
        })
        .collect()
}

/// Finds rules of a schema that cannot be used, and says why.
pub(crate) fn broken_rules(node: &Node, path: &str, out: &mut Vec<Cause>) {
    if let Some(rules) = node.rules.as_deref() {
        for (index, result) in rules.compiled.validations.iter().enumerate() {
            if let Err(error) = result {
                let field = format!("{path}.x-kubernetes-validations[{index}].rule");
                let rule = rules
                    .given
                    .get(index)
                    .map_or(&Value::Null, |given| &given["rule"]);
                out.push(Cause::invalid(
                    field,
                    rule,
                    &format!("compilation failed: {error}"),
                ));
            }
        }
    }
    if node.definition_name().is_some() {
        return;
    }
    for (name, field) in &node.properties {
        broken_rules(field, &format!("{path}.properties[{name}]"), out);
    }
    if let Some(items) = node.items.as_deref() {
        broken_rules(items, &format!("{path}.items"), out);
    }
    if let Some(additional) = node.additional.as_deref() {
        broken_rules(additional, &format!("{path}.additionalProperties"), out);
    }
}
