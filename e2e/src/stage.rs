//! A whole federation on this machine: control planes, Roadstead's processes, queues, registered workers.
//!
//! [`Stage::start`] takes a [`Spec`] and returns when every worker is registered with the command `roadstead cluster
//! join` and its cluster is Active. The manager reaches a worker through a [`Link`], so a test can cut it and still reach the
//! worker itself. Everything ends when the stage is dropped or this process dies.
//!
//! Reading order: [`spec`], this file, [`programs`] (the binaries), `subject` (one process), `configuration` and `ports` (its file and
//! ports), `account` (its account), `clock`
//! (its clocks), `detour` (its way to its API server), `objects` (objects applied to the clusters), `kueue` (a cluster with the
//! reference instead), `solo` (one cluster with a worker alone), `rival` (one with the reference alone), `controller` (a
//! third-party controller), `dashboard` (the dashboards of Ray clusters), [`deployed`] (a process as its Deployment describes it).

mod account;
mod clock;
mod command;
mod configuration;
mod controller;
mod dashboard;
pub mod deployed;
mod detour;
pub mod kubelet;
mod kueue;
mod objects;
mod ports;
pub mod programs;
mod rival;
mod single;
mod solo;
pub mod spec;
mod subject;
mod usage;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

pub use configuration::merge;
pub use controller::{Controller, Runs};
pub use kueue::Kueue;
pub use objects::apply;
pub use programs::{Programs, told_by_cargo};
pub use rival::Rival;
pub use single::Single;
pub use solo::Solo;
pub use spec::{Engine, Queue, Spec, Worker};
pub use subject::Handles;
pub use usage::Memory;
pub(crate) use usage::parse_cpu;

use crate::answerer::{Answerer, Policy};
use crate::process::Signal;
use crate::{ControlPlane, Federation, Link, Progress, plane};
use account::Who;
use command::run_command;
use subject::Subject;

/// Name of the AdmissionCheck and of the MultiKueueConfig on the manager.
pub const FEDERATION: &str = "federation";
/// Name of the AdmissionCheck and of the ProvisioningRequestConfig on workers.
pub const CAPACITY: &str = "capacity";
/// Namespace of Roadstead's processes: kubeconfig Secrets, accounts, leases.
pub const SYSTEM_NAMESPACE: &str = "kueue-system";

/// Limit of one command, or of one wait until something is ready.
const PATIENCE: Duration = Duration::from_mins(1);
/// Processes that are started at once. More would slow each other down beyond the limit of a start.
const STARTED_AT_ONCE: usize = 24;
/// Interval of a wait's reads.
const POLL: Duration = Duration::from_millis(50);

