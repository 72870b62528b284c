//! Rules for Ray clusters of a queue. *Source*: `spec/jobs.md 9.6, 9.7`.

use super::head;
use crate::by_path::Path;
use crate::json;
use crate::kind::Member;
use crate::problem::Problem;

/// The largest number of worker groups beside the head. *Source*: `spec/jobs.md 2.3`.
pub(super) const GROUPS_MAX: usize = 17;

/// The problems of the cluster at path `spec` of an object, which may have `groups_max` worker groups.
pub(super) fn of_cluster(kind: &str, object: Member<'_>, spec: Path, groups_max: usize) -> Vec<Problem> {
    let at = |field: &str| format!("{}.{field}", spec.join("."));
    let Some(cluster) = json::at(object.data, spec) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    if json::is_true(cluster, &["enableInTreeAutoscaling"]) {
        // Unlike the anchor: elastic jobs are not built, so no cluster of a queue can scale itself.
        let text = format!(
            "a kueue-managed {kind} can use autoscaling only as an elastic job: elastic jobs are not supported here, set it to \
             false"
        );
        problems.push(Problem::invalid(at("enableInTreeAutoscaling"), text).of("true"));
    }
    let groups = json::list(cluster, &["workerGroupSpecs"]);
    if groups.len() > groups_max {
        problems.push(Problem::too_many(
            at("workerGroupSpecs"),
            groups.len(),
            groups_max,
        ));
    }
    let named_head = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| json::text(group, &["groupName"]) == Some(head::NAME));
    problems.extend(named_head.map(|(index, _)| {
        let field = format!("{}[{index}].groupName", at("workerGroupSpecs"));
        Problem::forbidden(field, "\"head\" is reserved for the head group")
    }));
    problems
}
