//! Pods of the manager that run on workers.

use super::super::ground::{MANAGER, play};
use super::*;

const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";

/// Everything that a pod leaves.
fn all_of_it() -> [ApiResource; 2] {
    [pods(), workloads()]
}

async fn nothing_is_left(room: Room) {
    for cluster in [MANAGER, EAST] {
        room.is_empty(cluster, &all_of_it()).await;
    }
}

/// Spec: multikueue 5.2; jobs 12.9, 15.120
#[test]
fn a_pod_of_the_manager_runs_on_a_worker_and_shows_its_end() {
    play("far-pod", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let created = create_on(room, MANAGER, pod(room, "one", 3)).await;
        assert!(is_gated(&created) && is_held(&created));
        let there = room.until(EAST, &pods(), "one", is_in("Running")).await;
        assert!(there["metadata"]["labels"][ORIGIN].is_string());
        assert_eq!(there["metadata"].get("ownerReferences"), None);
        assert!(!is_gated(&there));
        let here = room.until(MANAGER, &pods(), "one", is_in("Running")).await;
        assert!(is_gated(&here), "it stays held here");
        assert_eq!(here["status"]["podIP"], there["status"]["podIP"]);
        let says = |kind: &str| {
            let mut all = here["status"]["conditions"].as_array().unwrap().iter();
            all.any(|one| one["type"] == kind && one["status"] == "True")
        };
        assert!(says("PodScheduled") && says("Ready"));
        let workload = room.workload(MANAGER, "one", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
        assert_eq!(workload["status"]["clusterName"], EAST);
        room.until(MANAGER, &pods(), "one", |pod| {
            pod["status"]["phase"] == "Succeeded" && !is_held(pod)
        })
        .await;
        room.is_empty(EAST, &all_of_it()).await;
        room.delete(MANAGER, &pods(), "one").await;
        nothing_is_left(room).await;
    });
}

/// Spec: multikueue 3.9, 11.80
#[test]
fn of_a_pod_that_is_deleted_while_it_runs_elsewhere_nothing_stays() {
    play("far-pod-gone", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        create_on(room, MANAGER, pod(room, "one", LONG_SECS)).await;
        room.until(EAST, &pods(), "one", is_in("Running")).await;
        room.delete(MANAGER, &pods(), "one").await;
        nothing_is_left(room).await;
    });
}

/// Spec: jobs 12.9
#[test]
fn what_a_client_adds_to_a_pod_later_and_a_gate_that_it_removes_reach_the_copy() {
    const WAIT: &str = "example.com/wait";
    const DONE: &str = "workflows.argoproj.io/completed";
    play("far-later", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let mut waiting = pod(room, "one", LONG_SECS);
        waiting["metadata"]["labels"][DONE] = json!("false");
        waiting["spec"]["schedulingGates"] = json!([{"name": WAIT}]);
        let mut here = create_on(room, MANAGER, waiting).await;
        let only_waits = |pod: &Value| pod["spec"]["schedulingGates"] == json!([{"name": WAIT}]);
        room.until(EAST, &pods(), "one", only_waits).await;
        let added = json!({"labels": {DONE: "true"}, "annotations": {"example.com/note": "later"}});
        room.merge(MANAGER, &pods(), "one", json!({"metadata": added}))
            .await;
        let has_both = |pod: &Value| {
            let meta = &pod["metadata"];
            meta["labels"][DONE] == "true" && meta["annotations"]["example.com/note"] == "later"
        };
        let there = room.until(EAST, &pods(), "one", has_both).await;
        assert!(only_waits(&there) && there["status"]["phase"] == "Pending");
        let gates = here["spec"]["schedulingGates"].as_array_mut().unwrap();
        gates.retain(|gate| gate["name"] != WAIT);
        room.merge(
            MANAGER,
            &pods(),
            "one",
            json!({"spec": {"schedulingGates": gates}}),
        )
        .await;
        room.until(EAST, &pods(), "one", is_in("Running")).await;
        room.until(MANAGER, &pods(), "one", is_in("Running")).await;
        room.delete(MANAGER, &pods(), "one").await;
        nothing_is_left(room).await;
    });
}

/// Spec: multikueue 3.8; safety 1 I1
#[test]
fn a_pod_that_the_manager_stops_runs_anew_from_the_one_that_is_held_there() {
    play("far-pod-anew", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        create_on(room, MANAGER, pod(room, "one", LONG_SECS)).await;
        let first = room.until(EAST, &pods(), "one", is_in("Running")).await;
        let workload = room.workload(MANAGER, "one", |w| is_true(w, "Admitted")).await;
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        let active = async |active: bool| {
            let change = json!({"spec": {"active": active}});
            room.merge(MANAGER, &workloads(), &name, change).await;
        };
        active(false).await;
        room.is_empty(EAST, &all_of_it()).await;
        room.workload(MANAGER, "one", |w| !is_true(w, "QuotaReserved"))
            .await;
        let held = room.until(MANAGER, &pods(), "one", is_in("Pending")).await;
        assert_eq!(held["status"].get("podIP"), None);
        active(true).await;
        let second = room.until(EAST, &pods(), "one", is_in("Running")).await;
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        room.until(MANAGER, &pods(), "one", is_in("Running")).await;
        room.delete(MANAGER, &pods(), "one").await;
        nothing_is_left(room).await;
    });
}

