//! Copies the results of steps of Argo Workflows from workers to the manager. A step that runs on a worker writes its
//! `WorkflowTaskResult` there, and the manager's workflow controller waits for it on the manager.
//!
//! Invariant: a result is copied only from the worker on which the pod of its step runs. It is deleted on that worker only once
//! it is complete and stored on the manager.
//!
//! *Source*: `spec/jobs.md 13.2`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_core::name::Key;
use roadstead_kubeio::cache::{Cache, key_of};
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{self, Outcome};
use roadstead_kubeio::write::{self, Written};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Dispatch;
use crate::remote::Remote;
use crate::steps::{WORKFLOW_LABEL, pods_of, result_kind, workflow_of};

/// Label of a result: whether the step has reported everything.
const COMPLETE_LABEL: &str = "workflows.argoproj.io/report-outputs-completed";
const FIELD_MANAGER: &str = "roadstead-manager";
/// How many results of one worker are handled at the same time.
const WORKERS: usize = 4;

/// Copies the results of one worker until `stop`.
pub(crate) async fn run(dispatch: Dispatch, remote: Arc<Remote>, stop: CancellationToken) {
    let Some(results) = remote.results.clone() else {
        return;
    };
    let due: Arc<Queue<Key>> = Arc::new(Queue::default());
    let bell = due.clone();
    results.listen(move |change| {
        if change.new.is_some() {
            bell.add(change.key.clone(), Lane::Placed);
        }
    });
    // Why after `listen`: a result that appears in between is due twice, and none is missed.
    for result in results.all() {
        due.add(key_of(&*result), Lane::Placed);
    }
    let work = move |key: Key| {
        let (dispatch, remote, results) = (dispatch.clone(), remote.clone(), results.clone());
        async move { bring(&dispatch, &remote, &results, &key).await }
    };
    reconcile::run("results of workflow steps", due, WORKERS, stop, work).await;
}

async fn bring(d: &Dispatch, remote: &Remote, results: &Cache<DynamicObject>, key: &Key) -> Outcome {
    let (Some(result), Some(client)) = (results.get(key), remote.client()) else {
        return Outcome::Done;
    };
    let Some(copy) = local_pod(d, remote, key).and_then(|pod| copy_of(&pod, &result)) else {
        return Outcome::Done;
    };
    let here = Api::namespaced_with(d.client.clone(), &key.namespace, &result_kind());
    match write::apply(&here, &copy, FIELD_MANAGER).await {
        Written::Done(_) => {}
        Written::Gone => {
            return Failure::lasting("the manager's cluster does not serve such results").into();
        }
        Written::Conflict | Written::AlreadyExists => {
            return Failure::passing("storing it here met another write").into();
        }
        answer @ (Written::Refused(_) | Written::Unclear(_)) => {
            return answer.or_end("storing it here").err().unwrap_or(Outcome::Done);
        }
    }
    if result.labels().get(COMPLETE_LABEL).map(String::as_str) != Some("true") {
        return Outcome::Done;
    }
    let there: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &result_kind());
    let deleted = write::delete(&there, &key.name, result.metadata.uid.as_deref()).await;
    deleted.stored().map_or_else(
        |failure| {
            let what = format_args!("deleting it on worker cluster {}", remote.name);
            failure.in_doing(what).into()
        },
        |_| Outcome::Done,
    )
}

/// The manager's pod whose result has this name, if it runs or has run on this worker.
fn local_pod(d: &Dispatch, remote: &Remote, result: &Key) -> Option<Arc<DynamicObject>> {
    let pods = pods_of(&d.caches)?;
    let pod = pods.objects.get(&d.steps.pod_of(result)?)?;
    let workloads = d
        .caches
        .workloads_of(&pods.key_of(&pod), pod.metadata.uid.as_deref()?);
    let is_there = |key: &Key| {
        let workload = d.caches.workloads.get(key);
        let status = workload.as_ref().and_then(|workload| workload.status.as_ref());
        let cluster = status.and_then(|status| status.cluster_name.as_ref());
        cluster.is_some_and(|cluster| *cluster == remote.name.as_str())
    };
    workloads.iter().any(is_there).then_some(pod)
}

/// The result of a step as it is stored on the manager, owned by the Workflow of the manager's pod. `None` when the result is of
/// another Workflow.
fn copy_of(pod: &DynamicObject, result: &DynamicObject) -> Option<DynamicObject> {
    let owner = workflow_of(pod)?;
    if result.labels().get(WORKFLOW_LABEL) != Some(&owner.name) {
        return None;
    }
    let labels: BTreeMap<&String, &String> = { result.labels().iter() }
        .filter(|(name, _)| name.starts_with("workflows.argoproj.io/"))
        .collect();
    let mut copy = json!({
        "apiVersion": result_kind().api_version, "kind": "WorkflowTaskResult",
        "metadata": {
            "name": result.metadata.name, "namespace": result.metadata.namespace, "labels": labels,
            "ownerReferences": [
                {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid},
            ],
        },
    });
    let said = result.data.as_object()?;
    for (field, value) in said {
        copy[field] = Value::clone(value);
    }
    serde_json::from_value(copy).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_VERSION: &str = "argoproj.io/v1alpha1";

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn pod() -> DynamicObject {
        object(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "etl-step-7", "namespace": "ns",
                "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Workflow", "name": "etl", "uid": "here", "controller": true}],
            },
        }))
    }

    fn result(workflow: &str) -> DynamicObject {
        object(json!({
            "apiVersion": API_VERSION, "kind": "WorkflowTaskResult",
            "metadata": {
                "name": "etl-7", "namespace": "ns", "uid": "there", "resourceVersion": "5", "finalizers": ["x/y"],
                "labels": {WORKFLOW_LABEL: workflow, COMPLETE_LABEL: "true", "team": "a"},
                "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Workflow", "name": "etl", "uid": "elsewhere"}],
            },
            "outputs": {"exitCode": "0", "parameters": [{"name": "answer", "value": "42"}]}, "progress": "1/1",
        }))
    }

    /// Spec: jobs 13.2
    #[test]
    fn a_result_comes_home_with_what_it_says_and_the_owner_of_the_pod_here() {
        let copy = serde_json::to_value(copy_of(&pod(), &result("etl")).unwrap()).unwrap();
        assert_eq!(
            copy,
            json!({
                "apiVersion": API_VERSION, "kind": "WorkflowTaskResult",
                "metadata": {
                    "name": "etl-7", "namespace": "ns", "labels": {WORKFLOW_LABEL: "etl", COMPLETE_LABEL: "true"},
                    "ownerReferences": [{"apiVersion": API_VERSION, "kind": "Workflow", "name": "etl", "uid": "here"}],
                },
                "outputs": {"exitCode": "0", "parameters": [{"name": "answer", "value": "42"}]}, "progress": "1/1",
            })
        );
    }

    /// A worker must not write into a Workflow of the manager that has nothing to do with the pod.
    ///
    /// Spec: jobs 13.2
    #[test]
    fn a_result_of_another_workflow_or_of_a_pod_without_one_stays_away() {
        assert!(copy_of(&pod(), &result("other")).is_none());
        let mut plain = pod();
        plain.metadata.owner_references = None;
        assert!(copy_of(&plain, &result("etl")).is_none());
    }
}
