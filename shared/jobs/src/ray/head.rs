//! The parts that the Ray operator adds to the head pod, which need quota too. *Source*: `spec/jobs.md 9.6`.

use roadstead_core::quantity;
use serde_json::{Value, json};

use crate::by_path::Path;
use crate::json;
use crate::kind::Member;
use crate::labels::annotation;
use crate::podset::JobPodSet;

pub(super) const NAME: &str = "head";
const AUTOSCALER: &str = "autoscaler";
const FAULT_TOLERANT: &str = "ray.io/ft-enabled";
/// The requests of the job that cleans up a Redis; it runs in place of the head.
const CLEANUP: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "256Mi")];

/// Adds the autoscaler and the clean-up to the pod set of the head; `spec` is the path of the spec of the cluster.
pub(super) fn add(object: Member<'_>, spec: Path, pod_sets: &mut [JobPodSet]) {
    let Some(cluster) = json::at(object.data, spec) else {
        return;
    };
    let Some(head) = pod_sets.iter_mut().find(|set| set.name == NAME) else {
        return;
    };
    let containers = json::list(&head.template, &["spec", "containers"]);
    let mut containers = containers.to_vec();
    if let Some(first) = containers.first_mut().filter(|_| is_tolerant(object, spec)) {
        for (resource, least) in CLEANUP {
            raise(first, resource, least);
        }
    }
    if json::is_true(cluster, &["enableInTreeAutoscaling"]) {
        let own = json::at(cluster, &["autoscalerOptions", "resources"]).cloned();
        let usual = json!({"cpu": "500m", "memory": "512Mi"});
        let resources = own.unwrap_or_else(|| json!({"limits": usual, "requests": usual}));
        containers.push(json!({"name": AUTOSCALER, "resources": resources}));
    }
    json::set(
        &mut head.template,
        &["spec", "containers"],
        Value::Array(containers),
    );
}

/// Whether the cluster keeps its state in a Redis.
pub(super) fn is_tolerant(object: Member<'_>, spec: Path) -> bool {
    annotation(object.meta, FAULT_TOLERANT) == Some("true")
        || json::at(object.data, spec)
            .is_some_and(|cluster| json::at(cluster, &["gcsFaultToleranceOptions"]).is_some())
}

/// Raises the request of a container to at least this amount.
fn raise(container: &mut Value, resource: &str, least: &str) {
    let path = ["resources", "requests", resource];
    let asked = match json::at(container, &path) {
        Some(Value::String(text)) => quantity::parse(resource, text).ok(),
        Some(Value::Number(number)) => quantity::parse(resource, &number.to_string()).ok(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    };
    if asked < quantity::parse(resource, least).ok() {
        json::set(container, &path, json!(least));
    }
}
