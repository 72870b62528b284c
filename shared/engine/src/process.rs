//! Puts the admission engine together: caches, brain, reconcilers, webhooks, statuses.
//!
//! Both processes run it; what differs is the [`Checks`] they plug in.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use roadstead_api::config::{Config, FeatureGate};
use roadstead_core::lifecycle::Core;
use roadstead_core::name::{ClusterQueueName, Key};
use roadstead_jobs::JobKind;
use roadstead_kinds::TABLE;
use roadstead_kubeio::cache::Health;
use roadstead_kubeio::events::{self, Recorder};
use roadstead_kubeio::latest::Follower;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile;
use roadstead_kubeio::trouble;
use roadstead_serve::health::Condition;
use roadstead_serve::listen::Listener;
use roadstead_serve::shutdown::{self, Tasks};
use roadstead_serve::tls::{CertSlot, Lifetimes, server_config};
use roadstead_serve::webhook::Webhooks;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::brain::{Brain, MAIL_MAX};
use crate::caches::JobRef;
use crate::caches::{Ancestors, Caches, Counting, unlisted};
use crate::checks::CheckList;
use crate::clock::{self, Clock, Uptime};
pub use crate::error::Error;
use crate::feed;
use crate::jobs::Jobs;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::proposals::Proposals;
use crate::queue_status::{self, Reports};
use crate::queues::{self, Finalizers};
use crate::settings;
use crate::visibility::{ASKS_MAX, Ask, Visibility};
use crate::webhook::{self, Certificates};
use crate::workloads::{self, Requests, Workloads};

/// Concurrent passes over Workloads.
const WORKLOAD_WORKERS: usize = 16;
/// Concurrent passes over jobs.
const JOB_WORKERS: usize = 16;

/// What an administrator does about objects that cannot be listed.
const REMEDY: &str =
    "if this is a refusal, apply deploy/rights, if the kind is not served, apply deploy/crds";

/// Limit: how long the start waits for kinds of jobs that are neither listed nor known to be not served.
const KINDS_MAX: Duration = Duration::from_secs(10);

/// Limit: how long the parts of the engine may take to finish after the stop. It is shorter than the process's own limit, so that
/// a part that waits for an API server is ended in good order.
const FINISH_MAX: Duration = Duration::from_secs(3);

/// The controllers that the engine brings; names for `--controllers`.
pub const CONTROLLERS: &[&str] = &["admission", "core", "jobs", "webhooks"];

/// The parts from which the engine is built.
pub struct Parts {
    /// The client of its own cluster.
    pub client: Client,
    /// The configuration.
    pub config: Arc<Config>,
    /// The kinds beyond the table whose jobs are dispatched, though they are not queued here ([`JobKind::is_external`]).
    pub externals: Vec<&'static dyn JobKind>,
    /// Which controllers are switched on.
    pub controllers: BTreeSet<&'static str>,
    /// Name of the process in Events.
    pub name: &'static str,
    /// The time for all decisions and dates; [`Parts::with_steady_clock`] takes the jumps out.
    pub clock: Clock,
    /// The time with its jumps: for certificates and tokens, which other machines date too.
    pub wall: Clock,
    /// How long the process has been up, by a clock that never jumps: for leases.
    pub uptime: Uptime,
    /// How long webhook certificates last.
    pub lifetimes: Lifetimes,
    /// Whether this replica leads, or waits until it may.
    pub leadership: Leadership,
}

impl Parts {
    /// The same parts, with a clock that does not jump.
    #[must_use]
    pub fn with_steady_clock(mut self) -> Self {
        self.clock = clock::steady(self.clock, self.uptime);
        self
    }
}

/// The engine before its checks are plugged in: its caches and queues can be listened to.
pub struct Engine {
    parts: Parts,
    /// The caches of the cluster.
    pub caches: Caches,
    /// Workloads that are due for a pass.
    pub workloads_due: Arc<Queue<Key>>,
    /// Jobs that are due for a pass.
    pub jobs_due: Arc<Queue<JobRef>>,
    /// Where Events go.
    pub recorder: Recorder,
    /// The metrics; put them into a registry before the engine starts.
    pub metrics: Metrics,
    reports: Arc<Reports>,
    events: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Cancelled when no more Events will be recorded.
    silence: CancellationToken,
}

