//! What both processes need around the engine: arguments, configuration, logs, client, health, metrics, an orderly end.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use prometheus_client::registry::Registry;
use roadstead_api::config::Config;
use roadstead_core::leader::Replica;
use roadstead_kubeio::connect;
use roadstead_kubeio::date::ServerTime;
use roadstead_kubeio::failure::with_causes;
use roadstead_kubeio::permit::Permit;
use roadstead_serve::args::{self, Args};
use roadstead_serve::exit::ExitKind;
use roadstead_serve::health::Readiness;
use roadstead_serve::listen::{self, Listener};
use roadstead_serve::metrics::Metrics;
use roadstead_serve::shutdown::{self, Tasks};
use roadstead_serve::tls::{self, Lifetimes};
use roadstead_serve::{config, telemetry};
use tokio_util::sync::CancellationToken;

use crate::clock::{self, Uptime};
use crate::leader::candidate::Candidate;
use crate::leader::{Leadership, Lost};
use crate::metrics_tls;
use crate::process::Parts;

/// The most threads of a process: more would never be busy.
const THREADS_MAX: usize = 8;

/// How long a starting process waits for the time of day.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Where Linux tells the name of this machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Why a process could not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `--controllers` is wrong.
    #[error(transparent)]
    Arguments(args::Error),
    /// The configuration file is wrong.
    #[error(transparent)]
    Config(config::Error),
    /// Logging could not be set up.
    #[error(transparent)]
    Telemetry(telemetry::Error),
    /// There is no client.
    #[error(transparent)]
    Connect(connect::Error),
    /// The threads could not be started.
    #[error("starting threads")]
    Threads(#[source] std::io::Error),
    /// A port cannot be opened.
    #[error(transparent)]
    Listen(listen::Error),
    /// The TLS settings cannot be used for the metrics.
    #[error(transparent)]
    Tls(tls::Error),
    /// The end was not orderly.
    #[error(transparent)]
    Shutdown(shutdown::Error),
    /// The engine could not be set up.
    #[error(transparent)]
    Engine(crate::process::Error),
    /// Another replica may lead now.
    #[error(transparent)]
    Lost(Lost),
}

impl Error {
    /// The exit code of the process.
    pub const fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Arguments(_) | Self::Config(_) => ExitKind::Usage,
            Self::Telemetry(error) => error.exit_kind(),
            Self::Threads(_)
            | Self::Connect(_)
            | Self::Listen(_)
            | Self::Tls(_)
            | Self::Shutdown(_)
            | Self::Engine(_)
            | Self::Lost(_) => ExitKind::Failure,
        }
    }
}

/// A process that is ready to be filled with tasks.
pub struct Host {
    /// Client of the process's own cluster; it is under [`Host::permit`].
    pub client: Client,
    /// The permit under which all clients of the process send changes.
    pub permit: Permit,
    /// The user agent of the process's clients; it names the host of this replica.
    pub user_agent: String,
    /// The configuration.
    pub config: Arc<Config>,
    /// Which controllers are switched on.
    pub controllers: BTreeSet<&'static str>,
    /// Cancelled when the process is to end.
    pub stop: CancellationToken,
    /// What must be true before the process is ready.
    pub readiness: Readiness,
    name: &'static str,
    time: ServerTime,
    leadership: Leadership,
    /// `None` for a process that has no replicas.
    candidate: Option<Candidate>,
}

