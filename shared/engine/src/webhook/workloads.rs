//! The validating webhook of Workloads: the rules live in [`roadstead_convert::validate_workload`].

use std::sync::Arc;

use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_serve::webhook::{AdmissionHandler, allowed, denied, invalid};

/// The handler.
pub(super) fn handler() -> AdmissionHandler {
    Arc::new(|request| validate(&request))
}

fn validate(request: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let parse = |object: &Option<DynamicObject>| match object {
        None => Ok(None),
        Some(object) => serde_json::to_value(object)
            .and_then(serde_json::from_value::<Workload>)
            .map(Some),
    };
    let (old, new) = match (parse(&request.old_object), parse(&request.object)) {
        (Ok(old), Ok(Some(new))) => (old, new),
        (Ok(_), Ok(None)) => return allowed(request),
        (Err(error), _) | (_, Err(error)) => {
            return denied(request, &format!("the Workload cannot be read: {error}"));
        }
    };
    if new.metadata.deletion_timestamp.is_some() {
        return allowed(request);
    }
    let problems = roadstead_convert::validate_workload(old.as_ref(), &new);
    if problems.is_empty() {
        return allowed(request);
    }
    let causes: Vec<(String, String)> = problems
        .iter()
        .map(|p| (p.field.clone(), p.message.clone()))
        .collect();
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    invalid(request, &text.join("; "), &causes)
}
