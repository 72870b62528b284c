//! Lists the federation's caches again when a replica becomes the leader after it was a follower.
//!
//! Why: the watch of a follower may be behind by any time. A worker that joined and got a job meanwhile would look as if it did
//! not exist, and its run would be given up. The engine does the same with its own caches.
//!
//! *Source*: `spec/safety.md F6, F13`.

use std::sync::Once;

use roadstead_engine::leader::Leadership;

/// Has the caches listed again once, before the first decision of a new leader.
pub(crate) struct Fresh {
    followed: bool,
    once: Once,
    refresh: Box<dyn Fn() + Send + Sync>,
}

impl Fresh {
    /// Builds it for a new replica; `refresh` makes the caches report that they are not live until they are listed again.
    pub(crate) fn new(leadership: &Leadership, refresh: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            // Why not for a replica that leads from the start: its first lists are new enough.
            followed: !leadership.leads(),
            once: Once::new(),
            refresh: Box::new(refresh),
        }
    }

    /// Lists the caches again the first time that this replica leads.
    pub(crate) fn catch_up(&self) {
        if self.followed {
            self.once.call_once(|| (self.refresh)());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Fresh;

    /// Spec: safety F6
    #[test]
    fn who_has_followed_lists_again_once() {
        for (followed, times) in [(true, 1), (false, 0)] {
            let count = Arc::<AtomicU32>::default();
            let counts = count.clone();
            let fresh = Fresh {
                followed,
                once: std::sync::Once::new(),
                refresh: Box::new(move || {
                    counts.fetch_add(1, Ordering::Relaxed);
                }),
            };
            fresh.catch_up();
            fresh.catch_up();
            assert_eq!(count.load(Ordering::Relaxed), times);
        }
    }
}
