//! Assembles the worker.

use std::sync::Arc;

use prometheus_client::registry::Registry as Metrics;
use roadstead_engine::checks::{CheckList, Checks};
use roadstead_engine::host::{Error, Host};
use roadstead_engine::process::{self, Engine, Parts};
use roadstead_serve::args::Args;
use roadstead_serve::health::Readiness;
use roadstead_serve::shutdown::Tasks;
use tokio_util::sync::CancellationToken;

use crate::appwrapper::{self, Settings, Wrappers};
use crate::fence::Fence;
use crate::metrics::Metrics as FenceMetrics;
use crate::provisioning::Provisioning;

/// The names that `--controllers` accepts.
pub const CONTROLLERS: &[&str] = &[
    "admission",
    "appwrapper",
    "core",
    "fence",
    "jobs",
    "provisioning",
    "webhooks",
];

/// Our name in requests and Events.
pub const NAME: &str = "roadstead-worker";

/// Runs the worker until it is told to stop.
///
/// *Errors*: see [`Error`].
pub async fn run(args: &Args) -> Result<(), Error> {
    let host = Host::prepare(args, NAME, CONTROLLERS).await?;
    let parts = host.parts(NAME);
    let mut tasks = Tasks::default();
    let metrics = assemble(parts, &host.readiness, &mut tasks, &host.stop)
        .await
        .map_err(Error::Engine)?;
    host.run(metrics, tasks).await
}

/// Starts all parts of a worker in `tasks`, which end after `stop`; returns its metrics.
///
/// *Errors*: the webhook server could not be set up, or settings contradict each other.
pub async fn assemble(
    parts: Parts,
    readiness: &Readiness,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<Metrics, process::Error> {
    let settings = Settings::of(parts.config.roadstead.app_wrapper.as_ref());
    start(parts, settings, readiness, tasks, stop).await
}

/// The same with a bug planted, for those who test the tests.
///
/// *Errors*: as [`assemble`].
#[cfg(feature = "bugbank")]
pub async fn assemble_with_bug(
    parts: Parts,
    bug: Option<roadstead_core::dispatch::Bug>,
    readiness: &Readiness,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<Metrics, process::Error> {
    let mut settings = Settings::of(parts.config.roadstead.app_wrapper.as_ref());
    settings.bug = bug;
    start(parts, settings, readiness, tasks, stop).await
}

async fn start(
    parts: Parts,
    settings: Settings,
    readiness: &Readiness,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<Metrics, process::Error> {
    let parts = parts.with_steady_clock();
    let uptime = parts.uptime;
    let (client, config, clock) = (parts.client.clone(), parts.config.clone(), parts.clock.clone());
    let wrapper_clock = clock.clone();
    let provisions = parts.controllers.contains("provisioning");
    let fences = parts.controllers.contains("fence");
    let wraps = parts.controllers.contains("appwrapper") && appwrapper::is_wanted(&parts.config);
    let leadership = parts.leadership.clone();
    let engine = Engine::new(parts);
    let mut checks = Vec::<Arc<dyn Checks>>::new();
    if provisions {
        let provisioning = Provisioning::new(
            client.clone(),
            engine.caches.clone(),
            engine.workloads_due.clone(),
            engine.recorder.clone(),
            clock,
            &config.feature_gates,
        );
        provisioning.listen();
        provisioning.spawn(&leadership, tasks, stop);
        checks.push(Arc::new(provisioning));
    }
    let mut metrics = Metrics::default();
    if wraps {
        if let Some((key, why)) = appwrapper::unreviewed(&config) {
            return Err(process::Error::Settings { key, why });
        }
        if let Some((key, why)) = settings.problems().into_iter().next() {
            let key = format!("appwrapper.faultTolerance.{key}");
            return Err(process::Error::Settings { key, why });
        }
        if let Some(warning) = settings.warning(config.wait_for_pods_ready.as_ref()) {
            tracing::warn!("{warning}");
        }
        let recorder = engine.recorder.clone();
        let wrappers = Wrappers::new(client.clone(), settings, &engine.caches, recorder, wrapper_clock);
        wrappers.register(&mut metrics);
        wrappers.spawn(&leadership, tasks, stop);
    }
    if fences {
        let fence = Fence {
            client,
            namespace: config.roadstead.multi_kueue.lease_namespace.clone(),
            caches: engine.caches.clone(),
            jobs_due: engine.jobs_due.clone(),
            uptime,
            metrics: FenceMetrics::default(),
            knowledge: Arc::default(),
        };
        let watched = fence.clone();
        fence.metrics.register(&mut metrics, move || watched.ages());
        let watch = fence.clone().run(stop.clone());
        tasks.spawn("fence", leadership.then(stop.clone(), watch));
        checks.push(Arc::new(fence));
    }
    let conditions = (readiness.condition("caches"), readiness.condition("webhooks"));
    engine.metrics.register(&mut metrics);
    engine
        .start(CheckList::new(checks), conditions, tasks, stop)
        .await?;
    Ok(metrics)
}

/// The controllers of the engine are a part of the worker's.
const _: () = assert!(process::CONTROLLERS.len() < CONTROLLERS.len());
