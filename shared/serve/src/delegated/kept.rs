//! Answers that are kept for a moment.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::{KEPT_MAX, KEPT_MAX_AGE};

/// At most [`KEPT_MAX`] answers, none older than [`KEPT_MAX_AGE`].
pub(super) struct Kept<K, V>(Mutex<BTreeMap<K, (Instant, V)>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<K: Ord, V: Clone> Kept<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, value) = all.get(key)?;
        (since.elapsed() < KEPT_MAX_AGE).then(|| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEPT_MAX {
            all.retain(|_, (since, _)| since.elapsed() < KEPT_MAX_AGE);
        }
        // Why a new answer is not kept when the map is full: a client that sends many new names must not push out the names in use.
        if all.len() < KEPT_MAX || all.contains_key(&key) {
            all.insert(key, (Instant::now(), value));
        }
    }
}
