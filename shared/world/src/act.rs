//! Carries out one write, and puts the server's answer into the world's own copy of the cluster.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{NamespaceResourceScope, Status};
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::action::{Action, TRACKING};
use crate::capacity::Answer;
use crate::cluster::Cluster;
use crate::watched::Key;

/// Timeout of one write.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The server refused it: the object has changed since the decision, or the write is not allowed.
    Refused,
}

/// Carries out `action`, and puts the answer into `cluster`.
pub(crate) async fn act(client: &Client, cluster: &mut Cluster, action: Action) -> Outcome {
    match action {
        Action::CreatePod(pod) => {
            let api = pods(client, &pod);
            let created = within(api.create(&PostParams::default(), &pod)).await;
            if matches!(created, Err(Problem::Unclear)) {
                // Why: the API server may have created the pod under a generated name that this loop does not know.
                cluster.pods.list_again();
            }
            take(created, |pod| cluster.pods.observe(pod))
        }
        Action::ReleasePod(pod) => release(client, cluster, &pod).await,
        Action::DeletePod(pod) => delete(client, cluster, &pod, None).await,
        Action::DropPod(pod) => {
            let tracked = pod.finalizers().iter().any(|each| each == TRACKING);
            if tracked && release(client, cluster, &pod).await == Outcome::Refused {
                return Outcome::Refused;
            }
            delete(client, cluster, &pod, None).await
        }
        Action::RemovePod(pod) => delete(client, cluster, &pod, Some(0)).await,
        Action::BindPod(pod, node) => bind(client, cluster, &pod, &node).await,
        Action::PodStatus(pod, status) => {
            let mut next = Pod::clone(&pod);
            next.status = Some(*status);
            let api = pods(client, &pod);
            let params = PostParams::default();
            let written = within(api.replace_status(&pod.name_any(), &params, &next)).await;
            take(written, |pod| cluster.pods.observe(pod))
        }
        Action::CreateJob(job) => {
            let created = within(jobs(client, &job).create(&PostParams::default(), &job)).await;
            if matches!(created, Err(Problem::Unclear)) {
                cluster.jobs.list_again();
            }
            take(created, |job| cluster.jobs.observe(job))
        }
        Action::JobSpec(job) => {
            let api = jobs(client, &job);
            let written = within(api.replace(&job.name_any(), &PostParams::default(), &job)).await;
            take(written, |job| cluster.jobs.observe(job))
        }
        Action::JobSetStatus(set, status) => {
            let written = merge_status(client, &*set, &*status).await;
            take(written, |set| cluster.job_sets.observe(set))
        }
        Action::PyTorchJobStatus(job, status) => {
            let written = merge_status(client, &*job, &*status).await;
            take(written, |job| cluster.torch_jobs.observe(job))
        }
        Action::RayJobStatus(job, status) => {
            let written = merge_status(client, &*job, &*status).await;
            take(written, |job| cluster.ray_jobs.observe(job))
        }
        Action::JobStatus(job, status) => {
            let mut next = Job::clone(&job);
            next.status = Some(*status);
            let api = jobs(client, &job);
            let params = PostParams::default();
            let written = within(api.replace_status(&job.name_any(), &params, &next)).await;
            take(written, |job| cluster.jobs.observe(job))
        }
        Action::DeleteJob(job) => {
            let api = jobs(client, &job);
            let params = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Foreground),
                preconditions: Some(only(job.uid())),
                ..DeleteParams::default()
            };
            let deleted = within(api.delete(&job.name_any(), &params)).await;
            take(deleted, |answer| {
                answer.map_left(|job| cluster.jobs.observe(job));
            })
        }
        Action::CreateNode(node) => {
            let api: Api<Node> = Api::all(client.clone());
            let created = within(api.create(&PostParams::default(), &node)).await;
            take(created, |node| cluster.nodes.observe(node))
        }
        Action::NodeStatus(node) => {
            let api: Api<Node> = Api::all(client.clone());
            let written = within(api.replace_status(&node.name_any(), &PostParams::default(), &node)).await;
            take(written, |node| cluster.nodes.observe(node))
        }
        Action::Answer(answer) => give(client, cluster, *answer).await,
    }
}

/// Merges a status into the stored one, if the object still has this version. Fields that `status` leaves out stay.
async fn merge_status<K>(client: &Client, object: &K, status: &impl Serialize) -> Result<K, Problem>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let patch = json!({
        "metadata": {"resourceVersion": object.resource_version()},
        "status": status,
    });
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    within(api.patch_status(&object.name_any(), &params, &patch)).await
}

