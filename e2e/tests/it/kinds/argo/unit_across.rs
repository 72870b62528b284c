//! Workflows of the manager that name a queue themselves and run on a worker as one unit. The workflow controller runs on both.

use kube::api::{Patch, PatchParams};

use super::super::ground::{KUEUE, LONG_SECS, MANAGER, WEST, WEST_CHANGES, play_shown, pods as one_core};
use super::super::served::{EXPLANATION, explained};
use super::unit::{is_suspended, one_then_two};
use super::*;

const COMPLETED: &str = "workflows.argoproj.io/completed";
const CLUSTERS: [(&str, &str); 2] = [(MANAGER, "8"), (WEST, "2")];

async fn submit_unit(room: Room, name: &str, spec: Value) {
    let metadata = json!({"name": name, "labels": {QUEUE: room.name}});
    create(room, MANAGER, metadata, spec).await;
}

/// The spec of a Workflow whose steps run so long.
fn steps(room: Room, secs: u32) -> Value {
    let mut spec = one_then_two(secs);
    spec["podMetadata"]["labels"][QUEUE] = json!(room.name);
    spec
}

/// Its copy, once it runs on the worker.
async fn running(room: Room, name: &str) -> Value {
    let runs = |copy: &Value| !is_suspended(copy) && copy["status"]["phase"] == "Running";
    room.until(WEST, &workflows(), name, runs).await
}

async fn is_over(room: Room, name: &str, phase: &str) -> Value {
    let over = |workflow: &Value| {
        workflow["status"]["phase"] == phase && workflow["metadata"]["labels"][COMPLETED] == "true"
    };
    room.until(MANAGER, &workflows(), name, over).await
}

async fn nothing_is_left(room: Room, cluster: &str) {
    room.is_empty(cluster, &[workflows(), workloads(), pods()]).await;
}

/// It succeeds, and is deleted.
async fn succeeds_and_goes(room: Room, name: &str) {
    is_over(room, name, "Succeeded").await;
    let finished = room.workload(MANAGER, name, |w| is_true(w, "Finished")).await;
    assert_eq!(condition(&finished, "Finished").unwrap(), "True Succeeded");
    room.delete(MANAGER, &workflows(), name).await;
    for cluster in [MANAGER, WEST] {
        nothing_is_left(room, cluster).await;
    }
}

/// Spec: jobs 9.15, 10.1, 10.3; multikueue 5
#[test]
fn a_workflow_of_the_manager_runs_on_a_worker_as_one_unit_and_shows_its_end() {
    play_shown("far-unit", &CLUSTERS, async |room| {
        let _alone = WEST_CHANGES.lock().await;
        submit_unit(room, "etl", steps(room, 3)).await;
        let there = running(room, "etl").await;
        let workload = room.workload(MANAGER, "etl", |w| is_true(w, "Admitted")).await;
        assert_eq!(workload["status"]["clusterName"], WEST);
        let labels = &there["metadata"]["labels"];
        assert_eq!(
            labels["kueue.x-k8s.io/prebuilt-workload-name"],
            workload["metadata"]["name"]
        );
        assert!(labels["kueue.x-k8s.io/multikueue-origin"].is_string());
        let said = explained(room, "workflow/etl").await;
        assert!(said.contains(WEST), "{said}");

        let here = is_over(room, "etl", "Succeeded").await;
        assert!(is_suspended(&here), "no step begins here");
        let nodes = here["status"]["nodes"].as_object().unwrap();
        let steps_of_it = nodes.values().filter(|node| node["type"] == "Pod").count();
        assert_eq!(steps_of_it, 3, "{nodes:#?}");
        let finished = room.workload(MANAGER, "etl", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&finished, "Finished").unwrap(), "True Succeeded");
        nothing_is_left(room, WEST).await;

        // Why another one after a change: the controller handles the change before it. The other is the example.
        room.merge(
            MANAGER,
            &workflows(),
            "etl",
            json!({"metadata": {"annotations": {"team": "a"}}}),
        )
        .await;
        apply_example(room, WEST, "queue.yaml").await;
        apply_example(room, MANAGER, "manager.yaml").await;
        apply_example(room, MANAGER, "unit.yaml").await;
        is_over(room, "as-one", "Succeeded").await;
        let after = room.until(MANAGER, &workflows(), "etl", |_| true).await;
        assert_eq!(after["status"], here["status"], "the controller leaves it alone");
        assert!(room.phases(MANAGER).await.is_empty(), "no step has ever run here");
        for name in ["etl", "as-one"] {
            room.delete(MANAGER, &workflows(), name).await;
        }
        nothing_is_left(room, MANAGER).await;
    });
}

