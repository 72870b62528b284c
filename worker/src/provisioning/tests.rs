use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use roadstead_api::kueue::v1beta2::{ProvisioningRequestConfigSpec, Workload};
use roadstead_core::condition::Truth;
use roadstead_core::status::CheckPhase;
use roadstead_kubeio::cache::Health;
use roadstead_kubeio::events;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;

/// Longer than every step here takes.
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

/// A cluster with check `chk` of ours and check `other` of another controller. No server answers at its address.
pub(super) fn cluster(config: &ProvisioningRequestConfigSpec) -> Provisioning {
    let address = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    cluster_of(Client::try_from(address).unwrap(), config)
}

fn cluster_of(client: Client, config: &ProvisioningRequestConfigSpec) -> Provisioning {
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let (recorder, _) = events::recorder(client.clone(), "test", clock.clone(), CancellationToken::new());
    let due = Arc::new(Queue::default());
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
        std::future::ready(Ok::<_, io::Error>(answer.unwrap()))
    });
    Client::new(service, "ns")
}

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

/// The cache does not hold it: it was deleted with the last reservation, but still exists.
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
        why.unwrap_err().text().contains("still being deleted"),
        "tried again until it is gone"
    );
}

/// An API server whose watches tell nothing, and that answers a second list of requests only when it is allowed to.
fn lagging(stored: &Arc<Mutex<Vec<ProvisioningRequest>>>, let_go: &Arc<Notify>) -> Client {
    let (stored, let_go, lists) = (stored.clone(), let_go.clone(), Arc::<AtomicUsize>::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (stored, let_go, lists) = (stored.clone(), let_go.clone(), lists.clone());
        async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let list = |version: usize, items: &[Value]| {
                let metadata = json!({ "resourceVersion": version.to_string() });
                json!({ "apiVersion": "x/v1", "kind": "List", "metadata": metadata, "items": items })
            };
            let (code, answer) = if request.method() != Method::GET {
                (404, json!({ "kind": "Status", "status": "Failure", "code": 404 }))
            } else if query.contains("watch") {
                let silent = stream::pending::<io::Result<Frame<Bytes>>>();
                let silent = StreamBody::new(silent).boxed_unsync();
                return Ok::<_, io::Error>(Response::new(silent));
            } else if path.ends_with("/provisioningrequests") {
                let earlier = lists.fetch_add(1, Ordering::Relaxed);
                if earlier > 0 {
                    let_go.notified().await;
                }
                let items: Vec<Value> = stored.lock().unwrap().iter().map(|one| json!(one)).collect();
                (200, list(10 * (earlier + 1), &items))
            } else {
                (200, list(10, &[]))
            };
            let body = Full::new(Bytes::from(answer.to_string()));
            let body = body.map_err(|never| match never {}).boxed_unsync();
            Ok(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "ns")
}

/// The last requests of the previous leader may not have come through our watch, and would be created again.
///
/// Spec: safety F6
#[tokio::test(start_paused = true)]
async fn who_begins_to_lead_decides_nothing_before_requests_have_been_listed_again() {
    let (stored, let_go) = (Arc::default(), Arc::<Notify>::default());
    let p = cluster_of(lagging(&stored, &let_go), &config());
    p.served.set(Served::NotYet);
    let (leadership, stop, mut tasks) = (Leadership::waiting(), CancellationToken::new(), Tasks::default());
    p.spawn(&leadership, &mut tasks, &stop);
    for mut health in [p.requests.health(), p.templates.health(), p.configs.health()] {
        health.wait_for(|health| *health == Health::Live).await;
    }
    let mut asked = request_object("wl-chk-1", "r1", "w1", &json!([]));
    asked.metadata.resource_version = Some("15".to_owned());
    stored.lock().unwrap().push(asked);
    tokio::time::sleep(DEADLINE).await;
    let known = || p.requests.get(&Key::new("ns", "wl-chk-1")).is_some();
    assert!(!known(), "its watch is behind");

    leadership.win();
    tokio::time::sleep(DEADLINE).await;
    assert_eq!(p.served.get(), Served::NotYet, "nothing may be decided");
    let_go.notify_one();
    tokio::time::sleep(DEADLINE).await;
    assert_eq!(p.served.get(), Served::Yes);
    assert!(known());
    stop.cancel();
    tasks.run(stop).await.unwrap();
}
