//! How a server calls webhooks.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

/// One call of a webhook.
#[derive(Debug, Clone)]
pub struct WebhookCall {
    /// The URL: `https://host:port/path`, or `https://NAME.NAMESPACE.svc:PORT/path` for a Service.
    pub url: String,
    /// Authorities by which the webhook's certificate is trusted, PEM; empty for the system's.
    pub ca_bundle: Vec<u8>,
    /// An `AdmissionReview` or a `ConversionReview`.
    pub review: Value,
    /// After this long the call has failed.
    pub timeout: Duration,
}

/// Calls webhooks. A simulation routes to the handler in its own process; a server calls over HTTPS.
pub trait Caller: Send + Sync + fmt::Debug {
    /// Returns the review with its response. *Errors*: why there is no response, as a text.
    fn call(&self, call: WebhookCall) -> BoxFuture<'static, Result<Value, String>>;
}

/// A caller that calls no webhook: every call fails.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Caller for Nobody {
    fn call(&self, call: WebhookCall) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(async move {
            Err(format!(
                "failed to call {}: this server calls no webhooks",
                call.url
            ))
        })
    }
}
