//! Argo Workflows, with the workflow controller: its pods wait in queues. Kwok plays the pods.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::ground::{EAST, Room, condition, is_true, play_workflows, resource};
use crate::shared::eventually;

mod across;
mod retried;
mod unit;
mod unit_across;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// Where a pod says which step it is.
const NODE: &str = "workflows.argoproj.io/node-id";

fn workflows() -> ApiResource {
    resource("argoproj.io/v1alpha1", "Workflow")
}

fn pods() -> ApiResource {
    resource("v1", "Pod")
}

fn workloads() -> ApiResource {
    resource("kueue.x-k8s.io/v1beta2", "Workload")
}

/// Applies a file of `deploy/examples/argo` as it is written, but for the namespace.
async fn apply_example(room: Room, cluster: &str, file: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/argo");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let text = text.replace("namespace: argo", &format!("namespace: {}", room.name));
    for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
        room.apply(cluster, object).await;
    }
}

/// Creates a Workflow with this spec, and gives its name.
async fn submit(room: Room, spec: Value) -> String {
    submit_on(room, EAST, spec).await
}

async fn submit_on(room: Room, cluster: &str, spec: Value) -> String {
    create(room, cluster, json!({"generateName": "steps-"}), spec).await
}

/// Creates a Workflow with this metadata and spec, and gives its name.
async fn create(room: Room, cluster: &str, mut metadata: Value, spec: Value) -> String {
    metadata["namespace"] = json!(room.name);
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec,
    });
    let api = room.api(cluster, &workflows());
    let object: DynamicObject = serde_json::from_value(workflow).unwrap();
    let created = api.create(&PostParams::default(), &object).await.unwrap();
    created.metadata.name.unwrap()
}

async fn all(room: Room, resource: &ApiResource) -> Vec<Value> {
    all_on(room, EAST, resource).await
}

async fn all_on(room: Room, cluster: &str, resource: &ApiResource) -> Vec<Value> {
    let api: Api<DynamicObject> = room.api(cluster, resource);
    let all = api.list(&ListParams::default()).await.unwrap();
    all.items
        .iter()
        .map(|one| serde_json::to_value(one).unwrap())
        .collect()
}

fn has_succeeded(workflow: &Value) -> bool {
    let phase = &workflow["status"]["phase"];
    assert!(
        *phase != "Failed" && *phase != "Error",
        "{:#}",
        workflow["status"]
    );
    *phase == "Succeeded"
}

/// A step that asks for one core, with this much more of its template.
fn template(name: &str, more: &Value) -> Value {
    let mut template = json!({
        "name": name,
        "container": {
            "image": "docker/whalesay", "command": ["cowsay"], "args": ["{{inputs.parameters.message}}"],
            "resources": {"requests": {"cpu": "1"}},
        },
    });
    for (key, value) in more.as_object().unwrap() {
        template[key] = value.clone();
    }
    template
}

fn step(name: &str, template: &str) -> Value {
    json!({"name": name, "template": template, "arguments": {"parameters": [{"name": "message", "value": name}]}})
}

