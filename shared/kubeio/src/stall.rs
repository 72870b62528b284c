//! How long an API server may take to send an answer that it has begun.
//!
//! Why: a request's deadline ends at the first line of its answer. A machine that loses power in the middle of an answer, or a
//! load balancer that switches over, closes no connection. The reader would wait for the rest for ever.
//!
//! *Source*: `spec/safety.md S14`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Method;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

/// How long an API server may take until it begins its answer, and how long it may then be silent before the answer's end.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// How long an answer to a read may take in all: a full list page over a slow line has some megabytes.
const LOOK_MAX: Duration = Duration::from_mins(5);
/// How long an answer to a change may take, which is one object.
const CHANGE_MAX: Duration = Duration::from_mins(1);

/// How long an answer may take from its first line to its end, except for watches.
pub(crate) const fn longest(method: &Method) -> Duration {
    if matches!(*method, Method::GET | Method::HEAD) {
        LOOK_MAX
    } else {
        CHANGE_MAX
    }
}

/// Breaks off when no data comes for [`ANSWER_TIMEOUT`], or when the answer does not end in time.
///
/// Why the clock runs only while waiting: most answers are there as soon as they begin, and a slow reader is not the server's
/// fault.
#[derive(Debug)]
pub(crate) struct Timely<B> {
    body: B,
    /// `None` for a watch, which has no end and whose reader notices its silence.
    limit: Option<Limit>,
}

#[derive(Debug)]
struct Limit {
    longest: Duration,
    end: Instant,
    /// Runs while the reader waits. It is kept and set again for the next part of the answer.
    alarm: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl<B> Timely<B> {
    pub(crate) fn new(body: B, longest: Option<Duration>) -> Self {
        let limit = longest.map(|longest| Limit {
            longest,
            end: Instant::now() + longest,
            alarm: None,
            is_set: false,
        });
        Self { body, limit }
    }
}

impl Limit {
    /// Ready when it is too late.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<BoxError> {
        let end = self.end;
        let until = || (Instant::now() + ANSWER_TIMEOUT).min(end);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(until())));
        if !self.is_set {
            alarm.as_mut().reset(until());
            self.is_set = true;
        }
        ready!(alarm.as_mut().poll(context));
        let why = if Instant::now() >= end {
            format!("the answer has no end after {} s", self.longest.as_secs())
        } else {
            let secs = ANSWER_TIMEOUT.as_secs();
            format!("the answer stopped before its end: nothing more has come for {secs} s")
        };
        Poll::Ready(why.into())
    }
}

impl<B> Body for Timely<B>
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
        let Self { body, limit } = &mut *self;
        if let Poll::Ready(part) = Pin::new(body).poll_frame(context) {
            if let Some(limit) = limit {
                limit.is_set = false;
            }
            return Poll::Ready(part.map(|part| part.map_err(Into::into)));
        }
        match limit {
            Some(limit) => limit.poll(context).map(|why| Some(Err(why))),
            None => Poll::Pending,
        }
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
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::stream::{self, StreamExt as _};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    /// This many bytes, one at a time, with this pause before each.
    async fn read(pause: Duration, bytes: usize, longest: Option<Duration>) -> Result<usize, String> {
        let parts = stream::iter(0..bytes).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" ")))
        });
        let body = Timely::new(StreamBody::new(Box::pin(parts)), longest);
        let read = body.collect().await.map(|read| read.to_bytes().len());
        read.map_err(|error| error.to_string())
    }

    /// Spec: safety S14
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stops_in_the_middle_or_drips_is_given_up_and_a_slow_one_is_not() {
        let (look, change) = (Some(longest(&Method::GET)), Some(longest(&Method::PATCH)));
        let second = Duration::from_secs(1);
        let stopped = read(ANSWER_TIMEOUT + second, 2, look).await.unwrap_err();
        assert!(stopped.contains("nothing more has come for 20 s"), "{stopped}");
        assert_eq!(read(second * 19, 10, look).await, Ok(10));
        let dripped = read(second, 301, look).await.unwrap_err();
        assert!(dripped.contains("no end after 300 s"), "{dripped}");
        assert_eq!(read(second, 59, change).await, Ok(59));
        let dripped = read(second, 61, change).await.unwrap_err();
        assert!(dripped.contains("no end after 60 s"), "{dripped}");
        assert_eq!(read(ANSWER_TIMEOUT * 2, 20, None).await, Ok(20));
    }
}
