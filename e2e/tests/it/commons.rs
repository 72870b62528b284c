//! What tests share: it starts with its first test, and ends when no test has used it for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::{sleep, timeout};

/// What no test used at two looks, this far apart, ends. Why not sooner: tests of one folder use what they share in turns, and a
/// federation with other projects' controllers takes a minute of two cores to start.
const IDLE: Duration = Duration::from_secs(90);
/// Limit of a start, a first build included.
const START_DEADLINE: Duration = Duration::from_mins(30);

/// Something that tests share.
pub(crate) struct Common<T: 'static> {
    /// Locked while it starts.
    runs: Mutex<Option<&'static T>>,
    /// Held for reading by each test that uses it, and for writing by a test that disturbs it.
    peace: RwLock<()>,
    /// The number of times that tests took it so far.
    came: AtomicU64,
    /// Ends its processes, while references to it are left.
    end: fn(&T),
}

/// As long as it lives, no test disturbs what it stands for.
pub(crate) type Peace = RwLockReadGuard<'static, ()>;

/// As long as it lives, no other test uses what it stands for.
pub(crate) type Alone = RwLockWriteGuard<'static, ()>;

impl<T: Send + Sync> Common<T> {
    pub(crate) const fn new(end: fn(&T)) -> Self {
        Self {
            runs: Mutex::const_new(None),
            peace: RwLock::const_new(()),
            came: AtomicU64::new(0),
            end,
        }
    }

    /// It and the right to use it. It is started if it does not run.
    pub(crate) async fn take<F: Future<Output = T>>(
        &'static self,
        start: impl FnOnce() -> F,
    ) -> (&'static T, Peace) {
        let peace = self.peace.read().await;
        (self.get(start).await, peace)
    }

    /// The lock, for a caller that chooses among several; [`Common::get`] comes after it.
    pub(crate) const fn peace(&'static self) -> &'static RwLock<()> {
        &self.peace
    }

    /// The same for a caller that holds the lock.
    pub(crate) async fn get<F: Future<Output = T>>(&'static self, start: impl FnOnce() -> F) -> &'static T {
        self.came.fetch_add(1, Ordering::Relaxed);
        let mut runs = self.runs.lock().await;
        if let Some(runs) = *runs {
            return runs;
        }
        // Why boxed: the future of a start is large, and each test holds one.
        let started = Box::pin(timeout(START_DEADLINE, start())).await;
        // Why leaked: tests keep references to it in their tasks.
        let started: &'static T = Box::leak(Box::new(started.expect("the start must end")));
        *runs = Some(started);
        tokio::spawn(self.end_when_idle());
        started
    }

    /// Ends it when no test uses it at two looks, and none took it in between. A later test starts another one.
    ///
    /// Why: its control planes would take memory and processor time from the tests of other folders.
    async fn end_when_idle(&'static self) {
        let mut seen_idle = None;
        loop {
            sleep(IDLE).await;
            let Ok(_alone) = self.peace.try_write() else {
                seen_idle = None;
                continue;
            };
            let came = self.came.load(Ordering::Relaxed);
            if seen_idle == Some(came) {
                let ended = self.runs.lock().await.take();
                if let Some(ended) = ended {
                    (self.end)(ended);
                }
                return;
            }
            seen_idle = Some(came);
        }
    }
}
