//! The server as a tower service, and a layer that loses, delays or doubles requests and answers.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use tower::{Layer, Service};

use crate::failure::Failure;
use crate::request::User;
use crate::server::{Body, Server};

/// Bytes of one request's body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request never arrived.
    #[error("the connection was lost before the request arrived")]
    RequestLost,
    /// The request was carried out and its answer never arrived.
    #[error("the connection was lost before the answer arrived")]
    AnswerLost,
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

/// The fault that one request meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is answered.
    Deliver,
    /// It arrives this much later.
    DelayRequest(Duration),
    /// It is carried out at once, and its answer arrives this much later.
    DelayAnswer(Duration),
    /// It never arrives.
    LoseRequest,
    /// It is carried out, and its answer is lost.
    LoseAnswer,
    /// It arrives twice; the client sees the second answer.
    Duplicate,
}

/// Decides the fault of each request. Called once for each, in the order of their arrival.
pub trait Faults: Send + Sync + fmt::Debug {
    /// The fate of a request.
    fn fate(&self, method: &Method, path: &str) -> Fate;
}

/// A tower layer that puts faults between a client and a server.
#[derive(Debug, Clone)]
pub struct FaultLayer(Arc<dyn Faults>);

impl FaultLayer {
    /// A layer that asks `faults` about each request.
    pub fn new(faults: Arc<dyn Faults>) -> Self {
        Self(faults)
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty {
            inner,
            faults: Arc::clone(&self.0),
        }
    }
}

/// A service whose requests may be disturbed.
#[derive(Debug, Clone)]
pub struct Faulty<S> {
    inner: S,
    faults: Arc<dyn Faults>,
}

impl<S, B> Service<Request<B>> for Faulty<S>
where
    S: Service<Request<WholeBody>, Response = Response<Body>, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fate = self.faults.fate(request.method(), request.uri().path());
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX);
            let bytes = body.collect().await.map_err(|_broken| Error::Body)?.to_bytes();
            let make = || Request::from_parts(parts.clone(), http_body_util::Full::new(bytes.clone()));
            match fate {
                Fate::Deliver => inner.call(make()).await,
                Fate::DelayRequest(time) => {
                    tokio::time::sleep(time).await;
                    inner.call(make()).await
                }
                Fate::DelayAnswer(time) => {
                    let answer = inner.call(make()).await;
                    tokio::time::sleep(time).await;
                    answer
                }
                Fate::LoseRequest => Err(Error::RequestLost),
                Fate::LoseAnswer => {
                    drop(inner.call(make()).await?);
                    Err(Error::AnswerLost)
                }
                Fate::Duplicate => {
                    drop(inner.call(make()).await?);
                    inner.call(make()).await
                }
            }
        })
    }
}

/// The body of a request that was read.
pub type WholeBody = http_body_util::Full<Bytes>;

#[cfg(test)]
mod tests;