impl Host {
    /// Reads arguments and configuration, starts logging, makes the client, and becomes the leader if there is none. Must be
    /// called inside a runtime.
    ///
    /// *Errors*: see [`Error`].
    pub async fn prepare(args: &Args, name: &'static str, known: &[&'static str]) -> Result<Self, Error> {
        let namespace = config::own_namespace(Path::new(config::NAMESPACE_FILE));
        let config = config::load(args.config(), &args.feature_gates, &namespace).map_err(Error::Config)?;
        let controllers = args::select_controllers(&args.controllers, known).map_err(Error::Arguments)?;
        telemetry::init(args).map_err(Error::Telemetry)?;
        for warning in &config.warnings {
            tracing::warn!("configuration: {warning}");
        }
        let (permit, leadership) = if config.leader_election.leader_elect {
            (Permit::waiting(), Leadership::waiting())
        } else {
            (Permit::endless(), Leadership::assumed(&config))
        };
        let user_agent = user_agent(name, args.identity());
        let time = ServerTime::default();
        let client = connect::local_under(args.kubeconfig(), &user_agent, &permit, &time)
            .await
            .map_err(Error::Connect)?;
        let stop = shutdown::on_signals().map_err(Error::Shutdown)?;
        let mut host = Self {
            client,
            permit,
            user_agent,
            config: Arc::new(config),
            controllers,
            stop,
            readiness: Readiness::default(),
            name,
            time,
            leadership,
            candidate: None,
        };
        // Why first: decisions and dates must use the same time of day from the start.
        host.time.learn(&host.client, TIME_MAX).await;
        clock::compare(&host.time);
        if host.config.leader_election.leader_elect {
            let mut candidate = host.candidate(args).await?;
            candidate.try_at_once().await;
            host.candidate = Some(candidate);
        }
        Ok(host)
    }

    async fn candidate(&self, args: &Args) -> Result<Candidate, Error> {
        // Why the election has a client of its own: its requests renew the permit, so they must not need it.
        let client = connect::local(args.kubeconfig(), &self.user_agent)
            .await
            .map_err(Error::Connect)?;
        // Why the machine's clock: the times in that Lease are for administrators, and show the clock of each replica.
        let clock = clock::system();
        let parts = (
            self.permit.clone(),
            self.leadership.clone(),
            self.readiness.condition("leaderElection"),
        );
        let replica = replica(args.identity(), &clock);
        Ok(Candidate::new(client, &self.config, replica, clock, parts))
    }

    /// The parts from which its engine is built, as `name`.
    pub fn parts(&self, name: &'static str) -> Parts {
        Parts {
            client: self.client.clone(),
            config: self.config.clone(),
            externals: Vec::new(),
            controllers: self.controllers.clone(),
            name,
            clock: clock::of_server(self.time.clone()),
            wall: clock::of_server(self.time.clone()),
            uptime: Uptime::start(),
            lifetimes: Lifetimes::default(),
            leadership: self.leadership.clone(),
        }
    }

    /// Serves health and metrics, takes part in the election, and waits for the end of `tasks`, which all watch `stop`. The first
    /// task that ends earlier stops the process. After an orderly end, a leader gives its Lease back, so that another replica can
    /// lead at once.
    ///
    /// *Errors*: a port cannot be opened, the end was not orderly, or another replica may lead now. In the last case the
    /// process must end at once and waits for nothing.
    pub async fn run(mut self, registry: Registry, mut tasks: Tasks) -> Result<(), Error> {
        let health = Listener::bind("health", &self.config.health.bind)
            .await
            .map_err(Error::Listen)?;
        if let Some(listener) = health {
            let (router, stop) = (self.readiness.router(&self.config.health), self.stop.clone());
            tasks.spawn("health", listener.serve(router, None, stop));
        }
        let metrics = Metrics::new(registry, self.name, env!("CARGO_PKG_VERSION"));
        if let Some(listener) = Listener::bind("metrics", &self.config.metrics.bind)
            .await
            .map_err(Error::Listen)?
        {
            let stop = self.stop.clone();
            let settings = metrics_tls::start(&self.config, &mut tasks, &stop).map_err(Error::Tls)?;
            tasks.spawn("metrics", listener.serve(metrics.router(), settings, stop));
        }
        let mut candidate = self.candidate.take();
        let lost = async {
            match &mut candidate {
                Some(candidate) => candidate.run().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            lost = lost => return Err(Error::Lost(lost)),
            ended = tasks.run(self.stop) => ended.map_err(Error::Shutdown),
        };
        if let Some(mut candidate) = candidate {
            candidate.release().await;
        }
        ended
    }
}

/// The user agent, which API servers log with each request.
fn user_agent(name: &str, place: Option<&str>) -> String {
    let fits = |place: &&str| place.bytes().all(|byte| byte.is_ascii_graphic());
    let place = place.filter(fits);
    place.map_or_else(|| name.to_owned(), |place| format!("{name} ({place})"))
}

/// The identity of this process in an election.
fn replica(place: Option<&str>, clock: &clock::Clock) -> Replica {
    let stamp = format!("{:x}-{:x}", std::process::id(), clock().as_nanosecond());
    if let Some(place) = place {
        return Replica::in_place(place, &stamp);
    }
    let host = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    Replica::on_host(host.trim(), &stamp)
}

/// Runs a process to its end on half of the cores, at most [`THREADS_MAX`]; prints the error, if any, and returns the exit code.
///
/// Why not on all: an API server is often on the same machine, and waking a thread for little work costs more than the work (a
/// fifth of all CPU time on two cores).
pub fn main(name: &str, work: impl Future<Output = Result<(), Error>>) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores / 2).clamp(1, THREADS_MAX))
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(Error::Threads(error)),
    };
    finish(name, result)
}

/// Prints the error with its causes, and returns the exit code.
fn finish(name: &str, result: Result<(), Error>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    // Why not through the log: logging may be what failed. Why without a macro: `eprintln` panics if it cannot write, and the
    // exit code would be lost.
    let _ = writeln!(std::io::stderr(), "{name}: {}", with_causes(&error));
    ExitCode::from(error.exit_kind().code())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the administrator could not tell this end from a requested one.
    #[tokio::test]
    async fn a_process_whose_part_has_ended_unasked_ends_with_an_error_that_says_so() {
        let ends = async |how: fn()| {
            let (stop, mut parts) = (CancellationToken::new(), Tasks::default());
            parts.spawn("dispatch", async move { how() });
            parts.spawn("brain", stop.clone().cancelled_owned());
            let error = Error::Shutdown(parts.run(stop.clone()).await.unwrap_err());
            assert!(stop.is_cancelled());
            let source = std::error::Error::source(&error).map(ToString::to_string);
            let text = error.to_string();
            assert_eq!(finish("test", Err(error)), ExitCode::from(1));
            (text, source.unwrap_or_default())
        };
        let remedy = "this is a fault of the program: start it again, and please report it";
        let (text, _) = ends(|| ()).await;
        assert_eq!(
            text,
            format!("dispatch ended without being asked to stop; {remedy}")
        );
        let (text, source) = ends(|| std::panic::resume_unwind(Box::new("no quota"))).await;
        assert_eq!(text, format!("dispatch panicked; {remedy}"));
        assert!(source.contains("no quota"), "{source}");
    }

    #[tokio::test]
    async fn parts_that_end_when_they_are_asked_to_are_no_error() {
        let (stop, mut parts) = (CancellationToken::new(), Tasks::default());
        parts.spawn("brain", stop.clone().cancelled_owned());
        stop.cancel();
        parts.run(stop).await.unwrap();
    }
}
