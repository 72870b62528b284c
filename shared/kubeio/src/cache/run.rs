//! The loop that keeps a cache filled.

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use kube::discovery::ApiResource;
use kube::{Api, Resource};
use roadstead_core::name::Key;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ends::{Ended, Last};
use super::{Cache, Health, set};
use crate::retry::Backoff;

/// How often, at least, the whole cache is compared with the names and versions of everything stored.
///
/// Why so seldom: an API server rarely leaves an event out of a watch, and the cost of the comparison grows with the storage.
pub(super) const CHECK_PERIOD: Duration = Duration::from_hours(1);
/// First and longest pause between attempts to list or watch again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// First and longest pause before a kind that is not served is looked for again.
///
/// Unlike the anchor: its longest pause is two minutes (`spec/jobs.md 4.2`). After the installation of a kind its jobs would wait that
/// long.
const ABSENT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl<K> Cache<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Lists and watches until `stop`; resumes by resource version and lists again only when the API server has forgotten it
    /// (410). `labels` restricts the cached objects.
    ///
    /// Why an own loop instead of kube's watcher: this loop knows when the watch is open again, which is the moment from which
    /// a worker counts as connected. It also uses bookmarks as heartbeats.
    pub fn run(
        self: Arc<Self>,
        api: Api<K>,
        labels: Option<String>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send {
        self.run_as(api, labels, None, stop)
    }

    /// As [`Cache::run`], for a kind that the API server may not serve, now or later. While it is not served, the cache is empty
    /// ([`Health::NotServed`]) and the kind is looked for again and again.
    ///
    /// *Source*: `spec/jobs.md 4.2`.
    pub fn run_where_served(
        self: Arc<Self>,
        api: Api<K>,
        labels: Option<String>,
        kind: ApiResource,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send {
        self.run_as(api, labels, Some(kind), stop)
    }

    fn run_as(
        self: Arc<Self>,
        api: Api<K>,
        labels: Option<String>,
        kind: Option<ApiResource>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send {
        // Why before the first poll: a task that waits for a live cache must not see how the last run ended.
        self.health.modify(|health| set(health, Health::Starting));
        async move { self.keep_up(api, labels, kind, stop).await }
    }

    async fn keep_up(
        &self,
        api: Api<K>,
        labels: Option<String>,
        kind: Option<ApiResource>,
        stop: CancellationToken,
    ) {
        let forever = async {
            let mut backoff = Backoff::new(RETRY.0, RETRY.1);
            let mut absent = Backoff::new(ABSENT.0, ABSENT.1);
            // How the last watch ended. After a list, or after a watch that ended on time, no full comparison is needed.
            let mut last = Last::Cut;
            let mut checked = Instant::now();
            loop {
                if matches!(last, Last::Full) && checked.elapsed() >= CHECK_PERIOD {
                    last = Last::Unchecked;
                }
                if !matches!(last, Last::Full) {
                    checked = Instant::now();
                }
                // Why read in each turn: the watch of the turn before has stored its last version.
                let version = { self.version.lock() }
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
                    .filter(|_| !self.rewound.load(Ordering::Relaxed));
                let opened = Instant::now();
                let result = match version {
                    None => { self.list(&api, labels.as_deref()).await }
                        .map(|version| (Some(version), Last::Listed)),
                    Some(version) => {
                        self.resume(&api, labels.as_deref(), version, last, &mut backoff)
                            .await
                    }
                    .map(|ended| match ended {
                        Ended::At(version) => (Some(version), Last::of_watch(opened.elapsed())),
                        Ended::Silent(version) => (Some(version), Last::Silent),
                        Ended::Lost => (None, Last::Cut),
                    }),
                };
                let error = match result {
                    Ok((version, ended)) => {
                        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version;
                        last = ended;
                        continue;
                    }
                    Err(error) => error,
                };
                last = Last::Cut;
                match Health::after(&error, &api.clone().into_client(), kind.as_ref()).await {
                    Health::NotServed => {
                        self.empty();
                        self.settled.store(true, Ordering::Relaxed);
                        self.health.modify(|health| set(health, Health::NotServed));
                        tokio::select! {
                            biased;
                            // Why: a kind that is asked to be listed again may be served by now.
                            () = self.refreshed.notified() => {}
                            () = tokio::time::sleep(absent.pause()) => {}
                        }
                    }
                    health @ (Health::Starting | Health::Live | Health::Failing(_)) => {
                        tracing::debug!(?health, "listing or watching failed; trying again");
                        absent.reset();
                        self.health.modify(|before| set(before, health));
                        tokio::time::sleep(backoff.pause()).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = forever => {}
        }
    }

    /// Takes out everything: the kind is gone, and its objects with it.
    fn empty(&self) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let keys: Vec<Key> = self.read().keys().cloned().collect();
        for key in keys {
            self.forget(&key, None);
        }
    }
}
