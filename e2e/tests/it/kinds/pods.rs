//! Plain pods and groups of them, on one cluster whose pods kwok plays.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use roadstead_e2e::options::RUN_SECONDS;
use serde_json::{Value, json};

use super::ground::{EAST, LONG_SECS, Room, condition, is_true, play_pods, resource};
use crate::shared::eventually;

mod across;
mod bad;
mod cost;
mod nodes;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";

fn pods() -> ApiResource {
    resource("v1", "Pod")
}

fn workloads() -> ApiResource {
    resource(KUEUE, "Workload")
}

/// A pod of one core in the queue of the test, which runs so long.
fn pod(room: Room, name: &str, secs: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": room.name, "labels": {QUEUE: room.name},
            "annotations": {RUN_SECONDS: secs.to_string()},
        },
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]},
    })
}

/// The same as a member of a group of so many.
fn member(room: Room, group: &str, count: usize, name: &str, secs: u32) -> Value {
    let mut pod = pod(room, name, secs);
    pod["metadata"]["labels"][GROUP] = json!(group);
    pod["metadata"]["annotations"][COUNT] = json!(count.to_string());
    pod
}

async fn create(room: Room, pod: Value) -> Value {
    create_on(room, EAST, pod).await
}

async fn create_on(room: Room, cluster: &str, pod: Value) -> Value {
    let object = serde_json::from_value(pod).unwrap();
    let created = room
        .api(cluster, &pods())
        .create(&PostParams::default(), &object)
        .await;
    serde_json::to_value(created.unwrap()).unwrap()
}

fn is_gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| {
        gates
            .iter()
            .any(|gate| gate["name"] == "kueue.x-k8s.io/admission")
    })
}

fn is_held(pod: &Value) -> bool {
    pod["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| all.contains(&json!(MANAGED)))
}

fn is_in(phase: &'static str) -> impl Fn(&Value) -> bool {
    move |pod| pod["status"]["phase"] == phase
}

async fn workload(room: Room, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    room.until(EAST, &workloads(), name, wanted).await
}

async fn gone(room: Room, resource: &ApiResource, name: &str) {
    let api = room.api(EAST, resource);
    eventually(|| async { api.get_opt(name).await.ok()?.is_none().then_some(()) }).await;
}

/// Waits for an Event of this reason, and gives what it says.
async fn told(room: Room, reason: &str) -> String {
    let api: Api<Event> = Api::namespaced(room.client(EAST), room.name);
    eventually(|| async {
        let all = api.list(&ListParams::default()).await.ok()?;
        let found = all
            .items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some(reason))?;
        found.message
    })
    .await
}

/// Waits until each of these pods has an Event with this reason.
async fn told_on(room: Room, reason: &str, names: &[&str]) {
    let api: Api<Event> = Api::namespaced(room.client(EAST), room.name);
    eventually(|| async {
        let all = api.list(&ListParams::default()).await.ok()?.items;
        let is_told = |name: &&str| {
            all.iter().any(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.name.as_deref() == Some(*name)
            })
        };
        names.iter().all(is_told).then_some(())
    })
    .await;
}

