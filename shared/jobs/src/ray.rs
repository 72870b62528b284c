//! `RayCluster`. *Source*: `spec/jobs.md 9.6`, `spec/multikueue.md 5`.

mod head;
mod rules;

use roadstead_kinds::rows;

use crate::by_path::places::{At, PodSets, Pods};
use crate::by_path::signs::Sign;
use crate::by_path::{ByPath, Rules};

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
        added: head::add,
        create: rules::create,
        update: rules::update,
        ..Rules::NONE
    },
};

#[cfg(test)]
mod tests;
