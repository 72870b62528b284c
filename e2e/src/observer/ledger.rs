//! Observations of all clusters, and the invariants that they break. Pure: each change comes with the time of its observation.

mod facts;
mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use roadstead_api::constants::conditions::workload::{FINISHED, QUOTA_RESERVED};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use tokio::sync::mpsc;

pub use facts::{Outcome, Run};
pub(super) use facts::{controller, is_suspended, job_outcome, pod_lives, run_of};
use groups::Groups;

/// Most violations that are kept; the first ones are the most useful.
const VIOLATIONS_MAX: usize = 100;
/// Most jobs above a pod: an `AppWrapper`, a JobSet and a Job are three.
const MAKERS_MAX: usize = 4;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Its number in `spec/safety.md` section 1.
    pub invariant: &'static str,
    /// What the observer saw.
    pub sentence: String,
}

/// One event of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When the observer saw it.
    pub at: Instant,
    /// The job or cluster that it concerns.
    pub subject: Subject,
    /// What happened.
    pub event: Event,
}

/// The subject of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A job: namespace and name.
    Job(String, String),
    /// A worker cluster.
    Cluster(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The job was seen on the manager.
    Submitted,
    /// The manager shows why the job waits.
    Waiting(String),
    /// The manager reserved quota for the job.
    Reserved,
    /// The job's pods may run in this cluster.
    Started(String),
    /// The job's pods must no longer run in this cluster, although the job has not ended.
    Stopped(String),
    /// The job ended in this cluster.
    Ended(String, Outcome),
    /// The manager shows that the job ended.
    Finished(Outcome),
    /// The job was deleted from the manager.
    Gone,
    /// The manager's condition `Active` of the cluster: whether it is True, and the message.
    Active(bool, String),
    /// A capacity request of the cluster was answered: its name and the reason.
    Capacity(String, String),
}

/// The cluster that a change comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The management cluster.
    Manager,
    /// The worker of this index.
    Worker(usize),
}

/// The cluster and the time of an observation.
#[derive(Debug, Clone, Copy)]
pub struct Sight {
    /// The cluster.
    pub place: Place,
    /// The time.
    pub at: Instant,
}

/// Whether an object exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It was created or changed.
    There,
    /// It was deleted.
    Gone,
}

/// The state of a job in one cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct JobState {
    /// Neither suspended nor ended.
    live: bool,
    outcome: Option<Outcome>,
    /// How often it ran to completion.
    completions: usize,
}

/// A job in one cluster, as an object of it has just shown it.
struct Seen {
    /// Its name; of a member of a group the name of the group.
    name: String,
    /// What tells it from other jobs of that name: its UID, if it is one object.
    uid: String,
    state: JobState,
    presence: Presence,
}

/// The state of one workload of the manager in the workers.
#[derive(Debug, Default)]
struct RunState {
    /// By worker and UID of the job there; deleted jobs stay, not live.
    jobs: BTreeMap<(usize, String), JobState>,
}

/// All observations.
#[derive(Debug)]
pub struct Ledger {
    workers: Vec<String>,
    steps: mpsc::Sender<Step>,
    dropped: usize,
    runs: BTreeMap<Run, RunState>,
    /// The workload of a worker's job, by worker and UID of the job.
    owners: BTreeMap<(usize, String), Run>,
    /// The controller of a worker's job, by worker and UID: a job may create other jobs.
    makers: BTreeMap<(usize, String), String>,
    /// Pods that have not ended, by worker and UID of their job.
    pods: BTreeMap<(usize, String), BTreeSet<String>>,
    groups: Groups,
    /// First start of each job, by namespace and name.
    starts: BTreeMap<(String, String), (Instant, String)>,
    /// Jobs and workloads that have ended, by place and UID.
    ended: BTreeSet<(Place, String)>,
    /// Times at which a workload of the manager became Finished, by UID.
    finishes: BTreeMap<String, BTreeSet<String>>,
    /// The last event of each subject and sort, so that repetitions are not reported.
    said: BTreeMap<(Subject, u8), Event>,
    doubts: BTreeMap<Run, BTreeSet<usize>>,
    doubled: BTreeSet<Run>,
    violations: Vec<Violation>,
}

