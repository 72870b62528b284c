//! Puts the manager together.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use prometheus_client::registry::Registry as Metrics;
use roadstead_api::config::WorkerLostPolicy;
use roadstead_api::constants::labels;
use roadstead_core::dispatch::LostPolicy;
use roadstead_engine::checks::{Checks, NoChecks};
use roadstead_engine::clock;
use roadstead_engine::host::{Error, Host};
use roadstead_engine::process::{Engine, Parts, kinds};
use roadstead_kubeconfigs::check::Rules;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::dirty::Dirty;
use roadstead_serve::args::Args;
use roadstead_serve::tls::Lifetimes;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::checks::Federation;
use crate::credentials::Credentials;
use crate::dispatch::{self, Dispatch, Memory};
use crate::gc;
use crate::remote::registry::Registry;
use crate::remote::supervisor::Fleet;

/// What `--controllers` can name.
pub const CONTROLLERS: &[&str] = &["admission", "core", "gc", "jobs", "multikueue", "webhooks"];
/// Our name in requests and Events.
const NAME: &str = "roadstead-manager";

/// Runs the manager until it is told to stop.
///
/// *Errors*: see [`Error`].
pub async fn run(args: &Args) -> Result<(), Error> {
    let host = Host::prepare(args, NAME, CONTROLLERS).await?;
    let stop = host.stop.clone();
    let engine = Engine::new(
        Parts {
            client: host.client.clone(),
            config: host.config.clone(),
            controllers: host.controllers.clone(),
            name: NAME,
            clock: clock::system(),
            lifetimes: Lifetimes::default(),
        },
        &stop,
    );
    let mut tasks = JoinSet::new();
    let checks: Arc<dyn Checks> = if host.controllers.contains("multikueue") {
        Arc::new(federate(&host, &engine, &mut tasks, &stop))
    } else {
        Arc::new(NoChecks)
    };
    let conditions = (
        host.readiness.condition("caches"),
        host.readiness.condition("webhooks"),
    );
    let mut metrics = Metrics::default();
    engine.metrics.register(&mut metrics);
    engine
        .start(checks, conditions, &mut tasks, &stop)
        .await
        .map_err(Error::Engine)?;
    host.run(metrics, tasks).await
}

/// Starts everything that has to do with worker clusters.
fn federate(host: &Host, engine: &Engine, tasks: &mut JoinSet<()>, stop: &CancellationToken) -> Dispatch {
    let (client, config, clock) = (host.client.clone(), host.config.clone(), clock::system());
    let federation = Federation {
        checks: engine.caches.checks.clone(),
        configs: Cache::new(),
        clusters: Cache::new(),
    };
    let secrets = Cache::new();
    let registry = Arc::new(Registry::default());
    let rules = Rules {
        allow_loopback: config.roadstead.multi_kueue.allow_loopback_workers,
    };
    let lost = match config.roadstead.multi_kueue.worker_lost_policy {
        // Why Fence is Wait here: the configuration refuses it until workers can fence themselves.
        WorkerLostPolicy::Wait | WorkerLostPolicy::Fence => LostPolicy::Wait,
        WorkerLostPolicy::RetryAnyway => LostPolicy::RetryAnyway,
    };
    let dispatch = Dispatch {
        caches: engine.caches.clone(),
        federation: federation.clone(),
        registry: registry.clone(),
        memory: Arc::new(Memory::default()),
        due: engine.workloads_due.clone(),
        jobs_due: engine.jobs_due.clone(),
        origin: config.multi_kueue.origin.as_str().into(),
        policy: dispatch::policy(&config.multi_kueue, &config.feature_gates, lost),
        started: clock(),
        clock: clock.clone(),
    };
    let changed = Arc::new(Dirty::new());
    let fleet = Arc::new(Fleet {
        client: client.clone(),
        clusters: federation.clusters.clone(),
        secrets: secrets.clone(),
        namespace: config.namespace.clone(),
        registry: registry.clone(),
        kinds: kinds(&config),
        ours: format!("{}={}", labels::MULTIKUEUE_ORIGIN, config.multi_kueue.origin),
        rules,
        user_agent: NAME.to_owned(),
        changed: changed.clone(),
        greet: {
            let (dispatch, stop) = (dispatch.clone(), stop.clone());
            Box::new(move |remote| {
                dispatch.greet(remote);
                let work = dispatch::run(dispatch.clone(), remote.clone(), stop.clone());
                tokio::spawn(work);
            })
        },
        clock: clock.clone(),
    });
    tasks.spawn(
        federation
            .configs
            .clone()
            .run(Api::all(client.clone()), None, stop.clone()),
    );
    tasks.spawn(
        federation
            .clusters
            .clone()
            .run(Api::all(client.clone()), None, stop.clone()),
    );
    let own = Api::namespaced(client.clone(), &config.namespace);
    tasks.spawn(secrets.clone().run(own, None, stop.clone()));
    tasks.spawn(fleet.run(stop.clone()));
    tasks.spawn(federation.run(client.clone(), clock.clone(), stop.clone()));
    let lifetime = config.roadstead.multi_kueue.token_lifetime_seconds;
    let credentials = Credentials {
        client,
        secrets,
        registry: registry.clone(),
        rules,
        lifetime: Duration::from_secs(u64::try_from(lifetime).unwrap_or_default()),
        clock,
    };
    tasks.spawn(credentials.run(stop.clone()));
    if host.controllers.contains("gc") {
        let interval = Duration::try_from(config.multi_kueue.gc_interval).unwrap_or_default();
        tasks.spawn(gc::run(dispatch.clone(), registry, interval, stop.clone()));
    }
    let (follower, stop) = (dispatch.clone(), stop.clone());
    tasks.spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                names = changed.take() => {
                    for name in names {
                        follower.cluster_changed(&name);
                    }
                }
            }
        }
    });
    dispatch
}
