//! Objects as table rows, for `kubectl get`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::json;
use crate::kinds::Kind;

/// Whether the columns are sent; later answers of a watch leave them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Yes,
    No,
}

/// A column: name, type, priority.
type Column = (&'static str, &'static str, u8);

const NAME: Column = ("Name", "string", 0);
const AGE: Column = ("Age", "string", 0);

fn columns(kind: &Kind) -> Vec<Column> {
    match kind.plural.as_str() {
        "pods" => vec![
            NAME,
            ("Ready", "string", 0),
            ("Status", "string", 0),
            ("Restarts", "string", 0),
            AGE,
            ("IP", "string", 1),
            ("Node", "string", 1),
            ("Nominated Node", "string", 1),
            ("Readiness Gates", "string", 1),
        ],
        "jobs" => vec![
            NAME,
            ("Status", "string", 0),
            ("Completions", "string", 0),
            ("Duration", "string", 0),
            AGE,
            ("Containers", "string", 1),
            ("Images", "string", 1),
            ("Selector", "string", 1),
        ],
        "namespaces" => vec![NAME, ("Status", "string", 0), AGE],
        "secrets" => vec![NAME, ("Type", "string", 0), ("Data", "string", 0), AGE],
        "configmaps" => vec![NAME, ("Data", "string", 0), AGE],
        "nodes" => vec![
            NAME,
            ("Status", "string", 0),
            ("Roles", "string", 0),
            AGE,
            ("Version", "string", 0),
        ],
        "leases" => vec![NAME, ("Holder", "string", 0), AGE],
        "priorityclasses" => vec![
            NAME,
            ("Value", "integer", 0),
            ("Global-Default", "boolean", 0),
            AGE,
            ("PreemptionPolicy", "string", 0),
        ],
        "events" => vec![
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Subobject", "string", 1),
            ("Source", "string", 1),
            ("Message", "string", 0),
            ("First Seen", "string", 1),
            ("Count", "string", 1),
            ("Name", "string", 1),
        ],
        "services" => vec![
            NAME,
            ("Type", "string", 0),
            ("Cluster-IP", "string", 0),
            ("External-IP", "string", 0),
            ("Port(s)", "string", 0),
            AGE,
            ("Selector", "string", 1),
        ],
        "rolebindings" | "clusterrolebindings" => vec![NAME, ("Role", "string", 0), AGE],
        "roles" | "clusterroles" | "customresourcedefinitions" => vec![NAME, ("Created At", "date", 0)],
        _ => vec![NAME, AGE],
    }
}

/// The time between two moments as kubectl says it.
fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        i64::MIN..0 => "<invalid>".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        172_800..63_072_000 => format!("{days}d"),
        _ => format!("{}y", days / 365),
    }
}

fn since(time: &str, now: Timestamp) -> String {
    time.parse::<Timestamp>().map_or_else(
        |_none| "<unknown>".to_owned(),
        |then| human(now.duration_since(then).as_secs()),
    )
}

fn age(object: &Value, now: Timestamp) -> Value {
    since(json::text(object, &["metadata", "creationTimestamp"]), now).into()
}

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

fn count(value: &Value) -> usize {
    value.as_object().map_or(0, Map::len)
}

fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let text = |path: &[&str]| -> Value { json::text(object, path).into() };
    let (name, age) = (name(object), age(object, now));
    match kind.plural.as_str() {
        "pods" => pod_cells(object, name, age),
        "jobs" => job_cells(object, name, age, now),
        "namespaces" => vec![name, text(&["status", "phase"]), age],
        "secrets" => vec![name, text(&["type"]), count(&object["data"]).into(), age],
        "configmaps" => {
            let keys = count(&object["data"]) + count(&object["binaryData"]);
            vec![name, keys.into(), age]
        }
        "nodes" => {
            let ready = crate::kinds::condition(object, "Ready");
            let mut status = match ready {
                "True" => "Ready".to_owned(),
                "" => "Unknown".to_owned(),
                _ => "NotReady".to_owned(),
            };
            if object["spec"]["unschedulable"] == true {
                status.push_str(",SchedulingDisabled");
            }
            vec![
                name,
                status.into(),
                "<none>".into(),
                age,
                text(&["status", "nodeInfo", "kubeletVersion"]),
            ]
        }
        "leases" => vec![name, text(&["spec", "holderIdentity"]), age],
        "priorityclasses" => vec![
            name,
            object["value"].clone(),
            (object["globalDefault"] == true).into(),
            age,
            text(&["preemptionPolicy"]),
        ],
        "events" => event_cells(object, name, now),
        "services" => vec![
            name,
            text(&["spec", "type"]),
            text(&["spec", "clusterIP"]),
            "<none>".into(),
            "<none>".into(),
            age,
            "<none>".into(),
        ],
        "rolebindings" | "clusterrolebindings" => {
            let role = format!(
                "{}/{}",
                json::text(object, &["roleRef", "kind"]),
                json::text(object, &["roleRef", "name"])
            );
            vec![name, role.into(), age]
        }
        "roles" | "clusterroles" | "customresourcedefinitions" => {
            vec![name, text(&["metadata", "creationTimestamp"])]
        }
        _ => vec![name, age],
    }
}

