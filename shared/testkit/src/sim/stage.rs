//! The clusters, processes and wires of one run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use roadstead_api::config::{
    Config, DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL, IncrementalDispatcher,
    WorkerLostPolicy,
};
use roadstead_apiserver::{Authorization, Clock, Options, Server, Snapshot};
use roadstead_core::dispatch::Bug;
use roadstead_engine::leader::Leadership;
use roadstead_engine::process::Parts;
use roadstead_kubeconfigs::check::Refusal;
use roadstead_manager::Dial;
use roadstead_serve::health::Readiness;
use roadstead_serve::shutdown::Tasks;
use roadstead_serve::tls::Lifetimes;
use roadstead_world::{Garbage, Node, World};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clock::{HostClock, TrueTime};
use super::fault::{Called, Fault, Forgery, Link, Space};
use super::objects::{self, cluster_name};
use super::process::{Life, Process};
use super::script::{JobPlan, Script, Skew, Spread};
use super::trace::Trace;
use super::wire::Wire;

/// How long a controller on a cluster needs to see a change there.
const HEARD: Duration = Duration::from_millis(10);
/// How long such a controller may need to carry out a decision.
const DONE: Duration = Duration::from_millis(60);

/// How often a cluster's garbage is collected.
const COLLECT_EVERY: Duration = Duration::from_secs(2);
/// How often the manager looks for orphans on workers.
const GC_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// Memory of every node; no pod asks for any.
const MEMORY: &str = "64Gi";
/// The user that plays a cluster's controllers and nodes.
const WORLD: &str = "world";

/// The cluster and the origin of the second manager, its user, and how many jobs it has.
pub(super) const RIVAL: &str = "rival";
pub(super) const RIVAL_USER: &str = "roadstead-rival";
const RIVAL_JOBS: usize = 3;

/// A step in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Starts,
    Ends,
}

/// Called at each step of each process.
pub(super) type Lives = Arc<dyn Fn(usize, Step) + Send + Sync>;

/// The clusters, processes and wires.
pub(super) struct Stage {
    pub(super) time: TrueTime,
    pub(super) trace: Arc<Mutex<Trace>>,
    /// The API servers, the manager's first.
    pub(super) servers: Vec<Server>,
    processes: Vec<Arc<Process>>,
    clocks: Vec<Arc<HostClock>>,
    wires: Vec<(Link, Arc<Wire>)>,
    /// The wires of the played controllers and nodes; only a server that is down cuts them.
    inner: Vec<Arc<Wire>>,
    server_clocks: Vec<Arc<HostClock>>,
    /// Backups of storages, by trouble.
    backups: Mutex<BTreeMap<usize, Snapshot>>,
    /// Namespaces that were deleted, by trouble: where, and whether the trouble is over.
    deleted: Mutex<BTreeMap<usize, (usize, Space, bool)>>,
    /// Namespaces that are to be created again, by cluster.
    missing: Mutex<Vec<(usize, Space)>>,
    /// The number of the second manager.
    rival: Option<usize>,
    rival_config: Arc<Config>,
    manager_config: Arc<Config>,
    worker_config: Arc<Config>,
    /// Whether the queues name the policy for lost workers.
    by_queue: bool,
    bug: Option<Bug>,
}

