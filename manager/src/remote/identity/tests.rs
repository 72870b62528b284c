use std::sync::Mutex;

use http::{Method, Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use roadstead_api::config::Config;
use roadstead_api::constants::finalizers::LEAVING;
use roadstead_core::lease::{Grant, Moment, Terms};
use roadstead_engine::clock::{Uptime, system};
use roadstead_engine::leader::Leadership;
use roadstead_kubeconfigs::check::{Refusal, Rules};
use roadstead_kubeio::cache::Cache;
use serde_json::from_value;

use super::super::registry::Registry;
use super::super::told::Told;
use super::*;
use crate::lease::Lessor;
use crate::metrics::Metrics;

/// What was sent.
type Sent = Arc<Mutex<Vec<Value>>>;

/// An API server that keeps what it is sent, and gives this answer to every request: a code, and the lines to go with it.
fn answering(code: u16, body: Value) -> (Client, Sent) {
    let sent = Sent::default();
    let kept = sent.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (kept, body) = (kept.clone(), Body::from(serde_json::to_vec(&body).unwrap()));
        async move {
            if request.method() != Method::GET {
                let bytes = request.into_body().collect_bytes().await.unwrap();
                kept.lock().unwrap().push(serde_json::from_slice(&bytes).unwrap());
            }
            Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (Client::new(service, "ns"), sent)
}

fn place(server: &str) -> Place {
    Place {
        server: server.to_owned(),
        authority: "authority".to_owned(),
    }
}

/// The cluster of which this is remembered.
fn east(identity: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": {
            "name": "east", "uid": "1", "resourceVersion": "7", "finalizers": [LEAVING],
            "annotations": {CLUSTER_IDENTITY: identity},
        },
        "spec": {"clusterSource": {"kubeConfig": {"location": "east", "locationType": "Secret"}}},
    })
}

fn workload(metadata: &Value) -> Arc<Workload> {
    Arc::new(from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap())
}

/// A manager that remembers this of east, where these Workloads are placed.
fn fleet(client: Client, identity: &str, placed: Option<Vec<Arc<Workload>>>) -> (Fleet, Arc<Remote>) {
    let mut config = Config::without_file("own");
    config.leader_election.leader_elect = false;
    let terms = Terms::of(Duration::from_mins(10));
    let clusters = Cache::new();
    clusters.observe(from_value(east(identity)).unwrap());
    let registry = Arc::<Registry>::default();
    let remote = Arc::new(Remote::new(
        "east".into(),
        (&[], &Arc::default()),
        Timestamp::UNIX_EPOCH,
        Grant::new(Moment::default(), terms),
    ));
    registry.insert(remote.clone());
    let lessor = Lessor {
        origin: "multikueue".into(),
        namespace: "ns".to_owned(),
        terms,
        clusters: clusters.clone(),
        namespaces: Cache::<Namespace>::new(),
        uptime: Uptime::start(),
        troubles: roadstead_kubeio::trouble::Troubles::default(),
        clock: system(),
    };
    let fleet = Fleet {
        client,
        clusters,
        secrets: Cache::new(),
        namespace: "ns".to_owned(),
        registry,
        kinds: Vec::new(),
        templates: Arc::default(),
        ours: "origin=ours".to_owned(),
        rules: Rules::default(),
        lessor: Arc::new(lessor),
        dial: Arc::new(|_| Box::pin(std::future::ready(Err(Refusal::bad("not here"))))),
        changed: Arc::default(),
        greet: Box::new(|_, _| {}),
        is_free: Box::new(|_| false),
        placed: Box::new(move |_| placed.clone()),
        metrics: Metrics::new(Leadership::assumed(&config)),
        told: Told::default(),
        clock: system(),
        #[cfg(feature = "bugbank")]
        policy: crate::dispatch::policy(
            &config.multi_kueue,
            &config.feature_gates,
            roadstead_core::dispatch::LostPolicy::Wait,
        ),
    };
    (fleet, remote)
}

/// Spec: safety 3.8
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_made_anew_before_anybody_followed_it_is_remembered() {
    let here = place("here");
    let (client, sent) = answering(200, east(""));
    let (fleet, remote) = fleet(client, &format!("uid {}", here.print()), Some(Vec::new()));
    remote.moves_to(&here);
    remote.lease.set(Some("anew".into()));
    let followed = fleet.follow_lease(&remote);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), followed)
            .await
            .is_err()
    );
    let noted = sent.lock().unwrap()[0]["metadata"]["annotations"][CLUSTER_IDENTITY].clone();
    assert_eq!(noted, format!("anew {}", here.print()));
}

/// What is said where east leads `there` now, and the lease that is known afterwards; without a lease to know it by.
async fn recognised(
    home: Option<&str>,
    placed: Option<Vec<Arc<Workload>>>,
    (code, body): (u16, Value),
) -> (Recognised, Option<Arc<str>>) {
    let (client, _) = answering(code, body);
    let (fleet, remote) = fleet(client.clone(), &format!("- {}", place("here").print()), placed);
    if let Some(home) = home {
        remote.moves_to(&place(home));
        remote.lease.set(Some("uid".into()));
    }
    let said = fleet.recognise(&remote, &client, &place("there")).await;
    (said, remote.lease.get())
}

/// Spec: safety 3.8, I1
#[tokio::test(start_paused = true)]
async fn where_a_secret_leads_elsewhere_what_is_there_and_what_may_run_decide() {
    let notes = json!({WORKLOAD_UID: "w"});
    let copy = |owners: Value| {
        let metadata = json!({
            "namespace": "ns", "name": "w", "uid": "copy", "annotations": notes, "ownerReferences": owners,
        });
        let items =
            [json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})];
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items})
    };
    let offered = || (200, copy(json!([])));
    let runs = || {
        let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}]);
        (200, copy(job))
    };
    let one = || {
        Some(vec![workload(
            &json!({"namespace": "ns", "name": "w", "uid": "w"}),
        )])
    };
    let none = || Some(Vec::new());
    let refused = |said: &Recognised, reason: Reason, words: &str| matches!(said, Recognised::Refused(why, text) if *why == reason && text.contains(words));

    let (said, lease) = recognised(Some("here"), one(), runs()).await;
    assert_eq!(
        (said, lease),
        (Recognised::Enter, None),
        "its lease is not seen there yet"
    );
    assert_eq!(recognised(None, one(), runs()).await.0, Recognised::Enter);
    let (said, lease) = recognised(Some("here"), one(), offered()).await;
    assert!(
        refused(&said, Reason::ClusterChanged, "leads to another cluster"),
        "{said:?}"
    );
    assert_eq!(lease.as_deref(), Some("uid"));
    let failed = json!({"kind": "Status", "code": 500, "message": "no quorum", "reason": "InternalError"});
    let (said, _) = recognised(Some("here"), one(), (500, failed)).await;
    assert!(
        refused(&said, Reason::ClientConnectionFailed, "no quorum"),
        "{said:?}"
    );
    let (said, _) = recognised(Some("here"), None, runs()).await;
    assert!(
        refused(&said, Reason::ClientConnectionFailed, NOT_LISTED),
        "{said:?}"
    );

    assert_eq!(
        recognised(Some("here"), none(), offered()).await.0,
        Recognised::BeginAnew
    );
    assert_eq!(
        recognised(Some("there"), none(), offered()).await.0,
        Recognised::Enter
    );
    assert_eq!(recognised(None, none(), offered()).await.0, Recognised::Enter);
    let (said, _) = recognised(Some("third"), one(), runs()).await;
    assert_eq!(said, Recognised::BeginAnew, "what is known is of a third cluster");
}
