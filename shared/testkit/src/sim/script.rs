//! The script of a run, from one number: the clusters, the actions of users, and the faults.

mod duties;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use roadstead_api::config::WorkerLostPolicy;
use roadstead_core::dispatch::Bug;

use super::fault::{Called, Entry, Fault, roll, roll_lack_of_kind, roll_lost_events};
use super::kind::{Child, JobKind};

/// When the first user acts; until then everything starts without trouble.
const OPENING: Duration = Duration::from_secs(6);
/// The time after the faults in which a run settles. The product's pauses are shorter, except before it asks a failed worker again.
const SETTLE: Duration = Duration::from_secs(150);
/// How long the incremental dispatcher waits before it offers to more workers. *Source*: `spec/multikueue.md 7`.
const ROUND: Duration = Duration::from_mins(5);
/// Longest time until a process notices that a watch left out an event: the period after which it compares its cache with the
/// stored objects, and the lifetime of the watch at whose end it does so. *Source*: `spec/safety.md` F12.
const RESYNC: Duration = Duration::from_mins(60 + 5);
/// In one run of this many, the manager offers jobs by free capacity ([`Spread::Capacity`]), its default with Roadstead workers.
const BY_ROOM: u32 = 2;
/// One job in this many is deleted and submitted again under the same name. For one in this many, a user deletes the Workload.
const ANEW: u32 = 10;
/// The random stream that decides about [`BY_ROOM`] and [`ANEW`]. Why its own, like each stream below: its draws change nothing else
/// in the run of a seed.
const ANEW_STREAM: u64 = 13;
/// In one run of this many, an administrator acts on a worker.
const STEWARD: u32 = 3;
/// The random stream that decides about [`STEWARD`].
const STEWARD_STREAM: u64 = 14;
/// In one run of this many, higher priorities preempt lower ones in the manager's queue.
const PUSHES_OUT: u32 = 3;
/// The random stream that decides about [`PUSHES_OUT`], and about revoked capacity.
const FICKLE_STREAM: u64 = 15;
/// In one run of this many, a worker is cut off, and an administrator may give up its runs.
const GIVES_UP: u32 = 6;
/// The random stream that decides about [`GIVES_UP`].
const WORD_STREAM: u64 = 16;
/// In one run of this many, the Secret of a worker leads to another one for a while.
const MISLEADS: u32 = 6;
/// The random stream that decides about [`MISLEADS`].
const MISLEAD_STREAM: u64 = 17;
/// In one run of this many, queues name the policy for lost workers, and jobs are spread over them.
const BY_QUEUE: u32 = 3;
/// The random stream that decides about [`BY_QUEUE`].
const QUEUES_STREAM: u64 = 18;
/// In one run of this many, jobs are of several kinds.
const MANY_KINDS: u32 = 2;
/// The random stream that decides about [`MANY_KINDS`].
const KINDS_STREAM: u64 = 19;
/// The time after [`OPENING`] in which users submit jobs.
const RUSH: Duration = Duration::from_mins(1);

/// How the manager spreads work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// To all workers at once.
    AllAtOnce,
    /// To this many further workers per round.
    Incremental(i32),
    /// First to the worker with the most free capacity, later to further ones.
    Capacity,
}

/// What the manager may do about lost workers.
pub(super) const POLICIES: [WorkerLostPolicy; 3] = [
    WorkerLostPolicy::Wait,
    WorkerLostPolicy::Fence,
    WorkerLostPolicy::RetryAnyway,
];

/// The error of a host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// The error at the start, milliseconds.
    pub millis: i64,
    /// The error of the rate, millionths of the time that passes. The host's clock without jumps drifts too (F18).
    pub ppm: i64,
}

/// One worker cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerPlan {
    /// CPUs that its queue may use, and that its node has.
    pub cpus: i64,
    /// Whether its queue asks for capacity by a `ProvisioningRequest`.
    pub asks_capacity: bool,
    /// Whether higher priorities preempt lower ones.
    pub preempts: bool,
}

