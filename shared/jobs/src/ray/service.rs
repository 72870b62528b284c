//! `RayService`: Ray clusters, one of which serves requests. *Source*: `spec/jobs.md 9.8`.
//!
//! The operator (seen with `KubeRay` 1.6) never resumes a cluster that it has created while its service was suspended: it first waits for
//! the head of that cluster. So such a cluster is deleted once the service runs, and the operator creates it again.

use roadstead_kinds::rows;

use super::{head, head_of, rules, workers_of};
use crate::by_path::signs::Sign;
use crate::by_path::{ByPath, Path, Rules, queued};
use crate::json;
use crate::kind::Member;
use crate::problem::Problem;

const CLUSTER: Path = &["spec", "rayClusterConfig"];
const SUSPEND: Path = &["spec", "rayClusterConfig", "suspend"];
const READY: &str = "Ready";

/// The kind `ray.io/v1 RayService`: it serves until it is deleted.
pub static RAY_SERVICE: ByPath = ByPath {
    row: &rows::RAY_SERVICE,
    suspend: SUSPEND,
    pod_sets: &[
        head_of(&["spec", "rayClusterConfig", "headGroupSpec"]),
        workers_of(&["spec", "rayClusterConfig", "workerGroupSpecs"]),
    ],
    active: Sign::ConditionUnheld {
        kind: READY,
        held: SUSPEND,
    },
    ready: Sign::Condition(READY),
    ends: None,
    spare: None,
    time_to_live: None,
    priority_class: None,
    followed: &[&["spec", "serveConfigV2"]],
    rules: Rules {
        is_queued,
        outlives: |service, cluster| {
            !json::is_true(service.data, SUSPEND) && json::is_true(cluster.data, &["spec", "suspend"])
        },
        added: |service, pod_sets| head::add(service, CLUSTER, pod_sets),
        create: |service| queued::create(service, problems),
        update: |old, new| queued::update(old, new, problems),
        ..Rules::NONE
    },
};

/// A service that is being deleted stays admitted: the operator first runs a job that cleans up a Redis.
fn is_queued(service: Member<'_>) -> bool {
    service.meta.deletion_timestamp.is_none() || !head::is_tolerant(service, CLUSTER)
}

fn problems(service: Member<'_>) -> Vec<Problem> {
    rules::of_cluster(rows::RAY_SERVICE.kind, service, CLUSTER, rules::GROUPS_MAX)
}
