//! What the server tells of itself.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// A server at the beginning of time.
pub(crate) fn server() -> Server {
    Server::new(Options::new(Clock::new(|| Timestamp::UNIX_EPOCH), 1))
}

/// A request as clients make it; a patch is a merge patch.
pub(crate) fn request(method: Method, path: &str, body: &Value) -> Request<Bytes> {
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
    Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Bytes::from(bytes))
        .unwrap()
}

/// The code and the body of an administrator's request.
pub(crate) async fn send(server: &Server, method: Method, path: &str, body: Value) -> (u16, Value) {
    let answer = server.handle(request(method, path, &body), User::admin()).await;
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

/// Requests of every sort, the second of each pair with the first one's random parts in it.
async fn story(seed: u64) -> Vec<Bytes> {
    let server = Server::new(Options::new(Clock::new(|| Timestamp::UNIX_EPOCH), seed));
    let mut said = Vec::new();
    let mut ask = async |request: Request<Bytes>| {
        let answer = server.handle(request, User::admin()).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        said.push(Bytes::from(format!("{} {:?}", parts.status, parts.headers)));
        said.push(body.clone());
        serde_json::from_slice::<Value>(&body).unwrap_or_default()
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"n": {"type": "integer"}},
                    "x-kubernetes-validations": [
                        {"rule": "self.n > 1", "message": "more"}, {"rule": "self.n > 2", "message": "still more"},
                    ],
                }},
            }}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    ask(request(Method::POST, definitions, &definition)).await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = |n: i64| {
        let free: Value = (0..20).map(|at| (format!("k{at}"), Value::from(at))).collect();
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"generateName": "t-", "labels": {"a": "b", "c": "d"}},
            "spec": {"n": n, "free": free},
        })
    };
    ask(request(Method::POST, things, &thing(0))).await;
    let made = ask(request(Method::POST, things, &thing(5))).await;
    let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let label = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"z": 1}});
    ask(request(Method::PATCH, &format!("{things}/{name}"), &label)).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    ask(request(Method::POST, "/api/v1/namespaces/default/pods", &pod)).await;
    let account = json!({"metadata": {"name": "bot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    ask(request(Method::POST, accounts, &account)).await;
    ask(request(
        Method::POST,
        &format!("{accounts}/bot/token"),
        &json!({"spec": {}}),
    ))
    .await;
    for path in [
        "/apis",
        "/api/v1",
        "/openapi/v3",
        "/openapi/v3/apis/example.com/v1",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        things,
        "/apis/example.com/v1/things?limit=1",
        "/apis/example.com/v1/things?watch=true&timeoutSeconds=1",
    ] {
        ask(request(Method::GET, path, &Value::Null)).await;
    }
    ask(request(
        Method::DELETE,
        &format!("{definitions}/things.example.com"),
        &Value::Null,
    ))
    .await;
    server.settle();
    ask(request(Method::GET, "/api/v1/namespaces", &Value::Null)).await;
    said
}

/// Spec: safety 7.
#[tokio::test(start_paused = true)]
async fn the_same_seed_and_requests_give_the_same_bytes() {
    let (first, second, other) = (story(7).await, story(7).await, story(8).await);
    assert_eq!(first.len(), second.len());
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first, second);
    }
    assert_ne!(first, other);
}
