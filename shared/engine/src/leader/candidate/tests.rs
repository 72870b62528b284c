use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use roadstead_serve::health::Readiness;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock;

/// A server that holds one Lease, with versions as real API servers keep them.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    stored: Option<Value>,
    version: u64,
    writes: usize,
    /// No request gets an answer.
    silent: bool,
}

impl Server {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spec(&self, field: &str) -> Value {
        let inner = self.inner();
        inner
            .stored
            .as_ref()
            .map(|lease| lease["spec"][field].clone())
            .unwrap_or_default()
    }

    fn answer(&self, method: &Method, body: &Value) -> (u16, Value) {
        let mut inner = self.inner();
        let version = inner.version.to_string();
        let given = &body["metadata"]["resourceVersion"];
        let mut lease = match (method, inner.stored.clone()) {
            (&Method::GET, Some(stored)) => return (200, stored),
            (&Method::POST, Some(_)) => return (409, failure(409, "AlreadyExists")),
            (&Method::POST, None) => body.clone(),
            (_, None) => return (404, failure(404, "NotFound")),
            (_, Some(_)) if *given != json!(version) => return (409, failure(409, "Conflict")),
            (_, Some(stored)) => stored,
        };
        inner.version += 1;
        inner.writes += 1;
        for (field, value) in body["spec"].as_object().unwrap() {
            lease["spec"][field] = value.clone();
        }
        lease["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        inner.stored = Some(lease.clone());
        (200, lease)
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                if server.inner().silent {
                    std::future::pending::<()>().await;
                }
                let (code, answer) = server.answer(&method, &body);
                let answer = Response::builder()
                    .status(StatusCode::from_u16(code).unwrap())
                    .body(Body::from(serde_json::to_vec(&answer).unwrap()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        Client::new(service, "ns")
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

struct One {
    candidate: Candidate,
    permit: Permit,
    leadership: Leadership,
    readiness: Readiness,
}

fn replica(server: &Server, place: &str) -> One {
    let (permit, leadership) = (Permit::waiting(), Leadership::waiting());
    let readiness = Readiness::default();
    let parts = (
        permit.clone(),
        leadership.clone(),
        readiness.condition("leaderElection"),
    );
    // The machine's clock goes on while time is paused, which must not matter.
    let config = Config::without_file("own");
    let me = Replica::in_place(place, "1");
    One {
        candidate: Candidate::new(server.client(), &config, me, clock::system(), parts),
        permit,
        leadership,
        readiness,
    }
}

/// Runs a candidate beside the test until `stop`, and returns it.
fn run(mut one: Candidate, stop: CancellationToken) -> tokio::task::JoinHandle<(Candidate, Option<Lost>)> {
    tokio::spawn(async move {
        let lost = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            lost = one.run() => Some(lost),
        };
        (one, lost)
    })
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Spec: safety F6
#[tokio::test(start_paused = true)]
async fn the_first_leads_at_once_the_second_waits_and_follows_when_the_lease_is_given_back() {
    let server = Server::default();
    let (mut first, mut second) = (replica(&server, "a"), replica(&server, "b"));
    assert!(!first.readiness.is_ready());
    first.candidate.try_at_once().await;
    assert!(first.leadership.leads() && first.permit.check().is_ok() && first.readiness.is_ready());
    assert_eq!(server.spec("holderIdentity"), "a#1");
    assert_eq!(server.spec("leaseDurationSeconds"), 15);
    assert_eq!(server.spec("leaseTransitions"), 0);
    second.candidate.try_at_once().await;
    assert!(!second.leadership.leads() && second.permit.check().is_err());
    assert!(second.readiness.is_ready(), "it follows");

    let (end_first, end_second) = (CancellationToken::new(), CancellationToken::new());
    let ends = run(first.candidate, end_first.clone());
    let waits = run(second.candidate, end_second.clone());
    tokio::time::sleep(secs(120)).await;
    assert!(first.permit.check().is_ok() && !second.leadership.leads());
    end_first.cancel();
    let (mut gone, lost) = ends.await.unwrap();
    assert!(lost.is_none());
    gone.release().await;
    assert!(first.permit.check().is_err());
    assert_eq!(server.spec("holderIdentity"), "");
    assert_eq!(server.spec("leaseDurationSeconds"), 1);
    tokio::time::sleep(secs(3)).await;
    assert!(second.leadership.leads() && second.permit.check().is_ok());
    assert_eq!(server.spec("holderIdentity"), "b#1");
    assert_eq!(server.spec("leaseTransitions"), 1);
    let writes = server.inner().writes;
    gone.release().await;
    assert_eq!(server.inner().writes, writes, "it is not its own any more");
    end_second.cancel();
    waits.await.unwrap();
}

/// Spec: safety F6
#[tokio::test(start_paused = true)]
async fn a_leader_that_was_stopped_past_its_lease_has_lost_and_writes_nothing() {
    let server = Server::default();
    let (mut first, mut second) = (replica(&server, "a"), replica(&server, "b"));
    first.candidate.try_at_once().await;
    second.candidate.try_at_once().await;
    let stop = CancellationToken::new();
    let waits = run(second.candidate, stop.clone());
    tokio::time::sleep(secs(14)).await;
    assert!(first.permit.check().is_err(), "before anybody else leads");
    assert!(!second.leadership.leads());
    tokio::time::sleep(secs(2)).await;
    assert!(second.leadership.leads());
    let writes = server.inner().writes;
    let lost = first.candidate.run().await;
    assert_eq!(
        lost.to_string(),
        "this replica leads no more: Lease own/c1f6bfd2.kueue.x-k8s.io is held by \"b#1\"; this process exits, and its Deployment must start it again"
    );
    assert!(first.permit.check().is_err());
    first.candidate.release().await;
    assert_eq!(server.inner().writes, writes);
    stop.cancel();
    waits.await.unwrap();
}

/// Spec: safety F6
#[tokio::test(start_paused = true)]
async fn a_leader_that_gets_no_answer_stops_at_the_deadline_and_goes_on_when_nobody_else_led() {
    let server = Server::default();
    let mut one = replica(&server, "a");
    one.candidate.try_at_once().await;
    let stop = CancellationToken::new();
    server.inner().silent = true;
    let runs = run(one.candidate, stop.clone());
    tokio::time::sleep(secs(9)).await;
    assert!(one.permit.check().is_ok());
    tokio::time::sleep(secs(2)).await;
    assert!(one.permit.check().is_err());
    tokio::time::sleep(secs(600)).await;
    assert!(one.permit.check().is_err());
    server.inner().silent = false;
    tokio::time::sleep(secs(10)).await;
    assert!(one.permit.check().is_ok());
    stop.cancel();
    runs.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_killed_takes_its_own_lease_back_at_once() {
    let server = Server::default();
    let mut first = replica(&server, "a");
    first.candidate.try_at_once().await;
    server.inner().stored.as_mut().unwrap()["spec"]["holderIdentity"] = json!("a#0");
    let mut next = replica(&server, "a");
    next.candidate.try_at_once().await;
    assert!(next.leadership.leads());
    assert_eq!(server.spec("holderIdentity"), "a#1");
    let mut other = replica(&server, "b");
    other.candidate.try_at_once().await;
    assert!(!other.leadership.leads());
}

#[tokio::test(start_paused = true)]
async fn who_cannot_read_the_lease_is_not_ready_and_says_why() {
    let server = Server::default();
    server.inner().silent = true;
    let mut one = replica(&server, "a");
    let began = Instant::now();
    one.candidate.try_at_once().await;
    assert_eq!(began.elapsed(), FIRST_MAX);
    let stop = CancellationToken::new();
    let waits = run(one.candidate, stop.clone());
    tokio::time::sleep(secs(8)).await;
    assert_eq!(
        one.readiness.missing(),
        ["leaderElection: Lease own/c1f6bfd2.kueue.x-k8s.io: no answer"]
    );
    server.inner().silent = false;
    tokio::time::sleep(secs(8)).await;
    assert!(one.leadership.leads() && one.readiness.is_ready());
    stop.cancel();
    waits.await.unwrap();
}
