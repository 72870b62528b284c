//! Whether the caches have been filled once.

use std::sync::atomic::{AtomicBool, Ordering};

use roadstead_kubeio::cache::Health;
use roadstead_kubeio::latest::Follower;

use crate::caches::Caches;

/// See the module.
pub(super) struct Filled {
    healths: Vec<Follower<Health>>,
    seen: AtomicBool,
}

impl Filled {
    pub(super) fn new(caches: &Caches) -> Self {
        Self {
            healths: caches.healths().into_iter().map(|(_, health)| health).collect(),
            seen: AtomicBool::new(false),
        }
    }

    /// Whether every cache has been listed. It stays true when a watch breaks later: what was known then still counts.
    pub(super) fn is_true(&self) -> bool {
        if self.seen.load(Ordering::Relaxed) {
            return true;
        }
        let live = |health: &Follower<Health>| health.get() == Health::Live;
        let all = self.healths.iter().all(live);
        if all {
            self.seen.store(true, Ordering::Relaxed);
        }
        all
    }

    /// Waits for it.
    pub(super) async fn wait(&self) {
        for health in &self.healths {
            health.clone().wait_for(|health| *health == Health::Live).await;
        }
    }
}
