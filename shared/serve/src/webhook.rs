//! The webhook server's routes: admission reviews and conversion reviews.
//!
//! Handlers are plain functions: no I/O, no waiting, the answer follows from the request and what the handler already
//! holds. A handler that panics costs its own request only.

mod review;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use kube::core::conversion::{ConversionRequest, ConversionResponse};
use serde::Serialize;
use serde_json::{Value, json};

pub use review::{allowed, denied, failed, invalid, patched};

/// Limit: size of a review in bytes. The API server's own limit for an object is 3 MiB, and an update holds two.
pub const BODY_BYTES_MAX: usize = 8 << 20;

/// Answers one admission review.
pub type AdmissionHandler = Arc<dyn Fn(AdmissionRequest<DynamicObject>) -> AdmissionResponse + Send + Sync>;
/// Answers one conversion review.
pub type ConversionHandler = Arc<dyn Fn(ConversionRequest) -> ConversionResponse + Send + Sync>;

/// Path of the conversion webhook.
pub const CONVERT_PATH: &str = "/convert";

/// Path of the mutating webhook of a kind, such as `/mutate-batch-v1-job`; the core group is empty and gives a double
/// dash. Source: spec/jobs.md 7.1.
pub fn mutate_path(group: &str, version: &str, kind: &str) -> String {
    path("mutate", group, version, kind)
}

/// Path of the validating webhook of a kind, such as `/validate--v1-pod`. Source: spec/jobs.md 7.1.
pub fn validate_path(group: &str, version: &str, kind: &str) -> String {
    path("validate", group, version, kind)
}

fn path(verb: &str, group: &str, version: &str, kind: &str) -> String {
    format!(
        "/{verb}-{}-{version}-{}",
        group.replace('.', "-"),
        kind.to_lowercase()
    )
}

/// Why a handler could not be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("webhook path {path} has two handlers")]
pub struct Error {
    /// The path.
    pub path: String,
}

#[derive(Clone)]
enum Handler {
    Admission(AdmissionHandler),
    Conversion(ConversionHandler),
}

/// Handlers by path.
#[derive(Clone, Default)]
pub struct Webhooks {
    handlers: BTreeMap<String, Handler>,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Webhooks {
    /// No handlers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an admission handler; see [`mutate_path`] and [`validate_path`].
    ///
    /// # Errors
    /// When the path is taken.
    pub fn admission(&mut self, path: impl Into<String>, handler: AdmissionHandler) -> Result<(), Error> {
        self.register(path.into(), Handler::Admission(handler))
    }

    /// Registers a conversion handler; see [`CONVERT_PATH`].
    ///
    /// # Errors
    /// When the path is taken.
    pub fn conversion(&mut self, path: impl Into<String>, handler: ConversionHandler) -> Result<(), Error> {
        self.register(path.into(), Handler::Conversion(handler))
    }

    /// Every registered path, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// The routes, for [`crate::listen::Listener::serve`].
    pub fn router(self) -> Router {
        Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::new(self))
    }

    fn register(&mut self, path: String, handler: Handler) -> Result<(), Error> {
        match self.handlers.entry(path) {
            Entry::Vacant(free) => {
                free.insert(handler);
                Ok(())
            }
            Entry::Occupied(taken) => Err(Error {
                path: taken.key().clone(),
            }),
        }
    }
}

async fn answer(
    State(webhooks): State<Arc<Webhooks>>,
    method: Method,
    uri: Uri,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let path = uri.path();
    let Some(handler) = webhooks.handlers.get(path) else {
        return refuse(
            StatusCode::NOT_FOUND,
            "NotFound",
            &format!("no webhook is served at {path}"),
        );
    };
    if method != Method::POST {
        let message = format!("{path} takes POST with a review as body");
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", &message);
    }
    let body = match body {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the review is larger than {BODY_BYTES_MAX} bytes");
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &message);
        }
        Err(rejection) => return refuse(StatusCode::BAD_REQUEST, "BadRequest", &rejection.body_text()),
    };
    match handler {
        Handler::Admission(handler) => admit(path, handler, &body),
        Handler::Conversion(handler) => convert(path, handler, &body),
    }
}

fn admit(path: &str, handler: &AdmissionHandler, body: &[u8]) -> Response {
    let request = match review::parse_admission(body) {
        Ok(request) => request,
        Err(message) => return refuse(StatusCode::BAD_REQUEST, "BadRequest", &message),
    };
    let uid = request.uid.clone();
    let mut response = match catch_unwind(AssertUnwindSafe(|| handler(request))) {
        Ok(response) => response,
        Err(_panic) => {
            tracing::error!(path, uid, "webhook handler panicked");
            review::failed_for(
                &uid,
                &format!("internal error in the webhook {path}; the request was refused"),
            )
        }
    };
    response.uid = uid;
    reply(StatusCode::OK, &review::render_admission(response))
}

fn convert(path: &str, handler: &ConversionHandler, body: &[u8]) -> Response {
    let request = match review::parse_conversion(body) {
        Ok(request) => request,
        Err(message) => return refuse(StatusCode::BAD_REQUEST, "BadRequest", &message),
    };
    let uid = request.uid.clone();
    let mut response = match catch_unwind(AssertUnwindSafe(|| handler(request))) {
        Ok(response) => response,
        Err(_panic) => {
            tracing::error!(path, uid, "webhook handler panicked");
            review::conversion_failed(&format!("internal error in the webhook {path}"))
        }
    };
    response.uid = uid;
    reply(StatusCode::OK, &response.into_review())
}

fn refuse(status: StatusCode, reason: &str, message: &str) -> Response {
    let body: Value = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    reply(status, &body)
}

fn reply(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "a webhook answer could not be printed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests;
