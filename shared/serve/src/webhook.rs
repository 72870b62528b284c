//! The webhook server's routes: admission reviews and conversion reviews.
//!
//! Handlers are plain functions: no I/O and no waiting; the answer follows from the request and the handler's data. A separate
//! step, the [`Preparation`], may fetch data first. If a handler panics, only its own request fails.

mod review;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use kube::core::conversion::{ConversionRequest, ConversionResponse};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub use review::{CAUSES_MAX, Cause, allowed, changed, conversion_failed, denied, failed, invalid, patched};

/// Limit: size of a review in bytes. The API server's own limit for an object is 3 MiB, and an update holds two.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Limit: size of a conversion review in bytes. The API server sends all objects of a list in one review.
pub const CONVERSION_BYTES_MAX: usize = 128 << 20;
/// Limit: reviews above [`LARGE_BYTES`] that are read and answered at the same time; others wait.
pub const LARGE_AT_ONCE: usize = 4;
/// A review larger than this, in bytes, is answered on a thread of its own, so that it does not hold up others.
pub const LARGE_BYTES: usize = 256 << 10;

/// Answers one admission review.
pub type AdmissionHandler = Arc<dyn Fn(AdmissionRequest<DynamicObject>) -> AdmissionResponse + Send + Sync>;
/// Fetches the data that the handler needs for this review and does not have yet. An error refuses the review.
pub type Preparation = Arc<dyn Fn(&AdmissionRequest<DynamicObject>) -> Prepared + Send + Sync>;
/// A [`Preparation`] under way.
pub type Prepared = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;
/// Why a [`Preparation`] refuses a review, in a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The data could not be fetched; answered with code 500.
    Unclear(String),
    /// The user may not do this; answered with code 403.
    Forbidden(String),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Self {
        Self::Unclear(why.into())
    }
}

/// Answers one conversion review.
pub type ConversionHandler = Arc<dyn Fn(ConversionRequest) -> ConversionResponse + Send + Sync>;

/// The answer to an API server's request to a kubelet about a pod on a virtual node, from the pod's namespace and name: a sentence that
/// says why the request is not passed on to the cluster where the pod runs.
pub type NodeAnswer = Arc<dyn Fn(&str, &str) -> String + Send + Sync>;

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
    Admission(Option<Preparation>, AdmissionHandler),
    Conversion(ConversionHandler),
}

