//! A step with a `retryStrategy` whose pod makes room for a step of a higher priority.

use jiff::{SignedDuration, Timestamp};
use roadstead_e2e::options::RUN_SECONDS;

use super::*;

/// How long a step runs.
const STEP_SECS: u32 = 15;
/// Longer than `RECENTLY_STARTED_POD_DURATION` of the controller: for that long it makes a missing pod again under the same name.
const STARTED: SignedDuration = SignedDuration::from_secs(3);

/// A Workflow of one step in the queue, which runs so long.
fn one_step(secs: u32, labels: &Value, more: &Value) -> Value {
    json!({
        "entrypoint": "step",
        "podMetadata": {"labels": labels, "annotations": {RUN_SECONDS: secs.to_string()}},
        "arguments": {"parameters": [{"name": "message", "value": "moo"}]},
        "templates": [template("step", more)],
    })
}

/// The nodes of a Workflow that have pods, by the order of their names.
fn tries(workflow: &Value) -> Vec<Value> {
    let Some(nodes) = workflow["status"]["nodes"].as_object() else {
        return Vec::new();
    };
    let mut tries: Vec<Value> = { nodes.values() }
        .filter(|node| node["type"] == "Pod")
        .cloned()
        .collect();
    tries.sort_by_key(|node| node["name"].as_str().unwrap().to_owned());
    tries
}

/// Whether the controller knows that the pod of this try runs and has told its result, and counts it as started.
fn is_under_way(node: &Value) -> bool {
    let started: Option<Timestamp> = node["startedAt"].as_str().and_then(|at| at.parse().ok());
    node["phase"] == "Running"
        && node["taskResultSynced"] == true
        && started.is_some_and(|at| Timestamp::now().duration_since(at) > STARTED)
}

/// Spec: jobs 13.2
#[test]
fn a_step_that_makes_room_is_retried_as_its_strategy_says() {
    play_workflows("argo-retry", &[("user-queue", 1)], async |room| {
        let inputs = json!({"parameters": [{"name": "message"}]});
        let retry = json!({"inputs": inputs, "retryStrategy": {"limit": "2", "retryPolicy": "Always"}});
        let low = submit(room, one_step(STEP_SECS, &json!({QUEUE: "user-queue"}), &retry)).await;
        room.running(EAST, 1).await;
        let first = all(room, &pods()).await.remove(0);
        room.apply(EAST, result_of(room, &first)).await;
        // Why read again and again: nothing of it changes when the time is over.
        room.until(EAST, &workflows(), &low, |w| {
            tries(w).first().is_some_and(is_under_way)
        })
        .await;

        let labels = json!({QUEUE: "user-queue", "kueue.x-k8s.io/priority-class": "high"});
        let high = submit(room, one_step(1, &labels, &json!({"inputs": inputs}))).await;
        room.until(EAST, &workflows(), &high, has_succeeded).await;

        let ended = room.until(EAST, &workflows(), &low, has_succeeded).await;
        let tries = tries(&ended);
        let shown: Vec<(&Value, &Value)> = tries
            .iter()
            .map(|node| (&node["phase"], &node["message"]))
            .collect();
        assert_eq!(
            shown,
            [
                (&json!("Error"), &json!("pod deleted")),
                (&json!("Succeeded"), &Value::Null)
            ],
            "{tries:#?}"
        );
        let names: Vec<Value> = all(room, &pods())
            .await
            .iter()
            .map(|pod| pod["metadata"]["name"].clone())
            .collect();
        assert!(!names.contains(&first["metadata"]["name"]), "{names:?}");
        // That of the first try goes with its pod.
        eventually(|| async {
            let all = all(room, &workloads()).await;
            (all.len() == 2 && all.iter().all(|w| is_true(w, "Finished"))).then_some(())
        })
        .await;
    });
}
