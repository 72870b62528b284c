//! What serves and is queued by its pods, on one cluster: `Deployment` and `StatefulSet` with the controllers of Kubernetes, and
//! `LeaderWorkerSet` with its own.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::ground::{EAST, KUEUE, Room, condition, is_true, play_servers, pods, resource};
use crate::shared::{chain, eventually};

mod across;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const NAME: &str = "web";

fn workloads() -> ApiResource {
    resource(KUEUE, "Workload")
}

fn all_pods() -> ApiResource {
    resource("v1", "Pod")
}

/// A template whose pods ask for one core and run until they are deleted.
pub(super) fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": NAME}},
        "spec": {"containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]},
    })
}

fn object(room: Room, api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": NAME, "namespace": room.name, "labels": {QUEUE: room.name}},
        "spec": spec,
    })
}

pub(super) fn set(room: Room, kind: &str, replicas: u32) -> Value {
    let selector = json!({"matchLabels": {"app": NAME}});
    let spec =
        json!({"replicas": replicas, "selector": selector, "serviceName": NAME, "template": template()});
    object(room, "apps/v1", kind, &spec)
}

/// So many groups of so many pods, the leaders included.
pub(super) fn leaders(room: Room, replicas: u32, size: u32) -> Value {
    let inner = json!({"size": size, "leaderTemplate": template(), "workerTemplate": template()});
    let spec = json!({"replicas": replicas, "leaderWorkerTemplate": inner});
    object(room, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", &spec)
}

async fn create(room: Room, object: Value) -> Value {
    create_on(room, EAST, object).await
}

async fn create_on(room: Room, cluster: &str, object: Value) -> Value {
    let version = object["apiVersion"].as_str().unwrap().to_owned();
    let kind = object["kind"].as_str().unwrap().to_owned();
    let api = room.api(cluster, &resource(&version, &kind));
    let object = serde_json::from_value(object).unwrap();
    let created = api.create(&PostParams::default(), &object).await;
    serde_json::to_value(created.unwrap_or_else(|error| panic!("{}", chain(&error)))).unwrap()
}

/// What a change is answered with, when it is refused.
async fn refused(room: Room, kind: &ApiResource, patch: Value) -> String {
    let api = room.api(EAST, kind);
    let answer = api
        .patch(NAME, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    chain(&answer.expect_err("this is to be refused"))
}

async fn all(room: Room, kind: &ApiResource) -> Vec<Value> {
    all_on(room, EAST, kind).await
}

async fn all_on(room: Room, cluster: &str, kind: &ApiResource) -> Vec<Value> {
    let listed = room
        .api(cluster, kind)
        .list(&ListParams::default())
        .await
        .unwrap();
    let value = |object: DynamicObject| serde_json::to_value(&object).unwrap();
    listed.items.into_iter().map(value).collect()
}

/// All Workloads, sorted by name, once there are so many and each is as wanted.
async fn workloads_of(room: Room, many: usize, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    eventually(|| async {
        let mut all = all(room, &workloads()).await;
        all.sort_by_key(|w| w["metadata"]["name"].to_string());
        (all.len() == many && all.iter().all(&wanted)).then_some(all)
    })
    .await
}

fn sets(workload: &Value) -> Vec<(String, i64)> {
    let sets = workload["spec"]["podSets"].as_array().unwrap().iter();
    let size = |set: &Value| {
        (
            set["name"].as_str().unwrap().to_owned(),
            set["count"].as_i64().unwrap(),
        )
    };
    sets.map(size).collect()
}

fn is_gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| !gates.is_empty())
}

/// A job of higher priority that needs so many cores for a moment.
async fn large_job(room: Room, cores: u32) {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "large", "namespace": room.name,
            "labels": {QUEUE: room.name, "kueue.x-k8s.io/priority-class": "high"},
        },
        "spec": {"parallelism": cores, "completions": cores, "template": pods(1)},
    });
    create(room, job).await;
    let jobs = resource("batch/v1", "Job");
    room.until(EAST, &jobs, "large", |j| is_true(j, "Complete")).await;
    room.delete(EAST, &jobs, "large").await;
}

/// Spec: jobs 9.11, 4.1, 15.82
#[test]
fn each_pod_of_a_deployment_waits_for_quota_and_is_preempted_and_a_plain_pod_is_left_alone() {
    play_servers("deployment", 2, async |room| {
        let mut plain = json!({"apiVersion": "v1", "kind": "Pod"});
        plain["metadata"] = json!({"name": "plain", "namespace": room.name, "labels": {QUEUE: room.name}});
        plain["spec"] = template()["spec"].clone();
        let plain = create(room, plain).await;
        assert!(!is_gated(&plain), "the integration of pods is not listed");
        room.running(EAST, 1).await;
        room.delete(EAST, &all_pods(), "plain").await;
        room.running(EAST, 0).await;

        let deployments = resource("apps/v1", "Deployment");
        let mut deployment = set(room, "Deployment", 3);
        deployment["spec"].as_object_mut().unwrap().remove("serviceName");
        let created = create(room, deployment).await;
        let meta = &created["spec"]["template"]["metadata"];
        assert_eq!(
            meta["annotations"]["kueue.x-k8s.io/pod-suspending-parent"],
            "deployment"
        );
        assert_eq!(meta["labels"][QUEUE], room.name);
        room.running(EAST, 2).await;
        let workloads = workloads_of(room, 3, |w| w["status"]["conditions"].is_array()).await;
        let admitted = workloads.iter().filter(|w| is_true(w, "Admitted")).count();
        assert_eq!(admitted, 2);
        let waits = eventually(|| async { all(room, &all_pods()).await.into_iter().find(is_gated) }).await;
        assert_eq!(waits["metadata"]["labels"]["kueue.x-k8s.io/managed"], "true");
        room.until(EAST, &deployments, NAME, |d| d["status"]["readyReplicas"] == 2)
            .await;
        let other = json!({"metadata": {"labels": {QUEUE: "other"}}});
        let said = refused(room, &deployments, other).await;
        assert!(said.contains("field is immutable"), "{said}");
        large_job(room, 2).await;
        room.running(EAST, 2).await;
        room.merge(EAST, &deployments, NAME, json!({"spec": {"replicas": 1}}))
            .await;
        room.running(EAST, 1).await;
        workloads_of(room, 1, |w| is_true(w, "Admitted")).await;
        room.delete(EAST, &deployments, NAME).await;
        room.is_empty(EAST, &[deployments, all_pods(), self::workloads()])
            .await;
    });
}

