//! Worker clusters: their identity, how to reach them, what they hold.
//!
//! Invariant: each worker has a client, caches, a queue and a supervisor of its own. Nothing that happens to one of them
//! waits for another (`spec/safety.md I12`).

mod active;
mod doubt;
mod held;
mod identity;
mod kinds;
mod leaving;
mod pace;
mod refused;
pub(crate) mod registry;
pub(crate) mod results;
mod sign;
pub(crate) mod supervisor;
pub(crate) mod told;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt as _};
use roadstead_api::constants::annotations;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::cluster::identity::{Identity, Verdict};
use roadstead_core::cluster::{Connection, Reason};
use roadstead_core::kind::KindState;
use roadstead_core::lease::{Grant, Guard};
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::{KindCache, Templates};
use roadstead_jobs::JobKind;
use roadstead_kinds::{Ability, rows};
use roadstead_kubeconfigs::check::address::judge_resolved;
use roadstead_kubeconfigs::check::{Refusal, Rules};
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::connect::{self, Endpoint};
use roadstead_kubeio::permit::Permit;
use roadstead_kubeio::queue::Queue;
use sha1::{Digest as _, Sha1};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::doubt::Doubt;
pub(crate) use self::doubt::{Miss, Proof};
use self::held::Held;
use self::pace::Pace;
use crate::capacity::Queues;
use crate::dispatch::needs::Unreadable;
use crate::metrics::Metrics;

/// Makes the client of a worker, or returns why there is none; handed in, so that a simulation can use its own.
pub type Dial = Arc<dyn Fn(Endpoint) -> BoxFuture<'static, Result<Client, Refusal>> + Send + Sync>;

/// The connection over the network: the name is resolved and checked, then a client is built. No request is sent. Changes there are
/// under `permit`.
pub(crate) fn over_network(rules: Rules, user_agent: String, permit: Permit) -> Dial {
    Arc::new(move |endpoint| {
        let (user_agent, permit) = (user_agent.clone(), permit.clone());
        async move {
            judge_resolved(&endpoint, &rules).await?;
            connect::worker_under(&endpoint, &user_agent, &permit).map_err(|error| Refusal {
                reason: Reason::InsecureKubeConfig,
                rule: "S3",
                message: error.to_string(),
                may_pass: false,
            })
        }
        .boxed()
    })
}

/// One worker cluster.
///
/// Invariant: everything here is of one cluster. A name that leads to another one gets a new `Remote`.
pub(crate) struct Remote {
    /// Its name.
    pub(crate) name: ClusterName,
    /// Our Workloads there, by origin.
    pub(crate) workloads: Arc<Cache<Workload>>,
    /// Our jobs there, by origin.
    pub(crate) jobs: Vec<KindCache>,
    /// The results of steps of Argo Workflows there; `None` where pods are not sent there.
    pub(crate) results: Option<Arc<Cache<DynamicObject>>>,
    /// The objects of each Workload there.
    pub(crate) held: Arc<Held>,
    /// The queues there, as far as they may be read.
    pub(crate) queues: Queues,
    /// Workloads for which something is to be written there.
    pub(crate) due: Arc<Queue<Key>>,
    /// How quickly it takes copies.
    pub(crate) pace: Pace,
    /// Our lease there, as far as we know.
    pub(crate) grant: Mutex<Grant>,
    /// Whether our account may change jobs of a kind there, by group and plural, as far as that was answered.
    changeable: Mutex<BTreeMap<(String, String), bool>>,
    /// The kinds that jobs need and that the account may not read there.
    pub(crate) unreadable: Unreadable,
    doubt: Mutex<Doubt>,
    relief: Notify,
    /// When our lease was last renewed there.
    renewed: Mutex<Option<Instant>>,
    /// The number of the last renewal of our lease that is known to be stored there; 0 before the first.
    renewal: AtomicU64,
    link: Mutex<Link>,
}

/// An API server, and how it is known to be that one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    server: String,
    authority: String,
}

impl Place {
    /// Where this endpoint is.
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        Self {
            server: endpoint.server.clone(),
            authority: endpoint.authority.clone(),
        }
    }

    /// A short text that differs for each place.
    fn print(&self) -> String {
        let both = [self.server.as_str(), self.authority.as_str()].join("\n");
        format!("{:x}", Sha1::digest(both))
    }
}

struct Link {
    connection: Connection,
    /// The cluster of everything here; `None` before it was recognised.
    home: Option<Identity>,
    /// Its caches have been filled once.
    was_filled: bool,
    client: Option<Client>,
    /// To which API server the client goes.
    place: Place,
    /// Its Secret is gone; it is kept only for the runs there.
    orphaned: bool,
    /// The content of condition `Active`; `None` before the first attempt.
    shown: Option<Connection>,
}