/// A job as a user wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: JobKind,
    /// What goes wrong with the jobs that an `AppWrapper` creates.
    pub child: Child,
    /// The number of pods.
    pub pods: i64,
    /// CPUs of each pod.
    pub cpus: i64,
    /// How long each pod runs.
    pub secs: i64,
    /// Whether it fails.
    pub fails: bool,
    /// Whether it is deleted as soon as it has ended (`ttlSecondsAfterFinished: 0`; Jobs only).
    pub vanishes: bool,
    /// Whether it is urgent.
    pub urgent: bool,
    /// The policy of its queue for lost workers; `None` in the queue that follows the configuration.
    pub queue: Option<WorkerLostPolicy>,
}

impl JobPlan {
    /// A job of one pod with one CPU that ends well.
    pub fn plain(name: &str, secs: i64) -> Self {
        Self {
            name: name.to_owned(),
            kind: JobKind::Job,
            child: Child::Well,
            pods: 1,
            cpus: 1,
            secs,
            fails: false,
            vanishes: false,
            urgent: false,
            queue: None,
        }
    }

    /// The names of its objects: several for a group of pods, else one.
    pub fn objects(&self) -> Vec<String> {
        if self.kind == JobKind::Pod && self.pods > 1 {
            (0..self.pods)
                .map(|number| format!("{}-{number}", self.name))
                .collect()
        } else {
            vec![self.name.clone()]
        }
    }
}

/// An action of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Submits a job.
    Submit(JobPlan),
    /// Deletes the job of this name.
    Delete(String),
    /// Deletes its Workload.
    DeleteWorkload(String),
    /// Deletes the children of an `AppWrapper`, wherever it runs.
    DeleteChildren(String),
    /// Deactivates its Workload.
    Deactivate(String),
    /// Activates its Workload again.
    Activate(String),
    /// Creates a job of another client with the same name on a worker.
    Squat(usize, String),
    /// Removes that job again.
    Vacate(usize, String),
    /// Writes into the copy on a worker that the manager has not chosen that it is Finished.
    Lie(usize, String),
    /// Writes a kubeconfig into a worker's Secret that must be refused.
    Spoil(usize),
    /// Writes a good kubeconfig again.
    Mend(usize),
    /// Takes back all capacity that was given to ProvisioningRequests on a worker.
    Revoke(usize),
    /// A duty of an administrator.
    Steward(Duty),
}

/// An action of an administrator on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Sets the cordon annotation: `true` stops new jobs, `drain` also takes back running ones, `None` removes it.
    Cordon(usize, Option<&'static str>),
    /// Takes the worker out of the MultiKueueConfig.
    TakeOut(usize),
    /// Puts the worker into the MultiKueueConfig again.
    PutBack(usize),
    /// Deletes its MultiKueueCluster.
    Unregister(usize),
    /// Creates its MultiKueueCluster again, if the deleted one is gone.
    Register(usize),
    /// Gives up the runs on a worker whose condition `Active` is False, as `roadstead cluster give-up` does.
    GiveUp(usize),
    /// Points the Secret of the first worker at the second one.
    Mislead(usize, usize),
    /// Points the Secret at its own worker again.
    LeadBack(usize),
}

/// Everything about one run.
#[derive(Clone, Debug)]
pub struct Script {
    /// The seed.
    pub seed: u64,
    /// The workers; cluster 1 is the first.
    pub workers: Vec<WorkerPlan>,
    /// How work is spread.
    pub spread: Spread,
    /// The policy for lost workers.
    pub lost: WorkerLostPolicy,
    /// Whether there are queues with another policy.
    pub by_queue: bool,
    /// How long a worker must be unreachable before the manager counts it as lost.
    pub lost_after: Duration,
    /// The kinds of jobs: those that the product's processes handle.
    pub kinds: Vec<JobKind>,
    /// CPUs of the manager's queue.
    pub cpus: i64,
    /// Whether higher priorities preempt lower ones in the manager's queue.
    pub preempts: bool,
    /// The clocks of the processes' hosts, the manager's first.
    pub processes: Vec<Skew>,
    /// The clocks of the API servers' hosts, the manager's first.
    pub servers: Vec<Skew>,
    /// The actions of users, in order.
    pub acts: Vec<(Duration, Act)>,
    /// What goes wrong, with the entry's number.
    pub faults: Vec<(usize, Entry)>,
    /// How long a process may miss an event that a watch left out.
    pub resync: Duration,
    /// Whether the final state is compared with that of the same script without faults (I13).
    pub compares: bool,
    /// The bug that is planted in the manager, to test whether the auditors find it.
    pub bug: Option<Bug>,
}

