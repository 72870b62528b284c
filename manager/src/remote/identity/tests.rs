use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use roadstead_api::config::Config;
use roadstead_api::constants::finalizers::LEAVING;
use roadstead_core::cluster::link::Link;
use roadstead_core::lease::{Grant, Moment, Terms};
use roadstead_engine::clock::{Uptime, system};
use roadstead_engine::leader::Leadership;
use roadstead_kubeconfigs::check::{Refusal, Rules};
use roadstead_kubeio::cache::Cache;
use serde_json::{Value, from_value};

use super::super::lease::Lessor;
use super::super::registry::Registry;
use super::super::told::Told;
use super::*;
use crate::metrics::Metrics;

/// The bodies of the sent requests.
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

/// The cluster with this stored identity.
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

/// A manager that remembers this of east, and holds something there.
pub(in crate::remote) fn fleet(client: Client, identity: &str) -> (Fleet, Arc<Remote>) {
    let mut config = Config::without_file("own");
    config.leader_election.leader_elect = false;
    let terms = Terms::of(Duration::from_mins(10));
    let clusters = Cache::new();
    clusters.observe(from_value(east(identity)).unwrap());
    let registry = Arc::<Registry>::default();
    let remote = Arc::new(Remote::new(
        "east".into(),
        (&[], &Arc::default()),
        Link::new(Timestamp::UNIX_EPOCH, Grant::new(Moment::default(), terms)),
    ));
    registry.insert(remote.clone());
    let namespaces = Cache::<Namespace>::new();
    let home = json!({"metadata": {"name": IDENTITY, "uid": "own", "resourceVersion": "1"}});
    namespaces.observe(from_value(home).unwrap());
    let lessor = Lessor {
        origin: "multikueue".into(),
        namespace: "ns".to_owned(),
        terms,
        namespaces,
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
        naming: tokio::sync::Mutex::default(),
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

fn print(server: &str) -> String {
    place(server).print()
}

/// A worker whose namespace `kube-system` has this UID, or with this code of a refusal.
fn worker(uid: Result<&str, u16>) -> Client {
    let (code, body) = match uid {
        Ok(uid) => (200, json!({"metadata": {"name": IDENTITY, "uid": uid}})),
        Err(code) => (
            code,
            json!({"kind": "Status", "code": code, "message": "no", "reason": "Forbidden"}),
        ),
    };
    answering(code, body).0
}

/// The verdict about east when its Secret leads `there`, and the identity stored afterwards.
struct Case {
    remembered: String,
    home: Option<Identity>,
    is_free: bool,
}

impl Case {
    fn of(remembered: &str, place: &str) -> Self {
        Self {
            remembered: format!("{remembered} at {}", print(place)),
            home: None,
            is_free: false,
        }
    }

    fn free(self) -> Self {
        Self {
            is_free: true,
            ..self
        }
    }

    async fn there(self, uid: Result<&str, u16>) -> (Recognised, Option<Value>) {
        let (own, sent) = answering(200, east(""));
        let (mut fleet, remote) = fleet(own, &self.remembered);
        fleet.is_free = Box::new(move |_| self.is_free);
        remote.with(|reach| reach.home = self.home);
        let said = fleet
            .recognise(&remote, &worker(uid), &place("there"), SECOND)
            .await;
        let sent = sent.lock().unwrap();
        let written = sent
            .last()
            .map(|patch| patch["metadata"]["annotations"][CLUSTER_IDENTITY].clone());
        (said, written)
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn is_refused(said: &Recognised, reason: Reason, words: &str) -> bool {
    matches!(said, Recognised::Refused(why, text) if *why == reason && text.contains(words))
}

/// Spec: safety 3.8, I1
#[tokio::test(start_paused = true)]
async fn the_same_cluster_is_entered_wherever_it_is_and_its_place_is_remembered() {
    let (said, written) = Case::of("uid", "there").there(Ok("uid")).await;
    assert_eq!((said, written), (Recognised::Enter, None), "nothing is written");
    let moved = Case::of("uid", "here").there(Ok("uid")).await;
    assert_eq!(
        moved,
        (
            Recognised::Enter,
            Some(json!(format!("uid at {}", print("there"))))
        )
    );
    let first = Case::of("-", "there").there(Ok("uid")).await;
    assert_eq!(
        first,
        (
            Recognised::Enter,
            Some(json!(format!("uid at {}", print("there"))))
        )
    );
    let unknown = Case {
        remembered: "written by an earlier version".to_owned(),
        ..Case::of("", "")
    };
    let unknown = unknown.there(Err(403)).await;
    assert_eq!(
        unknown,
        (Recognised::Enter, Some(json!(format!("- at {}", print("there")))))
    );
}

/// Spec: safety 3.8, I1
#[tokio::test(start_paused = true)]
async fn another_cluster_and_one_that_cannot_be_identified_are_refused_while_anything_is_held_on_the_one_before()
 {
    for (known, uid) in [
        (("uid", "here"), Ok("other")),
        (("uid", "there"), Ok("other")),
        (("-", "here"), Ok("uid")),
    ] {
        let (said, written) = Case::of(known.0, known.1).there(uid).await;
        assert!(
            is_refused(&said, Reason::ClusterChanged, "roadstead cluster give-up east"),
            "{said:?}"
        );
        assert!(
            is_refused(&said, Reason::ClusterChanged, "roadstead cluster move east"),
            "{said:?}"
        );
        assert_eq!(written, None);
        let (said, written) = Case::of(known.0, known.1).free().there(uid).await;
        assert_eq!(said, Recognised::Enter);
        assert!(written.unwrap().as_str().unwrap().starts_with(uid.unwrap()));
    }
    let hidden = Case::of("uid", "here").there(Err(403)).await;
    assert!(
        is_refused(&hidden.0, Reason::ClusterChanged, "leads to another cluster"),
        "{hidden:?}"
    );
}

/// Spec: safety 3.8, I1
#[tokio::test(start_paused = true)]
async fn what_is_known_of_one_cluster_is_not_taken_to_another() {
    let of = |uid: &str| Identity::read(&format!("{uid} at {}", print("here")));
    for (home, expected) in [
        (of("uid"), Recognised::Enter),
        (of("other"), Recognised::BeginAnew),
        (of("-"), Recognised::BeginAnew),
    ] {
        let case = Case {
            home,
            ..Case::of("uid", "there")
        };
        assert_eq!(case.there(Ok("uid")).await.0, expected);
    }
}

/// Spec: safety 3.8
#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_say_which_it_is_or_cannot_be_remembered_is_not_connected() {
    let (said, _) = Case::of("uid", "there").there(Err(500)).await;
    assert!(matches!(said, Recognised::Failed(_)), "{said:?}");
    let (said, _) = Case::of("uid", "there").there(Err(401)).await;
    assert_eq!(said, Recognised::Failed(NOT_ACCEPTED.to_owned()));

    let refusal = json!({"kind": "Status", "code": 403, "message": "no right", "reason": "Forbidden"});
    let (own, _) = answering(403, refusal);
    let (fleet, remote) = fleet(own, "");
    let said = fleet
        .recognise(&remote, &worker(Ok("uid")), &place("there"), SECOND)
        .await;
    assert!(
        matches!(&said, Recognised::Failed(why) if why.contains(CLUSTER_IDENTITY)),
        "{said:?}"
    );
}

/// Spec: safety 3.8, I5
#[tokio::test(start_paused = true)]
async fn of_two_names_for_one_cluster_the_second_is_refused_and_two_that_were_exchanged_find_their_way() {
    let of = |name: &str, identity: &str, version: &str| {
        let mut cluster = named(name, identity);
        cluster["metadata"]["resourceVersion"] = json!(version);
        cluster["metadata"]["uid"] = json!(name);
        cluster
    };
    for (known, is_free, reason, written) in [
        ("", false, Reason::RegisteredTwice, None),
        ("of-east at print", false, Reason::ClusterChanged, None),
        (
            "of-east at print",
            true,
            Reason::RegisteredTwice,
            Some(Value::Null),
        ),
    ] {
        let (own, sent) = answering(200, of("east", "", "8"));
        let (mut fleet, remote) = fleet(own, known);
        fleet.is_free = Box::new(move |_| is_free);
        fleet
            .clusters
            .observe(from_value(of("west", "of-west at elsewhere", "7")).unwrap());
        let said = fleet
            .recognise(&remote, &worker(Ok("of-west")), &place("there"), SECOND)
            .await;
        assert!(is_refused(&said, reason, ""), "{known}: {said:?}");
        let sent = sent.lock().unwrap();
        let said = sent
            .last()
            .map(|patch| patch["metadata"]["annotations"][CLUSTER_IDENTITY].clone());
        assert_eq!(said, written, "{known}");
    }
}

/// Spec: safety 3.8
#[tokio::test(start_paused = true)]
async fn the_management_cluster_is_no_worker() {
    let (own, sent) = answering(200, east(""));
    let (fleet, remote) = fleet(own, "");
    let said = fleet
        .recognise(&remote, &worker(Ok("own")), &place("there"), SECOND)
        .await;
    assert!(
        is_refused(&said, Reason::ManagementCluster, "cluster join east"),
        "{said:?}"
    );
    assert_eq!(*sent.lock().unwrap(), [Value::Null; 0]);
}

/// Spec: safety F28
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_being_deleted_is_held_no_more() {
    let mut cluster = east("");
    cluster["metadata"]["finalizers"] = json!([]);
    for (deleted, writes) in [(Value::Null, 1), (json!("2026-01-01T00:00:00Z"), 0)] {
        cluster["metadata"]["resourceVersion"] = json!("8");
        cluster["metadata"]["deletionTimestamp"] = deleted;
        let (client, sent) = answering(200, cluster.clone());
        let (fleet, _) = fleet(client, "");
        fleet.clusters.observe(from_value(cluster.clone()).unwrap());
        fleet.hold("east").await;
        let sent = sent.lock().unwrap();
        let finalizers: Vec<&Value> = sent
            .iter()
            .map(|patch| &patch["metadata"]["finalizers"])
            .collect();
        assert_eq!(finalizers, vec![&json!([LEAVING]); writes]);
    }
}