impl Remote {
    /// A cluster that is not connected yet.
    pub(crate) fn new(
        name: ClusterName,
        (kinds, templates): (&[&'static dyn JobKind], &Arc<Templates>),
        now: Timestamp,
        grant: Grant,
    ) -> Self {
        let sent = |kind: &&'static dyn JobKind| kind.kind().can(Ability::Dispatched);
        let kinds = kinds.iter().copied().filter(sent);
        let jobs: Vec<KindCache> = kinds.map(KindCache::of_copies).collect();
        let held = Arc::new(Held::default());
        for (kind, jobs) in jobs.iter().enumerate() {
            let held = held.clone();
            jobs.objects.listen(move |change| held.job_changed(kind, change));
        }
        let has_pods = jobs.iter().any(|jobs| jobs.kind.kind() == &rows::POD);
        let (workloads, copies) = (templates.workloads(), held.clone());
        workloads.listen(move |change| copies.copy_changed(change));
        Self {
            name,
            workloads,
            jobs,
            results: has_pods.then(Cache::new),
            held,
            queues: Queues::new(),
            due: Arc::new(Queue::new()),
            pace: Pace::default(),
            grant: Mutex::new(grant),
            changeable: Mutex::default(),
            unreadable: Unreadable::default(),
            doubt: Mutex::default(),
            relief: Notify::new(),
            renewed: Mutex::new(None),
            renewal: AtomicU64::new(0),
            link: Mutex::new(Link {
                connection: Connection::new(now),
                home: None,
                was_filled: false,
                client: None,
                place: Place::default(),
                orphaned: false,
                shown: None,
            }),
        }
    }

    /// The same with a client, for tests.
    #[cfg(test)]
    pub(crate) fn dialled(self, client: Client, endpoint: &Endpoint) -> Self {
        self.with(|link| {
            link.client = Some(client);
            link.place = Place::of(endpoint);
        });
        self
    }

    /// Counts from now on the copies that it shows to have stopped by itself.
    pub(crate) fn tell_fences(&self, metrics: &Metrics) {
        let (name, metrics) = (self.name.clone(), metrics.clone());
        let is_fenced = |copy: &&Arc<Workload>| copy.annotations().contains_key(annotations::FENCED);
        self.workloads.listen(move |change| {
            if change.new.as_ref().is_some_and(is_fenced) && !change.old.as_ref().is_some_and(is_fenced) {
                metrics.fenced(&name);
            }
        });
    }

    /// Since when it cannot be reached; `None` while it is connected.
    pub(crate) fn lost_since(&self) -> Option<Timestamp> {
        self.link
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .connection
            .lost_since()
    }

    /// The earliest time at which condition `Active` can show the present loss to have begun; `None` while it is connected. A process that
    /// was never connected to it is younger than the loss.
    pub(crate) fn loss_shows_from(&self) -> Option<Timestamp> {
        self.with(|link| {
            let since = link.connection.lost_since()?;
            // Times of conditions have whole seconds.
            let whole = Timestamp::from_second(since.as_second()).unwrap_or(since);
            Some(if link.was_filled { whole } else { Timestamp::MIN })
        })
    }

    /// The client, while it is connected.
    pub(crate) fn client(&self) -> Option<Client> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.client.clone().filter(|_| link.connection.is_connected())
    }

    /// The client for renewing credentials, and where it goes: the last that was built, connected or not.
    pub(crate) fn last_client(&self) -> Option<(Client, Place)> {
        self.with(|link| Some((link.client.clone()?, link.place.clone())))
    }

    /// Whether it was ever connected and each kind of jobs was read there, so that the caches hold all that there was.
    pub(crate) fn was_read(&self) -> bool {
        self.with(|link| link.was_filled) && self.jobs.iter().all(|jobs| jobs.objects.was_settled())
    }

    /// Whether the jobs of each kind there are known now.
    pub(crate) fn knows_all_kinds(&self) -> bool {
        self.jobs.iter().all(|jobs| jobs.state() != KindState::Unknown)
    }

    /// Sets the cluster to which its Secret leads now; returns whether everything here is of that one.
    fn is_at(&self, found: &Identity) -> bool {
        self.with(|link| {
            let home = link.home.get_or_insert_with(|| found.clone());
            let is_same = home.judge(found) == Verdict::Same;
            if is_same {
                *home = home.updated(found);
            }
            is_same
        })
    }

    /// Its caches are filled.
    fn is_filled(&self) {
        self.with(|link| link.was_filled = true);
    }

    /// Whether its Secret is gone, so that it is kept only for the runs there.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.with(|link| link.orphaned)
    }

