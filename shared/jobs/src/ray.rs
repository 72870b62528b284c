//! `RayCluster`, `RayJob` and `RayService`. *Source*: `spec/jobs.md 9.6 to 9.8`, `spec/multikueue.md 5`.

mod head;
mod job;
mod rules;
mod service;

use roadstead_kinds::rows;

use crate::by_path::places::{At, PodSets, Pods};
use crate::by_path::signs::Sign;
use crate::by_path::{ByPath, Path, Rules, queued};
use crate::kind::Member;
use crate::problem::Problem;

pub use job::RAY_JOB;
pub use service::RAY_SERVICE;

/// The head of a Ray cluster; `field` is the path of its group.
const fn head_of(field: Path) -> PodSets {
    PodSets {
        at: At::One {
            field,
            name: head::NAME,
        },
        template: &["template"],
        pods: Pods::One,
    }
}

/// The worker groups of a Ray cluster; `list` is their path.
const fn workers_of(list: Path) -> PodSets {
    PodSets {
        at: At::Each {
            list,
            name: "groupName",
        },
        template: &["template"],
        pods: Pods::ReplicasOf {
            replicas: &["replicas"],
            pods: &["numOfHosts"],
        },
    }
}

const UP: Sign = Sign::Word {
    field: &["status", "state"],
    is: "ready",
    without: "suspended",
};

/// The kind `ray.io/v1 RayCluster`: it runs until it is deleted.
pub static RAY_CLUSTER: ByPath = ByPath {
    row: &rows::RAY_CLUSTER,
    suspend: &["spec", "suspend"],
    pod_sets: &[
        head_of(&["spec", "headGroupSpec"]),
        workers_of(&["spec", "workerGroupSpecs"]),
    ],
    active: UP,
    ready: UP,
    ends: None,
    spare: None,
    time_to_live: None,
    priority_class: None,
    followed: &[],
    rules: Rules {
        added: |cluster, pod_sets| head::add(cluster, SPEC, pod_sets),
        create: |cluster| queued::create(cluster, problems),
        update: |old, new| queued::update(old, new, problems),
        ..Rules::NONE
    },
};

const SPEC: Path = &["spec"];

fn problems(cluster: Member<'_>) -> Vec<Problem> {
    rules::of_cluster(rows::RAY_CLUSTER.kind, cluster, SPEC, rules::GROUPS_MAX)
}

#[cfg(test)]
mod tests;
