//! One supervisor per MultiKueueCluster: loads its credentials, connects, notices loss, connects again.
//!
//! Invariant: the supervisor never touches Workloads. It only reports that its worker was connected or lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::bug;
use roadstead_core::cluster::Reason;
use roadstead_core::cluster::link::{Event, Link};
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::until;
use roadstead_kubeconfigs::check::Refusal;
use roadstead_kubeio::cache::{Change, Health};
use roadstead_kubeio::connect::Endpoint;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::latest::Follower;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::fleet::{Fleet, LOOK, of_kind};
use super::identity::Recognised;
use super::kinds;
use super::lease::{Renewed, report, rights};
use super::leaving;
use super::refused::Refused;
use super::told;
use super::{Place, Remote, heartbeat};
use crate::steps::{WORKFLOW_LABEL, result_kind};

/// At the start: how often the manager checks whether MultiKueueClusters and Secrets are listed, and how long it waits for that.
const LISTING_PAUSE: Duration = Duration::from_millis(20);
const LISTING_MAX: Duration = Duration::from_secs(5);
/// How often a worker that is refused is looked at again, for example because another manager uses our origin on it.
const TAKEN_PAUSE: Duration = Duration::from_secs(10);

/// The kind without which a cluster is no worker.
const WORKLOAD: &str = "Workload";
/// The name of this action in the memory of reported failures.
const ORIGIN: &str = "claiming the lease of this origin";
const IDENTITY: &str = "recognising the cluster";
struct Supervised {
    stop: CancellationToken,
    nudge: Arc<Notify>,
}

impl Fleet {
    /// Keeps one supervisor per MultiKueueCluster until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let touched = Arc::new(Dirty::default());
        let set = touched.clone();
        self.clusters.listen(move |change| {
            if has_new_meaning(change) {
                set.mark(Some(change.key.name.to_string()));
            }
        });
        let set = touched.clone();
        // Why all clusters on a change of a Secret: a cluster names its Secret, not the other way round, and there are few.
        self.secrets.listen(move |_| set.mark(None));
        touched.mark(None);
        // Why wait: after a restart a Secret that is not listed yet would make its cluster inactive for a moment, and with it
        // every queue that dispatches to it. Why not for ever: if the account may not list Secrets, the administrator must be
        // told that they are not found.
        let listed = async {
            while !(self.clusters.is_live() && self.secrets.is_live()) {
                tokio::time::sleep(LISTING_PAUSE).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            listed = tokio::time::timeout(LISTING_MAX, listed) => if listed.is_err() {
                let (clusters, secrets) = (self.clusters.health().get(), self.secrets.health().get());
                for text in told::unlisted(&clusters, &secrets, &self.namespace, LISTING_MAX) {
                    tracing::warn!("{text}");
                }
            }
        }
        let mut supervised: BTreeMap<String, Supervised> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            let names = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                names = touched.take() => names,
                Some(ended) = tasks.join_next() => {
                    let begins_anew: Option<ClusterName> = match ended.map_err(JoinError::try_into_panic) {
                        // Why a panic is passed on: otherwise nothing would renew the lease on that cluster or write its
                        // condition.
                        Err(Ok(panic)) => std::panic::resume_unwind(panic),
                        Ok(name) => name,
                        Err(Err(_cancelled)) => None,
                    };
                    if let Some(name) = begins_anew
                        && let Some(one) = supervised.get_mut(name.as_str())
                    {
                        one.stop.cancel();
                        *one = self.begin(name.clone(), &stop, &mut tasks);
                        self.changed.mark(name);
                    }
                    continue;
                }
                () = tokio::time::sleep(leaving::LOOK), if self.clusters.all().iter().any(|c| leaving::leaves(c)) => {
                    self.let_go().await;
                    continue;
                }
            };
            let everybody = names.contains(&None);
            let present = self.clusters.all();
            let wanted: Vec<String> = present
                .iter()
                .filter(|cluster| cluster.metadata.deletion_timestamp.is_none() || leaving::leaves(cluster))
                .filter_map(|cluster| cluster.metadata.name.clone())
                .collect();
            supervised.retain(|name, one| {
                let stays = wanted.contains(name);
                if !stays {
                    tracing::info!(cluster = name, "no longer a worker of this manager");
                    one.stop.cancel();
                    let name = ClusterName::from(name.as_str());
                    self.registry.remove(&name);
                    self.metrics.left(&name);
                    self.told.left(name.as_str());
                    self.changed.mark(name);
                }
                stays
            });
            for name in wanted {
                match supervised.get(&name) {
                    Some(one) if everybody || names.contains(&Some(name.clone())) => one.nudge.notify_one(),
                    Some(_) => {}
                    None => {
                        let one = self.begin(ClusterName::from(name.as_str()), &stop, &mut tasks);
                        supervised.insert(name, one);
                    }
                }
            }
        }
        tasks.shutdown().await;
    }

    /// Begins to supervise a cluster, with empty caches.
    fn begin(
        self: &Arc<Self>,
        name: ClusterName,
        stop: &CancellationToken,
        tasks: &mut JoinSet<Option<ClusterName>>,
    ) -> Supervised {
        let one = Supervised {
            stop: stop.child_token(),
            nudge: Arc::new(Notify::new()),
        };
        let known = (self.kinds.as_slice(), &self.templates);
        let grant = self.lessor.grant(self.clusters.named(name.as_str()).as_deref());
        let remote = Arc::new(Remote::new(name, known, Link::new((self.clock)(), grant)));
        (self.greet)(&remote, one.stop.clone());
        self.registry.insert(remote.clone());
        let (nudge, stop) = (one.nudge.clone(), one.stop.clone());
        tasks.spawn(supervise(self.clone(), remote, nudge, stop));
        one
    }

    fn load(&self, name: &str) -> Result<Endpoint, Refusal> {
        let cluster = self
            .clusters
            .named(name)
            .ok_or_else(|| Refusal::bad("the MultiKueueCluster is gone"))?;
        roadstead_kubeconfigs::secret::load(
            &cluster.spec.cluster_source,
            |secret| self.secrets.get(&Key::new(self.namespace.as_str(), secret)),
            &self.rules,
        )
    }

    /// Reads the kubeconfig of a cluster and builds its client. Why at each attempt: the name of the server may resolve to
    /// another address (`spec/safety.md S4`).
    async fn load_and_dial(&self, name: &str) -> Result<(Endpoint, Client), Refusal> {
        let endpoint = self.load(name)?;
        let client = (self.dial)(endpoint.clone()).await?;
        Ok((endpoint, client))
    }

    /// Ends when the credentials of a cluster are gone, or are not those of `endpoint` any more.
    async fn credentials_change(&self, name: &str, endpoint: &Endpoint, nudge: &Notify) {
        let print = fingerprint(endpoint);
        loop {
            nudge.notified().await;
            if self.load(name).is_ok_and(|now| fingerprint(&now) == print) {
                continue;
            }
            return;
        }
    }
}

