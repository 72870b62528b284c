//! The place of a Workload in the line of its ClusterQueue.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Debug;

use kube::{Api, Client, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, QueueingStrategy, Workload};
use roadstead_core::pending::AgeRule;
use serde::de::DeserializeOwned;

use crate::objects;

/// A Workload behind others in a queue that tries only the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The job that is tried first: its kind and name, else the name of its Workload.
    pub(super) head: String,
    /// The namespace of that job.
    pub(super) namespace: String,
    /// The ClusterQueue.
    pub(super) queue: String,
    /// The place of the Workload, from 1.
    pub(super) position: usize,
}

/// Reads the line before a Workload. `None` if it is the first, if its queue has another strategy, or if the user may not read
/// the Workloads before it.
pub(super) async fn read(client: &Client, workload: &Workload) -> Option<Line> {
    let namespace = workload.namespace()?;
    let named = workload.spec.queue_name.as_deref()?;
    let local = Api::<LocalQueue>::namespaced(client.clone(), &namespace);
    let queue = local.get_opt(named).await.ok()??.spec.cluster_queue;
    let found = Api::<ClusterQueue>::all(client.clone())
        .get_opt(&queue)
        .await
        .ok()??;
    if found.spec.queueing_strategy != QueueingStrategy::StrictFifo {
        return None;
    }
    let locals = all::<LocalQueue>(client).await?.into_iter();
    let locals: BTreeSet<(String, String)> = locals
        .filter(|local| local.spec.cluster_queue == queue)
        .filter_map(|local| Some((local.namespace()?, local.name_any())))
        .collect();
    place(&all(client).await?, &locals, workload, &queue)
}

async fn all<K>(client: &Client) -> Option<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    objects::all(&Api::all(client.clone()), None, |_| true).await.ok()
}

/// The order is the engine's. *Source*: `spec/admission-engine.md 1.2`.
fn place(
    all: &[Workload],
    locals: &BTreeSet<(String, String)>,
    asked: &Workload,
    queue: &str,
) -> Option<Line> {
    let waits = |workload: &&Workload| {
        let is = |kind: &str, status: &str| workload.condition(kind).is_some_and(|c| c.status == status);
        let name = workload.spec.queue_name.clone().unwrap_or_default();
        locals.contains(&(workload.namespace().unwrap_or_default(), name))
            && workload.is_active()
            && !is("Finished", "True")
            && !is("QuotaReserved", "True")
            && !is("Requeued", "False")
    };
    let mut line: Vec<_> = { all.iter().filter(waits) }
        .map(|workload| {
            let core = roadstead_convert::workload(workload);
            let since = AgeRule::default().queue_time(&core);
            ((Reverse(core.effective_priority()), since, core.uid), workload)
        })
        .collect();
    line.sort_by(|(one, _), (other, _)| one.cmp(other));
    let at = line
        .iter()
        .position(|(_, workload)| workload.uid() == asked.uid())?;
    let (_, first) = line.first().filter(|_| at > 0)?;
    let owners = first.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
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
        let all = [
            workload("running", "main", 0, &[("QuotaReserved", "True")]),
            workload("over", "main", 1, &[("Finished", "True")]),
            workload("held", "main", 2, &[("Requeued", "False")]),
            workload("elsewhere", "other", 3, &[]),
            workload("third", "main", 6, &[]),
            workload("second", "more", 5, &[]),
            workload("first", "main", 4, &[("QuotaReserved", "False")]),
        ];
        let locals = ["main", "more"]
            .map(|name| ("team".to_owned(), name.to_owned()))
            .into();
        let line = |name: &str| {
            let asked = all
                .iter()
                .find(|workload| workload.uid().as_deref() == Some(name));
            place(&all, &locals, asked.unwrap(), "pool")
        };
        let third = line("third").unwrap();
        assert_eq!((third.head.as_str(), third.position), ("job first", 3));
        assert_eq!(line("second").unwrap().position, 2);
        assert_eq!(line("first"), None);
        assert_eq!(line("elsewhere"), None);
    }
}
