//! Watches and pages at their limits.

use http::{Method, Request};
use jiff::Timestamp;

use super::watch::BATCH_MAX;
use super::*;
use crate::clock::Clock;
use crate::request::User;
use crate::server::tests::{request, send};
use crate::server::{Body, Options};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn remembering(history_max: usize) -> Server {
    let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
    Server::new(Options {
        history_max,
        ..Options::new(clock, 1)
    })
}

async fn make(server: &Server, name: &str) {
    let (code, _) = send(server, Method::POST, MAPS, json!({"metadata": {"name": name}})).await;
    assert_eq!(code, 201);
}

async fn open(server: &Server, query: &str) -> Body {
    let request: Request<Bytes> = request(Method::GET, &format!("{MAPS}?watch=true&{query}"), &Value::Null);
    let answer = server.handle(request, User::admin()).await;
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

/// The next events; nothing at the end.
async fn next(body: &mut Body) -> Option<Vec<Value>> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_behind_is_told_that_its_version_is_gone() {
    let server = remembering(5);
    let mut body = open(&server, &format!("resourceVersion={}", server.version())).await;
    for at in 0..6 {
        make(&server, &format!("m{at}")).await;
    }
    let events = next(&mut body).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!(events[0]["object"]["code"], 410);
    assert_eq!(events[0]["object"]["reason"], "Expired");
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_is_told_at_once_and_a_list_too() {
    let server = remembering(100);
    make(&server, "m").await;
    let old = server.version();
    make(&server, "n").await;
    server.compact();
    let mut body = open(&server, &format!("resourceVersion={old}")).await;
    assert_eq!(next(&mut body).await.unwrap()[0]["object"]["code"], 410);
    assert_eq!(next(&mut body).await, None);
    let exact = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(send(&server, Method::GET, &exact, Value::Null).await.0, 410);
    let least = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=NotOlderThan");
    assert_eq!(send(&server, Method::GET, &least, Value::Null).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_page_after_its_version_was_forgotten_is_gone() {
    let server = remembering(100);
    for name in ["a", "b", "c"] {
        make(&server, name).await;
    }
    let (_, page) = send(&server, Method::GET, &format!("{MAPS}?limit=2"), Value::Null).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = format!("{MAPS}?limit=2&continue={token}");
    make(&server, "aa").await;
    let (code, page) = send(&server, Method::GET, &rest, Value::Null).await;
    assert_eq!((code, page["items"].as_array().unwrap().len()), (200, 1));
    server.compact();
    make(&server, "d").await;
    let (code, gone) = send(&server, Method::GET, &rest, Value::Null).await;
    assert_eq!((code, gone["reason"].as_str()), (410, Some("Expired")));
    // The token in the refusal continues in the present state, which has the newer objects.
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let (code, page) = send(
        &server,
        Method::GET,
        &format!("{MAPS}?continue={token}"),
        Value::Null,
    )
    .await;
    assert_eq!((code, page["items"].as_array().unwrap().len()), (200, 2));
}

#[tokio::test(start_paused = true)]
async fn many_changes_come_in_batches_and_none_is_left_out() {
    let server = remembering(10_000);
    let mut body = open(&server, &format!("resourceVersion={}", server.version())).await;
    for at in 0..=BATCH_MAX {
        make(&server, &format!("m{at:04}")).await;
    }
    assert_eq!(next(&mut body).await.unwrap().len(), BATCH_MAX);
    let last = next(&mut body).await.unwrap();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0]["object"]["metadata"]["name"], format!("m{BATCH_MAX:04}"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_told_how_far_it_is_every_minute_and_ends_in_time() {
    let server = remembering(100);
    let from = server.version();
    let mut body = open(
        &server,
        &format!("resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=150"),
    )
    .await;
    let began = Instant::now();
    // Another resource changes: the bookmark carries the new version.
    let node = json!({"metadata": {"name": "n"}});
    assert_eq!(send(&server, Method::POST, "/api/v1/nodes", node).await.0, 201);
    // The last one comes shortly before the end.
    for seconds in [60, 120, 148] {
        let events = next(&mut body).await.unwrap();
        assert_eq!(events[0]["type"], "BOOKMARK");
        let version = events[0]["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap();
        assert_eq!(version, server.version().to_string());
        assert_eq!(began.elapsed(), Duration::from_secs(seconds));
    }
    assert_eq!(next(&mut body).await, None);
    assert_eq!(began.elapsed(), Duration::from_secs(150));
}