impl Ledger {
    /// An empty ledger for these workers. Events are sent to `steps`.
    pub fn new(workers: Vec<String>, steps: mpsc::Sender<Step>) -> Self {
        Self {
            workers,
            steps,
            dropped: 0,
            runs: BTreeMap::new(),
            owners: BTreeMap::new(),
            makers: BTreeMap::new(),
            pods: BTreeMap::new(),
            groups: Groups::default(),
            starts: BTreeMap::new(),
            ended: BTreeSet::new(),
            finishes: BTreeMap::new(),
            said: BTreeMap::new(),
            doubts: BTreeMap::new(),
            doubled: BTreeSet::new(),
            violations: Vec::new(),
        }
    }

    /// Takes in an observed job of any kind.
    pub fn job(&mut self, sight: Sight, job: &DynamicObject, presence: Presence) {
        let outcome = job_outcome(job);
        self.check_backward(sight.place, facts::kind_of(job), job, outcome.is_some(), presence);
        let seen = self.seen(sight.place, job, outcome, presence);
        match sight.place {
            Place::Manager => self.managers_job(sight.at, job, seen),
            Place::Worker(worker) => self.workers_job(worker, sight.at, job, seen),
        }
    }

    fn seen(
        &mut self,
        place: Place,
        job: &DynamicObject,
        outcome: Option<Outcome>,
        presence: Presence,
    ) -> Seen {
        let state = JobState {
            live: presence == Presence::There && !is_suspended(job) && outcome.is_none(),
            outcome,
            completions: usize::from(outcome == Some(Outcome::Succeeded)),
        };
        match facts::group_of(job) {
            Some(group) => self.groups.seen(place, job, &group, (state, presence)),
            None => Seen {
                name: job.name_any(),
                uid: job.uid().unwrap_or_default(),
                state,
                presence,
            },
        }
    }

    /// Takes in an observed pod.
    pub fn pod(&mut self, sight: Sight, pod: &Pod, presence: Presence) {
        let Some(maker) = controller(pod) else { return };
        let Place::Worker(worker) = sight.place else {
            return;
        };
        let key = (worker, maker);
        let living = self.pods.entry(key.clone()).or_default();
        let uid = pod.uid().unwrap_or_default();
        if presence == Presence::There && pod_lives(pod) {
            living.insert(uid);
        } else {
            living.remove(&uid);
        }
        if let Some(run) = self.run_at(key).cloned() {
            self.check_single(&run);
        }
    }

    /// The workload of a job in a worker, or of the job that created it.
    fn run_at(&self, mut key: (usize, String)) -> Option<&Run> {
        for _ in 0..MAKERS_MAX {
            if let Some(run) = self.owners.get(&key) {
                return Some(run);
            }
            key.1 = self.makers.get(&key)?.clone();
        }
        None
    }

    /// Takes in an observed workload.
    pub fn workload(&mut self, sight: Sight, workload: &Workload, presence: Presence) {
        let condition = |type_: &str| {
            let conditions = workload.status.iter().flat_map(|status| &status.conditions);
            { conditions }.find(|condition| condition.type_ == type_)
        };
        let finished = condition(FINISHED).filter(|condition| condition.status == "True");
        self.check_backward(sight.place, "Workload", workload, finished.is_some(), presence);
        if sight.place != Place::Manager || presence == Presence::Gone {
            return;
        }
        if let Some(finished) = finished {
            let times = self
                .finishes
                .entry(workload.uid().unwrap_or_default())
                .or_default();
            times.insert(finished.last_transition_time.0.to_string());
            if times.len() > 1 {
                let name = facts::full_name(workload);
                let times = times.iter().cloned().collect::<Vec<_>>().join(" and ");
                self.convict(
                    "I11",
                    format!("workload {name} on the manager finished more than once: {times}"),
                );
            }
        }
        let mut owners = workload.owner_references().iter();
        let controlling = || {
            let owner = owners.find(|owner| owner.controller == Some(true))?;
            Some(owner.name.clone())
        };
        let named = facts::is_of_group(workload).then(|| workload.name_any());
        let Some(job) = named.or_else(controlling) else {
            return;
        };
        let subject = Subject::Job(workload.namespace().unwrap_or_default(), job);
        if let Some(reserved) = condition(QUOTA_RESERVED) {
            let event = if reserved.status == "True" {
                Event::Reserved
            } else {
                Event::Waiting(reserved.message.clone())
            };
            self.tell(sight.at, subject, event);
        }
    }

