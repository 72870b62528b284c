//! Workloads as they are kept: pod templates and admissions each once, lists without room to grow.
//!
//! Why: users submit the same job many times, and a parsed template and an admission are most of what a Workload weighs in
//! memory. A list that was read has room for four elements at least, most of ours have one.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use roadstead_api::kueue::v1beta2::{Admission, Workload};
use roadstead_kubeio::cache::Cache;
use serde_json::{Map, Value};

type Template = Arc<Map<String, Value>>;

/// Below this nobody looks for templates that are no longer used.
const SWEEP_MIN: usize = 1024;
/// Admissions to one queue that are compared with a new one: the last that differed.
const ADMISSIONS_MAX: usize = 16;

/// An empty cache of Workloads in which equal pod templates share their memory.
pub fn workloads() -> Arc<Cache<Workload>> {
    let known = Mutex::new(Known::default());
    Cache::slimmed(move |workload: &mut Workload| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        for set in &mut workload.spec.pod_sets {
            known.share(&mut set.template.0);
        }
        shrink(workload);
        if let Some(admission) = workload
            .status
            .as_mut()
            .and_then(|status| status.admission.as_mut())
        {
            known.admissions.share(admission);
        }
    })
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

/// *Limit*: at most twice as many templates as are in use, or [`SWEEP_MIN`].
#[derive(Default)]
struct Known {
    templates: HashSet<Template>,
    sweep_at: usize,
    admissions: Admissions,
}

/// By queue. *Limit*: [`ADMISSIONS_MAX`] for each queue that ever admitted something.
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

impl Known {
    fn share(&mut self, template: &mut Template) {
        if let Some(known) = self.templates.get(template) {
            *template = known.clone();
            return;
        }
        if self.templates.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.templates.retain(|template| Arc::strong_count(template) > 1);
            self.sweep_at = 2 * self.templates.len();
        }
        self.templates.insert(template.clone());
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::kueue::v1beta2::PodSetAssignment;

    use super::*;

    fn template(index: usize) -> Template {
        Arc::new(Map::from_iter([("index".to_owned(), Value::from(index))]))
    }

    #[test]
    fn equal_templates_are_one_and_others_are_not() {
        let mut known = Known::default();
        let (mut first, mut same, mut other) = (template(1), template(1), template(2));
        for one in [&mut first, &mut same, &mut other] {
            known.share(one);
        }
        assert!(Arc::ptr_eq(&first, &same));
        assert!(!Arc::ptr_eq(&first, &other));
        assert_eq!((first, other), (template(1), template(2)));
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
    fn templates_that_nobody_uses_are_forgotten() {
        let mut known = Known::default();
        let mut used = template(0);
        known.share(&mut used);
        for index in 1..10 * SWEEP_MIN {
            known.share(&mut template(index));
            assert!(known.templates.len() <= SWEEP_MIN);
        }
        let mut again = template(0);
        known.share(&mut again);
        assert!(Arc::ptr_eq(&used, &again), "what is in use stays");
    }
}
