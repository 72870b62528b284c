//! The kinds of Ray, with its operator.

use kube::api::{ApiResource, ListParams, PostParams};
use serde_json::{Value, json};

use super::ground::{EAST, MANAGER, Room, is_true, play, pods, resource};
use super::scenes::{Subject, alone, far, stopped_from_far};
use crate::shared::chain;

fn clusters() -> ApiResource {
    resource("ray.io/v1", "RayCluster")
}

/// Everything that a RayCluster makes, and what stands for it in a queue.
fn all_of_it() -> [ApiResource; 4] {
    [
        clusters(),
        resource("v1", "Pod"),
        resource("v1", "Service"),
        resource("kueue.x-k8s.io/v1beta2", "Workload"),
    ]
}

/// A head and two workers of one core.
fn cluster(room: Room) -> Value {
    let template = json!({"spec": {"containers": [
        {"name": "ray", "image": "rayproject/ray:2.46.0", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}},
    ]}});
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name}},
        "spec": {
            "rayVersion": "2.46.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template},
            "workerGroupSpecs": [{
                "groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}, "template": template,
            }],
        },
    })
}

async fn submit(room: Room, cluster_name: &str) -> Value {
    let object = serde_json::from_value(cluster(room)).unwrap();
    let created = room
        .api(cluster_name, &clusters())
        .create(&PostParams::default(), &object)
        .await;
    serde_json::to_value(created.unwrap_or_else(|error| panic!("{}", chain(&error)))).unwrap()
}

fn is_ready(cluster: &Value) -> bool {
    cluster["status"]["state"] == "ready"
}

