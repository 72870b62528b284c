//! What is refused of a `RayCluster` that a queue holds. *Source*: `spec/jobs.md 9.6`.

use super::head;
use crate::json;
use crate::kind::Member;
use crate::labels::queue;
use crate::problem::Problem;

const GROUPS: [&str; 2] = ["spec", "workerGroupSpecs"];
/// Worker groups beside the head. *Source*: `spec/jobs.md 2.3`.
const GROUPS_MAX: usize = 17;

pub(super) fn create(cluster: Member<'_>) -> Vec<Problem> {
    if queue(cluster.meta).is_some() {
        problems(cluster)
    } else {
        Vec::new()
    }
}

/// Why also when only the old one has a queue: taking the label away must not be a way around the rules.
pub(super) fn update(old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
    if queue(old.meta).or_else(|| queue(new.meta)).is_some() {
        problems(new)
    } else {
        Vec::new()
    }
}

fn problems(cluster: Member<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if json::is_true(cluster.data, &["spec", "enableInTreeAutoscaling"]) {
        // Unlike the anchor: elastic jobs are not built, so no cluster of a queue can scale itself.
        let text = "a kueue-managed RayCluster can use autoscaling only as an elastic job: elastic jobs are not supported here, \
                    set it to false";
        problems.push(Problem::invalid("spec.enableInTreeAutoscaling", text).of("true"));
    }
    let groups = json::list(cluster.data, &GROUPS);
    if groups.len() > GROUPS_MAX {
        problems.push(Problem::too_many(GROUPS.join("."), groups.len(), GROUPS_MAX));
    }
    let named_head = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| json::text(group, &["groupName"]) == Some(head::NAME));
    problems.extend(named_head.map(|(at, _)| {
        let field = format!("{}[{at}].groupName", GROUPS.join("."));
        Problem::forbidden(field, "\"head\" is reserved for the head group")
    }));
    problems
}