impl Engine {
    /// An engine for the enabled job kinds. Nothing runs yet.
    pub fn new(parts: Parts) -> Self {
        let mut kinds = kinds(&parts.config);
        kinds.extend(&parts.externals);
        // Why not `stop`: the decisions of the last passes after the stop are recorded too.
        let silence = CancellationToken::new();
        let (recorder, events) = events::recorder(
            parts.client.clone(),
            parts.name,
            parts.clock.clone(),
            silence.clone(),
        );
        let caches = Caches::new(&kinds)
            .counting(Counting::of(&parts.config))
            .owned(Ancestors::of(&parts.config));
        let reports = Arc::<Reports>::default();
        let (clock, leadership) = (parts.clock.clone(), parts.leadership.clone());
        let metrics = Metrics::new(&parts.config, &caches, reports.clone(), clock, leadership);
        let metrics = metrics.with_events(&recorder);
        Self {
            caches,
            metrics,
            reports,
            workloads_due: Arc::new(Queue::default()),
            jobs_due: Arc::new(Queue::default()),
            recorder,
            events: Box::pin(events),
            silence,
            parts,
        }
    }

    /// Starts everything in `tasks`; `synced` and `webhooks` show the health endpoint the progress.
    ///
    /// *Errors*: the webhook server could not be set up.
    #[expect(
        clippy::too_many_lines,
        reason = "it only hands the parts of the engine to each other"
    )]
    pub async fn start(
        self,
        checks: CheckList,
        (synced, webhooks): (Condition, Condition),
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let Parts {
            client,
            config,
            controllers,
            clock,
            wall,
            lifetimes,
            leadership,
            ..
        } = self.parts;
        let core = if controllers.contains("core") {
            Core::Runs
        } else {
            Core::Off
        };
        tasks.spawn("events", self.events);
        let (post, mail) = mpsc::channel(MAIL_MAX);
        let (ask, asks) = mpsc::channel(ASKS_MAX);
        let (proposals, requests): (Arc<Proposals>, Arc<Requests>) = Default::default();
        let brain = Brain {
            state: settings::state(&config, &controllers, &clock),
            dirty: feed::connect(&self.caches),
            caches: self.caches.clone(),
            mail,
            asks,
            proposals: proposals.clone(),
            reports: self.reports.clone(),
            due: self.workloads_due.clone(),
            metrics: self.metrics.clone(),
            recorder: self.recorder.clone(),
            clock: clock.clone(),
        };
        let workloads = Workloads {
            client: client.clone(),
            caches: self.caches.clone(),
            policy: workloads::policy(&config, core),
            due: self.workloads_due.clone(),
            proposals,
            requests: requests.clone(),
            mail: post,
            checks: checks.clone(),
            recorder: self.recorder.clone(),
            clock: clock.clone(),
        };
        let jobs = Jobs {
            client: client.clone(),
            caches: self.caches.clone(),
            config: config.clone(),
            due: self.jobs_due,
            workloads_due: self.workloads_due,
            requests,
            checks: checks.clone(),
            recorder: self.recorder,
            metrics: self.metrics,
            clock: clock.clone(),
        };
        let finalizers = Finalizers {
            client: client.clone(),
            caches: self.caches.clone(),
            reports: self.reports.clone(),
            due: Arc::new(Queue::default()),
        };
        let statuses = queue_status::Writer {
            client: client.clone(),
            caches: self.caches.clone(),
            reports: self.reports,
            shares: settings::shares(&config),
            clock: clock.clone(),
        };
        workloads.listen();
        jobs.listen();
        finalizers.listen();
        statuses.listen();
        list(&self.caches, &client, tasks, stop);
        if controllers.contains("webhooks") {
            let handlers = webhook::handlers(&client, &self.caches, &config, TABLE)
                .map_err(|source| Error::Webhooks { source })?;
            let certificates = Certificates {
                client: client.clone(),
                config: config.clone(),
                kinds: { self.caches.jobs.iter() }
                    .map(|jobs| jobs.kind)
                    .filter(|kind| !kind.is_external())
                    .collect(),
                slot: CertSlot::empty(),
                ready: webhooks,
                lifetimes,
                clock: wall,
                caches: self.caches.clone(),
                leadership: leadership.clone(),
            };
            serve(handlers, certificates, ask, tasks, stop).await?;
        } else {
            webhooks.ready();
        }
        let parts = Running {
            brain,
            statuses,
            workloads: { ["admission", "core", "jobs"].iter() }
                .any(|part| controllers.contains(part))
                .then_some(workloads),
            finalizers: (core == Core::Runs).then(|| finalizers.clone()),
            jobs: controllers.contains("jobs").then_some(jobs),
            finalizers_due: finalizers.due,
            leadership,
            checks,
        };
        let (silence, running) = (self.silence, parts.run(self.caches, synced, stop.clone()));
        tasks.spawn_fallible("engine", async move {
            let ended = running.await;
            silence.cancel();
            ended
        });
        Ok(())
    }
}

