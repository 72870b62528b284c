//! What stands in the Secret of a worker, good and bad.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_e2e::stage::{SYSTEM_NAMESPACE, apply};
use serde_json::{Value, json};

use super::fixture::{EAST, EVEN, MANAGER, Room, SPARE, WEST, alone};
use crate::shared::eventually;

/// A kubeconfig, and what is said about it.
struct Case {
    name: &'static str,
    /// `None`: there is no Secret.
    kubeconfig: Option<String>,
    reason: &'static str,
    message: &'static str,
}

/// A kubeconfig with these lines in its cluster and its user.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: w
clusters: [{{name: w, cluster: {{{cluster}}}}}]
contexts: [{{name: w, context: {{cluster: w, user: w}}}}]
users: [{{name: w, user: {{{user}}}}}]
"
    )
}

fn cases(authority: &str) -> Vec<Case> {
    let good = format!("server: 'https://127.0.0.1:1', certificate-authority-data: {authority}");
    let insecure = "InsecureKubeConfig";
    let bad = |name, text: String, message| Case {
        name,
        kubeconfig: Some(text),
        reason: insecure,
        message,
    };
    vec![
        Case {
            name: "bad-missing",
            kubeconfig: None,
            reason: "BadKubeConfig",
            message: "load client config failed: Secret \"bad-missing\" not found",
        },
        bad(
            "bad-text",
            "no: [yaml".to_owned(),
            "load client config failed: failed to parse kubeconfig(apiconfig): ",
        ),
        bad(
            "bad-exec",
            kubeconfig(
                &good,
                "exec: {apiVersion: client.authentication.k8s.io/v1, command: id}",
            ),
            "load client config failed: exec plugins are not allowed",
        ),
        bad(
            "bad-token-file",
            kubeconfig(&good, "tokenFile: /var/run/token"),
            "load client config failed: tokenFile is not allowed",
        ),
        bad(
            "bad-ca-file",
            kubeconfig(
                "server: 'https://127.0.0.1:1', certificate-authority: /ca.pem",
                "token: t",
            ),
            "load client config failed: certificate-authority file paths are not allowed, use \
             certificate-authority-data for cluster w",
        ),
        bad(
            "bad-tls",
            kubeconfig(
                "server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true",
                "token: t",
            ),
            "load client config failed: insecure TLS verification is not allowed for cluster w",
        ),
        bad(
            "bad-scheme",
            kubeconfig(&good.replace("https:", "http:"), "token: t"),
            "load client config failed: ",
        ),
        Case {
            name: "bad-address",
            kubeconfig: Some(kubeconfig(&good, "token: t")),
            reason: "ClientConnectionFailed",
            message: "; connection attempts: ",
        },
    ]
}

pub(super) async fn put(client: &Client, name: &str, kubeconfig: &str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        "stringData": {"kubeconfig": kubeconfig},
    });
    apply(client, secret).await.unwrap();
}

pub(super) async fn register(client: &Client, name: &str) {
    let cluster = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": {"name": name},
        "spec": {"clusterSource": {"kubeConfig": {"location": name, "locationType": "Secret"}}},
    });
    apply(client, cluster).await.unwrap();
}

/// Deletes a cluster and waits until it has left.
pub(super) async fn forget(client: &Client, name: &str) {
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    clusters.delete(name, &DeleteParams::default()).await.unwrap();
    eventually(|| async { clusters.get_opt(name).await.ok()?.is_none().then_some(()) }).await;
}

/// Condition `Active` as JSON, once it is as wanted.
pub(super) async fn active(client: &Client, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    eventually(|| async {
        let status = clusters.get(name).await.ok()?.status?;
        let conditions = status.conditions.iter();
        let found = { conditions }.find(|condition| condition.type_ == "Active")?;
        serde_json::to_value(found).ok().filter(&wanted)
    })
    .await
}

pub(super) fn says(condition: &Value, status: &str, reason: &str, words: &str) -> bool {
    let message = condition["message"].as_str().unwrap_or_default();
    condition["status"] == status && condition["reason"] == reason && message.contains(words)
}

async fn standing_of_others(room: Room) -> Vec<Value> {
    let client = room.shared.client(MANAGER);
    let mut conditions = Vec::new();
    for name in [EAST, WEST] {
        conditions.push(active(&client, name, |condition| condition["status"] == "True").await);
    }
    conditions
}

/// Each case is bad in its own way, then mended; all of them leave the good workers alone.
///
/// Spec: multikueue 2.2, 2.3, 10.F1, 10.F4, 11.6, 11.10; safety 6
#[test]
fn a_bad_kubeconfig_is_named_and_forgotten_once_it_is_mended() {
    alone("bad-kubeconfigs", EVEN, |room| async move {
        let client = room.shared.client(MANAGER);
        let spare = room.shared.stage.planes().worker(SPARE).unwrap();
        let before = standing_of_others(room).await;
        let good = spare.kubeconfig();
        let authority = good
            .lines()
            .find_map(|line| line.trim().strip_prefix("certificate-authority-data: "))
            .unwrap();
        let cases = cases(authority);
        for case in &cases {
            if let Some(text) = &case.kubeconfig {
                put(&client, case.name, text).await;
            }
            register(&client, case.name).await;
        }
        for case in &cases {
            // Why not the first that is said: the cluster may be seen before its Secret.
            let said = active(&client, case.name, |said| {
                says(said, "False", case.reason, case.message)
            })
            .await;
            if case.name == "bad-scheme" {
                assert!(said["message"].to_string().contains("https"), "{said}");
            }
        }
        room.submit(room.job("unaffected", "1", 1)).await;
        room.job_is(MANAGER, "unaffected", "Complete").await;

        // Why one by one: they are one cluster, which has one name at a time.
        for case in &cases {
            put(&client, case.name, &good).await;
            active(&client, case.name, |said| {
                says(said, "True", "Active", "Connected")
            })
            .await;
            forget(&client, case.name).await;
        }
        assert_eq!(standing_of_others(room).await, before);
    });
}

/// Spec: multikueue 10.F2, 10.F3, 11.8, 11.11
#[test]
fn a_kubeconfig_that_turns_bad_while_connected_ends_the_connection() {
    alone("turning-bad", EVEN, |room| async move {
        let client = room.shared.client(MANAGER);
        let good = room.shared.stage.planes().worker(SPARE).unwrap().kubeconfig();
        let name = "turning-bad";
        put(&client, name, &good).await;
        register(&client, name).await;
        active(&client, name, |said| says(said, "True", "Active", "Connected")).await;
        put(
            &client,
            name,
            &kubeconfig(
                "server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true",
                "token: t",
            ),
        )
        .await;
        let words = "insecure TLS verification is not allowed for cluster w";
        active(&client, name, |said| {
            says(said, "False", "InsecureKubeConfig", words)
        })
        .await;
        put(&client, name, &good).await;
        active(&client, name, |said| says(said, "True", "Active", "Connected")).await;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
        let no_key = json!({"data": {"kubeconfig": null}});
        let params = PatchParams::default();
        secrets
            .patch(name, &params, &Patch::Merge(&no_key))
            .await
            .unwrap();
        let words = format!("key \"kubeconfig\" not found in secret \"{name}\"");
        active(&client, name, |said| says(said, "False", "BadKubeConfig", &words)).await;
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
        let words = format!("Secret \"{name}\" not found");
        active(&client, name, |said| says(said, "False", "BadKubeConfig", &words)).await;
        put(&client, name, &good).await;
        active(&client, name, |said| says(said, "True", "Active", "Connected")).await;
        forget(&client, name).await;
    });
}
