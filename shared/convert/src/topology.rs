//! What a pod template asks about places by topology.
//!
//! *Source*: `spec/jobs.md 8`.

use roadstead_api::constants::annotations::{
    PODSET_GROUP_NAME, PODSET_PREFERRED_TOPOLOGY, PODSET_REQUIRED_TOPOLOGY, PODSET_SLICE_REQUIRED_TOPOLOGY,
    PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS, PODSET_SLICE_SIZE, PODSET_UNCONSTRAINED_TOPOLOGY,
};
use roadstead_api::kueue::v1beta2 as api;
use serde_json::Value;

/// The topology request in the annotations of a template; `None` if they ask for no place.
///
/// A value that does not parse counts as not written: the webhooks of the kinds refuse it.
pub(crate) fn topology_request(template: &api::RawTemplate) -> Option<Box<api::PodSetTopologyRequest>> {
    let notes = template.get("metadata")?.get("annotations")?;
    let text = |key: &str| notes.get(key).and_then(Value::as_str);
    let owned = |key: &str| text(key).map(str::to_owned);
    let layers =
        text(PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS).and_then(|layers| serde_json::from_str(layers).ok());
    let mut request = api::PodSetTopologyRequest {
        required: owned(PODSET_REQUIRED_TOPOLOGY),
        podset_slice_required_topology_constraints: layers.unwrap_or_default(),
        ..api::PodSetTopologyRequest::default()
    };
    // Why one after the other: the API refuses requests that the annotations of kinds without a webhook of ours may state.
    if request.required.is_none() {
        request.preferred = owned(PODSET_PREFERRED_TOPOLOGY);
    }
    if request.required.is_some() || request.preferred.is_some() {
        request.pod_set_group_name = owned(PODSET_GROUP_NAME);
    } else {
        request.unconstrained = text(PODSET_UNCONSTRAINED_TOPOLOGY).map(is_true);
    }
    let size = text(PODSET_SLICE_SIZE).and_then(|size| size.parse().ok());
    if let (Some(topology), Some(size)) = (owned(PODSET_SLICE_REQUIRED_TOPOLOGY), size) {
        request.pod_set_slice_required_topology = Some(topology);
        request.pod_set_slice_size = Some(size);
    }
    asks(&request).then(|| Box::new(request))
}

/// Whether a request asks for places.
pub(crate) fn asks(request: &api::PodSetTopologyRequest) -> bool {
    request.required.is_some()
        || request.preferred.is_some()
        || request.unconstrained.is_some()
        || request.pod_set_slice_required_topology.is_some()
        || request.pod_set_slice_size.is_some()
        || !request.podset_slice_required_topology_constraints.is_empty()
}

/// Wire: the texts that Go reads as true.
fn is_true(text: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True"].contains(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(notes: &Value) -> Option<Value> {
        let template = serde_json::from_value(json!({"metadata": {"annotations": notes}})).unwrap();
        topology_request(&template).map(|request| serde_json::to_value(request).unwrap())
    }

    /// Spec: jobs 8.
    #[test]
    fn the_annotations_of_a_template_become_its_topology_request() {
        let key = |name: &str| format!("kueue.x-k8s.io/podset-{name}");
        assert_eq!(request(&json!({"other": "x"})), None);
        assert_eq!(
            request(&json!({key("required-topology"): "rack", key("group-name"): "g"})),
            Some(json!({"required": "rack", "podSetGroupName": "g"}))
        );
        assert_eq!(
            request(&json!({key("unconstrained-topology"): "true"})),
            Some(json!({"unconstrained": true}))
        );
        assert_eq!(
            request(&json!({key("slice-required-topology"): "host", key("slice-size"): "2"})),
            Some(json!({"podSetSliceRequiredTopology": "host", "podSetSliceSize": 2}))
        );
        assert_eq!(
            request(
                &json!({key("slice-required-topology-constraints"): "[{\"topology\":\"a\",\"size\":4}]"})
            ),
            Some(json!({"podsetSliceRequiredTopologyConstraints": [{"topology": "a", "size": 4}]}))
        );
        assert_eq!(request(&json!({key("slice-size"): "many"})), None);
        assert_eq!(
            request(&json!({key("slice-size"): "2", key("group-name"): "g"})),
            None
        );
        let both = json!({key("required-topology"): "a", key("preferred-topology"): "b"});
        assert_eq!(request(&both), Some(json!({"required": "a"})));
    }
}
