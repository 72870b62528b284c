//! Pauses that a busy API server asks for. All requests over one client then keep them.
//!
//! *Source*: `spec/safety.md` F23.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tokio::time::{Instant, sleep_until};
use tower::Service;

/// The longest pause that is kept, and the longest that a request waits.
///
/// Why limited: otherwise a broken or hostile worker could stop all requests to it for ever.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The end of a pause is spread over this part of it, so that the waiting requests do not all come back at once.
const SPREAD: f64 = 0.25;
/// 2^32 divided by the golden ratio: its multiples spread evenly over 32 bits, however many there are.
const GOLDEN: u32 = 0x9E37_79B9;

/// Keeps the pauses that a server asks for by `Retry-After`. Reads and changes are kept apart, because a server limits them
/// apart.
#[derive(Clone, Debug)]
pub(crate) struct Patient<S> {
    inner: S,
    looks: Arc<Gate>,
    changes: Arc<Gate>,
}

impl<S> Patient<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self {
            inner,
            looks: Arc::default(),
            changes: Arc::default(),
        }
    }
}

/// Until when no request is sent.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<Option<Closed>>,
    waiters: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
struct Closed {
    until: Instant,
    pause: Duration,
}

impl Gate {
    fn now_closed(&self) -> Option<Closed> {
        let closed = *self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.filter(|closed| closed.until > Instant::now())
    }

    fn close(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if closed.is_none_or(|closed| closed.until < until) {
            *closed = Some(Closed { until, pause });
        }
    }

    /// Waits until the gate is open. The first request that wakes tests the server for the others: if it is refused again, the
    /// gate closes again and they go on waiting.
    async fn pass(&self) {
        let latest = Instant::now() + PAUSE_MAX;
        while let Some(closed) = self.now_closed() {
            let turn = self.waiters.fetch_add(1, Ordering::Relaxed).wrapping_mul(GOLDEN);
            let part = f64::from(turn) / f64::from(u32::MAX) * SPREAD;
            let until = closed.until + closed.pause.mul_f64(part);
            sleep_until(until.min(latest)).await;
            if Instant::now() >= latest {
                return;
            }
        }
    }
}

/// Whether a request is sent during a pause: leases, and paths outside of `/api` and `/apis`, such as health checks. Why: they
/// are few, they show that a worker is alive, and they keep its jobs from being fenced.
fn never_waits(uri: &Uri) -> bool {
    let path = uri.path();
    !path.starts_with("/api") || path.split('/').any(|part| part == "leases")
}

fn asked_pause(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if ![StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
        return None;
    }
    // Why only seconds: API servers write no dates there.
    let secs: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    (secs > 0).then(|| Duration::from_secs(secs).min(PAUSE_MAX))
}

impl<S, Q, B> Service<Request<Q>> for Patient<S>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    Q: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // Why swapped: only the service that was polled ready may be called.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let looks = [Method::GET, Method::HEAD].contains(request.method());
        let gate = if looks { &self.looks } else { &self.changes }.clone();
        let waits = !never_waits(request.uri());
        async move {
            if waits {
                gate.pass().await;
            }
            let answer = inner.call(request).await?;
            if waits && let Some(pause) = asked_pause(answer.status(), answer.headers()) {
                gate.close(pause);
            }
            Ok(answer)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use tower::ServiceExt as _;

    use super::*;

    const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";
    const PAUSE: Duration = Duration::from_secs(3);

    /// What a server was asked, and whether it is busy.
    #[derive(Clone, Debug, Default)]
    struct Busy {
        asked: Arc<AtomicUsize>,
        well: Arc<AtomicBool>,
    }

    impl Busy {
        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }

        fn client(
            &self,
        ) -> Patient<
            impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone + use<>,
        > {
            let busy = self.clone();
            Patient::new(tower::service_fn(move |_: Request<()>| {
                busy.asked.fetch_add(1, Ordering::Relaxed);
                let answer = if busy.well.load(Ordering::Relaxed) {
                    Response::new(())
                } else {
                    let answer = Response::builder()
                        .status(429)
                        .header(RETRY_AFTER, PAUSE.as_secs());
                    answer.body(()).unwrap()
                };
                std::future::ready(Ok::<_, Infallible>(answer))
            }))
        }
    }

    fn request(method: Method, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).unwrap()
    }

    /// Spec: safety F23
    #[tokio::test(start_paused = true)]
    async fn a_pause_that_a_server_asks_for_is_kept_by_all_who_would_change_something_there() {
        let busy = Busy::default();
        let client = busy.client();
        let began = Instant::now();
        let first = client.clone().oneshot(request(Method::POST, JOBS)).await.unwrap();
        assert_eq!(first.status(), 429, "who asked decides what happens next");
        busy.well.store(true, Ordering::Relaxed);
        let others = (0..8).map(|_| client.clone().oneshot(request(Method::PATCH, JOBS)));
        let others = tokio::spawn(futures::future::join_all(others));
        for (method, path) in [
            (Method::GET, JOBS),
            (Method::GET, "/version"),
            (
                Method::PATCH,
                "/apis/coordination.k8s.io/v1/namespaces/system/leases/ours",
            ),
        ] {
            client.clone().oneshot(request(method, path)).await.unwrap();
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "these do not wait");
        tokio::time::sleep(PAUSE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(busy.asked(), 4, "nothing is changed during the pause");
        others.await.unwrap();
        assert_eq!(busy.asked(), 12);
        assert!(began.elapsed() >= PAUSE && began.elapsed() <= PAUSE.mul_f64(1.0 + SPREAD));
        client.oneshot(request(Method::POST, JOBS)).await.unwrap();
        assert!(began.elapsed() <= PAUSE.mul_f64(1.0 + SPREAD), "it is over");
    }

    /// Spec: safety F23
    #[tokio::test(start_paused = true)]
    async fn one_asks_for_the_others_whether_the_server_is_still_busy_and_none_waits_for_ever() {
        let busy = Busy::default();
        let client = busy.client();
        let began = Instant::now();
        client.clone().oneshot(request(Method::POST, JOBS)).await.unwrap();
        let others = (0..20).map(|_| client.clone().oneshot(request(Method::POST, JOBS)));
        let others = tokio::spawn(futures::future::join_all(others));
        tokio::time::sleep(PAUSE * 2).await;
        assert_eq!(busy.asked(), 2, "one of them after the first pause");
        others.await.unwrap();
        assert!(began.elapsed() < PAUSE_MAX + PAUSE, "{:?}", began.elapsed());
    }

    #[test]
    fn only_whole_seconds_of_a_busy_server_are_a_pause_and_never_long_ones() {
        let asked = |status: u16, value: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            asked_pause(StatusCode::from_u16(status).unwrap(), &headers)
        };
        assert_eq!(asked(429, "1"), Some(Duration::from_secs(1)));
        assert_eq!(asked(503, " 7 "), Some(Duration::from_secs(7)));
        assert_eq!(asked(429, "86400"), Some(PAUSE_MAX));
        for (status, value) in [(500, "1"), (200, "1"), (429, "0"), (429, "-1"), (429, "tomorrow")] {
            assert_eq!(asked(status, value), None, "{status} {value}");
        }
        assert_eq!(
            asked_pause(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()),
            None
        );
    }
}
