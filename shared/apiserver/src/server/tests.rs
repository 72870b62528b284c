//! Requests to a server, its observers and its repeatability.

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

/// The answers to requests of every sort, random parts included.
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

/// An answer's code, media type and body.
async fn ask(server: &Server, request: Request<Bytes>) -> (u16, String, Bytes) {
    let answer = server.handle(request, User::admin()).await;
    let code = answer.status().as_u16();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    (code, kind, answer.into_body().collect().await.unwrap().to_bytes())
}

/// As `kubectl apply -f` of a `List` asks before it sends the items one by one.
#[tokio::test]
async fn kubectl_finds_an_openapi_v2_document_in_the_form_it_asks_for() {
    let server = server();
    let get = |accept: &str| {
        let request = Request::get("/openapi/v2?timeout=32s").header("accept", accept);
        request.body(Bytes::new()).unwrap()
    };
    for accept in [
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ] {
        let (code, kind, body) = ask(&server, get(accept)).await;
        assert_eq!((code, kind.as_str()), (200, crate::openapi::V2_PROTOBUF));
        assert_eq!(&body[..], b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.3");
    }
    let (code, kind, body) = ask(&server, get("application/json")).await;
    assert_eq!((code, kind.as_str()), (200, "application/json"));
    let document: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["swagger"], "2.0");
}

/// What kubectl v1.32 sends, recorded: its typed clients speak protobuf, and do not try again with JSON after a 415.
const SENT_BY_KUBECTL: [(&str, &[u8]); 5] = [
    // kubectl create secret generic s --from-literal=k=v
    (
        "/api/v1/namespaces/default/secrets",
        b"k8s\0\n\x0c\n\x02v1\x12\x06Secret\x12\x1d\n\x11\n\x01s\x12\0\x1a\0\"\0*\x002\x008\0B\0\x12\x06\n\x01k\x12\x01v\x1a\0\x1a\0\"\0",
    ),
    // kubectl create job j --image=i -- sleep 1
    (
        "/apis/batch/v1/namespaces/default/jobs",
        b"k8s\0\n\x0f\n\x08batch/v1\x12\x03Job\x12\x8e\x01\n\x11\n\x01j\x12\0\x1a\0\"\0*\x002\x008\0B\0\x12o2m\n\x10\n\0\x12\0\x1a\0\"\0*\x002\x008\0B\0\x12Y\x126\n\x01j\x12\x01i\x1a\x05sleep\x1a\x011\x1a\x10--validate=false*\0B\0j\0r\0\x80\x01\0\x88\x01\0\x90\x01\0\xa2\x01\0\x1a\x05Never2\0B\0J\0R\0X\0`\0h\0\x82\x01\0\x8a\x01\0\x9a\x01\0\xc2\x01\0\x1a\x08 \0(\x000\0:\0\x1a\0\"\0",
    ),
    // kubectl create priorityclass p --value=-1
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        b"k8s\0\n%\n\x14scheduling.k8s.io/v1\x12\x0dPriorityClass\x128\n\x11\n\x01p\x12\0\x1a\0\"\0*\x002\x008\0B\0\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\0\"\0*\x14PreemptLowerPriority\x1a\0\"\0",
    ),
    // kubectl create clusterrolebinding b --clusterrole=view --serviceaccount=a:b
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        b"k8s\0\n2\n\x1crbac.authorization.k8s.io/v1\x12\x12ClusterRoleBinding\x12]\n\x11\n\x01b\x12\0\x1a\0\"\0*\x002\x008\0B\0\x12\x18\n\x0eServiceAccount\x12\0\x1a\x01b\"\x01a\x1a.\n\x19rbac.authorization.k8s.io\x12\x0bClusterRole\x1a\x04view\x1a\0\"\0",
    ),
    // kubectl create service clusterip s --tcp=80:web
    (
        "/api/v1/namespaces/default/services",
        b"k8s\0\n\x0d\n\x02v1\x12\x07Service\x12d\n\x1b\n\x01s\x12\0\x1a\0\"\0*\x002\x008\0B\0Z\x08\n\x03app\x12\x01s\x12A\n\x1c\n\x0680-web\x12\x03TCP\x18P\"\x09\x08\x01\x10\0\x1a\x03web(\0\x12\x08\n\x03app\x12\x01s\x1a\0\"\x09ClusterIP:\0B\0R\0Z\0`\0h\0\x1a\x02\n\0\x1a\0\"\0",
    ),
];

#[tokio::test]
async fn kubectl_creates_by_protobuf_what_it_has_commands_for() {
    let server = server();
    let post = |path: &str, body: &'static [u8]| {
        Request::post(format!(
            "{path}?fieldManager=kubectl-create&fieldValidation=Strict"
        ))
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header("accept", "application/vnd.kubernetes.protobuf,application/json")
        .body(Bytes::from_static(body))
        .unwrap()
    };
    let mut made = Vec::new();
    for (path, body) in SENT_BY_KUBECTL {
        let (code, kind, answer) = ask(&server, post(path, body)).await;
        let object: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (code, kind.as_str()),
            (201, "application/json"),
            "{path}: {object}"
        );
        made.push(object);
    }
    assert_eq!(
        (&made[0]["data"], &made[0]["type"]),
        (&json!({"k": "dg=="}), &json!("Opaque"))
    );
    let pod = &made[1]["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["restartPolicy"], &pod["containers"][0]["command"][0]),
        (&json!("Never"), &json!("sleep"))
    );
    assert_eq!(made[2]["value"], -1);
    assert_eq!(
        made[3]["subjects"],
        json!([{"kind": "ServiceAccount", "name": "b", "namespace": "a"}])
    );
    assert_eq!(made[4]["spec"]["ports"][0]["targetPort"], "web");
    let (code, _, answer) = ask(
        &server,
        post("/api/v1/namespaces/default/secrets", b"k8s\0\n\x01x"),
    )
    .await;
    assert_eq!(code, 415, "{answer:?}");
}
