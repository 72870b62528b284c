//! Parsing and printing of reviews, and the few answers that a handler gives.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use kube::core::conversion::{ConversionRequest, ConversionResponse};
use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary};
use kube::core::{DynamicObject, TypeMeta};
use serde::Deserialize;
use serde::de::DeserializeOwned;
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

/// One wrong field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field, such as `spec.parallelism`.
    pub field: String,
    /// Reason in the API server's words, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong, such as `Invalid value: "0": must be greater than 0`.
    pub message: String,
}

/// Limit: causes in one answer; the message of the answer says how many more there are.
pub const CAUSES_MAX: usize = 64;

/// Refuses the request because of wrong fields, as 403 Forbidden with one cause per field and a message that lists them all (at
/// most [`CAUSES_MAX`] of them).
///
/// Wire: the code, the reason and the form of the message (one problem unchanged, several in brackets) are the reference's.
/// Clients use them to tell a refusal by a webhook from one by the schema (422).
pub fn invalid(request: &AdmissionRequest<DynamicObject>, causes: &[Cause]) -> AdmissionResponse {
    let shown = causes.get(..CAUSES_MAX).unwrap_or(causes);
    let mut text: Vec<String> = shown
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    if shown.len() < causes.len() {
        text.push(format!("and {} more", causes.len() - shown.len()));
    }
    let text = match text.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", text.join(", ")),
    };
    let mut response = denied(request, &text);
    response.result.details = Some(StatusDetails {
        name: request.name.clone(),
        group: request.kind.group.clone(),
        kind: request.kind.kind.clone(),
        causes: shown
            .iter()
            .map(|cause| StatusCause {
                reason: cause.reason.to_owned(),
                message: cause.message.clone(),
                field: cause.field.clone(),
            })
            .collect(),
        uid: String::new(),
        retry_after_seconds: 0,
    });
    response
}

/// Refuses the request because the handler itself failed, as 500.
pub fn failed(request: &AdmissionRequest<DynamicObject>, message: &str) -> AdmissionResponse {
    failed_for(&request.uid, message)
}

/// Allows the request with the changes of `change` to its object, as the smallest JSON patch. Without an object it is allowed
/// unchanged.
pub fn patched(
    request: &AdmissionRequest<DynamicObject>,
    change: impl FnOnce(&mut Value),
) -> AdmissionResponse {
    let Some(object) = &request.object else {
        return allowed(request);
    };
    let Ok(before) = serde_json::to_value(object) else {
        return failed(request, "the object cannot be printed as JSON");
    };
    let mut after = before.clone();
    change(&mut after);
    difference(request, &before, &after)
}

/// Allows the request, with the JSON patch that turns `before` into `after`.
pub fn changed(
    request: &AdmissionRequest<DynamicObject>,
    before: &DynamicObject,
    after: &DynamicObject,
) -> AdmissionResponse {
    match (serde_json::to_value(before), serde_json::to_value(after)) {
        (Ok(before), Ok(after)) => difference(request, &before, &after),
        (Err(_), _) | (_, Err(_)) => failed(request, "the object cannot be printed as JSON"),
    }
}

fn difference(request: &AdmissionRequest<DynamicObject>, before: &Value, after: &Value) -> AdmissionResponse {
    let patch = json_patch::diff(before, after);
    if patch.is_empty() {
        return allowed(request);
    }
    allowed(request)
        .with_patch(patch)
        .unwrap_or_else(|error| failed(request, &format!("the patch cannot be printed: {error}")))
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

/// Refuses a whole conversion, with a message that names the faulty object.
pub fn conversion_failed(message: &str) -> ConversionResponse {
    ConversionResponse::invalid(status(500, "InternalError", message))
}

/// A review as received: its type, and the request. Own type because kube's flattens its fields, so that serde reads each object
/// twice.
#[derive(Deserialize)]
struct Review<R> {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    request: Option<R>,
}

impl<R: DeserializeOwned> Review<R> {
    fn parse(body: &[u8], kind: &str, version: &str) -> Result<R, String> {
        let review: Self = serde_json::from_slice(body).map_err(|error| {
            // Why: for a valid JSON body of another kind, the kind is the best error.
            match serde_json::from_slice::<Types>(body) {
                Ok(types) if types.api_version != version || types.kind != kind => {
                    types.unexpected(kind, version)
                }
                Ok(_) | Err(_) => format!("the body is not {} of {version}: {error}", with_article(kind)),
            }
        })?;
        if review.api_version != version || review.kind != kind {
            let types = Types {
                api_version: review.api_version,
                kind: review.kind,
            };
            return Err(types.unexpected(kind, version));
        }
        review.request.ok_or_else(|| format!("the {kind} has no request"))
    }
}

#[derive(Deserialize)]
struct Types {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
}

impl Types {
    fn unexpected(&self, kind: &str, version: &str) -> String {
        format!(
            "expected {version} {kind}, got {} {}",
            self.api_version, self.kind
        )
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with('A') { "an" } else { "a" };
    format!("{article} {kind}")
}

fn same_uid(uid: &str, kind: &str) -> Result<(), String> {
    if uid.is_empty() {
        return Err(format!(
            "request.uid of the {kind} is empty, so the answer could not be told from others"
        ));
    }
    Ok(())
}

/// Reads an admission review of version v1.
pub(super) fn parse_admission(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>, String> {
    let kind = "AdmissionReview";
    let mut request = Review::<AdmissionRequest<DynamicObject>>::parse(body, kind, ADMISSION_VERSION)?;
    same_uid(&request.uid, kind)?;
    request.types = types(kind, ADMISSION_VERSION);
    Ok(request)
}

/// Reads a conversion review of version v1.
pub(super) fn parse_conversion(body: &[u8]) -> Result<ConversionRequest, String> {
    let kind = "ConversionReview";
    let mut request = Review::<ConversionRequest>::parse(body, kind, CONVERSION_VERSION)?;
    same_uid(&request.uid, kind)?;
    request.types = Some(types(kind, CONVERSION_VERSION));
    Ok(request)
}

fn types(kind: &str, version: &str) -> TypeMeta {
    TypeMeta {
        api_version: version.to_owned(),
        kind: kind.to_owned(),
    }
}

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
