//! What one pod of a template asks for.
//!
//! Invariant: a template is looked into as JSON, field by field; what is not understood is a problem with a path, never a
//! panic. *Source*: `spec/admission-engine.md 4.5` (steps 3 and 4), `2.3` item 6.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use roadstead_core::amount::Amount;
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use roadstead_core::workload::{AffinityTerm, Requirement, Toleration};
use serde_json::{Map, Value};

use crate::queues::{operator, toleration};

/// What core wants to know of a pod template.
#[derive(Debug, Default)]
pub(crate) struct Pod {
    pub(crate) requests: BTreeMap<ResourceName, Amount>,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) affinity: Vec<AffinityTerm>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) problems: Vec<String>,
}

type Amounts = BTreeMap<ResourceName, Amount>;

/// Reads a pod template.
pub(crate) fn read(pod_set: &str, template: &Map<String, Value>) -> Pod {
    let empty = Map::new();
    let spec = template.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let mut pod = Pod::default();
    pod.requests = requests(pod_set, spec, &mut pod.problems);
    // Why typed here: only these three fields are needed, and their types are stable since the first version.
    let narrow: Map<String, Value> = ["nodeSelector", "affinity", "tolerations"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), spec.get(field)?.clone())))
        .chain([("containers".to_owned(), Value::Array(Vec::new()))])
        .collect();
    match serde_json::from_value::<PodSpec>(Value::Object(narrow)) {
        Ok(spec) => {
            pod.node_selector = spec.node_selector.unwrap_or_default();
            pod.tolerations = spec
                .tolerations
                .unwrap_or_default()
                .iter()
                .map(toleration)
                .collect();
            let required = spec.affinity.and_then(|a| a.node_affinity);
            let required = required.and_then(|n| n.required_during_scheduling_ignored_during_execution);
            for term in required
                .map(|selector| selector.node_selector_terms)
                .unwrap_or_default()
            {
                let expressions = term.match_expressions.unwrap_or_default().into_iter();
                let expressions = expressions.filter_map(|e| {
                    let operator = operator(&e.operator)?;
                    Some(Requirement {
                        key: e.key,
                        operator,
                        values: e.values.unwrap_or_default(),
                    })
                });
                pod.affinity.push(AffinityTerm {
                    expressions: expressions.collect(),
                });
            }
        }
        Err(error) => pod.problems.push(format!(
            "pod set {pod_set}: template.spec cannot be read: {error}"
        )),
    }
    pod
}

/// The pod's total: containers and sidecars together, or the highest moment of the init containers, plus overhead;
/// pod-level requests take precedence.
fn requests(pod_set: &str, spec: &Map<String, Value>, problems: &mut Vec<String>) -> Amounts {
    let mut list = |field: &str, value: Option<&Value>| effective(pod_set, field, value, problems);
    let mut running = Amounts::new();
    for (index, container) in array(spec, "containers").enumerate() {
        let amounts = list(&format!("containers[{index}]"), container.get("resources"));
        add(&mut running, &amounts);
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for (index, container) in array(spec, "initContainers").enumerate() {
        let amounts = list(&format!("initContainers[{index}]"), container.get("resources"));
        let mut moment = sidecars.clone();
        add(&mut moment, &amounts);
        highest(&mut peak, &moment);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            sidecars = moment;
        }
    }
    add(&mut running, &sidecars);
    highest(&mut running, &peak);
    for (resource, amount) in list("resources", spec.get("resources")) {
        running.insert(resource, amount);
    }
    let overhead = spec.get("overhead").and_then(Value::as_object);
    let overhead = overhead
        .map(|amounts| parse(pod_set, "overhead", amounts, problems))
        .unwrap_or_default();
    add(&mut running, &overhead);
    running
}

/// Requests, with missing ones copied from limits; requests above limits are a problem.
fn effective(pod_set: &str, field: &str, resources: Option<&Value>, problems: &mut Vec<String>) -> Amounts {
    let part = |name: &str| resources.and_then(|r| r.get(name)).and_then(Value::as_object);
    let empty = Map::new();
    let mut amounts = parse(pod_set, field, part("requests").unwrap_or(&empty), problems);
    for (resource, limit) in parse(pod_set, field, part("limits").unwrap_or(&empty), problems) {
        let request = *amounts.entry(resource.clone()).or_insert(limit);
        if request > limit {
            problems.push(format!(
                "resources validation failed: pod set {pod_set}: template.spec.{field}.resources.requests[{resource}]: \
                 requests must not exceed its limits"
            ));
        }
    }
    amounts
}

fn parse(pod_set: &str, field: &str, amounts: &Map<String, Value>, problems: &mut Vec<String>) -> Amounts {
    let mut parsed = Amounts::new();
    for (resource, value) in amounts {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        match quantity::parse(resource, &text) {
            Ok(amount) => {
                parsed.insert(ResourceName::from(resource.as_str()), amount);
            }
            Err(error) => problems.push(format!(
                "resources validation failed: pod set {pod_set}: template.spec.{field} resource {resource}: {error}"
            )),
        }
    }
    parsed
}

fn array<'a>(spec: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = &'a Value> {
    spec.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.plus(*amount);
    }
}

fn highest(to: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let highest = to.entry(resource.clone()).or_default();
        *highest = (*highest).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use roadstead_core::amount::Amount;
    use roadstead_core::name::ResourceName;
    use serde_json::{Value, json};

    use super::{Pod, read};

    fn pod(spec: &Value) -> Pod {
        read("main", json!({ "spec": spec }).as_object().unwrap())
    }

    fn amount(pod: &Pod, resource: &str) -> i64 {
        pod.requests
            .get(&ResourceName::from(resource))
            .copied()
            .unwrap_or(Amount::ZERO)
            .get()
    }

    /// Spec: admission-engine 4.5.4.
    #[test]
    fn init_containers_count_by_their_highest_moment_and_sidecars_stay() {
        let pod = pod(&json!({
            "containers": [{ "resources": { "requests": { "cpu": "1" } } }, { "resources": { "limits": { "cpu": "500m" } } }],
            "initContainers": [
                { "restartPolicy": "Always", "resources": { "requests": { "cpu": "250m" } } },
                { "resources": { "requests": { "cpu": "2", "memory": "1Gi" } } },
            ],
            "overhead": { "cpu": "10m" },
        }));
        assert_eq!(
            amount(&pod, "cpu"),
            2260,
            "sidecar 250 + init 2000 beats 1500 + 250; overhead 10"
        );
        assert_eq!(amount(&pod, "memory"), 1 << 30);
        assert!(pod.problems.is_empty());
    }

    /// Spec: admission-engine 2.3.6.
    #[test]
    fn a_request_above_its_limit_and_a_strange_amount_are_problems_with_a_path() {
        let pod = pod(&json!({ "containers": [
            { "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } },
            { "resources": { "requests": { "memory": "lots" } } },
        ] }));
        assert_eq!(pod.problems.len(), 2);
        assert!(
            pod.problems[0].contains("containers[0]")
                && pod.problems[0].contains("must not exceed its limits")
        );
        assert!(pod.problems[1].contains("containers[1]") && pod.problems[1].contains("memory"));
    }

    #[test]
    fn a_template_of_the_wrong_shape_is_a_problem_and_not_a_panic() {
        for spec in [
            json!("text"),
            json!({ "tolerations": 5 }),
            json!({ "containers": { "a": 1 } }),
            json!(null),
        ] {
            let _ = read("main", json!({ "spec": spec }).as_object().unwrap());
        }
        assert_eq!(pod(&json!({ "tolerations": 5 })).problems.len(), 1);
    }
}
