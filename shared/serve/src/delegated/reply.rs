//! Requests and answers of a guarded server, for crates that use no web framework.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use serde_json::{Value, json};

const JSON: &str = "application/json";

/// A request that has passed the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Path, still percent-encoded.
    pub path: String,
    /// Query without question mark; empty when there is none.
    pub query: String,
    /// Header `Accept`; empty when there is none.
    pub accept: String,
    /// Header `If-None-Match`; empty when there is none.
    pub if_none_match: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub code: StatusCode,
    /// Header `Content-Type`.
    pub content_type: &'static str,
    /// Header `ETag`, with its quotation marks; empty for none.
    pub etag: String,
    /// The bytes of the body.
    pub body: Vec<u8>,
}

/// A pending answer.
pub type Answer = Pin<Box<dyn Future<Output = Reply> + Send>>;

impl Reply {
    /// 200 with this value as JSON.
    pub fn json(value: &impl Serialize) -> Self {
        Self::with(StatusCode::OK, value)
    }

    /// A refusal as a `Status` of the API. `reason` is the API's word for the code, such as `NotFound`.
    pub fn failure(code: StatusCode, reason: &str, message: &str) -> Self {
        let body: Value = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        Self::with(code, &body)
    }

    fn with(code: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self {
                code,
                content_type: JSON,
                etag: String::new(),
                body,
            },
            Err(error) => {
                tracing::error!(%error, "an answer could not be printed");
                Self {
                    code: StatusCode::INTERNAL_SERVER_ERROR,
                    content_type: JSON,
                    etag: String::new(),
                    body: Vec::new(),
                }
            }
        }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let Self {
            code,
            content_type,
            etag,
            body,
        } = self;
        let mut response = (code, [(header::CONTENT_TYPE, content_type)], body).into_response();
        if let (false, Ok(etag)) = (etag.is_empty(), etag.parse()) {
            response.headers_mut().insert(header::ETAG, etag);
        }
        response
    }
}

/// A router that answers every path with one function; put a [`super::Guard`] before it.
pub fn answering(answer: impl Fn(Asked) -> Answer + Send + Sync + 'static) -> Router {
    let answer: Arc<dyn Fn(Asked) -> Answer + Send + Sync> = Arc::new(answer);
    Router::new().fallback(each).with_state(answer)
}

/// Answers `ok` to every client under `/healthz`, `/livez` and `/readyz`: API servers and kubelets probe there without a user.
pub fn health() -> Router {
    let ok = || get(|| async { "ok\n" });
    Router::new()
        .route("/healthz", ok())
        .route("/livez", ok())
        .route("/readyz", ok())
}

async fn each(State(answer): State<Arc<dyn Fn(Asked) -> Answer + Send + Sync>>, request: Request) -> Reply {
    let (parts, _ignored) = request.into_parts();
    answer(Asked {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        accept: text(&parts.headers, header::ACCEPT),
        if_none_match: text(&parts.headers, header::IF_NONE_MATCH),
    })
    .await
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}
