//! Workloads in little memory: equal parts of pod templates and admissions are kept once, and lists without spare room.
//!
//! Why: users submit the same job many times, and a manager holds the copies on its workers beside its own Workloads. A parsed
//! template and an admission are most of a Workload's memory. A list that was read has room for at least four elements, but most
//! of ours have one.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use roadstead_api::kueue::v1beta2::{Admission, Workload};
use roadstead_kubeio::cache::Cache;
use serde_json::Value;

/// Below this number no unused parts are looked for.
const SWEEP_MIN: usize = 64;
/// How many different admissions to one queue are compared with a new one: the latest ones.
const ADMISSIONS_MAX: usize = 16;

/// The parts that pod templates of a process share, across all clusters.
#[derive(Default)]
pub struct Templates(Mutex<Parts>);

impl Templates {
    /// An empty cache of Workloads in which equal parts of pod templates share their memory, also with other such caches.
    pub fn workloads(self: &Arc<Self>) -> Arc<Cache<Workload>> {
        let (templates, admissions) = (self.clone(), Mutex::new(Admissions::default()));
        Cache::slimmed(move |workload: &mut Workload| {
            templates.share(workload);
            shrink(workload);
            let admission = workload
                .status
                .as_mut()
                .and_then(|status| status.admission.as_mut());
            if let Some(admission) = admission {
                let mut admissions = admissions.lock().unwrap_or_else(PoisonError::into_inner);
                admissions.share(admission);
            }
        })
    }

    fn share(&self, workload: &mut Workload) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = workload.spec.pod_sets.iter_mut();
        { sets }
            .flat_map(|set| set.template.0.values_mut())
            .for_each(|part| parts.share(part));
    }
}

fn shrink(workload: &mut Workload) {
    workload.spec.pod_sets.shrink_to_fit();
    let Some(status) = &mut workload.status else {
        return;
    };
    status.conditions.shrink_to_fit();
    status.resource_requests.shrink_to_fit();
    status.admission_checks.shrink_to_fit();
    if let Some(admission) = status.admission.as_mut().and_then(Arc::get_mut) {
        admission.pod_set_assignments.shrink_to_fit();
    }
}

/// *Limit*: at most twice as many parts as are in use, or [`SWEEP_MIN`].
#[derive(Default)]
struct Parts {
    known: HashSet<Arc<Value>>,
    sweep_at: usize,
}

/// By queue. *Limit*: [`ADMISSIONS_MAX`] for each queue that ever admitted a Workload.
#[derive(Default)]
struct Admissions(BTreeMap<String, VecDeque<Arc<Admission>>>);

impl Admissions {
    fn share(&mut self, admission: &mut Arc<Admission>) {
        let Some(known) = self.0.get_mut(&admission.cluster_queue) else {
            let first = [admission.clone()].into();
            self.0.insert(admission.cluster_queue.clone(), first);
            return;
        };
        if let Some(same) = known.iter().find(|known| *known == admission) {
            *admission = same.clone();
            return;
        }
        known.truncate(ADMISSIONS_MAX - 1);
        known.push_front(admission.clone());
    }
}

impl Parts {
    fn share(&mut self, part: &mut Arc<Value>) {
        if let Some(known) = self.known.get(part) {
            *part = known.clone();
            return;
        }
        if self.known.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.known.retain(|part| Arc::strong_count(part) > 1);
            self.sweep_at = 2 * self.known.len();
        }
        self.known.insert(part.clone());
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::kueue::v1beta2::{PodSet, PodSetAssignment, RawTemplate, WorkloadSpec};
    use roadstead_core::name::Key;
    use serde_json::json;

    use super::*;

    fn part(index: usize) -> Arc<Value> {
        Arc::new(Value::from(index))
    }

    /// The API server adds the Job's name to the template of a Job.
    fn workload(job: &str) -> Workload {
        let template = json!({"metadata": {"labels": {"job-name": job}}, "spec": {"restartPolicy": "Never"}});
        let set = json!({"name": "main", "count": 1, "template": template});
        let set: PodSet = serde_json::from_value(set).unwrap();
        let spec = WorkloadSpec {
            pod_sets: vec![set],
            ..WorkloadSpec::default()
        };
        Workload::new(job, spec)
    }

    #[test]
    fn equal_parts_of_templates_are_one_in_all_caches_and_others_are_not() {
        let templates = Arc::new(Templates::default());
        let (here, there) = (templates.workloads(), templates.workloads());
        let kept = |cache: &Cache<Workload>, name: &str| {
            cache.observe(workload(name));
            cache.get(&Key::new("", name)).unwrap().spec.pod_sets[0]
                .template
                .clone()
        };
        let (first, second, copy) = (kept(&here, "a"), kept(&here, "b"), kept(&there, "a"));
        let same = |x: &RawTemplate, y: &RawTemplate, field| Arc::ptr_eq(&x.0[field], &y.0[field]);
        assert!(same(&first, &second, "spec") && !same(&first, &second, "metadata"));
        assert!(same(&first, &copy, "spec") && same(&first, &copy, "metadata"));
        assert_eq!(second, workload("b").spec.pod_sets[0].template);
    }

    #[test]
    fn equal_admissions_are_one_and_only_the_last_are_remembered() {
        let admission = |queue: &str, count: usize| {
            Arc::new(Admission {
                cluster_queue: queue.to_owned(),
                pod_set_assignments: vec![PodSetAssignment::default(); count],
            })
        };
        let mut known = Admissions::default();
        let (mut first, mut same, mut other) = (admission("q", 1), admission("q", 1), admission("r", 1));
        for one in [&mut first, &mut same, &mut other] {
            known.share(one);
        }
        assert!(Arc::ptr_eq(&first, &same));
        assert_eq!(other.cluster_queue, "r");
        for count in 0..100 {
            known.share(&mut admission("q", count));
        }
        assert_eq!(known.0["q"].len(), ADMISSIONS_MAX);
        let mut again = admission("q", 1);
        known.share(&mut again);
        assert!(!Arc::ptr_eq(&first, &again) && first == again);
    }

    #[test]
    fn parts_that_nobody_uses_are_forgotten() {
        let mut parts = Parts::default();
        let mut used = part(0);
        parts.share(&mut used);
        for index in 1..10 * SWEEP_MIN {
            parts.share(&mut part(index));
            assert!(parts.known.len() <= SWEEP_MIN);
        }
        let mut again = part(0);
        parts.share(&mut again);
        assert!(Arc::ptr_eq(&used, &again), "what is in use stays");
    }
}
