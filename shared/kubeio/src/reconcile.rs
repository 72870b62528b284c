//! Workers that take keys from a [`Queue`] and reconcile them, each key by one worker at a time.
//!
//! This file has the one policy for failures: the pause after each [`Verdict`], and what is logged.
//!
//! Invariant: a key whose reconcile failed or panicked comes back after a growing pause, unless it was given up until it
//! changes; meanwhile other keys are worked on. A lasting failure is logged once per text, not at each attempt.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use roadstead_core::retry::Verdict;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::queue::Queue;
use crate::retry::Dice;
use crate::trouble::Troubles;
use crate::write::Written;

/// First pause after a failure that time may cure.
const PASSING: Duration = Duration::from_millis(100);
/// First pause after a failure that lasts until something changes. Why tried again at all: often no watch of this process shows
/// that change.
const LASTING: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Pause after a write met a newer version; the watch usually brings that version sooner.
pub const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// How a reconcile ended.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time.
    After(Duration),
    /// Nothing could be done yet; look again after this time. An earlier failure does not count as over.
    NotYet(Duration),
    /// It failed; try again after a growing pause, if the verdict allows. The text is logged when it differs from the last one.
    Failed(Failure),
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<K> Written<K> {
    /// The stored object, or `None` when it is gone, if the reconcile may go on after this write. `what` names the attempt in
    /// the failure.
    ///
    /// *Errors*: the reconcile ends: another client was faster, the API server refused, or it gave no clear answer.
    pub fn or_end(self, what: impl Display) -> Result<Option<Box<K>>, Outcome> {
        match self {
            Self::Conflict | Self::AlreadyExists => Err(Outcome::After(CONFLICT_PAUSE)),
            Self::Done(_) | Self::Gone | Self::Refused(_) | Self::Unclear(_) => {
                self.stored().map_err(|failure| failure.in_doing(what).into())
            }
        }
    }
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
    let policy = Arc::new(Policy {
        name,
        troubles: Troubles::default(),
        dice: Mutex::new(Dice::new()),
    });
    let mut set = JoinSet::new();
    for _ in 0..workers {
        let (queue, policy, stop, work) = (queue.clone(), policy.clone(), stop.clone(), work.clone());
        set.spawn(async move {
            loop {
                let key = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    key = queue.next() => key,
                };
                let outcome = AssertUnwindSafe(work(key.clone())).catch_unwind().await;
                match outcome {
                    Ok(Outcome::Done) => policy.succeeded(&key),
                    Ok(Outcome::After(delay)) => {
                        policy.succeeded(&key);
                        queue.add_after(key.clone(), delay);
                    }
                    Ok(Outcome::NotYet(delay)) => queue.add_after(key.clone(), delay),
                    Ok(Outcome::Failed(failure)) => {
                        if let Some(pause) = policy.failed(&key, &failure) {
                            queue.add_after(key.clone(), pause);
                        }
                    }
                    Err(panic) => {
                        let pause = policy.panicked(&key, panic_text(&*panic));
                        queue.add_after(key.clone(), pause);
                    }
                }
                queue.done(&key);
            }
        });
    }
    while set.join_next().await.is_some() {}
}

/// What one reconciler does after failures: it logs them, and pauses.
struct Policy<K> {
    name: &'static str,
    troubles: Troubles<K>,
    dice: Mutex<Dice>,
}

impl<K: Ord + Clone + Display> Policy<K> {
    fn pause(&self, first: Duration, attempts: u32) -> Duration {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        dice.pause(first, PAUSE_MAX, attempts)
    }

    /// The pause before the next attempt; `None` when only a change of the object causes one.
    fn failed(&self, key: &K, failure: &Failure) -> Option<Duration> {
        let (attempts, is_news) = self.troubles.failed(key.clone(), failure.text());
        let first = match failure.verdict() {
            Verdict::Retry => PASSING,
            Verdict::WaitForChange => LASTING,
            Verdict::GiveUp => {
                tracing::error!(
                    reconciler = self.name,
                    object = %key,
                    "{failure}; it is not tried again before the object changes"
                );
                return None;
            }
        };
        let (name, pause) = (self.name, self.pause(first, attempts));
        if is_news {
            tracing::warn!(
                reconciler = name,
                object = %key,
                retry_in = ?pause,
                "{failure}; it is tried again until it succeeds, and not logged again in the same words"
            );
        } else {
            tracing::debug!(reconciler = name, object = %key, retry_in = ?pause, "{failure}");
        }
        Some(pause)
    }

    fn panicked(&self, key: &K, text: &str) -> Duration {
        let (attempts, is_news) = self.troubles.failed(key.clone(), text);
        let pause = self.pause(PASSING, attempts);
        if is_news {
            tracing::error!(
                reconciler = self.name,
                object = %key,
                retry_in = ?pause,
                "a fault of this program: its work on this object panicked: {text}; it is tried again, but may need a change of the \
                 object or another version of the program; please report it"
            );
        }
        pause
    }

    /// Why the success after a single failure is not logged: most failures are momentary, as when two clients write the same
    /// object.
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;
    use crate::queue::Lane;

    /// Runs one key whose work fails with each of these in turn and then succeeds; returns when it succeeded, in milliseconds.
    async fn time_of_success(failures: Vec<Failure>) -> Option<u128> {
        let (queue, stop, began) = (
            Arc::new(Queue::default()),
            CancellationToken::new(),
            Instant::now(),
        );
        let (left, at) = (Arc::new(Mutex::new(failures)), Arc::new(Mutex::new(None)));
        queue.add("key", Lane::New);
        let told = at.clone();
        let work = move |_: &'static str| {
            let next = left.lock().unwrap().pop();
            if next.is_none() {
                *told.lock().unwrap() = Some(began.elapsed().as_millis());
            }
            async move { next.map_or(Outcome::Done, Outcome::Failed) }
        };
        let end = async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            stop.cancel();
        };
        tokio::join!(run("test", queue, 1, stop.clone(), work), end);
        *at.lock().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_decides_about_the_pause() {
        let passing = time_of_success(vec![Failure::passing("busy"); 2]).await.unwrap();
        assert!((300..=361).contains(&passing), "{passing}");
        let lasting = time_of_success(vec![Failure::lasting("forbidden"); 2])
            .await
            .unwrap();
        assert!((3000..=3601).contains(&lasting), "{lasting}");
        let json = Failure::from(serde_json::from_str::<u8>("x").unwrap_err());
        assert_eq!(time_of_success(vec![json]).await, None, "only a change helps");
    }

    /// Spec: safety F34.
    #[tokio::test(start_paused = true)]
    async fn a_panic_is_retried_and_does_not_stop_the_others() {
        let (queue, stop) = (Arc::new(Queue::default()), CancellationToken::new());
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
