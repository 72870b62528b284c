use std::sync::Mutex;

use http::{Method, Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use kube::core::DynamicObject;
use roadstead_api::config::Config;
use roadstead_api::constants::annotations::LEASE_CLUSTER;
use roadstead_api::constants::finalizers::LEAVING;
use roadstead_core::lease::{Grant, Moment, Terms};
use roadstead_core::name::Key;
use roadstead_engine::clock::{Uptime, system};
use roadstead_engine::leader::Leadership;
use roadstead_kubeconfigs::check::{Refusal, Rules};
use roadstead_kubeio::cache::{Cache, Change};
use serde_json::from_value;

use super::super::registry::Registry;
use super::super::told::Told;
use super::*;
use crate::lease::Lessor;
use crate::metrics::Metrics;

/// What was sent.
pub(in crate::remote) type Sent = Arc<Mutex<Vec<Value>>>;

/// An API server that keeps what it is sent, and gives this answer to every request: a code, and the lines to go with it.
pub(in crate::remote) fn answering(code: u16, body: Value) -> (Client, Sent) {
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
pub(in crate::remote) fn east(identity: &str) -> Value {
    named("east", identity)
}

fn named(name: &str, identity: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": {
            "name": name, "uid": "1", "resourceVersion": "7", "finalizers": [LEAVING],
            "annotations": {CLUSTER_IDENTITY: identity},
        },
        "spec": {"clusterSource": {"kubeConfig": {"location": "east", "locationType": "Secret"}}},
    })
}

fn workload(metadata: &Value) -> Arc<Workload> {
    Arc::new(from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap())
}

/// A manager that remembers this of east, where these Workloads are placed.
pub(in crate::remote) fn fleet(
    client: Client,
    identity: &str,
    placed: Option<Vec<Arc<Workload>>>,
) -> (Fleet, Arc<Remote>) {
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
        registry: registry.clone(),
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
        told: Arc::new(Told::default()),
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

/// A list of the copy of Workload `w`, owned by these.
fn copies(owners: &Value) -> Value {
    let metadata = json!({
        "namespace": "ns", "name": "w", "uid": "copy", "annotations": {WORKLOAD_UID: "w"}, "ownerReferences": owners,
    });
    let items =
        [json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})];
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items})
}

/// Workload `w`, placed in east.
fn one() -> Vec<Arc<Workload>> {
    let placed = json!({"namespace": "ns", "name": "w", "uid": "w"});
    vec![workload(&placed)]
}

fn is_refused(said: &Recognised, reason: Reason, words: &str) -> bool {
    matches!(said, Recognised::Refused(why, text) if *why == reason && text.contains(words))
}

/// The manager was connected there, and what is written is older than that.
///
/// Spec: safety 3.8, I1
#[tokio::test(start_paused = true)]
async fn where_it_is_connected_is_known_before_that_is_written() {
    let (here, there) = (place("here"), place("there"));
    let (client, _) = answering(200, copies(&json!([])));
    let written = format!("- {}", here.print());
    for (placed, expected) in [
        (Some(one()), None),
        (Some(Vec::new()), Some(Recognised::BeginAnew)),
    ] {
        let (fleet, remote) = fleet(client.clone(), &written, placed);
        remote.moves_to(&there);
        remote.is_of_home();
        let said = fleet.recognise(&remote, &client, &there).await;
        assert_eq!(said, Recognised::Enter, "it is where it was");
        let said = fleet.recognise(&remote, &client, &here).await;
        match expected {
            Some(expected) => assert_eq!(said, expected),
            None => assert!(
                is_refused(&said, Reason::ClusterChanged, "jobs of this manager may run"),
                "{said:?}"
            ),
        }
    }
}

/// Spec: safety 3.8
#[tokio::test(start_paused = true)]
async fn jobs_that_nobody_has_any_more_are_not_left_behind_at_once() {
    let (client, _) = answering(200, copies(&json!([])));
    for (is_free, words) in [(false, Some("are still on the one before")), (true, None)] {
        let (mut fleet, remote) = fleet(
            client.clone(),
            &format!("- {}", place("here").print()),
            Some(Vec::new()),
        );
        fleet.is_free = Box::new(move |_| is_free);
        remote.moves_to(&place("here"));
        remote.is_of_home();
        let labels = json!({"kueue.x-k8s.io/prebuilt-workload-name": "gone"});
        let job: Arc<DynamicObject> = Arc::new(
            from_value(json!({"metadata": {"namespace": "ns", "name": "job", "labels": labels}})).unwrap(),
        );
        remote.held.job_changed(
            0,
            &Change {
                key: &Key::new("ns", "job"),
                old: None,
                new: Some(&job),
            },
        );
        let said = fleet.recognise(&remote, &client, &place("there")).await;
        match words {
            Some(words) => assert!(is_refused(&said, Reason::ClusterChanged, words), "{said:?}"),
            None => assert_eq!(said, Recognised::BeginAnew),
        }
    }
}

