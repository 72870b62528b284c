//! The federations that tests share, and which test gets which one.
//!
//! A test either shares a federation with other tests or has it alone.

use futures::future::select_all;
use tokio::sync::RwLock;

use super::fixture::Shared;
use crate::commons::{Alone, Common, Ends, Peace};

/// Why several: a test that has a federation for itself mostly waits for timeouts and starting servers, and all other tests
/// would wait for it. Each federation is started when it is first needed.
static GROUNDS: [Common<Shared>; 3] = [const { Common::new() }; 3];

impl Ends for Shared {
    fn end(&self) {
        Self::end(self);
    }
}

/// A federation that no test disturbs as long as the guard lives.
pub(super) async fn peaceful() -> (&'static Shared, Peace) {
    let free = |ground: &'static Common<Shared>| Some((ground, ground.peace().try_read().ok()?));
    let (ground, peace) = match GROUNDS.iter().find_map(free) {
        Some(found) => found,
        None => first(RwLock::read).await,
    };
    (ground.get(Shared::start).await, peace)
}

/// A federation without other tests as long as the guard lives.
pub(super) async fn empty() -> (&'static Shared, Alone) {
    let free = |ground: &'static Common<Shared>| Some((ground, ground.peace().try_write().ok()?));
    let (ground, alone) = match GROUNDS.iter().find_map(free) {
        Some(found) => found,
        None => first(RwLock::write).await,
    };
    (ground.get(Shared::start).await, alone)
}

/// The federation whose guard is free first.
async fn first<G, F>(guard: impl Fn(&'static RwLock<()>) -> F) -> (&'static Common<Shared>, G)
where
    F: Future<Output = G>,
{
    let waits = GROUNDS.iter().map(|ground| {
        let guard = guard(ground.peace());
        Box::pin(async move { (ground, guard.await) })
    });
    select_all(waits).await.0
}
