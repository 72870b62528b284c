//! `SparkApplication`. The tests play its operator, because the real one starts its pods by `spark-submit`, a Java program that not
//! every machine has. They create the pods and write the status as its version 2.5 does.

use kube::api::{ApiResource, Patch, PatchParams, PostParams};
use roadstead_e2e::stage;
use serde_json::{Value, json};

use super::ground::{
    EAST, KUEUE, LONG_SECS, MANAGER, Room, condition, is_true, play, pods, resource, tight_queue,
};
use crate::shared::{chain, eventually};

const API_VERSION: &str = "sparkoperator.k8s.io/v1beta2";
const NAME: &str = "pi";

pub(super) fn apps() -> ApiResource {
    resource(API_VERSION, "SparkApplication")
}

/// The definition of the operator's release, reduced to the fields of these tests.
pub(super) async fn define(room: Room, cluster: &str) {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": any, "status": any}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "sparkapplications.sparkoperator.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubeflow/spark-operator/pull/1298"},
        },
        "spec": {
            "group": "sparkoperator.k8s.io", "scope": "Namespaced",
            "names": {"kind": "SparkApplication", "plural": "sparkapplications"},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    stage::apply(&room.client(cluster), definition).await.unwrap();
}

/// A driver and two executors of one core, in the queue of the test.
pub(super) fn application(room: Room) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "SparkApplication",
        "metadata": {"name": NAME, "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name}},
        "spec": {
            "type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0", "image": "spark",
            "mainApplicationFile": "local:///opt/spark/examples.jar",
            "driver": {"cores": 1, "memory": "512m"},
            "executor": {"cores": 1, "instances": 2, "memory": "512m"},
        },
    })
}

async fn submit(room: Room, cluster: &str, spec: Value) -> Result<Value, kube::Error> {
    let mut app = application(room);
    for (key, value) in spec.as_object().unwrap() {
        app["spec"][key] = value.clone();
    }
    // Why only there: the manager has no such classes.
    if cluster == EAST {
        app["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(format!("{}-low", room.name));
    }
    let object = serde_json::from_value(app).unwrap();
    let api = room.api(cluster, &apps());
    // Why again: the definition may not be served yet.
    let served = async || match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        created => Some(created),
    };
    let created = eventually(served).await?;
    Ok(serde_json::to_value(created).unwrap())
}

async fn until(room: Room, cluster: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    room.until(cluster, &apps(), NAME, wanted).await
}

fn is_held(app: &Value) -> bool {
    app["spec"]["suspend"] == true
}

/// Writes the state as the operator does.
async fn say(room: Room, state: &str, executors: &str) {
    say_of(room, NAME, state, executors).await;
}

async fn say_of(room: Room, name: &str, state: &str, executors: &str) {
    let status = json!({"status": {
        "applicationState": {"state": state, "errorMessage": ""},
        "executorState": {"pi-exec-1": executors, "pi-exec-2": executors},
    }});
    let api = room.api(EAST, &apps());
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

/// Runs the application as the operator does: with pods from the fields of the roles.
async fn run(room: Room, secs: u32) {
    let app = until(room, EAST, |app| !is_held(app)).await;
    for role in ["driver", "executor"] {
        assert_eq!(
            app["spec"][role]["labels"]["kueue.x-k8s.io/podset"], role,
            "what was injected"
        );
    }
    start_pods(room, &app, secs).await;
    room.running(EAST, 3).await;
    say(room, "RUNNING", "RUNNING").await;
}

/// Creates the pods as the operator does, with the labels of the roles or of their templates.
pub(super) async fn start_pods(room: Room, app: &Value, secs: u32) {
    let name = app["metadata"]["name"].as_str().unwrap();
    for (role, suffix) in [
        ("driver", "driver"),
        ("executor", "exec-1"),
        ("executor", "exec-2"),
    ] {
        let mut pod = pods(secs);
        let fields = &app["spec"][role];
        let of_template = fields.pointer("/template/metadata/labels");
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(format!("{name}-{suffix}"));
        pod["metadata"]["namespace"] = json!(room.name);
        pod["metadata"]["labels"] = fields.get("labels").or(of_template).cloned().unwrap_or_default();
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": API_VERSION, "kind": "SparkApplication", "name": name, "uid": app["metadata"]["uid"], "controller": true,
        }]);
        room.apply(EAST, pod).await;
    }
    say_of(room, name, "SUBMITTED", "PENDING").await;
}