/// Spec: safety 1 I1; multikueue 3.3 R6b
#[test]
fn a_pod_that_runs_on_a_worker_stays_held_here_when_its_queue_names_no_check() {
    play("far-unchecked", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        create_on(room, MANAGER, pod(room, "one", 8)).await;
        room.until(MANAGER, &pods(), "one", is_in("Running")).await;
        let queues = resource("kueue.x-k8s.io/v1beta2", "ClusterQueue");
        let none = json!({"spec": {"admissionChecksStrategy": null}});
        let patch = Patch::Merge(none);
        let all: Api<DynamicObject> = Api::all_with(room.client(MANAGER), &queues);
        all.patch(room.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        let here = room.until(MANAGER, &pods(), "one", is_in("Succeeded")).await;
        assert!(is_gated(&here), "it never ran here");
        room.workload(MANAGER, "one", |w| is_true(w, "Finished")).await;
        room.is_empty(EAST, &all_of_it()).await;
        room.delete(MANAGER, &pods(), "one").await;
        nothing_is_left(room).await;
    });
}

/// Spec: multikueue 5.2, 11.95; jobs 12.9, 12.5
#[test]
fn the_pods_of_a_group_run_on_one_worker_with_one_workload() {
    play("far-group", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let names = ["a", "b", "c"];
        for name in names {
            create_on(room, MANAGER, member(room, "g", 3, name, 4)).await;
        }
        for name in names {
            let there = room.until(EAST, &pods(), name, is_in("Running")).await;
            assert_eq!(
                there["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"],
                "g"
            );
            let here = room.until(MANAGER, &pods(), name, is_in("Running")).await;
            assert!(is_gated(&here));
        }
        let ended = room
            .until(MANAGER, &workloads(), "g", |w| is_true(w, "Finished"))
            .await;
        assert_eq!(condition(&ended, "Finished").unwrap(), "True Succeeded");
        let said =
            { ended["status"]["conditions"].as_array().unwrap().iter() }.find(|c| c["type"] == "Finished");
        assert_eq!(said.unwrap()["message"], "Pods succeeded: 3/3.");
        for name in names {
            let done = |pod: &Value| pod["status"]["phase"] == "Succeeded" && !is_held(pod);
            room.until(MANAGER, &pods(), name, done).await;
        }
        room.is_empty(EAST, &all_of_it()).await;
        for name in names {
            room.delete(MANAGER, &pods(), name).await;
        }
        nothing_is_left(room).await;
    });
}

/// Unlike the reference, where the copy runs on after its pod was deleted on the manager.
///
/// Spec: jobs 12.6, 12.9, 12.10
#[test]
fn a_pod_of_a_far_group_that_fails_or_is_deleted_is_replaced_on_the_same_worker() {
    play("far-replaced", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        for name in ["a", "b"] {
            create_on(room, MANAGER, member(room, "g", 2, name, LONG_SECS)).await;
        }
        for name in ["a", "b"] {
            room.until(MANAGER, &pods(), name, is_in("Running")).await;
        }
        fail(room, "b").await;
        room.until(MANAGER, &pods(), "b", is_in("Failed")).await;
        let waits = |w: &Value| condition(w, "WaitingForReplacementPods");
        let far = async |wanted: &'static str| {
            let is_so = |w: &Value| waits(w).as_deref() == Some(wanted);
            room.until(MANAGER, &workloads(), "g", is_so).await;
        };
        far("True PodsFailed").await;
        create_on(room, MANAGER, member(room, "g", 2, "c", LONG_SECS)).await;
        room.until(EAST, &pods(), "c", is_in("Running")).await;
        far("False PodsReady").await;
        room.until(MANAGER, &pods(), "b", |pod| !is_held(pod)).await;
        room.delete(MANAGER, &pods(), "a").await;
        gone(room, &pods(), "a").await;
        far("True PodsFailed").await;
        create_on(room, MANAGER, member(room, "g", 2, "d", LONG_SECS)).await;
        room.until(EAST, &pods(), "d", is_in("Running")).await;
        for name in ["b", "c", "d"] {
            room.delete(MANAGER, &pods(), name).await;
        }
        nothing_is_left(room).await;
    });
}
