//! Which jobs on a worker name a Workload: kept by what the caches tell, so that nobody has to look through all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::core::DynamicObject;
use roadstead_core::name::Key;
use roadstead_engine::caches::named;
use roadstead_engine::jobs::JobRef;
use roadstead_kubeio::cache::Change;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashMap<Key, BTreeSet<(usize, Key)>>>);

impl Held {
    /// Takes in a change of the jobs of a kind.
    pub(super) fn changed(&self, kind: usize, change: &Change<'_, DynamicObject>) {
        let of = |job: Option<&std::sync::Arc<DynamicObject>>| job.and_then(|job| named(job));
        let (before, after) = (of(change.old), of(change.new));
        if before == after {
            return;
        }
        let (mut held, job) = (self.lock(), (kind, change.key.clone()));
        if let Some(workload) = before
            && let Some(jobs) = held.get_mut(&workload)
        {
            jobs.remove(&job);
            if jobs.is_empty() {
                held.remove(&workload);
            }
        }
        if let Some(workload) = after {
            held.entry(workload).or_default().insert(job);
        }
    }

    /// Whether a job names this Workload.
    pub(crate) fn any(&self, workload: &Key) -> bool {
        self.lock().contains_key(workload)
    }

    /// The jobs that name this Workload.
    pub(crate) fn of(&self, workload: &Key) -> Vec<JobRef> {
        let held = self.lock();
        let jobs = held.get(workload).into_iter().flatten();
        jobs.map(|(kind, key)| JobRef {
            kind: *kind,
            key: key.clone(),
        })
        .collect()
    }

    /// All Workloads that jobs name.
    pub(crate) fn workloads(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BTreeSet<(usize, Key)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::core::DynamicObject;
    use roadstead_core::name::Key;
    use roadstead_kubeio::cache::Change;
    use serde_json::{from_value, json};

    use super::Held;

    fn naming(workload: &str) -> Arc<DynamicObject> {
        let labels = json!({"kueue.x-k8s.io/prebuilt-workload-name": workload});
        let object = json!({"metadata": {"namespace": "ns", "name": "job", "labels": labels}});
        Arc::new(from_value(object).unwrap())
    }

    #[test]
    fn it_follows_what_jobs_name() {
        let (held, key) = (Held::default(), Key::new("ns", "job"));
        let tell = |old: Option<&Arc<DynamicObject>>, new: Option<&Arc<DynamicObject>>| {
            held.changed(2, &Change { key: &key, old, new });
        };
        let (first, second) = (Key::new("ns", "first"), Key::new("ns", "second"));
        tell(None, Some(&naming("first")));
        assert!(held.any(&first) && !held.any(&second));
        let found = held.of(&first);
        assert_eq!((found.len(), found[0].kind, &found[0].key), (1, 2, &key));
        tell(Some(&naming("first")), Some(&naming("second")));
        assert!(!held.any(&first) && held.workloads().contains(&second));
        tell(Some(&naming("second")), None);
        assert!(!held.any(&second) && held.of(&second).is_empty());
    }
}