    /// Takes in the observed MultiKueueCluster of a worker.
    pub fn cluster(&mut self, at: Instant, cluster: &MultiKueueCluster) {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        if let Some(active) = { conditions }.find(|condition| condition.type_ == "Active") {
            let event = Event::Active(active.status == "True", active.message.clone());
            self.tell(at, Subject::Cluster(cluster.name_any()), event);
        }
    }

    /// Takes in the answer to a capacity request of a worker.
    pub fn capacity(&mut self, worker: usize, at: Instant, request: &str, reason: &str) {
        let event = Event::Capacity(request.to_owned(), reason.to_owned());
        self.tell(at, Subject::Cluster(self.workers[worker].clone()), event);
    }

    /// Overlaps that are neither confirmed nor cleared.
    pub fn doubts(&self) -> Vec<Run> {
        self.doubts.keys().cloned().collect()
    }

    /// Clears the overlap of this workload, which reading the clusters did not confirm.
    pub fn clear(&mut self, run: &Run) {
        self.doubts.remove(run);
    }

    /// Records the overlap of this workload as a violation: it was read in these workers.
    pub fn convict_overlap(&mut self, run: &Run, workers: &[String]) {
        self.doubts.remove(run);
        self.doubled.insert(run.clone());
        self.convict(
            "I1",
            format!(
                "workload {run} runs at the same time in {}",
                workers.join(" and ")
            ),
        );
    }

    /// Records a violation, once.
    pub fn convict(&mut self, invariant: &'static str, sentence: String) {
        let violation = Violation { invariant, sentence };
        if self.violations.len() < VIOLATIONS_MAX && !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }

    /// The violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How many workloads ran in two clusters at once or to the end more than once.
    pub fn duplicate_runs(&self) -> usize {
        self.doubled.len()
    }

