//! Puts the worker together.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use roadstead_engine::checks::{Checks, NoChecks};
use roadstead_engine::clock;
use roadstead_engine::host::{Error, Host};
use roadstead_engine::process::{self, Engine, Parts};
use roadstead_serve::args::Args;
use roadstead_serve::tls::Lifetimes;
use tokio::task::JoinSet;

use crate::provisioning::Provisioning;

/// What `--controllers` can name.
pub const CONTROLLERS: &[&str] = &["admission", "core", "jobs", "provisioning", "webhooks"];

/// Runs the worker until it is told to stop.
///
/// *Errors*: see [`Error`].
pub async fn run(args: &Args) -> Result<(), Error> {
    let host = Host::prepare(args, "roadstead-worker", CONTROLLERS).await?;
    let stop = host.stop.clone();
    let clock = clock::system();
    let engine = Engine::new(
        Parts {
            client: host.client.clone(),
            config: host.config.clone(),
            controllers: host.controllers.clone(),
            name: "roadstead-worker",
            clock: clock.clone(),
            lifetimes: Lifetimes::default(),
        },
        &stop,
    );
    let mut tasks = JoinSet::new();
    let checks: Arc<dyn Checks> = if host.controllers.contains("provisioning") {
        let provisioning = Provisioning::new(
            host.client.clone(),
            engine.caches.clone(),
            engine.workloads_due.clone(),
            engine.recorder.clone(),
            clock,
            &host.config.feature_gates,
        );
        provisioning.listen();
        provisioning.spawn(&mut tasks, &stop);
        Arc::new(provisioning)
    } else {
        Arc::new(NoChecks)
    };
    let conditions = (
        host.readiness.condition("caches"),
        host.readiness.condition("webhooks"),
    );
    let mut registry = Registry::default();
    engine.metrics.register(&mut registry);
    engine
        .start(checks, conditions, &mut tasks, &stop)
        .await
        .map_err(Error::Engine)?;
    host.run(registry, tasks).await
}

/// The controllers of the engine are among ours.
const _: () = assert!(process::CONTROLLERS.len() < CONTROLLERS.len());
