//! Labels and annotations with which users control the queueing of their jobs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::{annotations, labels};

use crate::problem::LABEL_LEN_MAX;

/// A label of an object.
pub fn label<'a>(object: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    object.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation of an object.
pub fn annotation<'a>(object: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    object.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The owner of an object that controls it.
pub fn controller(object: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = object.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// The queue an object names; an empty name counts as none.
pub fn queue(object: &ObjectMeta) -> Option<&str> {
    label(object, labels::QUEUE_NAME).filter(|name| !name.is_empty())
}

/// The `WorkloadPriorityClass` an object names.
pub fn priority_class(object: &ObjectMeta) -> Option<&str> {
    label(object, labels::PRIORITY_CLASS).filter(|name| !name.is_empty())
}

/// Where the names that identify a Workload are read. *Source*: gate `WorkloadIdentifierAnnotations`, `spec/jobs.md 2.4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identifiers {
    /// The annotation first, then the label.
    #[default]
    Annotations,
    /// The label first; the annotation counts only if its name is too long for a label.
    Labels,
}

impl Identifiers {
    /// The choice that the feature gates make.
    pub fn of(gates: &FeatureGates) -> Self {
        if gates.enabled(FeatureGate::WorkloadIdentifierAnnotations) {
            Self::Annotations
        } else {
            Self::Labels
        }
    }

    pub(crate) fn read(self, annotation: &str) -> bool {
        self == Self::Annotations || annotation.len() > LABEL_LEN_MAX
    }

    /// The name that counts, of an annotation and a label; empty names do not count.
    pub fn choose<'a>(self, annotation: Option<&'a str>, label: Option<&'a str>) -> Option<&'a str> {
        let annotation = annotation.filter(|name| !name.is_empty() && self.read(name));
        let label = label.filter(|name| !name.is_empty());
        match self {
            Self::Annotations => annotation.or(label),
            Self::Labels => label.or(annotation),
        }
    }
}

/// The existing Workload an object wants to use.
///
/// *Source*: `spec/jobs.md 2.4`.
pub fn prebuilt(object: &ObjectMeta, identifiers: Identifiers) -> Option<&str> {
    identifiers.choose(
        annotation(object, annotations::PREBUILT_WORKLOAD_NAME),
        label(object, labels::PREBUILT_WORKLOAD_NAME),
    )
}

/// The longest time the job may run, in seconds; `None` when the label is absent or not a positive 32-bit number.
pub fn max_execution_secs(object: &ObjectMeta) -> Option<i32> {
    let secs = label(object, labels::MAX_EXEC_TIME_SECONDS)?;
    secs.parse::<i32>().ok().filter(|secs| *secs > 0)
}

/// The gates that keep an object out of the queue, as written.
pub fn gated_by(object: &ObjectMeta) -> Option<&str> {
    annotation(object, annotations::ADMISSION_GATED_BY)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use roadstead_api::config::FeatureGates;
    use serde_json::{Value, from_value, json};

    use super::{Identifiers, max_execution_secs, prebuilt, queue};

    fn meta(fields: Value) -> ObjectMeta {
        from_value(fields).unwrap()
    }

    /// Spec: jobs 2.4; api API-14
    #[test]
    fn the_prebuilt_name_is_read_where_the_gate_says() {
        let name = "kueue.x-k8s.io/prebuilt-workload-name";
        let long = "a".repeat(64);
        let read = |labels: Value, annotations: Value, identifiers| {
            let job = meta(json!({"labels": labels, "annotations": annotations}));
            prebuilt(&job, identifiers).map(str::to_owned)
        };
        let (label, annotation) = (json!({name: "l"}), json!({name: "a"}));
        for (labels, annotations, first, second) in [
            (&label, &annotation, Some("a"), Some("l")),
            (&label, &json!({}), Some("l"), Some("l")),
            (&json!({}), &annotation, Some("a"), None),
            (
                &json!({}),
                &json!({name: long}),
                Some(long.as_str()),
                Some(long.as_str()),
            ),
            (&json!({name: ""}), &json!({name: ""}), None, None),
        ] {
            let of = |identifiers| read(labels.clone(), annotations.clone(), identifiers);
            assert_eq!(
                of(Identifiers::Annotations).as_deref(),
                first,
                "{labels} {annotations}"
            );
            assert_eq!(
                of(Identifiers::Labels).as_deref(),
                second,
                "{labels} {annotations}"
            );
        }
        let gates = |on| FeatureGates::resolve([("WorkloadIdentifierAnnotations", on)]).unwrap();
        assert_eq!(Identifiers::of(&gates(false)), Identifiers::Labels);
        assert_eq!(
            Identifiers::of(&FeatureGates::default()),
            Identifiers::Annotations
        );
    }

    /// Spec: jobs 5.6.
    #[test]
    fn only_a_positive_time_is_a_limit() {
        let job = |text: &str| meta(json!({"labels": {"kueue.x-k8s.io/max-exec-time-seconds": text}}));
        assert_eq!(max_execution_secs(&job("60")), Some(60));
        for text in ["0", "-1", "abc", "2147483648", ""] {
            assert_eq!(max_execution_secs(&job(text)), None, "{text}");
        }
        assert_eq!(
            queue(&meta(json!({"labels": {"kueue.x-k8s.io/queue-name": ""}}))),
            None
        );
    }
}