/// The parts that run once everything has been listed and this replica leads; `None` for a disabled part.
struct Running {
    brain: Brain,
    statuses: queue_status::Writer,
    workloads: Option<Workloads>,
    finalizers: Option<Finalizers>,
    jobs: Option<Jobs>,
    finalizers_due: Arc<Queue<queues::Object>>,
    leadership: Leadership,
    checks: CheckList,
}

impl Running {
    async fn run(
        self,
        caches: Caches,
        synced: Condition,
        stop: CancellationToken,
    ) -> Result<(), shutdown::Error> {
        let followed = !self.leadership.leads();
        let listed = tokio::select! {
            biased;
            listed = all_live(&caches, &stop) => listed,
            () = unlisted::tell([caches.healths(), caches.kind_healths()].concat(), &synced) => false,
        };
        if !listed {
            return Ok(());
        }
        synced.ready();
        if followed {
            if !self.leadership.won(&stop).await {
                return Ok(());
            }
            // Why: the caches may lack the last writes of the previous leader, and the quota that it gave would be given twice.
            caches.refresh();
            self.checks.catch_up();
            if !all_live(&caches, &stop).await {
                return Ok(());
            }
        }
        let mut running = Tasks::default();
        running.spawn("brain", self.brain.run(stop.clone()));
        let due = self.finalizers_due;
        let ended = move |name: &ClusterQueueName| {
            due.add(queues::Object::ClusterQueue(name.as_str().into()), Lane::New);
        };
        running.spawn("statuses of queues", self.statuses.run(ended, stop.clone()));
        if let Some(workloads) = self.workloads {
            let queue = workloads.due.clone();
            for kind in 0..caches.jobs.len() {
                let (stop, following) = (stop.clone(), workloads.clone().follow(kind));
                running.spawn("workloads of a kind", async move {
                    stop.run_until_cancelled(following).await;
                });
            }
            let pass = move |key| workloads.clone().reconcile(key);
            let passes = reconcile::run("workload", queue, WORKLOAD_WORKERS, stop.clone(), pass);
            running.spawn("workloads", passes);
        }
        if let Some(finalizers) = self.finalizers {
            let queue = finalizers.due.clone();
            let pass = move |object| finalizers.clone().reconcile(object);
            let passes = reconcile::run("finalizer", queue, queues::WORKERS, stop.clone(), pass);
            running.spawn("finalizers", passes);
        }
        if let Some(jobs) = self.jobs {
            let queue = jobs.due.clone();
            let pass = move |at| jobs.clone().reconcile(at);
            let passes = reconcile::run("job", queue, JOB_WORKERS, stop.clone(), pass);
            running.spawn("jobs", passes);
        }
        until_stopped(running, stop).await
    }
}

/// Starts the webhook server, unless the configuration gives it no address. Also starts the visibility server, which uses the
/// same certificate, and the task that renews that certificate.
async fn serve(
    handlers: Webhooks,
    certificates: Certificates,
    ask: mpsc::Sender<Ask>,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let (config, slot) = (&certificates.config, &certificates.slot);
    let visibility = Visibility::new(&certificates.client, config, &certificates.caches, slot, ask);
    let tls = server_config(&config.tls, slot.clone()).map_err(|source| Error::Tls { source })?;
    let listener = Listener::bind("webhook", &config.webhook.bind())
        .await
        .map_err(|source| Error::Listen { source })?;
    if let Some(listener) = listener {
        let serving = listener.serve(handlers.router(), Some(tls), stop.clone());
        tasks.spawn("webhooks", serving);
    }
    if config.feature_gates.enabled(FeatureGate::VisibilityOnDemand) {
        visibility.start(&certificates.leadership, tasks, stop).await?;
    }
    // Why at once: stored objects of an older version need the conversion webhook before they can be listed.
    tasks.spawn("certificates", certificates.run(stop.clone()));
    Ok(())
}

/// Waits for the stop, or stops everything when any part ends, and gives the parts a moment to finish.
///
/// Why the whole process: half an engine would hold quota and never give it back.
async fn until_stopped(mut running: Tasks, stop: CancellationToken) -> Result<(), shutdown::Error> {
    let ended = running.run_within(stop, FINISH_MAX).await;
    if let Err(cut_off @ shutdown::Error::Stuck { .. }) = &ended {
        tracing::warn!("cut off at the end: {cut_off}");
        return Ok(());
    }
    ended
}

/// The enabled job kinds, in the order of the registry.
pub fn kinds(config: &Config) -> Vec<&'static dyn JobKind> {
    let enabled = TABLE.enabled(&config.integrations.frameworks);
    roadstead_jobs::registry()
        .into_iter()
        .filter(|kind| enabled.contains(&kind.kind()))
        .collect()
}

