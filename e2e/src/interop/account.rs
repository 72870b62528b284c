//! Registration as in Kueue's documentation: an account on the worker, its kubeconfig in a Secret, three objects on the manager.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, from_value, json};

use super::kind::Kind;
use super::scene::{MANAGER, Scene};
use crate::stage::{FEDERATION, SYSTEM_NAMESPACE, apply};

/// Name of the account, and prefix of the names of its role and binding.
const NAME: &str = "multikueue-sa";
/// Lifetime of its token in seconds: longer than any scene.
const TOKEN_SECS: u32 = 24 * 60 * 60;
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Registers the workers with the manager.
///
/// Spec: multikueue 9.
pub(super) async fn register(scene: &Scene, kind: Kind) -> anyhow::Result<()> {
    let workers = [scene.target, scene.other];
    let manager = scene.client(MANAGER)?;
    for worker in workers {
        let kubeconfig = kubeconfig(scene, worker, kind).await?;
        let source = json!({"kubeConfig": {"location": worker, "locationType": "Secret"}});
        for object in [
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": worker, "namespace": SYSTEM_NAMESPACE},
                "data": {"kubeconfig": STANDARD.encode(kubeconfig)},
            }),
            json!({
                "apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": {"name": worker},
                "spec": {"clusterSource": source},
            }),
        ] {
            apply(&manager, object).await.context("registering a worker")?;
        }
    }
    let config = json!({
        "apiVersion": KUEUE, "kind": "MultiKueueConfig", "metadata": {"name": FEDERATION},
        "spec": {"clusters": workers},
    });
    apply(&manager, config).await.context("naming the workers")?;
    Ok(())
}

/// Creates the account with the rights of the reference's sample. Returns its kubeconfig through the link.
async fn kubeconfig(scene: &Scene, worker: &str, kind: Kind) -> anyhow::Result<String> {
    let client = scene.client(worker)?;
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE}}),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": format!("{NAME}-role")},
            "rules": rules(kind),
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": format!("{NAME}-crb")},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": format!("{NAME}-role")},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM_NAMESPACE}],
        }),
    ] {
        apply(&client, object)
            .await
            .with_context(|| format!("making the account in {worker}"))?;
    }
    let request: TokenRequest =
        from_value(json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_SECS}}))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, SYSTEM_NAMESPACE);
    let made = accounts
        .create_token_request(NAME, &PostParams::default(), &request)
        .await?;
    let token = made
        .status
        .and_then(|status| status.token)
        .context("no token was given")?;
    let plane = scene.stage.planes().worker(worker).context("no such worker")?;
    let url = scene.stage.link(worker)?.server_url();
    Ok(plane.kubeconfig_for_token_via(&url, &token))
}

/// The rules of the sample that are needed here: no right to Leases, none to change jobs.
fn rules(kind: Kind) -> Vec<Value> {
    let on_jobs = ["create", "delete", "get", "list", "watch"];
    let of_kind = kind.facts().into_iter().flat_map(|facts| {
        let status = format!("{}/status", facts.plural);
        [
            json!({"apiGroups": [facts.group], "resources": [facts.plural], "verbs": on_jobs}),
            json!({"apiGroups": [facts.group], "resources": [status], "verbs": ["get"]}),
        ]
    });
    let always = [
        json!({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": on_jobs}),
        json!({"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["get"]}),
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": on_jobs}),
        json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get"]}),
        json!({
            "apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"],
            "verbs": ["create", "delete", "get", "list", "watch", "update", "patch"],
        }),
        json!({"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["get", "patch", "update"]}),
    ];
    always.into_iter().chain(of_kind).collect()
}
