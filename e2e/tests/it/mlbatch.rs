//! The example for `MLBatch` (`deploy/examples/mlbatch`) on a real control plane: as it is written, it works.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{ClusterQueue, Workload};
use roadstead_api::rights;
use roadstead_e2e::options::BATCH_CONTROLLERS;
use roadstead_e2e::stage::{SYSTEM_NAMESPACE, Solo, apply};
use roadstead_e2e::{Node, Options, Progress};
use serde_json::{Value, from_value, json};
use tokio::time::timeout;

use crate::shared::{chain, client_as, eventually};

const DEADLINE: Duration = Duration::from_mins(3);
const TEAM: &str = "team1";

/// The documents of a file of the example.
fn documents(file: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/mlbatch");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The configuration file, as a stage takes it.
fn configuration() -> Value {
    let [theirs, ours] = &mut documents("configuration.yaml")[..] else {
        panic!("the configuration has two documents");
    };
    for document in [&mut *theirs, &mut *ours] {
        for field in ["apiVersion", "kind"] {
            document.as_object_mut().unwrap().remove(field);
        }
    }
    theirs["roadstead"] = ours.take();
    theirs.take()
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// How much the slack queue lends of CPUs and GPUs.
async fn lends(client: &Client, expect: [Option<&str>; 2]) {
    let queues: Api<ClusterQueue> = Api::all(client.clone());
    eventually(|| async {
        let queue = queues.get("slack-cluster-queue").await.ok()?;
        let quotas = &queue.spec.resource_groups[0].flavors[0].resources;
        let limit = |name: &str| {
            let quota = quotas.iter().find(|quota| quota.name == name)?;
            quota.lending_limit.as_ref().map(|limit| limit.0.as_str())
        };
        ([limit("cpu"), limit("nvidia.com/gpu")] == expect).then_some(())
    })
    .await;
}

/// Spec: appwrapper 3.4, 4.5, B95, B136
#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_mlbatch_works_as_it_is_written() {
    let node = |name: &str| Node::new(name, "8", "64Gi").with_resource("nvidia.com/gpu", "4");
    let mut options = Options::complete("mlbatch")
        .with_node(node("a"))
        .with_node(node("b"));
    options.controllers = BATCH_CONTROLLERS.iter().map(|name| (*name).to_owned()).collect();
    let started = Solo::start(options, &configuration(), Progress::stderr()).await;
    let solo = started.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let client = solo.client().unwrap();
    let play = async {
        let controller = rights::appwrapper(SYSTEM_NAMESPACE);
        let files = ["cluster.yaml", "team.yaml"].into_iter().flat_map(documents);
        for object in controller.into_iter().chain(files) {
            apply(&client, object).await.unwrap();
        }
        let accounts: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), TEAM, &resource("v1", "ServiceAccount"));
        eventually(|| async { accounts.get_opt("default").await.unwrap() }).await;

        let alice = client_as(&solo.plane().kubeconfig(), "alice").await;
        let [job] = &documents("job.yaml")[..] else {
            panic!("the job is one document");
        };
        let object: DynamicObject = from_value(job.clone()).unwrap();
        let wrappers = resource("workload.codeflare.dev/v1beta2", "AppWrapper");
        let wrappers: Api<DynamicObject> = Api::namespaced_with(alice.clone(), TEAM, &wrappers);
        let made = wrappers.create(&PostParams::default(), &object).await.unwrap();
        let labels = made.metadata.labels.unwrap();
        assert_eq!(labels["kueue.x-k8s.io/queue-name"], "default-queue");
        assert_eq!(labels["workload.codeflare.dev/user"], "alice");
        assert_eq!(made.data["spec"]["suspend"], true);
        let ended = eventually(|| async {
            let wrapper = wrappers.get("two-ranks").await.ok()?;
            (wrapper.data["status"]["phase"] == "Succeeded").then_some(wrapper)
        })
        .await;
        assert_eq!(ended.data["status"].get("resettingCount"), None, "at once");
        let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), TEAM, &resource("v1", "Pod"));
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        assert_eq!(pods.len(), 2);
        for pod in &pods {
            let labels = pod.metadata.labels.as_ref().unwrap();
            assert_eq!(
                labels["scheduling.x-k8s.io/pod-group"], "two-ranks",
                "passed through"
            );
        }
        let workloads: Api<Workload> = Api::all(client.clone());
        assert_eq!(
            workloads.list(&ListParams::default()).await.unwrap().items.len(),
            1
        );

        let mut beside = job["spec"]["components"][1]["template"].clone();
        beside["metadata"]["name"] = json!("beside");
        let jobs: Api<DynamicObject> = Api::namespaced_with(alice, TEAM, &resource("batch/v1", "Job"));
        let refused = jobs
            .create(&PostParams::default(), &from_value(beside).unwrap())
            .await;
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("cannot create resource")
        );

        lends(&client, [None, None]).await;
        let nodes: Api<ApiNode> = Api::all(client.clone());
        let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
        nodes.patch("a", &PatchParams::default(), &cordon).await.unwrap();
        lends(&client, [Some("0"), Some("0")]).await;
    };
    assert!(
        timeout(DEADLINE, play).await.is_ok(),
        "the example does not come to its end; the worker's last lines:\n{}",
        solo.log_tail()
    );
}
