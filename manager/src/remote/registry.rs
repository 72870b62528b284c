//! All worker clusters by name. The only place that names `dashmap`.
//!
//! Invariant: what is handed out is owned (`Arc`), so no guard of the map ever leaves this file.

use std::sync::Arc;

use dashmap::DashMap;
use roadstead_core::name::ClusterName;

use super::Remote;

/// The worker clusters that this manager knows.
#[derive(Default)]
pub(crate) struct Registry(DashMap<ClusterName, Arc<Remote>>);

impl Registry {
    /// The cluster of this name.
    pub(crate) fn get(&self, name: &ClusterName) -> Option<Arc<Remote>> {
        self.0.get(name).map(|entry| entry.value().clone())
    }

    /// All clusters, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Remote>> {
        let mut all: Vec<_> = self.0.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    pub(super) fn insert(&self, remote: Arc<Remote>) {
        self.0.insert(remote.name.clone(), remote);
    }

    pub(super) fn remove(&self, name: &ClusterName) {
        self.0.remove(name);
    }
}