fn pod_cells(pod: &Value, name: Value, age: Value) -> Vec<Value> {
    let statuses = json::items(pod, &["status", "containerStatuses"]);
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let total = json::items(pod, &["spec", "containers"]).len();
    let restarts: u64 = statuses
        .iter()
        .filter_map(|status| status["restartCount"].as_u64())
        .sum();
    let reason = json::text(pod, &["status", "reason"]);
    let mut status = if reason.is_empty() {
        json::text(pod, &["status", "phase"])
    } else {
        reason
    };
    let gated = !json::items(pod, &["spec", "schedulingGates"]).is_empty();
    if gated && status == "Pending" {
        status = "SchedulingGated";
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        status = "Terminating";
    }
    let or_none = |path: &[&str]| -> Value {
        let text = json::text(pod, path);
        if text.is_empty() {
            "<none>".into()
        } else {
            text.into()
        }
    };
    vec![
        name,
        format!("{ready}/{total}").into(),
        status.into(),
        restarts.to_string().into(),
        age,
        or_none(&["status", "podIP"]),
        or_none(&["spec", "nodeName"]),
        or_none(&["status", "nominatedNodeName"]),
        "<none>".into(),
    ]
}

fn job_cells(job: &Value, name: Value, age: Value, now: Timestamp) -> Vec<Value> {
    let is = |word: &str| crate::kinds::condition(job, word) == "True";
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if job["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let done = job["status"]["succeeded"].as_u64().unwrap_or(0);
    let completions = match job["spec"]["completions"].as_u64() {
        Some(wanted) => format!("{done}/{wanted}"),
        None => match job["spec"]["parallelism"].as_u64() {
            Some(parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
            _ => format!("{done}/1"),
        },
    };
    let started: Option<Timestamp> = json::text(job, &["status", "startTime"]).parse().ok();
    let ended: Option<Timestamp> = json::text(job, &["status", "completionTime"]).parse().ok();
    let duration = started.map_or_else(String::new, |started| {
        human(ended.unwrap_or(now).duration_since(started).as_secs())
    });
    let containers = json::items(job, &["spec", "template", "spec", "containers"]);
    let list = |field: &str| {
        let words: Vec<&str> = containers
            .iter()
            .map(|container| json::text(container, &[field]))
            .collect();
        words.join(",")
    };
    let selector: Vec<String> = job["spec"]["selector"]["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    vec![
        name,
        status.into(),
        completions.into(),
        duration.into(),
        age,
        list("name").into(),
        list("image").into(),
        selector.join(",").into(),
    ]
}

fn event_cells(event: &Value, name: Value, now: Timestamp) -> Vec<Value> {
    // Why either: the table shows events of both groups.
    let about = if event["involvedObject"].is_object() {
        &event["involvedObject"]
    } else {
        &event["regarding"]
    };
    let either = |a: &str, b: &str| -> String {
        let text = json::text(event, &[a]);
        if text.is_empty() {
            json::text(event, &[b]).to_owned()
        } else {
            text.to_owned()
        }
    };
    let time = [
        either("lastTimestamp", "deprecatedLastTimestamp"),
        either("eventTime", "eventTime"),
        either("firstTimestamp", "deprecatedFirstTimestamp"),
    ]
    .into_iter()
    .find(|time| !time.is_empty())
    .unwrap_or_default();
    let object = format!(
        "{}/{}",
        json::text(about, &["kind"]).to_lowercase(),
        json::text(about, &["name"])
    );
    let seen: Value = since(&time, now).into();
    vec![
        seen.clone(),
        either("type", "type").into(),
        either("reason", "reason").into(),
        object.into(),
        json::text(about, &["fieldPath"]).into(),
        either("reportingComponent", "reportingController").into(),
        either("message", "note").into(),
        seen,
        "1".into(),
        name,
    ]
}

/// What a path such as `.status.conditions[?(@.type=='Admitted')].status` names.
pub(crate) fn json_path(object: &Value, path: &str) -> Option<Value> {
    let mut here: Vec<&Value> = vec![object];
    let mut rest = path.trim_start_matches('.');
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (inside, after) = inside.split_once(']')?;
            rest = after.trim_start_matches('.');
            here = step_in(&here, inside)?;
            continue;
        }
        let end = field_end(rest);
        let field = rest[..end].replace("\\.", ".");
        rest = rest[end..].trim_start_matches('.');
        here = here.into_iter().filter_map(|value| value.get(&field)).collect();
    }
    here.first()
        .map(|value| Value::clone(value))
        .filter(|value| !value.is_null())
}