/// Why a stage could not be set up or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Roadstead's binaries could not be found or built.
    #[error("the programs of this project are not there")]
    Programs(#[source] programs::Error),
    /// A control plane could not be started or used.
    #[error("a control plane of the stage")]
    Plane(#[source] plane::Error),
    /// A file or a port could not be used.
    #[error("{doing}")]
    System {
        /// The operation that failed.
        doing: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The stage has no process with this name.
    #[error("no process {name} on this stage")]
    NoSubject {
        /// The requested name.
        name: String,
    },
    /// A process of Roadstead ended by itself.
    #[error("process {name} ended ({status}); its last lines:\n{tail}")]
    Died {
        /// The process.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        tail: String,
    },
    /// A wait took too long.
    #[error("{what} after {} s{}", waited.as_secs(), quote(detail))]
    NotReady {
        /// What the wait was for.
        what: String,
        /// How long the wait was.
        waited: Duration,
        /// What was last seen, or the end of a log.
        detail: String,
    },
    /// An object could not be applied.
    #[error("applying {object} to {cluster}")]
    Apply {
        /// Kind and name.
        object: String,
        /// Name of the cluster.
        cluster: String,
        /// The server's answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// The command failed.
    #[error("roadstead {args} failed ({status}):\n{output}")]
    Command {
        /// Its arguments.
        args: String,
        /// How it ended.
        status: ExitStatus,
        /// Its output.
        output: String,
    },
    /// The library that sets clocks could not be built.
    #[error("{compiler} could not make the clock ({status}):\n{output}")]
    Clock {
        /// The C compiler.
        compiler: String,
        /// How it ended.
        status: ExitStatus,
        /// Its output.
        output: String,
    },
}

fn quote(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(": {detail}")
    }
}

/// The role of a cluster in a federation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The management cluster: `roadstead-manager` runs there, or Kueue.
    Manager,
    /// A worker cluster: `roadstead-worker` runs there, or Kueue.
    Worker,
}

/// The argument of `roadstead cluster join` with the kinds of jobs.
const INTEGRATIONS: &str = "--integrations";

/// A running federation with Roadstead's processes.
#[derive(Debug)]
pub struct Stage {
    /// By cluster name.
    subjects: Mutex<BTreeMap<String, Subject>>,
    links: BTreeMap<String, Link>,
    /// Answerers, which run until they are dropped.
    answerers: Vec<Answerer>,
    /// Controllers, which run until they are dropped.
    controllers: Vec<Controller>,
    /// By cluster name: clusters where Kueue runs instead of Roadstead.
    foreign: BTreeMap<String, Arc<Kueue>>,
    programs: Programs,
    /// Merged over the `Configuration` of each process.
    configuration: Value,
    progress: Progress,
    /// The library that sets clocks, once a clock was set.
    clock: OnceCell<PathBuf>,
    /// By cluster name: the link between a process and its own API server, if there is one.
    detours: Mutex<BTreeMap<String, Arc<Link>>>,
    // Invariant: declared after the processes that use them.
    planes: Federation,
    dir: TempDir,
}

impl Stage {
    /// Starts all clusters and processes; each step is reported to `progress`.
    ///
    /// *Errors*: a missing program, a process that died (with the end of its log), a part that was not ready in time.
    /// *Limits*: a first build of the programs takes minutes.
    pub async fn start(spec: Spec, progress: Progress) -> Result<Self, Error> {
        let programs = Programs::find_or_build(&progress)
            .await
            .map_err(Error::Programs)?;
        let Spec {
            manager,
            manager_engine,
            workers,
            namespaces,
            queues,
            priorities,
            configuration,
            controllers,
        } = spec;
        progress.step(&format!("starting {} control planes", workers.len() + 1));
        let engines = { workers.iter() }.map(|worker| (&worker.options.name, &worker.engine));
        let foreign = engines
            .chain([(&manager.name, &manager_engine)])
            .filter_map(|(name, engine)| match engine {
                Engine::Roadstead => None,
                Engine::Kueue(kueue) => Some((name.clone(), Arc::clone(kueue))),
            })
            .collect();
        let quiet = |options: crate::Options| options.with_progress(progress.clone());
        let options = workers
            .iter()
            .map(|worker| quiet(worker.options.clone()))
            .collect();
        let planes = Federation::start(quiet(manager), options)
            .await
            .map_err(Error::Plane)?;
        let dir = tempfile::Builder::new()
            .prefix("roadstead-stage-")
            .tempdir()
            .map_err(system("creating a directory for the stage"))?;
        let mut stage = Self {
            subjects: Mutex::default(),
            links: BTreeMap::new(),
            answerers: Vec::new(),
            controllers: Vec::new(),
            foreign,
            programs,
            configuration,
            progress,
            clock: OnceCell::new(),
            detours: Mutex::default(),
            planes,
            dir,
        };
        stage.connect(&workers).await?;
        stage.progress.step("installing the definitions");
        try_join_all(stage.all_planes().map(|plane| stage.install_definitions(plane))).await?;
        try_join_all(stage.all_planes().map(async |plane| {
            stage.grant(plane.name(), stage.first_part(plane.name())).await?;
            stage.give_account(plane, &plane.server_url()).await
        }))
        .await?;
        // Why one after the other: many processes that start at once answer late.
        for runs in controllers {
            let started = { stage.all_planes() }.map(|plane| Controller::start(runs, plane, &stage.progress));
            let started = try_join_all(started).await?;
            stage.controllers.extend(started);
        }
        stage.progress.step("starting the manager and the workers");
        stage.start_subjects().await?;
        stage.progress.step("creating namespaces and queues");
        stage
            .apply_clusters(&objects::Clusters {
                config: FEDERATION.to_owned(),
                namespaces,
                queues,
                priorities,
            })
            .await?;
        for worker in workers.iter().filter(|worker| worker.registered) {
            stage.join(&worker.options.name).await?;
        }
        Ok(stage)
    }

    /// Makes one more namespace and one more queue in every cluster, and a LocalQueue for the queue in the namespace.
    pub async fn furnish(&self, namespace: &str, queue: Queue) -> Result<(), Error> {
        self.apply_clusters(&objects::Clusters::one(FEDERATION, namespace, queue))
            .await
    }

    /// The same in the manager's cluster and in one worker only, for a queue whose jobs go to the workers of this config.
    /// [`Stage::join_within`] adds the worker to the config.
    pub async fn furnish_within(
        &self,
        config: &str,
        worker: &str,
        namespace: &str,
        queue: Queue,
    ) -> Result<(), Error> {
        let clusters = objects::Clusters::one(config, namespace, queue);
        for plane in [&self.planes.manager, self.plane(worker)?] {
            let part = self.with_subject(plane.name(), |subject| Ok(subject.part()))?;
            clusters.apply_to(plane.name(), part, &client_of(plane)?).await?;
        }
        Ok(())
    }

    /// The control planes.
    pub fn planes(&self) -> &Federation {
        &self.planes
    }

    /// An administrator's client of a cluster, which does not use the link.
    pub fn client(&self, cluster: &str) -> Result<Client, Error> {
        client_of(self.plane(cluster)?)
    }

    /// The link between the manager and a worker.
    pub fn link(&self, worker: &str) -> Result<&Link, Error> {
        self.links.get(worker).ok_or_else(|| Error::NoSubject {
            name: worker.to_owned(),
        })
    }

    /// Memory of our process in a cluster; fails if it does not run.
    pub fn memory(&self, cluster: &str) -> Result<Memory, Error> {
        self.with_subject(cluster, Subject::memory)
    }

    /// Open files and threads of our process in a cluster; fails if it does not run.
    pub fn handles(&self, cluster: &str) -> Result<Handles, Error> {
        self.with_subject(cluster, Subject::handles)
    }

    /// CPU time that our process in a cluster has used since it was started; fails if it does not run.
    pub fn cpu(&self, cluster: &str) -> Result<Duration, Error> {
        self.with_subject(cluster, Subject::cpu)
    }

    /// The log file of our process in a cluster.
    pub fn log(&self, cluster: &str) -> Result<PathBuf, Error> {
        self.with_subject(cluster, |subject| Ok(subject.log()))
    }

    /// Kills our process in a cluster (SIGKILL). Does nothing if it is already killed.
    pub fn kill(&self, cluster: &str) -> Result<(), Error> {
        self.with_subject(cluster, |subject| {
            subject.kill();
            Ok(())
        })
    }

    /// Starts our process in a cluster again, with the same configuration, and waits until it is ready. Kills it first if
    /// it runs.
    pub async fn restart(&self, cluster: &str) -> Result<(), Error> {
        self.replace(cluster)?;
        self.wait_subject(cluster).await
    }

    /// Kills our process in a cluster and starts it again, without waiting until it is ready.
    pub fn replace(&self, cluster: &str) -> Result<(), Error> {
        self.with_subject(cluster, |subject| {
            subject.kill();
            subject.spawn()
        })
    }

    /// Starts one more replica of our process in a cluster, with `over` merged over its configuration, and waits until it is ready.
    /// Methods that take the name of a process accept `name` for it; [`Stage::dismiss`] ends it.
    pub async fn add_replica(&self, cluster: &str, name: &str, over: &Value) -> Result<(), Error> {
        let part = self.with_subject(cluster, |subject| Ok(subject.part()))?;
        self.start_replica(cluster, name, part, over)?;
        self.wait_subject(name).await
    }

    /// Kills a process (SIGKILL) and forgets it.
    pub fn dismiss(&self, name: &str) {
        self.subjects().remove(name);
    }

    /// Asks our process in a cluster to end (SIGTERM).
    pub fn terminate(&self, cluster: &str) -> Result<(), Error> {
        self.with_subject(cluster, |subject| subject.signal(Signal::Terminate))
    }

    /// The exit status of our process in a cluster if it has ended by itself; afterwards it counts as killed.
    pub fn take_end(&self, cluster: &str) -> Result<Option<ExitStatus>, Error> {
        self.with_subject(cluster, Subject::take_end)
    }

    /// As [`Stage::restart`], but the log goes to another file from now on.
    pub async fn restart_logging_to(&self, cluster: &str, log: &Path) -> Result<(), Error> {
        self.with_subject(cluster, |subject| {
            subject.log_to(log);
            Ok(())
        })?;
        self.restart(cluster).await
    }

    /// Freezes our process in a cluster (SIGSTOP). Does nothing while it is killed.
    pub fn pause(&self, cluster: &str) -> Result<(), Error> {
        self.with_subject(cluster, |subject| subject.signal(Signal::Stop))
    }

    /// Thaws our process in a cluster (SIGCONT).
    pub fn resume(&self, cluster: &str) -> Result<(), Error> {
        self.with_subject(cluster, |subject| subject.signal(Signal::Continue))
    }

    /// Gives the cluster another role: kills our process there, starts the one of that role with `over` merged over its
    /// configuration, and waits until it is ready. [`Stage::furnish`] then creates the objects of a queue in that role.
    pub async fn recast(&self, cluster: &str, part: Part, over: &Value) -> Result<(), Error> {
        self.kill(cluster)?;
        self.grant(cluster, part).await?;
        self.start_subject(cluster, part, over)?;
        self.wait_subject(cluster).await
    }

    /// Gives the process in a cluster the rights of this role.
    async fn grant(&self, cluster: &str, part: Part) -> Result<(), Error> {
        let who = match self.foreign.get(cluster) {
            None => Who::Ours(part),
            Some(_) => Who::Kueue,
        };
        account::grant(cluster, &self.client(cluster)?, who).await
    }

    /// The role of a cluster at the start.
    fn first_part(&self, cluster: &str) -> Part {
        if cluster == self.planes.manager.name() {
            Part::Manager
        } else {
            Part::Worker
        }
    }

    /// The address of the metrics of our process in a cluster.
    pub fn metrics(&self, cluster: &str) -> Result<SocketAddr, Error> {
        self.with_subject(cluster, |subject| Ok(subject.metrics()))
    }

    /// Fails if a process of Roadstead or of a plane has ended by itself.
    pub fn check(&self) -> Result<(), Error> {
        for subject in self.subjects().values_mut() {
            subject.check()?;
        }
        self.all_planes()
            .try_for_each(|plane| plane.check().map_err(Error::Plane))
    }

    /// Runs the command `roadstead` and returns what it printed.
    pub async fn command(&self, args: &[&str]) -> Result<String, Error> {
        run_command(&self.programs, self.dir.path(), args, Stdio::null()).await
    }

    /// Registers a worker as a user would, through its link, and waits until its cluster is Active.
    pub async fn join(&self, worker: &str) -> Result<(), Error> {
        self.join_to(self.planes.manager.name(), worker, &[]).await
    }

    /// Registers a worker with this manager, with more arguments for the command. The kinds of jobs are those of the stage's
    /// configuration, unless these arguments name others.
    pub async fn join_to(&self, manager: &str, worker: &str, more: &[&str]) -> Result<(), Error> {
        self.register(manager, worker, FEDERATION, more).await
    }

    /// As [`Stage::join`], as one of the clusters of this MultiKueueConfig, which is created if it does not exist.
    pub async fn join_within(&self, config: &str, worker: &str) -> Result<(), Error> {
        self.register(self.planes.manager.name(), worker, config, &[])
            .await
    }

    async fn register(&self, manager: &str, worker: &str, config: &str, more: &[&str]) -> Result<(), Error> {
        self.progress
            .step(&format!("registering {worker}: roadstead cluster join {worker}"));
        let kubeconfig = |cluster: &str| self.kubeconfig(cluster).display().to_string();
        let (of_worker, of_manager) = (kubeconfig(worker), kubeconfig(manager));
        let server = self.link(worker)?.server_url();
        let join = [
            "cluster",
            "join",
            worker,
            "--kubeconfig",
            &of_worker,
            "--manager-kubeconfig",
            &of_manager,
            "--server",
            &server,
            "--config-name",
            config,
            "--yes",
        ];
        let integrations = self.integrations();
        let kinds: &[&str] = match &integrations {
            Some(kinds) if !more.contains(&INTEGRATIONS) => &[INTEGRATIONS, kinds],
            Some(_) | None => &[],
        };
        self.command(&[&join, kinds, more].concat()).await?;
        let client = self.client(manager)?;
        objects::wait_active(&client, "MultiKueueCluster", worker).await
    }

    /// The integrations in the configuration of the stage, if it lists them.
    fn integrations(&self) -> Option<String> {
        let all = self.configuration["integrations"]["frameworks"].as_array()?;
        let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
        Some(all.join(","))
    }

    /// The program `roadstead`.
    pub fn program(&self) -> &Path {
        &self.programs.command
    }

    /// The administrator's kubeconfig of a cluster, in a file that lives as long as the stage.
    pub fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.dir.path().join(format!("{cluster}.kubeconfig"))
    }

    /// Ends all processes of a stage that cannot be dropped, because it is shared; nothing starts them again.
    pub fn end(&self) {
        let ended = std::mem::take(&mut *self.subjects());
        drop(ended);
        self.controllers.iter().for_each(Controller::end);
        self.all_planes().for_each(ControlPlane::end);
    }

    /// Ends all processes and removes all files, as dropping does.
    pub fn stop(self) {
        drop(self);
    }

    fn plane(&self, cluster: &str) -> Result<&ControlPlane, Error> {
        self.all_planes()
            .find(|plane| plane.name() == cluster)
            .ok_or_else(|| Error::NoSubject {
                name: cluster.to_owned(),
            })
    }

    fn all_planes(&self) -> impl Iterator<Item = &ControlPlane> {
        std::iter::once(&self.planes.manager).chain(&self.planes.workers)
    }

    async fn apply_clusters(&self, clusters: &objects::Clusters) -> Result<(), Error> {
        for plane in self.all_planes() {
            let part = self.with_subject(plane.name(), |subject| Ok(subject.part()))?;
            clusters.apply_to(plane.name(), part, &client_of(plane)?).await?;
        }
        Ok(())
    }

    /// Creates kubeconfig files, links and answerers.
    async fn connect(&mut self, workers: &[Worker]) -> Result<(), Error> {
        for plane in self.all_planes() {
            plane
                .write_kubeconfig(&self.kubeconfig(plane.name()))
                .map_err(Error::Plane)?;
        }
        let mut links = BTreeMap::new();
        let mut answerers = Vec::new();
        for worker in workers {
            let plane = self.plane(&worker.options.name)?;
            let link = plane.link().await.map_err(system("starting a link"))?;
            links.insert(plane.name().to_owned(), link);
            if worker.answers_capacity {
                answerers.push(Answerer::start(client_of(plane)?, Policy::default()));
            }
        }
        self.links = links;
        self.answerers = answerers;
        Ok(())
    }

    async fn install_definitions(&self, plane: &ControlPlane) -> Result<(), Error> {
        let client = client_of(plane)?;
        if self.foreign.contains_key(plane.name()) {
            // Why only the namespace: the definitions of Kueue depend on the port of its process.
            objects::make_own_namespace(plane.name(), &client).await?;
            return objects::install_provisioning(plane.name(), &client).await;
        }
        objects::install_definitions(plane.name(), &client).await
    }

    /// The kubeconfig of our process in a cluster.
    fn own_kubeconfig(&self, cluster: &str) -> PathBuf {
        self.dir.path().join(format!("{cluster}.own.kubeconfig"))
    }

    async fn start_subjects(&self) -> Result<(), Error> {
        let names: Vec<String> = self.all_planes().map(|plane| plane.name().to_owned()).collect();
        for some in names.chunks(STARTED_AT_ONCE) {
            for name in some {
                let part = self.first_part(name);
                match self.foreign.get(name) {
                    None => self.start_subject(name, part, &json!({}))?,
                    Some(kueue) => self.start_kueue(name, part, kueue).await?,
                }
            }
            for name in some {
                self.wait_subject(name).await?;
            }
        }
        Ok(())
    }

    async fn start_kueue(&self, cluster: &str, part: Part, kueue: &Kueue) -> Result<(), Error> {
        let client = self.client(cluster)?;
        let place = kueue::Place {
            config: self.dir.path().join(format!("{cluster}.config.yaml")),
            certificates: self.dir.path().join(format!("{cluster}.certificates")),
            ports: ports::free_ports()?,
        };
        let [_health, _metrics, webhook] = place.ports;
        kueue.install(cluster, &client, webhook).await?;
        let kubeconfig = self.own_kubeconfig(cluster);
        let files = subject::Files {
            dir: self.dir.path(),
            kubeconfig: &kubeconfig,
            configuration: &self.configuration,
        };
        let subject = Subject::start_kueue(cluster, part, kueue, &place, files)?;
        self.subjects().insert(cluster.to_owned(), subject);
        kueue::mount(cluster, &client, &place.certificates).await
    }

    fn start_subject(&self, cluster: &str, part: Part, over: &Value) -> Result<(), Error> {
        self.start_replica(cluster, cluster, part, over)
    }

    fn start_replica(&self, cluster: &str, name: &str, part: Part, over: &Value) -> Result<(), Error> {
        let program = match part {
            Part::Manager => &self.programs.manager,
            Part::Worker => &self.programs.worker,
        };
        let kubeconfig = self.own_kubeconfig(cluster);
        let mut configuration = self.configuration.clone();
        merge(&mut configuration, over);
        let subject = Subject::start(name, program, self.dir.path(), &kubeconfig, &configuration, &[])?;
        self.subjects().insert(name.to_owned(), subject);
        Ok(())
    }

    async fn wait_subject(&self, cluster: &str) -> Result<(), Error> {
        let started = Instant::now();
        let health = self.with_subject(cluster, |subject| Ok(subject.health()))?;
        while !ports::is_ready(health).await {
            self.with_subject(cluster, Subject::check)?;
            if started.elapsed() > PATIENCE {
                let detail = self.with_subject(cluster, |subject| Ok(subject.log_tail()))?;
                return Err(Error::NotReady {
                    what: format!("process {cluster} is not ready"),
                    waited: PATIENCE,
                    detail,
                });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    fn subjects(&self) -> MutexGuard<'_, BTreeMap<String, Subject>> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_subject<T>(
        &self,
        cluster: &str,
        act: impl FnOnce(&mut Subject) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.subjects().get_mut(cluster) {
            Some(subject) => act(subject),
            None => Err(Error::NoSubject {
                name: cluster.to_owned(),
            }),
        }
    }
}

fn client_of(plane: &ControlPlane) -> Result<Client, Error> {
    plane.client().map_err(Error::Plane)
}

fn system(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let doing = doing.into();
    move |source| Error::System { doing, source }
}
