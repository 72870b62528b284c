//! Statuses of ClusterQueues, LocalQueues and Cohorts, written from the brain's reports.
//!
//! Invariant: at most one write per queue and [`PACE`], however many jobs come and go. A status is written only if it differs
//! from the report, also when another client has changed it. These writes take at most a fifth of the time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{
    ClusterQueue, ClusterQueueStatus, Cohort, CohortStatus, LocalQueue, LocalQueueStatus,
};
use roadstead_convert::Shares;
use roadstead_core::name::{ClusterQueueName, CohortName, Key};
use roadstead_core::queue::QueueRef;
use roadstead_core::report::{ClusterQueueReport, CohortReport, LocalQueueReport};
use roadstead_core::state::State;
use roadstead_kubeio::cache::{self, Cache};
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::rest::Rest;
use roadstead_kubeio::trouble::Troubles;
use roadstead_kubeio::write;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::clock::Clock;

/// The shortest time between two writes of one queue's status.
const PACE: Duration = Duration::from_secs(1);
/// The pause after a batch of writes, as a multiple of the batch's time. Why: when the API server is busy, its work for workloads
/// goes before its work for their counts.
const REST_PER_WORK: u32 = 4;
/// The longest such pause, so that statuses are never much older.
const REST_MAX: Duration = Duration::from_secs(10);

/// The brain's latest reports on every queue and cohort.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    latest: Mutex<Latest>,
    /// The reports that changed since the writer's last batch.
    changed: Dirty<QueueRef>,
}

/// Reports by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest {
    pub(crate) cluster_queues: BTreeMap<ClusterQueueName, Arc<ClusterQueueReport>>,
    pub(crate) local_queues: BTreeMap<Key, Arc<LocalQueueReport>>,
    pub(crate) cohorts: BTreeMap<CohortName, Arc<CohortReport>>,
}

impl Reports {
    /// Takes in the changes of the state since the last call.
    pub(crate) fn take_in(&self, state: &mut State) {
        for queue in state.take_changed_queues() {
            // Why not one lock for all: a reader then waits for one report at most.
            match &queue {
                QueueRef::Cluster(name) => {
                    let report = state.cluster_queue_report(name);
                    keep(&mut self.lock().cluster_queues, name, report);
                }
                QueueRef::Local(key) => {
                    let report = state.local_queue_report(key);
                    keep(&mut self.lock().local_queues, key, report);
                }
                QueueRef::Cohort(name) => {
                    let report = state.cohort_report(name);
                    keep(&mut self.lock().cohorts, name, report);
                }
            }
            self.changed.mark(queue);
        }
    }

    pub(crate) fn all(&self) -> Latest {
        self.lock().clone()
    }

    pub(crate) fn cluster_queue(&self, name: &ClusterQueueName) -> Option<Arc<ClusterQueueReport>> {
        self.lock().cluster_queues.get(name).cloned()
    }

    fn local_queue(&self, key: &Key) -> Option<Arc<LocalQueueReport>> {
        self.lock().local_queues.get(key).cloned()
    }

    fn cohort(&self, name: &CohortName) -> Option<Arc<CohortReport>> {
        self.lock().cohorts.get(name).cloned()
    }

    /// The cohorts above a ClusterQueue, the nearest first.
    pub(crate) fn cohorts_above(&self, name: &str) -> Vec<CohortName> {
        let latest = self.lock();
        let report = latest.cluster_queues.get(&ClusterQueueName::from(name));
        let mut next = report.and_then(|report| Some(report.kinship.as_ref()?.parent.clone()));
        let mut above = Vec::new();
        while let Some(name) = next {
            // Why: the reports of one moment hold no cycle, but these may be of different moments.
            if above.contains(&name) {
                break;
            }
            let report = latest.cohorts.get(&name);
            next = report.and_then(|report| Some(report.kinship.as_ref()?.parent.clone()));
            above.push(name);
        }
        above
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep<K: Ord + Clone, R>(all: &mut BTreeMap<K, Arc<R>>, key: &K, report: Option<R>) {
    match report {
        Some(report) => all.insert(key.clone(), Arc::new(report)),
        None => all.remove(key),
    };
}

/// Writes statuses; see [`Writer::run`].
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) reports: Arc<Reports>,
    pub(crate) shares: Shares,
    pub(crate) clock: Clock,
}

impl Writer {
    /// Makes a queue due when another writer changes its status: a user, an older replica, a restored backup. *Source*:
    /// `spec/admission-engine.md 7`.
    pub(crate) fn listen(&self) {
        self.follow(&self.caches.cluster_queues);
        self.follow(&self.caches.local_queues);
        self.follow(&self.caches.cohorts);
    }

    fn follow<K: Reported>(&self, cache: &Cache<K>) {
        let (reports, shares, clock) = (self.reports.clone(), self.shares, self.clock.clone());
        cache.listen(move |change| {
            let Some(new) = change.new else { return };
            // Why not when only the spec has changed: the last report is of the old spec. The brain marks the queue once it has
            // evaluated the new one.
            if { change.old }.is_some_and(|old| old.status() == new.status()) {
                return;
            }
            // Why compared here: most changes are our own writes, and the pause after an empty batch would delay real changes.
            if new.patch(&reports, shares, clock()).is_some() {
                reports.changed.mark(K::name(change.key));
            }
        });
    }