/// Where a field's name ends; an escaped dot is part of it.
fn field_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && (c == '.' || c == '[') {
            return at;
        }
        escaped = c == '\\';
    }
    text.len()
}

fn step_in<'a>(here: &[&'a Value], inside: &str) -> Option<Vec<&'a Value>> {
    let elements = || here.iter().filter_map(|value| value.as_array()).flatten();
    if inside == "*" {
        return Some(elements().collect());
    }
    if let Ok(index) = inside.parse::<usize>() {
        return Some(here.iter().filter_map(|value| value.get(index)).collect());
    }
    if let Some(filter) = inside
        .strip_prefix("?(@.")
        .and_then(|text| text.strip_suffix(')'))
    {
        let (field, wanted) = filter.split_once("==")?;
        let wanted = wanted.trim().trim_matches(['\'', '"']);
        return Some(elements().filter(|value| value[field.trim()] == wanted).collect());
    }
    let field = inside.trim_matches(['\'', '"']);
    Some(here.iter().filter_map(|value| value.get(field)).collect())
}

fn custom_cell(object: &Value, column: &Value, now: Timestamp) -> Value {
    let Some(value) = json_path(object, json::text(column, &["jsonPath"])) else {
        return Value::Null;
    };
    match json::text(column, &["type"]) {
        "date" => since(value.as_str().unwrap_or_default(), now).into(),
        "string" => match value {
            Value::String(_) => value,
            other
            @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string().into()
            }
        },
        _ => value,
    }
}

/// A table of objects. `meta` is the list's metadata.
pub(crate) fn render(
    kind: &Kind,
    objects: &[Value],
    meta: &Value,
    include: &str,
    now: Timestamp,
    head: Head,
) -> Value {
    let age_column = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let own: Vec<Value> = if kind.columns.is_empty() {
        vec![age_column]
    } else {
        kind.columns.clone()
    };
    let definitions: Vec<Value> = if kind.is_custom() {
        let named = json!({"name": "Name", "type": "string", "format": "name", "priority": 0, "description": "Name of the object"});
        let rest = own.iter().map(|column| {
            json!({
                "name": column["name"], "type": column["type"], "format": json::text(column, &["format"]),
                "priority": column["priority"].as_i64().unwrap_or(0), "description": json::text(column, &["description"]),
            })
        });
        std::iter::once(named).chain(rest).collect()
    } else {
        columns(kind)
            .into_iter()
            .map(|(name, type_name, priority)| {
                let format = if name == "Name" { "name" } else { "" };
                json!({"name": name, "type": type_name, "format": format, "priority": priority, "description": ""})
            })
            .collect()
    };
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = if kind.is_custom() {
                let rest = own.iter().map(|column| custom_cell(object, column, now));
                std::iter::once(name(object)).chain(rest).collect()
            } else {
                cells(kind, object, now)
            };
            let shown = match include {
                "None" => Value::Null,
                "Object" => object.clone(),
                _ => partial(object),
            };
            json!({"cells": cells, "object": shown})
        })
        .collect();
    let definitions = if head == Head::Yes {
        definitions.into()
    } else {
        Value::Null
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": definitions, "rows": rows,
    })
}

/// The metadata of an object, in the form in which clients ask for it alone.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_column_finds_the_element_with_a_type() {
        let object = json!({"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]}, "metadata": {"labels": {"a.b/c": "x"}}});
        let found = |path: &str| json_path(&object, path);
        assert_eq!(
            found(".status.conditions[?(@.type=='B')].status"),
            Some("True".into())
        );
        assert_eq!(found(".status.conditions[0].status"), Some("False".into()));
        assert_eq!(found(".metadata.labels.a\\.b/c"), Some("x".into()));
        assert_eq!(found(".spec.nothing"), None);
    }

    #[test]
    fn durations_are_said_as_kubectl_says_them() {
        for (seconds, said) in [
            (5, "5s"),
            (119, "119s"),
            (125, "2m5s"),
            (3600, "60m"),
            (90_000, "25h"),
            (864_000, "10d"),
        ] {
            assert_eq!(human(seconds), said);
        }
    }
}