    fn set_orphaned(&self, orphaned: bool) {
        self.with(|link| link.orphaned = orphaned);
    }

    /// Changes what is known of our lease there.
    pub(crate) fn granting(&self, note: impl FnOnce(&mut Grant)) {
        note(&mut self.grant.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether a lease of ours was seen there.
    pub(crate) fn keeps_lease(&self) -> bool {
        self.grant
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .was_answered()
    }

    /// Whether it is seen to look at our lease.
    pub(crate) fn guard(&self) -> Guard {
        self.grant.lock().unwrap_or_else(PoisonError::into_inner).guard()
    }

    /// Whether our account may change jobs of this kind there.
    pub(crate) fn may_change(&self, kind: &ApiResource) -> bool {
        let changeable = self.changeable.lock().unwrap_or_else(PoisonError::into_inner);
        changeable.get(&(kind.group.clone(), kind.plural.clone())) == Some(&true)
    }

    /// Sets whether it may; returns whether that is new.
    pub(crate) fn set_changeable(&self, kind: &ApiResource, may: bool) -> bool {
        let mut changeable = self.changeable.lock().unwrap_or_else(PoisonError::into_inner);
        changeable.insert((kind.group.clone(), kind.plural.clone()), may) != Some(may)
    }

    /// Whether a Workload with room elsewhere should rather go there: this worker is late with the receipt of a copy, or failed one
    /// request.
    pub(crate) fn is_late(&self) -> bool {
        self.pace.is_late() || self.doubt().has_missed()
    }

    /// The text of its last miss, if it is in doubt.
    pub(crate) fn doubtful(&self) -> Option<String> {
        self.doubt().words().map(str::to_owned)
    }

    /// Takes a proof that it works.
    pub(crate) fn proves_well(&self, proof: Proof) {
        let renews = self.last_renewed().is_some();
        if self.doubt().prove(proof, renews) {
            self.relief.notify_one();
        }
    }

    /// Ends when a doubt about it has ended.
    pub(crate) async fn relieved(&self) {
        self.relief.notified().await;
    }

    /// It failed a request, or did not answer it in time; returns whether it is in doubt now.
    pub(crate) fn missed(&self, miss: Miss, words: &str) -> bool {
        self.doubt().miss(miss, words)
    }

    fn doubt(&self) -> MutexGuard<'_, Doubt> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Our lease was renewed there just now.
    pub(crate) fn renewed(&self) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.proves_well(Proof::Wrote);
    }

    /// When our lease was last renewed there: then it lived. `None` where we keep none.
    pub(crate) fn last_renewed(&self) -> Option<Instant> {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// We may keep no lease there (any more).
    pub(crate) fn renews_no_more(&self) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Our lease was seen there with this number of its last renewal, 0 when it is missing. A number that has gone back shows that
    /// the worker's storage was restored from a backup: then nothing in its caches can be believed.
    ///
    /// Why beside the versions of objects: those may have caught up before the worker can be reached again.
    pub(crate) fn lease_seen(&self, renewal: u64) {
        let before = self.renewal.swap(renewal, Ordering::Relaxed);
        if renewal >= before {
            return;
        }
        tracing::warn!(cluster = %self.name, before, renewal, "the lease of this manager on the worker has gone back, as after a restore of its storage from a backup; listing everything there again");
        self.workloads.distrust();
        for jobs in &self.jobs {
            jobs.objects.distrust();
        }
        if let Some(results) = &self.results {
            results.distrust();
        }
        self.queues.clusters.distrust();
        self.queues.locals.distrust();
    }

    /// Whether it holds an object of this Workload, as far as is known.
    pub(crate) fn holds(&self, workload: &Key) -> bool {
        self.held.any(workload)
    }

    /// How long each watch has been silent, by kind.
    pub(crate) fn silences(&self) -> Vec<(&str, Option<Duration>)> {
        let jobs = { self.jobs.iter() }.map(|jobs| (&*jobs.resource.kind, jobs.objects.silent_for()));
        let queues = [
            ("Workload", self.workloads.silent_for()),
            ("ClusterQueue", self.queues.clusters.silent_for()),
            ("LocalQueue", self.queues.locals.silent_for()),
        ];
        jobs.chain(queues).collect()
    }

    fn with<T>(&self, f: impl FnOnce(&mut Link) -> T) -> T {
        f(&mut self.link.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The Secrets of our own namespace, where kubeconfigs are.
pub(crate) type Secrets = Arc<Cache<Secret>>;
