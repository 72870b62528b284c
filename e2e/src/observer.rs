//! An independent observer of every cluster: it uses its own watches, reads and bookkeeping, and no code of the product.
//!
//! It checks the invariants of `spec/safety.md` section 1 that can be checked from outside while the federation runs: I1
//! (single run), I6 (no backward status) and I11 (one outcome) on every change, I5 (no orphan) and I7 (hands off) when
//! asked. Each violation is a sentence.
//!
//! Reading order: [`ledger`] (observations and conclusions, pure), `watches` (changes into the ledger), then this file.
//!
//! *Limits*: watches of two servers have no common order. So an overlap (I1) counts only if reading both clusters confirms
//! it, and an overlap that ends before that is not reported.

mod hands;
pub mod ledger;
mod reads;
mod watches;

use std::collections::BTreeMap;
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

/// Most steps that wait for the reader. Further ones are dropped, and the ledger counts them.
const STEPS_MAX: usize = 8192;
/// How often an unconfirmed overlap is read again, and how often [`Observer::close`] reads.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A cluster to observe.
#[derive(Clone)]
pub struct Cluster {
    /// Its name, as registered.
    pub name: String,
    /// A client that is allowed to read everything.
    pub client: Client,
}

/// The ledger, and a notification for overlaps to confirm.
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
    task: AbortOnDropHandle<()>,
}

impl Observer {
    /// Starts watching in the current tokio runtime. The receiver gets the steps of each job; it may be dropped. Jobs are those
    /// of `batch/v1`.
    pub fn start(manager: Cluster, workers: Vec<Cluster>) -> (Self, mpsc::Receiver<Step>) {
        Self::of_kinds(manager, workers, vec![ApiResource::erase::<Job>(&())])
    }

    /// As [`Observer::start`], for jobs of these kinds, which every cluster must serve.
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
            task: AbortOnDropHandle::new(tokio::spawn(task)),
        };
        (observer, receiver)
    }

    /// The violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.book.ledger().violations().to_vec()
    }

    /// How many workloads ran in two clusters at once or to the end more than once.
    pub fn duplicate_runs(&self) -> usize {
        self.book.ledger().duplicate_runs()
    }

    /// When a job of the manager, given by namespace and name, was first seen unsuspended in a worker, and in which worker.
    pub fn started(&self, namespace: &str, name: &str) -> Option<(Instant, String)> {
        self.book.ledger().started(namespace, name)
    }

    /// The pods of a group on the manager that were seen to run, by worker.
    pub fn pods_of_group(&self, namespace: &str, group: &str) -> BTreeMap<String, usize> {
        self.book.ledger().pods_of_group(namespace, group)
    }

    /// Creates objects that no controller owns in a namespace of every cluster; [`Observer::close`] checks that they are unchanged.
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

    /// Waits until no orphan is left, at most `patience`, checks the planted objects, and returns the orphans that remain. A
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

    /// Stops watching.
    pub fn end(&self) {
        self.task.abort();
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
                // Why kept: without an answer the overlap is neither confirmed nor cleared, so it is read again.
                Err(error) => tracing::debug!(%error, "an overlap could not be looked at"),
            }
        }
    }
}