/// Spec: safety 3.8, F28
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_being_deleted_is_remembered_while_it_waits_and_held_no_more() {
    let mut goes = east("uid print");
    goes["metadata"]["resourceVersion"] = json!("8");
    goes["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut held_by_another = goes.clone();
    held_by_another["metadata"]["finalizers"] = json!(["another"]);
    for (cluster, writes) in [(goes, 1), (held_by_another, 0)] {
        let (client, sent) = answering(200, cluster.clone());
        let (fleet, remote) = fleet(client, "uid print", Some(Vec::new()));
        fleet.clusters.observe(from_value(cluster).unwrap());
        remote.moves_to(&place("here"));
        fleet.hold("east", 1).await;
        let sent = sent.lock().unwrap();
        assert_eq!(sent.len(), writes);
        assert!(
            sent.iter()
                .all(|one| one["metadata"]["finalizers"] == json!([LEAVING]))
        );
    }
}

/// The Secrets of east and west were exchanged while nothing ran: the lease where east leads now bears the name of west.
///
/// Spec: safety 3.8, I5
#[tokio::test(start_paused = true)]
async fn where_the_other_name_leads_now_counts_before_what_is_written_of_it() {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "lease", "uid": "of-west", "annotations": {LEASE_CLUSTER: "west"}}, "spec": {},
    });
    let (client, _) = answering(200, lease);
    let (fleet, east) = fleet(client.clone(), "of-east print", Some(Vec::new()));
    fleet.lessor.namespaces.observe(
        from_value(json!({"metadata": {"name": "kube-system", "uid": "manager", "resourceVersion": "1"}}))
            .unwrap(),
    );
    let mut written = named("west", "of-west print");
    written["metadata"]["uid"] = json!("2");
    fleet.clusters.observe(from_value(written).unwrap());
    let west = Arc::new(Remote::new(
        "west".into(),
        (&[], &Arc::default()),
        Timestamp::UNIX_EPOCH,
        fleet.lessor.grant(None),
    ));
    fleet.registry.insert(west.clone());
    let said = fleet.lessor.renew(&client, &east, &mut None).await;
    assert!(
        matches!(said, Renewed::Taken(Reason::RegisteredTwice, _)),
        "{said:?}"
    );
    west.moves_to(&place("of east"));
    west.lease.set(Some("of-east".into()));
    assert_eq!(fleet.lessor.renew(&client, &east, &mut None).await, Renewed::Kept);
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
    let offered = || (200, copies(&json!([])));
    let runs = || {
        let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}]);
        (200, copies(&job))
    };
    let none = || Some(Vec::new());

    let (said, lease) = recognised(Some("here"), Some(one()), runs()).await;
    assert_eq!(
        (said, lease),
        (Recognised::Enter, None),
        "its lease is not seen there yet"
    );
    assert_eq!(recognised(None, Some(one()), runs()).await.0, Recognised::Enter);
    let (said, lease) = recognised(Some("here"), Some(one()), offered()).await;
    assert!(
        is_refused(&said, Reason::ClusterChanged, "leads to another cluster"),
        "{said:?}"
    );
    assert_eq!(lease.as_deref(), Some("uid"));
    let failed = json!({"kind": "Status", "code": 500, "message": "no quorum", "reason": "InternalError"});
    let (said, _) = recognised(Some("here"), Some(one()), (500, failed)).await;
    assert!(
        is_refused(&said, Reason::ClientConnectionFailed, "no quorum"),
        "{said:?}"
    );
    let (said, _) = recognised(Some("here"), None, runs()).await;
    assert!(
        is_refused(&said, Reason::ClientConnectionFailed, NOT_LISTED),
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
    let (said, _) = recognised(Some("third"), Some(one()), runs()).await;
    assert_eq!(said, Recognised::BeginAnew, "what is known is of a third cluster");
}