impl Stage {
    /// Forks the clusters and lays the wires. Nothing runs yet.
    pub(super) fn set(template: &Server, script: &Script, trace: Trace) -> Arc<Self> {
        let time = TrueTime::begin();
        let trace = Arc::new(Mutex::new(trace));
        let clocks_of = |skews: &[_]| -> Vec<Arc<HostClock>> {
            skews.iter().map(|skew| HostClock::new(time, *skew)).collect()
        };
        let (mut clocks, mut server_clocks) = (clocks_of(&script.processes), clocks_of(&script.servers));
        let rival = script.rival().map(|_| script.workers.len() + 1);
        if rival.is_some() {
            clocks.push(HostClock::new(time, Skew::default()));
            server_clocks.push(HostClock::new(time, Skew::default()));
        }
        let seed = |room: u64, number: usize| mix(script.seed, room, number);
        let servers: Vec<Server> = server_clocks
            .iter()
            .enumerate()
            .map(|(number, clock)| {
                let clock = clock.clone();
                let mut options = Options::new(Clock::new(move || clock.now()), seed(1, number));
                options.authorization = Authorization::AllowAll;
                template.fork(options)
            })
            .collect();
        let last = script.workers.len();
        let own = (0..=last).map(|number| Link {
            from: number,
            to: number,
        });
        let remote = (1..=last).map(|to| Link { from: 0, to });
        // Why last: the random numbers of the other wires must not depend on the second manager.
        let of_rival = rival.into_iter().flat_map(|from| {
            let to = std::iter::once(from).chain(1..=last);
            to.map(move |to| Link { from, to })
        });
        let name_of = |number: usize| {
            if Some(number) == rival {
                RIVAL.to_owned()
            } else {
                cluster_name(number)
            }
        };
        let wire = |room, number: usize, name: String, to: usize| {
            let server = servers[to].clone();
            Wire::new(name, server, time, trace.clone(), seed(room, number))
        };
        let wires = own
            .chain(remote)
            .chain(of_rival)
            .enumerate()
            .map(|(number, link)| {
                let (from, to) = (name_of(link.from), name_of(link.to));
                (link, wire(2, number, format!("{from}>{to}"), link.to))
            })
            .collect();
        let top = rival.unwrap_or(last);
        let inner = (0..=top)
            .map(|number| wire(3, number, format!("world>{}", name_of(number)), number))
            .collect();
        let processes: Vec<Arc<Process>> = (0..=top).map(|_| Arc::default()).collect();
        if let (Some(rival), Some((entry, _))) = (rival, script.rival()) {
            // The second manager starts when its entry begins.
            processes[rival].kill(entry);
        }
        Arc::new(Self {
            time,
            trace: trace.clone(),
            processes,
            rival,
            rival_config: Arc::new(rival_config(script)),
            clocks,
            wires,
            inner,
            servers,
            server_clocks,
            backups: Mutex::default(),
            deleted: Mutex::default(),
            missing: Mutex::default(),
            manager_config: Arc::new(manager_config(script)),
            worker_config: Arc::new(config(script)),
            by_queue: script.by_queue,
            bug: script.bug,
        })
    }

    pub(super) fn name(&self, number: usize) -> String {
        if Some(number) == self.rival {
            RIVAL.to_owned()
        } else {
            cluster_name(number)
        }
    }

    /// Creates the objects of the clusters of the script.
    ///
    /// *Errors*: a server's refusal.
    pub(super) async fn furnish(&self, script: &Script) -> Result<(), String> {
        for (number, server) in self.servers.iter().enumerate() {
            let objects = match number
                .checked_sub(1)
                .and_then(|worker| script.workers.get(worker))
            {
                Some(plan) => objects::of_worker(plan, script.by_queue),
                None => objects::of_manager(script),
            };
            objects::create(server, objects).await?;
        }
        Ok(())
    }

    /// Starts the clusters' own life and the product's processes, and reports the steps of the processes to `lives`.
    pub(super) fn open(
        self: &Arc<Self>,
        script: &Script,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
        lives: &Lives,
    ) {
        tasks.spawn(self.clone().restore_namespaces());
        for number in 0..self.servers.len() {
            self.enliven(number, script, tasks, stop);
            tasks.spawn(self.clone().keep(number, lives.clone()));
        }
    }

