use std::time::Duration;

use roadstead_api::kueue::v1beta2::{self as api, ProvisioningRequestConfigSpec};
use roadstead_core::condition::Truth;
use roadstead_core::status::CheckPhase;
use roadstead_kubeio::events;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpListener;

use super::*;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(10);

pub(super) const CLASS: &str = "check-capacity.autoscaling.x-k8s.io";

pub(super) fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn owned_by(kind: &str, uid: &str) -> Value {
    json!([{ "apiVersion": "x/v1", "kind": kind, "name": "wl", "uid": uid, "controller": true }])
}

pub(super) fn workload(template: &Value) -> api::Workload {
    object(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": "wl", "namespace": "ns", "uid": "w1",
            "annotations": { "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60", "other": "x" },
        },
        "spec": { "queueName": "q", "podSets": [{ "name": "main", "count": 4, "template": template }] },
        "status": {
            "conditions": [{
                "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "admission": { "clusterQueue": "cq", "podSetAssignments": [
                { "name": "main", "count": 3, "flavors": {} },
            ] },
            "admissionChecks": [
                { "name": "chk", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "name": "other", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ],
        },
    }))
}

pub(super) fn request_object(name: &str, uid: &str, owner: &str, conditions: &Value) -> ProvisioningRequest {
    object(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "ns", "uid": uid, "ownerReferences": owned_by("Workload", owner) },
        "spec": {
            "provisioningClassName": CLASS,
            "podSets": [{ "podTemplateRef": { "name": format!("ppt-{name}-main") }, "count": 3 }],
        },
        "status": { "conditions": conditions },
    }))
}

pub(super) fn template_object(name: &str, kind: &str, uid: &str) -> kube::core::DynamicObject {
    object(json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": { "name": name, "namespace": "ns", "uid": name, "ownerReferences": owned_by(kind, uid) },
        "template": {},
    }))
}

/// A cluster with check `chk` of ours and check `other` of somebody else. Nothing answers at its address.
pub(super) fn cluster(config: &ProvisioningRequestConfigSpec) -> Provisioning {
    cluster_at("http://127.0.0.1:1", config)
}

fn cluster_at(address: &str, config: &ProvisioningRequestConfigSpec) -> Provisioning {
    let address = kube::Config::new(address.parse().unwrap());
    let client = kube::Client::try_from(address).unwrap();
    let clock: roadstead_engine::clock::Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let (recorder, _) = events::recorder(client.clone(), "test", clock.clone(), CancellationToken::new());
    let due = Arc::new(Queue::new());
    let p = Provisioning::new(
        client,
        Caches::new(&[]),
        due,
        recorder,
        clock,
        &FeatureGates::default(),
    );
    p.listen();
    for (name, controller) in [
        ("chk", "kueue.x-k8s.io/provisioning-request"),
        ("other", "example.com/other"),
    ] {
        p.caches.checks.observe(object(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": { "name": name },
            "spec": { "controllerName": controller, "parameters": {
                "apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "cfg" } },
        })));
    }
    p.configs
        .observe(api::ProvisioningRequestConfig::new("cfg", config.clone()));
    p.served.set(Served::Yes);
    p
}

pub(super) fn config() -> ProvisioningRequestConfigSpec {
    ProvisioningRequestConfigSpec {
        provisioning_class_name: CLASS.into(),
        ..ProvisioningRequestConfigSpec::default()
    }
}

/// An API server that has one answer for each method, and its address.
async fn answering(answers: [(&'static str, u16, Value); 3]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufStream::new(stream);
            let (mut asked, mut length) = (String::new(), 0);
            stream.read_line(&mut asked).await.unwrap();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                let line = line.trim().to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            stream.read_exact(&mut vec![0; length]).await.unwrap();
            let answer = answers.iter().find(|(method, ..)| asked.starts_with(method));
            let (_, code, body) = answer.unwrap();
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {code} Said\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    });
    address
}

/// What is planned for a Workload, and the status that comes of it.
fn follow(p: &Provisioning, stored: &api::Workload) -> (Follow, Status) {
    let workload = roadstead_convert::workload(stored);
    let pass = Pass {
        stored,
        workload: &workload,
    };
    let mut status = workload.status.clone();
    let follow = p.plan(&pass, &mut status, Timestamp::UNIX_EPOCH);
    (follow, status)
}

