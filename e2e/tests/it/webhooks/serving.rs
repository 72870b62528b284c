//! Where the webhooks are reached, under which authority, and that every path answers.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, Config};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose, SanType};
use roadstead_api::constants::names::VALIDATING_WEBHOOKS;
use roadstead_e2e::stage::{SYSTEM_NAMESPACE, Solo};
use roadstead_e2e::{Options, Progress};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ground::{on_cluster, try_create};
use crate::shared::{eventually, within};

const CONVERTED: [&str; 5] = [
    "clusterqueues",
    "cohorts",
    "localqueues",
    "multikueueclusters",
    "workloads",
];
const SECRET: &str = "kueue-webhook-server-cert";

/// The webhook server of the process, asked past the API server.
pub(super) struct Server {
    client: Client,
}

impl Server {
    /// Finds it as the API server does.
    pub(super) async fn find(client: &Client) -> Self {
        let (base, ca_bundle) = registered(client).await;
        let mut config = Config::new(base.parse().unwrap());
        config.root_cert = Some(ders(&ca_bundle));
        Self {
            client: Client::try_from(config).unwrap(),
        }
    }

    pub(super) async fn try_send(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Result<(u16, Value), kube::Error> {
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(path)
            .header("content-type", content)
            .body(Body::from(body))
            .unwrap();
        let answer = self.client.send(request).await?;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await?;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    pub(super) async fn send(&self, method: &str, path: &str, content: &str, body: Vec<u8>) -> (u16, Value) {
        self.try_send(method, path, content, body).await.unwrap()
    }

    pub(super) async fn post(&self, path: &str, content: &str, review: &Value) -> (u16, Value) {
        self.send("POST", path, content, serde_json::to_vec(review).unwrap())
            .await
    }
}

/// Base address and authorities of the registered webhooks.
async fn registered(client: &Client) -> (String, Vec<u8>) {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let found = api.get("kueue-validating-webhook-configuration").await.unwrap();
    let config = found.webhooks.unwrap().remove(0).client_config;
    let url = config.url.unwrap();
    let base = url.split("/validate").next().unwrap().to_owned();
    (base, config.ca_bundle.unwrap().0)
}

fn ders(pem: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8(pem.to_vec()).unwrap();
    text.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .map(|part| {
            let body: String = part
                .split("-----END")
                .next()
                .unwrap()
                .split_whitespace()
                .collect();
            STANDARD.decode(body).unwrap()
        })
        .collect()
}

/// Address and authorities for conversions of a kind.
async fn converted_by(client: &Client, plural: &str) -> Option<(String, Vec<u8>)> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = api.get_opt(&format!("{plural}.kueue.x-k8s.io")).await.unwrap()?;
    let config = found.spec.conversion?.webhook?.client_config?;
    Some((config.url?, config.ca_bundle?.0))
}

async fn assert_conversions_follow(client: &Client) {
    let (base, authorities) = registered(client).await;
    for plural in CONVERTED {
        let (url, ca_bundle) = converted_by(client, plural).await.unwrap();
        assert_eq!(url, format!("{base}/convert"), "{plural}");
        assert_eq!(ca_bundle, authorities, "{plural}");
    }
}

/// Spec: api API-1.
#[test]
fn conversions_are_asked_where_admission_is() {
    on_cluster(|_, client| async move { assert_conversions_follow(&client).await });
}

/// Spec: jobs 7.1, 15.62.
#[test]
fn kinds_whose_integration_is_off_are_let_through_unchanged() {
    on_cluster(|_, client| async move {
        let server = Server::find(&client).await;
        for (group, version, kind) in [
            ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
            ("kubeflow.org", "v2beta1", "MPIJob"),
            ("kubeflow.org", "v1", "TFJob"),
            ("kubeflow.org", "v1", "PyTorchJob"),
            ("kubeflow.org", "v1", "PaddleJob"),
            ("kubeflow.org", "v1", "XGBoostJob"),
            ("kubeflow.org", "v1", "JAXJob"),
            ("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
            ("ray.io", "v1", "RayJob"),
            ("ray.io", "v1", "RayCluster"),
            ("ray.io", "v1", "RayService"),
            ("sparkoperator.k8s.io", "v1beta2", "SparkApplication"),
            ("", "v1", "Pod"),
            ("argoproj.io", "v1alpha1", "Workflow"),
            ("apps", "v1", "Deployment"),
            ("apps", "v1", "StatefulSet"),
            ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
        ] {
            let types = json!({"group": group, "version": version, "kind": kind});
            let api_version = format!("{group}/{version}");
            let review = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {
                    "uid": "u", "operation": "CREATE", "name": "a", "namespace": "default", "dryRun": false, "kind": types,
                    "resource": {"group": group, "version": version, "resource": "things"},
                    "userInfo": {"username": "me"}, "oldObject": null, "options": null,
                    "object": {"apiVersion": api_version.trim_start_matches('/'), "kind": kind, "metadata": {"name": "a",
                        "labels": {"kueue.x-k8s.io/queue-name": "Not A Name"}}},
                },
            });
            for verb in ["mutate", "validate"] {
                let path = format!(
                    "/{verb}-{}-{version}-{}",
                    group.replace('.', "-"),
                    kind.to_lowercase()
                );
                let (status, answer) = server.post(&path, "application/json", &review).await;
                assert_eq!(
                    (status, &answer["response"]["allowed"]),
                    (200, &json!(true)),
                    "{path} {answer}"
                );
                assert_eq!(answer["response"].get("patch"), None, "{path}");
                let warnings = answer["response"]["warnings"].as_array().map_or(0, Vec::len);
                assert_eq!(warnings, usize::from(verb == "validate"), "{path} {answer}");
            }
        }
    });
}

