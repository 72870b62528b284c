//! What time it is in a cluster: its API server says so with each answer.
//!
//! Why not the clock of this machine: it may be an hour off, or jump, and the next replica runs on another machine; what one process
//! has dated, the next one counts from (`spec/safety.md` F18).

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http::header::DATE;
use http::{HeaderMap, Request, Response};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use roadstead_core::moment::later;
use tokio::time::Instant;
use tower::{Layer, Service};

/// By how much an answer may be behind what was told before: it names whole seconds, and may have been under way for a while.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// The time of day by the answers of one API server, and by the monotonic clock between them. Clones tell the same.
#[derive(Clone, Debug, Default)]
pub struct ServerTime(Arc<Mutex<Option<Heard>>>);

#[derive(Clone, Copy, Debug)]
struct Heard {
    time: Timestamp,
    at: Instant,
}

impl Heard {
    fn told(self, now: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(now.duration_since(self.at)).unwrap_or(SignedDuration::MAX);
        later(self.time, passed)
    }
}

impl ServerTime {
    /// Now; `None` as long as there was no answer.
    pub fn now(&self) -> Option<Timestamp> {
        let heard = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.map(|heard| heard.told(Instant::now()))
    }

    /// Waits until there was an answer, for so long at most.
    pub async fn learn(&self, client: &kube::Client, most: Duration) {
        if self.now().is_none() {
            // Why whatever comes of it: a refusal is dated too, and who is not answered asks for other things soon enough.
            let _ = tokio::time::timeout(most, client.apiserver_version()).await;
        }
    }

    fn read(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        if let Some(date) = date {
            self.hear(date, Instant::now());
        }
    }

    fn hear(&self, date: Timestamp, now: Instant) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = heard.map(|heard| heard.told(now));
        if told.is_none_or(|told| told < date || told > later(date, LATE)) {
            *heard = Some(Heard { time: date, at: now });
        }
    }
}

impl<S> Layer<S> for ServerTime {
    type Service = Dated<S>;

    fn layer(&self, inner: S) -> Dated<S> {
        Dated {
            inner,
            time: self.clone(),
        }
    }
}

/// Reads the date of each answer.
#[derive(Clone, Debug)]
pub struct Dated<S> {
    inner: S,
    time: ServerTime,
}

impl<S, Q, B> Service<Request<Q>> for Dated<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let time = self.time.clone();
        let read = move |answer: &Response<B>| time.read(answer.headers());
        self.inner.call(request).inspect_ok(read).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt as _;

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    /// Spec: safety F18
    #[tokio::test(start_paused = true)]
    async fn the_time_is_the_servers_and_goes_on_between_its_answers() {
        let time = ServerTime::default();
        assert_eq!(time.now(), None);
        let server = tower::service_fn(|request: Request<()>| {
            let mut answer = Response::new(());
            answer.headers_mut().extend(request.headers().clone());
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        let ask = async |date: &str| {
            let request = Request::builder().header(DATE, date).body(()).unwrap();
            let Ok(_) = time.layer(server).oneshot(request).await;
        };
        ask("Sun, 06 Nov 1994 08:49:37 GMT").await;
        let first: Timestamp = "1994-11-06T08:49:37Z".parse().unwrap();
        assert_eq!(time.now(), Some(first));
        tokio::time::advance(Duration::from_millis(61_900)).await;
        let went_on = first + SignedDuration::from_millis(61_900);
        assert_eq!(time.now(), Some(went_on));
        for date in ["", "tomorrow", "Sun, 06 Nov 1994 08:50:38 GMT"] {
            ask(date).await;
            assert_eq!(time.now(), Some(went_on), "{date:?} says nothing new");
        }
        ask("Sun, 06 Nov 1994 08:50:39 GMT").await;
        assert_eq!(time.now(), Some(first + SignedDuration::from_secs(62)));
    }

    /// Spec: safety F18
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_takes_nothing_back_and_a_server_whose_clock_was_put_back_is_believed() {
        let time = ServerTime::default();
        for (date, told) in [
            (1_000, 1_000),
            (995, 1_000),
            (994, 994),
            (4_600, 4_600),
            (1_000, 1_000),
        ] {
            time.hear(at(date), Instant::now());
            assert_eq!(time.now(), Some(at(told)), "{date}");
        }
    }
}