/// Spec: jobs 9.15; multikueue 3.8, 3.9; safety 1 I1
#[test]
fn a_workflow_that_is_stopped_ended_or_deleted_on_the_manager_goes_with_its_steps() {
    play_shown("far-unit-gone", &CLUSTERS, async |room| {
        let _alone = WEST_CHANGES.lock().await;
        submit_unit(room, "long", steps(room, LONG_SECS)).await;
        let first = running(room, "long").await;
        room.running(WEST, 1).await;
        let workload = room.workload(MANAGER, "long", |w| is_true(w, "Admitted")).await;
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        let active = async |active: bool| {
            room.merge(MANAGER, &workloads(), &name, json!({"spec": {"active": active}}))
                .await;
        };
        active(false).await;
        let released = |w: &Value| !is_true(w, "QuotaReserved") && w["status"].get("clusterName").is_none();
        room.workload(MANAGER, "long", released).await;
        nothing_is_left(room, WEST).await;
        active(true).await;
        let second = running(room, "long").await;
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        room.running(WEST, 1).await;

        // As `argo terminate` does.
        room.merge(
            MANAGER,
            &workflows(),
            "long",
            json!({"spec": {"shutdown": "Terminate"}}),
        )
        .await;
        let ended = is_over(room, "long", "Failed").await;
        let why = ended["status"]["message"].as_str().unwrap().to_owned();
        assert!(why.contains("Terminate"), "{why}");
        let finished = room.workload(MANAGER, "long", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&finished, "Finished").unwrap(), "True Failed");
        assert!(
            finished["status"].to_string().contains(&why),
            "{:#}",
            finished["status"]
        );
        nothing_is_left(room, WEST).await;

        submit_unit(room, "unwanted", steps(room, LONG_SECS)).await;
        running(room, "unwanted").await;
        room.running(WEST, 1).await;
        for name in ["long", "unwanted"] {
            room.delete(MANAGER, &workflows(), name).await;
        }
        nothing_is_left(room, MANAGER).await;
        nothing_is_left(room, WEST).await;
    });
}

/// Spec: jobs 9.15, experience 5
#[test]
fn a_workflow_whose_template_its_worker_lacks_says_so_and_runs_when_it_is_there() {
    play_shown("far-unit-needs", &CLUSTERS, async |room| {
        let _alone = WEST_CHANGES.lock().await;
        let template = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTemplate",
            "metadata": {"name": "shared", "namespace": room.name}, "spec": steps(room, 1),
        });
        room.apply(MANAGER, template.clone()).await;
        let declared = r#"[{"name": "say", "count": 2, "requests": {"cpu": "1"}}]"#;
        let metadata = json!({
            "name": "etl", "labels": {QUEUE: room.name}, "annotations": {"roadstead.dev/pod-sets": declared},
        });
        create(
            room,
            MANAGER,
            metadata,
            json!({"workflowTemplateRef": {"name": "shared"}}),
        )
        .await;
        let says = |w: &Value| {
            let record = w["metadata"]["annotations"][EXPLANATION].as_str();
            record.is_some_and(|record| record.contains("DependencyMissing"))
        };
        room.workload(MANAGER, "etl", says).await;
        let said = explained(room, "workflow/etl").await;
        assert!(
            said.contains("WorkflowTemplate \"shared\"") && said.contains(WEST),
            "{said}"
        );
        room.apply(WEST, template).await;
        succeeds_and_goes(room, "etl").await;
    });
}

/// The manager has room for one of the two, the worker for both.
///
/// Spec: jobs 9.15, 5.9; multikueue 3.8, 3.9; safety 1 I1
#[test]
fn a_workflow_that_the_manager_preempts_leaves_its_worker_and_runs_anew_after_the_urgent_job() {
    play_shown("far-unit-first", &[(MANAGER, "2"), (WEST, "8")], async |room| {
        let _alone = WEST_CHANGES.lock().await;
        let (class, jobs) = (format!("{}-high", room.name), resource("batch/v1", "Job"));
        let queue = resource(KUEUE, "ClusterQueue");
        let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
        Api::<DynamicObject>::all_with(room.client(MANAGER), &queue)
            .patch(room.name, &PatchParams::default(), &Patch::Merge(preempts))
            .await
            .unwrap();
        let named = json!({"name": class});
        let priority =
            json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": named, "value": 100});
        room.apply(MANAGER, priority).await;
        submit_unit(room, "etl", steps(room, 6)).await;
        let first = running(room, "etl").await;
        room.running(WEST, 1).await;

        let urgent = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "urgent", "namespace": room.name,
                "labels": {QUEUE: room.name, "kueue.x-k8s.io/priority-class": class},
            },
            "spec": {"parallelism": 2, "completions": 2, "template": one_core(LONG_SECS)},
        });
        room.apply(MANAGER, urgent).await;
        let waits = |w: &Value| {
            condition(w, "Evicted").is_some_and(|said| said == "True Preempted")
                && !is_true(w, "QuotaReserved")
                && w["status"].get("clusterName").is_none()
        };
        room.workload(MANAGER, "etl", waits).await;
        room.is_empty(WEST, &[workflows()]).await;
        room.running(WEST, 2).await;
        room.until(MANAGER, &workflows(), "etl", is_suspended).await;

        room.delete(MANAGER, &jobs, "urgent").await;
        let second = running(room, "etl").await;
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        succeeds_and_goes(room, "etl").await;
    });
}
