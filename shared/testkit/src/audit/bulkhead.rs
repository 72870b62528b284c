//! I12: a worker that hangs delays no other worker.
//!
//! Judged as far as a simulation can: on a cluster without trouble, under a manager without trouble, a decision is carried out
//! within [`Rules::placement_max`](super::Rules::placement_max).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Findings;
use super::book::{Book, Name, Seen};
use super::object::{is_offered, is_true, winner};

/// How long a worker waited for a decision to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Namespace and name of the manager's Workload.
    pub subject: String,
    /// The name of the worker.
    pub cluster: String,
    /// From the manager's decision until the object was created on the worker.
    pub took: SignedDuration,
    /// Whether neither the worker nor the manager had any trouble meanwhile.
    pub healthy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Decided {
    Offer,
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Troubled,
    CalmSince(Timestamp),
}

/// The auditor of I12.
#[derive(Default)]
pub(super) struct Bulkhead {
    waiting: BTreeMap<(Name, Arc<str>, Decided), Timestamp>,
    /// Copies that are Finished, or were Finished when they were removed.
    ended: BTreeSet<(Name, Arc<str>)>,
    health: BTreeMap<Arc<str>, Health>,
    placements: Vec<Placement>,
}

impl Bulkhead {
    pub(super) fn troubled(&mut self, cluster: &str) {
        self.health.insert(cluster.into(), Health::Troubled);
    }

    pub(super) fn calm(&mut self, cluster: &str, now: Timestamp) {
        self.health.insert(cluster.into(), Health::CalmSince(now));
    }

    pub(super) fn placements(&self) -> &[Placement] {
        &self.placements
    }

    pub(super) fn saw(&mut self, book: &Book, seen: &Seen<'_>, findings: &mut Findings) {
        let Some(case) = seen.case() else { return };
        if seen.on_manager {
            if seen.is_workload() {
                self.decided(book, seen, case);
            }
            return;
        }
        let decided = if seen.is_workload() {
            self.note_end(seen, case);
            Decided::Offer
        } else if seen.is_part_of_job() {
            Decided::Run
        } else {
            return;
        };
        let waited = (case.clone(), seen.place.cluster.clone(), decided);
        if seen.before().is_none()
            && let Some(since) = self.waiting.remove(&waited)
        {
            let took = seen.now.duration_since(since);
            let healthy = self.was_healthy(book, &seen.place.cluster, since);
            if healthy && took > book.rules.placement_max {
                findings.about("I12", case, self.late(&seen.place.cluster, took));
            }
            self.placements.push(Placement {
                subject: case.to_string(),
                cluster: seen.place.cluster.to_string(),
                took,
                healthy,
            });
        }
    }

    fn note_end(&mut self, seen: &Seen<'_>, case: &Name) {
        let here = (case.clone(), seen.place.cluster.clone());
        match (seen.before(), seen.after()) {
            (_, Some(copy)) if is_true(copy, "Finished") => {
                self.ended.insert(here);
            }
            (None, Some(_)) => {
                self.ended.remove(&here);
            }
            (_, Some(_) | None) => {}
        }
    }

    /// Remembers which decisions of the manager's Workload are not carried out yet.
    fn decided(&mut self, book: &Book, seen: &Seen<'_>, case: &Name) {
        let empty = serde_json::Value::Null;
        let (old, new) = (seen.before().unwrap_or(&empty), seen.after().unwrap_or(&empty));
        for cluster in &book.rules.workers {
            let waits = |decided| (case.clone(), Arc::from(cluster.as_str()), decided);
            let is_there = book.copy(cluster, case).is_some();
            if !is_offered(new, cluster) {
                self.waiting.remove(&waits(Decided::Offer));
            } else if !is_offered(old, cluster) && !is_there {
                self.waiting.insert(waits(Decided::Offer), seen.now);
            }
            if winner(new) != cluster {
                self.waiting.remove(&waits(Decided::Run));
            } else if winner(old) != cluster {
                self.waiting.insert(waits(Decided::Run), seen.now);
            }
        }
    }

    fn was_healthy(&self, book: &Book, cluster: &str, since: Timestamp) -> bool {
        [cluster, &book.rules.manager]
            .iter()
            .all(|name| self.is_calm(book, name, since))
    }

    /// Whether a cluster has no trouble, and its last trouble ended at least [`Rules::recovery`](super::Rules::recovery) before `since`.
    pub(super) fn is_calm(&self, book: &Book, cluster: &str, since: Timestamp) -> bool {
        match self.health.get(cluster) {
            None => true,
            Some(Health::Troubled) => false,
            Some(Health::CalmSince(at)) => since.duration_since(*at) >= book.rules.recovery,
        }
    }

    fn late(&self, cluster: &str, took: SignedDuration) -> String {
        let troubled: Vec<&str> = self
            .health
            .iter()
            .filter(|(_, health)| **health == Health::Troubled)
            .map(|(name, _)| &**name)
            .collect();
        format!("{cluster} is well and waited {took:#} for it, while there was trouble on {troubled:?}")
    }

    /// Judges decisions that were made long ago and are still not carried out.
    pub(super) fn at_rest(&self, book: &Book, now: Timestamp, findings: &mut Findings) {
        for ((case, cluster, decided), since) in &self.waiting {
            let took = now.duration_since(*since);
            let is_late = took > book.rules.placement_max && !book.left.contains(cluster);
            // Why: once the copy and the manager's Workload show that the job has ended, the manager creates no job (I9).
            let has_ended = self.ended.contains(&(case.clone(), cluster.clone()))
                && book
                    .local(case)
                    .is_some_and(|workload| is_true(workload, "Finished"));
            if is_late && *decided == Decided::Run && !has_ended {
                let what = format!("it was given to {cluster} at {since} and its job was never made there");
                findings.about("I3", case, what);
            }
        }
    }
}
