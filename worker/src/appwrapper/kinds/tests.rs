use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// An API server that stores one Service with these labels while `stored` is true.
fn server(labels: Value, stored: &Arc<AtomicBool>) -> Client {
    let stored = stored.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, body) = if request.uri().path() == "/api/v1" {
            let verbs = ["create", "delete", "get", "list", "watch"];
            let services = json!({
                "name": "services", "singularName": "service", "kind": "Service", "namespaced": true, "verbs": verbs,
            });
            let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [services]});
            (200, list)
        } else if stored.load(Ordering::Relaxed) {
            let metadata = json!({
                "name": "taken", "namespace": "team", "uid": "1", "resourceVersion": "7", "labels": labels,
            });
            (
                200,
                json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata}),
            )
        } else {
            let details = json!({"name": "taken", "kind": "services"});
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
                "message": "services \"taken\" not found", "details": details,
            });
            (404, status)
        };
        async move {
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            let response = Response::builder().status(code).body(body).unwrap();
            Ok::<_, std::io::Error>(response)
        }
    });
    Client::new(service, "team")
}

/// Whether an object that was read is still known after it is gone, before any watch tells of that.
async fn is_kept(labels: Value) -> bool {
    let stored = Arc::new(AtomicBool::new(true));
    let kinds = Kinds::new(server(labels, &stored), Arc::default());
    let identity = Identity {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: "taken".to_owned(),
    };
    assert!(matches!(kinds.read("team", &identity).await, Found::There(_)));
    stored.store(false, Ordering::Relaxed);
    matches!(kinds.read("team", &identity).await, Found::There(_))
}

/// Otherwise the name of a stranger would stay taken after its deletion, as long as this process lives.
///
/// Spec: appwrapper N-32
#[tokio::test]
async fn only_objects_of_which_the_watch_tells_are_kept() {
    assert!(!is_kept(json!({"app": "web"})).await, "a stranger");
    assert!(is_kept(json!({LABEL: "aw"})).await);
}

#[test]
fn of_a_child_its_owner_is_kept_and_its_status_only_where_it_reports_an_end() {
    let child = json!({
        "metadata": {
            "name": "job", "uid": "1", "labels": {LABEL: "aw", "app": "web"}, "annotations": {"a": "b"}, "finalizers": ["x/y"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "AppWrapper", "name": "aw", "uid": "2"}],
        },
        "spec": {"parallelism": 1}, "status": {"active": 1},
    });
    let slimmed = |reports: bool| {
        let mut object: DynamicObject = serde_json::from_value(child.clone()).unwrap();
        slim(&mut object, reports);
        serde_json::to_value(object).unwrap()
    };
    let mut kept = child.clone();
    kept["metadata"]
        .as_object_mut()
        .unwrap()
        .retain(|field, _| ["name", "uid", "ownerReferences"].contains(&field.as_str()));
    kept.as_object_mut().unwrap().remove("spec");
    assert_eq!(slimmed(true), kept);
    kept.as_object_mut().unwrap().remove("status");
    assert_eq!(slimmed(false), kept);
}