/// Lets a pod fail as its kubelet would.
async fn fail(room: Room, name: &str) {
    let api: Api<Pod> = Api::namespaced(room.client(EAST), room.name);
    let status = json!({"status": {"phase": "Failed"}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

/// Spec: jobs 12.1, 12.7, 12.8, 15.93, 15.127
#[test]
fn a_pod_of_a_queue_runs_when_it_has_quota_and_one_of_no_queue_is_left_alone() {
    play_pods("pod-single", 1, async |room| {
        let mut free = pod(room, "free", 1);
        free["metadata"]["labels"] = json!({});
        let free = create(room, free).await;
        assert!(!is_gated(&free) && !is_held(&free));
        let first = create(room, pod(room, "first", 1)).await;
        assert!(is_gated(&first) && is_held(&first));
        assert_eq!(first["metadata"]["labels"][MANAGED], "true");
        let own = room.workload(EAST, "first", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&own, "Finished").unwrap(), "True Succeeded");
        assert_eq!(own["spec"]["podSets"][0]["name"], "main");
        let ended = room.until(EAST, &pods(), "first", |pod| !is_held(pod)).await;
        assert_eq!(ended["status"]["phase"], "Succeeded");
        assert_eq!(ended["metadata"]["labels"]["kueue.x-k8s.io/podset"], "main");
        create(room, pod(room, "next", LONG_SECS)).await;
        room.until(EAST, &pods(), "next", is_in("Running")).await;
        create(room, pod(room, "waits", LONG_SECS)).await;
        room.workload(EAST, "waits", |w| condition(w, "QuotaReserved").is_some())
            .await;
        room.delete(EAST, &pods(), "next").await;
        room.until(EAST, &pods(), "waits", is_in("Running")).await;
        room.delete(EAST, &pods(), "waits").await;
        gone(room, &pods(), "waits").await;
    });
}

/// Spec: jobs 12.5, 12.7, 15.97, 15.98, 15.103
#[test]
fn a_group_runs_once_it_is_complete_and_ends_with_its_last_pod() {
    play_pods("pod-group", 4, async |room| {
        for name in ["a", "b"] {
            create(room, member(room, "g", 3, name, 2)).await;
        }
        let why = told(room, "ErrWorkloadCompose").await;
        assert_eq!(why, "'g' group has fewer runnable pods than expected");
        let api = room.api(EAST, &workloads());
        assert!(api.get_opt("g").await.unwrap().is_none());
        create(room, member(room, "g", 3, "c", 2)).await;
        let made = workload(room, "g", |w| is_true(w, "Admitted")).await;
        let owners = made["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(owners.len(), 3);
        assert!(
            owners
                .iter()
                .all(|owner| owner["kind"] == "Pod" && owner.get("controller").is_none())
        );
        assert_eq!(
            made["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"],
            "true"
        );
        told_on(room, "Started", &["a", "b", "c"]).await;
        let ended = workload(room, "g", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&ended, "Finished").unwrap(), "True Succeeded");
        let said = ended["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["type"] == "Finished");
        assert_eq!(said.unwrap()["message"], "Pods succeeded: 3/3.");
        for name in ["a", "b", "c"] {
            room.until(EAST, &pods(), name, |pod| !is_held(pod) && !is_gated(pod))
                .await;
        }
        create(room, member(room, "g", 3, "late", 1)).await;
        let late = room.until(EAST, &pods(), "late", |pod| !is_held(pod)).await;
        assert!(is_gated(&late), "its group is over");
    });
}

/// Spec: jobs 12.6, 12.10, 15.100, 15.104
#[test]
fn a_pod_that_failed_is_replaced_and_one_too_many_is_deleted() {
    play_pods("pod-replaced", 4, async |room| {
        for name in ["a", "b"] {
            create(room, member(room, "g", 2, name, LONG_SECS)).await;
        }
        for name in ["a", "b"] {
            room.until(EAST, &pods(), name, is_in("Running")).await;
        }
        fail(room, "b").await;
        let waits = |w: &Value| condition(w, "WaitingForReplacementPods");
        workload(room, "g", |w| waits(w).as_deref() == Some("True PodsFailed")).await;
        create(room, member(room, "g", 2, "c", LONG_SECS)).await;
        room.until(EAST, &pods(), "c", is_in("Running")).await;
        let whole = workload(room, "g", |w| waits(w).as_deref() == Some("False PodsReady")).await;
        assert!(is_true(&whole, "Admitted"));
        room.until(EAST, &pods(), "b", |pod| !is_held(pod)).await;
        workload(room, "g", |w| {
            w["metadata"]["ownerReferences"].as_array().unwrap().len() == 3
        })
        .await;
        create(room, member(room, "g", 2, "d", LONG_SECS)).await;
        assert_eq!(told(room, "ExcessPodDeleted").await, "Excess pod deleted");
        gone(room, &pods(), "d").await;
        room.delete(EAST, &workloads(), "g").await;
        for name in ["a", "c"] {
            gone(room, &pods(), name).await;
        }
        gone(room, &workloads(), "g").await;
    });
}

/// Spec: jobs 12.8, 12.12, 15.107
#[test]
fn a_group_makes_room_for_a_pod_of_a_higher_class_and_comes_back_when_it_is_made_anew() {
    play_pods("pod-preempted", 2, async |room| {
        for name in ["a", "b"] {
            create(room, member(room, "g", 2, name, LONG_SECS)).await;
        }
        for name in ["a", "b"] {
            room.until(EAST, &pods(), name, is_in("Running")).await;
        }
        let mut high = pod(room, "high", LONG_SECS);
        high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        create(room, high).await;
        let stopped = room
            .until(EAST, &pods(), "a", |pod| {
                condition(pod, "TerminationTarget").is_some()
            })
            .await;
        assert_eq!(
            condition(&stopped, "TerminationTarget").unwrap(),
            "True WorkloadEvictedDueToPreempted"
        );
        told_on(room, "Stopped", &["a", "b"]).await;
        room.until(EAST, &pods(), "high", is_in("Running")).await;
        let waits = |w: &Value| is_true(w, "WaitingForReplacementPods") && !is_true(w, "QuotaReserved");
        workload(room, "g", waits).await;
        room.delete(EAST, &pods(), "high").await;
        for name in ["c", "d"] {
            create(room, member(room, "g", 2, name, LONG_SECS)).await;
        }
        for name in ["c", "d"] {
            room.until(EAST, &pods(), name, is_in("Running")).await;
        }
        for name in ["a", "b"] {
            gone(room, &pods(), name).await;
        }
        for name in ["c", "d"] {
            room.delete(EAST, &pods(), name).await;
        }
    });
}

/// Spec: jobs 12.5, 12.12, 15.110
#[test]
fn a_group_waits_for_a_foreign_workload_of_its_name_and_goes_when_all_its_held_pods_are_deleted() {
    play_pods("pod-conflict", 1, async |room| {
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}});
        let foreign = json!({
            "apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": "g", "namespace": room.name},
            "spec": {"queueName": "elsewhere", "podSets": [{"name": "main", "count": 1, "template": template}]},
        });
        let foreign = room.apply(EAST, foreign).await;
        for name in ["a", "b"] {
            create(room, member(room, "g", 2, name, LONG_SECS)).await;
        }
        assert!(
            told(room, "WorkloadNameConflict")
                .await
                .contains("A Workload named \"g\" already exists")
        );
        room.delete(EAST, &workloads(), "g").await;
        let is_new = |w: &Value| w["metadata"]["uid"] != foreign["metadata"]["uid"];
        workload(room, "g", |w| {
            is_new(w) && condition(w, "QuotaReserved").is_some()
        })
        .await;
        for name in ["a", "b"] {
            room.delete(EAST, &pods(), name).await;
        }
        for name in ["a", "b"] {
            gone(room, &pods(), name).await;
        }
        gone(room, &workloads(), "g").await;
    });
}
