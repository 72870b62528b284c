//! Rounds over several queues, preemption, and what the order of served heads depends on.

use super::Decision;
use crate::condition::Truth;
use crate::queue::{ClusterQueue, Reclaim, Strategy, WithinClusterQueue};
use crate::reason::Reason;
use crate::rules::{PreemptionRules, Rules, Switch};
use crate::state::fixtures::{World, cores};
use crate::state::{Settings, State};

mod blocking;
mod claims;
mod classes;
mod cohorts;
mod order;
mod past_usage;
mod preemption;

/// A world of these queues, without those that [`World::new`] brings.
fn world(queues: Vec<ClusterQueue>) -> World {
    world_with(Settings::default(), queues)
}

fn world_with(settings: Settings, queues: Vec<ClusterQueue>) -> World {
    let mut world = World::new(cores(0));
    let old = std::mem::replace(&mut world.state, State::new(settings));
    for (name, labels) in old.namespaces {
        world.tell(crate::state::Event::Namespace { name, labels });
    }
    for flavor in old.flavors.into_values() {
        world.tell(crate::state::Event::Flavor(flavor));
    }
    world.tell(crate::state::Event::Synced);
    for queue in queues {
        world.add_queue(queue);
    }
    world
}

fn ruled(rules: Rules) -> Settings {
    Settings {
        rules,
        ..Settings::default()
    }
}

fn fair() -> Settings {
    ruled(Rules {
        preemption: PreemptionRules::fair_sharing(),
        ..Rules::default()
    })
}

fn within(mut queue: ClusterQueue, policy: WithinClusterQueue) -> ClusterQueue {
    queue.preemption.within_cluster_queue = policy;
    queue
}

fn reclaiming(mut queue: ClusterQueue, policy: Reclaim) -> ClusterQueue {
    queue.preemption.reclaim_within_cohort = policy;
    queue
}

fn strict(mut queue: ClusterQueue) -> ClusterQueue {
    queue.strategy = Strategy::StrictFifo;
    queue
}

/// One round of the tree of a queue, as lines; nothing is written.
fn round(world: &mut World, queue: &str) -> Vec<String> {
    let id = world.state.clusters.id(&queue.into()).unwrap();
    let mut decisions = Vec::new();
    world.state.round(id, world.now, &mut decisions);
    decisions.iter().map(line).collect()
}

fn line(decision: &Decision) -> String {
    match decision {
        Decision::Reserve { key, .. } => format!("{}: reserved", key.name),
        Decision::NotAdmitted { key, reason, .. } => {
            format!("{}: {} {reason}", key.name, reason.word().as_str())
        }
        Decision::Preempt {
            key,
            reason,
            preemptor,
            ..
        } => format!("{}: {} for {}", key.name, reason.as_str(), preemptor.name),
    }
}

fn no_longer(name: &str) -> String {
    format!("{name}: WaitingForQuota {}", Reason::NoLongerFits)
}

fn ready(world: &mut World, name: &str, truth: Truth) {
    world.edit(name, |w| {
        w.status
            .conditions
            .set("PodsReady", truth, "x", "", crate::state::fixtures::at(1));
    });
}

const OFF: Switch = Switch::Off;
