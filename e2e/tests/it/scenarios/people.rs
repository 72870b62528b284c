//! A tenant with the cluster's own role `edit` in a namespace, and the roles for users in the plain manifests.

use std::path::Path;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use roadstead_e2e::stage;
use serde_json::{Value, from_value, json};

use super::ground::{FLAVOR, Ground, alone, ask, condition, cpu};
use crate::shared::{client_of, eventually};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The roles that `kubectl apply -f` takes from the manifests.
fn roles() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/manifests/roadstead-worker.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let roles: Vec<Value> = all
        .into_iter()
        .filter(|object| object["kind"] == "ClusterRole")
        .collect();
    assert!(!roles.is_empty());
    roles
}

/// A new account with the cluster's `edit` in its namespace. Returns its token.
async fn tenant(client: &Client, namespace: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let account = from_value(json!({"metadata": {"name": "tenant"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "tenant-edits", "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
    });
    stage::apply(client, binding).await.unwrap();
    let request: TokenRequest =
        from_value(json!({"spec": {"audiences": [], "expirationSeconds": 600}})).unwrap();
    let answer = accounts
        .create_token_request("tenant", &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token.unwrap()
}

/// Spec: experience P4
#[test]
fn a_tenant_with_edit_sees_its_queues_and_workloads_and_is_told_why_a_job_waits() {
    alone("tenants", json!({}), async |solo| {
        let ground = Ground::new(solo.client().unwrap(), "tenant").await;
        ground
            .queue("main", json!({"resourceGroups": cpu(&[(FLAVOR, "2")])}))
            .await;
        ground.submit(ask("wide", "main").cpu("3")).await;
        let waits = |w: &_| condition(w, "QuotaReserved").filter(|(status, ..)| status == "False");
        let waiting = ground.workload_when("wide", |w| waits(w).is_some()).await;
        let (_, _, why) = waits(&waiting).unwrap();
        let token = tenant(&ground.client, ground.name).await;
        let plane = solo.plane();
        let kubeconfig = solo.dir().join("tenant.kubeconfig");
        plane
            .write_kubeconfig_for_token_via(&kubeconfig, &plane.server_url(), &token)
            .unwrap();
        let theirs = client_of(&std::fs::read_to_string(&kubeconfig).unwrap()).await;
        let queues: Api<LocalQueue> = Api::namespaced(theirs.clone(), ground.name);
        let all = ListParams::default();
        assert!(
            queues.list(&all).await.is_err(),
            "without the roles it sees nothing"
        );
        for role in roles() {
            ground.apply(role).await;
        }
        let seen = eventually(|| async { queues.list(&all).await.ok() }).await;
        assert!(
            seen.items
                .iter()
                .any(|queue| queue.metadata.name.as_deref() == Some("main"))
        );
        let workloads: Api<Workload> = Api::namespaced(theirs.clone(), ground.name);
        assert_eq!(workloads.list(&all).await.unwrap().items.len(), 1);
        let kubeconfig = kubeconfig.display().to_string();
        let args = [
            "explain",
            "wide",
            "-n",
            ground.name,
            "--kubeconfig",
            &kubeconfig,
            "-o",
            "json",
        ];
        let said: Value = serde_json::from_str(&solo.command(&args).await.unwrap()).unwrap();
        assert_eq!(said[0]["job"], "Job wide", "{said}");
        assert!(said.to_string().contains(&why), "{why}: {said}");
        // A tenant may neither change its queues nor read the objects of others.
        let mut queue = queues.get("main").await.unwrap();
        queue.metadata.labels = Some([("changed".to_owned(), "yes".to_owned())].into());
        assert!(
            queues
                .replace("main", &PostParams::default(), &queue)
                .await
                .is_err()
        );
        let others: Api<ClusterQueue> = Api::all(theirs.clone());
        assert!(others.list(&all).await.is_err());
        let elsewhere: Api<Workload> = Api::namespaced(theirs, "default");
        assert!(elsewhere.list(&all).await.is_err());
    });
}
