//! The server as a tower service.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use tower::Service;

use crate::failure::Failure;
use crate::request::User;
use crate::server::{Body, Server};

/// Bytes of one request's body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request's body could not be read.
    #[error("the body of the request ended early")]
    Body,
}

/// The server for one user, in this process.
#[derive(Debug, Clone)]
pub struct ApiService {
    server: Server,
    user: User,
}

impl Server {
    /// The server as seen by a user; no network, no authentication.
    pub fn service(&self, user: User) -> ApiService {
        ApiService {
            server: self.clone(),
            user,
        }
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { server, user } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            match Limited::new(body, BODY_BYTES_MAX).collect().await {
                Ok(body) => {
                    let request = Request::from_parts(parts, body.to_bytes());
                    Ok(server.handle(request, user).await)
                }
                Err(error) if error.is::<http_body_util::LengthLimitError>() => Ok(too_large()),
                Err(_broken) => Err(Error::Body),
            }
        })
    }
}

fn too_large() -> Response<Body> {
    crate::server::render(Err(Failure::too_large(BODY_BYTES_MAX)), &[])
}

#[cfg(test)]
mod tests {
    use http::Method;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;
    use crate::server::Options;
    use crate::server::tests::request;

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused_in_words() {
        let server = Server::new(Options::new(Clock::tokio(Timestamp::UNIX_EPOCH), 1));
        let long = json!({"metadata": {"name": "m"}, "data": {"a": "x".repeat(BODY_BYTES_MAX)}});
        let request = request(Method::POST, "/api/v1/namespaces/default/configmaps", &long);
        let request = request.map(http_body_util::Full::new);
        let answer = server.service(User::admin()).call(request).await.unwrap();
        assert_eq!(answer.status(), 413);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("too large"));
    }
}
