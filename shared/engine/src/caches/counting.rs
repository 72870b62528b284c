//! How requests of Workloads are counted here: the administrator's rules, limit ranges by namespace, overheads of runtime
//! classes.
//!
//! Invariant: only the count changes; no stored Workload does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use k8s_openapi::api::core::v1::LimitRange;
use roadstead_api::config::Config;
use roadstead_api::kueue::v1beta2::Workload as ApiWorkload;
use roadstead_convert::{Accounting, Boost};
use roadstead_core::lifecycle::Reclaim;
use roadstead_core::name::Key;
use roadstead_core::requests::{Limits, Rules};
use roadstead_core::workload::Workload;
use roadstead_jobs::labels::Identifiers;

use super::Caches;

/// The administrator's rules for counting.
#[derive(Debug, Default)]
pub struct Counting {
    rules: Rules,
    boost: Boost,
    reclaim: Reclaim,
    identifiers: Identifiers,
}

impl Counting {
    /// Reads the rules from the configuration.
    pub fn of(config: &Config) -> Self {
        Self {
            rules: roadstead_convert::request_rules(config),
            boost: Boost::of(config),
            reclaim: roadstead_convert::reclaim(config),
            identifiers: Identifiers::of(&config.feature_gates),
        }
    }

    /// Where the names that identify a Workload are read.
    pub(super) const fn identifiers(&self) -> Identifiers {
        self.identifiers
    }
}

/// Parsed limit ranges by namespace and name.
#[derive(Debug, Default)]
pub struct LimitIndex(Mutex<BTreeMap<Arc<str>, ByName>>);

/// The limit ranges of one namespace.
type ByName = BTreeMap<Arc<str>, Limits>;

impl LimitIndex {
    /// The limit ranges of a namespace together; the first by name gives a default.
    fn of(&self, namespace: &str) -> Limits {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut together = Limits::default();
        for limits in index.get(namespace).into_iter().flat_map(BTreeMap::values) {
            together.add(limits);
        }
        together
    }

    pub(super) fn note(&self, key: &Key, new: Option<&LimitRange>) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = new {
            let of_namespace = index.entry(key.namespace.clone()).or_default();
            of_namespace.insert(key.name.clone(), roadstead_convert::limit_range(range));
        } else if let Some(of_namespace) = index.get_mut(&key.namespace) {
            of_namespace.remove(&key.name);
            if of_namespace.is_empty() {
                index.remove(&key.namespace);
            }
        }
    }
}

/// Says why a stored Workload can never be admitted; `None` if it may be.
type Judge = Box<dyn Fn(&ApiWorkload) -> Option<String> + Send + Sync>;
/// Calculates a Workload again.
type Recount = Box<dyn Fn(&Arc<ApiWorkload>) + Send + Sync>;

/// What only the process around the engine knows of a pending Workload: a manager knows that it is larger than every worker.
#[derive(Default)]
pub struct Beyond {
    judge: OnceLock<Judge>,
    recounts: Mutex<Vec<Recount>>,
}

impl Beyond {
    /// Judges every Workload from now on. Called once, before the first decision; a second judge is ignored.
    pub fn judge_by(&self, judge: impl Fn(&ApiWorkload) -> Option<String> + Send + Sync + 'static) {
        let _second = self.judge.set(Box::new(judge));
    }

    fn of(&self, stored: &ApiWorkload) -> Option<String> {
        self.judge.get().and_then(|judge| judge(stored))
    }
}

impl Caches {
    /// A Workload as it counts against quota here.
    pub fn counted(&self, stored: &ApiWorkload) -> Workload {
        let limits = self
            .limits
            .of(stored.metadata.namespace.as_deref().unwrap_or_default());
        let overhead = |name: &str| {
            let class = self.runtime_classes.named(name)?;
            Some(roadstead_convert::overhead(&class))
        };
        let accounting = Accounting {
            rules: &self.counting.rules,
            limits: &limits,
            overhead: &overhead,
            boost: self.counting.boost,
            reclaim: self.counting.reclaim,
        };
        Workload {
            beyond: self.beyond.of(stored),
            ..roadstead_convert::counted_workload(stored, &accounting)
        }
    }

    /// Calculates those Workloads again that the judge may now answer differently.
    pub fn recount(&self, wanted: impl Fn(&ApiWorkload) -> bool) {
        let recounts = self
            .beyond
            .recounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for workload in self.workloads.all().iter().filter(|workload| wanted(workload)) {
            recounts.iter().for_each(|recount| recount(workload));
        }
    }

    /// Calls `recount` with every Workload whose requests may count differently now, whenever a limit range or a runtime
    /// class changes, or [`Self::recount`] asks for it.
    pub(crate) fn on_recount(&self, recount: impl Fn(&Arc<ApiWorkload>) + Clone + Send + Sync + 'static) {
        { self.beyond.recounts.lock() }
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(recount.clone()));
        let (workloads, tell) = (self.workloads.clone(), recount.clone());
        self.limit_ranges.listen(move |change| {
            if change.old.map(|range| &range.spec) == change.new.map(|range| &range.spec) {
                return;
            }
            let namespace = Some(&*change.key.namespace);
            let all = workloads.all();
            let here = all
                .iter()
                .filter(|w| w.metadata.namespace.as_deref() == namespace);
            here.for_each(&tell);
        });
        let workloads = self.workloads.clone();
        self.runtime_classes.listen(move |change| {
            if change.old.map(|class| &class.overhead) != change.new.map(|class| &class.overhead) {
                workloads.all().iter().for_each(&recount);
            }
        });
    }
}
