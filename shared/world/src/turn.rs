//! The loop: read, decide and write until nothing is due; then wait for a change or for the next due time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::act::{Outcome, act};
use crate::action::{Action, Plan};
use crate::cluster::{Cluster, Parts};
use crate::{
    Capacity, Clock, Jobs, Kind, World, capacity, job, jobset, node, place, play, ray, sooner, torch,
};

/// Pause after a turn in which a write was refused: its object has changed, and the watch will bring the change. Each such
/// turn in a row doubles the pause.
const REFUSED: Duration = Duration::from_millis(50);
const REFUSED_MAX: Duration = Duration::from_secs(5);
/// Longest wait. Why a limit: a simulation may set its clock, and then a far-off timer would fire too late.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// Plays the world in a cluster until `stop`. `client` needs the rights of a Job controller, a scheduler and kubelets.
/// Definitions may come later. After lost connections, conflicts and refusals the loop lists or decides again.
pub async fn run(world: World, client: Client, clock: Clock, stop: CancellationToken) {
    let mut ticks = interval(world.garbage.as_ref().map_or(WAIT_MAX, |garbage| garbage.every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut player = Player::new(world, client);
    let mut wake = Instant::now() + WAIT_MAX;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = player.cluster.next(player.parts) => {}
            () = sleep_until(wake) => {}
            _ = ticks.tick() => {
                if let Some(garbage) = &player.world.garbage {
                    (garbage.collect)();
                }
                continue;
            }
        }
        wake = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            wake = player.turn(&clock) => wake,
        };
    }
}

struct Player {
    world: World,
    client: Client,
    cluster: Cluster,
    parts: Parts,
    /// Names of the nodes that are played.
    played: BTreeSet<String>,
    /// Nodes that existed once.
    registered: BTreeSet<String>,
    /// When pods started, by UID.
    started: BTreeMap<String, Timestamp>,
    /// The pause after the next turn with a refusal.
    pause: Duration,
}

/// The parts of a world, in the order in which they get their turn.
#[derive(Debug, Clone, Copy)]
enum Part {
    Nodes,
    JobSets,
    PyTorchJobs,
    RayJobs,
    Jobs,
    Place,
    Play,
    Capacity,
}

const PARTS: [Part; 8] = [
    Part::Nodes,
    Part::JobSets,
    Part::PyTorchJobs,
    Part::RayJobs,
    Part::Jobs,
    Part::Place,
    Part::Play,
    Part::Capacity,
];

impl Player {
    fn new(world: World, client: Client) -> Self {
        let (own_jobs, nodes) = (world.jobs == Jobs::Played, !world.nodes.is_empty());
        let plays = |kind| world.kinds.contains(&kind);
        let (job_sets, torch_jobs) = (plays(Kind::JobSet), plays(Kind::PyTorchJob));
        let ray_jobs = plays(Kind::RayJob);
        let jobs = own_jobs || job_sets || ray_jobs;
        let capacity = world.capacity != Capacity::LeftAlone;
        Self {
            cluster: Cluster::new(&client),
            parts: Parts {
                jobs,
                job_sets,
                torch_jobs,
                ray_jobs,
                pods: own_jobs || torch_jobs || ray_jobs || nodes || capacity,
                nodes: nodes || capacity,
                capacity,
            },
            played: world.nodes.iter().map(|node| node.name.clone()).collect(),
            registered: BTreeSet::new(),
            started: BTreeMap::new(),
            pause: REFUSED,
            world,
            client,
        }
    }

    /// Writes until nothing is due or a write is refused. Returns when to decide again without a change.
    async fn turn(&mut self, clock: &Clock) -> Instant {
        loop {
            let mut due = None;
            let (mut wrote, mut refused) = (false, false);
            for part in PARTS {
                let now = clock();
                let plan = self.decide(part, now);
                due = sooner(due, plan.due);
                for action in plan.actions {
                    self.note(&action, now);
                    match act(&self.client, &mut self.cluster, action).await {
                        Outcome::Done => wrote = true,
                        Outcome::Refused => refused = true,
                    }
                }
            }
            // Why a pause: until the watch brings the change, the same write would be refused again.
            if refused {
                let pause = self.pause;
                self.pause = (pause * 2).min(REFUSED_MAX);
                return Instant::now() + pause;
            }
            self.pause = REFUSED;
            if !wrote {
                return Instant::now() + wait(due, clock());
            }
        }
    }

