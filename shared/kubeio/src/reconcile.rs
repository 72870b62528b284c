//! Workers that take keys from a [`Queue`] and reconcile them, each key by one worker at a time.
//!
//! Invariant: a key whose reconcile failed or panicked comes back after a growing pause; others are not held up.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::queue::Queue;
use crate::retry::Failures;

/// First and longest pause after a failed reconcile.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));

/// How a reconcile ended.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time.
    After(Duration),
    /// It failed in a passing way; try again after a growing pause. The text is logged.
    Failed(String),
}

/// Runs `workers` workers until `stop`. `name` names the reconciler in logs.
pub async fn run<K, F, Fut>(
    name: &'static str,
    queue: Arc<Queue<K>>,
    workers: usize,
    stop: CancellationToken,
    work: F,
) where
    K: Ord + Clone + Debug + Display + Send + Sync + 'static,
    F: Fn(K) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Outcome> + Send,
{
    let failures = Arc::new(Failures::new(RETRY.0, RETRY.1));
    let mut set = JoinSet::new();
    for _ in 0..workers {
        let (queue, failures, stop, work) = (queue.clone(), failures.clone(), stop.clone(), work.clone());
        set.spawn(async move {
            loop {
                let key = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    key = queue.next() => key,
                };
                let outcome = AssertUnwindSafe(work(key.clone())).catch_unwind().await;
                let outcome = outcome.unwrap_or_else(|panic| {
                    tracing::error!(reconciler = name, object = %key, "reconcile panicked: {}", panic_text(&*panic));
                    Outcome::Failed("internal error, see the log".into())
                });
                match outcome {
                    Outcome::Done => failures.succeeded(&key),
                    Outcome::After(delay) => {
                        failures.succeeded(&key);
                        queue.add_after(key.clone(), delay);
                    }
                    Outcome::Failed(why) => {
                        let pause = failures.failed(key.clone());
                        tracing::warn!(reconciler = name, object = %key, retry_in = ?pause, "{why}");
                        queue.add_after(key.clone(), pause);
                    }
                }
                queue.done(&key);
            }
        });
    }
    while set.join_next().await.is_some() {}
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_util::sync::CancellationToken;

    use super::{Outcome, run};
    use crate::queue::{Lane, Queue};

    /// Spec: safety F34.
    #[tokio::test(start_paused = true)]
    async fn a_panic_is_retried_and_does_not_stop_the_others() {
        let (queue, stop) = (Arc::new(Queue::new()), CancellationToken::new());
        let tries = Arc::new(AtomicUsize::new(0));
        queue.add("bad", Lane::New);
        queue.add("good", Lane::New);
        let (seen, end) = (tries.clone(), stop.clone());
        let work = move |key: &'static str| {
            let (seen, end) = (seen.clone(), end.clone());
            async move {
                assert!(
                    key != "bad" || seen.fetch_add(1, Ordering::Relaxed) >= 2,
                    "poison"
                );
                if key == "bad" {
                    end.cancel();
                }
                Outcome::Done
            }
        };
        run("test", queue, 1, stop, work).await;
        assert_eq!(tries.load(Ordering::Relaxed), 3);
    }
}
