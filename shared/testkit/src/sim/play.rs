//! One run: the clusters and processes start, users act, faults come and end, time passes, and then the auditors judge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use jiff::SignedDuration;
use roadstead_api::config::WorkerLostPolicy;
use roadstead_apiserver::{Change, Clock, Options, Server};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fault::{Called, Entry, Fault, Forgery};
use super::objects::{self, cluster_name};
use super::script::{Act, Script};
use super::stage::{Lives, RIVAL, RIVAL_USER, Stage, Step};
use super::steward::{self, Hand};
use super::trace::{Keep, Trace};
use crate::audit::ending::Ending;
use crate::audit::{Auditor, Clocks, Rules};

/// A run is judged after nothing but renewals was written for this long.
const QUIET: Duration = Duration::from_mins(1);
/// How long after [`Script::settles_after`] the player waits for this quiet; then it judges anyway.
const PATIENCE: Duration = Duration::from_mins(20);
/// The manager's longest pause before it asks a worker again that failed for a Workload; the pause doubles with each failure
/// (`manager/src/dispatch/memory.rs`). It can exceed the time that a run has to settle.
const TRY_AGAIN: Duration = Duration::from_mins(10);
/// How often the player checks whether it is quiet.
const LOOK: Duration = Duration::from_secs(10);
/// One seed in this many is played until no late event can come, even if all jobs have ended. Why not every seed: minutes in which
/// processes only renew leases would be the largest part of the cost.
const PATIENT_EVERY: u64 = 8;
/// The pause between two forgeries of another client, and the largest number of them.
const FORGE_EVERY: Duration = Duration::from_secs(4);
const FORGERIES_MAX: u32 = 10;
/// Resources that are written even when nothing happens. Their writes do not delay the judgement.
const RENEWALS: [&str; 2] = ["leases.coordination.k8s.io", "events"];
/// Panics in all runs of this process, with the message of the last one.
static PANICS: AtomicU64 = AtomicU64::new(0);
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The trace as one number.
    pub hash: u64,
    /// API calls and other events in the trace.
    pub events: u64,
    /// How long it took in the run's own time.
    pub took: Duration,
    /// What went wrong, one line each, the first broken first.
    pub violations: Vec<String>,
    /// The state in the end.
    pub ending: Ending,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

/// Plays runs; keeps the part that all of them share.
pub struct Player {
    template: Server,
}

impl Player {
    /// Boots the cluster that all clusters are forks of.
    ///
    /// *Errors*: a definition or an object that the API server refuses.
    pub fn new() -> Result<Self, String> {
        watch_panics();
        let clock = Clock::new(|| jiff::Timestamp::UNIX_EPOCH);
        let mut options = Options::new(clock, 0);
        options.authorization = roadstead_apiserver::Authorization::AllowAll;
        let template = Server::new(options);
        runtime()?.block_on(objects::create(&template, objects::everywhere()))?;
        Ok(Self { template })
    }

    /// The state in which all clusters begin.
    #[cfg(test)]
    pub(super) fn template(&self) -> &Server {
        &self.template
    }

    /// Plays one script from beginning to end, and once more without faults if their ends are to be compared (I13).
    ///
    /// *Errors*: the run could not be set up, which says nothing about the product.
    pub fn play(&self, script: &Script, keep: Keep) -> Result<Outcome, String> {
        let mut outcome = self.play_once(script, keep)?;
        if script.compares && !script.faults.is_empty() {
            let calm = self.play_once(&script.with_faults(&[]), Keep::Hash)?;
            let certain = script.certain_jobs();
            let is_certain = |name: &str| name.rsplit('/').next().is_some_and(|name| certain.contains(name));
            let differences = outcome.ending.differences(&calm.ending, is_certain);
            outcome.violations.extend(
                differences
                    .iter()
                    .map(|line| format!("I13 broken: without faults it ends otherwise: {line}")),
            );
        }
        Ok(outcome)
    }

    /// Whether a further run of a script leaves the same trace. It plays only the script itself, not the run without faults that
    /// [`Player::play`] compares it with.
    ///
    /// *Errors*: the run could not be set up.
    pub fn repeats(&self, script: &Script, outcome: &Outcome) -> Result<bool, String> {
        Ok(self.play_once(script, Keep::Hash)?.hash == outcome.hash)
    }