    /// Starts a cluster's own life: controllers, nodes, garbage collection.
    fn enliven(&self, number: usize, script: &Script, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        let life = Arc::<Process>::default().live();
        let client = self.inner[number].client(&life, WORLD);
        let (server, clock) = (self.servers[number].clone(), self.server_clocks[number].clone());
        let mut world = World::new(mix(script.seed, 4, number)).with_garbage(Garbage {
            every: COLLECT_EVERY,
            collect: Arc::new(move || {
                server.settle();
            }),
        });
        if let Some(plan) = number
            .checked_sub(1)
            .and_then(|worker| script.workers.get(worker))
        {
            world = world.with_node(Node::new("node", plan.cpus.to_string(), MEMORY));
        }
        for kind in script.kinds.iter().filter_map(|kind| kind.played()) {
            world = world.with_kind(kind);
        }
        let clock: roadstead_world::Clock = Arc::new(move || clock.now());
        tasks.spawn(roadstead_world::run(world, client, clock, stop.clone()));
    }

    /// Runs the lives of a process, one after the other.
    async fn keep(self: Arc<Self>, number: usize, lives: Lives) {
        let process = self.processes[number].clone();
        loop {
            let life = process.start().await;
            lives(number, Step::Starts);
            self.note(format_args!("{} starts", self.name(number)));
            let mut tasks = Tasks::default();
            self.assemble(number, &life, &mut tasks).await;
            tokio::select! {
                biased;
                () = life.ended() => {}
                // As the product's own host does.
                ended = tasks.run(life.stop.clone()) => if let Err(error) = ended {
                    self.note(format_args!("{}: {error}", self.name(number)));
                }
            }
            self.note(format_args!("{} ends", self.name(number)));
            lives(number, Step::Ends);
            life.end();
            tasks.shutdown().await;
            Process::rest().await;
        }
    }

    async fn assemble(&self, number: usize, life: &Life, tasks: &mut Tasks) {
        let clock = self.clocks[number].clone();
        let is_rival = Some(number) == self.rival;
        let is_manager = number == 0 || is_rival;
        let (config, name, controllers) = if is_manager {
            let all = roadstead_manager::CONTROLLERS;
            let config = if is_rival {
                &self.rival_config
            } else {
                &self.manager_config
            };
            (config, roadstead_manager::NAME, all)
        } else {
            let all = roadstead_worker::CONTROLLERS;
            (&self.worker_config, roadstead_worker::NAME, all)
        };
        let user = if is_rival { RIVAL_USER } else { name };
        let own = Link {
            from: number,
            to: number,
        };
        let Some(wire) = self.wire(own) else { return };
        let uptime = clock.uptime();
        let wall: roadstead_engine::clock::Clock = Arc::new(move || clock.now());
        let parts = Parts {
            client: wire.client(life, user),
            config: config.clone(),
            externals: Vec::new(),
            controllers: without_webhooks(controllers),
            name,
            clock: wall.clone(),
            wall,
            uptime,
            lifetimes: Lifetimes::default(),
            leadership: Leadership::assumed(config),
        };
        let readiness = Readiness::default();
        let started = if is_manager {
            let dial = self.dial(life, number, user);
            let bug = self.bug.filter(|_| !is_rival);
            roadstead_manager::assemble_with_bug(parts, dial, bug, &readiness, tasks, &life.stop).await
        } else {
            roadstead_worker::assemble_with_bug(parts, self.bug, &readiness, tasks, &life.stop).await
        };
        if let Err(error) = started {
            self.note(format_args!("{name} does not start: {error}"));
        }
    }

    /// How a manager connects to its workers.
    fn dial(&self, life: &Life, from: usize, user: &'static str) -> Dial {
        let (wires, life) = (self.wires.clone(), life.clone());
        Arc::new(move |endpoint| {
            let to = objects::cluster_at(&endpoint.server);
            let wire = to.and_then(|to| find(&wires, Link { from, to }));
            let client = wire.map(|wire| wire.client(&life, user));
            async move { client.ok_or_else(|| Refusal::bad("no such worker in this run")) }.boxed()
        })
    }

    fn wire(&self, link: Link) -> Option<Arc<Wire>> {
        find(&self.wires, link)
    }

