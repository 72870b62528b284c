//! Puts the manager together.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus_client::registry::Registry as Metrics;
use roadstead_api::config::{Config, FeatureGate, WorkerLostPolicy};
use roadstead_api::constants::labels;
use roadstead_core::dispatch::{LostPolicy, Policy};
use roadstead_core::lease::Terms;
use roadstead_core::name::ClusterName;
use roadstead_engine::caches::watch_of;
use roadstead_engine::checks::{CheckList, Checks};
use roadstead_engine::clock::{Clock, Uptime};
use roadstead_engine::host::{Error, Host};
use roadstead_engine::leader::Leadership;
use roadstead_engine::process::{self, Engine, Parts};
use roadstead_jobs::JobKind;
use roadstead_kinds::Ability;
use roadstead_kubeconfigs::check::Rules;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::dirty::Dirty;
use roadstead_serve::args::Args;
use roadstead_serve::health::Readiness;
use roadstead_serve::shutdown::Tasks;
use tokio_util::sync::CancellationToken;

use crate::ceiling;
use crate::checks::Federation;
use crate::credentials::Credentials;
use crate::dispatch::virtual_nodes::{Endpoint, VirtualNodes};
use crate::dispatch::{self, Dispatch, Memory, candidates, results};
use crate::externals;
use crate::families::Families;
use crate::fresh::Fresh;
use crate::gc;
use crate::metrics::Metrics as FederationMetrics;
use crate::remote::fleet::{Ask, Fleet, Greet};
use crate::remote::lease::Lessor;
use crate::remote::registry::Registry;
use crate::remote::{self, Dial};
use crate::sites;
use crate::steps::Steps;

/// What `--controllers` can name.
pub const CONTROLLERS: &[&str] = &["admission", "core", "gc", "jobs", "multikueue", "webhooks"];
/// Variable in which Kubernetes tells a pod the address of its API server.
const API_SERVER: &str = "KUBERNETES_SERVICE_HOST";
type Bell = Arc<Dirty<ClusterName>>;

/// Our name in requests and Events.
pub const NAME: &str = "roadstead-manager";

/// Runs the manager until it is told to stop.
///
/// *Errors*: see [`Error`].
pub async fn run(args: &Args) -> Result<(), Error> {
    let host = Host::prepare(args, NAME, CONTROLLERS).await?;
    let dial = remote::over_network(rules(&host.config), host.user_agent.clone(), host.permit.clone());
    let mut parts = host.parts(NAME);
    if parts.controllers.contains("multikueue") {
        let names = &host.config.multi_kueue.external_frameworks;
        parts.externals = externals::named(&host.client, names).await;
    }
    let mut tasks = Tasks::default();
    let metrics = assemble(parts, dial, &host.readiness, &mut tasks, &host.stop)
        .await
        .map_err(Error::Engine)?;
    host.run(metrics, tasks).await
}