    fn play_once(&self, script: &Script, keep: Keep) -> Result<Outcome, String> {
        roadstead_kubeio::retry::reseed(script.seed);
        let panics = PANICS.load(Ordering::Relaxed);
        let runtime = runtime()?;
        let (mut outcome, trace) = runtime.block_on(run(&self.template, script, keep))?;
        // Why before the trace is read: tasks that still run must not write into it.
        drop(runtime);
        let trace = std::mem::replace(
            &mut *trace.lock().unwrap_or_else(PoisonError::into_inner),
            Trace::new(Keep::Hash),
        );
        if trace.is_full() {
            let circles = "I3 broken: somebody turns in circles: too many API calls for one run";
            outcome.violations.insert(0, circles.to_owned());
        }
        (outcome.hash, outcome.events, outcome.trace) = trace.finish();
        if PANICS.load(Ordering::Relaxed) > panics {
            let words = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone();
            outcome.violations.insert(0, format!("F34 panic: {words}"));
        }
        Ok(outcome)
    }
}

pub(super) fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))
}

fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string().replace('\n', " ");
    }));
}

fn rules(script: &Script) -> Rules {
    let names: Vec<String> = (1..=script.workers.len()).map(cluster_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let jumps = |entry: &Entry| matches!(entry.fault, Fault::ClockJump { secs: ..0, .. });
    Rules {
        policy: script.lost,
        // Why only jumps back: a clock that is merely wrong, fast or slow never goes back.
        clocks: if script.faults.iter().any(|(_, entry)| jumps(entry)) {
            Clocks::Jump
        } else {
            Clocks::Steady
        },
        canaries: vec![objects::CANARY.to_owned()],
        lease: SignedDuration::try_from(script.lease()).unwrap_or(SignedDuration::MAX),
        quiet: SignedDuration::try_from(QUIET).unwrap_or(SignedDuration::MAX),
        ..Rules::new(&cluster_name(0), &names)
    }
}

/// When the product last wrote something that is no renewal.
#[derive(Default)]
struct LastWrite(Mutex<Duration>);

async fn run(template: &Server, script: &Script, keep: Keep) -> Result<(Outcome, Arc<Mutex<Trace>>), String> {
    let stage = Stage::set(template, script, Trace::new(keep));
    let auditor = Arc::new(Mutex::new(Auditor::new(rules(script))));
    let last = Arc::new(LastWrite::default());
    let rivals = Arc::new(Mutex::new(Rivals::of(script)));
    for (number, server) in stage.servers.iter().enumerate() {
        let (auditor, time, name) = (auditor.clone(), stage.time, stage.name(number));
        let (last, rivals) = (last.clone(), rivals.clone());
        server.observe(move |change| {
            if !RENEWALS.contains(&&*change.resource) {
                *last.0.lock().unwrap_or_else(PoisonError::into_inner) = time.elapsed();
            }
            if number != 0 {
                let mut rivals = rivals.lock().unwrap_or_else(PoisonError::into_inner);
                rivals.saw(&name, change, time.now());
            }
            if name != RIVAL {
                lock(&auditor).saw(&name, change, time.now());
            }
        });
    }
    stage.furnish(script).await?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let lives: Lives = {
        let (auditor, time, workers) = (auditor.clone(), stage.time, script.workers.len());
        Arc::new(move |number, step| {
            let (name, now) = (cluster_name(number), time.now());
            if number > workers {
                return;
            }
            let mut auditor = lock(&auditor);
            match step {
                Step::Starts => auditor.engine_starts(&name, now),
                Step::Ends => auditor.engine_ends(&name, now),
            }
        })
    };
    stage.open(script, &mut tasks, &stop, &lives);
    play_along(&stage, script, &auditor).await;
    stage.heal();
    let settled = stage.time.elapsed() + script.settles_after();
    let is_patient = script.seed.is_multiple_of(PATIENT_EVERY);
    let compared = if script.compares {
        script.certain_jobs()
    } else {
        BTreeSet::new()
    };
    loop {
        tokio::time::sleep(LOOK).await;
        let now = stage.time.elapsed();
        let wrote = *last.0.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = now >= wrote + QUIET + LOOK;
        let is_over = || !is_patient && is_over(script, &stage, &auditor, &rivals);
        // Why: a job that waits for its next try has no final state yet that can be compared.
        let is_due = || now < wrote + TRY_AGAIN && lock(&auditor).waits(|name| compared.contains(name));
        let calm = quiet && ((now >= settled && !is_due()) || is_over());
        if calm || now > settled + PATIENCE {
            break;
        }
    }
    let mut auditor = auditor.lock().unwrap_or_else(PoisonError::into_inner);
    auditor.at_rest(stage.now());
    for overlap in auditor.overlaps() {
        stage.note(format_args!(
            "{} was on two clusters from {} to {}",
            overlap.subject, overlap.from, overlap.until
        ));
    }
    let mut violations: Vec<String> = auditor.violations().iter().map(ToString::to_string).collect();
    let mut rivals = rivals.lock().unwrap_or_else(PoisonError::into_inner);
    violations.extend(rivals.at_rest(stage.now()));
    let outcome = Outcome {
        seed: script.seed,
        hash: 0,
        events: 0,
        took: stage.time.elapsed(),
        violations,
        ending: auditor.ending(),
        trace: Vec::new(),
    };
    stop.cancel();
    Ok((outcome, stage.trace.clone()))
}

/// Whether the run can end now: no auditor has a finding, and each job has ended, is deactivated, or can never get quota.
fn is_over(script: &Script, stage: &Stage, auditor: &Mutex<Auditor>, rivals: &Mutex<Rivals>) -> bool {
    let hopeless = script.hopeless_jobs();
    let rivals = rivals.lock().unwrap_or_else(PoisonError::into_inner);
    let rival_is_over = match &*rivals {
        Rivals::None | Rivals::Refused(_) => true,
        Rivals::Judged(rival) => rival.is_over(stage.now(), |_| false),
    };
    rival_is_over && lock(auditor).is_over(stage.now(), |name| hopeless.contains(name))
}

/// How a second manager is judged. With a name of its own it is judged like the first; with the same name it must write nothing.
enum Rivals {
    None,
    Judged(Box<Auditor>),
    Refused(Vec<String>),
}

impl Rivals {
    fn of(script: &Script) -> Self {
        match script.rival() {
            None => Self::None,
            Some((_, Called::Same)) => Self::Refused(Vec::new()),
            Some((_, Called::Otherwise)) => Self::Judged(Box::new(Auditor::new(Rules {
                manager: RIVAL.to_owned(),
                manager_users: vec![RIVAL_USER.to_owned()],
                origin: RIVAL.to_owned(),
                policy: WorkerLostPolicy::Wait,
                // Why no limit: only the auditor of the first manager is told which clusters have trouble.
                placement_max: SignedDuration::MAX,
                ..rules(script)
            }))),
        }
    }

    fn saw(&mut self, cluster: &str, change: &Change, now: jiff::Timestamp) {
        match self {
            Self::None => {}
            Self::Judged(auditor) => auditor.saw(cluster, change, now),
            Self::Refused(did) => {
                if cluster != RIVAL && *change.user == *RIVAL_USER && did.is_empty() {
                    let what = format!("{} {} on {cluster}", change.resource, change.name);
                    did.push(format!(
                        "safety 3.8 broken at {now}: the second manager of an origin wrote {what}"
                    ));
                }
            }
        }
    }

    fn at_rest(&mut self, now: jiff::Timestamp) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Judged(auditor) => {
                auditor.at_rest(now);
                let all = auditor.violations().iter();
                all.map(|violation| format!("{violation} (of the second manager)"))
                    .collect()
            }
            Self::Refused(did) => std::mem::take(did),
        }
    }
}