/// Whether a change of a MultiKueueCluster calls for another attempt to connect. Why not a new status: each failed attempt writes
/// one, and would be tried again at once (`spec/multikueue.md` 11.27).
fn has_new_meaning(change: &Change<'_, MultiKueueCluster>) -> bool {
    let version = |cluster: &Arc<MultiKueueCluster>| {
        let meta = &cluster.metadata;
        (meta.uid.clone(), meta.generation, meta.deletion_timestamp.clone())
    };
    change.old.map(version) != change.new.map(version)
}

/// Supervises one cluster until `stop`. Returns its name if that leads to another cluster, which needs a new `Remote`.
async fn supervise(
    fleet: Arc<Fleet>,
    remote: Arc<Remote>,
    nudge: Arc<Notify>,
    stop: CancellationToken,
) -> Option<ClusterName> {
    let name = remote.name.to_string();
    let work = async {
        let mut current: Option<String> = None;
        let mut refused = Refused::default();
        loop {
            let (endpoint, client) = match fleet.load_and_dial(&name).await {
                Ok(both) => both,
                Err(refusal) => {
                    let now = (fleet.clock)();
                    let (reason, why) = (refusal.reason, &not_loaded(&refusal.message));
                    remote.step(Event::Refused { reason, why, now });
                    remote.with(|reach| reach.client = None);
                    current = None;
                    refused.tell(&remote.name, &refusal);
                    fleet.settle(&remote).await;
                    refused.wait(&refusal, &nudge).await;
                    continue;
                }
            };
            refused.ends();
            let print = fingerprint(&endpoint);
            if current.as_ref() != Some(&print) {
                if current.is_some() {
                    remote.step(Event::CredentialsChanged((fleet.clock)()));
                }
                current = Some(print);
            }
            let due = remote.link(Link::next_attempt);
            if let Some(at) = due.filter(|at| *at > (fleet.clock)()) {
                wait_or_seen(&fleet, &client, at, &nudge).await;
                // Why: a worker that answers again is connected at once, not at the end of the back-off.
                remote.step(Event::WaitOver);
                continue;
            }
            let (timeout, place) = (remote.link(Link::open_timeout), Place::of(&endpoint));
            let recognised = tokio::select! {
                biased;
                recognised = Box::pin(fleet.recognise(&remote, &client, &place, timeout)) => recognised,
                // Why credentials are watched meanwhile: recognising may take long, and the new credentials may lead to another
                // cluster.
                () = fleet.credentials_change(&name, &endpoint, &nudge) => {
                    // Why the event here too: this attempt has ended, even if the next read finds the old credentials again.
                    remote.step(Event::CredentialsChanged((fleet.clock)()));
                    continue;
                }
            };
            match recognised {
                Recognised::Enter => {
                    fleet.told.succeeded(&name, IDENTITY);
                    Box::pin(serve(&fleet, &remote, (&endpoint, client), timeout, &nudge)).await;
                }
                Recognised::BeginAnew => return remote.name.clone(),
                Recognised::Failed(why) => fleet.fails(&remote, why).await,
                Recognised::Refused(reason, sentence) => {
                    refuse(&fleet, &remote, (IDENTITY, reason, sentence), &nudge).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        begins_anew = work => Some(begins_anew),
        () = fleet.keep_saying(&remote) => None,
    }
}

/// Watches the queues of a worker. Why their health does not end the connection: a worker whose queues our account may not read
/// is a worker all the same.
fn watch_queues(
    fleet: &Fleet,
    remote: &Arc<Remote>,
    client: &Client,
    (watching, tasks): (&CancellationToken, &mut JoinSet<()>),
) {
    let here = tracing::warn_span!("worker", cluster = %remote.name);
    let queues = Api::all(client.clone());
    let run = { remote.queues.clusters.clone() }.run(queues, None, watching.child_token());
    tasks.spawn(run.instrument(here.clone()));
    let queues = Api::all(client.clone());
    let run = { remote.queues.locals.clone() }.run(queues, None, watching.child_token());
    tasks.spawn(run.instrument(here.clone()));
    let known = remote.clone();
    tasks.spawn(async move { known.queues.tell().await }.instrument(here.clone()));
    let (known, changed) = (remote.clone(), fleet.changed.clone());
    tasks.spawn(async move {
        let news = || changed.mark(known.name.clone());
        known.queues.note_listed(news).await;
    });
}

/// Follows the results of steps of Argo Workflows on the worker, if this manager brings them home.
fn watch_results(
    fleet: &Arc<Fleet>,
    remote: &Arc<Remote>,
    client: &Client,
    (watching, tasks): (&CancellationToken, &mut JoinSet<()>),
) {
    let Some(results) = &remote.results else { return };
    let (kind, labels) = (result_kind(), Some(WORKFLOW_LABEL.to_owned()));
    let api = Api::all_with(client.clone(), &kind);
    let run = { results.clone() }.run_where_served(api, labels, kind, watching.child_token());
    let here = tracing::warn_span!("worker", cluster = %remote.name);
    tasks.spawn(run.instrument(here));
    let health = results.health();
    tasks.spawn(kinds::tell_results(
        fleet.clone(),
        remote.name.as_str().to_owned(),
        health,
    ));
}

/// Claims the lease, opens all watches, and stays until the connection is lost or the credentials may have changed.
async fn serve(
    fleet: &Arc<Fleet>,
    remote: &Arc<Remote>,
    (endpoint, client): (&Endpoint, Client),
    timeout: Duration,
    nudge: &Notify,
) {
    let name = remote.name.as_str();
    // Why the lease first: while another manager uses our origin on this worker, its objects must not even be read.
    let mut held = None;
    let claimed = fleet.lessor.renew(&client, remote, &mut held).await;
    if let Renewed::Taken(sentence) = claimed {
        return refuse(fleet, remote, (ORIGIN, Reason::OriginTaken, sentence), nudge).await;
    }
    if matches!(claimed, Renewed::Kept) {
        fleet.told.succeeded(name, ORIGIN);
    }
    let unanswered = rights::learn(&client, remote).await;
    let watching = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let ours = Some(fleet.ours.clone());
    // Why: a cache does not know its cluster, and its warnings must name it.
    let here = tracing::warn_span!("worker", cluster = %remote.name);
    let run = remote
        .workloads
        .clone()
        .run(Api::all(client.clone()), ours.clone(), watching.child_token());
    tasks.spawn(run.instrument(here.clone()));
    for jobs in &remote.jobs {
        let api = Api::all_with(client.clone(), &jobs.resource);
        let (kind, stop) = (jobs.resource.clone(), watching.child_token());
        let run = { jobs.objects.clone() }.run_where_served(api, ours.clone(), kind, stop);
        tasks.spawn(run.instrument(here.clone()));
    }
    watch_results(fleet, remote, &client, (&watching, &mut tasks));
    watch_queues(fleet, remote, &client, (&watching, &mut tasks));
    let (known, asks) = (remote.clone(), client.clone());
    tasks.spawn(async move { known.queues.recognise(&asks).await });
    if unanswered.exist() {
        tasks.spawn(unanswered.learn(client.clone(), remote.clone()));
    }
    // Why only Workloads decide: a kind of jobs that is not served, or cannot be read, is no reason to lose the others.
    let mut health = remote.workloads.health();
    let opened = if bug!(fleet.policy, ConnectedTooEarly) {
        Ok(())
    } else {
        let opened = live(&mut health, timeout).await;
        if opened.is_ok() {
            kinds::answered(remote).await;
        }
        opened
    };
    let lost = match (opened, claimed) {
        (Err(failure), _) => Some(failure.into()),
        (Ok(()), Renewed::Unclear(why)) => {
            Some(format!("the lease of this manager cannot be renewed: {why}"))
        }
        (Ok(()), _) => {
            // Why the finalizer before the worker counts as connected: from then on jobs are sent there.
            fleet.hold(name).await;
            if bug!(fleet.policy, EarlyEventLost) {
                fleet.settle(remote).await;
            }
            remote.leads_to(client.clone(), endpoint);
            remote.step(Event::Connected((fleet.clock)()));
            fleet.told.connected(name);
            for kind in 0..remote.jobs.len() {
                tasks.spawn(kinds::follow(fleet.clone(), remote.clone(), kind).instrument(here.clone()));
            }
            if !bug!(fleet.policy, EarlyEventLost) {
                fleet.note(remote);
            }
            let why = tokio::select! {
                biased;
                why = failure(&mut health) => Some(why),
                why = heartbeat::lost(fleet, remote, &client) => Some(why),
                why = fleet.lessor.keep(&client, remote, held) => Some(why),
                // Why in parallel: while the manager's own API server hangs, the lease on the worker must still be renewed.
                () = fleet.tell(remote) => None,
                () = credentials_differ(fleet, remote, endpoint, nudge) => None,
            };
            remote.step(Event::WatchEnded((fleet.clock)()));
            fleet.metrics.connected(&remote.name, false);
            if let Some(why) = &why {
                tracing::warn!(cluster = name, "connection lost: {why}");
            }
            fleet.changed.mark(remote.name.clone());
            // Why `None`: the end of a connection is no failed attempt to connect. The next attempt follows at once.
            None
        }
    };
    watching.cancel();
    tasks.shutdown().await;
    if let Some(why) = lost {
        fleet.fails(remote, why).await;
    }
}

impl Fleet {
    /// Shows the state of the connection to all other parts of this process.
    fn note(&self, remote: &Remote) {
        let connected = remote.link(Link::is_connected);
        self.changed.mark(remote.name.clone());
        self.metrics.connected(&remote.name, connected);
    }

    /// Writes condition `Active`, then keeps condition `WorkerFence` and the finalizer up to date. Never ends by itself.
    async fn tell(&self, remote: &Remote) {
        let changed = || self.changed.mark(remote.name.clone());
        let tell = async {
            self.say(remote).await;
            let told = (remote, &*self.told);
            report::tell(&self.lessor, &self.clusters, &self.client, told, changed).await;
        };
        tokio::join!(tell, self.keep_holding(remote.name.as_str()));
    }

    async fn fails(&self, remote: &Remote, why: String) {
        let now = (self.clock)();
        remote.step(Event::NotConnected { why: &why, now });
        let next = remote.link(Link::next_attempt).unwrap_or(now);
        self.told.not_connected(remote.name.as_str(), &why, next);
        self.settle(remote).await;
    }

    async fn settle(&self, remote: &Remote) {
        self.note(remote);
        self.say(remote).await;
    }
}

/// Reports why a worker is not used, and waits until something changes, at most `TAKEN_PAUSE`.
async fn refuse(
    fleet: &Arc<Fleet>,
    remote: &Arc<Remote>,
    (what, reason, sentence): (&'static str, Reason, String),
    nudge: &Notify,
) {
    let words = format!("not used, {}: {sentence}", reason.as_str());
    fleet.told.failed(remote.name.as_str(), what, &words);
    let (why, now) = (&sentence, (fleet.clock)());
    remote.step(Event::Refused { reason, why, now });
    fleet.settle(remote).await;
    tokio::select! {
        biased;
        () = nudge.notified() => {}
        () = tokio::time::sleep(TAKEN_PAUSE) => {}
    }
}

/// Waits until Workloads are listed and watched.
async fn live(health: &mut Follower<Health>, timeout: Duration) -> Result<(), Failure> {
    let tried = health.wait_for(|health| *health != Health::Starting);
    match tokio::time::timeout(timeout, tried).await {
        Ok(Health::Failing(why)) => Err(Failure::passing(of_kind(WORKLOAD, why))),
        Ok(Health::Live | Health::Starting | Health::NotServed) => Ok(()),
        Err(_elapsed) => {
            let secs = timeout.as_secs();
            Err(Failure::passing(format!(
                "the API server did not open the watch of {WORKLOAD} within {secs} s"
            )))
        }
    }
}

async fn failure(health: &mut Follower<Health>) -> String {
    match health.wait_for(|h| matches!(h, Health::Failing(_))).await {
        Health::Failing(why) => of_kind(WORKLOAD, why),
        Health::Live | Health::Starting | Health::NotServed => "stopped".to_owned(),
    }
}

/// Ends when the credentials have changed, or when they are gone and no run on the worker needs them.
///
/// Unlike the anchor: the deletion of a Secret ends no connection before the jobs there have ended (`spec/safety.md` F28).
/// Condition `Active` shows at once that the Secret is gone, and nothing new is sent to the worker.
async fn credentials_differ(fleet: &Fleet, remote: &Arc<Remote>, endpoint: &Endpoint, nudge: &Notify) {
    let print = fingerprint(endpoint);
    loop {
        tokio::select! {
            biased;
            () = nudge.notified() => {}
            () = tokio::time::sleep(leaving::LOOK), if remote.link(Link::is_leaving) => {}
        }
        match fleet.load(remote.name.as_str()) {
            Ok(now) if fingerprint(&now) == print => {
                if remote.link(Link::is_leaving) {
                    remote.step(Event::SecretBack);
                    fleet.settle(remote).await;
                }
            }
            Ok(_) => return,
            Err(refusal) => {
                let is_needed = refusal.reason == Reason::BadKubeConfig && !(fleet.is_free)(&remote.name);
                if !is_needed && !bug!(fleet.policy, InactiveStillUsed) {
                    return;
                }
                if !remote.link(Link::is_leaving) {
                    let why = format!(
                        "{}; the manager keeps this connection until its jobs there have ended, and sends nothing new; to go on: roadstead \
                         cluster join {} --kubeconfig FILE",
                        refusal.message, remote.name
                    );
                    tracing::warn!(cluster = %remote.name, "{why}");
                    // Why not the text of a lost worker: if the worker is lost as well, that must be logged too.
                    let (reason, why) = (refusal.reason, &not_loaded(&why));
                    remote.step(Event::SecretGone { reason, why });
                    fleet.settle(remote).await;
                }
            }
        }
    }
}

async fn wait_or_seen(fleet: &Fleet, client: &Client, at: Timestamp, nudge: &Notify) {
    let seen = async {
        loop {
            tokio::time::sleep(LOOK).await;
            if matches!(
                tokio::time::timeout(LOOK, client.apiserver_version()).await,
                Ok(Ok(_))
            ) {
                return;
            }
        }
    };
    let pause = until(Some(at), (fleet.clock)()).unwrap_or_default();
    tokio::select! {
        biased;
        () = nudge.notified() => {}
        () = tokio::time::sleep(pause) => {}
        () = seen => {}
    }
}

/// The message of condition `Active` when the kubeconfig of a cluster is refused.
fn not_loaded(why: &str) -> String {
    format!("load client config failed: {why}")
}

/// Tells whether two endpoints are the same without keeping the secret in a comparable form.
fn fingerprint(endpoint: &Endpoint) -> String {
    roadstead_kubeconfigs::secret::fingerprint(endpoint)
}

#[cfg(test)]
mod tests;