    /// How many steps were dropped because too many waited.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// When a job was first seen unsuspended in a worker, and in which worker.
    pub fn started(&self, namespace: &str, name: &str) -> Option<(Instant, String)> {
        self.starts.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// The pods of a group that were seen to run, by cluster.
    pub fn pods_of_group(&self, namespace: &str, group: &str) -> BTreeMap<String, usize> {
        let ran = self.groups.ran(namespace, group);
        ran.map(|(worker, pods)| (self.workers[worker].clone(), pods))
            .collect()
    }

    fn managers_job(&mut self, at: Instant, job: &DynamicObject, seen: Seen) {
        if !facts::is_queued(job) {
            return;
        }
        let subject = Subject::Job(job.namespace().unwrap_or_default(), seen.name);
        match (seen.presence, seen.state.outcome) {
            (Presence::Gone, _) => self.tell(at, subject, Event::Gone),
            (Presence::There, Some(outcome)) => self.tell(at, subject, Event::Finished(outcome)),
            (Presence::There, None) => self.tell(at, subject, Event::Submitted),
        }
    }

    fn workers_job(&mut self, worker: usize, at: Instant, job: &DynamicObject, seen: Seen) {
        let Seen {
            name,
            uid,
            state: mut new,
            presence: _,
        } = seen;
        let Some(run) = run_of(job) else {
            if let Some(maker) = controller(job) {
                self.makers.insert((worker, uid), maker);
            }
            return;
        };
        self.owners.insert((worker, uid.clone()), run.clone());
        let state = self.runs.entry(run.clone()).or_default();
        let old = state.jobs.get(&(worker, uid.clone()));
        let old = old.copied().unwrap_or_default();
        // Why the old one: an AppWrapper that is being deleted no longer shows its outcome.
        if new.outcome.is_none() && old.outcome.is_some() && is_going(job) {
            new = JobState { live: false, ..old };
        }
        state.jobs.insert((worker, uid), new);
        let completions: usize = state.jobs.values().map(|job| job.completions).sum();
        if completions > 1 {
            self.doubled.insert(run.clone());
            self.convict(
                "I11",
                format!("workload {run} ran to completion {completions} times"),
            );
        }
        let cluster = self.workers[worker].clone();
        let subject = Subject::Job(run.namespace.clone(), name.clone());
        if new.live && !old.live {
            let key = (run.namespace.clone(), name);
            self.starts.entry(key).or_insert_with(|| (at, cluster.clone()));
            self.tell(at, subject, Event::Started(cluster));
        } else if let (Some(outcome), None) = (new.outcome, old.outcome) {
            self.tell(at, subject, Event::Ended(cluster, outcome));
        } else if old.live && !new.live && new.outcome.is_none() {
            self.tell(at, subject, Event::Stopped(cluster));
        }
        self.check_single(&run);
    }

    /// I1: no two workers with an unsuspended job or a live pod.
    fn check_single(&mut self, run: &Run) {
        let Some(state) = self.runs.get(run) else { return };
        let lives = |((worker, _), job): (&(usize, String), &JobState)| job.live.then_some(*worker);
        let has_pods = |(key, pods): (&(usize, String), &BTreeSet<String>)| {
            (!pods.is_empty() && self.run_at(key.clone()) == Some(run)).then_some(key.0)
        };
        let pods = self.pods.iter().filter_map(has_pods);
        let alive: BTreeSet<usize> = state.jobs.iter().filter_map(lives).chain(pods).collect();
        if alive.len() > 1 {
            self.doubts.insert(run.clone(), alive);
        }
    }

    /// I6: an ended job or workload stays ended.
    fn check_backward(
        &mut self,
        place: Place,
        kind: &str,
        object: &impl ResourceExt,
        ended: bool,
        presence: Presence,
    ) {
        let key = (place, object.uid().unwrap_or_default());
        if presence == Presence::Gone || is_going(object) {
            self.ended.remove(&key);
        } else if ended {
            self.ended.insert(key);
        } else if self.ended.remove(&key) {
            let place = match place {
                Place::Manager => "the manager",
                Place::Worker(worker) => self.workers[worker].as_str(),
            };
            let name = facts::full_name(object);
            let sentence = format!("{kind} {name} on {place} had ended and is not ended any more");
            self.convict("I6", sentence);
        }
    }

    /// Sends a step, unless it repeats the last one of its sort about this subject.
    fn tell(&mut self, at: Instant, subject: Subject, event: Event) {
        let key = (subject.clone(), event.sort());
        if self.said.get(&key) == Some(&event) {
            return;
        }
        self.said.insert(key, event.clone());
        match self.steps.try_send(Step { at, subject, event }) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.dropped += 1,
        }
    }
}

/// Whether an object is being deleted.
fn is_going(object: &impl ResourceExt) -> bool {
    object.meta().deletion_timestamp.is_some()
}

impl Event {
    /// The sort of an event. Only an event of the same sort replaces it as the last one.
    fn sort(&self) -> u8 {
        match self {
            Self::Submitted | Self::Finished(_) | Self::Gone => 0,
            Self::Waiting(_) | Self::Reserved => 1,
            Self::Started(_) | Self::Stopped(_) | Self::Ended(..) => 2,
            Self::Active(..) => 3,
            Self::Capacity(..) => 4,
        }
    }
}

#[cfg(test)]
mod tests;
