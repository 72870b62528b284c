//! Reviews in and out, and the few answers a handler gives.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};
use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary};
use serde_json::{Value, json};

const ADMISSION_VERSION: &str = "admission.k8s.io/v1";
const CONVERSION_VERSION: &str = "apiextensions.k8s.io/v1";

/// Allows the request unchanged.
pub fn allowed(request: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    AdmissionResponse::from(request)
}

/// Refuses the request with a message, as 403 Forbidden.
pub fn denied(request: &AdmissionRequest<DynamicObject>, message: &str) -> AdmissionResponse {
    refused(&request.uid, 403, "Forbidden", message)
}

/// Refuses the request because fields are wrong, as 422 Invalid with one cause per field.
///
/// `causes` are pairs of field path and message, such as (`spec.parallelism`, `must be greater than 0`).
pub fn invalid(
    request: &AdmissionRequest<DynamicObject>,
    message: &str,
    causes: &[(String, String)],
) -> AdmissionResponse {
    let mut response = refused(&request.uid, 422, "Invalid", message);
    response.result.details = Some(StatusDetails {
        name: request.name.clone(),
        group: request.kind.group.clone(),
        kind: request.kind.kind.clone(),
        causes: causes
            .iter()
            .map(|(field, message)| cause(field, message))
            .collect(),
        uid: String::new(),
        retry_after_seconds: 0,
    });
    response
}

/// Refuses the request because the handler itself could not do its work, as 500.
pub fn failed(request: &AdmissionRequest<DynamicObject>, message: &str) -> AdmissionResponse {
    failed_for(&request.uid, message)
}

/// Allows the request and changes the object to `changed`, as the smallest JSON patch from the request's own object.
pub fn patched(request: &AdmissionRequest<DynamicObject>, changed: &DynamicObject) -> AdmissionResponse {
    let before = request
        .object
        .as_ref()
        .map_or(Ok(Value::Null), serde_json::to_value);
    let (Ok(before), Ok(after)) = (before, serde_json::to_value(changed)) else {
        return failed(request, "the object cannot be printed as JSON");
    };
    let patch = json_patch::diff(&before, &after);
    if patch.is_empty() {
        return allowed(request);
    }
    allowed(request)
        .with_patch(patch)
        .unwrap_or_else(|error| failed(request, &format!("the patch cannot be printed: {error}")))
}

fn cause(field: &str, message: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueInvalid".into(),
        message: message.into(),
        field: field.into(),
    }
}

pub(super) fn failed_for(uid: &str, message: &str) -> AdmissionResponse {
    refused(uid, 500, "InternalError", message)
}

fn refused(uid: &str, code: u16, reason: &str, message: &str) -> AdmissionResponse {
    let mut response = AdmissionResponse::invalid(message);
    response.uid = uid.into();
    response.result = status(code, reason, message);
    response
}

fn status(code: u16, reason: &str, message: &str) -> Status {
    Status {
        status: Some(StatusSummary::Failure),
        code,
        message: message.into(),
        metadata: None,
        reason: reason.into(),
        details: None,
    }
}

pub(super) fn conversion_failed(message: &str) -> ConversionResponse {
    ConversionResponse::invalid(status(500, "InternalError", message))
}

/// Reads an admission review of version v1.
pub(super) fn parse_admission(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>, String> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an AdmissionReview of {ADMISSION_VERSION}: {error}"))?;
    if review.types.api_version != ADMISSION_VERSION || review.types.kind != "AdmissionReview" {
        let (version, kind) = (&review.types.api_version, &review.types.kind);
        return Err(format!(
            "expected {ADMISSION_VERSION} AdmissionReview, got {version} {kind}"
        ));
    }
    review
        .try_into()
        .map_err(|_missing| "the AdmissionReview has no request".to_owned())
}

/// Reads a conversion review of version v1.
pub(super) fn parse_conversion(body: &[u8]) -> Result<ConversionRequest, String> {
    let review: ConversionReview = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not a ConversionReview of {CONVERSION_VERSION}: {error}"))?;
    if review.types.api_version != CONVERSION_VERSION || review.types.kind != "ConversionReview" {
        let (version, kind) = (&review.types.api_version, &review.types.kind);
        return Err(format!(
            "expected {CONVERSION_VERSION} ConversionReview, got {version} {kind}"
        ));
    }
    ConversionRequest::from_review(review)
        .map_err(|_missing| "the ConversionReview has no request".to_owned())
}

/// Prints the answer as a review.
pub(super) fn render_admission(mut response: AdmissionResponse) -> Value {
    // Wire: the patch is bytes, which are base64 in JSON; kube's type prints them as a list of numbers.
    let patch = response.patch.take();
    let mut body = json!({
        "kind": "AdmissionReview", "apiVersion": ADMISSION_VERSION, "response": response,
    });
    if let (Some(patch), Some(response)) = (patch, body.get_mut("response").and_then(Value::as_object_mut)) {
        response.insert("patch".into(), STANDARD.encode(patch).into());
    }
    body
}