/// Handlers by path.
#[derive(Clone, Default)]
pub struct Webhooks {
    handlers: BTreeMap<String, Handler>,
    node: Option<NodeAnswer>,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Webhooks {
    /// Registers an admission handler; see [`mutate_path`] and [`validate_path`].
    ///
    /// # Errors
    /// When the path is taken.
    pub fn admission(&mut self, path: impl Into<String>, handler: AdmissionHandler) -> Result<(), Error> {
        self.register(path.into(), Handler::Admission(None, handler))
    }

    /// As [`Webhooks::admission`], for a handler that is only called after the preparation.
    ///
    /// # Errors
    /// When the path is taken.
    pub fn prepared_admission(
        &mut self,
        path: impl Into<String>,
        preparation: Preparation,
        handler: AdmissionHandler,
    ) -> Result<(), Error> {
        self.register(path.into(), Handler::Admission(Some(preparation), handler))
    }

    /// Registers a conversion handler; see [`CONVERT_PATH`].
    ///
    /// # Errors
    /// When the path is taken.
    pub fn conversion(&mut self, path: impl Into<String>, handler: ConversionHandler) -> Result<(), Error> {
        self.register(path.into(), Handler::Conversion(handler))
    }

    /// Sets the answer to requests that an API server sends to a kubelet: logs, exec, attach and port-forward of a pod. Why here: a virtual
    /// node stands for another cluster and names the port of this server as its kubelet's, so it needs no port and certificate of its own.
    pub fn node(&mut self, answer: NodeAnswer) {
        self.node = Some(answer);
    }

    /// Every registered path, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// The routes, for [`crate::listen::Listener::serve`].
    pub fn router(self) -> Router {
        let server = Server {
            webhooks: self,
            large: Semaphore::new(LARGE_AT_ONCE),
        };
        Router::new().fallback(answer).with_state(Arc::new(server))
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

struct Server {
    webhooks: Webhooks,
    large: Semaphore,
}

async fn answer(State(server): State<Arc<Server>>, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let Some(handler) = server.webhooks.handlers.get(&path).cloned() else {
        if let (Some(node), Some((namespace, pod))) = (&server.webhooks.node, asked_of_kubelet(&path)) {
            // Why 501: API servers show users the text of an answer whose code they do not know.
            return (StatusCode::NOT_IMPLEMENTED, node(namespace, pod)).into_response();
        }
        let message = format!("no webhook is served at {path}");
        return refuse(StatusCode::NOT_FOUND, "NotFound", &message);
    };
    if request.method() != Method::POST {
        let message = format!("{path} takes POST with a review as body");
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", &message);
    }
    let content = header_text(request.headers(), &header::CONTENT_TYPE);
    if content.split(';').next().map(str::trim) != Some("application/json") {
        let message = format!("{path} takes application/json, not {content:?}");
        return refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            &message,
        );
    }
    let limit = match &handler {
        Handler::Admission(..) => BODY_BYTES_MAX,
        Handler::Conversion(_) => CONVERSION_BYTES_MAX,
    };
    let too_large = || {
        let message = format!("the review is larger than {limit} bytes");
        refuse(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &message)
    };
    let length = header_text(request.headers(), &header::CONTENT_LENGTH);
    // Why `limit` as the default: a request without a length counts as large.
    let length = length.parse().unwrap_or(limit);
    if length > limit {
        return too_large();
    }
    // Why before the body is read: at most `LARGE_AT_ONCE` large bodies may be in memory.
    let _turn = if length > LARGE_BYTES {
        server.large.acquire().await.ok()
    } else {
        None
    };
    DefaultBodyLimit::max(limit).apply(&mut request);
    let body = match Bytes::from_request(request, &()).await {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => return too_large(),
        Err(rejection) => return refuse(StatusCode::BAD_REQUEST, "BadRequest", &rejection.body_text()),
    };
    if body.len() <= LARGE_BYTES {
        return handler.answer(&path, &body).await;
    }
    let here = tokio::runtime::Handle::current();
    let answered = tokio::task::spawn_blocking(move || here.block_on(handler.answer(&path, &body))).await;
    answered.unwrap_or_else(|_ended| {
        let message = "the process is ending";
        refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    })
}

/// The namespace and the name of the pod in a request to a kubelet. *Source*: the API of kubelets.
fn asked_of_kubelet(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.strip_prefix('/')?.split('/');
    let is_known = matches!(
        parts.next()?,
        "containerLogs" | "exec" | "attach" | "portForward" | "run"
    );
    let pod = (parts.next()?, parts.next()?);
    is_known.then_some(pod)
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

impl Handler {
    async fn answer(&self, path: &str, body: &[u8]) -> Response {
        match self {
            Self::Admission(preparation, handler) => admit(path, preparation.as_ref(), handler, body).await,
            Self::Conversion(handler) => convert(path, handler, body),
        }
    }
}

async fn admit(
    path: &str,
    preparation: Option<&Preparation>,
    handler: &AdmissionHandler,
    body: &[u8],
) -> Response {
    let request = match review::parse_admission(body) {
        Ok(request) => request,
        Err(message) => return refuse(StatusCode::BAD_REQUEST, "BadRequest", &message),
    };
    let uid = request.uid.clone();
    let panicked = || {
        tracing::error!(path, uid, "webhook handler panicked");
        let message = format!("internal error in the webhook {path}; the request was refused");
        review::failed_for(&uid, &message)
    };
    let prepared = match preparation {
        // Why a task of its own: a panic of the preparation ends only that task, and the review is refused.
        Some(prepare) => tokio::spawn(prepare(&request)).await,
        None => Ok(Ok(())),
    };
    let mut response = match prepared {
        Ok(Ok(())) => catch_unwind(AssertUnwindSafe(|| handler(request))).unwrap_or_else(|_panic| panicked()),
        Ok(Err(Refusal::Unclear(message))) => failed(&request, &message),
        Ok(Err(Refusal::Forbidden(message))) => denied(&request, &message),
        Err(_panic) => panicked(),
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
            conversion_failed(&format!("internal error in the webhook {path}"))
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