impl Script {
    /// The script that follows from a number.
    pub fn from_seed(seed: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let number = dice.random_range(2..=4);
        let preempts = dice.random_ratio(1, 3);
        let workers: Vec<WorkerPlan> = (0..number)
            .map(|_| WorkerPlan {
                cpus: dice.random_range(2..=6),
                asks_capacity: dice.random_ratio(1, 4),
                preempts,
            })
            .collect();
        let spread = if dice.random_ratio(1, 2) {
            Spread::AllAtOnce
        } else {
            Spread::Incremental(dice.random_range(2..=3))
        };
        let lost = match dice.random_range(0..6) {
            0 | 1 => WorkerLostPolicy::Wait,
            2 => WorkerLostPolicy::RetryAnyway,
            _ => WorkerLostPolicy::Fence,
        };
        // Why not below 45 s: the lease is two thirds of it, and a process must restart within a tenth of the lease. Renewals
        // come every thirtieth of it, and are most of the cost of a run.
        let lost_after = Duration::from_secs([45, 60, 90, 900][dice.random_range(0..4)]);
        let total: i64 = workers.iter().map(|worker| worker.cpus).sum();
        let cpus = if dice.random_ratio(1, 4) {
            total / 2
        } else {
            total * 2
        };
        let skews = |dice: &mut ChaCha8Rng| (0..=number).map(|_| skew(dice)).collect();
        let processes = skews(&mut dice);
        let servers = skews(&mut dice);
        let mut acts = acts(&mut dice);
        // Why lost events last: the numbers of the other faults stay as they are.
        let faults = { roll(&mut dice, number).into_iter() }.chain(roll_lost_events(seed, number));
        let mut faults: Vec<Entry> = faults.collect();
        strangers(&mut dice, number, &mut acts);
        let mut compares = dice.random_ratio(1, 4);
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(ANEW_STREAM);
        let by_room = dice.random_ratio(1, BY_ROOM);
        anew(&mut dice, &mut acts);
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(STEWARD_STREAM);
        if dice.random_ratio(1, STEWARD) {
            duties::steward(&mut dice, number, &mut acts);
        }
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(FICKLE_STREAM);
        let pushes_out = dice.random_ratio(1, PUSHES_OUT);
        duties::revoke(&mut dice, &workers, &mut acts);
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(WORD_STREAM);
        if dice.random_ratio(1, GIVES_UP) {
            faults.push(duties::give_up(&mut dice, number, lost_after, &mut acts));
            // Why: the run without faults has no loss to give up, and it may be judged before the long jobs end.
            compares = false;
        }
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(MISLEAD_STREAM);
        if dice.random_ratio(1, MISLEADS) && duties::mislead(&mut dice, number, lost_after, &mut acts) {
            compares = false;
        }
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(QUEUES_STREAM);
        let by_queue = dice.random_ratio(1, BY_QUEUE);
        if by_queue {
            spread_over_queues(&mut dice, &mut acts);
        }
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(KINDS_STREAM);
        let mut kinds = vec![JobKind::Job];
        if dice.random_ratio(1, MANY_KINDS) {
            kinds = JobKind::ALL.into();
            spread_over_kinds(&mut dice, &mut acts);
            faults.extend(roll_lack_of_kind(seed, number, &faults));
        }
        Self {
            seed,
            workers,
            spread: if by_room { Spread::Capacity } else { spread },
            lost,
            by_queue,
            lost_after,
            kinds,
            cpus,
            preempts: pushes_out,
            processes,
            servers,
            acts,
            faults: faults.into_iter().enumerate().collect(),
            resync: RESYNC,
            compares,
            bug: None,
        }
    }