/// Spec: jobs 9.12, 12.7, 15.64, 15.83, 15.84
#[test]
fn a_statefulset_is_one_workload_that_is_preempted_and_scaled_to_nothing_and_back() {
    play_servers("stateful", 4, async |room| {
        let kind = resource("apps/v1", "StatefulSet");
        let created = create(room, set(room, "StatefulSet", 3)).await;
        let meta = &created["spec"]["template"]["metadata"];
        assert_eq!(
            meta["annotations"]["kueue.x-k8s.io/pod-suspending-parent"],
            "statefulset"
        );
        let [only] = workloads_of(room, 1, |w| is_true(w, "Admitted"))
            .await
            .try_into()
            .unwrap();
        assert_eq!(sets(&only), [("main".to_owned(), 3)]);
        let notes = &only["metadata"]["annotations"];
        assert_eq!(notes["kueue.x-k8s.io/is-group-workload"], "true");
        assert_eq!(notes["kueue.x-k8s.io/job-owner-gvk"], "apps/v1, Kind=StatefulSet");
        assert_eq!(notes["kueue.x-k8s.io/job-owner-name"], NAME);
        room.running(EAST, 3).await;
        room.until(EAST, &kind, NAME, |s| s["status"]["readyReplicas"] == 3)
            .await;
        for pod in all(room, &all_pods()).await {
            let notes = &pod["metadata"]["annotations"];
            assert_eq!(notes["kueue.x-k8s.io/pod-group-total-count"], "3");
            assert_eq!(notes["kueue.x-k8s.io/role-hash"], "main");
        }

        let said = refused(room, &kind, json!({"spec": {"replicas": 5}})).await;
        assert!(
            said.contains("spec.replicas") && said.contains("field is immutable"),
            "{said}"
        );
        large_job(room, 4).await;
        workloads_of(room, 1, |w| is_true(w, "Admitted")).await;
        room.running(EAST, 3).await;

        room.merge(EAST, &kind, NAME, json!({"spec": {"replicas": 0}}))
            .await;
        room.is_empty(EAST, &[all_pods(), workloads()]).await;
        room.until(EAST, &kind, NAME, |s| s["status"]["replicas"] == 0)
            .await;
        room.merge(EAST, &kind, NAME, json!({"spec": {"replicas": 2}}))
            .await;
        room.running(EAST, 2).await;
        let [again] = workloads_of(room, 1, |w| is_true(w, "Admitted"))
            .await
            .try_into()
            .unwrap();
        assert_eq!(sets(&again), [("main".to_owned(), 2)]);
        room.delete(EAST, &kind, NAME).await;
        room.is_empty(EAST, &[kind, all_pods(), workloads()]).await;
    });
}

/// Spec: jobs 9.13, 15.65, 15.85
#[test]
fn each_replica_of_a_leaderworkerset_is_a_workload_that_is_preempted_as_a_whole() {
    play_servers("leaders", 3, async |room| {
        let kind = resource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
        create(room, leaders(room, 2, 3)).await;
        let two = workloads_of(room, 2, |w| condition(w, "QuotaReserved").is_some()).await;
        for (index, workload) in two.iter().enumerate() {
            assert_eq!(
                sets(workload),
                [("leader".to_owned(), 1), ("worker".to_owned(), 2)]
            );
            let notes = &workload["metadata"]["annotations"];
            let own = "kueue.x-k8s.io/component-workload-index";
            assert_eq!(notes[own], index.to_string());
            assert_eq!(
                notes["kueue.x-k8s.io/job-owner-gvk"],
                "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet"
            );
        }
        // Room for one of the two.
        room.running(EAST, 3).await;
        let admitted = || async { workloads_of(room, 2, |_| true).await };
        let one = admitted().await.iter().filter(|w| is_true(w, "Admitted")).count();
        assert_eq!(one, 1);
        let size = json!({"spec": {"leaderWorkerTemplate": {"size": 2}}});
        let said = refused(room, &kind, size).await;
        assert!(said.contains("spec.leaderWorkerTemplate.size"), "{said}");
        let queue = Api::<DynamicObject>::all_with(room.client(EAST), &resource(KUEUE, "ClusterQueue"));
        let flavor = json!({"name": "cpu", "resources": [{"name": "cpu", "nominalQuota": "6"}]});
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor]}]);
        let patch = Patch::Merge(json!({"spec": {"resourceGroups": groups}}));
        let name = format!("{0}-{0}", room.name);
        queue.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        room.running(EAST, 6).await;
        let is_ready = |s: &Value| s["status"]["readyReplicas"] == 2;
        room.until(EAST, &kind, NAME, is_ready).await;
        large_job(room, 6).await;
        room.running(EAST, 6).await;
        room.until(EAST, &kind, NAME, is_ready).await;
        room.delete(EAST, &kind, NAME).await;
        room.is_empty(EAST, &[kind, all_pods(), workloads()]).await;
    });
}
