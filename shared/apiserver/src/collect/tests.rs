//! The three policies of deletion, and what ends with a namespace.

use http::Method;
use serde_json::{Value, json};

use crate::Server;
use crate::server::tests::{send, server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Makes a config map that is owned by others; returns its UID.
async fn make(server: &Server, name: &str, owners: &[(&str, &str)], finalizers: &[&str]) -> String {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, uid)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
        })
        .collect();
    let object = json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}});
    let (code, made) = send(server, Method::POST, MAPS, object).await;
    assert_eq!(code, 201, "{made}");
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn get(server: &Server, name: &str) -> Option<Value> {
    let (code, object) = send(server, Method::GET, &format!("{MAPS}/{name}"), Value::Null).await;
    (code == 200).then_some(object)
}

async fn delete(server: &Server, name: &str, policy: &str) {
    let path = format!("{MAPS}/{name}?propagationPolicy={policy}");
    assert_eq!(send(server, Method::DELETE, &path, Value::Null).await.0, 200);
}

async fn release(server: &Server, name: &str) {
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        send(server, Method::PATCH, &format!("{MAPS}/{name}"), free)
            .await
            .0,
        200
    );
}

/// An owner, what it owns, and what that owns.
async fn family(server: &Server) {
    let parent = make(server, "parent", &[], &[]).await;
    let child = make(server, "child", &[("parent", &parent)], &["example.com/held"]).await;
    make(server, "grandchild", &[("child", &child)], &[]).await;
}

#[tokio::test]
async fn in_the_background_the_owner_goes_first() {
    let server = server();
    family(&server).await;
    delete(&server, "parent", "Background").await;
    assert_eq!(get(&server, "parent").await, None);
    assert!(get(&server, "child").await.unwrap()["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(server.settle().deleted, 1);
    assert!(get(&server, "child").await.unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert!(get(&server, "grandchild").await.is_some());
    release(&server, "child").await;
    server.settle();
    assert_eq!(get(&server, "grandchild").await, None);
    assert!(server.settle().is_idle());
}

#[tokio::test]
async fn in_the_foreground_the_owner_waits_for_what_blocks_it() {
    let server = server();
    family(&server).await;
    delete(&server, "parent", "Foreground").await;
    server.settle();
    let parent = get(&server, "parent").await.unwrap();
    assert_eq!(parent["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let child = get(&server, "child").await.unwrap();
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(get(&server, "grandchild").await, None);
    release(&server, "child").await;
    server.settle();
    assert_eq!(get(&server, "child").await, None);
    assert_eq!(get(&server, "parent").await, None);
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let server = server();
    family(&server).await;
    delete(&server, "parent", "Orphan").await;
    let parent = get(&server, "parent").await.unwrap();
    assert_eq!(parent["metadata"]["finalizers"], json!(["orphan"]));
    server.settle();
    assert_eq!(get(&server, "parent").await, None);
    let child = get(&server, "child").await.unwrap();
    assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
    assert!(child["metadata"]["deletionTimestamp"].is_null());
    assert!(get(&server, "grandchild").await.is_some());
}

#[tokio::test]
async fn with_another_owner_left_only_the_reference_goes() {
    let server = server();
    let one = make(&server, "one", &[], &[]).await;
    let two = make(&server, "two", &[], &[]).await;
    make(&server, "shared", &[("one", &one), ("two", &two)], &[]).await;
    make(&server, "stray", &[("nobody", "no-such-uid")], &[]).await;
    delete(&server, "one", "Background").await;
    server.settle();
    let shared = get(&server, "shared").await.unwrap();
    assert_eq!(shared["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert_eq!(shared["metadata"]["ownerReferences"][0]["uid"], two.as_str());
    assert_eq!(get(&server, "stray").await, None);
}

#[tokio::test]
async fn a_namespace_ends_when_it_is_empty() {
    let server = server();
    let namespaces = "/api/v1/namespaces";
    let space = json!({"metadata": {"name": "team"}});
    assert_eq!(send(&server, Method::POST, namespaces, space).await.0, 201);
    let maps = format!("{namespaces}/team/configmaps");
    let held = json!({"metadata": {"name": "m", "finalizers": ["example.com/held"]}});
    assert_eq!(send(&server, Method::POST, &maps, held).await.0, 201);
    send(&server, Method::DELETE, "/api/v1/namespaces/team", Value::Null).await;
    server.settle();
    let (_, space) = send(&server, Method::GET, "/api/v1/namespaces/team", Value::Null).await;
    assert_eq!(space["status"]["phase"], "Terminating");
    let more = json!({"metadata": {"name": "n"}});
    assert_eq!(send(&server, Method::POST, &maps, more).await.0, 403);
    let free = json!({"metadata": {"finalizers": null}});
    send(&server, Method::PATCH, &format!("{maps}/m"), free).await;
    server.settle();
    assert_eq!(
        send(&server, Method::GET, "/api/v1/namespaces/team", Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn what_has_no_owners_gives_no_reason_to_look_and_who_gets_one_that_is_gone_does() {
    let server = server();
    server.settle();
    let looked = |server: &Server| {
        let state = server.state();
        state.collected == Some(state.store.bonds())
    };
    assert!(looked(&server));
    make(&server, "plain", &[], &[]).await;
    let renewal = json!({"data": {"beat": "1"}});
    send(&server, Method::PATCH, &format!("{MAPS}/plain"), renewal).await;
    assert!(looked(&server));
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "no-such-uid"}]);
    let owned = json!({"metadata": {"ownerReferences": owner}});
    send(&server, Method::PATCH, &format!("{MAPS}/plain"), owned).await;
    assert!(!looked(&server));
    server.settle();
    assert_eq!(get(&server, "plain").await, None);
}
