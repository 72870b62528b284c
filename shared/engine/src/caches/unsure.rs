//! Workloads whose stored state may differ from the cached one, because of a write of their status or of their dispatch number.
//!
//! Invariant: such a write carries the version that was read, and is noted before it is sent. It is forgotten when its answer is
//! cached or says that nothing was stored. It is also forgotten when another version is cached: that version contains the write,
//! or the write was not stored and never will be. Only the pass over a Workload, one at a time, notes and settles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::name::Key;
use roadstead_kubeio::cache::key_of;

/// The version with which the open write was sent, by Workload.
#[derive(Debug, Default)]
pub(crate) struct Unsure(Mutex<BTreeMap<Key, String>>);

impl Unsure {
    /// Notes a write that is about to be sent; it is stored only if `read` is still the stored version.
    pub(crate) fn note(&self, read: &Workload) {
        let version = read.metadata.resource_version.clone().unwrap_or_default();
        self.all().insert(key_of(read), version);
    }

    /// Settles the write: its result is cached, or nothing was stored.
    pub(crate) fn settle(&self, key: &Key) {
        self.all().remove(key);
    }

    /// Whether the storage has gone back to before the version of the open write.
    pub(crate) fn is_ahead_of(&self, stored: &Workload) -> bool {
        let number = |version: &str| version.parse::<u64>().ok();
        let stored_at = { stored.metadata.resource_version.as_deref() }.and_then(number);
        let noted = self
            .all()
            .get(&key_of(stored))
            .and_then(|version| number(version));
        noted.zip(stored_at).is_some_and(|(noted, stored)| noted > stored)
    }

    /// Whether the cached Workload may be older than the stored one. Why `cached` is a function: it must be read after the note.
    pub(super) fn is(&self, key: &Key, cached: impl FnOnce() -> Option<Arc<Workload>>) -> bool {
        let mut all = self.all();
        let Some(version) = all.get(key) else { return false };
        let same = cached().is_some_and(|w| w.metadata.resource_version.as_ref() == Some(version));
        if !same {
            all.remove(key);
        }
        same
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: &str) -> Arc<Workload> {
        let mut workload = Workload::default();
        workload.metadata.namespace = Some("ns".to_owned());
        workload.metadata.name = Some("w".to_owned());
        workload.metadata.resource_version = Some(version.to_owned());
        Arc::new(workload)
    }

    /// Spec: safety F9, I15
    #[test]
    fn a_write_is_open_until_it_is_settled_or_something_newer_is_cached() {
        let (unsure, key) = (Unsure::default(), Key::new("ns", "w"));
        assert!(!unsure.is(&key, || Some(at("5"))), "nothing was written");
        unsure.note(&at("5"));
        assert!(unsure.is(&key, || Some(at("5"))));
        unsure.settle(&key);
        assert!(!unsure.is(&key, || Some(at("5"))), "it was refused");
        unsure.note(&at("5"));
        assert!(!unsure.is(&key, || Some(at("6"))));
        unsure.note(&at("6"));
        assert!(!unsure.is(&key, || None), "it is gone");
        assert!(unsure.all().is_empty(), "nothing is left behind");
        assert!(!unsure.is_ahead_of(&at("4")));
        unsure.note(&at("10"));
        for (stored, is_ahead) in [("9", true), ("10", false), ("11", false)] {
            assert_eq!(unsure.is_ahead_of(&at(stored)), is_ahead, "{stored}");
        }
    }
}
