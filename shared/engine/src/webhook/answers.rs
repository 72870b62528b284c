//! Shared by handlers of all kinds: reading the objects of a request, and answering with problems.

use std::sync::Arc;

use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, Operation};
use roadstead_api::constants::labels;
use roadstead_jobs::problem::Problem;
use roadstead_serve::webhook::{AdmissionHandler, Cause, allowed, invalid};
use serde_json::Value;

pub(super) type Request = AdmissionRequest<DynamicObject>;

pub(super) fn unchanged() -> AdmissionHandler {
    Arc::new(|request| allowed(&request))
}

/// Allows everything unchanged, and warns the user that no process here manages this kind, if the new job names a queue.
pub(super) fn unheeded(kind: &'static str) -> AdmissionHandler {
    Arc::new(move |request| {
        let text = format!(
            "this cluster does not queue jobs of kind {kind}: its integration is not in integrations.frameworks, or not built; it is \
             left alone"
        );
        warned(allowed(&request), &request, &text)
    })
}

/// The same answer, with a warning if the request creates an object that names a queue.
pub(super) fn warned(mut answer: AdmissionResponse, request: &Request, why: &str) -> AdmissionResponse {
    let labels = request
        .object
        .as_ref()
        .and_then(|object| object.metadata.labels.as_ref());
    let queue = labels
        .and_then(|labels| labels.get(labels::QUEUE_NAME))
        .filter(|queue| !queue.is_empty());
    if let (Some(queue), Operation::Create) = (queue, &request.operation) {
        let text = format!("label {} ({queue}) has no effect: {why}", labels::QUEUE_NAME);
        answer.warnings.get_or_insert_default().push(text);
    }
    answer
}

/// The same answer, with more warnings.
pub(super) fn with_warnings(mut answer: AdmissionResponse, warnings: Vec<String>) -> AdmissionResponse {
    if !warnings.is_empty() {
        answer.warnings.get_or_insert_default().extend(warnings);
    }
    answer
}

pub(super) fn unless(request: &Request, problems: &[Problem]) -> AdmissionResponse {
    if problems.is_empty() {
        return allowed(request);
    }
    let causes: Vec<Cause> = problems
        .iter()
        .map(|problem| Cause {
            field: problem.field.clone(),
            reason: problem.sort.reason(),
            message: problem.detail(),
        })
        .collect();
    invalid(request, &causes)
}

pub(super) fn value(object: Option<&DynamicObject>) -> Option<Value> {
    object.and_then(|object| serde_json::to_value(object).ok())
}

/// Whether the object is being deleted. Its fields need no correction any more; it only loses finalizers.
pub(super) fn is_leaving(request: &Request) -> bool {
    let object = request.object.as_ref();
    object.is_some_and(|object| object.metadata.deletion_timestamp.is_some())
}