    /// How long the lease on each worker is. *Source*: `spec/safety.md` "how this fits" 3.
    pub fn lease(&self) -> Duration {
        self.lost_after * 2 / 3
    }

    /// The jobs whose end does not depend on the order of events; none if jobs may hold quota for ever that others need.
    pub fn certain_jobs(&self) -> BTreeSet<String> {
        let widest = self.workers.iter().map(|worker| worker.cpus).max().unwrap_or(0);
        let jobs: Vec<(&JobPlan, i64)> = self
            .acts
            .iter()
            .filter_map(|(_, act)| {
                if let Act::Submit(job) = act {
                    Some((job, job.pods * job.cpus))
                } else {
                    None
                }
            })
            .collect();
        let held: i64 = jobs
            .iter()
            .map(|(_, cpus)| *cpus)
            .filter(|cpus| *cpus > widest && *cpus <= self.cpus)
            .sum();
        let widest_job = jobs
            .iter()
            .map(|(_, cpus)| *cpus)
            .filter(|cpus| *cpus <= widest)
            .max();
        if held + widest_job.unwrap_or(0) > self.cpus {
            return BTreeSet::new();
        }
        let stays_off = |name: &str| {
            let last = self.acts.iter().rev().find_map(|(_, act)| {
                if let Act::Deactivate(of) | Act::Activate(of) = act
                    && of == name
                {
                    Some(matches!(act, Act::Deactivate(_)))
                } else {
                    None
                }
            });
            last.unwrap_or(false)
        };
        // Why: a restored backup may bring back the other client's job of the same name after it was removed. It then stays.
        let may_stay_out = |name: &str| {
            self.acts.iter().any(|(_, act)| {
                let Act::Squat(cluster, of) = act else {
                    return false;
                };
                let rewinds =
                    |fault: &Fault| matches!(fault, Fault::Rewind { cluster: other } if other == cluster);
                of == name && self.faults.iter().any(|(_, entry)| rewinds(&entry.fault))
            })
        };
        // Why not these kinds: faults on the worker use up the attempts of an `AppWrapper`, and a plain pod that dies on its worker
        // has failed for good.
        let may_vary = [JobKind::AppWrapper, JobKind::Pod];
        let certain = { jobs.iter() }.filter(|(job, _)| !may_vary.contains(&job.kind));
        let certain = certain.filter(|(job, _)| !stays_off(&job.name) && !may_stay_out(&job.name));
        certain.map(|(job, _)| job.name.clone()).collect()
    }

    fn plan_of(&self, name: &str) -> Option<&JobPlan> {
        self.acts.iter().find_map(|(_, act)| {
            if let Act::Submit(job) = act
                && job.name == name
            {
                Some(job)
            } else {
                None
            }
        })
    }

    /// The kind of the job of a name.
    pub fn kind_of(&self, name: &str) -> JobKind {
        self.plan_of(name).map_or(JobKind::Job, |job| job.kind)
    }

    /// The names of the objects of a job.
    pub fn objects_of(&self, name: &str) -> Vec<String> {
        self.plan_of(name)
            .map_or_else(|| vec![name.to_owned()], JobPlan::objects)
    }

    /// The objects of jobs that request more CPUs than the manager's queue has.
    pub fn hopeless_jobs(&self) -> BTreeSet<String> {
        let submitted = self.acts.iter().filter_map(|(_, act)| {
            if let Act::Submit(job) = act {
                Some(job)
            } else {
                None
            }
        });
        let hopeless = submitted.filter(|job| job.pods * job.cpus > self.cpus);
        hopeless.flat_map(JobPlan::objects).collect()
    }

    /// How long after the faults the product may still have work to do: offers to further workers, and events that watches left out.
    pub fn settles_after(&self) -> Duration {
        let rounds = match self.spread {
            // Why 0 also for `Capacity`: it offers to all workers within a minute.
            Spread::AllAtOnce | Spread::Capacity => 0,
            Spread::Incremental(step) => {
                let step = usize::try_from(step).unwrap_or(1).max(1);
                self.workers.len().div_ceil(step).saturating_sub(1)
            }
        };
        // Why twice for a comparison: a job that is evicted late is offered again, beginning with the first worker.
        let times = if self.compares { 2 } else { 1 };
        let settles = SETTLE + times * ROUND * u32::try_from(rounds).unwrap_or(0);
        let lingers = self.faults.iter().any(|(_, entry)| entry.fault.lingers());
        if lingers { self.resync + settles } else { settles }
    }

