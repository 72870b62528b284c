//! `StatefulSet`: all its pods are one group. *Source*: `spec/jobs.md 9.12`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::constants::{annotations, labels, names};
use roadstead_kinds::rows;

use super::{Groups, Mark, Parent, TEMPLATE, controlled_by, fixed, number, pod_set, same_shape};
use crate::by_path::Path;
use crate::json;
use crate::kind::Member;
use crate::naming::workload_name;
use crate::problem::Problem;

const REPLICAS: Path = &["spec", "replicas"];
const STATUS_REPLICAS: Path = &["status", "replicas"];

/// The kind `apps/v1 StatefulSet`.
pub static STATEFUL_SET: Parent = Parent {
    row: &rows::STATEFUL_SET,
    templates: &[TEMPLATE],
    noted: |_object, _template| {},
    pod_sets: |set| {
        let number = number(set, REPLICAS)?;
        Ok(vec![pod_set(set, TEMPLATE, names::MAIN_POD_SET, number)?])
    },
    groups: Some(Groups {
        parent_of: |pod| controlled_by(pod, rows::STATEFUL_SET.kind),
        mark,
    }),
    maker_of: |_pod| None,
    create: |_set| Vec::new(),
    update,
};

fn mark(set: Member<'_>, _pod: &ObjectMeta) -> Option<Mark> {
    let id = set.id();
    let row = &rows::STATEFUL_SET;
    let total = number(set.data, REPLICAS).ok().filter(|total| *total > 0)?;
    Some(Mark {
        group: workload_name(row.kind, row.group, &id.name, &id.uid, ""),
        total,
        role: names::MAIN_POD_SET,
        index: None,
        notes: &[
            (annotations::POD_GROUP_FAST_ADMISSION, labels::TRUE),
            (annotations::POD_GROUP_SERVING, labels::TRUE),
            (
                annotations::POD_GROUP_POD_INDEX_LABEL,
                "apps.kubernetes.io/pod-index",
            ),
        ],
    })
}

fn update(old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
    let [before, after] = [old, new].map(|set| number(set.data, REPLICAS).unwrap_or(1));
    let mut problems: Vec<Problem> = same_shape(old, new, TEMPLATE).into_iter().collect();
    if before != 0 && after != 0 {
        problems.extend(fixed(old, new, REPLICAS).filter(|_| before != after));
    }
    let left = json::int(old.data, STATUS_REPLICAS).unwrap_or(0);
    if before == 0 && after != 0 && left > 0 {
        problems.push(Problem::forbidden(
            REPLICAS.join("."),
            "scaling down is still in progress",
        ));
    }
    problems
}
