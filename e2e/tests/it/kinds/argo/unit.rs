//! Workflows that name a queue themselves: each is one unit, whose pods are not queued again.

use roadstead_e2e::options::RUN_SECONDS;

use super::super::ground::LONG_SECS;
use super::*;

/// A Workflow whose steps run so long: one, and then two at once.
pub(super) fn one_then_two(secs: u32) -> Value {
    let say = json!({"inputs": {"parameters": [{"name": "message"}]}});
    json!({
        "entrypoint": "main",
        // Why the queue here too: the Workflow has it already.
        "podMetadata": {"labels": {QUEUE: "user-queue"}, "annotations": {RUN_SECONDS: secs.to_string()}},
        "templates": [
            {"name": "main", "steps": [[step("a", "say")], [step("b", "say"), step("c", "say")]]},
            template("say", &say),
        ],
    })
}

async fn submit_unit(room: Room, name: &str, spec: Value) {
    let metadata = json!({"name": name, "labels": {QUEUE: "user-queue"}});
    create(room, EAST, metadata, spec).await;
}

pub(super) fn is_suspended(workflow: &Value) -> bool {
    workflow["spec"]["suspend"] == true
}

/// How many pods of this Workflow exist.
async fn pods_of(room: Room, workflow: &str) -> usize {
    let pods = all(room, &pods()).await;
    let label = "workflows.argoproj.io/workflow";
    { pods.iter() }
        .filter(|pod| pod["metadata"]["labels"][label] == workflow)
        .count()
}

/// Spec: jobs 9.15, 4.3
#[test]
fn a_workflow_of_a_queue_waits_as_one_and_its_pods_are_not_queued_again() {
    play_workflows("argo-unit", &[("user-queue", 2)], async |room| {
        submit_unit(room, "first", one_then_two(3)).await;
        let first = room.workload(EAST, "first", |w| is_true(w, "Admitted")).await;
        let sets = first["spec"]["podSets"].as_array().unwrap();
        assert_eq!(
            (sets.len(), &sets[0]["name"], &sets[0]["count"]),
            (1, &json!("say"), &json!(2))
        );
        submit_unit(room, "second", one_then_two(1)).await;
        room.workload(EAST, "second", |w| condition(w, "QuotaReserved").is_some())
            .await;
        let running = |workflow: &Value| !is_suspended(workflow) && !has_succeeded(workflow);
        room.until(EAST, &workflows(), "first", running).await;
        let waiting = room.until(EAST, &workflows(), "second", |_| true).await;
        assert!(is_suspended(&waiting));
        assert_eq!(pods_of(room, "second").await, 0);
        for name in ["first", "second"] {
            room.until(EAST, &workflows(), name, has_succeeded).await;
            let workload = room.workload(EAST, name, |w| is_true(w, "Finished")).await;
            assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
            assert_eq!(pods_of(room, name).await, 3);
        }
        assert_eq!(all(room, &workloads()).await.len(), 2, "one for each Workflow");
        for pod in all(room, &pods()).await {
            assert_eq!(pod["metadata"]["labels"].get("kueue.x-k8s.io/managed"), None);
        }
    });
}

/// Spec: jobs 9.15
#[test]
fn a_workflow_that_is_deleted_or_stopped_frees_its_quota_when_its_steps_have_ended() {
    play_workflows("argo-gone", &[("user-queue", 2)], async |room| {
        submit_unit(room, "deleted", one_then_two(LONG_SECS)).await;
        room.running(EAST, 1).await;
        submit_unit(room, "stopped", one_then_two(5)).await;
        room.delete(EAST, &workflows(), "deleted").await;
        room.until(EAST, &workflows(), "stopped", |workflow| !is_suspended(workflow))
            .await;
        room.running(EAST, 1).await;
        let stopped = room.workload(EAST, "stopped", |w| is_true(w, "Admitted")).await;
        let name = stopped["metadata"]["name"].as_str().unwrap().to_owned();
        let active = async |active: bool| {
            let change = json!({"spec": {"active": active}});
            room.merge(EAST, &workloads(), &name, change).await;
        };
        active(false).await;
        room.until(EAST, &workflows(), "stopped", is_suspended).await;
        room.workload(EAST, "stopped", |w| !is_true(w, "QuotaReserved"))
            .await;
        let pods = all(room, &pods()).await;
        let of_it = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["workflows.argoproj.io/workflow"] == "stopped");
        let phases: Vec<&Value> = of_it.map(|pod| &pod["status"]["phase"]).collect();
        assert_eq!(
            phases,
            ["Succeeded"],
            "the step went on to its end, and no other began"
        );
        active(true).await;
        room.until(EAST, &workflows(), "stopped", has_succeeded).await;
        assert_eq!(pods_of(room, "stopped").await, 3);
    });
}

/// Spec: jobs 9.15
#[test]
fn a_workflow_whose_pods_are_not_known_waits_until_they_are_declared() {
    play_workflows("argo-declared", &[("user-queue", 2)], async |room| {
        let mut spec = one_then_two(1);
        spec["templates"][0]["steps"][1][0]["withParam"] = json!("[1]");
        submit_unit(room, "some", spec).await;
        let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(room.client(EAST), room.name);
        let told = eventually(|| async {
            let all = events.list(&ListParams::default()).await.ok()?.items;
            let why = |event: &k8s_openapi::api::core::v1::Event| {
                event.reason.as_deref() == Some("ErrWorkloadCompose")
            };
            all.into_iter().find(why)?.message
        })
        .await;
        assert!(
            told.contains("withParam of step \"b\"") && told.contains("roadstead.dev/pod-sets"),
            "{told}"
        );
        let declared = r#"[{"name": "say", "count": 2, "requests": {"cpu": "1"}}]"#;
        let notes = json!({"metadata": {"annotations": {"roadstead.dev/pod-sets": declared}}});
        room.merge(EAST, &workflows(), "some", notes).await;
        room.until(EAST, &workflows(), "some", has_succeeded).await;
    });
}

/// The examples of `deploy/examples/argo` as they are written, but for the namespace.
///
/// Spec: jobs 9.15, 13.2
#[test]
fn the_examples_run_to_their_end() {
    play_workflows("argo-examples", &[], async |room| {
        for (file, name, workloads_of_it) in [
            ("queue.yaml", None, 0),
            ("steps.yaml", Some("by-step"), 3),
            ("unit.yaml", Some("as-one"), 1),
        ] {
            let before = all(room, &workloads()).await.len();
            apply_example(room, EAST, file).await;
            if let Some(name) = name {
                room.until(EAST, &workflows(), name, has_succeeded).await;
            }
            assert_eq!(
                all(room, &workloads()).await.len() - before,
                workloads_of_it,
                "{file}"
            );
        }
    });
}