    /// The same with only these faults.
    #[must_use]
    pub fn with_faults(&self, keep: &[usize]) -> Self {
        let mut script = self.clone();
        script.faults.retain(|(number, _)| keep.contains(number));
        script
    }

    /// The second manager, if there is one: the number of its entry, and its name.
    pub fn rival(&self) -> Option<(usize, Called)> {
        self.faults.iter().find_map(|(number, entry)| {
            if let Fault::Rival { called } = entry.fault {
                Some((*number, called))
            } else {
                None
            }
        })
    }

    /// The numbers of its faults.
    pub fn fault_numbers(&self) -> Vec<usize> {
        self.faults.iter().map(|(number, _)| *number).collect()
    }
}

/// Adds actions of other clients for some jobs, and in one run of six a worker's bad kubeconfig. The manager must cope with each of
/// them.
fn strangers(dice: &mut ChaCha8Rng, workers: usize, acts: &mut Vec<(Duration, Act)>) {
    let submitted: Vec<(Duration, String)> = acts
        .iter()
        .filter_map(|(at, act)| {
            if let Act::Submit(job) = act {
                Some((*at, job.name.clone()))
            } else {
                None
            }
        })
        .collect();
    for (at, name) in submitted {
        let worker = dice.random_range(1..=workers);
        let after = |dice: &mut ChaCha8Rng, most| Duration::from_millis(dice.random_range(0..most));
        match dice.random_range(0..12) {
            0 => {
                acts.push((
                    at.saturating_sub(after(dice, 3_000)),
                    Act::Squat(worker, name.clone()),
                ));
                acts.push((
                    at + Duration::from_mins(1) + after(dice, 30_000),
                    Act::Vacate(worker, name),
                ));
            }
            1 => acts.push((at + after(dice, 20_000), Act::Lie(worker, name))),
            _ => {}
        }
    }
    if dice.random_ratio(1, 6) {
        let worker = dice.random_range(1..=workers);
        let at = Duration::from_millis(dice.random_range(7_000..20_000));
        acts.push((at, Act::Spoil(worker)));
        acts.push((at + Duration::from_secs(90), Act::Mend(worker)));
    }
    acts.sort_by_key(|(at, _)| *at);
}

/// Users submit jobs again under names that were used before, and delete Workloads whose jobs stay.
fn anew(dice: &mut ChaCha8Rng, acts: &mut Vec<(Duration, Act)>) {
    let mut added = Vec::new();
    for (at, act) in &*acts {
        let Act::Submit(job) = act else { continue };
        let is_deleted = |(_, act): &(Duration, Act)| matches!(act, Act::Delete(of) if *of == job.name);
        let after = |dice: &mut ChaCha8Rng, most| Duration::from_millis(dice.random_range(1..most));
        if dice.random_ratio(1, ANEW) && !acts.iter().any(is_deleted) {
            let deleted = *at + after(dice, 45_000);
            added.push((deleted, Act::Delete(job.name.clone())));
            added.push((deleted + after(dice, 10_000), Act::Submit(job.clone())));
        }
        if dice.random_ratio(1, ANEW) {
            added.push((*at + after(dice, 45_000), Act::DeleteWorkload(job.name.clone())));
        }
    }
    acts.append(&mut added);
    acts.sort_by_key(|(at, _)| *at);
}

/// Spreads jobs over queues; jobs of one name stay in one queue.
fn spread_over_queues(dice: &mut ChaCha8Rng, acts: &mut [(Duration, Act)]) {
    let mut queues = BTreeMap::new();
    for (_, act) in acts {
        if let Act::Submit(job) = act {
            let queue = dice.random_range(0..=POLICIES.len());
            let queue = *queues.entry(job.name.clone()).or_insert(queue);
            job.queue = POLICIES.get(queue).copied();
        }
    }
}

