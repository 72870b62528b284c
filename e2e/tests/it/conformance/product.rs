//! The product's own webhooks, called by the embedded server over HTTPS.

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use roadstead_apiserver::{Clock, HttpsCaller, Options, Server, User};
use roadstead_e2e::Progress;
use roadstead_e2e::stage::{Programs, SYSTEM_NAMESPACE};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::{definitions, send};
use crate::shared::{client_of, eventually};

/// Limit of the test after the programs were built.
const DEADLINE: Duration = Duration::from_mins(2);
const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
const OLD_QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues";

fn queue(version: &str, name: &str, lending: &str) -> Value {
    let quota = json!({"name": "cpu", "nominalQuota": "10", "lendingLimit": lending});
    let cohort = if version == "v1beta1" {
        "cohort"
    } else {
        "cohortName"
    };
    json!({
        "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {
            cohort: "c", "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}],
        },
    })
}

/// How a worker's configuration names the address of its webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Url,
    Service,
}

async fn check(programs: &Programs, reach: Reach) {
    let ports: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let [health, metrics, webhook] = [0, 1, 2].map(|at| ports[at].local_addr().unwrap());
    drop(ports);
    let caller = HttpsCaller::default();
    caller.route(SYSTEM_NAMESPACE, "kueue-webhook-service", webhook);
    let mut options = Options::new(Clock::new(jiff::Timestamp::now), 1);
    options.caller = Arc::new(caller);
    let server = Server::new(options);
    let listening = server.listen(0).await.unwrap();
    let kubeconfig = server.kubeconfig(&listening, User::admin());
    let dir = tempfile::tempdir().unwrap();
    let (config, access) = (dir.path().join("config.yaml"), dir.path().join("kubeconfig"));
    fs::write(&access, &kubeconfig).unwrap();
    let theirs = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": SYSTEM_NAMESPACE,
        "health": {"healthProbeBindAddress": health.to_string()}, "metrics": {"bindAddress": metrics.to_string()},
        "webhook": {"host": "127.0.0.1", "port": webhook.port()},
        "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": 0},
    });
    let url = match reach {
        Reach::Url => json!({"url": format!("https://{webhook}")}),
        Reach::Service => json!({}),
    };
    let ours = json!({
        "apiVersion": "config.roadstead.dev/v1alpha1", "kind": "RoadsteadConfiguration", "webhook": url,
    });
    fs::write(&config, format!("{theirs}\n---\n{ours}\n")).unwrap();

    let client = client_of(&kubeconfig).await;
    let space = json!({"metadata": {"name": SYSTEM_NAMESPACE}});
    assert_eq!(send(&client, "POST", "/api/v1/namespaces", &space).await.0, 201);
    for definition in definitions() {
        let at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer) = send(&client, "POST", at, &definition).await;
        assert_eq!(code, 201, "{answer}");
    }
    let log = fs::File::create(dir.path().join("log")).unwrap();
    let _worker = Command::new(&programs.worker)
        .args([
            "--kubeconfig",
            access.to_str().unwrap(),
            "--config",
            config.to_str().unwrap(),
        ])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    // The schema allows this, and only the webhook refuses it.
    let refused = timeout(
        DEADLINE,
        eventually(async || {
            let bad = queue("v1beta2", "bad", "11");
            let (code, answer) = send(&client, "POST", &format!("{QUEUES}?dryRun=All"), &bad).await;
            // Why not any refusal: at first the worker has no certificate yet.
            (400..500).contains(&code).then_some(answer)
        }),
    )
    .await;
    let tail = fs::read_to_string(dir.path().join("log")).unwrap();
    let refused = refused.unwrap_or_else(|_| panic!("{reach:?}: never refused\n{tail}"));
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("must be less than or equal to the nominalQuota"),
        "{message}"
    );

    // An object of an older version is stored in the newer one, and shown in both.
    let conversion = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterqueues.kueue.x-k8s.io";
    let converted = timeout(
        DEADLINE,
        eventually(async || {
            let (_, definition) = send(&client, "GET", conversion, &Value::Null).await;
            (definition["spec"]["conversion"]["strategy"] == "Webhook").then_some(definition)
        }),
    );
    let definition = converted.await.unwrap();
    let by_service = definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"].is_object();
    assert_eq!(by_service, reach == Reach::Service);
    let (code, made) = send(&client, "POST", OLD_QUEUES, &queue("v1beta1", "old", "5")).await;
    assert_eq!(
        (code, made["spec"]["cohort"].as_str()),
        (201, Some("c")),
        "{made}"
    );
    let (_, newer) = send(&client, "GET", &format!("{QUEUES}/old"), &Value::Null).await;
    assert_eq!(newer["spec"]["cohortName"], "c", "{newer}");
    let (_, list) = send(&client, "GET", OLD_QUEUES, &Value::Null).await;
    assert_eq!(list["items"][0]["spec"]["cohort"], "c", "{list}");
    // The webhook knows only the newer version; an older object is shown to it in that.
    let (code, answer) = send(&client, "POST", OLD_QUEUES, &queue("v1beta1", "bad", "11")).await;
    assert!((400..500).contains(&code), "{code} {answer}");
}

/// Spec: safety 7; api API-1, API-2.4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_server_calls_the_products_webhooks_by_url_and_by_service() {
    let programs = Programs::find_or_build(&Progress::stderr()).await.unwrap();
    for reach in [Reach::Url, Reach::Service] {
        check(&programs, reach).await;
    }
}