/// An authority and a certificate for loopback, as cert-manager would write them.
struct Files {
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self {
            authority: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap(),
        }
    }

    /// Writes a new certificate, and the authorities that are to be trusted.
    fn write(&self, folder: &Path, authorities: &str) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        fs::write(folder.join("ca.crt"), authorities).unwrap();
        fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    }
}

/// An entry of Kueue, as it stands in the configuration that we take over.
const LEFT: &str = "vpod.kb.io";

async fn leave_an_entry(client: &Client) {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let left = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": VALIDATING_WEBHOOKS},
        "webhooks": [{
            "name": LEFT, "clientConfig": {"url": "https://127.0.0.1:1/validate"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }],
    });
    let params = PatchParams::apply("kueue");
    api.patch(VALIDATING_WEBHOOKS, &params, &Patch::Apply(left))
        .await
        .unwrap();
    assert!(entries(client).await.contains(&LEFT.to_owned()));
}

/// The names of all registered validating webhooks.
async fn entries(client: &Client) -> Vec<String> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let found = api.get(VALIDATING_WEBHOOKS).await.unwrap();
    let webhooks = found.webhooks.unwrap_or_default().into_iter();
    webhooks.map(|webhook| webhook.name).collect()
}

/// A cluster of its own, because definitions and certificates are taken away here.
#[tokio::test]
async fn address_and_authority_are_kept_true_through_every_change() {
    let solo = Solo::start(Options::bare("certificates"), &json!({}), Progress::stderr()).await;
    let mut solo = solo.unwrap_or_else(|error| panic!("{}", crate::shared::chain(&error)));
    let client = solo.client().unwrap();
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {}});
    assert_conversions_follow(&client).await;
    let (_, first) = registered(&client).await;

    // A new authority: the Secret is gone, a definition too. Both are put in order when they can be.
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "multikueueclusters.kueue.x-k8s.io";
    let mut gone = definitions.get(name).await.unwrap();
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    // Why waited for: the API server first deletes the objects, and says of a definition that goes that it is still there.
    within(eventually(|| async {
        definitions.get_opt(name).await.unwrap().is_none().then_some(())
    }))
    .await;
    leave_an_entry(&client).await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    solo.restart().await.unwrap();
    let (_, second) = registered(&client).await;
    assert_ne!(first, second);
    assert!(!entries(&client).await.contains(&LEFT.to_owned()));
    let stored = secrets.get(SECRET).await.unwrap().data.unwrap();
    assert_eq!(stored["ca.crt"].0, second);
    let log = solo.log_tail();
    assert!(
        log.contains(&format!("CustomResourceDefinition {name} does not exist")),
        "{log}"
    );
    gone.metadata.resource_version = None;
    gone.metadata.uid = None;
    gone.status = None;
    within(async {
        eventually(|| async { definitions.create(&PostParams::default(), &gone).await.ok() }).await;
        let here = || async {
            converted_by(&client, "multikueueclusters")
                .await
                .filter(|(_, ca)| *ca == second)
        };
        eventually(here).await;
        assert_conversions_follow(&client).await;
        try_create(&client, &queue).await.unwrap();
    })
    .await;

    // Certificates from files, then other files of another authority.
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Files::new("old"), Files::new("new"));
    old.write(folder.path(), &old.authority.pem());
    solo.reconfigure(&json!({
        "internalCertManagement": {"enable": false}, "webhook": {"certDir": folder.path()},
    }))
    .await
    .unwrap();
    within(async {
        assert_conversions_follow(&client).await;
        let (_, third) = registered(&client).await;
        assert_eq!(third, old.authority.pem().into_bytes());
        try_create(&client, &queue).await.unwrap();
        let both = format!("{}{}", new.authority.pem(), old.authority.pem());
        new.write(folder.path(), &both);
        let swapped = || async {
            let (_, now) = registered(&client).await;
            (now == both.as_bytes()).then_some(())
        };
        eventually(swapped).await;
        eventually(|| async { try_create(&client, &queue).await.ok() }).await;
        assert_conversions_follow(&client).await;
        let mut only_new = Config::new(registered(&client).await.0.parse().unwrap());
        only_new.root_cert = Some(ders(new.authority.pem().as_bytes()));
        let direct = Client::try_from(only_new).unwrap();
        let request = Request::get("/convert").body(Body::empty()).unwrap();
        assert_eq!(direct.send(request).await.unwrap().status().as_u16(), 405);
    })
    .await;
}