/// Starts all parts of a manager in `tasks`, which end after `stop`; returns its metrics.
///
/// *Errors*: the webhook server could not be set up.
pub async fn assemble(
    parts: Parts,
    dial: Dial,
    readiness: &Readiness,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<Metrics, process::Error> {
    let parts = parts.with_steady_clock();
    let site = Site::of(&parts, dial);
    start(parts, site, readiness, tasks, stop).await
}

/// The same with a planted bug, to test the tests.
///
/// *Errors*: as [`assemble`].
#[cfg(feature = "bugbank")]
pub async fn assemble_with_bug(
    parts: Parts,
    dial: Dial,
    bug: Option<roadstead_core::dispatch::Bug>,
    readiness: &Readiness,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<Metrics, process::Error> {
    let parts = parts.with_steady_clock();
    let mut site = Site::of(&parts, dial);
    site.policy.bug = bug;
    start(parts, site, readiness, tasks, stop).await
}

async fn start(
    parts: Parts,
    site: Site,
    readiness: &Readiness,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<Metrics, process::Error> {
    let federation = parts.controllers.contains("multikueue").then_some(site);
    let engine = Engine::new(parts);
    let mut metrics = Metrics::default();
    engine.metrics.register(&mut metrics);
    if let Some(site) = &federation {
        site.counts.register(&mut metrics);
    }
    let mut checks = Vec::<Arc<dyn Checks>>::new();
    if let Some(site) = federation {
        let dispatch = federate(site, &engine, tasks, stop);
        dispatch.wake_relatives();
        checks.push(Arc::new(dispatch));
    }
    let conditions = (readiness.condition("caches"), readiness.condition("webhooks"));
    engine
        .start(CheckList::new(checks), conditions, tasks, stop)
        .await?;
    Ok(metrics)
}

struct Site {
    client: Client,
    config: Arc<Config>,
    clock: Clock,
    wall: Clock,
    uptime: Uptime,
    collects: bool,
    /// Where this process answers for virtual nodes.
    endpoint: Option<Endpoint>,
    dial: Dial,
    counts: FederationMetrics,
    policy: Policy,
    leadership: Leadership,
}

impl Site {
    fn of(parts: &Parts, dial: Dial) -> Self {
        let config = &parts.config;
        let lost = lost_policy(config);
        Self {
            client: parts.client.clone(),
            config: config.clone(),
            clock: parts.clock.clone(),
            wall: parts.wall.clone(),
            uptime: parts.uptime,
            collects: parts.controllers.contains("gc"),
            endpoint: { parts.controllers.contains("webhooks") }
                .then(|| Endpoint::of(&config.webhook, std::env::var(API_SERVER).ok().as_deref()))
                .flatten(),
            dial,
            counts: FederationMetrics::new(parts.leadership.clone()),
            policy: dispatch::policy(&config.multi_kueue, &config.feature_gates, lost),
            leadership: parts.leadership.clone(),
        }
    }
}

/// The kinds whose jobs are sent to workers.
fn dispatched(engine: &Engine) -> Vec<&'static dyn JobKind> {
    let kinds = engine.caches.jobs.iter().map(|jobs| jobs.kind);
    kinds
        .filter(|kind| kind.kind().can(Ability::Dispatched))
        .collect()
}

/// Whether running copies follow changes of their jobs.
fn forwards(config: &Config) -> bool {
    let gates = &config.feature_gates;
    gates.enabled(FeatureGate::MultiKueueRemoteSpecSync)
}

fn rules(config: &Config) -> Rules {
    Rules {
        allow_loopback: config.roadstead.multi_kueue.allow_loopback_workers,
    }
}

fn lost_policy(config: &Config) -> LostPolicy {
    match config.roadstead.multi_kueue.worker_lost_policy {
        WorkerLostPolicy::Wait => LostPolicy::Wait,
        WorkerLostPolicy::Fence => LostPolicy::Fence,
        WorkerLostPolicy::RetryAnyway => LostPolicy::RetryAnyway,
    }
}

fn lessor(config: &Config, engine: &Engine, (clock, uptime): (&Clock, Uptime)) -> Lessor {
    let timeout = Duration::try_from(config.multi_kueue.worker_lost_timeout).unwrap_or_default();
    Lessor {
        origin: config.multi_kueue.origin.as_str().into(),
        namespace: config.roadstead.multi_kueue.lease_namespace.clone(),
        terms: Terms::for_timeout(timeout),
        troubles: roadstead_kubeio::trouble::Troubles::default(),
        namespaces: engine.caches.namespaces.clone(),
        uptime,
        clock: clock.clone(),
    }
}

fn show_lease_ages(counts: &FederationMetrics, workers: Arc<Registry>, uptime: Uptime) {
    counts.show_lease_ages(Box::new(move || workers.lease_ages(uptime.now())));
}

/// Starts all parts that work with worker clusters.
fn federate(site: Site, engine: &Engine, tasks: &mut Tasks, stop: &CancellationToken) -> Dispatch {
    let Site {
        client,
        config,
        clock,
        wall,
        uptime,
        collects,
        endpoint,
        dial,
        counts,
        policy,
        leadership,
    } = site;
    let federation = Federation::new(&engine.caches);
    let secrets = Cache::new();
    let fresh = fresh(&leadership, &federation, &secrets);
    let registry = Arc::new(Registry::default());
    show_lease_ages(&counts, registry.clone(), uptime);
    let lessor = Arc::new(lessor(&config, engine, (&clock, uptime)));
    let dispatch = Dispatch {
        caches: engine.caches.clone(),
        federation: federation.clone(),
        fresh: fresh.clone(),
        registry: registry.clone(),
        client: client.clone(),
        journal: Arc::default(),
        ledger: Arc::default(),
        metrics: counts.clone(),
        may_forward: forwards(&config),
        may_adapt: { &config.feature_gates }.enabled(FeatureGate::MultiKueueAdaptersForCustomJobs),
        may_choose: !config.multi_kueue.names_dispatcher,
        memory: Arc::new(Memory::default()),
        unknown: Arc::default(),
        due: engine.workloads_due.clone(),
        jobs_due: engine.jobs_due.clone(),
        origin: config.multi_kueue.origin.as_str().into(),
        policy,
        lessor: lessor.clone(),
        #[cfg(feature = "bugbank")]
        turn: Arc::default(),
        virtual_nodes: Arc::default(),
        steps: Steps::follow(&engine.caches),
        families: Families::follow(&engine.caches),
        started: clock(),
        clock: clock.clone(),
    };
    ceiling::judge_in(&engine.caches, &federation, &registry);
    let changed = Arc::new(Dirty::default());
    let fleet = Arc::new(Fleet {
        client: client.clone(),
        clusters: federation.clusters.clone(),
        secrets: secrets.clone(),
        namespace: config.namespace.clone(),
        registry: registry.clone(),
        kinds: dispatched(engine),
        templates: engine.caches.templates.clone(),
        ours: format!("{}={}", labels::MULTIKUEUE_ORIGIN, config.multi_kueue.origin),
        rules: rules(&config),
        lessor,
        dial,
        changed: changed.clone(),
        greet: greet(dispatch.clone(), changed.clone()),
        is_free: ask(&dispatch, |d, name| candidates::is_free(d, name, (d.clock)())),
        naming: tokio::sync::Mutex::default(),
        metrics: counts,
        told: Arc::default(),
        clock: clock.clone(),
        #[cfg(feature = "bugbank")]
        policy,
    });
    ring_on_wishes(&federation, changed.clone());
    let members = Arc::new(Dirty::default());
    federation.ring_on_members(members.clone());
    federation.list(&client, tasks, stop);
    list_secrets(&secrets, (&client, &config.namespace), tasks, stop);
    // Why only while this replica leads: no other replica needs the state of the workers, or its lease on them.
    let leading = |work: BoxFuture<'static, ()>| {
        let fresh = fresh.clone();
        leadership.clone().then(stop.clone(), async move {
            fresh.catch_up();
            work.await;
        })
    };
    tasks.spawn("connections", leading(fleet.run(stop.clone()).boxed()));
    let conditions = federation.run(client.clone(), clock.clone(), stop.clone());
    tasks.spawn("admission checks", leading(conditions.boxed()));
    if config.roadstead.virtual_nodes
        && let Some(nodes) = VirtualNodes::new(&dispatch, endpoint, wall.clone())
    {
        tasks.spawn("virtual nodes", leading(nodes.run(stop.clone()).boxed()));
    }
    let credentials = credentials(&config, &dispatch, secrets, wall);
    let renewal = credentials.run(stop.clone());
    tasks.spawn("credentials", leading(renewal.boxed()));
    if collects {
        let interval = Duration::try_from(config.multi_kueue.gc_interval).unwrap_or_default();
        let collection = gc::run(dispatch.clone(), registry, interval, stop.clone());
        tasks.spawn("collection", leading(collection.boxed()));
    }
    follow_changes(&dispatch, (changed, members), tasks, stop);
    dispatch
}

fn credentials(
    config: &Config,
    dispatch: &Dispatch,
    secrets: Arc<Cache<Secret>>,
    wall: Clock,
) -> Credentials {
    Credentials {
        client: dispatch.client.clone(),
        secrets,
        clusters: dispatch.federation.clusters.clone(),
        registry: dispatch.registry.clone(),
        rules: rules(config),
        lifetime: token_lifetime(config),
        clock: wall,
    }
}

fn ask(dispatch: &Dispatch, question: fn(&Dispatch, &ClusterName) -> bool) -> Ask {
    let dispatch = dispatch.clone();
    Box::new(move |name| question(&dispatch, name))
}

/// Lists the Secrets of the manager's own namespace.
fn list_secrets(
    secrets: &Arc<Cache<Secret>>,
    (client, namespace): (&Client, &str),
    tasks: &mut Tasks,
    stop: &CancellationToken,
) {
    let own = Api::namespaced(client.clone(), namespace);
    let watching = secrets.clone().run(own, None, stop.clone());
    tasks.spawn(watch_of("secrets"), watching);
    let kind = "secrets".to_owned();
    let telling = process::tell_unread(kind, secrets.health(), stop.clone());
    tasks.spawn("health of secrets", telling);
}

/// A replica that begins to lead lists again the objects that describe the federation.
fn fresh(leadership: &Leadership, federation: &Federation, secrets: &Arc<Cache<Secret>>) -> Arc<Fresh> {
    let (federation, secrets) = (federation.clone(), secrets.clone());
    Arc::new(Fresh::new(leadership, move || {
        federation.configs.refresh();
        federation.clusters.refresh();
        secrets.refresh();
    }))
}

/// The start of work with each new worker.
fn greet(dispatch: Dispatch, changed: Bell) -> Greet {
    Box::new(move |remote, stop| {
        remote.tell_fences(&dispatch.metrics);
        let (name, changed) = (remote.name.clone(), changed.clone());
        remote.queues.on_change(move || changed.mark(name.clone()));
        dispatch.greet(remote);
        let bringing = results::run(dispatch.clone(), remote.clone(), stop.clone());
        tokio::spawn(bringing);
        let work = dispatch::run(dispatch.clone(), remote.clone(), stop);
        tokio::spawn(work);
    })
}

fn token_lifetime(config: &Config) -> Duration {
    let secs = config.roadstead.multi_kueue.token_lifetime_seconds;
    Duration::from_secs(u64::try_from(secs).unwrap_or_default())
}

/// Marks a cluster when its cordon, or the annotation that gives it up, changes. Why: both change what every Workload may do, and
/// no supervisor reports a change of an annotation.
fn ring_on_wishes(federation: &Federation, bell: Arc<Dirty<ClusterName>>) {
    federation.clusters.listen(move |change| {
        let wish = |cluster: Option<&Arc<_>>| {
            cluster.map(|cluster| (sites::cordon(cluster), sites::given_up(cluster)))
        };
        if change.old.is_some() && wish(change.old) != wish(change.new) {
            bell.mark(ClusterName::from(&*change.key.name));
        }
    });
}

fn follow_changes(dispatch: &Dispatch, bells: (Bell, Bell), tasks: &mut Tasks, stop: &CancellationToken) {
    let planning = plan_once_known(dispatch.clone(), stop.clone());
    tasks.spawn("unknown workloads", planning);
    let following = follow_clusters(dispatch.clone(), bells, stop.clone());
    tasks.spawn("changes of clusters", following);
}

/// Looks at the Workloads that could not be planned before the federation was listed.
async fn plan_once_known(dispatch: Dispatch, stop: CancellationToken) {
    let sources = dispatch.sources();
    dispatch.unknown.run(sources, &dispatch.due, stop).await;
}

/// Looks again at every Workload of a worker that came or went, or that a config has taken in or let go.
async fn follow_clusters(dispatch: Dispatch, (changed, members): (Bell, Bell), stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            names = members.take() => {
                for name in names {
                    dispatch.membership_changed(&name);
                }
            }
            names = changed.take() => {
                for name in names {
                    dispatch.cluster_changed(&name);
                }
            }
        }
        // Why only these Workloads: the others that wait are judged when it is their turn.
        dispatch.caches.recount(ceiling::is_concerned);
    }
}
