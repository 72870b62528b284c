//! One cluster with one process for all of these tests, and how objects are offered to it.

use std::sync::LazyLock;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use roadstead_e2e::stage::Solo;
use roadstead_e2e::{Options, Progress};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::commons::Common;
use crate::shared::chain;

/// Limit of one test.
const DEADLINE: Duration = Duration::from_secs(90);
pub(super) const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
pub(super) const OLDER: &str = "kueue.x-k8s.io/v1beta1";

// Why one runtime for all: background tasks of the cluster must outlive the test that started it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static SOLO: Common<Solo> = Common::new(Solo::end);

async fn start() -> Solo {
    let frameworks =
        json!({"integrations": {"frameworks": ["batch/job", "workload.codeflare.dev/appwrapper"]}});
    let solo = Solo::start(Options::bare("webhooks"), &frameworks, Progress::stderr()).await;
    solo.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// Runs a test on the one cluster.
pub(super) fn on_cluster<F: Future<Output = ()>>(test: impl FnOnce(&'static Solo, Client) -> F) {
    RUNTIME.block_on(async {
        let (solo, _peace) = SOLO.take(start).await;
        let client = solo.client().unwrap();
        timeout(DEADLINE, test(solo, client))
            .await
            .expect("the test must end within its deadline");
    });
}

/// A client of an administrator. Why: the webhooks do not check the writes of our own processes.
pub(super) async fn stranger(solo: &Solo) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(&solo.plane().kubeconfig()).unwrap();
    for user in &mut kubeconfig.auth_infos {
        if let Some(user) = &mut user.auth_info {
            user.impersonate = Some("somebody".to_owned());
            user.impersonate_groups = Some(vec!["system:masters".to_owned()]);
        }
    }
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

pub(super) fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (version, kind) = (
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The words of a refusal. Whatever a webhook refuses has one code and one reason.
fn said(error: kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        if status.message.starts_with("admission webhook") {
            let told = (status.code, status.reason.as_str());
            assert_eq!(told, (403, "Forbidden"), "{}", status.message);
        }
        return status.message.clone();
    }
    panic!("{}", chain(&error));
}

/// What the server makes of a new object, kept or not, or its refusal.
async fn offer(client: &Client, object: &Value, dry_run: bool) -> Result<Value, String> {
    let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let params = PostParams {
        dry_run,
        ..PostParams::default()
    };
    let made = api(client, object).create(&params, &typed).await.map_err(said)?;
    Ok(serde_json::to_value(made).unwrap())
}

/// Creates an object.
pub(super) async fn create(client: &Client, object: &Value) -> Value {
    offer(client, object, false)
        .await
        .unwrap_or_else(|why| panic!("{why}\n{object:#}"))
}

/// Offers a new object without keeping it.
pub(super) async fn try_create(client: &Client, object: &Value) -> Result<Value, String> {
    offer(client, object, true).await
}

/// Offers a new object without keeping it; fields that the schema does not know are refused.
pub(super) async fn create_strictly(client: &Client, object: &Value) -> Result<Value, String> {
    let api = api(client, object);
    let url = format!("{}?dryRun=All&fieldValidation=Strict", api.resource_url());
    let request = http::Request::post(url)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object).unwrap())
        .unwrap();
    client.request::<Value>(request).await.map_err(said)
}

/// Which part of an object is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Main,
    Status,
}

/// Merges into a stored object, kept or not.
pub(super) async fn patch(
    client: &Client,
    object: &Value,
    part: Part,
    change: &Value,
    dry_run: bool,
) -> Result<Value, String> {
    let name = object["metadata"]["name"].as_str().unwrap();
    let params = PatchParams {
        dry_run,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let (api, change) = (api(client, object), Patch::Merge(change));
    let changed = match part {
        Part::Main => api.patch(name, &params, &change).await,
        Part::Status => api.patch_status(name, &params, &change).await,
    };
    Ok(serde_json::to_value(changed.map_err(said)?).unwrap())
}

/// Compares an answer with what it should be: accepted, or refused by this webhook with these words.
#[track_caller]
pub(super) fn judge(about: &str, answer: &Result<Value, String>, webhook: &str, refusal: Option<&str>) {
    match (answer, refusal) {
        (Ok(_), None) => {}
        (Ok(_), Some(words)) => panic!("{about}: accepted, should be refused with {words:?}"),
        (Err(said), None) => panic!("{about}: refused: {said}"),
        (Err(said), Some(words)) => {
            let by = format!("admission webhook \"{webhook}\" denied the request: ");
            assert!(
                said.contains(&by) && said.contains(words),
                "{about}: {said:?} should contain {words:?}"
            );
        }
    }
}
