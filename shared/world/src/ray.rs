//! The controller of `RayJobs`: the writes that are due for one, from it, its pods and the Job that submits its entrypoint.
//!
//! Other clients see the states of `KubeRay` 1.6 in the same order, with one difference: there is no object `RayCluster` between a
//! `RayJob` and the pods of its cluster.
//!
//! The entrypoint runs as long as the pod of the submitter. In a job that is submitted without one (`HTTPMode`), it runs as long as
//! the head.
//!
//! *Limits*: clusters chosen by `clusterSelector`, `InteractiveMode`, `SidecarMode`, `backoffLimit`, deadlines, time to live,
//! deletion strategies, Services and the finalizer of the operator are not played.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

use crate::action::{Action, Plan};
use crate::job::by_controller;
use crate::jobset::end;
use crate::model::ray::{RayClusterStatus, RayJob, RayJobStatus};
use crate::play::{has_ended, is_ready};
use crate::stamp;

/// The `managedBy` of `RayJobs` that name no controller.
const CONTROLLER: &str = "ray.io/kuberay-operator";
const KIND: &str = "RayJob";
/// Labels of pods.
const CLUSTER: &str = "ray.io/cluster";
const GROUP: &str = "ray.io/group";
const NODE_TYPE: &str = "ray.io/node-type";
/// The label of the Job that submits the entrypoint.
const ORIGIN: &str = "ray.io/originated-from-cr-name";
const HEAD: &str = "head";
const WORKER: &str = "worker";
/// How often the submission is tried again, unless the job says otherwise.
const SUBMITTER_BACKOFF: i32 = 2;

/// Values of `jobDeploymentStatus`; a new job has none.
const NEW: &str = "";
const INITIALIZING: &str = "Initializing";
const RUNNING: &str = "Running";
const SUSPENDING: &str = "Suspending";
const SUSPENDED: &str = "Suspended";
const COMPLETE: &str = "Complete";
const FAILED: &str = "Failed";

/// The writes that are due for all `RayJobs`, in the order of their names.
pub(crate) fn decide(rays: &[Arc<RayJob>], jobs: &[Arc<Job>], pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let mut jobs = by_controller(jobs, |owner| owner.kind == KIND);
    let mut pods = by_controller(pods, |owner| owner.kind == KIND);
    let mut plan = Plan::default();
    for ray in rays.iter().filter(|ray| is_ours(ray)) {
        let uid = ray.metadata.uid.as_deref().unwrap_or_default();
        let made = Made {
            jobs: jobs.remove(uid).unwrap_or_default(),
            pods: pods.remove(uid).unwrap_or_default(),
        };
        plan.add(Plan::of(decide_one(ray, &made, now)));
    }
    plan
}

fn is_ours(ray: &RayJob) -> bool {
    let named = ray.spec.managed_by.as_deref();
    ray.metadata.deletion_timestamp.is_none()
        && named.is_none_or(|name| name == CONTROLLER)
        && ray.spec.cluster_selector.is_empty()
}

/// What the controller has made for a job.
struct Made<'a> {
    jobs: Vec<&'a Arc<Job>>,
    pods: Vec<&'a Arc<Pod>>,
}

fn decide_one(ray: &Arc<RayJob>, made: &Made<'_>, now: Timestamp) -> Vec<Action> {
    let status = ray.status.clone().unwrap_or_default();
    let mut next = status.clone();
    let mut actions = Vec::new();
    match status.job_deployment_status.as_str() {
        NEW => {
            // Why also for a suspended job: the operator looks at `suspend` only in the next state.
            INITIALIZING.clone_into(&mut next.job_deployment_status);
            next.job_id = ray.spec.job_id.clone().unwrap_or_else(|| ray.name_any());
            next.ray_cluster_name = cluster_name(ray);
            next.start_time = Some(stamp(now));
        }
        INITIALIZING | RUNNING if ray.spec.suspend => SUSPENDING.clone_into(&mut next.job_deployment_status),
        INITIALIZING => {
            actions.extend(keep(ray, made));
            if cluster(ray, made).state == "ready" {
                match submitter(ray).filter(|_| made.jobs.is_empty()) {
                    Some(job) => actions.push(Action::CreateJob(Box::new(job))),
                    None => RUNNING.clone_into(&mut next.job_deployment_status),
                }
            }
        }
        RUNNING => {
            actions.extend(keep(ray, made));
            look(ray, made, &mut next, now);
        }
        SUSPENDING => {
            actions.extend(remove_pods(made));
            let stays = made
                .jobs
                .iter()
                .filter(|job| job.metadata.deletion_timestamp.is_none());
            actions.extend(stays.map(|job| Action::DeleteJob(Arc::clone(job))));
            if made.jobs.is_empty() && made.pods.is_empty() {
                next = RayJobStatus {
                    job_deployment_status: SUSPENDED.to_owned(),
                    start_time: next.start_time,
                    succeeded: next.succeeded,
                    failed: next.failed,
                    ..RayJobStatus::default()
                };
            }
        }
        SUSPENDED if !ray.spec.suspend => NEW.clone_into(&mut next.job_deployment_status),
        COMPLETE | FAILED if ray.spec.shutdown_after_job_finishes => actions.extend(remove_pods(made)),
        _ => {}
    }
    if next != status {
        actions.push(Action::RayJobStatus(Arc::clone(ray), Box::new(next)));
    }
    actions
}

