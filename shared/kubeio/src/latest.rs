//! The newest value of something, to read and to wait for.
//!
//! Why not `tokio::sync::watch`: it wakes waiters in a random order, and a repeated simulation must give the same run
//! (`spec/safety.md 7`). Here they are woken in the order in which they began to wait.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that one side changes and others follow. A clone is the same value.
#[derive(Debug)]
pub struct Latest<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    /// The value, and how often it has changed.
    value: Mutex<(u64, T)>,
    bell: Notify,
}

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Clone> Latest<T> {
    /// Starts with this value, unchanged so far.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: Mutex::new((0, value)),
            bell: Notify::new(),
        }))
    }

    /// The value now.
    pub fn get(&self) -> T {
        self.lock().1.clone()
    }

    /// Changes the value. The followers are woken if `change` returns true, and `modify` returns the same.
    pub fn modify(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.lock();
        let changed = change(&mut value.1);
        if changed {
            value.0 += 1;
            drop(value);
            self.0.bell.notify_waiters();
        }
        changed
    }

    /// Sets the value.
    pub fn set(&self, new: T) {
        self.modify(|value| {
            *value = new;
            true
        });
    }

    /// A follower of the value, from now on.
    pub fn follow(&self) -> Follower<T> {
        let seen = self.lock().0;
        Follower {
            of: self.clone(),
            seen,
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, T)> {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A follower of a value. A clone has seen what the original has seen.
#[derive(Clone, Debug)]
pub struct Follower<T> {
    of: Latest<T>,
    seen: u64,
}

impl<T: Clone> Follower<T> {
    /// The value now.
    pub fn get(&self) -> T {
        self.of.get()
    }

    /// The value now, which then counts as seen.
    pub fn see(&mut self) -> T {
        let value = self.of.lock();
        self.seen = value.0;
        value.1.clone()
    }

    /// Waits until the value has changed since it was last seen; the new value counts as seen. A cancelled wait sees nothing.
    pub async fn changed(&mut self) {
        loop {
            let mut bell = pin!(self.of.0.bell.notified());
            // Why before the read: a change between the read and the wait would be missed.
            bell.as_mut().enable();
            let now = self.of.lock().0;
            if now != self.seen {
                self.seen = now;
                return;
            }
            bell.await;
        }
    }

    /// Waits until `is_it` accepts the value, and returns the value, which then counts as seen.
    pub async fn wait_for(&mut self, is_it: impl Fn(&T) -> bool) -> T {
        loop {
            let value = self.see();
            if is_it(&value) {
                return value;
            }
            self.changed().await;
        }
    }
}

/// Waits until one follower's value has changed since it was last seen; only that one counts as seen then.
pub async fn any_changed<'a, T: Clone + 'a>(followers: impl IntoIterator<Item = &'a mut Follower<T>>) {
    let changes: Vec<_> = { followers.into_iter() }
        .map(|follower| Box::pin(follower.changed()))
        .collect();
    if changes.is_empty() {
        return std::future::pending().await;
    }
    futures::future::select_all(changes).await;
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn a_change_is_seen_once_by_everybody_and_no_change_by_nobody() {
        let latest = Latest::new(1);
        let (mut one, mut other) = (latest.follow(), latest.follow());
        assert!(!latest.modify(|_| false));
        assert_eq!(one.changed().now_or_never(), None);
        latest.set(2);
        assert_eq!(one.changed().now_or_never(), Some(()));
        assert_eq!(one.changed().now_or_never(), None);
        assert_eq!((one.get(), other.see()), (2, 2));
        assert_eq!(other.changed().now_or_never(), None, "it has been looked at");
        assert_eq!(latest.follow().changed().now_or_never(), None);
        assert_eq!(one.wait_for(|value| *value == 2).now_or_never(), Some(2));
    }

    #[tokio::test]
    async fn who_waits_is_woken_in_the_order_of_waiting() {
        let latest = Latest::new(0);
        let woken = Arc::<Mutex<Vec<usize>>>::default();
        let mut tasks = JoinSet::new();
        for index in 0..50 {
            let (mut follower, woken) = (latest.follow(), woken.clone());
            tasks.spawn(async move {
                assert_eq!(follower.wait_for(|value| *value == 1).await, 1);
                woken.lock().unwrap().push(index);
            });
        }
        tokio::task::yield_now().await;
        latest.set(1);
        tasks.join_all().await;
        assert_eq!(*woken.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }
}
