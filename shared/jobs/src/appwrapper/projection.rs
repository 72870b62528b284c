//! The pod template as the engine sees it: the fields for quota and placement, with the API server's defaults.
//!
//! Wire: equal to the reference's projection, so that a Workload made by either matches. *Source*: `spec/appwrapper.md 1.8`.

use serde_json::{Map, Value, json};

use crate::json;

/// Fields of a pod that are copied unchanged.
///
/// Unlike the anchor: `resources` and `resourceClaims` too, because they are used (`spec/appwrapper.md` N-5), and `runtimeClassName`, because
/// quota counts the overhead of that class.
const POD_FIELDS: [&str; 10] = [
    "nodeSelector",
    "nodeName",
    "affinity",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "overhead",
    "topologySpreadConstraints",
    "resources",
    "resourceClaims",
];
/// Fields of a container that are copied unchanged.
const CONTAINER_FIELDS: [&str; 5] = ["name", "image", "command", "args", "securityContext"];

pub(super) fn of(template: &Value) -> Value {
    let mut after = json!({});
    for part in ["labels", "annotations"] {
        let texts: Map<String, Value> =
            { json::at(template, &["metadata", part]).and_then(Value::as_object) }
                .into_iter()
                .flatten()
                .filter(|(_, value)| value.is_string())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
        if !texts.is_empty() {
            json::set(&mut after, &["metadata", part], Value::Object(texts));
        }
    }
    let none = json!({});
    let spec = json::at(template, &["spec"]).unwrap_or(&none);
    let mut pod = picked(spec, &POD_FIELDS);
    for (field, default) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        let value = json::at(spec, &[field]).cloned().unwrap_or(default);
        pod.insert(field.to_owned(), value);
    }
    // Wire: a set value is left out, and an absent value gets the default.
    if json::at(spec, &["terminationGracePeriodSeconds"]).is_none() {
        pod.insert("terminationGracePeriodSeconds".to_owned(), json!(30));
    }
    for list in ["containers", "initContainers"] {
        let containers: Vec<Value> = json::list(spec, &[list]).iter().map(container).collect();
        if !containers.is_empty() || list == "containers" {
            pod.insert(list.to_owned(), Value::Array(containers));
        }
    }
    json::set(&mut after, &["spec"], Value::Object(pod));
    after
}

fn picked(object: &Value, fields: &[&str]) -> Map<String, Value> {
    let found = fields
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), json::at(object, &[field])?.clone())));
    found.collect()
}

fn container(container: &Value) -> Value {
    let mut kept = picked(container, &CONTAINER_FIELDS);
    let resources =
        json::at(container, &["resources"]).map(|all| picked(all, &["requests", "limits", "claims"]));
    kept.insert(
        "resources".to_owned(),
        Value::Object(resources.unwrap_or_default()),
    );
    // Unlike the anchor: a sidecar stays one (`spec/appwrapper.md` N-5).
    if let Some(policy) = json::at(container, &["restartPolicy"]) {
        kept.insert("restartPolicy".to_owned(), policy.clone());
    }
    let image = json::text(container, &["image"]).unwrap_or_default();
    for (field, default) in [
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("imagePullPolicy", pull_policy(image)),
    ] {
        let value = json::at(container, &[field])
            .cloned()
            .unwrap_or_else(|| json!(default));
        kept.insert(field.to_owned(), value);
    }
    Value::Object(kept)
}

fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    let is_fixed = image.is_empty() || image.contains('@') || tag.is_some_and(|tag| tag != "latest");
    if is_fixed { "IfNotPresent" } else { "Always" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: appwrapper 1.8, N-5.
    #[test]
    fn what_matters_to_quota_stays_and_the_rest_is_left_out() {
        let template = json!({
            "metadata": {"labels": {"a": "1", "n": 7}, "name": "x"},
            "spec": {
                "terminationGracePeriodSeconds": 5, "priority": 3, "volumes": [{"name": "v"}],
                "nodeSelector": {"k": "v"}, "resourceClaims": [{"name": "c"}], "runtimeClassName": "gvisor",
                "containers": [{
                    "name": "c", "image": "registry:5000/i", "env": [{"name": "SECRET", "value": "s"}],
                    "resources": {"requests": {"cpu": "1"}},
                }],
                "initContainers": [{"name": "s", "image": "i:1", "restartPolicy": "Always"}],
            },
        });
        let container = |name: &str, image: &str, policy: &str, resources: Value| {
            json!({
                "name": name, "image": image, "resources": resources, "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "imagePullPolicy": policy,
            })
        };
        let mut sidecar = container("s", "i:1", "IfNotPresent", json!({}));
        sidecar["restartPolicy"] = "Always".into();
        assert_eq!(
            of(&template),
            json!({
                "metadata": {"labels": {"a": "1"}},
                "spec": {
                    "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "securityContext": {},
                    "schedulerName": "default-scheduler", "preemptionPolicy": "PreemptLowerPriority",
                    "nodeSelector": {"k": "v"}, "resourceClaims": [{"name": "c"}], "runtimeClassName": "gvisor",
                    "containers": [container("c", "registry:5000/i", "Always", json!({"requests": {"cpu": "1"}}))],
                    "initContainers": [sidecar],
                },
            })
        );
        for (image, policy) in [
            ("i@sha256:0", "IfNotPresent"),
            ("i:latest", "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
        assert_eq!(of(&Value::Null)["spec"]["terminationGracePeriodSeconds"], 30);
    }
}