/// Takes the state of the entrypoint into the status, and that of the cluster with it.
fn look(ray: &RayJob, made: &Made<'_>, next: &mut RayJobStatus, now: Timestamp) {
    let before = next.job_status.clone();
    match entrypoint(ray, made) {
        Entrypoint::Waits => {}
        Entrypoint::Runs => "RUNNING".clone_into(&mut next.job_status),
        Entrypoint::Succeeded => {
            "SUCCEEDED".clone_into(&mut next.job_status);
            "Job finished successfully.".clone_into(&mut next.message);
            COMPLETE.clone_into(&mut next.job_deployment_status);
            next.succeeded += 1;
            next.end_time = Some(stamp(now));
        }
        Entrypoint::Failed => {
            "FAILED".clone_into(&mut next.job_status);
            "Job entrypoint command failed".clone_into(&mut next.message);
            "AppFailed".clone_into(&mut next.reason);
            FAILED.clone_into(&mut next.job_deployment_status);
            next.failed += 1;
            next.end_time = Some(stamp(now));
        }
    }
    if next.job_status != before {
        next.ray_cluster_status = cluster(ray, made);
    }
}

enum Entrypoint {
    Waits,
    Runs,
    Succeeded,
    Failed,
}

fn entrypoint(ray: &RayJob, made: &Made<'_>) -> Entrypoint {
    if !has_submitter(ray) {
        let head = { made.pods.iter() }.find(|pod| is_head(pod) && !goes(pod));
        return match head.map(|head| phase(head)) {
            Some("Running") => Entrypoint::Runs,
            Some("Succeeded") => Entrypoint::Succeeded,
            Some("Failed") => Entrypoint::Failed,
            Some(_) | None => Entrypoint::Waits,
        };
    }
    let Some(job) = made.jobs.first() else {
        return Entrypoint::Waits;
    };
    let ready = job.status.as_ref().and_then(|status| status.ready);
    match end(job) {
        Some("Complete") => Entrypoint::Succeeded,
        Some(_) => Entrypoint::Failed,
        None if ready.is_some_and(|ready| ready > 0) => Entrypoint::Runs,
        None => Entrypoint::Waits,
    }
}

fn has_submitter(ray: &RayJob) -> bool {
    let mode = ray.spec.submission_mode.as_deref();
    matches!(mode, None | Some("" | "K8sJobMode"))
}

fn is_head(pod: &Pod) -> bool {
    pod.labels().get(NODE_TYPE).is_some_and(|kind| kind == HEAD)
}