/// Spec: jobs 13.2, 15.127
#[test]
fn steps_wait_in_the_queues_of_their_templates_one_after_the_other() {
    play_workflows(
        "argo-steps",
        &[("user-queue", 1), ("user-queue-2", 1)],
        async |room| {
            let into = |queue: &str| {
                json!({
                    "metadata": {"labels": {QUEUE: queue}}, "inputs": {"parameters": [{"name": "message"}]},
                })
            };
            let name = submit(
                room,
                json!({
                    "entrypoint": "hello-hello-hello",
                    "templates": [
                        {"name": "hello-hello-hello", "steps": [
                            [step("hello1", "whalesay")],
                            [step("hello2a", "whalesay"), step("hello2b", "whalesay-queue-2")],
                        ]},
                        template("whalesay", &into("user-queue")),
                        template("whalesay-queue-2", &into("user-queue-2")),
                    ],
                }),
            )
            .await;
            let ended = room.until(EAST, &workflows(), &name, has_succeeded).await;
            let nodes = ended["status"]["nodes"].as_object().unwrap();
            let node = |name: &str| nodes.values().find(|node| node["displayName"] == name).unwrap();
            let at = |name: &str, field: &str| node(name)[field].as_str().unwrap().to_owned();
            for second in ["hello2a", "hello2b"] {
                assert!(
                    at("hello1", "finishedAt") <= at(second, "startedAt"),
                    "{nodes:#?}"
                );
            }
            let ended = eventually(|| async {
                let all = all(room, &workloads()).await;
                all.iter().all(|w| is_true(w, "Finished")).then_some(all)
            })
            .await;
            let mut queues: Vec<&str> = ended
                .iter()
                .map(|w| w["spec"]["queueName"].as_str().unwrap())
                .collect();
            queues.sort_unstable();
            assert_eq!(queues, ["user-queue", "user-queue", "user-queue-2"]);
            for workload in &ended {
                assert_eq!(workload["spec"]["podSets"][0]["name"], "main");
                assert_eq!(condition(workload, "Finished").unwrap(), "True Succeeded");
            }
            for pod in all(room, &pods()).await {
                assert_eq!(
                    pod["metadata"].get("finalizers"),
                    None,
                    "our finalizer holds up its removal"
                );
            }
        },
    );
}

/// A Workflow of two steps in this queue: the second prints what the first gives.
fn produce_and_print(queue: &str) -> Value {
    let produce = json!({"outputs": {"parameters": [{"name": "answer", "valueFrom": {"path": "/tmp/answer"}}]},
        "inputs": {"parameters": [{"name": "message"}]}});
    let print = json!({"inputs": {"parameters": [{"name": "message"}]}});
    json!({
        "entrypoint": "main",
        "podMetadata": {"labels": {QUEUE: queue}},
        "templates": [
            {"name": "main", "steps": [
                [step("produce", "produce")],
                [{"name": "print", "template": "print", "arguments": {"parameters": [
                    {"name": "message", "value": "{{steps.produce.outputs.parameters.answer}}"},
                ]}}],
            ]},
            template("produce", &produce),
            template("print", &print),
        ],
    })
}

/// The result that the sidecar of this step would report, owned as it says: containers do not run here.
fn result_of(room: Room, pod: &Value) -> Value {
    let mut owner = pod["metadata"]["ownerReferences"][0].clone();
    for word in ["controller", "blockOwnerDeletion"] {
        owner.as_object_mut().unwrap().remove(word);
    }
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTaskResult",
        "metadata": {
            "name": pod["metadata"]["annotations"][NODE], "namespace": room.name, "ownerReferences": [owner],
            "labels": {
                "workflows.argoproj.io/workflow": owner["name"],
                "workflows.argoproj.io/report-outputs-completed": "true",
            },
        },
        "outputs": {"parameters": [{"name": "answer", "value": "forty-two"}]},
    })
}

fn assert_prints(pod: &Value, said: &str) {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let main = containers.iter().find(|one| one["name"] == "main").unwrap();
    assert!(main.to_string().contains(said), "{main}");
}

/// Spec: jobs 13.2
#[test]
fn a_whole_workflow_waits_in_one_queue_and_a_step_uses_what_the_one_before_gave() {
    play_workflows("argo-whole", &[("user-queue", 1)], async |room| {
        let name = submit(room, produce_and_print("user-queue")).await;
        let first = eventually(|| async { all(room, &pods()).await.into_iter().next() }).await;
        room.apply(EAST, result_of(room, &first)).await;
        room.until(EAST, &workflows(), &name, has_succeeded).await;
        let printed = all(room, &pods()).await;
        let others = |pod: &&Value| pod["metadata"]["name"] != first["metadata"]["name"];
        assert_prints(printed.iter().find(others).unwrap(), "forty-two");
        assert_eq!(all(room, &workloads()).await.len(), 2);
    });
}