/// Waits until everything has been listed, and each kind of jobs has been listed or is known to be not served. A kind whose state
/// stays unknown holds up only its own jobs. False when `stop` came first.
async fn all_live(caches: &Caches, stop: &CancellationToken) -> bool {
    let live = async {
        for (_, mut health) in caches.healths() {
            health.wait_for(|health| *health == Health::Live).await;
        }
        let mut kinds = caches.kind_healths();
        let settled = async {
            for (_, health) in &mut kinds {
                health.wait_for(Health::is_settled).await;
            }
        };
        if tokio::time::timeout(KINDS_MAX, settled).await.is_err() {
            tracing::warn!(
                kinds = unlisted::names(&kinds).join(", "),
                "these kinds of jobs cannot be listed, so nothing is decided about these jobs until they can be; all other kinds go on"
            );
        }
    };
    stop.run_until_cancelled(live).await.is_some()
}

/// Lists and watches everything until `stop`.
fn list(caches: &Caches, client: &Client, tasks: &mut Tasks, stop: &CancellationToken) {
    caches.spawn(client, tasks, stop);
    for (kind, health) in caches.healths() {
        let name = format!("health of {kind}");
        tasks.spawn(name, tell_unread(kind, health, stop.clone()));
    }
    for jobs in caches.jobs.iter() {
        let kind = &jobs.resource.plural;
        let remedy = if jobs.kind.is_external() {
            format!(
                "if this is a refusal, let the account of this process get, list and watch {kind} (API group \"{}\") and patch \
                 {kind}/status in all namespaces",
                jobs.resource.group
            )
        } else {
            REMEDY.to_owned()
        };
        let telling = tell_kind((kind.clone(), remedy), jobs.objects.health(), stop.clone());
        tasks.spawn(format!("health of {kind}"), telling);
    }
}

/// Reports when a kind of jobs cannot be listed or watched, or is not served, until `stop`.
async fn tell_kind((kind, remedy): (String, String), health: Follower<Health>, stop: CancellationToken) {
    let mut state = health.clone();
    let telling = async {
        loop {
            state.wait_for(|health| *health == Health::NotServed).await;
            tracing::info!(
                kind,
                "this cluster does not serve them, so there are no such jobs; once their CustomResourceDefinition is installed they are \
                 queued without a restart"
            );
            state.wait_for(|health| *health == Health::Live).await;
            tracing::info!(kind, "this cluster serves them now");
        }
    };
    let stopped = stop.clone();
    tokio::join!(
        tell_failures((kind.clone(), remedy), health, stopped),
        stop.run_until_cancelled(telling)
    );
}

/// Reports when a kind of objects of the process's own cluster cannot be listed or watched, until `stop`.
///
/// Why: a missing right or definition stops everything that depends on it, and nothing else would report it.
pub async fn tell_unread(kind: String, health: Follower<Health>, stop: CancellationToken) {
    tell_failures((kind, REMEDY.to_owned()), health, stop).await;
}

async fn tell_failures((kind, remedy): (String, String), health: Follower<Health>, stop: CancellationToken) {
    let telling = trouble::tell_unread(health, |why| match why {
        Some(why) => tracing::error!(
            kind,
            "they cannot be listed or watched in this process's own cluster, so decisions about them wait or use the last known \
             state: {why}; it is tried again until it succeeds; {remedy}"
        ),
        None => tracing::info!(kind, "they can be listed and watched again"),
    });
    stop.run_until_cancelled(telling).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_engine_whose_part_has_ended_by_itself_stops_the_process_and_is_no_orderly_end() {
        let ends = async |how: fn()| {
            let (stop, mut running, mut process) =
                (CancellationToken::new(), Tasks::default(), Tasks::default());
            running.spawn("brain", async move { how() });
            running.spawn("jobs", stop.clone().cancelled_owned());
            process.spawn_fallible("engine", until_stopped(running, stop.clone()));
            let error = process.run(stop.clone()).await.unwrap_err();
            assert!(stop.is_cancelled());
            assert_eq!(error.to_string(), "engine failed");
            std::error::Error::source(&error).unwrap().to_string()
        };
        let early = ends(|| ()).await;
        assert!(early.starts_with("brain ended without being asked"), "{early}");
        let panicked = ends(|| std::panic::resume_unwind(Box::new("no quota"))).await;
        assert!(panicked.starts_with("brain panicked"), "{panicked}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_the_engine_that_hangs_is_cut_off_and_the_end_is_orderly() {
        let (stop, mut running) = (CancellationToken::new(), Tasks::default());
        running.spawn("brain", stop.clone().cancelled_owned());
        running.spawn("jobs", std::future::pending());
        stop.cancel();
        until_stopped(running, stop).await.unwrap();
    }
}