/// The next event of a run.
enum Moment {
    Act(Act),
    Begin(usize, Fault),
    End(usize, Fault),
    Forge(usize, Forgery),
}

async fn play_along(stage: &Arc<Stage>, script: &Script, auditor: &Arc<Mutex<Auditor>>) {
    let mut moments: BTreeMap<(Duration, usize), Moment> = BTreeMap::new();
    let mut put = |at: Duration, moment| {
        let number = moments.len();
        moments.insert((at, number), moment);
    };
    for (at, act) in &script.acts {
        put(*at, Moment::Act(act.clone()));
    }
    for (number, entry) in &script.faults {
        put(entry.at, Moment::Begin(*number, entry.fault));
        put(entry.at + entry.lasts, Moment::End(*number, entry.fault));
        if let Fault::Forge { cluster, what } = entry.fault {
            let times = (0..FORGERIES_MAX).map(|time| FORGE_EVERY * time);
            for after in times.take_while(|after| *after < entry.lasts) {
                put(entry.at + after, Moment::Forge(cluster, what));
            }
        }
    }
    let mut troubled = Troubled::default();
    for ((at, _), moment) in moments {
        stage.time.sleep_until(at).await;
        match moment {
            Moment::Forge(worker, what) => stage.forge(worker, what).await,
            Moment::Act(act) => perform((stage, script), &act, auditor, &mut troubled).await,
            Moment::Begin(number, fault) => {
                for name in clusters_of(script, fault) {
                    troubled.more(&mut lock(auditor), name);
                }
                if let Some(cluster) = fault.blinds() {
                    lock(auditor).blinded(&cluster_name(cluster), stage.now());
                }
                stage.begin(number, fault).await;
            }
            Moment::End(number, fault) => {
                stage.end(number, fault);
                if let Some(cluster) = fault.blinds() {
                    lock(auditor).sees_again(&cluster_name(cluster), stage.now());
                }
                for name in { clusters_of(script, fault).into_iter() }.filter(|_| !fault.lingers()) {
                    troubled.less(&mut lock(auditor), name, stage.now());
                }
            }
        }
    }
}

