//! The pods that the Spark operator makes from an application.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::json;

/// The role that plans the work.
pub(super) const DRIVER: &str = "driver";
/// The role that executes the work.
pub(super) const EXECUTOR: &str = "executor";
/// The fields for the template of a role and its number of pods. No field of the API has these names.
pub(super) const TEMPLATE: &str = "pods";
pub(super) const NUMBER: &str = "number";

/// Default memory of a role. *Source*: Spark, `spark.driver.memory`.
const MEMORY_MIB: u64 = 1024;
/// Least memory outside the heap. *Source*: Spark, `spark.driver.memoryOverhead`.
const OVERHEAD_MIN_MIB: u64 = 384;
/// Memory outside the heap, in thousandths of the heap. *Source*: Spark, `spark.kubernetes.memoryOverheadFactor`.
const OVERHEAD_OF_JVM: u64 = 100;
/// Memory outside the heap for programs that run beside a Java machine, in thousandths of the heap.
const OVERHEAD_OF_OTHERS: u64 = 400;
/// The number of decimal places of a factor that are read; further ones are ignored.
const FACTOR_DIGITS: usize = 3;

/// Fields of a role that a start may change, with their places in a template.
const PLACED: [(&str, [&str; 2]); 4] = [
    ("labels", ["metadata", "labels"]),
    ("annotations", ["metadata", "annotations"]),
    ("nodeSelector", ["spec", "nodeSelector"]),
    ("tolerations", ["spec", "tolerations"]),
];
/// Fields of a role that a start does not change, with their places in a template's spec.
const KEPT: [(&str, &str); 6] = [
    ("affinity", "affinity"),
    ("initContainers", "initContainers"),
    ("priorityClassName", "priorityClassName"),
    ("schedulerName", "schedulerName"),
    ("hostNetwork", "hostNetwork"),
    ("serviceAccount", "serviceAccountName"),
];

/// The application with a template for each role.
pub(super) fn filled(app: &Value) -> Cow<'_, Value> {
    let mut filled = app.clone();
    for role in [DRIVER, EXECUTOR] {
        if !json::at(app, &["spec", role]).is_some_and(Value::is_object) {
            continue;
        }
        json::set(&mut filled, &["spec", role, TEMPLATE], template(app, role));
        if role == EXECUTOR {
            let number = json::at(app, &["spec", role, "instances"]);
            let number = number.cloned().unwrap_or_else(|| json!(0));
            json::set(&mut filled, &["spec", role, NUMBER], number);
        }
    }
    Cow::Owned(filled)
}

/// Removes the templates, and moves their changes into the fields of their roles.
///
/// The node selector of the whole application also moves into the roles, because the API allows only one of the two.
pub(super) fn emptied(app: &mut Value) {
    let mut moved = false;
    for role in [DRIVER, EXECUTOR] {
        let Some(template) = json::at(app, &["spec", role, TEMPLATE]).cloned() else {
            continue;
        };
        moved = true;
        for (field, place) in PLACED {
            match json::at(&template, &place) {
                Some(value) => json::set(app, &["spec", role, field], value.clone()),
                None => json::remove(app, &["spec", role, field]),
            }
        }
        json::remove(app, &["spec", role, TEMPLATE]);
        json::remove(app, &["spec", role, NUMBER]);
    }
    if moved {
        json::remove(app, &["spec", "nodeSelector"]);
    }
}

fn template(app: &Value, role: &str) -> Value {
    let of = |field: &str| json::at(app, &["spec", role, field]);
    let own = of("template").filter(|template| template.is_object());
    let mut template = own.cloned().unwrap_or_else(|| json!({}));
    for (field, place) in PLACED {
        if let Some(value) = of(field) {
            json::set(&mut template, &place, value.clone());
        }
    }
    if let Some(everywhere) = json::at(app, &["spec", "nodeSelector"]).and_then(Value::as_object) {
        for (key, value) in everywhere {
            json::set(&mut template, &["spec", "nodeSelector", key], value.clone());
        }
    }
    for (field, place) in KEPT {
        if let Some(value) = of(field) {
            json::set(&mut template, &["spec", place], value.clone());
        }
    }
    if let Some(volumes) = json::at(app, &["spec", "volumes"]) {
        json::set(&mut template, &["spec", "volumes"], volumes.clone());
    }
    let mut containers = vec![container(app, role)];
    containers.extend(json::list(app, &["spec", role, "sidecars"]).iter().cloned());
    json::set(&mut template, &["spec", "containers"], Value::Array(containers));
    template
}