/// Spec: jobs 9.6, 10.1; multikueue 5, 11.57
#[test]
fn a_raycluster_of_the_manager_serves_on_a_worker_until_it_is_deleted() {
    play("ray-far", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        let created = submit(room, MANAGER).await;
        assert_eq!(created["spec"]["suspend"], true);
        assert_eq!(created["spec"]["managedBy"], "kueue.x-k8s.io/multikueue");
        let there = room.until(EAST, &clusters(), "ray", is_ready).await;
        let labels = |group: &Value| group["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"].clone();
        assert_eq!(labels(&there["spec"]["headGroupSpec"]), "head");
        assert_eq!(labels(&there["spec"]["workerGroupSpecs"][0]), "small");
        let here = room.until(MANAGER, &clusters(), "ray", is_ready).await;
        assert_eq!(here["status"]["readyWorkerReplicas"], 2);
        room.running(EAST, 3).await;
        assert!(room.phases(MANAGER).await.is_empty());
        room.delete(MANAGER, &clusters(), "ray").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: jobs 9.6, 5.9
#[test]
fn a_raycluster_that_is_stopped_gives_its_quota_back_and_serves_again() {
    play("ray-alone", &[(EAST, "8")], async |room| {
        let created = submit(room, EAST).await;
        assert_eq!(created["spec"].get("managedBy"), None);
        let workload = room.workload(EAST, "ray", |w| is_true(w, "Admitted")).await;
        room.until(EAST, &clusters(), "ray", is_ready).await;
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        let workloads = resource("kueue.x-k8s.io/v1beta2", "Workload");
        room.merge(EAST, &workloads, &name, json!({"spec": {"active": false}}))
            .await;
        let stopped = room
            .until(EAST, &clusters(), "ray", |c| c["status"]["state"] == "suspended")
            .await;
        let head = &stopped["spec"]["headGroupSpec"]["template"];
        assert_eq!(head["metadata"].get("labels"), None, "as it was");
        room.workload(EAST, "ray", |w| !is_true(w, "QuotaReserved")).await;
        room.running(EAST, 0).await;
        room.merge(EAST, &workloads, &name, json!({"spec": {"active": true}}))
            .await;
        room.until(EAST, &clusters(), "ray", is_ready).await;
        room.running(EAST, 3).await;
        room.delete(EAST, &clusters(), "ray").await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

pub(super) static RAY_JOB: [Subject; 1] = [Subject {
    api_version: "ray.io/v1",
    kind: "RayJob",
    spec: |secs| {
        let template = json!({"spec": {"containers": [
            {"name": "ray", "image": "rayproject/ray:2.46.0", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}},
        ]}});
        json!({
            // The played dashboard reads how long it runs.
            "jobId": format!("train-{secs}"), "entrypoint": "python train.py", "shutdownAfterJobFinishes": true,
            "submitterPodTemplate": pods(secs),
            "rayClusterSpec": {
                "rayVersion": "2.46.0",
                "headGroupSpec": {"rayStartParams": {}, "template": template},
                "workerGroupSpecs": [{
                    "groupName": "small", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}, "template": template,
                }],
            },
        })
    },
    pods: 3,
    suspend: "/spec/suspend",
    managed_by: "/spec/managedBy",
    template: "/spec/rayClusterSpec/headGroupSpec/template",
    runs: |job| {
        job["status"]["jobDeploymentStatus"] == "Running"
            && job["status"]["rayClusterStatus"]["state"] == "ready"
    },
    succeeded: |job| job["status"]["jobDeploymentStatus"] == "Complete",
    stays_held: false,
    makes: &[
        ("ray.io/v1", "RayCluster"),
        ("batch/v1", "Job"),
        ("v1", "Service"),
    ],
}];

/// Spec: jobs 9.7, 5.2, 5.8, 5.9, 15.74
#[test]
fn a_rayjob_is_admitted_preempted_resumed_and_ends_on_one_cluster() {
    play("rayjob-alone", &[(EAST, "3")], async |room| {
        alone(room, &RAY_JOB).await;
    });
}

/// Spec: jobs 9.7, 10.1; multikueue 5, 11.57
#[test]
fn a_rayjob_of_the_manager_runs_on_a_worker_and_shows_its_end() {
    play("rayjob-far", &[(MANAGER, "8"), (EAST, "8")], async |room| {
        far(room, &RAY_JOB).await;
    });
}

/// Spec: multikueue 3.8, 3.9, 11.80; safety 1 I1
#[test]
fn a_rayjob_that_is_stopped_by_the_manager_goes_with_its_cluster_and_runs_anew() {
    play("rayjob-anew", &[(MANAGER, "8"), (EAST, "8")], async |room| {
        stopped_from_far(room, &RAY_JOB).await;
    });
}

/// Its cluster is in the queue itself, so the job is not held.
///
/// Spec: jobs 5.1 2, 9.7, 15.75
#[test]
fn a_rayjob_for_an_existing_cluster_is_left_alone() {
    play("rayjob-shared", &[(EAST, "8")], async |room| {
        submit(room, EAST).await;
        room.until(EAST, &clusters(), "ray", is_ready).await;
        let job = json!({
            "apiVersion": "ray.io/v1", "kind": "RayJob",
            "metadata": {"name": "guest", "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name}},
            "spec": {
                "jobId": "guest-2", "entrypoint": "python train.py", "clusterSelector": {"ray.io/cluster": "ray"},
                "submitterPodTemplate": pods(2),
            },
        });
        let created = room.apply(EAST, job).await;
        assert_ne!(created["spec"]["suspend"], true);
        let jobs = resource("ray.io/v1", "RayJob");
        room.until(EAST, &jobs, "guest", |j| {
            j["status"]["jobDeploymentStatus"] == "Complete"
        })
        .await;
        let workloads = room.api(EAST, &resource("kueue.x-k8s.io/v1beta2", "Workload"));
        let all = workloads.list(&ListParams::default()).await.unwrap();
        assert_eq!(all.items.len(), 1, "that of the cluster");
        room.delete(EAST, &jobs, "guest").await;
        room.delete(EAST, &clusters(), "ray").await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}
