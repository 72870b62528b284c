//! The price of pods: requests of the engine for a pod of a queue, and for pods of others.

use roadstead_e2e::audit;
use roadstead_e2e::options::Kind;
use roadstead_e2e::stage::Solo;
use roadstead_e2e::{Node, Options, Progress};

use super::super::ground::play_solo;
use super::*;

/// Writes for a pod of a queue from its creation to its end, on the pod and its Workload, in alphabetical order. Events and the statuses of
/// queues come besides.
const WRITES: [&str; 6] = [
    "create workloads/",
    // Its gates; its finalizer.
    "patch pods/",
    "patch pods/",
    // The finalizer of the Workload.
    "patch workloads/",
    // Quota and admission together; the end.
    "patch workloads/status",
    "patch workloads/status",
];
/// Pods of another namespace without a queue.
const OTHERS: usize = 200;

/// The engine's requests for pods and Workloads, as `verb resource/subresource`.
fn requests(solo: &Solo) -> Vec<String> {
    let all = audit::read(&solo.plane().audit_log().unwrap())
        .unwrap()
        .into_iter();
    let of_engine = |request: &audit::Request| {
        request.user_agent.starts_with("roadstead-worker")
            && matches!(request.resource.as_str(), "pods" | "workloads")
            && !matches!(request.verb.as_str(), "watch" | "list")
    };
    let said =
        |request: audit::Request| format!("{} {}/{}", request.verb, request.resource, request.subresource);
    all.filter(of_engine).map(said).collect()
}

/// Spec: jobs 12.1
#[test]
fn a_pod_of_a_queue_costs_six_writes_and_other_pods_cost_no_request_and_need_no_answer() {
    let node = Node::new("east-1", "64", "256Gi");
    let options = Options::complete("pod-cost")
        .with_node(node)
        .of_kind(Kind::Embedded)
        .with_audit();
    // Why that gate: waiting for readiness, which is off in v1beta1 of the configuration, costs one more write.
    let configuration = json!({
        "integrations": {"frameworks": ["pod"]}, "featureGates": {"DisableWaitForPodsReady": true},
    });
    let started = Solo::start(options, &configuration, Progress::stderr());
    play_solo("pod-cost", 4, started, async |solo, room| {
        create(room, pod(room, "one", 1)).await;
        let is_done = |pod: &Value| pod["status"]["phase"] == "Succeeded" && !is_held(pod);
        room.until(EAST, &pods(), "one", is_done).await;
        room.workload(EAST, "one", |w| {
            is_true(w, "Finished") && w["metadata"].get("finalizers").is_none()
        })
        .await;
        let before = requests(solo);
        let mut sorted = before.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, WRITES);
        for index in 0..OTHERS {
            let mut other = pod(room, &format!("other-{index}"), 1);
            other["metadata"]["labels"] = json!({"app": "web"});
            create(room, other).await;
        }
        room.until(
            EAST,
            &pods(),
            &format!("other-{}", OTHERS - 1),
            is_in("Succeeded"),
        )
        .await;
        assert_eq!(requests(solo), before);
        solo.kill();
        let mut other = pod(room, "unanswered", 1);
        other["metadata"]["labels"] = json!({"app": "web"});
        create(room, other).await;
        let queued = serde_json::from_value(pod(room, "refused", 1)).unwrap();
        let answer = room
            .api(EAST, &pods())
            .create(&PostParams::default(), &queued)
            .await;
        assert!(answer.is_err(), "a pod of the queue waits for the webhook");
    });
}
