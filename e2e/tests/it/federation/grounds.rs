//! The federations that tests share, and which test gets which one.
//!
//! A test either shares a federation with other tests or has it alone.

use futures::future::select_all;
use tokio::sync::RwLock;

use super::fixture::Shared;
use crate::commons::{Alone, Common, Peace};

/// Why several: a test that has a federation for itself mostly waits for timeouts and starting servers, and all other tests
/// would wait for it. Each federation is started when it is first needed.
static GROUNDS: [Common<Shared>; 3] = [const { Common::new(Shared::end) }; 3];

/// A federation that no test disturbs as long as the guard lives.
pub(super) async fn peaceful() -> (&'static Shared, Peace) {
    first_free(|lock| lock.try_read().ok(), RwLock::read).await
}

/// A federation without other tests as long as the guard lives.
pub(super) async fn empty() -> (&'static Shared, Alone) {
    first_free(|lock| lock.try_write().ok(), RwLock::write).await
}

/// The first federation whose guard is free, else the one whose guard becomes free first.
async fn first_free<G, F: Future<Output = G>>(
    free: impl Fn(&'static RwLock<()>) -> Option<G>,
    wait: impl Fn(&'static RwLock<()>) -> F,
) -> (&'static Shared, G) {
    let found = GROUNDS
        .iter()
        .find_map(|ground| Some((ground, free(ground.peace())?)));
    let (ground, guard) = match found {
        Some(found) => found,
        None => {
            let waits = GROUNDS.iter().map(|ground| {
                let guard = wait(ground.peace());
                Box::pin(async move { (ground, guard.await) })
            });
            select_all(waits).await.0
        }
    };
    (ground.get(Shared::start).await, guard)
}
