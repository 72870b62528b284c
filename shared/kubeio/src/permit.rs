//! Whether this process may change anything. Of several replicas only the leader may, and only while it is certain that no other
//! replica leads.
//!
//! Invariant: no client made under a [`Permit`] sends a change after the permit has ended, by a clock that never jumps. The
//! permit is checked when a request is sent and again when its body is. Between the two the process may be stopped, or wait for a
//! connection. A change that is already on its way remains; it carries the version of the object that it changes.
//!
//! *Source*: `spec/safety.md F6`.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, ready};
use futures::{FutureExt as _, TryFutureExt as _};
use http::{Method, Request, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// The right to send changes; clones share it.
#[derive(Clone, Debug)]
pub struct Permit(Arc<Mutex<Term>>);

#[derive(Clone, Copy, Debug)]
enum Term {
    Waiting,
    Until(Instant),
    Endless,
    Over,
}

/// Why a change was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Another replica leads, or none yet.
    #[error("not sent: this replica does not lead")]
    Waiting,
    /// This replica led, and another one may lead now.
    #[error("not sent: the lease by which this replica leads is over")]
    Over,
}

impl Permit {
    /// A permit that never ends, for a process without replicas.
    pub fn endless() -> Self {
        Self(Arc::new(Mutex::new(Term::Endless)))
    }

    /// A permit that allows nothing yet.
    pub fn waiting() -> Self {
        Self(Arc::new(Mutex::new(Term::Waiting)))
    }

    /// Allows changes from now on until `until`. A permit that has ended for good stays ended.
    pub fn extend(&self, until: Instant) {
        let mut term = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *term {
            Term::Waiting | Term::Until(_) => *term = Term::Until(until),
            Term::Endless | Term::Over => {}
        }
    }

    /// Ends the permit for good.
    pub fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Term::Over;
    }

    /// Whether changes are allowed now.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Denied> {
        let term = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match term {
            Term::Waiting => Err(Denied::Waiting),
            Term::Over => Err(Denied::Over),
            Term::Until(until) if until <= Instant::now() => Err(Denied::Over),
            Term::Until(_) | Term::Endless => Ok(()),
        }
    }
}

/// Whether a request only asks: a read, a token or access review, or a dry run.
fn changes_nothing(method: &Method, uri: &Uri) -> bool {
    if [Method::GET, Method::HEAD].contains(method) {
        return true;
    }
    let reviews = ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"];
    let mut options = uri.query().unwrap_or_default().split('&');
    reviews.iter().any(|group| uri.path().starts_with(group)) || options.any(|option| option == "dryRun=All")
}

/// A service that sends changes only while the permit allows it.
#[derive(Clone, Debug)]
pub struct Permitted<S> {
    inner: S,
    permit: Permit,
}

impl<S> Layer<S> for Permit {
    type Service = Permitted<S>;

    fn layer(&self, inner: S) -> Permitted<S> {
        Permitted {
            inner,
            permit: self.clone(),
        }
    }
}

impl<S, B> Service<Request<B>> for Permitted<S>
where
    S: Service<Request<Checked<B>>>,
    S::Response: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let permit = (!changes_nothing(request.method(), request.uri())).then(|| self.permit.clone());
        if let Some(Err(denied)) = permit.as_ref().map(Permit::check) {
            return ready(Err(denied.into())).boxed();
        }
        let request = request.map(|body| Checked { body, permit });
        self.inner.call(request).map_err(Into::into).boxed()
    }
}

/// A body that breaks off when the permit ends before it was sent: the API server then drops the request.
#[derive(Debug)]
pub struct Checked<B> {
    body: B,
    permit: Option<Permit>,
}

impl<B> Body for Checked<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Some(Err(denied)) = self.permit.as_ref().map(Permit::check) {
            return Poll::Ready(Some(Err(denied.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::{BodyExt as _, Full};
    use tower::ServiceExt as _;

    use super::*;

    const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";
    const DEADLINE: Duration = Duration::from_secs(10);

    fn request(method: &str, path: &str) -> Request<Full<Bytes>> {
        let body = Full::new(Bytes::from_static(b"{}"));
        Request::builder().method(method).uri(path).body(body).unwrap()
    }

    /// The result of a request to a server with this delay, and how many bodies the server got.
    async fn send(permit: &Permit, delay: Duration, method: &str, path: &str) -> (Result<(), String>, usize) {
        let got = Arc::new(AtomicUsize::new(0));
        let taken = got.clone();
        let server = tower::service_fn(move |request: Request<Checked<Full<Bytes>>>| {
            let taken = taken.clone();
            async move {
                tokio::time::sleep(delay).await;
                request.into_body().collect().await?;
                taken.fetch_add(1, Ordering::Relaxed);
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let answer = permit.layer(server).oneshot(request(method, path)).await;
        (
            answer.map(drop).map_err(|error| error.to_string()),
            got.load(Ordering::Relaxed),
        )
    }

    fn over() -> (Result<(), String>, usize) {
        (Err(Denied::Over.to_string()), 0)
    }

    /// Spec: safety F6
    #[tokio::test(start_paused = true)]
    async fn nothing_is_changed_before_a_permit_or_after_it() {
        let permit = Permit::waiting();
        let at_once = Duration::ZERO;
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let refused = (Err(Denied::Waiting.to_string()), 0);
            assert_eq!(send(&permit, at_once, method, JOBS).await, refused, "{method}");
        }
        permit.extend(Instant::now() + DEADLINE);
        assert_eq!(send(&permit, at_once, "POST", JOBS).await, (Ok(()), 1));
        tokio::time::sleep(DEADLINE).await;
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(send(&permit, at_once, method, JOBS).await, over(), "{method}");
        }
        permit.extend(Instant::now() + DEADLINE);
        permit.end();
        permit.extend(Instant::now() + DEADLINE);
        assert_eq!(send(&permit, at_once, "POST", JOBS).await, over());
        assert_eq!(send(&Permit::endless(), at_once, "POST", JOBS).await, (Ok(()), 1));
    }

    /// Spec: safety F6
    #[tokio::test(start_paused = true)]
    async fn a_change_that_waits_for_its_connection_until_the_permit_has_ended_is_broken_off() {
        let permit = Permit::waiting();
        permit.extend(Instant::now() + DEADLINE);
        let slow = DEADLINE + Duration::from_millis(1);
        assert_eq!(send(&permit, slow, "PATCH", JOBS).await, over());
    }

    #[tokio::test(start_paused = true)]
    async fn questions_are_asked_without_a_permit() {
        let permit = Permit::waiting();
        for (method, path) in [
            ("GET", JOBS),
            ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
            (
                "POST",
                "/apis/batch/v1/namespaces/team/jobs?fieldValidation=Strict&dryRun=All",
            ),
        ] {
            let answer = send(&permit, Duration::ZERO, method, path).await;
            assert_eq!(answer, (Ok(()), 1), "{method} {path}");
        }
    }

    #[tokio::test]
    async fn its_length_is_told_before_it_is_sent() {
        let body = Full::new(Bytes::from_static(b"{}"));
        let permit = Some(Permit::endless());
        let checked = Checked { body, permit };
        assert_eq!(checked.size_hint().exact(), Some(2));
        assert!(!checked.is_end_stream());
        let sent: Result<_, BoxError> = checked.collect().await;
        assert_eq!(sent.unwrap().to_bytes(), Bytes::from_static(b"{}"));
    }
}