    pub(super) async fn begin(&self, number: usize, fault: Fault) {
        self.note(format_args!("trouble {number} begins: {fault:?}"));
        match fault {
            Fault::Crash { process } => self.processes[process].kill(number),
            Fault::CrashAtCall { process, call, side } => self.processes[process].trap(call, side),
            Fault::Compact { cluster } => self.servers[cluster].compact(),
            Fault::ServerDown { cluster } => {
                for wire in self.wires_to(cluster) {
                    wire.begin(number, fault);
                }
            }
            Fault::ClockJump { process, secs } => self.clocks[process].jump(secs),
            Fault::Rewind { cluster } => {
                let snapshot = self.servers[cluster].snapshot();
                Self::lock(&self.backups).insert(number, snapshot);
            }
            Fault::NoNamespace { cluster, which } => {
                Self::lock(&self.deleted).insert(number, (cluster, which, false));
                objects::delete_namespace(&self.servers[cluster], which).await;
            }
            Fault::NoKind { cluster, kind } => {
                let server = &self.servers[cluster];
                // Why twice: the manager sees that a job is gone, and creates it again, before it sees that the kind is gone.
                objects::remove_kind(server, kind).await;
                tokio::time::sleep(HEARD).await;
                objects::remove_kind(server, kind).await;
                for wire in self.wires_to(cluster) {
                    wire.begin(number, fault);
                }
                // Why a third time: the played controllers still carry out decisions from before they saw the change, and create
                // pods.
                tokio::time::sleep(DONE).await;
                objects::remove_kind(server, kind).await;
            }
            Fault::Rival { called } => {
                let Some(rival) = self.rival else { return };
                self.processes[rival].release(number);
                if called == Called::Otherwise {
                    // Why these names: the first manager uses them too.
                    let jobs = (1..=RIVAL_JOBS)
                        .flat_map(|number| objects::job(&JobPlan::plain(&format!("job-{number}"), 5)))
                        .collect();
                    let made = objects::create(&self.servers[rival], jobs).await;
                    self.note(format_args!("jobs of the rival: {made:?}"));
                }
            }
            // Nothing here: the player calls `Stage::forge` repeatedly.
            Fault::Forge { .. } => {}
            Fault::Stale { link, .. }
            | Fault::Deny { link, .. }
            | Fault::Cut { link, .. }
            | Fault::LoseRequests { link, .. }
            | Fault::LoseAnswers { link, .. }
            | Fault::Duplicate { link, .. }
            | Fault::Delay { link, .. }
            | Fault::Refuse { link, .. }
            | Fault::Silence { link }
            | Fault::LoseEvents { link, .. }
            | Fault::DropWatches { link } => {
                if let Some(wire) = self.wire(link) {
                    wire.begin(number, fault);
                }
            }
        }
    }

    pub(super) fn end(&self, number: usize, fault: Fault) {
        self.note(format_args!("trouble {number} ends"));
        let backup = Self::lock(&self.backups).remove(&number);
        if let (Some(backup), Fault::Rewind { cluster }) = (backup, fault) {
            self.servers[cluster].restore(&backup);
            for wire in self.wires_to(cluster) {
                wire.break_off();
            }
            // Why: the backup may be from a time at which the namespace was deleted.
            let deleted = Self::lock(&self.deleted);
            let over = deleted.values().filter(|(of, _, over)| *over && *of == cluster);
            Self::lock(&self.missing).extend(over.map(|(_, which, _)| (cluster, *which)));
        }
        if let Fault::NoNamespace { cluster, which } = fault {
            Self::lock(&self.deleted).insert(number, (cluster, which, true));
            Self::lock(&self.missing).push((cluster, which));
        }
        for process in &self.processes {
            process.release(number);
        }
        for wire in self.wires.iter().map(|(_, wire)| wire).chain(&self.inner) {
            wire.end(number);
        }
    }