/// The metrics for a client that trusts this authority alone; `None` when it does not trust what is served.
async fn scrape(solo: &Solo, trusted: &Files) -> Option<String> {
    let mut config = Config::new(format!("https://{}", solo.metrics()).parse().unwrap());
    config.root_cert = Some(ders(trusted.authority.pem().as_bytes()));
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let answer = client.send(request).await.ok()?;
    assert_eq!(answer.status().as_u16(), 200);
    let page = answer.into_body().collect_bytes().await.unwrap();
    Some(String::from_utf8(page.to_vec()).unwrap())
}

/// What a client without TLS gets.
async fn scrape_plainly(solo: &Solo) -> String {
    let mut stream = TcpStream::connect(solo.metrics()).await.unwrap();
    let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // Why no failure: the server may end the connection in any way.
    let _ended = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The files of the metrics are absent at first, then there, then renewed under another authority, then damaged. Metrics that are to
/// be served over TLS are never served without it.
#[tokio::test]
async fn a_running_process_takes_each_new_certificate_of_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Files::new("old"), Files::new("new"));
    let configuration = json!({"roadstead": {"metrics": {"certDir": folder.path()}}});
    let solo = Solo::start(Options::bare("metrics-tls"), &configuration, Progress::stderr()).await;
    let solo = solo.unwrap_or_else(|error| panic!("{}", crate::shared::chain(&error)));
    assert_eq!(scrape(&solo, &old).await, None);
    old.write(folder.path(), &old.authority.pem());
    let page = within(eventually(|| scrape(&solo, &old))).await;
    assert!(page.contains("kueue_build_info"), "{page}");
    assert_eq!(scrape(&solo, &new).await, None);
    let plain = timeout(Duration::from_secs(20), scrape_plainly(&solo))
        .await
        .unwrap();
    assert!(!plain.contains("kueue_build_info"), "{plain}");

    new.write(folder.path(), &new.authority.pem());
    within(eventually(|| scrape(&solo, &new))).await;
    assert_eq!(scrape(&solo, &old).await, None);
    fs::write(folder.path().join("tls.key"), "no key").unwrap();
    within(eventually(|| async {
        solo.log_tail()
            .contains("entry tls.key does not hold")
            .then_some(())
    }))
    .await;
    assert!(scrape(&solo, &new).await.is_some());
}
