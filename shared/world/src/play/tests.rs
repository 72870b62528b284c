use serde_json::{Value, from_value, json};

use super::*;

const STARTED: &str = "2026-01-01T00:10:00Z";

fn pod(annotations: &Value, restart: &str, status: &Value) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
        "spec": {"nodeName": "n", "restartPolicy": restart, "containers": [{"name": "main", "image": "i"}]},
        "status": status,
    });
    Arc::new(from_value(pod).unwrap())
}

fn running(annotations: &Value, restart: &str) -> Arc<Pod> {
    pod(
        annotations,
        restart,
        &json!({"phase": "Running", "startTime": STARTED}),
    )
}

#[derive(Debug, PartialEq)]
enum Due {
    /// This phase with this exit code.
    Phase(String, i32),
    Removed,
    /// Something, so many seconds after its start.
    After(f64),
    Nothing,
}

/// What is due `seconds` after the start.
fn check(pod: &Arc<Pod>, seconds: f64) -> Due {
    check_with(pod, seconds, SignedDuration::ZERO)
}

fn check_with(pod: &Arc<Pod>, seconds: f64, start_max: SignedDuration) -> Due {
    let start: Timestamp = STARTED.parse().unwrap();
    let now = start.checked_add(SignedDuration::from_secs_f64(seconds)).unwrap();
    let rules = Rules {
        nodes: &BTreeSet::from(["n".to_owned()]),
        seed: 7,
        start_max,
        started: &BTreeMap::new(),
    };
    let plan = decide(std::slice::from_ref(pod), &rules, now);
    match plan.actions.as_slice() {
        [Action::PodStatus(_, status)] => {
            let container = &status.container_statuses.as_ref().unwrap()[0];
            let ended = container.state.as_ref().unwrap().terminated.as_ref();
            Due::Phase(
                status.phase.clone().unwrap(),
                ended.map_or(0, |ended| ended.exit_code),
            )
        }
        [Action::RemovePod(_)] => Due::Removed,
        [] => plan.due.map_or(Due::Nothing, |due| {
            Due::After(due.duration_since(start).as_secs_f64())
        }),
        other => panic!("{other:?}"),
    }
}

fn phase_is(name: &str, code: i32) -> Due {
    Due::Phase(name.to_owned(), code)
}

#[test]
fn a_pod_runs_for_its_time_and_ends_with_its_code() {
    let pod = running(&json!({RUN_SECONDS: "2.5"}), "Never");
    assert_eq!(check(&pod, 2.4), Due::After(2.5));
    assert_eq!(check(&pod, 2.5), phase_is("Succeeded", 0));
    let pod = running(&json!({EXIT_CODE: "3"}), "Never");
    assert_eq!(check(&pod, 1.0), phase_is("Failed", 3));
    assert_eq!(check(&running(&json!({}), "Always"), 9999.0), Due::Nothing);
}

#[test]
fn a_bound_pod_starts_after_the_delay_that_the_seed_chose() {
    let bound =
        json!({"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": STARTED}]});
    let pod = pod(&json!({}), "Never", &bound);
    assert_eq!(check(&pod, 0.0), phase_is("Running", 0));
    let longest = SignedDuration::from_secs(10);
    let Due::After(delay) = check_with(&pod, -1.0, longest) else {
        panic!("it starts before it is bound")
    };
    assert!((0.0..=10.0).contains(&delay));
    assert_eq!(check_with(&pod, -0.5, longest), Due::After(delay));
    assert_eq!(check_with(&pod, delay, longest), phase_is("Running", 0));
}

#[test]
fn a_deleted_pod_ends_before_it_is_taken_out() {
    let deleted = |phase: &str, grace: i64| {
        let mut pod = Pod::clone(&running(&json!({RUN_SECONDS: "600"}), "Never"));
        pod.metadata.deletion_timestamp = Some(stamp(STARTED.parse().unwrap()));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        pod.status.as_mut().unwrap().phase = Some(phase.to_owned());
        Arc::new(pod)
    };
    assert_eq!(check(&deleted("Running", 30), 0.0), phase_is("Failed", KILLED));
    assert_eq!(check(&deleted("Failed", 30), 0.0), Due::Removed);
    // Another client's finalizer keeps the pod.
    assert_eq!(check(&deleted("Failed", 0), 0.0), Due::Nothing);
}

#[test]
fn pods_on_nodes_of_others_are_left_alone() {
    let mut pod = Pod::clone(&running(&json!({}), "Never"));
    pod.spec.as_mut().unwrap().node_name = Some("theirs".to_owned());
    assert_eq!(check(&Arc::new(pod), 9999.0), Due::Nothing);
}
