//! The items that changed since the last look: a set, so that a thousand changes of one object are one piece of work.
//!
//! Invariant: an item that was marked is handed out at least once after the last mark. The set is bounded by the number
//! of distinct items, not by the number of changes, which is why it replaces a channel.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// A set of changed items that wakes its consumer.
#[derive(Debug)]
pub struct Dirty<T> {
    items: Mutex<BTreeSet<T>>,
    bell: Notify,
}

impl<T: Ord> Default for Dirty<T> {
    fn default() -> Self {
        Self {
            items: Mutex::new(BTreeSet::new()),
            bell: Notify::new(),
        }
    }
}

impl<T: Ord> Dirty<T> {
    /// Marks an item as changed.
    pub fn mark(&self, item: T) {
        self.items
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(item);
        self.bell.notify_one();
    }

    /// Waits until something is marked, then takes everything, in order. One consumer.
    pub async fn take(&self) -> BTreeSet<T> {
        loop {
            let taken = self.take_now();
            if !taken.is_empty() {
                return taken;
            }
            self.bell.notified().await;
        }
    }

    /// Takes what is marked at this moment, in order.
    pub fn take_now(&self) -> BTreeSet<T> {
        std::mem::take(&mut *self.items.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::Dirty;

    #[tokio::test]
    async fn many_marks_of_one_item_are_handed_out_once_and_in_order() {
        let dirty = Dirty::default();
        for item in [3, 1, 3, 2, 1] {
            dirty.mark(item);
        }
        assert_eq!(dirty.take().await.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(dirty.take_now().is_empty());
    }
}
