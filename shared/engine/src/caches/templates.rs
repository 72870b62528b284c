//! Workloads as they are kept: pod templates each once, lists without room to grow.
//!
//! Why: users submit the same job many times, and a parsed template is most of what a Workload weighs in memory. A list that
//! was read has room for four elements at least, most of ours have one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use roadstead_api::kueue::v1beta2::Workload;
use roadstead_kubeio::cache::Cache;
use serde_json::{Map, Value};

type Template = Arc<Map<String, Value>>;

/// Below this nobody looks for templates that are no longer used.
const SWEEP_MIN: usize = 1024;

/// An empty cache of Workloads in which equal pod templates share their memory.
pub fn workloads() -> Arc<Cache<Workload>> {
    let known = Mutex::new(Known::default());
    Cache::slimmed(move |workload: &mut Workload| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        for set in &mut workload.spec.pod_sets {
            known.share(&mut set.template.0);
        }
        shrink(workload);
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
    if let Some(admission) = &mut status.admission {
        admission.pod_set_assignments.shrink_to_fit();
    }
}

/// *Limit*: at most twice as many templates as are in use, or [`SWEEP_MIN`].
#[derive(Default)]
struct Known {
    templates: HashSet<Template>,
    sweep_at: usize,
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