/// Spec: provisioning 5.
#[test]
fn the_suffix_of_a_cut_name_is_the_start_of_its_sha1() {
    // The digest of this text is a known answer (FIPS 180): a9993e36 4706816a ba3e2571 7850c26c 9cd0d89d.
    assert_eq!(suffix("abc"), "a9993");
}

/// Spec: provisioning 1, 3, 15.1, 15.2, 15.5.
#[tokio::test]
async fn a_check_is_active_while_its_config_exists_and_the_api_is_served() {
    let p = cluster(&config());
    let check = p.ours(&CheckName::from("chk")).unwrap();
    let says = |served: &Served| {
        let active = state::condition(&p, &check, served);
        (active.truth, active.reason, active.message.into_owned())
    };
    let active = (Truth::True, "Active", "The admission check is active".to_owned());
    assert_eq!(says(&Served::Yes), active);
    let unserved = (Truth::False, "APIUnavailable", "why".to_owned());
    assert_eq!(says(&Served::No("why".to_owned())), unserved);

    p.configs.forget(&Key::new("", "cfg"), None);
    let missing = "ProvisioningRequestConfig.kueue.x-k8s.io \"cfg\" not found";
    assert_eq!(
        says(&Served::Yes),
        (Truth::False, "BadParametersRef", missing.to_owned())
    );
    tokio::time::timeout(DEADLINE, p.touched.take()).await.unwrap();
    p.configs
        .observe(api::ProvisioningRequestConfig::new("cfg", config()));
    tokio::time::timeout(DEADLINE, p.touched.take())
        .await
        .expect("a config that comes is reason enough to look again");
    assert_eq!(says(&Served::Yes), active);
}

/// Spec: provisioning 15.45 (deviation), 16 (changes of the whole configuration count).
#[tokio::test]
async fn another_retry_limit_counts_at_once() {
    let p = cluster(&config());
    let stored = workload(&json!({}));
    p.caches.workloads.observe(stored.clone());
    let mut changed = config();
    changed.retry_strategy.backoff_limit_count = 0;
    p.configs
        .observe(api::ProvisioningRequestConfig::new("cfg", changed));
    let due = tokio::time::timeout(DEADLINE, p.due.next()).await.unwrap();
    assert_eq!(due, Key::new("ns", "wl"));
    let failed = json!([{
        "type": "Failed", "status": "True", "reason": "CapacityIsNotFound", "message": "F",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    p.requests
        .observe(request_object("wl-chk-1", "r1", "w1", &failed));
    let (_, status) = follow(&p, &stored);
    assert_eq!(status.checks[&CheckName::from("chk")].phase, CheckPhase::Rejected);
}

/// The cache does not know it: it was deleted with the last reservation, and is not gone yet.
///
/// Spec: provisioning 4.4, 15.42.
#[tokio::test]
async fn a_request_whose_name_is_still_taken_is_no_failure_and_waited_for() {
    let mut going = request_object("wl-chk-1", "r0", "w1", &json!([]));
    going.metadata.labels = Some([(labels::MANAGED.to_owned(), labels::TRUE.to_owned())].into());
    let mut going = json!(going);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let taken = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409, "message": "x",
    });
    let template = template_object("ppt-wl-chk-1-main", "Workload", "w1");
    let handed_over = template_object("ppt-wl-chk-1-main", "ProvisioningRequest", "r0");
    let answers = [
        ("POST", 409, taken),
        ("GET", 200, going),
        ("PATCH", 200, json!(handed_over)),
    ];
    let p = cluster_at(&answering(answers).await, &config());
    let stored = workload(&json!({}));
    p.caches.workloads.observe(stored.clone());
    p.templates.observe(template);

    let (first, _) = follow(&p, &stored);
    let done = tokio::time::timeout(DEADLINE, first.work.unwrap()).await.unwrap();
    assert_eq!(done, Ok(()));
    let due = tokio::time::timeout(DEADLINE, p.due.next()).await.unwrap();
    assert_eq!(due, Key::new("ns", "wl"), "it is looked at again");
    let (again, status) = follow(&p, &stored);
    assert!(again.notes.is_empty(), "{:?}", again.notes);
    assert_eq!(status.checks[&CheckName::from("chk")].message, "");
    let why = tokio::time::timeout(DEADLINE, again.work.unwrap()).await.unwrap();
    assert!(
        why.unwrap_err().contains("still being deleted"),
        "tried again until it is gone"
    );
}