/// Stops the application as the operator does.
async fn stop(room: Room) {
    until(room, EAST, is_held).await;
    say(room, "SUSPENDING", "RUNNING").await;
    for name in ["driver", "exec-1", "exec-2"] {
        room.delete(EAST, &resource("v1", "Pod"), &format!("{NAME}-{name}"))
            .await;
    }
    room.running(EAST, 0).await;
    say(room, "SUSPENDED", "UNKNOWN").await;
}

async fn finished(room: Room, cluster: &str) {
    let workload = room.workload(cluster, NAME, |w| is_true(w, "Finished")).await;
    assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
}

/// Spec: jobs 9.10, 5.8, 5.9, 15.87
#[test]
fn a_sparkapplication_is_admitted_preempted_resumed_and_ends_on_one_cluster() {
    play("spark-alone", &[(EAST, "3")], async |room| {
        define(room, EAST).await;
        tight_queue(room).await;
        let refused = submit(room, EAST, json!({"mode": "client"})).await.unwrap_err();
        let refused = chain(&refused);
        assert!(
            refused.contains("only Cluster mode is supported for a kueue managed job"),
            "{refused}"
        );
        let created = submit(room, EAST, json!({})).await.unwrap();
        assert!(is_held(&created), "the webhook holds it");
        let workload = room.workload(EAST, NAME, |w| is_true(w, "Admitted")).await;
        let sets: Vec<_> = { workload["spec"]["podSets"].as_array().unwrap().iter() }
            .map(|set| (set["name"].as_str().unwrap(), set["count"].as_i64().unwrap()))
            .collect();
        assert_eq!(sets, [("driver", 1), ("executor", 2)]);
        run(room, LONG_SECS).await;
        room.apply(
            EAST,
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "large", "namespace": room.name, "labels": {
                    "kueue.x-k8s.io/queue-name": room.name,
                    "kueue.x-k8s.io/priority-class": format!("{}-high", room.name),
                }},
                "spec": {"template": pods(1)},
            }),
        )
        .await;
        let evicted = |w: &Value| condition(w, "Evicted").is_some_and(|said| said == "True Preempted");
        room.workload(EAST, NAME, evicted).await;
        let held = until(room, EAST, is_held).await;
        assert_eq!(held["spec"]["driver"].get("labels"), None, "as it was");
        let quota = room.workload(EAST, NAME, |_| true).await;
        assert!(is_true(&quota, "QuotaReserved"), "its pods still run");
        stop(room).await;
        let large = resource("batch/v1", "Job");
        room.until(EAST, &large, "large", |j| is_true(j, "Complete"))
            .await;
        room.delete(EAST, &large, "large").await;
        run(room, 1).await;
        say(room, "COMPLETED", "COMPLETED").await;
        finished(room, EAST).await;
        room.delete(EAST, &apps(), NAME).await;
        let workloads = resource(KUEUE, "Workload");
        room.is_empty(EAST, &[apps(), workloads, resource("v1", "Pod")])
            .await;
    });
}

/// It has no field that names its controller, so it stays suspended on the manager.
///
/// Spec: jobs 9.10, 10.1; multikueue 5
#[test]
fn a_sparkapplication_of_the_manager_runs_on_a_worker_and_shows_its_end() {
    play("spark-far", &[(MANAGER, "8"), (EAST, "8")], async |room| {
        define(room, MANAGER).await;
        define(room, EAST).await;
        let created = submit(room, MANAGER, json!({})).await.unwrap();
        assert!(is_held(&created));
        let there = until(room, EAST, |_| true).await;
        assert!(there["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"].is_string());
        run(room, 1).await;
        let workload = room.workload(MANAGER, NAME, |w| is_true(w, "Admitted")).await;
        assert_eq!(workload["status"]["clusterName"], EAST);
        let here = until(room, MANAGER, |_| true).await;
        assert!(
            is_held(&here) && here.get("status").is_none(),
            "it shows nothing before its end"
        );
        say(room, "COMPLETED", "COMPLETED").await;
        until(room, MANAGER, |app| {
            is_held(app) && app["status"]["applicationState"]["state"] == "COMPLETED"
        })
        .await;
        finished(room, MANAGER).await;
        room.delete(MANAGER, &apps(), NAME).await;
        let all = [apps(), resource(KUEUE, "Workload"), resource("v1", "Pod")];
        room.is_empty(MANAGER, &all).await;
        room.is_empty(EAST, &all).await;
    });
}
