//! The history of jobs and their copies in the workers. Why: both are deleted by the time a scene reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::conditions::workload::{EVICTED, FINISHED};
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::observer::Cluster;
use crate::observer::ledger::{Event, Step, Subject};

/// The recorded history.
#[derive(Debug, Default)]
struct Past {
    /// By namespace and name of the job: the workers where it was started, in this order.
    starts: BTreeMap<(String, String), Vec<String>>,
    /// By namespace and name of the Workload: reason and message of its end in a worker.
    ends: BTreeMap<(String, String), (String, String)>,
    /// By namespace and name of the Workload: the reason of its last eviction in a worker.
    evictions: BTreeMap<(String, String), String>,
    /// By worker, namespace and name of the Workload: the UIDs of its copies.
    copies: BTreeMap<[String; 3], BTreeSet<String>>,
    /// By worker, namespace and name of a job with a controller of its own: its last status.
    statuses: BTreeMap<[String; 3], Value>,
}

/// Records until it is dropped.
#[derive(Debug)]
pub(super) struct History {
    past: Arc<Mutex<Past>>,
    _tasks: JoinSet<()>,
}

impl History {
    /// Records what happens in these workers, and the statuses of jobs of this kind.
    pub(super) fn start(
        mut steps: mpsc::Receiver<Step>,
        workers: &[Cluster],
        kind: Option<&ApiResource>,
    ) -> Self {
        let past = Arc::new(Mutex::new(Past::default()));
        let mut tasks = JoinSet::new();
        let noted = Arc::clone(&past);
        tasks.spawn(async move {
            while let Some(step) = steps.recv().await {
                if let (Subject::Job(namespace, name), Event::Started(cluster)) = (step.subject, step.event) {
                    let mut past = lock(&noted);
                    past.starts.entry((namespace, name)).or_default().push(cluster);
                }
            }
        });
        for worker in workers {
            if let Some(kind) = kind {
                let jobs = Api::all_with(worker.client.clone(), kind);
                tasks.spawn(note_statuses(Arc::clone(&past), worker.name.clone(), jobs));
            }
            let noted = Arc::clone(&past);
            let api: Api<Workload> = Api::all(worker.client.clone());
            let cluster = worker.name.clone();
            tasks.spawn(async move {
                let seen = watcher(api, Config::default())
                    .default_backoff()
                    .applied_objects();
                let mut seen = std::pin::pin!(seen);
                while let Some(seen) = seen.next().await {
                    // Why errors are skipped: the watcher recovers by itself.
                    let Ok(workload) = seen else { continue };
                    let key = (workload.namespace().unwrap_or_default(), workload.name_any());
                    if let Some(uid) = workload.uid() {
                        let [namespace, name] = [key.0.clone(), key.1.clone()];
                        let copies = &mut lock(&noted).copies;
                        copies
                            .entry([cluster.clone(), namespace, name])
                            .or_default()
                            .insert(uid);
                    }
                    if let Some(evicted) = workload.condition(EVICTED).filter(|found| found.status == "True")
                    {
                        lock(&noted).evictions.insert(key.clone(), evicted.reason.clone());
                    }
                    if let Some(end) = workload.condition(FINISHED).filter(|end| end.status == "True") {
                        let end = (end.reason.clone(), end.message.clone());
                        lock(&noted).ends.insert(key, end);
                    }
                }
            });
        }
        Self { past, _tasks: tasks }
    }

    /// The workers in which a job was started, in this order.
    pub(super) fn starts(&self, namespace: &str, job: &str) -> Vec<String> {
        let key = (namespace.to_owned(), job.to_owned());
        lock(&self.past).starts.get(&key).cloned().unwrap_or_default()
    }

    /// How many copies of a Workload a worker has had, one after the other.
    pub(super) fn copies(&self, worker: &str, namespace: &str, workload: &str) -> usize {
        let key = [worker, namespace, workload].map(str::to_owned);
        lock(&self.past).copies.get(&key).map_or(0, BTreeSet::len)
    }

    /// The last status of a job of the played kind in a worker.
    pub(super) fn status(&self, worker: &str, namespace: &str, job: &str) -> Option<Value> {
        let key = [worker, namespace, job].map(str::to_owned);
        lock(&self.past).statuses.get(&key).cloned()
    }

    /// Why a worker evicted the copy of a Workload last.
    pub(super) fn eviction(&self, namespace: &str, workload: &str) -> Option<String> {
        let key = (namespace.to_owned(), workload.to_owned());
        lock(&self.past).evictions.get(&key).cloned()
    }

    /// Reason and message with which the copy of a Workload ended in a worker.
    pub(super) fn end(&self, namespace: &str, workload: &str) -> Option<(String, String)> {
        let key = (namespace.to_owned(), workload.to_owned());
        lock(&self.past).ends.get(&key).cloned()
    }
}

async fn note_statuses(past: Arc<Mutex<Past>>, worker: String, jobs: Api<DynamicObject>) {
    let seen = watcher(jobs, Config::default())
        .default_backoff()
        .applied_objects();
    let mut seen = std::pin::pin!(seen);
    while let Some(seen) = seen.next().await {
        // Why errors are skipped: the watcher recovers by itself.
        let Ok(job) = seen else { continue };
        let key = [
            worker.clone(),
            job.namespace().unwrap_or_default(),
            job.name_any(),
        ];
        let status = job.data["status"].clone();
        lock(&past).statuses.insert(key, status);
    }
}

fn lock(past: &Mutex<Past>) -> MutexGuard<'_, Past> {
    past.lock().unwrap_or_else(PoisonError::into_inner)
}
