//! Worker clusters: their identity, how to reach them, what they hold.
//!
//! Invariant: each worker has a client, caches, a queue and a supervisor of its own. Nothing that happens to one of them
//! waits for another (`spec/safety.md I12`).

mod active;
pub(crate) mod fleet;
mod heartbeat;
mod held;
mod identity;
mod kinds;
pub(crate) mod lease;
mod leaving;
pub(crate) mod needs;
mod refused;
pub(crate) mod registry;
mod supervisor;
pub(crate) mod told;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
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
use roadstead_core::cluster::Reason;
use roadstead_core::cluster::identity::{Identity, Verdict};
use roadstead_core::cluster::link::{Effect, Event, Link};
use roadstead_core::kind::KindState;
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::{KindCache, Templates};
use roadstead_jobs::JobKind;
use roadstead_kinds::{Ability, rows};
use roadstead_kubeconfigs::check::address::judge_resolved;
use roadstead_kubeconfigs::check::{Refusal, Rules};
use roadstead_kubeconfigs::place::Place;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::connect::{self, Endpoint};
use roadstead_kubeio::permit::Permit;
use roadstead_kubeio::queue::Queue;
use tokio::sync::Notify;

use self::held::Held;
use self::needs::Unreadable;
use crate::capacity::Queues;
use crate::metrics::Metrics;

/// Makes the client of a worker, or returns why there is none; handed in, so that a simulation can use its own.
pub type Dial = Arc<dyn Fn(Endpoint) -> BoxFuture<'static, Result<Client, Refusal>> + Send + Sync>;

/// Connects over the network: resolves and checks the name of the server, then builds a client. No request is sent. The client
/// changes objects only under `permit`.
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
/// Invariant: all caches of a `Remote` are of one cluster. If its name leads to another cluster, that one gets a new `Remote`.
pub(crate) struct Remote {
    pub(crate) name: ClusterName,
    pub(crate) workloads: Arc<Cache<Workload>>,
    pub(crate) jobs: Vec<KindCache>,
    /// The results of steps of Argo Workflows on the worker; `None` if no pods are sent there.
    pub(crate) results: Option<Arc<Cache<DynamicObject>>>,
    pub(crate) held: Arc<Held>,
    /// The queues of the worker, as far as our account may read them.
    pub(crate) queues: Queues,
    /// Workloads for which something may have to be written to the worker.
    pub(crate) due: Arc<Queue<Key>>,
    /// Whether our account may patch jobs of a kind on the worker, by API group and plural. A kind without an entry has no answer
    /// yet.
    changeable: Mutex<BTreeMap<(String, String), bool>>,
    /// The kinds that jobs need and that the account may not read there.
    pub(crate) unreadable: Unreadable,
    usable_again: Notify,
    reach: Mutex<Reach>,
}

/// A copy whose creation is late, until it is answered or given up.
pub(crate) struct Late<'a>(&'a Remote);

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.step(Event::CopyLateNoMore);
    }
}

struct Reach {
    link: Link,
    /// The identity of the cluster that the caches are of; `None` before it was recognised.
    home: Option<Identity>,
    /// The client, and to which API server it goes.
    client: Option<(Client, Place)>,
}

