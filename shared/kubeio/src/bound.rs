//! How large an API server's answer may be. A hostile or broken worker must not fill the manager's memory.
//!
//! *Source*: `spec/safety.md S14`.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use tower::{BoxError, Service};

use crate::stall::{Timely, longest};

/// The longest answer that is read, in bytes, watches apart.
///
/// Why so large: a list page has 500 objects, so each may have 128 KiB on average, which is more than real objects have.
pub(crate) const ANSWER_MAX: usize = 64 << 20;
/// The longest line of a watch, in bytes: a multiple of the 3 MiB that an API server takes as one object.
pub(crate) const LINE_MAX: u64 = 8 << 20;

type Body<B> = http_body_util::combinators::MapErr<Limited<Timely<B>>, fn(BoxError) -> BoxError>;

/// Ends an answer with an error when it is longer than [`ANSWER_MAX`] or late. A watch has no end, so its reader limits the
/// length of its lines and its silence instead.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<S>(pub(crate) S);

impl<S, Q, B> Service<Request<Q>> for Bounded<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: http_body::Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let mut options = request.uri().query().unwrap_or_default().split('&');
        let watches = options.any(|option| matches!(option, "watch=true" | "watch=1"));
        let longest = longest(request.method());
        let bound = move |answer: Response<B>| {
            // Why the status counts: an API server refuses a watch with one short object, so the limits hold for that answer.
            let endless = watches && answer.status().is_success();
            let most = if endless { usize::MAX } else { ANSWER_MAX };
            answer.map(|body| {
                let timely = Timely::new(body, (!endless).then_some(longest));
                Limited::new(timely, most).map_err(said as fn(BoxError) -> BoxError)
            })
        };
        self.0.call(request).map_ok(bound).boxed()
    }
}

fn said(error: BoxError) -> BoxError {
    if error.is::<http_body_util::LengthLimitError>() {
        return format!(
            "the API server sends more than {} MiB in one answer",
            ANSWER_MAX >> 20
        )
        .into();
    }
    error
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;
    use tower::ServiceExt as _;

    use super::*;

    async fn read(uri: &str, status: u16) -> Result<usize, String> {
        let large = Bytes::from(vec![b' '; ANSWER_MAX + 1]);
        let answer = Response::builder().status(status).body(Full::new(large)).unwrap();
        let server =
            tower::service_fn(move |_: Request<()>| std::future::ready(Ok::<_, Infallible>(answer.clone())));
        let asked = Request::builder().uri(uri).body(()).unwrap();
        let Ok(answer) = Bounded(server).oneshot(asked).await;
        let body = answer.into_body().collect().await;
        body.map(|body| body.to_bytes().len())
            .map_err(|error| error.to_string())
    }

    /// Spec: safety S14
    #[tokio::test]
    async fn an_answer_that_is_too_long_is_not_read_to_its_end() {
        let refused = Err("the API server sends more than 64 MiB in one answer".to_owned());
        assert_eq!(read("/api/v1/pods?limit=500", 200).await, refused);
        assert_eq!(read("/api/v1/pods?watch=true", 500).await, refused);
        assert_eq!(
            read("/api/v1/pods?limit=1&watch=true", 200).await,
            Ok(ANSWER_MAX + 1)
        );
    }
}
