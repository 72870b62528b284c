//! `roadstead sync`: what a worker lacks is shown, created once, and nothing else is touched.

use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use roadstead_e2e::stage::{Programs, apply};
use roadstead_e2e::{ControlPlane, Options, Progress};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::shared::{output_of, start};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

async fn cluster(name: &str, dir: &Path) -> (ControlPlane, Client, String) {
    let plane = start(Options::bare(name)).await;
    let kubeconfig = dir.join(name);
    plane.write_kubeconfig(&kubeconfig).unwrap();
    let client = plane.client().unwrap();
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/manifests/crds.yaml");
    let definitions = std::fs::read_to_string(definitions).unwrap();
    for definition in serde_saphyr::from_multiple::<Value>(&definitions).unwrap() {
        apply(&client, definition).await.unwrap();
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "LocalQueue"));
    let queues: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    crate::shared::eventually(|| async { queues.list(&ListParams::default()).await.ok() }).await;
    (plane, client, kubeconfig.display().to_string())
}

fn cluster_queue(name: &str, checks: &Value) -> Value {
    let mut queue = json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {"namespaceSelector": {}},
    });
    if !checks.is_null() {
        queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    }
    queue
}

fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    json!({
        "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    })
}

/// The LocalQueues of a cluster with the ClusterQueue of each.
async fn queues(client: &Client) -> Vec<(String, String, Value)> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "LocalQueue"));
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let listed = all.list(&ListParams::default()).await.unwrap();
    let row = |queue: DynamicObject| {
        let namespace = queue.namespace().unwrap();
        (
            namespace,
            queue.name_any(),
            queue.data["spec"]["clusterQueue"].clone(),
        )
    };
    listed.items.into_iter().map(row).collect()
}

/// Spec: experience 3
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_the_namespaces_and_queues_that_it_lacks_once_and_keeps_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let ((_manager, on_manager, manager), (_worker, on_worker, worker)) =
        tokio::join!(cluster("manager", dir.path()), cluster("east", dir.path()));
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for object in [
        namespace("kueue-system"),
        namespace("team-a"),
        namespace("team-b"),
        json!({"apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": {"name": "east"},
            "spec": {"clusterSource": {"kubeConfig": {"location": "east", "locationType": "Secret"}}}}),
        json!({"apiVersion": KUEUE, "kind": "MultiKueueConfig", "metadata": {"name": "all"}, "spec": {"clusters": ["east"]}}),
        json!({"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": "all"}, "spec": {
            "controllerName": "kueue.x-k8s.io/multikueue",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"},
        }}),
        cluster_queue("gpu", &json!([{"name": "all"}])),
        cluster_queue("here", &Value::Null),
        local_queue("team-a", "main", "gpu"),
        local_queue("team-b", "main", "gpu"),
        local_queue("team-b", "here", "here"),
    ] {
        apply(&on_manager, object).await.unwrap();
    }
    for object in [
        namespace("team-b"),
        cluster_queue("gpu", &Value::Null),
        cluster_queue("own", &Value::Null),
        local_queue("team-b", "main", "own"),
    ] {
        apply(&on_worker, object).await.unwrap();
    }

    let programs = Programs::find_or_build(&Progress::stderr()).await.unwrap();
    let sync = |verb: &str| {
        let mut command = Command::new(&programs.command);
        command.args(["sync", verb, "east", "--kubeconfig", &worker]);
        command.args(["--manager-kubeconfig", &manager, "--yes", "--output", "json"]);
        command
    };
    let wanted = json!({"cluster": "east", "steps": [
        {"kind": "Namespace", "name": "team-a"},
        {"kind": "LocalQueue", "namespace": "team-a", "name": "main", "clusterQueue": "gpu", "namespaceExists": false},
    ]});
    let parsed = |said: String| serde_json::from_str::<Value>(&said).unwrap();
    assert_eq!(parsed(output_of(&mut sync("plan")).await), wanted);
    let own = ("team-b".to_owned(), "main".to_owned(), json!("own"));
    assert_eq!(
        queues(&on_worker).await,
        std::slice::from_ref(&own),
        "a plan writes nothing"
    );

    assert_eq!(parsed(output_of(&mut sync("apply")).await), wanted);
    let made = ("team-a".to_owned(), "main".to_owned(), json!("gpu"));
    assert_eq!(queues(&on_worker).await, [made, own]);
    let namespaces: Api<Namespace> = Api::all(on_worker);
    let made = namespaces.get("team-a").await.unwrap();
    assert_eq!(
        made.labels()
            .get("app.kubernetes.io/managed-by")
            .map(String::as_str),
        Some("roadstead")
    );

    let nothing = json!({"cluster": "east", "steps": []});
    assert_eq!(parsed(output_of(&mut sync("apply")).await), nothing);
}
