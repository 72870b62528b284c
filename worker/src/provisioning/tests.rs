use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use roadstead_api::kueue::v1beta2::ProvisioningRequestConfigSpec;
use roadstead_core::condition::Truth;
use roadstead_core::status::CheckPhase;
use roadstead_kubeio::events;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

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

pub(super) fn workload(template: &Value) -> Workload {
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

pub(super) fn template_object(name: &str, kind: &str, uid: &str) -> DynamicObject {
    object(json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": { "name": name, "namespace": "ns", "uid": name, "ownerReferences": owned_by(kind, uid) },
        "template": {},
    }))
}

/// A cluster with check `chk` of ours and check `other` of somebody else. Nothing answers at its address.
pub(super) fn cluster(config: &ProvisioningRequestConfigSpec) -> Provisioning {
    let address = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    cluster_of(Client::try_from(address).unwrap(), config)
}

fn cluster_of(client: Client, config: &ProvisioningRequestConfigSpec) -> Provisioning {
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
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
        .observe(ProvisioningRequestConfig::new("cfg", config.clone()));
    p.served.set(Served::Yes);
    p
}

pub(super) fn config() -> ProvisioningRequestConfigSpec {
    ProvisioningRequestConfigSpec {
        provisioning_class_name: CLASS.into(),
        ..ProvisioningRequestConfigSpec::default()
    }
}

/// An API server that has one answer for each method.
fn answering(answers: [(Method, u16, Value); 3]) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answers.iter().find(|(method, ..)| method == request.method());
        let (_, code, body) = answer.expect("an answer");
        let body = Body::from(serde_json::to_vec(body).unwrap());
        let answer = Response::builder().status(*code).body(body);
        std::future::ready(Ok::<_, std::io::Error>(answer.unwrap()))
    });
    Client::new(service, "ns")
}

/// What is planned for a Workload, and the status that comes of it.
fn follow(p: &Provisioning, stored: &Workload) -> (Follow, Status) {
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
    p.configs.observe(ProvisioningRequestConfig::new("cfg", config()));
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
    p.configs.observe(ProvisioningRequestConfig::new("cfg", changed));
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
        (Method::POST, 409, taken),
        (Method::GET, 200, going),
        (Method::PATCH, 200, json!(handed_over)),
    ];
    let p = cluster_of(answering(answers), &config());
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
