//! Workers that take keys from a [`Queue`] and reconcile them, each key by one worker at a time.
//!
//! Invariant: a key whose reconcile failed or panicked comes back after a growing pause; others are not held up. A lasting
//! failure is logged once per text, not at each attempt.

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
use crate::trouble::Troubles;

/// First and longest pause after a failed reconcile.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));

/// How a reconcile ended.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time.
    After(Duration),
    /// Nothing could be done yet; look again after this time. An earlier failure does not count as over.
    NotYet(Duration),
    /// It failed in a passing way; try again after a growing pause. The text is logged when it differs from the last one.
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
    let telling = Arc::new(Telling {
        name,
        troubles: Troubles::default(),
    });
    let mut set = JoinSet::new();
    for _ in 0..workers {
        let (queue, failures, stop, work) = (queue.clone(), failures.clone(), stop.clone(), work.clone());
        let telling = telling.clone();
        set.spawn(async move {
            loop {
                let key = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    key = queue.next() => key,
                };
                let outcome = AssertUnwindSafe(work(key.clone())).catch_unwind().await;
                match outcome {
                    Ok(Outcome::Done) => {
                        failures.succeeded(&key);
                        telling.succeeded(&key);
                    }
                    Ok(Outcome::After(delay)) => {
                        failures.succeeded(&key);
                        telling.succeeded(&key);
                        queue.add_after(key.clone(), delay);
                    }
                    Ok(Outcome::NotYet(delay)) => queue.add_after(key.clone(), delay),
                    Ok(Outcome::Failed(why)) => {
                        let pause = failures.failed(key.clone());
                        telling.failed(&key, &why, pause);
                        queue.add_after(key.clone(), pause);
                    }
                    Err(panic) => {
                        let pause = failures.failed(key.clone());
                        telling.panicked(&key, panic_text(&*panic), pause);
                        queue.add_after(key.clone(), pause);
                    }
                }
                queue.done(&key);
            }
        });
    }
    while set.join_next().await.is_some() {}
}

/// Logs the failures of one reconciler.
struct Telling<K> {
    name: &'static str,
    troubles: Troubles<K>,
}

impl<K: Ord + Clone + Display> Telling<K> {
    fn failed(&self, key: &K, why: &str, pause: Duration) {
        let name = self.name;
        if self.troubles.is_news(key.clone(), why) {
            tracing::warn!(
                reconciler = name,
                object = %key,
                retry_in = ?pause,
                "{why}; it is tried again until it succeeds, and not logged again in the same words"
            );
        } else {
            tracing::debug!(reconciler = name, object = %key, retry_in = ?pause, "{why}");
        }
    }

    fn panicked(&self, key: &K, text: &str, pause: Duration) {
        if self.troubles.is_news(key.clone(), text) {
            tracing::error!(
                reconciler = self.name,
                object = %key,
                retry_in = ?pause,
                "a fault of this program: its work on this object panicked: {text}; it is tried again, but may need a change of the \
                 object or another version of the program; please report it"
            );
        }
    }

    /// Why not after one failure: most are momentary, as when two clients write the same object.
    fn succeeded(&self, key: &K) {
        if let Some(attempts) = self.troubles.ends(key).filter(|attempts| *attempts > 1) {
            tracing::info!(reconciler = self.name, object = %key, attempts, "succeeded after failed attempts");
        }
    }
}

/// The text of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
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
