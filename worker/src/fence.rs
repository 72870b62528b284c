//! The fence: this worker stops a manager's jobs when it has not heard from that manager for too long. After that time the
//! manager may start them elsewhere.
//!
//! Each manager keeps one lease here. [`Watch`] tells its age; `stop` carries out the consequences.
//!
//! Invariant: nothing here depends on the time of day, and the age of a lease is never read from a cache: each look asks the API
//! server for the stored lease. A manager without a lease (Kueue, for example) is never fenced.
//!
//! *Source*: `spec/safety.md 3`.

mod stop;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::dispatch::LostPolicy;
use roadstead_core::lease::{LENGTH_MAX, Moment, Seen, Standing, Terms, Watch};
use roadstead_core::name::Key;
use roadstead_engine::caches::{Caches, JobRef};
use roadstead_engine::checks::Checks;
use roadstead_engine::clock::Uptime;
use roadstead_kubeio::cache::Health;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::trouble::{Trouble, Troubles};
use roadstead_kubeio::write::{self, Written};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::stop::Stopping;
use crate::metrics::Metrics;

/// How often this cluster is searched for leases while there is none.
const SEARCH: Duration = Duration::from_secs(5);
/// How often a lease of unknown age is read.
const HURRY: Duration = Duration::from_secs(1);
/// How long one look, or one mark, may take, and how long a stop may delay the next look.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// The shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Limit: leases that are read, as many as managers can share a worker.
const MANAGERS_MAX: u32 = 100;

#[derive(Clone)]
pub(crate) struct Fence {
    pub(crate) client: Client,
    /// Where managers keep their leases.
    pub(crate) namespace: String,
    pub(crate) caches: Caches,
    pub(crate) jobs_due: Arc<Queue<JobRef>>,
    pub(crate) uptime: Uptime,
    pub(crate) metrics: Metrics,
    /// The state of the managers.
    pub(crate) knowledge: Arc<Knowledge>,
}

/// The state of this worker's managers.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    /// Whether leases were read at all; before that no manager has a standing.
    looked: AtomicBool,
    managers: Mutex<BTreeMap<String, Manager>>,
    /// What was last logged about the stop of a manager's jobs, a Workload that could not be stopped, and a finalizer that
    /// could not be removed.
    troubles: Troubles<(&'static str, Key)>,
}

#[derive(Debug, Default)]
struct Manager {
    watch: Watch,
    /// The lease as last seen, for the next mark.
    lease: Option<Lease>,
    marked_at: Option<Moment>,
    standing: Option<Standing>,
    /// Why its lease cannot be marked, as last logged.
    refusal: Trouble,
    /// That its lease is longer than this worker's limit, as last logged.
    excess: Trouble,
}

impl Manager {
    /// Takes in a look that began at `began` and was answered at `now`.
    fn looked(&mut self, began: Moment, now: Moment, lease: Option<Lease>) {
        let before = self.watch.standing(now);
        if matches!(before, Standing::Doubtful | Standing::Expired) {
            // Why: a lease ends by time alone, without a call of `settle`. A job that asked since then was refused. It becomes
            // due again only if `settle` sees the standing change.
            self.standing = Some(before);
        }
        self.watch.looked(began, lease.as_ref().map(parse));
        self.lease = lease;
    }

    /// The standing at the last call, and the standing now.
    fn settle(&mut self, now: Moment) -> (Option<Standing>, Standing) {
        let standing = self.watch.standing(now);
        (self.standing.replace(standing), standing)
    }
}

impl Knowledge {
    fn managers(&self) -> MutexGuard<'_, BTreeMap<String, Manager>> {
        self.managers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self, origin: &str, now: Moment) -> Option<Standing> {
        if !self.looked.load(Ordering::Acquire) {
            return None;
        }
        let managers = self.managers();
        Some(
            managers
                .get(origin)
                .map_or(Standing::Free, |manager| manager.watch.standing(now)),
        )
    }
}

/// What the standing of a manager's Lease means for its jobs, for the log.
const fn words(standing: Standing) -> &'static str {
    match standing {
        Standing::Free => "there is no Lease of this manager, so its jobs are not fenced",
        Standing::Held => "the Lease of this manager is renewed, so its jobs may start",
        Standing::Doubtful => "the Lease of this manager is late, so its jobs of policy Fence do not start",
        Standing::Expired => {
            "the Lease of this manager was not renewed in time, so its jobs of policy Fence are stopped"
        }
    }
}

