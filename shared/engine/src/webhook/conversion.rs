//! The conversion webhook: objects of `kueue.x-k8s.io` in another version; the rules live in
//! [`roadstead_convert::versions`].

use std::sync::Arc;

use kube::core::conversion::{ConversionRequest, ConversionResponse};
use roadstead_convert::versions;
use roadstead_kubeio::failure::with_causes;
use roadstead_serve::webhook::{ConversionHandler, conversion_failed};
use serde_json::Value;

/// The handler for [`roadstead_serve::webhook::CONVERT_PATH`]. It converts all objects of a review in order. If one cannot be
/// converted, it returns none and a message that names that object.
pub fn handler() -> ConversionHandler {
    Arc::new(convert)
}

fn convert(mut request: ConversionRequest) -> ConversionResponse {
    let objects = std::mem::take(&mut request.objects);
    let wanted = &request.desired_api_version;
    let mut converted = Vec::with_capacity(objects.len());
    for (index, object) in objects.into_iter().enumerate() {
        let name = Name::of(&object);
        match versions::convert(object, wanted) {
            Ok(object) => converted.push(object),
            Err(error) => {
                let message = name.problem(index, wanted, &error);
                tracing::warn!("conversion refused: {message}");
                return conversion_failed(&message);
            }
        }
    }
    ConversionResponse::for_request(request).success(converted)
}

/// The name of an object, kept for messages because the conversion consumes the object.
struct Name([String; 3]);

impl Name {
    fn of(object: &Value) -> Self {
        let text = |path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Self([text("/kind"), text("/metadata/namespace"), text("/metadata/name")])
    }

    fn problem(&self, index: usize, wanted: &str, error: &versions::Error) -> String {
        let Self([kind, namespace, name]) = self;
        let kind = if kind.is_empty() { "object" } else { kind };
        let slash = if namespace.is_empty() { "" } else { "/" };
        let why = with_causes(error);
        format!("{kind} {namespace}{slash}{name} (objects[{index}]) cannot be converted to {wanted}: {why}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(version: &str, objects: &[Value]) -> ConversionResponse {
        let request = json!({"uid": "u", "desiredAPIVersion": version, "objects": objects});
        convert(serde_json::from_value(request).unwrap())
    }

    fn queue(version: &str, spec: &Value) -> Value {
        json!({"apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec})
    }

    /// Spec: api API-11; admission-engine B002.
    #[test]
    fn all_objects_come_back_in_order() {
        let answer = ask(
            "kueue.x-k8s.io/v1beta2",
            &[
                queue("v1beta1", &json!({"cohort": "a"})),
                queue("v1beta2", &json!({"cohortName": "b"})),
            ],
        );
        let cohorts: Vec<&Value> = answer
            .converted_objects
            .iter()
            .map(|object| &object["spec"]["cohortName"])
            .collect();
        assert_eq!(cohorts, ["a", "b"]);
        assert_eq!(answer.uid, "u");
    }

    #[test]
    fn one_bad_object_fails_the_review_and_is_named() {
        for (version, bad, part) in [
            (
                "kueue.x-k8s.io/v3",
                queue("v1beta1", &json!({})),
                "ClusterQueue q (objects[1])",
            ),
            (
                "kueue.x-k8s.io/v1beta2",
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}),
                "Pod n/p (objects[1])",
            ),
            ("kueue.x-k8s.io/v1beta2", json!("text"), "object  (objects[1])"),
            ("kueue.x-k8s.io/v1beta2", Value::Null, "object  (objects[1])"),
        ] {
            let answer = ask(
                version,
                &[
                    queue(version.trim_start_matches("kueue.x-k8s.io/"), &json!({})),
                    bad,
                ],
            );
            assert_eq!(answer.converted_objects, Vec::<Value>::new());
            let message = &answer.result.message;
            // An unknown version is reported with the first object.
            assert!(
                message.contains(part) || message.contains("objects[0]"),
                "{message}"
            );
            assert!(
                message.contains(&format!("cannot be converted to {version}")),
                "{message}"
            );
        }
    }
}
