//! `LeaderWorkerSet`: each of its replicas is a group, with a leader and workers. *Source*: `spec/jobs.md 9.13`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::constants::{annotations, labels, names};
use roadstead_kinds::rows;
use serde_json::{Value, json};

use super::{Groups, Mark, Parent, fixed, number, pod_set, same_shape};
use crate::by_path::Path;
use crate::json;
use crate::kind::{Error, Maker, Member};
use crate::labels::{annotation, label};
use crate::naming::workload_name;
use crate::podset::JobPodSet;
use crate::problem::Problem;

const LEADER: Path = &["spec", "leaderWorkerTemplate", "leaderTemplate"];
const WORKER: Path = &["spec", "leaderWorkerTemplate", "workerTemplate"];
const SIZE: Path = &["spec", "leaderWorkerTemplate", "size"];
const REPLICAS: Path = &["spec", "replicas"];
/// The largest number of replicas of a set. *Source*: `spec/jobs.md 9.13`.
const REPLICAS_MAX: i64 = 1_000_000;

/// Label of all its pods: the name of the set.
const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// Annotation of its pods that are not leaders: the name of their leader.
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
/// Label of its pods: the index of their replica. A leader may get it after the webhook has seen it.
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";

/// Label of its pods: the version of the templates that they were made from.
const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";

const ROLE_OF_LEADER: &str = "leader";
const ROLE_OF_WORKER: &str = "worker";

/// The kind `leaderworkerset.x-k8s.io/v1 LeaderWorkerSet`.
pub static LEADER_WORKER_SET: Parent = Parent {
    row: &rows::LEADER_WORKER_SET,
    templates: &[LEADER, WORKER],
    noted,
    pod_sets,
    groups: Some(Groups {
        parent_of: |pod| label(pod, NAME),
        mark,
    }),
    maker_of: |pod| {
        let name = label(pod, NAME)?;
        let revision = label(pod, REVISION).unwrap_or_default();
        Some(Maker { name, revision })
    },
    create: replicas,
    update: |old, new| {
        let shapes = [LEADER, WORKER].map(|template| same_shape(old, new, template));
        let mut problems: Vec<Problem> = shapes.into_iter().flatten().collect();
        problems.extend(fixed(old, new, SIZE));
        problems.extend(replicas(new));
        problems
    },
};

fn has_leader(set: &Value) -> bool {
    json::at(set, LEADER).is_some()
}

fn noted(set: &mut Value, template: Path) {
    let note = |key: &'static str| [template, &["metadata", "annotations", key]].concat();
    // Why here too: it must hold from the first pod on, whichever that is.
    json::set(set, &note(annotations::POD_GROUP_SERVING), json!(labels::TRUE));
    let grouped = json::at(set, &note(annotations::PODSET_GROUP_NAME)).is_some();
    if template == WORKER && has_leader(set) && !grouped {
        json::set(set, &note(annotations::POD_INDEX_OFFSET), json!("1"));
    }
}

fn pod_sets(set: &Value) -> Result<Vec<JobPodSet>, Error> {
    let size = number(set, SIZE)?;
    if !has_leader(set) {
        return Ok(vec![pod_set(set, WORKER, names::MAIN_POD_SET, size)?]);
    }
    let leader = pod_set(set, LEADER, ROLE_OF_LEADER, 1)?;
    let workers = size.saturating_sub(1);
    let others = (workers > 0).then(|| pod_set(set, WORKER, ROLE_OF_WORKER, workers));
    Ok([leader].into_iter().chain(others.transpose()?).collect())
}

fn mark(set: Member<'_>, pod: &ObjectMeta) -> Option<Mark> {
    let id = set.id();
    let row = &rows::LEADER_WORKER_SET;
    let is_leader = annotation(pod, LEADER_NAME).is_none();
    let own = || pod.name.as_deref()?.rsplit('-').next();
    let index = label(pod, GROUP_INDEX).or_else(own)?.parse::<u32>().ok()?;
    let replica = format!("{}-{index}", id.name);
    Some(Mark {
        group: workload_name(row.kind, row.group, &replica, &id.uid, ""),
        total: number(set.data, SIZE).ok().filter(|total| *total > 0)?,
        role: match (has_leader(set.data), is_leader) {
            (false, _) => names::MAIN_POD_SET,
            (true, true) => ROLE_OF_LEADER,
            (true, false) => ROLE_OF_WORKER,
        },
        index: Some(index),
        notes: &[(annotations::POD_GROUP_SERVING, labels::TRUE)],
    })
}

fn replicas(set: Member<'_>) -> Vec<Problem> {
    let wanted = json::int(set.data, REPLICAS).unwrap_or(1);
    let is_wrong = !(0..=REPLICAS_MAX).contains(&wanted);
    let text = format!("must be a number from 0 to {REPLICAS_MAX}");
    let problem = || Problem::invalid(REPLICAS.join("."), text).of(&wanted.to_string());
    is_wrong.then(problem).into_iter().collect()
}