/// Spreads jobs over kinds; jobs of one name stay of one kind.
fn spread_over_kinds(dice: &mut ChaCha8Rng, acts: &mut Vec<(Duration, Act)>) {
    let mut kinds = BTreeMap::new();
    let mut deletions = Vec::new();
    let again = handed_in_again(acts);
    for (at, act) in acts.iter_mut() {
        if let Act::Submit(job) = act {
            let kind = JobKind::ALL[dice.random_range(0..JobKind::ALL.len())];
            let child = [Child::Well, Child::Well, Child::Hangs, Child::Vanishes][dice.random_range(0..4)];
            let later = Duration::from_millis(dice.random_range(500..20_000));
            job.kind = *kinds.entry(job.name.clone()).or_insert(kind);
            if job.kind == JobKind::AppWrapper {
                job.child = child;
                if child == Child::Vanishes {
                    deletions.push((*at + later, Act::DeleteChildren(job.name.clone())));
                }
            }
            // Why: pods that join a group that is just ending wait for ever.
            if job.kind == JobKind::Pod && again.contains(&job.name) {
                job.pods = 1;
            }
        }
    }
    // Why: deleting the Workload of a pod deletes the pod. A user may want that, but the auditors would count the pod as lost.
    acts.retain(|(_, act)| !matches!(act, Act::DeleteWorkload(of) if kinds.get(of) == Some(&JobKind::Pod)));
    acts.append(&mut deletions);
    acts.sort_by_key(|(at, _)| *at);
}

/// The names under which several jobs are submitted, one after the other.
fn handed_in_again(acts: &[(Duration, Act)]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let submitted = acts.iter().filter_map(|(_, act)| {
        if let Act::Submit(job) = act {
            Some(job.name.clone())
        } else {
            None
        }
    });
    submitted.filter(|name| !names.insert(name.clone())).collect()
}

/// Largest error of a clock's rate, in millionths. The rates of two clocks then differ by less than a tenth.
const DRIFT_MAX: i64 = 45_000;

fn skew(dice: &mut ChaCha8Rng) -> Skew {
    match dice.random_range(0..4) {
        0 => Skew {
            millis: dice.random_range(-90_000..=90_000),
            ppm: dice.random_range(-DRIFT_MAX..=DRIFT_MAX),
        },
        1 => Skew {
            millis: dice.random_range(-900..=900),
            ppm: dice.random_range(-200..=200),
        },
        _ => Skew::default(),
    }
}

fn acts(dice: &mut ChaCha8Rng) -> Vec<(Duration, Act)> {
    let mut acts = Vec::new();
    let rush = u64::try_from(RUSH.as_millis()).unwrap_or(u64::MAX);
    for number in 1..=dice.random_range(3..=12) {
        let at = OPENING + Duration::from_millis(dice.random_range(0..rush));
        let name = format!("job-{number}");
        let job = JobPlan {
            pods: dice.random_range(1..=2),
            // Why 100: no queue has that many. Such a job must wait with a reason and must not block others.
            cpus: if dice.random_ratio(1, 12) {
                100
            } else {
                dice.random_range(1..=2)
            },
            secs: [1, 5, 20, 45][dice.random_range(0..4)],
            fails: dice.random_ratio(1, 8),
            vanishes: dice.random_ratio(1, 6),
            urgent: dice.random_ratio(1, 3),
            ..JobPlan::plain(&name, 0)
        };
        acts.push((at, Act::Submit(job)));
        let mut later = || at + Duration::from_millis(dice.random_range(1..rush));
        let (one, two) = (later(), later());
        match dice.random_range(0..8) {
            0 => acts.push((one, Act::Delete(name))),
            1 => acts.push((one, Act::Deactivate(name))),
            2 => {
                acts.push((one.min(two), Act::Deactivate(name.clone())));
                acts.push((one.max(two), Act::Activate(name)));
            }
            _ => {}
        }
    }
    acts.sort_by_key(|(at, _)| *at);
    acts
}