/// The container of Spark itself.
fn container(app: &Value, role: &str) -> Value {
    let of = |field: &str| json::at(app, &["spec", role, field]);
    let mut container = json!({
        "name": format!("spark-kubernetes-{role}"),
        "resources": resources(app, role),
    });
    let image = of("image").or_else(|| json::at(app, &["spec", "image"]));
    for (field, value) in [
        ("image", image),
        ("env", of("env")),
        ("envFrom", of("envFrom")),
        ("volumeMounts", of("volumeMounts")),
    ] {
        if let Some(value) = value {
            container[field] = value.clone();
        }
    }
    container
}

fn resources(app: &Value, role: &str) -> Value {
    let of = |field: &str| json::at(app, &["spec", role, field]);
    let text = |field: &str| of(field).and_then(Value::as_str);
    let cores = of("cores").and_then(Value::as_u64).unwrap_or(1).to_string();
    let memory = format!("{}Mi", memory_mib(app, role));
    let mut requests = Map::new();
    let mut limits = Map::new();
    requests.insert("cpu".to_owned(), json!(text("coreRequest").unwrap_or(&cores)));
    requests.insert("memory".to_owned(), json!(memory));
    let limit = text("memoryLimit").map_or_else(|| memory.clone(), limit);
    limits.insert("memory".to_owned(), json!(limit));
    if let Some(limit) = text("coreLimit") {
        limits.insert("cpu".to_owned(), json!(limit));
    }
    if let Some(device) = of("gpu").and_then(|gpu| json::text(gpu, &["name"])) {
        let many = of("gpu")
            .and_then(|gpu| json::int(gpu, &["quantity"]))
            .unwrap_or(0);
        for list in [&mut requests, &mut limits] {
            list.insert(device.to_owned(), json!(many.to_string()));
        }
    }
    json!({"requests": requests, "limits": limits})
}

/// The heap plus the memory outside of it.
fn memory_mib(app: &Value, role: &str) -> u64 {
    let of = |field: &str| json::text(app, &["spec", role, field]);
    let heap = of("memory").and_then(mib).unwrap_or(MEMORY_MIB);
    let is_jvm = matches!(json::text(app, &["spec", "type"]), Some("Java" | "Scala"));
    let usual = if is_jvm {
        OVERHEAD_OF_JVM
    } else {
        OVERHEAD_OF_OTHERS
    };
    let factor = json::text(app, &["spec", "memoryOverheadFactor"]).and_then(thousandths);
    let share = heap.saturating_mul(factor.unwrap_or(usual)) / 1000;
    let beside = of("memoryOverhead").and_then(mib);
    heap.saturating_add(beside.unwrap_or_else(|| share.max(OVERHEAD_MIN_MIB)))
}

/// Parses an amount of memory as Spark writes it, in MiB: a number with `k`, `m`, `g`, `t` or `p`, or without suffix in MiB.
fn mib(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let unit = text
        .get(digits.len()..)?
        .trim_end_matches("ib")
        .trim_end_matches('b');
    match unit {
        "k" => Some(number.div_ceil(1 << 10)),
        "" | "m" => Some(number),
        "g" => number.checked_mul(1 << 10),
        "t" => number.checked_mul(1 << 20),
        "p" => number.checked_mul(1 << 30),
        _ => None,
    }
}

/// A memory limit as a quantity. The operator reads the units of Spark, and everything else as a quantity: `2g` is 2 GiB, `1024` is 1 KiB.
fn limit(text: &str) -> String {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let mib = mib(text).filter(|_| has_unit);
    mib.map_or_else(|| text.to_owned(), |mib| format!("{mib}Mi"))
}

/// Parses a factor such as `0.25`.
fn thousandths(text: &str) -> Option<u64> {
    let text = text.trim();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain("000".chars()).take(FACTOR_DIGITS).collect();
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    whole.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}
