//! What the server tells of itself.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

fn server() -> Server {
    Server::new(Options::new(Clock::new(|| Timestamp::UNIX_EPOCH), 1))
}

async fn send(server: &Server, method: Method, path: &str, body: Value) -> (u16, Value) {
    let kind = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let bytes = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Bytes::from(bytes))
        .unwrap();
    let answer = server.handle(request, User::admin()).await;
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn an_observer_sees_every_change_and_who_did_it() {
    let server = server();
    let seen: Arc<Mutex<Vec<Change>>> = Arc::default();
    let log = Arc::clone(&seen);
    server.observe(move |change| log.lock().unwrap().push(change.clone()));
    let maps = "/api/v1/namespaces/default/configmaps";
    let (_, owner) = send(
        &server,
        Method::POST,
        maps,
        json!({"metadata": {"name": "owner"}}),
    )
    .await;
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let pod = json!({
        "metadata": {"name": "p", "ownerReferences": [reference]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(
        send(&server, Method::POST, "/api/v1/namespaces/default/pods", pod)
            .await
            .0,
        201
    );
    let status = "/api/v1/namespaces/default/pods/p/status";
    let phase = json!({"status": {"phase": "Running"}});
    assert_eq!(send(&server, Method::PATCH, status, phase.clone()).await.0, 200);
    // The same again changes nothing.
    assert_eq!(send(&server, Method::PATCH, status, phase).await.0, 200);
    assert_eq!(
        send(&server, Method::DELETE, &format!("{maps}/owner"), Value::Null)
            .await
            .0,
        200
    );
    server.settle();
    let seen = seen.lock().unwrap();
    let told: Vec<_> = seen
        .iter()
        .map(|change| {
            let presence = (change.old.is_some(), change.new.is_some());
            (
                &*change.resource,
                change.namespace.as_deref(),
                &*change.name,
                presence,
                &*change.user,
            )
        })
        .collect();
    let (admin, space) = (User::admin().name, Some("default"));
    assert_eq!(
        told,
        [
            ("configmaps", space, "owner", (false, true), admin.as_str()),
            ("pods", space, "p", (false, true), admin.as_str()),
            ("pods", space, "p", (true, true), admin.as_str()),
            ("configmaps", space, "owner", (true, false), admin.as_str()),
            ("pods", space, "p", (true, false), crate::COLLECTOR),
        ]
    );
    assert!(seen.windows(2).all(|pair| pair[0].version < pair[1].version));
    assert_eq!(seen[2].new.as_ref().unwrap()["status"]["phase"], "Running");
    assert_eq!(server.version(), seen[4].version);
}
