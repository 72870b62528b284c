//! I13: killing a process leads to the same final state as not killing it.
//!
//! It compares how each job ended, and what the manager left on the workers. The worker of a job may differ, because a crash
//! changes which worker admits the job first.

use std::collections::{BTreeMap, BTreeSet};

use super::book::Book;
use super::hands::LEASES;
use super::lost::{Standing, standing};
use super::object::{End, job_end, origin};

/// The state of a job of the manager in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended.
    Ended(End),
    /// It runs.
    Runs,
    /// It waits with a reason.
    Waits,
    /// None of these.
    Stuck,
}

/// The final state of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Every job on the manager, by resource, namespace and name.
    pub outcomes: BTreeMap<String, Outcome>,
    /// What the manager left on the workers, by resource, namespace and name; objects of jobs that run or wait are not counted.
    pub left_over: BTreeSet<String>,
}

impl Ending {
    pub(super) fn of(book: &Book) -> Self {
        let mut outcomes = BTreeMap::new();
        let mut busy = BTreeSet::new();
        for (place, job) in book.local_jobs() {
            let outcome = match standing(book, place, job) {
                Standing::Ended => job_end(job).map_or(Outcome::Stuck, Outcome::Ended),
                Standing::Runs => Outcome::Runs,
                Standing::Waits => Outcome::Waits,
                Standing::Stuck(_) => Outcome::Stuck,
            };
            if matches!(outcome, Outcome::Runs | Outcome::Waits) {
                busy.extend(book.workload_of(place, job).map(|(case, _)| case));
            }
            let name = format!("{} {}/{}", place.resource, place.namespace, place.name);
            outcomes.insert(name, outcome);
        }
        let mut left_over = BTreeSet::new();
        for cluster in &book.rules.workers {
            for (place, object) in book.all_on(cluster) {
                let case = book.case_of(place, object);
                let is_busy = case.is_some_and(|case| busy.contains(&case));
                let is_lease = *place.resource == *LEASES;
                if origin(object) == book.rules.origin && !is_busy && !is_lease {
                    left_over.insert(place.to_string());
                }
            }
        }
        Self { outcomes, left_over }
    }

    /// The differences from another final state, a line for each; empty if there are none. A job is compared only if `certain`
    /// says that its end does not depend on the order of events.
    pub fn differences(&self, other: &Self, certain: impl Fn(&str) -> bool) -> Vec<String> {
        let names: BTreeSet<&String> = self.outcomes.keys().chain(other.outcomes.keys()).collect();
        let said = |ending: &Self, name: &String| match ending.outcomes.get(name) {
            Some(outcome) => format!("{outcome:?}"),
            None => "not there".to_owned(),
        };
        let outcomes = names
            .into_iter()
            .filter(|name| certain(name))
            .filter(|name| self.outcomes.get(*name) != other.outcomes.get(*name))
            .map(|name| format!("{name}: {} here, {} there", said(self, name), said(other, name)));
        let here = self.left_over.difference(&other.left_over);
        let there = other.left_over.difference(&self.left_over);
        outcomes
            .chain(here.map(|name| format!("{name} is left over here")))
            .chain(there.map(|name| format!("{name} is left over there")))
            .collect()
    }
}
