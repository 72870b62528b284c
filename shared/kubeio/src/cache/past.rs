//! Whether the cache and the storage are of one history, after the connection was lost.
//!
//! Invariant: pure; it reads only names, UIDs and versions. It never reports a restore when the history only went on: objects may
//! have been added, changed and deleted meanwhile, and the next watch tells of that.

use std::collections::BTreeMap;

use roadstead_core::name::Key;

use crate::raw::Print;

/// The cache as it was when the connection was lost.
#[derive(Debug)]
pub(super) struct Past {
    /// Up to this version the last watch or list has shown everything.
    shown: u64,
    held: BTreeMap<Key, Print>,
}

impl Past {
    pub(super) fn new(shown: u64, held: impl IntoIterator<Item = (Key, Print)>) -> Self {
        let held = held.into_iter().collect();
        Self { shown, held }
    }

    /// Compares the cache with everything stored at version `at`, which was requested after `self` was taken. Returns the
    /// cached objects that are not stored any more; `None` when the storage was restored from a backup.
    pub(super) fn compare(mut self, stored: &[(Key, Print)], at: Option<u64>) -> Option<Missing> {
        let Some(at) = at else {
            return Some(Missing::default());
        };
        if at < self.shown {
            return None;
        }
        for (key, stored) in stored {
            let held = self.held.remove(key);
            let before = held.as_ref().map(|held| held.version);
            let goes_on = match (before, stored.version) {
                // Why the UID too: a restored storage gives the same versions again, perhaps to a new object of the same name.
                (Some(Some(before)), Some(now)) if before == now => held.is_some_and(|held| held == *stored),
                // Why: every version up to `shown` was shown to us, so a stored one that differs from the cached one is of
                // another history.
                (Some(Some(before)), Some(now)) => now > before.max(self.shown),
                (None, Some(now)) => now > self.shown,
                (Some(None), _) | (_, None) => true,
            };
            if !goes_on {
                return None;
            }
        }
        let objects = { self.held.into_iter() }
            .filter_map(|(key, print)| Some((key, print.version?)))
            .collect();
        Some(Missing { at, objects })
    }
}

/// Objects that are cached but not stored any more. The watch must tell of their deletion before it passes the version at which
/// they were missed.
#[derive(Debug, Default)]
pub(super) struct Missing {
    at: u64,
    objects: BTreeMap<Key, u64>,
}

impl Missing {
    /// Whether a watch that has reached `version` has passed a missing object without reporting its deletion. Then the storage
    /// was restored to a state from before that object. `cached` gives the version that is cached now under a name.
    pub(super) fn is_never_told(&mut self, version: &str, cached: impl Fn(&Key) -> Option<u64>) -> bool {
        if self.objects.is_empty() || version.parse().is_ok_and(|version: u64| version < self.at) {
            return false;
        }
        let mut objects = std::mem::take(&mut self.objects).into_iter();
        objects.any(|(key, version)| cached(&key) == Some(version))
    }
}

#[cfg(test)]
mod tests {
    use roadstead_core::name::Key;

    use super::Past;
    use crate::raw::Print;

    fn print(uid: &str, version: Option<u64>) -> Print {
        let uid = Some(uid.into());
        Print { uid, version }
    }

    fn at(objects: &[(&str, u64)]) -> Vec<(Key, Print)> {
        { objects.iter() }
            .map(|(name, version)| (Key::new("ns", *name), print(name, Some(*version))))
            .collect()
    }

    /// The names of the missing objects, or `None` when the storage was restored.
    fn compared(shown: u64, held: &[(&str, u64)], stored: &[(&str, u64)], now: u64) -> Option<Vec<String>> {
        let missing = Past::new(shown, at(held)).compare(&at(stored), Some(now))?;
        Some(missing.objects.keys().map(|key| key.name.to_string()).collect())
    }

    const NOTHING: Option<Vec<String>> = Some(Vec::new());

    #[test]
    fn a_history_that_went_on_is_the_same() {
        let held = [("same", 5), ("changed", 7), ("own-write", 12)];
        let stored = [("same", 5), ("changed", 11), ("own-write", 13), ("added", 14)];
        assert_eq!(compared(10, &held, &stored, 20), NOTHING);
        assert_eq!(
            compared(10, &held, &[("same", 5), ("own-write", 12)], 20),
            Some(vec!["changed".to_owned()])
        );
        assert_eq!(compared(10, &[], &[], 10), NOTHING);
    }

    /// Spec: safety F15. Deleted objects were back after the restore, and the versions had caught up.
    #[test]
    fn what_was_never_shown_is_of_another_history() {
        assert_eq!(compared(10, &[], &[], 9), None, "the storage is behind");
        assert_eq!(
            compared(10, &[], &[("deleted", 8)], 20),
            None,
            "a deletion was taken back"
        );
        assert_eq!(
            compared(10, &[("a", 9)], &[("a", 6)], 20),
            None,
            "a change was taken back"
        );
        assert_eq!(
            compared(10, &[("a", 6)], &[("a", 9)], 20),
            None,
            "another change came instead"
        );
        assert_eq!(
            compared(10, &[("a", 15)], &[("a", 12)], 20),
            None,
            "our own write was taken back"
        );
    }

    /// Spec: safety F15. An object was created again after the restore, at the version that the first one had.
    #[test]
    fn another_object_of_the_same_name_and_version_is_of_another_history() {
        let (first, second) = (print("first", Some(12)), print("second", Some(12)));
        let key = || Key::new("ns", "a");
        let compared =
            |stored: Print| Past::new(10, [(key(), first.clone())]).compare(&[(key(), stored)], Some(20));
        assert!(compared(second).is_none());
        assert!(compared(first.clone()).is_some());
        assert!(compared(print("second", Some(13))).is_some(), "made anew");
    }

    #[test]
    fn what_is_missing_must_be_told_by_the_watch() {
        let missing = || Past::new(10, at(&[("gone", 5)])).compare(&[], Some(20));
        let (there, gone) = (|_: &Key| Some(5), |_: &Key| None);
        let mut told = missing().unwrap();
        assert!(!told.is_never_told("19", there), "it may still come");
        assert!(!told.is_never_told("20", gone));
        assert!(!told.is_never_told("21", there), "it is looked at once");
        let mut made_again = missing().unwrap();
        assert!(!made_again.is_never_told("25", |_: &Key| Some(22)));
        let mut never = missing().unwrap();
        assert!(never.is_never_told("20", there));
    }

    #[test]
    fn versions_that_are_no_numbers_say_nothing() {
        let odd = [(Key::new("ns", "odd"), print("odd", None))];
        assert!(Past::new(10, odd.clone()).compare(&[], Some(20)).is_some());
        assert!(Past::new(10, []).compare(&odd, Some(20)).is_some());
        assert!(
            Past::new(10, at(&[("a", 9)]))
                .compare(&at(&[("a", 6)]), None)
                .is_some()
        );
    }
}
