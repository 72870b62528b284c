use k8s_openapi::api::core::v1::Node as Object;
use serde_json::{Value, from_value, json};

use super::*;

const NOW: &str = "2026-01-01T00:10:00Z";

fn node(name: &str, cpu: &str) -> Arc<Object> {
    let node = json!({
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    Arc::new(from_value(node).unwrap())
}

/// A pod created `second` seconds after ten o'clock.
fn pod(name: &str, cpu: &str, second: u32, extra: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "creationTimestamp": format!("2026-01-01T00:10:{second:02}Z"),
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"},
    });
    for (key, value) in extra.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    Arc::new(from_value(pod).unwrap())
}

fn placed(nodes: &[Arc<Object>], pods: &[Arc<Pod>]) -> Vec<String> {
    decide(nodes, pods, NOW.parse().unwrap())
        .into_iter()
        .map(|action| {
            if let Action::BindPod(pod, node) = &action {
                return format!("{} on {node}", pod.name_any());
            }
            let Action::PodStatus(pod, _) = &action else {
                panic!("a scheduler does not {action:?}")
            };
            format!("{} nowhere", pod.name_any())
        })
        .collect()
}

#[test]
fn the_important_come_first_then_the_old_and_nobody_is_held_back_by_one_that_does_not_fit() {
    let none = json!({});
    let pods = [
        pod("young", "2", 9, &none),
        pod("huge", "64", 0, &none),
        pod("old", "2", 1, &none),
        pod("urgent", "2", 9, &json!({"priority": 7})),
    ];
    assert_eq!(
        placed(&[node("n", "4")], &pods),
        ["urgent on n", "huge nowhere", "old on n", "young nowhere"]
    );
}

#[test]
fn a_pod_goes_where_it_leaves_the_least_room() {
    let pods = [pod("a", "1", 0, &json!({})), pod("b", "6", 1, &json!({}))];
    assert_eq!(
        placed(&[node("large", "6"), node("small", "2")], &pods),
        ["a on small", "b on large"]
    );
}

#[test]
fn what_is_gated_bound_or_somebody_elses_is_left_alone() {
    let pods = [
        pod("gated", "1", 0, &json!({"schedulingGates": [{"name": "wait"}]})),
        pod("bound", "1", 0, &json!({"nodeName": "n"})),
        pod("theirs", "1", 0, &json!({"schedulerName": "other"})),
    ];
    assert!(placed(&[node("n", "4")], &pods).is_empty());
}

#[test]
fn that_there_is_no_room_is_said_once() {
    let first = decide(
        &[node("n", "1")],
        &[pod("p", "2", 0, &json!({}))],
        NOW.parse().unwrap(),
    );
    let [Action::PodStatus(pod, status)] = first.as_slice() else {
        panic!("{first:?}")
    };
    let mut told = Pod::clone(pod);
    told.status = Some(PodStatus::clone(status));
    assert!(placed(&[node("n", "1")], &[Arc::new(told)]).is_empty());
}