    fn decide(&self, part: Part, now: Timestamp) -> Plan {
        let Cluster {
            jobs,
            job_sets,
            torch_jobs,
            ray_jobs,
            pods,
            nodes,
            templates,
            requests,
        } = &self.cluster;
        let actions = |actions| Plan { actions, due: None };
        match part {
            Part::JobSets if self.parts.job_sets && job_sets.is_live() && jobs.is_live() => {
                jobset::decide(&job_sets.all(), &jobs.all(), now)
            }
            Part::PyTorchJobs if self.parts.torch_jobs && torch_jobs.is_live() && pods.is_live() => {
                torch::decide(&torch_jobs.all(), &pods.all(), now)
            }
            Part::RayJobs
                if self.parts.ray_jobs && ray_jobs.is_live() && jobs.is_live() && pods.is_live() =>
            {
                ray::decide(&ray_jobs.all(), &jobs.all(), &pods.all(), now)
            }
            Part::Jobs if self.world.jobs == Jobs::Played && jobs.is_live() && pods.is_live() => {
                job::decide(&jobs.all(), &pods.all(), now)
            }
            Part::Nodes if !self.played.is_empty() && nodes.is_live() => actions(node::decide(
                &self.world.nodes,
                &self.registered,
                &nodes.all(),
                now,
            )),
            Part::Place if !self.played.is_empty() && nodes.is_live() && pods.is_live() => {
                actions(place::decide(&nodes.all(), &pods.all(), now))
            }
            Part::Play if !self.played.is_empty() && nodes.is_live() && pods.is_live() => {
                let there = nodes.all().iter().map(|node| node.name_any()).collect();
                let rules = play::Rules {
                    nodes: &self.played.intersection(&there).cloned().collect(),
                    seed: self.world.seed,
                    start_max: self.world.pod_start_max.try_into().unwrap_or_default(),
                    started: &self.started,
                };
                play::decide(&pods.all(), &rules, now)
            }
            Part::Capacity
                if [
                    templates.is_live(),
                    requests.is_live(),
                    nodes.is_live(),
                    pods.is_live(),
                ]
                .iter()
                .all(|live| *live) =>
            {
                let Capacity::Answered(policy) = &self.world.capacity else {
                    return Plan::default();
                };
                let cluster = capacity::Cluster {
                    requests: requests.all(),
                    templates: capacity::by_name(templates.all()),
                    nodes: nodes.all(),
                    pods: pods.all(),
                };
                let capacity::Verdicts { answers, due } = capacity::decide(&cluster, policy, now);
                let answers = answers.into_iter().map(|answer| Action::Answer(Box::new(answer)));
                Plan {
                    actions: answers.collect(),
                    due,
                }
            }
            Part::JobSets
            | Part::PyTorchJobs
            | Part::RayJobs
            | Part::Jobs
            | Part::Nodes
            | Part::Place
            | Part::Play
            | Part::Capacity => Plan::default(),
        }
    }

    /// Remembers facts that the API does not store: exact start times, and nodes that existed.
    fn note(&mut self, action: &Action, now: Timestamp) {
        match action {
            Action::CreateNode(node) => {
                self.registered.insert(node.name_any());
            }
            Action::PodStatus(pod, status) if status.phase.as_deref() == Some("Running") => {
                self.started.insert(pod.uid().unwrap_or_default(), now);
            }
            Action::RemovePod(pod) | Action::PodStatus(pod, _) => {
                self.started.remove(&pod.uid().unwrap_or_default());
            }
            Action::CreatePod(_)
            | Action::ReleasePod(_)
            | Action::DeletePod(_)
            | Action::DropPod(_)
            | Action::BindPod(..)
            | Action::CreateJob(_)
            | Action::JobSpec(_)
            | Action::JobSetStatus(..)
            | Action::PyTorchJobStatus(..)
            | Action::RayJobStatus(..)
            | Action::JobStatus(..)
            | Action::DeleteJob(_)
            | Action::NodeStatus(_)
            | Action::Answer(_) => {}
        }
    }
}

/// The time until `due`, rounded up.
fn wait(due: Option<Timestamp>, now: Timestamp) -> Duration {
    let left = due.map(|due| due.duration_since(now).max(SignedDuration::ZERO));
    let left = left.and_then(|left| left.checked_add(SignedDuration::from_millis(1)));
    left.and_then(|left| Duration::try_from(left).ok())
        .map_or(WAIT_MAX, |left| left.min(WAIT_MAX))
}
