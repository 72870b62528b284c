//! The federations that tests share: which test gets which one, and when a federation starts and ends.
//!
//! A test either shares a federation with other tests or has it alone. A federation starts with its first test and ends when no test has
//! used it for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::select_all;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::{sleep, timeout};

use super::fixture::{RUNTIME, Shared};

/// A federation that no test used at two looks, this far apart, ends.
const IDLE: Duration = Duration::from_secs(20);
/// Limit of the start, a first build included.
const START_DEADLINE: Duration = Duration::from_mins(30);

/// Why several: a test that has a federation for itself mostly waits for timeouts and starting servers, and all other tests
/// would wait for it. Each federation is started when it is first needed.
static GROUNDS: [Ground; 3] = [const { Ground::new() }; 3];

/// One federation and its lock.
pub(super) struct Ground {
    /// Locked while it starts.
    shared: Mutex<Option<&'static Shared>>,
    /// Held for writing by a test that disturbs the federation.
    peace: RwLock<()>,
    /// The number of tests that used it so far.
    came: AtomicU64,
}

impl Ground {
    const fn new() -> Self {
        Self {
            shared: Mutex::const_new(None),
            peace: RwLock::const_new(()),
            came: AtomicU64::new(0),
        }
    }

    /// A federation that no test disturbs as long as the guard lives.
    pub(super) async fn peaceful() -> (&'static Self, RwLockReadGuard<'static, ()>) {
        let free = |ground: &'static Self| Some((ground, ground.peace.try_read().ok()?));
        match GROUNDS.iter().find_map(free) {
            Some(found) => found,
            None => first(|ground| ground.peace.read()).await,
        }
    }

    /// A federation without other tests as long as the guard lives.
    pub(super) async fn empty() -> (&'static Self, RwLockWriteGuard<'static, ()>) {
        let free = |ground: &'static Self| Some((ground, ground.peace.try_write().ok()?));
        match GROUNDS.iter().find_map(free) {
            Some(found) => found,
            None => first(|ground| ground.peace.write()).await,
        }
    }

    /// The federation, which is started if it does not run.
    pub(super) async fn shared(&'static self) -> &'static Shared {
        self.came.fetch_add(1, Ordering::Relaxed);
        let mut shared = self.shared.lock().await;
        if let Some(runs) = *shared {
            return runs;
        }
        // Why boxed: the future of a start is large, and each test holds one.
        let started = Box::pin(timeout(START_DEADLINE, Shared::start())).await;
        // Why leaked: tests keep references to it in their tasks.
        let started: &'static Shared = Box::leak(Box::new(started.expect("the start must end")));
        *shared = Some(started);
        RUNTIME.spawn(self.end_when_idle());
        started
    }

    /// Ends the federation when no test uses it at two looks, and none used it in between. A later test starts another one.
    ///
    /// Why: its four clusters would take memory and processor time from the tests of other folders.
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
                let ended = self.shared.lock().await.take();
                if let Some(ended) = ended {
                    ended.end();
                }
                return;
            }
            seen_idle = Some(came);
        }
    }
}

/// The federation whose guard is free first.
async fn first<G, F>(guard: impl Fn(&'static Ground) -> F) -> (&'static Ground, G)
where
    F: Future<Output = G>,
{
    let waits = GROUNDS.iter().map(|ground| {
        let guard = guard(ground);
        Box::pin(async move { (ground, guard.await) })
    });
    select_all(waits).await.0
}
