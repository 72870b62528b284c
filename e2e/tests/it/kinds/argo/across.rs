//! Workflows of the manager whose steps run on workers: the workflow controller runs only on the manager.

use std::collections::BTreeSet;

use super::super::ground::{MANAGER, WEST, play_shown};
use super::*;

fn results() -> ApiResource {
    resource("argoproj.io/v1alpha1", "WorkflowTaskResult")
}

/// The pod of a step on the manager, once it is known where it runs.
async fn placed(room: Room, step: &str) -> Value {
    eventually(|| async {
        let mut pods = all_on(room, MANAGER, &pods()).await.into_iter();
        pods.find(|pod| {
            let name = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"].as_str();
            name.is_some_and(|name| name.ends_with(step)) && pod["spec"]["nodeName"].is_string()
        })
    })
    .await
}

/// Spec: jobs 12.9, 13.2
#[test]
fn steps_run_on_a_worker_and_one_uses_what_the_one_before_gave_there() {
    play_shown("far-argo", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let name = submit_on(room, MANAGER, produce_and_print(room.name)).await;
        let first = placed(room, "produce").await;
        assert_eq!(first["spec"]["nodeName"], "roadstead-east");
        room.apply(EAST, result_of(room, &first)).await;
        let ended = room.until(MANAGER, &workflows(), &name, has_succeeded).await;
        assert_prints(&placed(room, "print").await, "forty-two");
        let here = all_on(room, MANAGER, &results()).await;
        for result in &here {
            assert_eq!(
                result["metadata"]["ownerReferences"][0]["uid"],
                ended["metadata"]["uid"]
            );
        }
        for workload in all_on(room, MANAGER, &workloads()).await {
            assert_eq!(workload["status"]["clusterName"], EAST);
        }
        room.is_empty(EAST, &[results(), pods(), workloads()]).await;
        room.delete(MANAGER, &workflows(), &name).await;
        room.is_empty(MANAGER, &[results(), pods(), workloads()]).await;
    });
}

/// A Workflow of one step and then five at once; in the end the clusters in which they ran.
async fn fan_out(room: Room, more: Value) -> BTreeSet<String> {
    let say = json!({"inputs": {"parameters": [{"name": "message"}]}});
    let many: Vec<Value> = ["a", "b", "c", "d", "e"].map(|name| step(name, "say")).into();
    let mut spec = json!({
        "entrypoint": "main",
        "podMetadata": {"labels": {QUEUE: room.name}, "annotations": {RUN_SECONDS: "8"}},
        "templates": [{"name": "main", "steps": [[step("first", "say")], many]}, template("say", &say)],
    });
    for (name, value) in more.as_object().unwrap() {
        spec["podMetadata"]["annotations"][name] = value.clone();
    }
    let name = submit_on(room, MANAGER, spec).await;
    room.until(MANAGER, &workflows(), &name, has_succeeded).await;
    let ran = all_on(room, MANAGER, &workloads()).await;
    assert_eq!(ran.len(), 6);
    room.delete(MANAGER, &workflows(), &name).await;
    room.is_empty(MANAGER, &[pods(), workloads()]).await;
    let cluster = |workload: &Value| workload["status"]["clusterName"].as_str().unwrap().to_owned();
    ran.iter().map(cluster).collect()
}

/// Neither worker has room for five at once.
///
/// Spec: jobs 13.2
#[test]
fn steps_stay_in_the_cluster_of_the_first_unless_they_may_spread() {
    play_shown(
        "far-fan",
        &[(MANAGER, "8"), (EAST, "3"), (WEST, "3")],
        async |room| {
            assert_eq!(fan_out(room, json!({})).await.len(), 1);
            let both = fan_out(room, json!({"roadstead.dev/spread": "true"})).await;
            assert_eq!(both, BTreeSet::from([EAST.to_owned(), WEST.to_owned()]));
        },
    );
}
