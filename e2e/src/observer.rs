//! An eye on every cluster that does not look through the product: own watches, own reads, own bookkeeping.
//!
//! It checks the invariants of `spec/safety.md` section 1 that can be checked from outside while the federation runs: I1
//! (single run), I6 (no backward status) and I11 (one outcome) on every change, I5 (no orphan) and I7 (hands off) when
//! asked. Each violation is a sentence.
//!
//! Reading order: [`ledger`] (what was seen and what follows from it, pure), `watches` (changes into the ledger), then
//! this file.
//!
//! *Limits*: two watches of two servers are not ordered among each other, so an overlap that is seen (I1) counts only when
//! reading both clusters confirms it; one that is over before it can be read is not reported.

mod hands;
pub mod ledger;
mod reads;
mod watches;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::ApiResource;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use hands::Planted;
use ledger::{Ledger, Step, Violation};
use reads::Confirmed;

/// Steps that wait for the reader; what comes while so many wait is dropped, and the ledger counts it.
const STEPS_MAX: usize = 8192;
/// How often a doubt that could not be settled is looked at again, and how often the end is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A cluster to look at.
#[derive(Clone)]
pub struct Cluster {
    /// Its name, as registered.
    pub name: String,
    /// A client that may read everything.
    pub client: Client,
}

/// The ledger, and a bell that rings when there is something to confirm.
struct Book {
    ledger: Mutex<Ledger>,
    doubt: Notify,
}

impl Book {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the clusters of a federation until it is dropped.
pub struct Observer {
    book: Arc<Book>,
    manager: Cluster,
    workers: Vec<Cluster>,
    kinds: Vec<ApiResource>,
    planted: Mutex<Vec<Planted>>,
    _task: AbortOnDropHandle<()>,
}

impl Observer {
    /// Starts watching in the current tokio runtime. The receiver tells what happens to each job; it may be dropped. Jobs are those
    /// of `batch/v1`.
    pub fn start(manager: Cluster, workers: Vec<Cluster>) -> (Self, mpsc::Receiver<Step>) {
        Self::of_kinds(manager, workers, vec![ApiResource::erase::<Job>(&())])
    }

    /// As [`Observer::start`], where jobs are of these kinds, each of which every cluster serves.
    pub fn of_kinds(
        manager: Cluster,
        workers: Vec<Cluster>,
        kinds: Vec<ApiResource>,
    ) -> (Self, mpsc::Receiver<Step>) {
        let (steps, receiver) = mpsc::channel(STEPS_MAX);
        let names = workers.iter().map(|worker| worker.name.clone()).collect();
        let book = Arc::new(Book {
            ledger: Mutex::new(Ledger::new(names, steps)),
            doubt: Notify::new(),
        });
        let task = watch_all(Arc::clone(&book), manager.clone(), workers.clone(), kinds.clone());
        let observer = Self {
            book,
            manager,
            workers,
            kinds,
            planted: Mutex::default(),
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        };
        (observer, receiver)
    }

    /// What was broken so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.book.ledger().violations().to_vec()
    }

    /// How many workloads ran in two clusters at once or to the end more than once.
    pub fn duplicate_runs(&self) -> usize {
        self.book.ledger().duplicate_runs()
    }

    /// When a job of the manager was first seen unsuspended in a worker, by namespace and name, and in which.
    pub fn started(&self, namespace: &str, name: &str) -> Option<(Instant, String)> {
        self.book.ledger().started(namespace, name)
    }

    /// Puts objects that no controller owns into a namespace of every cluster; [`Observer::close`] looks whether they were touched.
    pub async fn plant(&self, namespace: &str) -> Result<(), kube::Error> {
        for cluster in self.all() {
            let planted = hands::plant(cluster, namespace).await?;
            self.planted
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(planted);
        }
        Ok(())
    }

    /// Waits until no orphan is left, at most `patience`, checks what was planted, and returns the orphans that remain. A
    /// remaining orphan is a violation of I5.
    pub async fn close(&self, patience: Duration) -> Result<Vec<String>, kube::Error> {
        let started = Instant::now();
        let orphans = loop {
            let orphans = Box::pin(reads::orphans(&self.manager, &self.workers, &self.kinds)).await?;
            if orphans.is_empty() || started.elapsed() >= patience {
                break orphans;
            }
            sleep(LOOK_AGAIN).await;
        };
        for orphan in &orphans {
            let sentence = format!(
                "{orphan} has no counterpart on the manager after {} s",
                patience.as_secs()
            );
            self.book.ledger().convict("I5", sentence);
        }
        let planted = self
            .planted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for each in planted {
            for sentence in hands::touched(self.all(), &each).await? {
                self.book.ledger().convict("I7", sentence);
            }
        }
        Ok(orphans)
    }

    fn all(&self) -> impl Iterator<Item = &Cluster> {
        std::iter::once(&self.manager).chain(&self.workers)
    }
}

async fn watch_all(book: Arc<Book>, manager: Cluster, workers: Vec<Cluster>, kinds: Vec<ApiResource>) {
    let mut tasks = JoinSet::new();
    watches::spawn(&mut tasks, &book, (&manager, &workers), &kinds);
    loop {
        tokio::select! {
            biased;
            () = book.doubt.notified() => {}
            () = sleep(LOOK_AGAIN) => {}
        }
        let doubts = book.ledger().doubts();
        for doubt in doubts {
            match reads::confirm(&workers, &kinds, &doubt).await {
                Ok(Confirmed::Overlap(clusters)) => book.ledger().convict_overlap(&doubt, &clusters),
                Ok(Confirmed::Over) => book.ledger().clear(&doubt),
                // Why kept: a server that does not answer settles nothing; the doubt is looked at again.
                Err(error) => tracing::debug!(%error, "an overlap could not be looked at"),
            }
        }
    }
}
