//! The reference's `AppWrapper` operator beside our engine, on a real control plane: it runs what our engine admits.

use std::fs;
use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::binaries::{Program, locate_or_build};
use roadstead_e2e::options::BATCH_CONTROLLERS;
use roadstead_e2e::stage::{Controller, Runs, Solo, apply};
use roadstead_e2e::{Node, Options, Progress};
use serde_json::{Value, from_value, json};
use tokio::time::timeout;

use crate::shared::{chain, eventually};

const DEADLINE: Duration = Duration::from_mins(4);
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const TEAM: &str = "default";

/// The samples of the operator's release, which name the queue `default-queue`.
fn samples(progress: &Progress) -> Vec<Value> {
    let built =
        locate_or_build(&[Program::AppWrapper], progress).unwrap_or_else(|error| panic!("{}", chain(&error)));
    let files = built.manifests(Program::AppWrapper).into_iter();
    let texts = files.map(|file| fs::read_to_string(file).unwrap());
    texts.map(|text| serde_saphyr::from_str(&text).unwrap()).collect()
}

async fn furnish(client: &kube::Client) {
    let quota = |name: &str, quota: &str| json!({"name": name, "nominalQuota": quota});
    let quotas = [quota("cpu", "8"), quota("memory", "32Gi")];
    let group =
        json!({"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quotas}]});
    for object in [
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}}),
        json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "default"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}),
        json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "default-queue", "namespace": TEAM},
            "spec": {"clusterQueue": "default"}}),
    ] {
        apply(client, object).await.unwrap();
    }
}

/// Our own controller is off; the engine queues, starts and finishes.
///
/// Spec: appwrapper 5.1, 5.4, 5.5, B131
#[tokio::test(flavor = "multi_thread")]
async fn the_samples_of_the_reference_operator_run_under_it_and_our_engine() {
    let progress = Progress::stderr();
    let known = progress.clone();
    let samples = tokio::task::spawn_blocking(move || samples(&known))
        .await
        .unwrap();
    let mut options = Options::complete("operator").with_node(Node::new("a", "16", "64Gi"));
    options.controllers = BATCH_CONTROLLERS.iter().map(|name| (*name).to_owned()).collect();
    let frameworks = ["batch/job", "workload.codeflare.dev/appwrapper"];
    let configuration = json!({"integrations": {"frameworks": frameworks}});
    let args = ["--controllers=*,-appwrapper"];
    let started = Solo::start_with(options, &configuration, &args, progress.clone()).await;
    let solo = started.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let operator = Controller::start(Runs::AppWrappers, solo.plane(), &progress).await;
    let operator = operator.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let client = solo.client().unwrap();
    let play = async {
        furnish(&client).await;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), TEAM);
        eventually(|| async { accounts.get_opt("default").await.unwrap() }).await;
        for sample in &samples {
            let object: DynamicObject = from_value(sample.clone()).unwrap();
            let types = object.types.clone().unwrap();
            let gvk = kube::core::GroupVersionKind::try_from(&types).unwrap();
            let wrappers: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), TEAM, &kube::core::ApiResource::from_gvk(&gvk));
            let made = wrappers.create(&PostParams::default(), &object).await.unwrap();
            assert_eq!(made.data["spec"]["suspend"], true);
            let name = made.metadata.name.unwrap();
            let ended = eventually(|| async {
                let wrapper = wrappers.get(&name).await.ok()?;
                (wrapper.data["status"]["phase"] == "Succeeded").then_some(wrapper)
            })
            .await;
            assert_eq!(
                ended.data["status"].get("resettingCount"),
                None,
                "{name} ran at once"
            );
        }
        let workloads: Api<Workload> = Api::namespaced(client.clone(), TEAM);
        eventually(|| async {
            let all = workloads.list(&ListParams::default()).await.ok()?.items;
            assert_eq!(all.len(), samples.len(), "one for each, none for what they hold");
            let is_finished = |workload: &Workload| {
                let conditions = workload.status.iter().flat_map(|status| &status.conditions);
                let mut finished = conditions.filter(|one| one.type_ == "Finished" && one.status == "True");
                finished.any(|one| one.message == "AppWrapper finished successfully")
            };
            all.iter().all(is_finished).then_some(())
        })
        .await;
    };
    assert!(
        timeout(DEADLINE, play).await.is_ok(),
        "the samples do not come to their end; the worker's last lines:\n{}\nthe operator's:\n{}",
        solo.log_tail(),
        operator.log_tail()
    );
}
