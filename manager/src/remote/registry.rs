//! All worker clusters by name. The only place that names `dashmap`.
//!
//! Invariant: what is handed out is owned (`Arc`), so no guard of the map ever leaves this file.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dashmap::DashMap;
use roadstead_core::lease::Moment;
use roadstead_core::name::ClusterName;

use super::Remote;

/// The worker clusters that this manager knows.
#[derive(Default)]
pub(crate) struct Registry {
    by_name: DashMap<ClusterName, Arc<Remote>>,
    /// All clusters by name, rebuilt when one comes or goes, because each decision reads them.
    sorted: RwLock<Arc<[Arc<Remote>]>>,
}

impl Registry {
    pub(crate) fn get(&self, name: &ClusterName) -> Option<Arc<Remote>> {
        self.by_name.get(name).map(|entry| entry.value().clone())
    }

    /// All clusters, in the order of their names.
    pub(crate) fn all(&self) -> Arc<[Arc<Remote>]> {
        self.sorted.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How old our lease on each worker is, where one is kept.
    pub(crate) fn lease_ages(&self, now: Moment) -> Vec<(ClusterName, Duration)> {
        let age =
            |remote: &Arc<Remote>| Some((remote.name.clone(), remote.link(|link| link.lease_age(now))?));
        self.all().iter().filter_map(age).collect()
    }

    /// Adds or replaces a cluster.
    pub(crate) fn insert(&self, remote: Arc<Remote>) {
        self.change(|map| {
            map.insert(remote.name.clone(), remote);
        });
    }

    pub(super) fn remove(&self, name: &ClusterName) {
        self.change(|map| {
            map.remove(name);
        });
    }

    /// Why under the lock of `sorted`: two changes at a time must not end with the older list.
    fn change(&self, change: impl FnOnce(&DashMap<ClusterName, Arc<Remote>>)) {
        let mut sorted = self.sorted.write().unwrap_or_else(PoisonError::into_inner);
        change(&self.by_name);
        let mut all: Vec<_> = { self.by_name.iter() }
            .map(|entry| entry.value().clone())
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        *sorted = all.into();
    }
}
