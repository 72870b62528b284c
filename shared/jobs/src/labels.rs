//! What users write on jobs to steer the queue: labels and annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::constants::{annotations, labels};

/// A label of an object.
pub fn label<'a>(object: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    object.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation of an object.
pub fn annotation<'a>(object: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    object.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The queue an object names; an empty name counts as none.
pub fn queue(object: &ObjectMeta) -> Option<&str> {
    label(object, labels::QUEUE_NAME).filter(|name| !name.is_empty())
}

/// The `WorkloadPriorityClass` an object names.
pub fn priority_class(object: &ObjectMeta) -> Option<&str> {
    label(object, labels::PRIORITY_CLASS).filter(|name| !name.is_empty())
}

/// The existing Workload an object wants to use: the annotation first, then the label.
///
/// *Source*: `spec/jobs.md 2.4`.
pub fn prebuilt(object: &ObjectMeta) -> Option<&str> {
    annotation(object, annotations::PREBUILT_WORKLOAD_NAME)
        .filter(|name| !name.is_empty())
        .or_else(|| label(object, labels::PREBUILT_WORKLOAD_NAME).filter(|name| !name.is_empty()))
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
    use serde_json::{Value, from_value, json};

    use super::{max_execution_secs, prebuilt, queue};

    fn meta(fields: Value) -> ObjectMeta {
        from_value(fields).unwrap()
    }

    /// Spec: jobs 2.4.
    #[test]
    fn the_prebuilt_name_is_read_from_both_places() {
        let name = "kueue.x-k8s.io/prebuilt-workload-name";
        let both = meta(json!({"labels": {name: "l"}, "annotations": {name: "a"}}));
        assert_eq!(prebuilt(&both), Some("a"));
        assert_eq!(prebuilt(&meta(json!({"labels": {name: "l"}}))), Some("l"));
        assert_eq!(prebuilt(&meta(json!({"labels": {name: ""}}))), None);
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