impl Remote {
    /// A cluster that is not connected yet.
    pub(crate) fn new(
        name: ClusterName,
        (kinds, templates): (&[&'static dyn JobKind], &Arc<Templates>),
        link: Link,
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
            due: Arc::new(Queue::default()),
            changeable: Mutex::default(),
            unreadable: Unreadable::default(),
            usable_again: Notify::new(),
            reach: Mutex::new(Reach {
                link,
                home: None,
                client: None,
            }),
        }
    }

    /// The same with a client, for tests.
    #[cfg(test)]
    pub(crate) fn dialled(self, client: Client, endpoint: &Endpoint) -> Self {
        self.leads_to(client, endpoint);
        self
    }

    /// From this call on, counts the copies that the worker shows to have stopped by itself.
    pub(crate) fn tell_fences(&self, metrics: &Metrics) {
        let (name, metrics) = (self.name.clone(), metrics.clone());
        let is_fenced = |copy: &&Arc<Workload>| copy.annotations().contains_key(annotations::FENCED);
        self.workloads.listen(move |change| {
            if change.new.as_ref().is_some_and(is_fenced) && !change.old.as_ref().is_some_and(is_fenced) {
                metrics.fenced(&name);
            }
        });
    }

    /// Passes an event to the link, and carries out those of its effects that concern only this worker.
    pub(crate) fn step(&self, event: Event<'_>) -> Effect {
        let effect = self.with(|reach| reach.link.step(event));
        match effect {
            Effect::Nothing | Effect::Slow | Effect::Unusable => {}
            Effect::UsableAgain => self.usable_again.notify_one(),
            Effect::ListAgain { before, now } => {
                tracing::warn!(cluster = %self.name, before, renewal = now, "the lease of this manager on the worker has gone back, as after a restore of its storage from a backup; listing everything there again");
                self.list_again();
            }
        }
        effect
    }

    pub(crate) fn link<T>(&self, ask: impl FnOnce(&Link) -> T) -> T {
        self.with(|reach| ask(&reach.link))
    }

    /// Since when the worker cannot be reached; `None` while it is connected.
    pub(crate) fn lost_since(&self) -> Option<Timestamp> {
        self.link(Link::lost_since)
    }

    pub(crate) async fn usable_again(&self) {
        self.usable_again.notified().await;
    }

    /// Records that the creation of a copy is late, until the returned guard is dropped. The effect is `Slow` if no other copy is
    /// late.
    pub(crate) fn late(&self) -> (Late<'_>, Effect) {
        let effect = self.step(Event::CopyLate);
        (Late(self), effect)
    }

    pub(crate) fn client(&self) -> Option<Client> {
        self.with(|reach| {
            let (client, _) = reach.client.as_ref()?;
            reach.link.is_connected().then(|| client.clone())
        })
    }

    fn leads_to(&self, client: Client, endpoint: &Endpoint) {
        self.with(|reach| reach.client = Some((client, Place::of(endpoint))));
    }

    /// The client of the last connection and its API server, also while the worker is lost, to renew credentials. `None` after
    /// its kubeconfig was refused.
    pub(crate) fn last_client(&self) -> Option<(Client, Place)> {
        self.with(|reach| reach.client.clone())
    }

    /// Whether the worker was ever connected and each kind of jobs was read, so that the caches hold everything that was there.
    pub(crate) fn was_read(&self) -> bool {
        self.link(Link::was_connected) && self.jobs.iter().all(|jobs| jobs.objects.was_settled())
    }

    pub(crate) fn knows_all_kinds(&self) -> bool {
        self.jobs.iter().all(|jobs| jobs.state() != KindState::Unknown)
    }

    /// Whether the caches are of the cluster that was `found`; the first one that is found sets it.
    fn is_at(&self, found: &Identity) -> bool {
        self.with(|reach| {
            let home = reach.home.get_or_insert_with(|| found.clone());
            let is_same = home.judge(found) == Verdict::Same;
            if is_same {
                *home = home.updated(found);
            }
            is_same
        })
    }

    /// Whether our account may patch jobs of this kind on the worker; false while that is not known.
    pub(crate) fn may_change(&self, kind: &ApiResource) -> bool {
        let changeable = self.changeable.lock().unwrap_or_else(PoisonError::into_inner);
        changeable.get(&(kind.group.clone(), kind.plural.clone())) == Some(&true)
    }

    /// Sets whether our account may patch jobs of this kind; returns whether that is new.
    pub(crate) fn set_changeable(&self, kind: &ApiResource, may: bool) -> bool {
        let mut changeable = self.changeable.lock().unwrap_or_else(PoisonError::into_inner);
        changeable.insert((kind.group.clone(), kind.plural.clone()), may) != Some(may)
    }

    fn list_again(&self) {
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

    /// Whether the worker holds an object of this Workload, as far as is known.
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

    fn with<T>(&self, f: impl FnOnce(&mut Reach) -> T) -> T {
        f(&mut self.reach.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The Secrets of our own namespace, where kubeconfigs are.
pub(crate) type Secrets = Arc<Cache<Secret>>;