fn pods(client: &Client, pod: &Pod) -> Api<Pod> {
    Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default())
}

fn jobs(client: &Client, job: &Job) -> Api<Job> {
    Api::namespaced(client.clone(), &job.namespace().unwrap_or_default())
}

fn key(pod: &Pod) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

fn only(uid: Option<String>) -> Preconditions {
    Preconditions {
        uid,
        resource_version: None,
    }
}

async fn release(client: &Client, cluster: &mut Cluster, pod: &Pod) -> Outcome {
    let left: Vec<&String> = pod.finalizers().iter().filter(|each| *each != TRACKING).collect();
    let patch = json!({"metadata": {
        "finalizers": left,
        "resourceVersion": pod.resource_version(),
    }});
    let api = pods(client, pod);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    match within(api.patch(&pod.name_any(), &params, &patch)).await {
        // Why: removing the last finalizer of a deleted pod may remove the pod.
        Ok(pod) if pod.metadata.deletion_timestamp.is_some() && ends_at_once(&pod) => {
            cluster.pods.forget(&key(&pod));
            Outcome::Done
        }
        Err(Problem::Gone) => {
            cluster.pods.forget(&key(pod));
            Outcome::Done
        }
        answer => take(answer, |pod| cluster.pods.observe(pod)),
    }
}

fn ends_at_once(pod: &Pod) -> bool {
    pod.finalizers().is_empty() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

async fn delete(client: &Client, cluster: &mut Cluster, pod: &Pod, grace: Option<u32>) -> Outcome {
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions: Some(only(pod.uid())),
        ..DeleteParams::default()
    };
    let deleted = within(pods(client, pod).delete(&pod.name_any(), &params)).await;
    match deleted.map(|answer| answer.left().filter(|left| !ends_at_once(left))) {
        Ok(Some(left)) => {
            cluster.pods.observe(left);
            Outcome::Done
        }
        Ok(None) | Err(Problem::Gone) => {
            cluster.pods.forget(&key(pod));
            Outcome::Done
        }
        Err(Problem::Refused | Problem::Unclear) => Outcome::Refused,
    }
}

async fn bind(client: &Client, cluster: &mut Cluster, pod: &Pod, node: &str) -> Outcome {
    let api = pods(client, pod);
    let name = pod.name_any();
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": pod.namespace(), "uid": pod.uid()},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let bound: Result<Status, Problem> =
        within(api.create_subresource("binding", &name, &PostParams::default(), &binding)).await;
    // Why read: the answer to a binding does not show the pod, and the scheduler needs its node before it places the next pod.
    let outcome = take(bound, drop);
    take(within(api.get(&name)).await, |pod| cluster.pods.observe(pod));
    outcome
}

async fn give(client: &Client, cluster: &mut Cluster, answer: Answer) -> Outcome {
    let Answer {
        namespace,
        name,
        resource_version,
        conditions,
    } = answer;
    let api: Api<ProvisioningRequest> = Api::namespaced(client.clone(), &namespace);
    let patch: Value = json!({
        "metadata": {"resourceVersion": resource_version},
        "status": {"conditions": conditions},
    });
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let written = within(api.patch_status(&name, &params, &patch)).await;
    take(written, |request| cluster.requests.observe(request))
}

/// Why a write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Problem {
    Gone,
    Refused,
    /// The outcome is unknown: the connection broke, the server failed, or the write timed out.
    Unclear,
}

async fn within<T: Debug>(write: impl Future<Output = kube::Result<T>>) -> Result<T, Problem> {
    match timeout(PATIENCE, write).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => {
            tracing::debug!(
                code = status.code,
                message = status.message,
                "a write was refused"
            );
            Err(match status.code {
                404 => Problem::Gone,
                500.. => Problem::Unclear,
                _ => Problem::Refused,
            })
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a write broke off");
            Err(Problem::Unclear)
        }
        Err(_elapsed) => Err(Problem::Unclear),
    }
}

fn take<T>(answer: Result<T, Problem>, observe: impl FnOnce(T)) -> Outcome {
    match answer {
        Ok(object) => {
            observe(object);
            Outcome::Done
        }
        Err(Problem::Gone | Problem::Refused | Problem::Unclear) => Outcome::Refused,
    }
}
