//! The place of a Workload in the line of its ClusterQueue, in the order of the engine.
//!
//! *Limits*: the order is that of the default of setting `waitForPodsReady.requeuingStrategy.timestamp`, because users cannot read the
//! settings of the manager.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::pending::{AgeRule, Turn};
use roadstead_jobs::labels::controller;

/// A Workload behind others in a queue that tries only the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The job that is tried first: its kind and name, else the name of its Workload.
    pub head: String,
    /// The namespace of that job.
    pub namespace: String,
    /// The ClusterQueue.
    pub queue: String,
    /// The place of the Workload, from 1.
    pub position: usize,
}

/// The place of the Workload `asked` in the line of its ClusterQueue `queue`; `None` if it does not wait in line, or is the first.
///
/// `all` are Workloads of any queue. `locals` are the LocalQueues of the ClusterQueue, by namespace and name.
///
/// *Source*: `spec/admission-engine.md 1.1, 1.2`.
pub fn line(
    all: &[Workload],
    locals: &BTreeSet<(String, String)>,
    asked: &Workload,
    queue: &str,
    now: Timestamp,
) -> Option<Line> {
    let turn = |workload: &Workload| {
        let named = workload.spec.queue_name.clone().unwrap_or_default();
        if !locals.contains(&(workload.namespace().unwrap_or_default(), named)) {
            return None;
        }
        let core = crate::workload(workload);
        let waits = core.may_queue() && !core.has_quota() && !core.is_finished() && !core.in_backoff(now);
        waits.then(|| Turn::of(&core, AgeRule::default()))
    };
    let mut line: Vec<_> = { all.iter() }
        .filter_map(|workload| Some((turn(workload)?, workload)))
        .collect();
    line.sort_by(|(one, _), (other, _)| one.cmp(other));
    let at = { line.iter() }.position(|(_, workload)| workload.uid() == asked.uid())?;
    let (_, first) = line.first().filter(|_| at > 0)?;
    let owner = controller(&first.metadata);
    Some(Line {
        head: owner.map_or_else(
            || format!("workload {}", first.name_any()),
            |owner| format!("{} {}", owner.kind.to_lowercase(), owner.name),
        ),
        namespace: first.namespace().unwrap_or_default(),
        queue: queue.to_owned(),
        position: at + 1,
    })
}

#[cfg(test)]
mod tests {
    use roadstead_api::constants::annotations::ADMISSION_GATED_BY;
    use serde_json::json;

    use super::*;

    fn workload(name: &str, queue: &str, second: u32, conditions: &[(&str, &str)]) -> Workload {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status)| {
                json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": format!("job-{name}"), "namespace": "team", "uid": name,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": true}]},
            "spec": {"queueName": queue, "podSets": []}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// Spec: experience 5; admission-engine 1.2
    #[test]
    fn the_line_is_that_of_the_engine_and_its_first_member_is_told_nothing() {
        let mut gated = workload("gated", "main", 3, &[]);
        gated
            .annotations_mut()
            .insert(ADMISSION_GATED_BY.to_owned(), "example.com/gate".to_owned());
        let all = [
            workload("running", "main", 0, &[("QuotaReserved", "True")]),
            workload("over", "main", 1, &[("Finished", "True")]),
            workload("held", "main", 2, &[("Requeued", "False")]),
            gated,
            workload("elsewhere", "other", 3, &[]),
            workload("third", "main", 6, &[]),
            workload("second", "more", 5, &[]),
            workload("first", "main", 4, &[("QuotaReserved", "False")]),
        ];
        let locals = ["main", "more"]
            .map(|name| ("team".to_owned(), name.to_owned()))
            .into();
        let before = |name: &str| {
            let asked = all
                .iter()
                .find(|workload| workload.uid().as_deref() == Some(name));
            line(&all, &locals, asked.unwrap(), "pool", Timestamp::UNIX_EPOCH)
        };
        let third = before("third").unwrap();
        assert_eq!((third.head.as_str(), third.position), ("job first", 3));
        assert_eq!(before("second").unwrap().position, 2);
        assert_eq!(before("first"), None);
        assert_eq!(before("elsewhere"), None);
    }
}