/// How many faults each cluster has now. A cluster is calm only when all of them have ended.
#[derive(Default)]
struct Troubled(BTreeMap<String, usize>);

impl Troubled {
    fn more(&mut self, auditor: &mut Auditor, cluster: String) {
        auditor.troubled(&cluster);
        *self.0.entry(cluster).or_default() += 1;
    }

    fn less(&mut self, auditor: &mut Auditor, cluster: String, now: jiff::Timestamp) {
        let left = self
            .0
            .get(&cluster)
            .map_or(0, |reasons| reasons.saturating_sub(1));
        if left == 0 {
            auditor.calm(&cluster, now);
        }
        self.0.insert(cluster, left);
    }
}

fn lock(auditor: &Mutex<Auditor>) -> std::sync::MutexGuard<'_, Auditor> {
    auditor.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clusters_of(script: &Script, fault: Fault) -> Vec<String> {
    match fault.troubles() {
        None => Vec::new(),
        Some(0) => (0..=script.workers.len()).map(cluster_name).collect(),
        Some(number) => vec![cluster_name(number)],
    }
}

/// Carries out a user's action. Faults do not affect users: each of their requests arrives.
async fn perform(
    (stage, script): (&Arc<Stage>, &Script),
    act: &Act,
    auditor: &Arc<Mutex<Auditor>>,
    troubled: &mut Troubled,
) {
    let manager = &stage.servers[0];
    let paths_of = |name: &str| -> Vec<String> {
        let path = script.kind_of(name).path(objects::NAMESPACE);
        let objects = script.objects_of(name).into_iter();
        objects.map(|object| format!("{path}/{object}")).collect()
    };
    stage.note(format_args!("user {act:?}"));
    match act {
        Act::Submit(plan) => {
            let resource = plan.kind.resource();
            for (path, object) in objects::job(plan) {
                let (status, _) = objects::ask(manager, Method::POST, &path, Some(&object)).await;
                if status.is_success() {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    lock(auditor).submitted(&resource, objects::NAMESPACE, name, stage.now());
                }
            }
        }
        Act::Delete(name) => {
            for path in paths_of(name) {
                let path = format!("{path}?propagationPolicy=Background");
                objects::ask(manager, Method::DELETE, &path, None).await;
            }
        }
        Act::DeleteWorkload(name) => {
            if let Some(path) = workload_of(manager, &script.objects_of(name)).await {
                let path = format!("{path}?propagationPolicy=Background");
                objects::ask(manager, Method::DELETE, &path, None).await;
            }
        }
        Act::DeleteChildren(name) => {
            for worker in 1..=script.workers.len() {
                objects::delete_children(&stage.servers[worker], name).await;
            }
        }
        Act::Deactivate(name) => switch(manager, &script.objects_of(name), false).await,
        Act::Activate(name) => switch(manager, &script.objects_of(name), true).await,
        Act::Squat(worker, name) => {
            for object in script.objects_of(name) {
                let (path, object) = objects::foreign_job(script.kind_of(name), &object);
                objects::ask(&stage.servers[*worker], Method::POST, &path, Some(&object)).await;
            }
        }
        Act::Vacate(worker, name) => {
            for path in paths_of(name) {
                vacate(&stage.servers[*worker], &path).await;
            }
        }
        Act::Lie(worker, name) => lie(stage, *worker, &script.objects_of(name)).await,
        Act::Spoil(worker) => {
            troubled.more(&mut lock(auditor), cluster_name(*worker));
            steward::write_secret(manager, *worker, *worker, objects::Trust::Nobody).await;
        }
        Act::Mend(worker) => {
            steward::write_secret(manager, *worker, *worker, objects::Trust::Worker).await;
            troubled.less(&mut lock(auditor), cluster_name(*worker), stage.now());
        }
        Act::Revoke(worker) => steward::revoke(&stage.servers[*worker], stage.now()).await,
        Act::Steward(duty) => match steward::perform(manager, *duty).await {
            Some(Hand::Closes(worker)) => troubled.more(&mut lock(auditor), cluster_name(worker)),
            Some(Hand::Opens(worker)) => {
                troubled.less(&mut lock(auditor), cluster_name(worker), stage.now());
            }
            None => {}
        },
    }
}

