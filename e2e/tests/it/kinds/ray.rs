//! The kinds of Ray, with its operator.

use kube::api::{ApiResource, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::ground::{EAST, MANAGER, Room, is_true, play, pods, resource};
use super::scenes::{Subject, alone, far, stopped_from_far};
use crate::shared::chain;

/// A kind that serves until it is deleted.
pub(super) struct Server {
    kind: &'static str,
    /// Where the spec of its cluster is, as JSON pointer.
    cluster: &'static str,
    is_ready: fn(&Value) -> bool,
    /// A change of its spec that its running copy follows.
    followed: Option<fn() -> Value>,
}

pub(super) static CLUSTER: Server = Server {
    kind: "RayCluster",
    cluster: "/spec",
    is_ready: |cluster| {
        cluster["status"]["state"] == "ready" && cluster["status"]["readyWorkerReplicas"] == 2
    },
    followed: None,
};

static SERVICE: Server = Server {
    kind: "RayService",
    cluster: "/spec/rayClusterConfig",
    is_ready: |service| is_true(service, "Ready"),
    followed: Some(|| json!({"serveConfigV2": "applications: []\n# the second version\n"})),
};

impl Server {
    fn resource(&self) -> ApiResource {
        resource("ray.io/v1", self.kind)
    }

    /// One with a head and two workers of one core.
    pub(super) fn object(&self, room: Room) -> Value {
        let template = json!({"spec": {"containers": [
            {"name": "ray", "image": "rayproject/ray:2.46.0", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}},
        ]}});
        let cluster = json!({
            "rayVersion": "2.46.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template},
            "workerGroupSpecs": [{
                "groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}, "template": template,
            }],
        });
        let spec = if self.cluster == "/spec" {
            cluster
        } else {
            json!({"serveConfigV2": "applications: []", "rayClusterConfig": cluster})
        };
        json!({
            "apiVersion": "ray.io/v1", "kind": self.kind,
            "metadata": {"name": "ray", "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name}},
            "spec": spec,
        })
    }

    async fn submit(&self, room: Room, cluster: &str) -> Value {
        let object = serde_json::from_value(self.object(room)).unwrap();
        let created = room
            .api(cluster, &self.resource())
            .create(&PostParams::default(), &object)
            .await;
        serde_json::to_value(created.unwrap_or_else(|error| panic!("{}", chain(&error)))).unwrap()
    }

    async fn until(&self, room: Room, cluster: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        room.until(cluster, &self.resource(), "ray", wanted).await
    }

    fn is_held(&self, object: &Value) -> bool {
        object.pointer(self.cluster).unwrap()["suspend"] == true
    }
}

fn clusters() -> ApiResource {
    CLUSTER.resource()
}

/// The kinds of all objects that one of them creates, and Workloads.
fn all_of_it() -> [ApiResource; 5] {
    [
        SERVICE.resource(),
        clusters(),
        resource("v1", "Pod"),
        resource("v1", "Service"),
        resource("kueue.x-k8s.io/v1beta2", "Workload"),
    ]
}

/// It serves on a worker, shows that on the manager, and is deleted with all objects that it created.
async fn serves_far(room: Room, server: &Server) {
    let created = server.submit(room, MANAGER).await;
    assert!(server.is_held(&created));
    assert_eq!(created["spec"]["managedBy"], "kueue.x-k8s.io/multikueue");
    let there = server.until(room, EAST, server.is_ready).await;
    let labels = |group: &Value| group["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"].clone();
    let of_cluster = there.pointer(server.cluster).unwrap();
    assert_eq!(labels(&of_cluster["headGroupSpec"]), "head");
    assert_eq!(labels(&of_cluster["workerGroupSpecs"][0]), "small");
    let same = |here: &Value| (server.is_ready)(here) && !server.is_held(here);
    server.until(room, MANAGER, same).await;
    room.running(EAST, 3).await;
    assert!(room.phases(MANAGER).await.is_empty());
    if let Some(changed) = server.followed {
        let workload = room.workload(MANAGER, "ray", |w| is_true(w, "Admitted")).await;
        room.merge(MANAGER, &server.resource(), "ray", json!({"spec": changed()}))
            .await;
        let follows = |there: &Value| {
            changed()
                .as_object()
                .unwrap()
                .iter()
                .all(|(field, value)| there["spec"][field] == *value)
        };
        let after = server.until(room, EAST, follows).await;
        assert_eq!(after["metadata"]["uid"], there["metadata"]["uid"], "it runs on");
        let same_run = room.workload(MANAGER, "ray", |w| is_true(w, "Admitted")).await;
        assert_eq!(same_run["metadata"]["uid"], workload["metadata"]["uid"]);
    }
    room.delete(MANAGER, &server.resource(), "ray").await;
    room.is_empty(MANAGER, &all_of_it()).await;
    room.is_empty(EAST, &all_of_it()).await;
}

/// It is stopped, gives its quota back, and serves again.
async fn serves_alone(room: Room, server: &Server) {
    let created = server.submit(room, EAST).await;
    assert_eq!(created["spec"].get("managedBy"), None);
    let workload = room.workload(EAST, "ray", |w| is_true(w, "Admitted")).await;
    server.until(room, EAST, server.is_ready).await;
    room.running(EAST, 3).await;
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    let workloads = resource("kueue.x-k8s.io/v1beta2", "Workload");
    room.merge(EAST, &workloads, &name, json!({"spec": {"active": false}}))
        .await;
    let stopped = server.until(room, EAST, |object| server.is_held(object)).await;
    let head = &stopped.pointer(server.cluster).unwrap()["headGroupSpec"]["template"];
    assert_eq!(head["metadata"].get("labels"), None, "as it was");
    room.workload(EAST, "ray", |w| !is_true(w, "QuotaReserved")).await;
    room.running(EAST, 0).await;
    room.merge(EAST, &workloads, &name, json!({"spec": {"active": true}}))
        .await;
    server
        .until(room, EAST, |object| {
            !server.is_held(object) && (server.is_ready)(object)
        })
        .await;
    room.running(EAST, 3).await;
    room.delete(EAST, &server.resource(), "ray").await;
    room.is_empty(EAST, &all_of_it()).await;
}

/// Spec: jobs 9.6, 10.1; multikueue 5, 11.57
#[test]
fn a_raycluster_of_the_manager_serves_on_a_worker_until_it_is_deleted() {
    play("ray-far", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        serves_far(room, &CLUSTER).await;
    });
}