    fn wires_to(&self, cluster: usize) -> impl Iterator<Item = &Arc<Wire>> {
        let wires = self.wires.iter().filter(move |(link, _)| link.to == cluster);
        wires.map(|(_, wire)| wire).chain([&self.inner[cluster]])
    }

    fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
        value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates deleted namespaces again, as soon as they are gone.
    async fn restore_namespaces(self: Arc<Self>) {
        loop {
            tokio::time::sleep(COLLECT_EVERY).await;
            let missing = std::mem::take(&mut *Self::lock(&self.missing));
            for (cluster, which) in missing {
                let server = &self.servers[cluster];
                if objects::has_namespace(server, which).await {
                    continue;
                }
                let made = objects::create(server, objects::namespace(which, self.by_queue)).await;
                if made.is_ok() {
                    self.note(format_args!("{} has {which:?} again", cluster_name(cluster)));
                } else {
                    Self::lock(&self.missing).push((cluster, which));
                }
            }
        }
    }

    /// Writes into the copies on a worker that no manager has chosen.
    pub(super) async fn forge(&self, worker: usize, what: Forgery) {
        let managers = std::iter::once(0).chain(self.rival);
        let managers: Vec<&Server> = managers.map(|number| &self.servers[number]).collect();
        let written = objects::forge(&managers, &self.servers[worker], worker, what).await;
        self.note(format_args!(
            "{written} copies on {} are {what:?}, so they say",
            cluster_name(worker)
        ));
    }

    /// Ends all troubles for good.
    pub(super) fn heal(&self) {
        for process in &self.processes {
            process.disarm();
        }
    }

    pub(super) fn note(&self, what: std::fmt::Arguments<'_>) {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.add(self.time.elapsed(), what);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.time.now()
    }
}

fn find(wires: &[(Link, Arc<Wire>)], link: Link) -> Option<Arc<Wire>> {
    let found = wires.iter().find(|(there, _)| *there == link);
    found.map(|(_, wire)| wire.clone())
}

/// A seed for one room and number, from the seed of the run.
fn mix(seed: u64, room: u64, number: usize) -> u64 {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    (seed ^ (room << 56) ^ (number << 48)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn without_webhooks(all: &[&'static str]) -> BTreeSet<&'static str> {
    all.iter().copied().filter(|name| *name != "webhooks").collect()
}

fn config(script: &Script) -> Config {
    let mut config = Config::without_file(objects::SYSTEM);
    let frameworks = script.kinds.iter().map(|kind| kind.framework().to_owned());
    config.integrations.frameworks = frameworks.collect();
    objects::LEASES.clone_into(&mut config.roadstead.multi_kueue.lease_namespace);
    config
}

/// The config of a second manager. Its policy for lost workers is Wait, because its auditor judges by this policy.
fn rival_config(script: &Script) -> Config {
    let mut config = manager_config(script);
    if script
        .rival()
        .is_some_and(|(_, called)| called == Called::Otherwise)
    {
        RIVAL.clone_into(&mut config.multi_kueue.origin);
        config.roadstead.multi_kueue.worker_lost_policy = WorkerLostPolicy::Wait;
    }
    config
}

fn manager_config(script: &Script) -> Config {
    let mut config = config(script);
    let multi = &mut config.multi_kueue;
    multi.gc_interval = GC_INTERVAL;
    multi.worker_lost_timeout = SignedDuration::try_from(script.lost_after).unwrap_or(SignedDuration::MAX);
    match script.spread {
        Spread::AllAtOnce => DISPATCHER_ALL_AT_ONCE.clone_into(&mut multi.dispatcher_name),
        Spread::Capacity => DISPATCHER_CAPACITY.clone_into(&mut multi.dispatcher_name),
        Spread::Incremental(step_size) => {
            DISPATCHER_INCREMENTAL.clone_into(&mut multi.dispatcher_name);
            multi.incremental = Some(IncrementalDispatcher { step_size });
        }
    }
    config.roadstead.multi_kueue.worker_lost_policy = script.lost;
    config
}

#[cfg(test)]
mod tests;
