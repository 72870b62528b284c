//! Findings about a worker whose Secret leads to another worker.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::scene::{CLUSTERS, PERSON, Scene};

const SECRETS: &str = "secrets";

fn secret(leads_to: &str) -> serde_json::Value {
    let server = format!("https://{leads_to}.example.com:6443");
    let config = json!({"clusters": [{"cluster": {"server": server}}]});
    json!({"metadata": {"name": "east-secret"}, "data": {"kubeconfig": STANDARD.encode(config.to_string())}})
}

/// The Secret of east leads to west. `said` is what condition `Active` of east shows: after how many seconds, status, reason.
fn astray(troubled: &str, said: &[(i64, &str, &str)]) -> Scene {
    let mut scene = Scene::new();
    let source = json!({"kubeConfig": {"location": "east-secret"}});
    let spec = json!({"spec": {"clusterSource": source}});
    scene.edit("manager", PERSON, CLUSTERS, "east", spec);
    scene.put("manager", PERSON, SECRETS, secret("east"));
    if !troubled.is_empty() {
        scene.auditor.troubled(troubled);
    }
    scene.edit("manager", PERSON, SECRETS, "east-secret", secret("west"));
    for (after, status, reason) in said {
        scene.pass(*after);
        scene.active("east", status, reason);
    }
    scene
}

fn and_back(mut scene: Scene) -> Vec<&'static str> {
    scene.edit("manager", PERSON, SECRETS, "east-secret", secret("east"));
    scene.pass(5);
    scene.active("east", "True", "Active");
    scene.broken()
}

/// Spec: safety 3.8.
#[test]
fn whose_secret_leads_to_another_worker_is_not_used_and_it_is_said_why() {
    for reason in ["ClusterChanged", "RegisteredTwice"] {
        let said = [(1, "False", reason), (100, "False", reason)];
        assert!(and_back(astray("", &said)).is_empty(), "{reason}");
    }
    let other = [
        (1, "False", "ClientConnectionFailed"),
        (100, "False", "ClientConnectionFailed"),
    ];
    assert_eq!(and_back(astray("", &other)), ["safety 3.8"]);
    assert!(and_back(astray("west", &other)).is_empty(), "nobody could tell");
    assert_eq!(
        and_back(astray("east", &other)),
        ["safety 3.8"],
        "it is not asked"
    );
    assert!(and_back(astray("", &other[..1])).is_empty(), "it takes a while");
    let used = [(1, "False", "ClientConnectionFailed"), (100, "True", "Active")];
    assert_eq!(astray("west", &used).broken(), ["safety 3.8"]);
}
