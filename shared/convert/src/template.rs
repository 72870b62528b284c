//! The requests of one pod of a template.
//!
//! Invariant: a template is read as JSON, field by field; a malformed field is reported with its path and never causes a panic.
//! [`roadstead_core::requests`] adds up the amounts.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::PodSpec;
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use roadstead_core::requests::{self, Amounts, Container, Place, Resources};
use roadstead_core::taint::Toleration;
use roadstead_core::workload::{AffinityTerm, Requirement};
use serde_json::{Map, Value};

use crate::queues::{operator, toleration};

/// The parts of a pod template that core needs.
#[derive(Debug, Default)]
pub(crate) struct Pod {
    pub(crate) asked: requests::Pod,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) affinity: Vec<AffinityTerm>,
    pub(crate) tolerations: Vec<Toleration>,
}

/// Reads the spec of a pod template; `path` is its path, for `invalid`.
pub(crate) fn read(path: &str, spec: Option<&Value>, invalid: &mut Vec<String>) -> Pod {
    let empty = Map::new();
    let spec = spec.and_then(Value::as_object).unwrap_or(&empty);
    let mut pod = Pod {
        asked: asked(path, spec, invalid),
        ..Pod::default()
    };
    // Why typed here: only these three fields are needed, and their types have been stable since the first version.
    let mut narrow: Map<String, Value> = ["nodeSelector", "affinity", "tolerations"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), spec.get(field)?.clone())))
        .collect();
    if narrow.is_empty() {
        return pod;
    }
    narrow.insert("containers".to_owned(), Value::Array(Vec::new()));
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
        Err(error) => invalid.push(format!("{path} cannot be read: {error}")),
    }
    pod
}

/// The parts of the pod that cost quota.
fn asked(path: &str, spec: &Map<String, Value>, invalid: &mut Vec<String>) -> requests::Pod {
    let mut list = |field: &'static str| -> Vec<Container> {
        let listed = spec.get(field).and_then(Value::as_array).into_iter().flatten();
        let container = |(index, container): (usize, &Value)| Container {
            resources: resources(
                Place {
                    spec: path,
                    container: Some((field, index)),
                },
                container.get("resources"),
                invalid,
            ),
            sidecar: container.get("restartPolicy").and_then(Value::as_str) == Some("Always"),
        };
        listed.enumerate().map(container).collect()
    };
    let (containers, init_containers) = (list("containers"), list("initContainers"));
    let runtime_class = spec.get("runtimeClassName").and_then(Value::as_str);
    let claims = spec.get("resourceClaims").and_then(Value::as_array);
    let whole = Place {
        spec: path,
        container: None,
    };
    requests::Pod {
        containers,
        init_containers,
        whole: resources(whole, spec.get("resources"), invalid),
        overhead: amounts(format_args!("{path}.overhead"), spec.get("overhead"), invalid),
        runtime_class: runtime_class.filter(|name| !name.is_empty()).map(str::to_owned),
        claims_devices: claims.is_some_and(|claims| !claims.is_empty()),
    }
}

fn resources(place: Place<'_>, value: Option<&Value>, invalid: &mut Vec<String>) -> Resources {
    let mut part = |name: &str| {
        let field = format_args!("{place}.resources.{name}");
        amounts(field, value.and_then(|value| value.get(name)), invalid)
    };
    Resources {
        requests: part("requests"),
        limits: part("limits"),
    }
}

fn amounts(path: fmt::Arguments<'_>, value: Option<&Value>, invalid: &mut Vec<String>) -> Amounts {
    let mut parsed = Amounts::new();
    for (resource, value) in value.and_then(Value::as_object).into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        match quantity::parse(resource, &text) {
            Ok(amount) => {
                parsed.insert(ResourceName::from(resource.as_str()), amount);
            }
            Err(error) => invalid.push(format!("{path}[{resource}]: {error}")),
        }
    }
    parsed
}

#[cfg(test)]
mod tests {
    use roadstead_core::amount::Amount;
    use serde_json::{Value, json};

    use super::{Pod, read};

    fn pod(spec: &Value) -> (Pod, Vec<String>) {
        let mut invalid = Vec::new();
        let pod = read("spec", Some(spec), &mut invalid);
        (pod, invalid)
    }

    #[test]
    fn everything_that_costs_quota_is_read() {
        let (pod, invalid) = pod(&json!({
            "containers": [{ "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": 2 } } }, {}],
            "initContainers": [{ "restartPolicy": "Always", "resources": { "requests": { "cpu": "250m" } } }],
            "overhead": { "cpu": "10m" },
            "resources": { "requests": { "memory": "1Gi" } },
            "runtimeClassName": "gvisor",
            "resourceClaims": [{ "name": "gpu" }],
        }));
        assert_eq!(invalid, [] as [String; 0]);
        let asked = pod.asked;
        assert_eq!(asked.containers.len(), 2);
        assert_eq!(
            asked.containers[0].resources.limits[&"cpu".into()],
            Amount::new(2000)
        );
        assert!(asked.init_containers[0].sidecar && !asked.containers[0].sidecar);
        assert_eq!(asked.overhead[&"cpu".into()], Amount::new(10));
        assert_eq!(asked.whole.requests[&"memory".into()], Amount::new(1 << 30));
        assert_eq!(asked.runtime_class.as_deref(), Some("gvisor"));
        assert!(asked.claims_devices);
    }

    /// Spec: admission-engine 2.3.6.
    #[test]
    fn a_strange_amount_is_told_with_its_path() {
        let (_, invalid) =
            pod(&json!({ "containers": [{}, { "resources": { "requests": { "memory": "lots" } } }] }));
        assert_eq!(invalid.len(), 1);
        assert!(
            invalid[0].starts_with("spec.containers[1].resources.requests[memory]: "),
            "{invalid:?}"
        );
    }

    #[test]
    fn a_template_of_the_wrong_shape_is_told_and_no_panic() {
        for spec in [
            json!("text"),
            json!({ "tolerations": 5 }),
            json!({ "containers": { "a": 1 } }),
            json!({ "resourceClaims": 1, "runtimeClassName": [] }),
            json!(null),
        ] {
            let _ = pod(&spec);
        }
        assert_eq!(pod(&json!({ "tolerations": 5 })).1.len(), 1);
    }
}
