//! Owners of jobs that are in no cache of their own, and the settings that decide which owners count.
//!
//! *Source*: `spec/jobs.md 4.3, 11`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use roadstead_api::config::{Config, GroupVersionKindName};
use roadstead_core::ancestry::Reference;
use roadstead_core::name::Uid;

/// Limit: remembered owners. Beyond it the owner with the smallest UID is forgotten, and read again when it is needed.
const KEPT_MAX: usize = 100_000;

/// Whether jobs without a queue name count as managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unqueued {
    /// `manageJobsWithoutQueueName` is on: they do.
    Managed,
    #[default]
    LeftAlone,
}

/// An owner that is in no cache.
#[derive(Clone, Debug)]
pub(crate) enum Distant {
    Gone,
    There {
        queue: Option<String>,
        above: Option<Reference>,
    },
}

/// Owners that are in no cache, and the settings that decide which owners count.
#[derive(Debug, Default)]
pub(crate) struct Ancestors {
    pub(crate) externals: Vec<GroupVersionKindName>,
    unqueued: Unqueued,
    distant: Mutex<BTreeMap<Uid, Distant>>,
}

impl Ancestors {
    /// No owners yet; the settings come from the configuration.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            externals: config.integrations.external_frameworks.clone(),
            unqueued: if config.manage_jobs_without_queue_name {
                Unqueued::Managed
            } else {
                Unqueued::LeftAlone
            },
            distant: Mutex::default(),
        }
    }

    pub(crate) fn remembered(&self, uid: &Uid) -> Option<Distant> {
        let distant = self.distant.lock().unwrap_or_else(PoisonError::into_inner);
        distant.get(uid).cloned()
    }

    pub(crate) fn remember(&self, uid: &Uid, owner: Distant) {
        let mut distant = self.distant.lock().unwrap_or_else(PoisonError::into_inner);
        if distant.len() >= KEPT_MAX && !distant.contains_key(uid) {
            distant.pop_first();
        }
        distant.insert(uid.clone(), owner);
    }

    /// Whether a job of this queue holds its children.
    pub(crate) fn counts(&self, queue: Option<&str>) -> bool {
        queue.is_some() || self.unqueued == Unqueued::Managed
    }
}
