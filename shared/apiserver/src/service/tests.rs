//! What a client sees of each fault between it and the server.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::clock::Clock;
use crate::server::Options;
use crate::server::tests::{request, send};

/// Fates in the order of the requests; then everything is delivered.
#[derive(Debug, Default)]
struct Script(Mutex<VecDeque<Fate>>);

impl Faults for Script {
    fn fate(&self, _method: &Method, _path: &str) -> Fate {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.pop_front().unwrap_or(Fate::Deliver)
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server, and a service for it whose first request meets `fate`.
fn disturbed(fate: Fate) -> (Server, Faulty<ApiService>) {
    let server = Server::new(Options::new(Clock::tokio(Timestamp::UNIX_EPOCH), 1));
    let script = Script(Mutex::new([fate].into()));
    let layer = FaultLayer::new(Arc::new(script));
    let service = layer.layer(server.service(User::admin()));
    (server, service)
}

async fn create(service: &mut Faulty<ApiService>) -> Result<u16, Error> {
    let request = request(Method::POST, MAPS, &json!({"metadata": {"name": "m"}}));
    let request = request.map(http_body_util::Full::new);
    service.call(request).await.map(|answer| answer.status().as_u16())
}

/// When the object was created, in seconds after the start of the test; `None` if it does not exist.
async fn created(server: &Server) -> Option<i64> {
    let (code, object) = send(server, Method::GET, &format!("{MAPS}/m"), Value::Null).await;
    let time = object["metadata"]["creationTimestamp"].as_str()?.to_owned();
    assert_eq!(code, 200);
    Some(time.parse::<Timestamp>().unwrap().as_second())
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_changes_nothing() {
    let (server, mut service) = disturbed(Fate::LoseRequest);
    assert_eq!(create(&mut service).await, Err(Error::RequestLost));
    assert_eq!(created(&server).await, None);
    assert_eq!(create(&mut service).await, Ok(201));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_the_change() {
    let (server, mut service) = disturbed(Fate::LoseAnswer);
    assert_eq!(create(&mut service).await, Err(Error::AnswerLost));
    assert_eq!(created(&server).await, Some(0));
    assert_eq!(create(&mut service).await, Ok(409));
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_on_the_side_that_was_said() {
    for (fate, at) in [
        (Fate::DelayRequest(Duration::from_secs(9)), 9),
        (Fate::DelayAnswer(Duration::from_secs(9)), 0),
    ] {
        let (server, mut service) = disturbed(fate);
        let began = Instant::now();
        assert_eq!(create(&mut service).await, Ok(201));
        assert_eq!(began.elapsed(), Duration::from_secs(9));
        assert_eq!(created(&server).await, Some(at), "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_twice_is_answered_for_the_second_time() {
    let (server, mut service) = disturbed(Fate::Duplicate);
    let before = server.version();
    assert_eq!(create(&mut service).await, Ok(409));
    assert_eq!(server.version(), before + 1);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_in_words() {
    let (server, _) = disturbed(Fate::Deliver);
    let long = json!({"metadata": {"name": "m"}, "data": {"a": "x".repeat(BODY_BYTES_MAX)}});
    let request = request(Method::POST, MAPS, &long).map(http_body_util::Full::new);
    let answer = server.service(User::admin()).call(request).await.unwrap();
    assert_eq!(answer.status(), 413);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("too large"));
}
