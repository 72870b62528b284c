//! `RayCluster` and `RayJob`. *Source*: `spec/jobs.md 9.6, 9.7`, `spec/multikueue.md 5`.

mod head;
mod job;
mod rules;

use roadstead_kinds::rows;

use crate::by_path::places::{At, PodSets, Pods};
use crate::by_path::signs::Sign;
use crate::by_path::{ByPath, Path, Rules};
use crate::kind::Member;
use crate::problem::Problem;

pub use job::RAY_JOB;

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
        PodSets {
            at: At::One {
                field: &["spec", "headGroupSpec"],
                name: head::NAME,
            },
            template: &["template"],
            pods: Pods::One,
        },
        PodSets {
            at: At::Each {
                list: &["spec", "workerGroupSpecs"],
                name: "groupName",
            },
            template: &["template"],
            pods: Pods::ReplicasOf {
                replicas: &["replicas"],
                pods: &["numOfHosts"],
            },
        },
    ],
    active: UP,
    ready: UP,
    ends: None,
    spare: None,
    time_to_live: None,
    priority_class: None,
    rules: Rules {
        added: |cluster, pod_sets| head::add(cluster, SPEC, pod_sets),
        create: |cluster| rules::create(cluster, problems),
        update: |old, new| rules::update(old, new, problems),
        ..Rules::NONE
    },
};

const SPEC: Path = &["spec"];

fn problems(cluster: Member<'_>) -> Vec<Problem> {
    rules::of_cluster(rows::RAY_CLUSTER.kind, cluster, SPEC, rules::GROUPS_MAX)
}

#[cfg(test)]
mod tests;
