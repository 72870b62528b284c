//! The objects of each Workload on a worker: kept up to date by its caches, so that one look shows that there are none.
//!
//! Why: nearly every worker holds nothing of nearly every Workload, and each decision asks all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::core::DynamicObject;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::name::Key;
use roadstead_engine::caches::named;
use roadstead_kubeio::cache::Change;

/// The objects of all Workloads on one worker.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Holdings>);

#[derive(Debug, Default)]
struct Holdings {
    of: HashMap<Key, Holding>,
    /// The number of pods of all Workloads. Why kept as a sum: it is read for each Workload of a lost worker.
    pods: u64,
}

/// The objects of one Workload; at least one.
#[derive(Debug, Default)]
struct Holding {
    copy: bool,
    /// The pods that the copy asks for; 0 once it has ended.
    pods: u64,
    /// The objects of jobs that name it: kind and key.
    jobs: BTreeSet<(usize, Key)>,
}

impl Holding {
    /// The pods that may exist on the worker: none before it has a job of the Workload.
    fn running(&self) -> u64 {
        if self.jobs.is_empty() { 0 } else { self.pods }
    }
}

fn pods_of(copy: &Workload) -> u64 {
    if copy.is_true("Finished") {
        return 0;
    }
    let counts = copy
        .spec
        .pod_sets
        .iter()
        .map(|set| u64::try_from(set.count).unwrap_or_default());
    counts.fold(0, u64::saturating_add)
}

impl Held {
    pub(super) fn copy_changed(&self, change: &Change<'_, Workload>) {
        match (change.old, change.new) {
            (_, Some(copy)) => self.change(change.key, |holding| {
                (holding.copy, holding.pods) = (true, pods_of(copy));
            }),
            (Some(_), None) => self.change(change.key, |holding| {
                (holding.copy, holding.pods) = (false, 0);
            }),
            (None, None) => {}
        }
    }

    pub(super) fn job_changed(&self, kind: usize, change: &Change<'_, DynamicObject>) {
        let of = |job: Option<&Arc<DynamicObject>>| job.and_then(|job| named(job));
        let (before, after) = (of(change.old), of(change.new));
        if before == after {
            return;
        }
        let job = (kind, change.key.clone());
        if let Some(workload) = before {
            self.change(&workload, |holding| {
                holding.jobs.remove(&job);
            });
        }
        if let Some(workload) = after {
            self.change(&workload, |holding| {
                holding.jobs.insert(job);
            });
        }
    }

    fn change(&self, workload: &Key, change: impl FnOnce(&mut Holding)) {
        let mut held = self.lock();
        let holding = held.of.entry(workload.clone()).or_default();
        let before = holding.running();
        change(holding);
        let now = holding.running();
        if !holding.copy && holding.jobs.is_empty() {
            held.of.remove(workload);
        }
        held.pods = held.pods.saturating_sub(before).saturating_add(now);
    }

    /// How many pods our jobs may have on the worker.
    pub(crate) fn pods(&self) -> u64 {
        self.lock().pods
    }

    /// Whether there is a copy of this Workload, or a job that names it.
    pub(super) fn any(&self, workload: &Key) -> bool {
        self.lock().of.contains_key(workload)
    }

    /// The objects of jobs that name this Workload: the position of their kind, and their key.
    pub(crate) fn jobs_of(&self, workload: &Key) -> Vec<(usize, Key)> {
        let held = self.lock();
        let holding = held.of.get(workload).into_iter();
        holding.flat_map(|holding| &holding.jobs).cloned().collect()
    }

    /// All Workloads with an object on the worker, ordered by key.
    pub(crate) fn all(&self) -> BTreeSet<Key> {
        self.lock().of.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Holdings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::core::DynamicObject;
    use roadstead_api::kueue::v1beta2::Workload;
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
            held.job_changed(2, &Change { key: &key, old, new });
        };
        let (first, second) = (Key::new("ns", "first"), Key::new("ns", "second"));
        tell(None, Some(&naming("first")));
        assert!(held.any(&first) && !held.any(&second));
        assert_eq!(held.jobs_of(&first), [(2, key.clone())]);
        tell(Some(&naming("first")), Some(&naming("second")));
        assert!(!held.any(&first) && held.all().contains(&second));
        tell(Some(&naming("second")), None);
        assert!(!held.any(&second) && held.jobs_of(&second).is_empty());
    }

    #[test]
    fn a_workload_is_held_while_there_is_its_copy_or_a_job_of_it() {
        let (held, key) = (Held::default(), Key::new("ns", "w"));
        let copy = Arc::new(Workload::default());
        let tell = |old: Option<&Arc<Workload>>, new: Option<&Arc<Workload>>| {
            held.copy_changed(&Change { key: &key, old, new });
        };
        tell(None, Some(&copy));
        tell(Some(&copy), Some(&copy));
        assert!(held.any(&key) && held.jobs_of(&key).is_empty());
        let (job, runs) = (Key::new("ns", "job"), naming("w"));
        let (old, new) = (None, Some(&runs));
        held.job_changed(0, &Change { key: &job, old, new });
        tell(Some(&copy), None);
        assert!(held.any(&key), "its job is still there");
        let (old, new) = (Some(&runs), None);
        held.job_changed(0, &Change { key: &job, old, new });
        assert!(!held.any(&key) && held.all().is_empty());
    }

    /// Spec: safety 3.4
    #[test]
    fn it_counts_the_pods_of_what_has_a_job_and_has_not_ended() {
        let held = Held::default();
        let copy = |count: u32, ended: &str| -> Arc<Workload> {
            let set = json!({"name": "main", "count": count, "template": {}});
            let ended = json!({
                "type": "Finished", "status": ended, "reason": "r", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:09Z",
            });
            let spec = json!({"podSets": [set.clone(), set]});
            Arc::new(
                from_value(json!({"metadata": {}, "spec": spec, "status": {"conditions": [ended]}})).unwrap(),
            )
        };
        let (first, second, job) = (
            Key::new("ns", "first"),
            Key::new("ns", "second"),
            Key::new("ns", "job"),
        );
        let runs = copy(300, "False");
        let (old, new) = (None, Some(&runs));
        held.copy_changed(&Change {
            key: &first,
            old,
            new,
        });
        held.copy_changed(&Change {
            key: &second,
            old,
            new,
        });
        assert_eq!(held.pods(), 0, "they are only offered");
        let named = naming("first");
        let (old, new) = (None, Some(&named));
        held.job_changed(0, &Change { key: &job, old, new });
        assert_eq!(held.pods(), 600);
        let ended = copy(300, "True");
        let (old, new) = (Some(&runs), Some(&ended));
        held.copy_changed(&Change {
            key: &first,
            old,
            new,
        });
        assert_eq!(held.pods(), 0);
        let (old, new) = (Some(&ended), Some(&runs));
        held.copy_changed(&Change {
            key: &first,
            old,
            new,
        });
        let (old, new) = (Some(&named), None);
        held.job_changed(0, &Change { key: &job, old, new });
        assert_eq!(held.pods(), 0);
    }
}