fn goes(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

fn remove_pods(made: &Made<'_>) -> impl Iterator<Item = Action> {
    let stay = made.pods.iter().filter(|pod| !goes(pod));
    stay.map(|pod| Action::DeletePod(Arc::clone(pod)))
}

/// Creates the pods of the cluster that are missing, and removes those that have ended, so that they are created anew. The head of
/// a job without a submitter stays, because its end is that of the entrypoint.
fn keep(ray: &RayJob, made: &Made<'_>) -> Vec<Action> {
    let is_there = |wanted: &Pod| {
        made.pods
            .iter()
            .any(|pod| pod.metadata.name == wanted.metadata.name)
    };
    let missing = wanted(ray).into_iter().filter(|pod| !is_there(pod));
    let create = missing.map(|pod| Action::CreatePod(Box::new(pod)));
    let ended = made.pods.iter().filter(|pod| {
        let decides = is_head(pod) && !has_submitter(ray);
        has_ended(pod) && !goes(pod) && !decides
    });
    let remove = ended.map(|pod| Action::DeletePod(Arc::clone(pod)));
    create.chain(remove).collect()
}

/// The state of the cluster: ready when all its pods are.
fn cluster(ray: &RayJob, made: &Made<'_>) -> RayClusterStatus {
    let wanted = wanted(ray);
    let workers = i32::try_from(wanted.len().saturating_sub(1)).unwrap_or(i32::MAX);
    let of_workers = |is_counted: fn(&Pod) -> bool| {
        let counted = made.pods.iter().filter(|pod| !is_head(pod) && is_counted(pod));
        i32::try_from(counted.count()).unwrap_or(i32::MAX)
    };
    let ready = of_workers(is_ready);
    // Why also an ended one: a job without a submitter ends with its head.
    let has_head = made
        .pods
        .iter()
        .any(|pod| is_head(pod) && (is_ready(pod) || has_ended(pod)));
    RayClusterStatus {
        state: if has_head && ready >= workers { "ready" } else { "" }.to_owned(),
        desired_worker_replicas: workers,
        available_worker_replicas: of_workers(|pod| phase(pod) == "Running"),
        ready_worker_replicas: ready,
    }
}

fn cluster_name(ray: &RayJob) -> String {
    format!("{}-cluster", ray.name_any())
}

fn owner(ray: &RayJob) -> OwnerReference {
    OwnerReference {
        api_version: "ray.io/v1".to_owned(),
        kind: KIND.to_owned(),
        name: ray.name_any(),
        uid: ray.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The pods of the cluster: the head, and those of each group.
fn wanted(ray: &RayJob) -> Vec<Pod> {
    let spec = &ray.spec.ray_cluster_spec;
    let mut pods = vec![pod(ray, HEAD, "headgroup", HEAD, &spec.head_group_spec.template)];
    for group in &spec.worker_group_specs {
        let count = group.replicas.unwrap_or(1) * group.num_of_hosts.unwrap_or(1).max(1);
        for index in 0..count {
            let end = format!("{}-{WORKER}-{index}", group.group_name);
            pods.push(pod(ray, &end, &group.group_name, WORKER, &group.template));
        }
    }
    pods
}

fn pod(ray: &RayJob, end: &str, group: &str, node_type: &str, template: &PodTemplateSpec) -> Pod {
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    let marks = [
        (CLUSTER, cluster_name(ray)),
        (GROUP, group.to_owned()),
        (NODE_TYPE, node_type.to_owned()),
    ];
    labels.extend(marks.map(|(key, value)| (key.to_owned(), value)));
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("{}-{end}", cluster_name(ray))),
            namespace: ray.namespace(),
            labels: Some(labels),
            annotations: metadata.annotations,
            owner_references: Some(vec![owner(ray)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The Job that submits the entrypoint; `None` in a job that is submitted without one.
fn submitter(ray: &RayJob) -> Option<Job> {
    if !has_submitter(ray) {
        return None;
    }
    let own = ray.spec.submitter_pod_template.clone();
    let limit = ray.spec.submitter_config.backoff_limit;
    Some(Job {
        metadata: ObjectMeta {
            name: Some(ray.name_any()),
            namespace: ray.namespace(),
            labels: Some(BTreeMap::from([(ORIGIN.to_owned(), ray.name_any())])),
            owner_references: Some(vec![owner(ray)]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(limit.unwrap_or(SUBMITTER_BACKOFF)),
            template: own.unwrap_or_else(|| usual_submitter(ray)),
            ..JobSpec::default()
        }),
        status: None,
    })
}

/// The pod of a submitter without a template: it has the image of the head.
fn usual_submitter(ray: &RayJob) -> PodTemplateSpec {
    let head = ray.spec.ray_cluster_spec.head_group_spec.template.spec.as_ref();
    let image = head.and_then(|head| head.containers.first()?.image.clone());
    PodTemplateSpec {
        metadata: None,
        spec: Some(PodSpec {
            restart_policy: Some("Never".to_owned()),
            containers: vec![Container {
                name: "ray-job-submitter".to_owned(),
                image,
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
    }
}

#[cfg(test)]
mod tests;
