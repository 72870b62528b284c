//! ClusterQueues as decisions see them, translated once per change and not once per read.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use roadstead_api::kueue::v1beta2::ClusterQueue as ApiClusterQueue;
use roadstead_core::name::Key;
use roadstead_core::queue::ClusterQueue;

/// ClusterQueues by name, as decisions see them.
#[derive(Debug, Default)]
pub struct QueueIndex(RwLock<BTreeMap<Arc<str>, Arc<ClusterQueue>>>);

impl QueueIndex {
    /// The queue of this name.
    pub fn named(&self, name: &str) -> Option<Arc<ClusterQueue>> {
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        index.get(name).cloned()
    }

    pub(super) fn note(&self, key: &Key, new: Option<&ApiClusterQueue>) {
        let mut index = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match new {
            Some(queue) => {
                let seen = Arc::new(roadstead_convert::cluster_queue(queue));
                index.insert(key.name.clone(), seen);
            }
            None => {
                index.remove(&key.name);
            }
        }
    }
}
