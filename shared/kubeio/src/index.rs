//! What belongs to a key, such as the objects of one owner, kept up to date by the listeners of a cache.
//!
//! Why: a search of all objects for each change of one would cost the square of their number.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The values of each key. A key without values is not kept.
#[derive(Debug)]
pub struct Index<K, V>(Mutex<BTreeMap<K, BTreeSet<V>>>);

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Ord + Clone> Index<K, V> {
    /// The values of a key, in order.
    pub fn of<Q: Ord + ?Sized>(&self, key: &Q) -> Vec<V>
    where
        K: Borrow<Q>,
    {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).into_iter().flatten().cloned().collect()
    }

    /// Replaces the entries that an object had before a change by those that it has now.
    pub fn note(&self, old: impl IntoIterator<Item = (K, V)>, new: impl IntoIterator<Item = (K, V)>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in old {
            if let Some(values) = all.get_mut(&key) {
                values.remove(&value);
                if values.is_empty() {
                    all.remove(&key);
                }
            }
        }
        for (key, value) in new {
            all.entry(key).or_default().insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Index;

    #[test]
    fn a_value_moves_from_its_old_key_to_its_new_one() {
        let index = Index::default();
        index.note(None, Some(("a", 2)));
        index.note(None, Some(("a", 1)));
        assert_eq!((index.of("a"), index.of("b")), (vec![1, 2], vec![]));
        index.note(Some(("a", 1)), Some(("b", 1)));
        assert_eq!((index.of("a"), index.of("b")), (vec![2], vec![1]));
        index.note([("a", 2), ("b", 1)], None);
        assert!(index.0.lock().unwrap().is_empty());
    }
}
