//! The accounts of Roadstead's processes: one in each cluster, as in a pod, with the rights of an installation
//! (`deploy/rights`), so every test shows that these rights are enough.
//!
//! Invariant: tests never write as these accounts, so writes of Roadstead's processes can be told from those of users.

use std::time::Instant;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use roadstead_api::rights::{ACCOUNT, Process, manifests};
use roadstead_kinds::{Kind, TABLE};
use serde_json::{Value, from_value, json};
use tokio::time::sleep;

use super::objects::{apply_error, apply_named};
use super::{Error, PATIENCE, POLL, Part, SYSTEM_NAMESPACE};

/// Lifetime of its token in seconds: longer than any stage.
const TOKEN_SECS: u32 = 24 * 60 * 60;

/// The owner of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The process of Roadstead in this role.
    Ours(Part),
    /// The reference, which gets all rights.
    Kueue,
}

impl Who {
    fn manifests(self) -> Vec<Value> {
        match self {
            Self::Ours(Part::Manager) => ours(Process::Manager),
            Self::Ours(Part::Worker) => ours(Process::Worker),
            Self::Kueue => {
                let (every, role) = (json!(["*"]), "rbac.authorization.k8s.io");
                vec![
                    json!({
                        "apiVersion": "v1", "kind": "ServiceAccount",
                        "metadata": {"name": ACCOUNT, "namespace": SYSTEM_NAMESPACE},
                    }),
                    json!({
                        "apiVersion": format!("{role}/v1"), "kind": "ClusterRole", "metadata": {"name": "kueue"},
                        "rules": [
                            {"apiGroups": every, "resources": every, "verbs": every},
                            {"nonResourceURLs": every, "verbs": every},
                        ],
                    }),
                    json!({
                        "apiVersion": format!("{role}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "kueue"},
                        "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": "kueue"},
                        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE}],
                    }),
                ]
            }
        }
    }
}

/// The rights of a process, with the integrations that a test may switch on.
fn ours(process: Process) -> Vec<Value> {
    let kinds: Vec<&Kind> = TABLE.iter().collect();
    manifests(process, SYSTEM_NAMESPACE, &kinds)
}

/// Creates the account in a cluster with its rights, and waits until they are effective. Rights of another role stay.
pub(super) async fn grant(cluster: &str, client: &Client, who: Who) -> Result<(), Error> {
    let objects = who.manifests();
    for object in &objects {
        apply_named(cluster, client, object.clone()).await?;
    }
    for role in objects.iter().filter(|object| object["rules"].is_array()) {
        wait_allowed(cluster, client, one_right(role)).await?;
    }
    Ok(())
}

/// A token of the account, which must exist.
pub(super) async fn token(cluster: &str, client: &Client) -> Result<String, Error> {
    let failed = |source| apply_error(cluster, format!("a token of ServiceAccount {ACCOUNT}"), source);
    let unread = |source| failed(kube::Error::SerdeError(source));
    let request: TokenRequest =
        from_value(json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_SECS}})).map_err(unread)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let made = accounts
        .create_token_request(ACCOUNT, &PostParams::default(), &request)
        .await
        .map_err(failed)?;
    Ok(made.status.and_then(|status| status.token).unwrap_or_default())
}

/// One of the rights that a role gives.
fn one_right(role: &Value) -> ResourceAttributes {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let first = |field: &str| text(&role["rules"][0][field][0]);
    ResourceAttributes {
        verb: first("verbs"),
        group: first("apiGroups"),
        resource: first("resources"),
        namespace: text(&role["metadata"]["namespace"]),
        ..ResourceAttributes::default()
    }
}

/// Waits until the API server applies the binding.
async fn wait_allowed(cluster: &str, client: &Client, right: ResourceAttributes) -> Result<(), Error> {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let question = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{ACCOUNT}")),
            resource_attributes: Some(right),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let started = Instant::now();
    loop {
        let answer = api.create(&PostParams::default(), &question).await;
        let answer =
            answer.map_err(|source| apply_error(cluster, "SubjectAccessReview".to_owned(), source))?;
        if answer.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::NotReady {
                what: format!("{cluster} gives ServiceAccount {ACCOUNT} no rights"),
                waited: PATIENCE,
                detail: String::new(),
            });
        }
        sleep(POLL).await;
    }
}
