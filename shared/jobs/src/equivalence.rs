//! Whether a Workload still describes a job. *Source*: `spec/jobs.md 5.5`.

use roadstead_core::quantity;
use serde_json::{Map, Value};

use crate::json;
use crate::podset::JobPodSet;

/// Whether tolerations are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerations {
    /// Tolerations are compared.
    Compare,
    /// Tolerations are not compared, because the Workload is admitted.
    Skip,
}

/// Whether the pod sets of a job equal those of a Workload, pairwise by position. Counts, containers, init containers and, unless skipped,
/// tolerations are compared; names, labels, selectors and the rest are not.
pub fn same_pod_sets(job: &[JobPodSet], workload: &[JobPodSet], tolerations: Tolerations) -> bool {
    let same = |(left, right): (&JobPodSet, &JobPodSet)| {
        let field = |name: &str| {
            let (left, right) = [left, right]
                .map(|set| json::at(&set.template, &["spec", name]))
                .into();
            let plain = |value: Option<&Value>| without_repeated_env(value.cloned().unwrap_or_default());
            // Why compared as they are first: the templates are nearly always equal, and the closer comparison copies both.
            left == right || equal(&plain(left), &plain(right))
        };
        left.count == right.count
            && left.min_count == right.min_count
            && field("containers")
            && field("initContainers")
            && (tolerations == Tolerations::Skip || field("tolerations"))
    };
    job.len() == workload.len() && job.iter().zip(workload).all(same)
}

/// Whether two values mean the same: quantities are compared by value, and an absent value equals an empty collection.
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => same_fields(left, right, equal_field),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (left, right) => left == right || (is_empty(left) && is_empty(right)),
    }
}

fn equal_field(key: &str, left: &Value, right: &Value) -> bool {
    match (key, left, right) {
        ("requests" | "limits", Value::Object(left), Value::Object(right)) => {
            same_fields(left, right, |_, left, right| {
                match (text_of(left), text_of(right)) {
                    (Some(left), Some(right)) => quantity::same(&left, &right),
                    (None, _) | (_, None) => left == right,
                }
            })
        }
        _ => equal(left, right),
    }
}

fn same_fields(
    left: &Map<String, Value>,
    right: &Map<String, Value>,
    same: impl Fn(&str, &Value, &Value) -> bool,
) -> bool {
    let covers = |a: &Map<String, Value>, b: &Map<String, Value>| {
        a.iter()
            .all(|(key, value)| is_empty(value) || b.contains_key(key))
    };
    covers(left, right)
        && covers(right, left)
        && left.iter().all(|(key, value)| {
            let other = right.get(key).unwrap_or(&Value::Null);
            (is_empty(value) && is_empty(other)) || same(key, value, other)
        })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// A quantity as text: the API also accepts plain numbers.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The pod template with each environment variable name only once: at its first position, with its last value.
///
/// Why: the API refuses duplicates in a Workload, while a Job may have them. *Source*: `spec/jobs.md 5.6`.
pub fn sanitised(mut template: Value) -> Value {
    for list in ["containers", "initContainers"] {
        if let Some(containers) = json::at(&template, &["spec", list]).cloned() {
            json::set(&mut template, &["spec", list], without_repeated_env(containers));
        }
    }
    template
}

fn without_repeated_env(mut containers: Value) -> Value {
    for container in containers.as_array_mut().into_iter().flatten() {
        let Some(Value::Array(env)) = container.get_mut("env") else {
            continue;
        };
        let mut kept: Vec<Value> = Vec::with_capacity(env.len());
        for entry in env.drain(..) {
            let known = kept
                .iter_mut()
                .find(|known| known.get("name") == entry.get("name"));
            match known {
                Some(known) => *known = entry,
                None => kept.push(entry),
            }
        }
        *env = kept;
    }
    containers
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Tolerations, equal, same_pod_sets, sanitised};
    use crate::podset::JobPodSet;

    fn pod_set(change: fn(&mut JobPodSet)) -> Vec<JobPodSet> {
        let mut pod_set = JobPodSet {
            name: "main".to_owned(),
            count: 2,
            min_count: None,
            template: json!({"spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
                "tolerations": [{"key": "a"}],
            }}),
        };
        change(&mut pod_set);
        vec![pod_set]
    }

    fn same(change: fn(&mut JobPodSet), tolerations: Tolerations) -> bool {
        same_pod_sets(&pod_set(|_| {}), &pod_set(change), tolerations)
    }

    /// Spec: jobs 5.5, 15.23 to 15.25; multikueue 11.107.
    #[test]
    fn only_what_costs_quota_is_compared() {
        let cmp = Tolerations::Compare;
        assert!(same(|_| {}, cmp));
        assert!(same(|p| p.name = "x".to_owned(), cmp));
        assert!(same(
            |p| p.template["spec"]["nodeSelector"] = json!({"a": "b"}),
            cmp
        ));
        assert!(same(
            |p| p.template["metadata"] = json!({"labels": {"a": "b"}}),
            cmp
        ));
        assert!(same(|p| p.template["spec"]["initContainers"] = json!([]), cmp));
        assert!(same(|p| cpu_to(p, json!("1000m")), cmp));
        assert!(same(|p| cpu_to(p, json!(1)), cmp));
        assert!(!same(|p| cpu_to(p, json!("2")), cmp));
        assert!(!same(
            |p| p.template["spec"]["containers"][0]["image"] = json!("j"),
            cmp
        ));
        assert!(!same(|p| p.count = 3, cmp));
        assert!(!same(|p| p.min_count = Some(1), cmp));
        assert!(!same(|p| p.template["spec"]["tolerations"] = json!([]), cmp));
        assert!(same(
            |p| p.template["spec"]["tolerations"] = json!([]),
            Tolerations::Skip
        ));
        assert!(!same_pod_sets(&pod_set(|_| {}), &[], cmp));
    }

    fn cpu_to(pod_set: &mut JobPodSet, value: Value) {
        pod_set.template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = value;
    }

    #[test]
    fn nothing_and_an_empty_collection_are_equal() {
        assert!(equal(&json!({"a": []}), &json!({})));
        assert!(equal(&json!({"a": null, "b": {}}), &json!({"b": []})));
        assert!(!equal(&json!({"a": ""}), &json!({})));
        assert!(!equal(&json!({"a": 0}), &json!({})));
        assert!(equal(&json!(null), &json!([])));
    }

    /// Spec: jobs 15.49.
    #[test]
    fn an_environment_variable_stands_once_with_its_last_value() {
        let template = json!({"spec": {"containers": [{"env": [
            {"name": "X", "value": "1"}, {"name": "Y", "value": "2"}, {"name": "X", "value": "3"},
        ]}]}});
        assert_eq!(
            sanitised(template)["spec"]["containers"][0]["env"],
            json!([{"name": "X", "value": "3"}, {"name": "Y", "value": "2"}])
        );
    }
}
