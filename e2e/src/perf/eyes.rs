//! Times of observations, by watches of the harness.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use roadstead_api::kueue::v1beta2::Workload;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A stage of a job that the harness can observe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// The manager has chosen the job's worker.
    Placed,
    /// A worker's queue has admitted the job.
    Admitted,
    /// The job exists in a worker.
    Sent,
    /// The job may run in a worker.
    Started,
    /// The manager's job shows the end.
    Finished,
}

/// The first time of each mark by job name, with the index of the worker if there is one.
type Sights = BTreeMap<(Mark, String), (Instant, usize)>;

/// Watches jobs until it is dropped.
pub(super) struct Eyes {
    book: Book,
    count: watch::Receiver<usize>,
    _watches: JoinSet<()>,
}

/// Records marks.
#[derive(Clone)]
struct Book {
    sights: Arc<Mutex<Sights>>,
    counter: Arc<watch::Sender<usize>>,
}

impl Book {
    fn note(&self, mark: Mark, job: String, worker: usize) {
        let now = Instant::now();
        let mut sights = self.sights.lock().unwrap_or_else(PoisonError::into_inner);
        sights.entry((mark, job)).or_insert((now, worker));
        self.counter.send_replace(sights.len());
    }

    fn look(&self, key: &(Mark, String)) -> Option<(Instant, usize)> {
        let sights = self.sights.lock().unwrap_or_else(PoisonError::into_inner);
        sights.get(key).copied()
    }
}

impl Eyes {
    pub(super) fn open(manager: Client, workers: Vec<Client>) -> Self {
        let (counter, count) = watch::channel(0);
        let book = Book {
            sights: Arc::default(),
            counter: Arc::new(counter),
        };
        let mut watches = JoinSet::new();
        let local = book.clone();
        watches.spawn(follow(Api::all(manager.clone()), move |workload: Workload| {
            let owner = workload.owner_references().first();
            if let (Some(owner), Some(_)) = (
                owner,
                workload.status.as_ref().and_then(|s| s.cluster_name.as_ref()),
            ) {
                local.note(Mark::Placed, owner.name.clone(), 0);
            }
        }));
        let local = book.clone();
        watches.spawn(follow(Api::all(manager), move |job: Job| {
            if is_complete(&job) {
                local.note(Mark::Finished, job.name_any(), 0);
            }
        }));
        for (index, client) in workers.into_iter().enumerate() {
            let there = book.clone();
            watches.spawn(follow(Api::all(client), move |job: Job| {
                there.note(Mark::Sent, job.name_any(), index);
                if job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true)) {
                    there.note(Mark::Started, job.name_any(), index);
                }
            }));
        }
        Self {
            book,
            count,
            _watches: watches,
        }
    }

    /// Observes only [`Mark::Admitted`]. It needs one more watch on each worker, so it is not for a burst.
    pub(super) fn of_admissions(workers: Vec<Client>) -> Self {
        let (counter, count) = watch::channel(0);
        let book = Book {
            sights: Arc::default(),
            counter: Arc::new(counter),
        };
        let mut watches = JoinSet::new();
        for (index, client) in workers.into_iter().enumerate() {
            let there = book.clone();
            watches.spawn(follow(Api::all(client), move |workload: Workload| {
                let name = workload.name_any();
                if let (true, Some(job)) = (is_admitted(&workload), job_of(&name)) {
                    there.note(Mark::Admitted, job.to_owned(), index);
                }
            }));
        }
        Self {
            book,
            count,
            _watches: watches,
        }
    }

    /// The time between two marks of each job that has both.
    pub(super) fn between(&self, first: Mark, second: Mark, jobs: &[String]) -> Vec<Duration> {
        let at = |mark: Mark, job: &String| Some(self.book.look(&(mark, job.clone()))?.0);
        jobs.iter()
            // Why saturating: the two marks come from different watches.
            .filter_map(|job| Some(at(second, job)?.saturating_duration_since(at(first, job)?)))
            .collect()
    }

    /// Waits for a mark of one job.
    pub(super) async fn see(
        &mut self,
        mark: Mark,
        job: &str,
        patience: Duration,
    ) -> anyhow::Result<(Instant, usize)> {
        let key = (mark, job.to_owned());
        let seen = async {
            loop {
                self.count.borrow_and_update();
                if let Some(sight) = self.book.look(&key) {
                    return Ok(sight);
                }
                self.count.changed().await?;
            }
        };
        match timeout(patience, seen).await {
            Ok(sight) => sight,
            Err(_elapsed) => bail!("job {job} is not {mark:?} after {} s", patience.as_secs()),
        }
    }

    /// Waits for a mark of all jobs. Returns the time of the last one.
    pub(super) async fn see_all(
        &mut self,
        mark: Mark,
        jobs: &[String],
        patience: Duration,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + patience;
        let mut last = None;
        for job in jobs {
            let (at, _) = self
                .see(mark, job, deadline.saturating_duration_since(Instant::now()))
                .await?;
            last = last.max(Some(at));
        }
        last.map_or_else(|| bail!("no jobs"), Ok)
    }
}

/// Calls `see` with every object that is added or changed.
async fn follow<K>(api: Api<K>, see: impl Fn(K))
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let stream = watcher(api, Config::default()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
            see(object);
        }
    }
}

/// The job of a Workload, from the Workload's name. Why: a copy has no owner reference.
fn job_of(workload: &str) -> Option<&str> {
    Some(workload.strip_prefix("job-")?.rsplit_once('-')?.0)
}

fn is_admitted(workload: &Workload) -> bool {
    let conditions = workload.status.iter().flat_map(|status| &status.conditions);
    { conditions }.any(|condition| condition.type_ == "Admitted" && condition.status == "True")
}

fn is_complete(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    { conditions.into_iter().flatten() }.any(|condition| condition.type_ == "Complete")
}