/// Spec: jobs 9.6, 5.9
#[test]
fn a_raycluster_that_is_stopped_gives_its_quota_back_and_serves_again() {
    play("ray-alone", &[(EAST, "8")], async |room| {
        serves_alone(room, &CLUSTER).await;
    });
}

/// Changes the number of workers of the cluster, and nothing else.
async fn resize(room: Room, cluster: &str, workers: u32) {
    let replace = |field: &str| {
        let path = format!("/spec/workerGroupSpecs/0/{field}");
        json!({"op": "replace", "path": path, "value": workers})
    };
    let patch = json!(["replicas", "minReplicas", "maxReplicas"].map(replace));
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    room.api(cluster, &clusters())
        .patch("ray", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Waits until the cluster serves with so many workers on `cluster`, and no pod beside them and its head runs there.
async fn serves_with(room: Room, cluster: &str, workers: u32) -> Value {
    let in_size = |there: &Value| {
        let status = &there["status"];
        !CLUSTER.is_held(there)
            && there["spec"]["workerGroupSpecs"][0]["replicas"] == workers
            && status["state"] == "ready"
            && status["readyWorkerReplicas"] == workers
            && status["observedGeneration"] == there["metadata"]["generation"]
    };
    let there = CLUSTER.until(room, cluster, in_size).await;
    room.running(cluster, 1 + workers as usize).await;
    there
}

/// Waits until the Workload of the cluster counts a head and so many workers, and is admitted or waits for quota.
async fn counted(room: Room, cluster: &str, workers: u32, is_admitted: bool) -> Value {
    let same = |workload: &Value| {
        let counts = workload["spec"]["podSets"].as_array().unwrap().iter();
        counts.map(|set| &set["count"]).eq([&json!(1), &json!(workers)])
            && is_true(workload, "Admitted") == is_admitted
            && is_true(workload, "QuotaReserved") == is_admitted
    };
    room.workload(cluster, "ray", same).await
}

/// The old copy ends before one of the new size starts. A size without room waits, and holds no quota.
///
/// Spec: jobs 5.3, 9.6; multikueue 11.90, 11.91
#[test]
fn a_raycluster_that_is_resized_on_the_manager_waits_anew_and_serves_in_its_new_size() {
    play("ray-resized", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        CLUSTER.submit(room, MANAGER).await;
        let first = serves_with(room, EAST, 2).await;
        let admitted = counted(room, MANAGER, 2, true).await;

        resize(room, MANAGER, 4).await;
        let second = serves_with(room, EAST, 4).await;
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        let anew = counted(room, MANAGER, 4, true).await;
        assert_ne!(admitted["metadata"]["uid"], anew["metadata"]["uid"]);
        assert_eq!(anew["status"]["clusterName"], EAST);
        let shown = |here: &Value| !CLUSTER.is_held(here) && here["status"]["readyWorkerReplicas"] == 4;
        CLUSTER.until(room, MANAGER, shown).await;

        // More than the worker has, and no more than the manager.
        resize(room, MANAGER, 10).await;
        room.is_empty(EAST, &[clusters(), resource("v1", "Pod")]).await;
        CLUSTER.until(room, MANAGER, |here| CLUSTER.is_held(here)).await;
        room.workload(MANAGER, "ray", |w| {
            !is_true(w, "Admitted") && w["status"].get("clusterName").is_none()
        })
        .await;

        resize(room, MANAGER, 1).await;
        serves_with(room, EAST, 1).await;
        counted(room, MANAGER, 1, true).await;
        room.delete(MANAGER, &clusters(), "ray").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// It is not waited for that all its pods run again: the operator may take five minutes to see that some are missing (jobs 9.6).
///
/// Spec: jobs 5.3, 9.6
#[test]
fn a_raycluster_that_is_resized_on_its_cluster_is_stopped_and_waits_anew() {
    play("ray-sized", &[(EAST, "8")], async |room| {
        CLUSTER.submit(room, EAST).await;
        serves_with(room, EAST, 2).await;
        let admitted = counted(room, EAST, 2, true).await;
        resize(room, EAST, 4).await;
        let anew = counted(room, EAST, 4, true).await;
        assert_ne!(admitted["metadata"]["uid"], anew["metadata"]["uid"]);
        CLUSTER.until(room, EAST, |there| !CLUSTER.is_held(there)).await;
        // More than the cluster has.
        resize(room, EAST, 10).await;
        CLUSTER.until(room, EAST, |there| CLUSTER.is_held(there)).await;
        counted(room, EAST, 10, false).await;
        room.running(EAST, 0).await;
        resize(room, EAST, 1).await;
        counted(room, EAST, 1, true).await;
        CLUSTER.until(room, EAST, |there| !CLUSTER.is_held(there)).await;
        room.delete(EAST, &clusters(), "ray").await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: jobs 9.8, 10.1, 10.3; multikueue 5, 11.57, 11.92
#[test]
fn a_rayservice_of_the_manager_serves_on_a_worker_until_it_is_deleted() {
    play("service-far", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        serves_far(room, &SERVICE).await;
    });
}

/// The operator never starts a cluster that it created while the service was suspended.
///
/// Spec: jobs 9.8, 5.2, 5.9, 15.86
#[test]
fn a_rayservice_that_is_stopped_gives_its_quota_back_and_serves_again() {
    play("service-alone", &[(EAST, "8")], async |room| {
        serves_alone(room, &SERVICE).await;
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
        CLUSTER.submit(room, EAST).await;
        CLUSTER.until(room, EAST, CLUSTER.is_ready).await;
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
