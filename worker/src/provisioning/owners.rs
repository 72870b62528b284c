//! `ProvisioningRequests` by the UID of their controller.
//!
//! Why the UID: a Workload may be deleted and created again under the same name while requests of the old one still exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_core::name::Key;
use roadstead_jobs::labels::controller;

#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<BTreeMap<String, BTreeSet<Key>>>);

impl Owners {
    /// The requests whose controller has this UID.
    pub(super) fn of(&self, uid: &str) -> Vec<Key> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index
            .get(uid)
            .map(|keys| keys.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Notes that a request changed from `old` to `new`.
    pub(super) fn note(
        &self,
        key: &Key,
        old: Option<&ProvisioningRequest>,
        new: Option<&ProvisioningRequest>,
    ) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = old.and_then(|old| controller(&old.metadata))
            && let Some(keys) = index.get_mut(&owner.uid)
        {
            keys.remove(key);
            if keys.is_empty() {
                index.remove(&owner.uid);
            }
        }
        if let Some(owner) = new.and_then(|new| controller(&new.metadata)) {
            index.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
    }
}
