//! When things were seen, by watches of the harness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What can be seen of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// It may run in a worker.
    Started,
    /// The manager's job shows that it ended.
    Finished,
}

/// First sights of marks by job name; for starts also the index of the worker.
type Sights = BTreeMap<(Mark, String), (Instant, usize)>;

/// Watches jobs until it is dropped.
pub(super) struct Eyes {
    sights: Arc<Mutex<Sights>>,
    count: watch::Receiver<usize>,
    _watches: JoinSet<()>,
}

impl Eyes {
    pub(super) fn open(manager: Client, workers: Vec<Client>) -> Self {
        let sights: Arc<Mutex<Sights>> = Arc::default();
        let (counter, count) = watch::channel(0);
        let counter = Arc::new(counter);
        let mut watches = JoinSet::new();
        let workers = workers.into_iter().enumerate();
        let places = workers.map(|(index, client)| (Mark::Started, index, client));
        for (mark, index, client) in std::iter::once((Mark::Finished, 0, manager)).chain(places) {
            let (sights, counter) = (Arc::clone(&sights), Arc::clone(&counter));
            watches.spawn(async move {
                let stream = watcher(Api::<Job>::all(client), Config::default()).default_backoff();
                let mut stream = std::pin::pin!(stream);
                while let Some(event) = stream.next().await {
                    let Ok(Event::Apply(job) | Event::InitApply(job)) = event else {
                        continue;
                    };
                    if shows(&job, mark) {
                        let mut sights = sights.lock().unwrap_or_else(PoisonError::into_inner);
                        sights
                            .entry((mark, job.name_any()))
                            .or_insert_with(|| (Instant::now(), index));
                        counter.send_replace(sights.len());
                    }
                }
            });
        }
        Self {
            sights,
            count,
            _watches: watches,
        }
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
                if let Some(sight) = self.look(&key) {
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

    /// Waits for a mark of all jobs; the last sight.
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

    fn look(&self, key: &(Mark, String)) -> Option<(Instant, usize)> {
        let sights = self.sights.lock().unwrap_or_else(PoisonError::into_inner);
        sights.get(key).copied()
    }
}

fn shows(job: &Job, mark: Mark) -> bool {
    match mark {
        Mark::Started => job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true)),
        Mark::Finished => {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            { conditions.into_iter().flatten() }.any(|condition| condition.type_ == "Complete")
        }
    }
}
