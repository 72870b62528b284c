//! Failed creations, which the next pass reports on the check.
//!
//! Invariant: a failure is kept only while the plan still wants the request. A restart forgets it, which costs one more try.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use roadstead_core::name::{CheckName, Key};
use roadstead_core::provision::CreateFailure;

/// Limit: Workloads that are remembered.
const MAX: usize = 50_000;

/// Failed creations by Workload and check.
#[derive(Debug, Default)]
pub(super) struct CreateFailures(Mutex<BTreeMap<Key, BTreeMap<CheckName, CreateFailure>>>);

impl CreateFailures {
    /// Notes a failure; the newest for a check counts.
    pub(super) fn note(&self, key: &Key, check: &CheckName, failure: CreateFailure) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX && !all.contains_key(key) {
            all.pop_first();
        }
        all.entry(key.clone()).or_default().insert(check.clone(), failure);
    }

    pub(super) fn of(&self, key: &Key) -> BTreeMap<CheckName, CreateFailure> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).cloned().unwrap_or_default()
    }

    /// Forgets the failures of a Workload except those that are still `wanted`.
    pub(super) fn keep(&self, key: &Key, wanted: impl Fn(&CheckName) -> bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_workload) = all.get_mut(key) else {
            return;
        };
        of_workload.retain(|check, _| wanted(check));
        if of_workload.is_empty() {
            all.remove(key);
        }
    }

    /// Forgets the failure: the object exists now.
    pub(super) fn succeeded(&self, key: &Key, check: &CheckName) {
        self.keep(key, |other| other != check);
    }
}