    /// Writes statuses until `stop`. `ended` is called for each ClusterQueue that is being deleted and holds no quota any more.
    pub(crate) async fn run(self, ended: impl Fn(&ClusterQueueName), stop: CancellationToken) {
        let mut rest = rest();
        let troubles = Troubles::default();
        let work = async {
            loop {
                let changed = self.reports.changed.take().await;
                let (started, mut writes) = (Instant::now(), 0);
                for changed in changed {
                    if let QueueRef::Cluster(name) = &changed
                        && self.reports.cluster_queue(name).is_some_and(|r| is_over(&r))
                    {
                        ended(name);
                    }
                    match self.write(&changed).await {
                        Ok(written) => {
                            writes += u32::from(written);
                            if troubles.ends(&changed).is_some() {
                                tracing::info!(queue = described(&changed), "its status is written again");
                            }
                        }
                        Err(failure) => {
                            writes += 1;
                            if troubles.is_news(changed.clone(), failure.text()) {
                                tracing::warn!(
                                    queue = described(&changed),
                                    "its status cannot be written, so it shows an old state: {failure}; it \
                                     is tried again until it succeeds; if this is a refusal, apply deploy/rights"
                                );
                            }
                            self.reports.changed.mark(changed);
                        }
                    }
                }
                tokio::time::sleep(rest.after(started.elapsed(), writes)).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Returns whether there was anything to write.
    async fn write(&self, changed: &QueueRef) -> Result<bool, Failure> {
        match changed {
            QueueRef::Cluster(name) => {
                let api = Api::all(self.client.clone());
                let key = Key::new("", name.as_str());
                self.store(&api, &self.caches.cluster_queues, &key).await
            }
            QueueRef::Local(key) => {
                let api = Api::namespaced(self.client.clone(), &key.namespace);
                self.store(&api, &self.caches.local_queues, key).await
            }
            QueueRef::Cohort(name) => {
                let api = Api::all(self.client.clone());
                let key = Key::new("", name.as_str());
                self.store(&api, &self.caches.cohorts, &key).await
            }
        }
    }

    async fn store<K>(&self, api: &Api<K>, cache: &Cache<K>, key: &Key) -> Result<bool, Failure>
    where
        K: Reported + Clone + DeserializeOwned + Debug,
    {
        let patch =
            { cache.get(key) }.and_then(|stored| stored.patch(&self.reports, self.shares, (self.clock)()));
        let Some(patch) = patch else { return Ok(false) };
        if let Some(object) = write::patch_status(api, &key.name, &patch).await.stored()? {
            cache.observe(*object);
        }
        Ok(true)
    }
}

/// The queue or cohort, for log lines.
fn described(queue: &QueueRef) -> String {
    match queue {
        QueueRef::Cluster(name) => format!("ClusterQueue {name}"),
        QueueRef::Local(key) => format!("LocalQueue {key}"),
        QueueRef::Cohort(name) => format!("Cohort {name}"),
    }
}

/// A kind whose status is written from a report.
trait Reported: Resource {
    type Status: PartialEq;

    fn name(key: &Key) -> QueueRef;

    fn status(&self) -> Option<&Self::Status>;

    /// The merge patch that makes the status match the last report; `None` if it matches, or without a report.
    fn patch(&self, reports: &Reports, shares: Shares, now: Timestamp) -> Option<Value>;
}

impl Reported for ClusterQueue {
    type Status = ClusterQueueStatus;

    fn name(key: &Key) -> QueueRef {
        QueueRef::Cluster(ClusterQueueName::new(key.name.clone()))
    }

    fn status(&self) -> Option<&ClusterQueueStatus> {
        self.status.as_ref()
    }

    fn patch(&self, reports: &Reports, shares: Shares, now: Timestamp) -> Option<Value> {
        let report = reports.cluster_queue(&ClusterQueueName::new(self.name_any()))?;
        roadstead_convert::cluster_queue_status(self, &report, shares, now)
    }
}

impl Reported for LocalQueue {
    type Status = LocalQueueStatus;

    fn name(key: &Key) -> QueueRef {
        QueueRef::Local(key.clone())
    }

    fn status(&self) -> Option<&LocalQueueStatus> {
        self.status.as_ref()
    }

    fn patch(&self, reports: &Reports, _: Shares, now: Timestamp) -> Option<Value> {
        let report = reports.local_queue(&cache::key_of(self))?;
        roadstead_convert::local_queue_status(self, &report, now)
    }
}

impl Reported for Cohort {
    type Status = CohortStatus;

    fn name(key: &Key) -> QueueRef {
        QueueRef::Cohort(CohortName::new(key.name.clone()))
    }

    fn status(&self) -> Option<&CohortStatus> {
        self.status.as_ref()
    }

    fn patch(&self, reports: &Reports, shares: Shares, _: Timestamp) -> Option<Value> {
        let report = reports.cohort(&CohortName::new(self.name_any()))?;
        roadstead_convert::cohort_status(self, &report, shares)
    }
}

const fn rest() -> Rest {
    Rest::new(REST_PER_WORK, PACE..=REST_MAX)
}

/// Whether a ClusterQueue may be deleted: it admits no more, and no Workload holds its quota.
pub(crate) fn is_over(report: &ClusterQueueReport) -> bool {
    report.active.reason == "Terminating" && report.reserving == 0
}

#[cfg(test)]
mod tests;
