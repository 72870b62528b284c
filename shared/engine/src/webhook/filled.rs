//! Whether the caches have been filled once.

use std::sync::atomic::{AtomicBool, Ordering};

use roadstead_kubeio::cache::Health;
use roadstead_kubeio::latest::Follower;

use crate::caches::{Caches, unlisted};

/// Tells whether every cache has been filled once.
pub(super) struct Filled {
    healths: Vec<(String, Follower<Health>)>,
    seen: AtomicBool,
}

impl Filled {
    pub(super) fn new(caches: &Caches) -> Self {
        Self {
            healths: caches.healths(),
            seen: AtomicBool::new(false),
        }
    }

    /// Whether every cache has been listed. It stays true when a watch breaks later: the cached objects still count.
    pub(super) fn is_true(&self) -> bool {
        if self.seen.load(Ordering::Relaxed) {
            return true;
        }
        let all = self.unlisted().is_empty();
        if all {
            self.seen.store(true, Ordering::Relaxed);
        }
        all
    }

    pub(super) fn unlisted(&self) -> Vec<String> {
        unlisted::names(&self.healths)
    }

    /// Waits until every cache has been listed.
    pub(super) async fn wait(&self) {
        for (_, health) in &self.healths {
            health.clone().wait_for(|health| *health == Health::Live).await;
        }
    }
}