impl Fence {
    /// Watches all managers until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = async {
            // Why the Workloads first: only the copies of a manager show that its lease is missing.
            let mut health = self.caches.workloads.health();
            health.wait_for(|health| *health == Health::Live).await;
            self.watch_over().await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    async fn watch_over(&self) {
        let (mut last_look, mut trouble) = (None, Trouble::default());
        let mut stopping = Stopping::default();
        loop {
            last_look = self.look(last_look, &mut trouble).await;
            self.mark().await;
            self.act(&mut stopping).await;
            let pause = if stopping.is_done() {
                self.pause()
            } else {
                PAUSE_MIN
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// The greatest possible age of each manager's lease, if it is known.
    pub(crate) fn ages(&self) -> Vec<(String, Duration)> {
        let (now, managers) = (self.uptime.now(), self.knowledge.managers());
        let ages = managers.iter();
        ages.filter_map(|(origin, manager)| Some((origin.clone(), manager.watch.age(now)?)))
            .collect()
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reads all leases. Returns when the last answered look began.
    async fn look(&self, last: Option<Moment>, trouble: &mut Trouble) -> Option<Moment> {
        let began = self.uptime.now();
        // Why no resource version: an answer from a cache may be of any age.
        let params = ListParams::default()
            .labels(labels::MULTIKUEUE_ORIGIN)
            .limit(MANAGERS_MAX);
        let api = self.leases();
        let patience = patience(self.next_change(began), began);
        let found = match tokio::time::timeout(patience, api.list(&params)).await {
            Ok(Ok(found)) => found.items,
            Ok(Err(error)) => {
                self.cannot_look(trouble, &write::describe(&error));
                // Why: a worker without the right to read leases can fence no manager, and must not hold up every job.
                if matches!(&error, kube::Error::Api(status) if status.code == 403) {
                    self.first_look();
                }
                return last;
            }
            Err(_elapsed) => {
                self.cannot_look(trouble, "the API server does not answer in time");
                return last;
            }
        };
        if trouble.ends() {
            tracing::info!(
                namespace = self.namespace,
                "the Leases of managers can be read again"
            );
        }
        let mut seen: BTreeMap<String, Lease> = BTreeMap::new();
        for lease in found {
            if let Some(origin) = lease.labels().get(labels::MULTIKUEUE_ORIGIN).cloned() {
                seen.insert(origin, lease);
            }
        }
        {
            let mut managers = self.knowledge.managers();
            if last.is_none() {
                for (origin, terms) in self.missed(&seen) {
                    tracing::warn!(
                        origin,
                        namespace = self.namespace,
                        "the lease of this manager is missing, and its jobs of policy Fence here need one: they are stopped \
                         in {} s unless the manager creates it again; check that the manager runs, reaches this cluster, \
                         and that its account may write Leases in the namespace",
                        terms.restart_grace().as_secs()
                    );
                    managers.entry(origin).or_insert_with(|| Manager {
                        watch: Watch::missing(began, terms),
                        ..Manager::default()
                    });
                }
            }
            for origin in seen.keys() {
                managers.entry(origin.clone()).or_insert_with(|| Manager {
                    watch: Watch::after(last),
                    ..Manager::default()
                });
            }
            // Why under the lock: a job may ask until the lock is taken. This time must not be before such a refusal.
            let now = self.uptime.now();
            for (origin, manager) in managers.iter_mut() {
                let lease = seen.remove(origin);
                tell_excess(origin, lease.as_ref(), &mut manager.excess);
                manager.looked(began, now, lease);
            }
        }
        self.first_look();
        Some(began)
    }

    fn cannot_look(&self, trouble: &mut Trouble, why: &str) {
        if trouble.is_news(why) {
            tracing::error!(
                namespace = self.namespace,
                "cannot read the Leases of managers: {why}; jobs of policy Fence do not start after two thirds of the length of \
                 their manager's Lease, and are stopped at its end, even if that manager is well; tried again until it succeeds; if it \
                 is forbidden: kubectl apply -f deploy/rights/roadstead-worker.yaml"
            );
        }
    }

    /// Managers that kept a lease when they sent their copies here, but have none now: the lease was deleted before this process
    /// started.
    fn missed(&self, seen: &BTreeMap<String, Lease>) -> BTreeMap<String, Terms> {
        let mut missed: BTreeMap<String, Terms> = BTreeMap::new();
        for copy in self.caches.workloads.all() {
            let Some(origin) = copy.labels().get(labels::MULTIKUEUE_ORIGIN) else {
                continue;
            };
            let secs = roadstead_convert::lease_secs(copy.metadata.annotations.as_ref());
            if let Some(secs) = secs.filter(|_| is_fenced_by_policy(&copy) && !seen.contains_key(origin)) {
                let terms = Terms::written(secs);
                let shortest = missed.entry(origin.clone()).or_insert(terms);
                *shortest = terms.min(*shortest);
            }
        }
        missed
    }

    fn first_look(&self) {
        if !self.knowledge.looked.swap(true, Ordering::AcqRel) {
            self.wake_jobs(|_| true);
        }
    }

    /// Marks the leases. A mark shows the manager that this worker watches it, and the answer shows this worker the age of the
    /// lease. If a consequence becomes due first, the remaining leases are marked the next time.
    async fn mark(&self) {
        let now = self.uptime.now();
        let change = self.next_change(now);
        let due: Vec<(String, Lease)> = {
            let managers = self.knowledge.managers();
            let wants = |manager: &Manager| {
                let every = manager.watch.last_seen().map(|seen| seen.terms.mark_every());
                let since = manager.marked_at.map(|at| now.since(at));
                let hurry = !manager.watch.knows_its_age();
                since.is_none_or(|since| {
                    every.is_some_and(|every| since >= every) || (hurry && since >= HURRY)
                })
            };
            let due = managers.iter().filter(|(_, manager)| wants(manager));
            due.filter_map(|(origin, manager)| Some((origin.clone(), manager.lease.clone()?)))
                .collect()
        };
        for (origin, lease) in due {
            let began = self.uptime.now();
            if change.is_some_and(|at| at <= began) {
                return;
            }
            let before = lease.annotations().get(annotations::LEASE_WATCHED);
            let count = before
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or_default();
            // Invariant: each mark has a new number. The API server does not store an unchanged object, so its answer would
            // prove nothing.
            let patch = json!({ "metadata": {
                "resourceVersion": lease.metadata.resource_version,
                "annotations": { annotations::LEASE_WATCHED: count.wrapping_add(1).to_string() },
            } });
            let (leases, name) = (self.leases(), lease.name_any());
            let marking = write::patch(&leases, &name, &patch);
            let answer = tokio::time::timeout(patience(change, began), marking).await;
            match answer {
                Ok(Written::Done(stored)) => {
                    if let Some(manager) = self.knowledge.managers().get_mut(&origin) {
                        manager.watch.marked(began, &parse(&stored));
                        manager.marked_at = Some(began);
                        manager.lease = Some(*stored);
                        manager.refusal.ends();
                    }
                }
                // The lease was written or deleted meanwhile; the mark is tried again after the next look.
                Ok(Written::Conflict | Written::Gone | Written::AlreadyExists) => {}
                Err(_elapsed) => self.cannot_mark(&origin, "the API server does not answer in time"),
                Ok(Written::Refused(why) | Written::Unclear(why)) => self.cannot_mark(&origin, &why),
            }
        }
    }

    fn cannot_mark(&self, origin: &str, why: &str) {
        let mut managers = self.knowledge.managers();
        let manager = managers.get_mut(origin);
        if manager.is_some_and(|manager| manager.refusal.is_news(why)) {
            tracing::warn!(
                origin,
                namespace = self.namespace,
                "cannot mark the Lease of this manager: {why}; so the manager cannot see that this cluster stops its jobs of policy \
                 Fence by itself: if this cluster is lost, these jobs may wait for it, or run twice; tried again until it succeeds; if \
                 it is forbidden: kubectl apply -f deploy/rights/roadstead-worker.yaml"
            );
        }
    }

    /// Acts on the standings. Work that is not done in time goes on after the next look: a request without an answer must delay
    /// neither the looks nor the marks for other managers.
    async fn act<'a>(&'a self, stopping: &mut Stopping<'a>) {
        let now = self.uptime.now();
        let mut expired = Vec::new();
        let mut relieved = Vec::new();
        {
            let mut managers = self.knowledge.managers();
            for (origin, manager) in managers.iter_mut() {
                let (before, standing) = manager.settle(now);
                if before != Some(standing) {
                    tracing::info!(origin, ?before, now = ?standing, "{}", words(standing));
                    if standing == Standing::Held {
                        relieved.push(origin.clone());
                    }
                }
                if standing == Standing::Expired {
                    expired.push(origin.clone());
                }
            }
        }
        stopping.of(self, &expired);
        if !stopping.is_done() {
            let _in_time = tokio::time::timeout(LOOK_MAX, stopping.go_on()).await;
        }
        if !relieved.is_empty() {
            self.wake_jobs(|origin| relieved.iter().any(|one| one == origin));
        }
    }

    /// Makes the jobs of these managers due again: they may have been refused a start.
    fn wake_jobs(&self, of: impl Fn(&str) -> bool) {
        for (kind, jobs) in self.caches.jobs.iter().enumerate() {
            for job in jobs.objects.all() {
                if job
                    .labels()
                    .get(labels::MULTIKUEUE_ORIGIN)
                    .is_some_and(|origin| of(origin))
                {
                    let key = jobs.key_of(&job);
                    self.jobs_due.add(JobRef { kind, key }, Lane::Placed);
                }
            }
        }
    }

    fn next_change(&self, now: Moment) -> Option<Moment> {
        let managers = self.knowledge.managers();
        managers
            .values()
            .filter_map(|manager| manager.watch.changes_at(now))
            .min()
    }

    fn pause(&self) -> Duration {
        let now = self.uptime.now();
        let beats = {
            let managers = self.knowledge.managers();
            let beat = |manager: &Manager| {
                let beat = manager.watch.last_seen().map(|seen| seen.terms.beat());
                if manager.watch.knows_its_age() {
                    beat
                } else {
                    Some(beat.unwrap_or(HURRY).min(HURRY))
                }
            };
            managers.values().filter_map(beat).min()
        };
        let change = self.next_change(now).map(|at| at.since(now));
        let pause = [beats, change].into_iter().flatten().min();
        pause.unwrap_or(SEARCH).max(PAUSE_MIN)
    }
}

/// How long an answer may be waited for, so that a hanging API server does not delay changes that come with time alone.
fn patience(change: Option<Moment>, now: Moment) -> Duration {
    change.map_or(LOOK_MAX, |at| at.since(now).clamp(PAUSE_MIN, LOOK_MAX))
}

/// A lease as its manager wrote it.
fn parse(lease: &Lease) -> Seen {
    let number = lease.annotations().get(annotations::LEASE_RENEWAL);
    Seen {
        uid: lease.metadata.uid.clone().unwrap_or_default(),
        number: number.and_then(|text| text.parse().ok()).unwrap_or_default(),
        terms: Terms::written(written_secs(lease)),
    }
}

fn written_secs(lease: &Lease) -> u64 {
    let secs = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    secs.and_then(|secs| u64::try_from(secs).ok()).unwrap_or_default()
}

/// Logs once that a lease counts as shorter than it says.
fn tell_excess(origin: &str, lease: Option<&Lease>, told: &mut Trouble) {
    let (secs, most) = (lease.map_or(0, written_secs), LENGTH_MAX.as_secs());
    if secs <= most {
        told.ends();
        return;
    }
    let why = format!(
        "spec.leaseDurationSeconds of the Lease of this manager is {secs}, and this worker waits at most {most} s for a manager before it \
         stops jobs of policy Fence; if another client wrote that, a running manager corrects it; if the manager wrote it, set its \
         multiKueue.workerLostTimeout to at most {} s",
        most + most / 2
    );
    if told.is_news(&why) {
        tracing::warn!(origin, "{why}");
    }
}

fn is_fenced_by_policy(workload: &Workload) -> bool {
    roadstead_convert::lost_policy(workload.metadata.annotations.as_ref()) == Some(LostPolicy::Fence)
}

impl Checks for Fence {
    /// *Source*: `spec/safety.md 3.3`: new starts stop at two thirds of the lease.
    fn may_start(&self, workload: &Workload) -> bool {
        let Some(origin) = workload.labels().get(labels::MULTIKUEUE_ORIGIN) else {
            return true;
        };
        if !is_fenced_by_policy(workload) {
            return true;
        }
        let standing = self.knowledge.standing(origin, self.uptime.now());
        matches!(standing, Some(Standing::Free | Standing::Held))
    }
}

#[cfg(test)]
mod tests;