/// Removes the job of another client at this path; leaves a job of the manager alone.
async fn vacate(worker: &Server, path: &str) {
    let (_, job) = objects::ask(worker, Method::GET, path, None).await;
    if objects::is_foreign(&job) {
        let path = format!("{path}?propagationPolicy=Background");
        objects::ask(worker, Method::DELETE, &path, None).await;
    }
}

/// Writes into the copy on a worker that it is Finished, unless the manager has chosen this worker.
async fn lie(stage: &Arc<Stage>, worker: usize, job: &[String]) {
    let path = objects::workloads_path();
    let (_, list) = objects::ask(&stage.servers[0], Method::GET, &path, None).await;
    let is_its = |workload: &&Value| is_owned_by(workload, job);
    let Some(workload) = list["items"].as_array().and_then(|all| all.iter().find(is_its)) else {
        return;
    };
    if workload["status"]["clusterName"] == cluster_name(worker) {
        return;
    }
    let name = workload["metadata"]["name"].as_str().unwrap_or_default();
    let finished = json!([{
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "so they say",
        "lastTransitionTime": stage.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    }]);
    let patch = json!({"status": {"conditions": finished}});
    let path = format!("{path}/{name}/status");
    objects::ask(&stage.servers[worker], Method::PATCH, &path, Some(&patch)).await;
}

fn is_owned_by(workload: &Value, job: &[String]) -> bool {
    let owner = workload["metadata"]["ownerReferences"][0]["name"].as_str();
    owner.is_some_and(|owner| job.iter().any(|object| object == owner))
}

/// Activates or deactivates the Workload of a job, if it has one.
async fn switch(manager: &Server, job: &[String], on: bool) {
    if let Some(path) = workload_of(manager, job).await {
        let patch = json!({"spec": {"active": on}});
        objects::ask(manager, Method::PATCH, &path, Some(&patch)).await;
    }
}

/// The path of the Workload that one of these objects owns; `None` if there is none.
async fn workload_of(manager: &Server, job: &[String]) -> Option<String> {
    let path = objects::workloads_path();
    let (_, list) = objects::ask(manager, Method::GET, &path, None).await;
    let is_its = |workload: &&Value| is_owned_by(workload, job);
    let found = list["items"].as_array()?.iter().find(is_its)?;
    Some(format!("{path}/{}", found["metadata"]["name"].as_str()?))
}

#[cfg(test)]
mod tests;
