//! The accounts under which our processes run: one in each cluster, as in a pod.
//!
//! Invariant: no person writes as these, so that what our processes write can be told from what users write.

use std::time::Instant;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{from_value, json};
use tokio::time::sleep;

use super::objects::{apply_error, apply_named};
use super::{Error, PATIENCE, POLL, SYSTEM_NAMESPACE};

/// Name of the account, of its role and of the binding. Not one that `roadstead cluster join` might give.
const NAME: &str = "engine";
/// How long its token lasts: longer than any stage.
const TOKEN_SECS: u32 = 24 * 60 * 60;

/// Makes the account in a cluster, with all rights, and gives a token of it that works.
pub(super) async fn token(cluster: &str, client: &Client) -> Result<String, Error> {
    let role = "rbac.authorization.k8s.io";
    let every = json!(["*"]);
    for object in [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE},
        }),
        json!({
            "apiVersion": format!("{role}/v1"), "kind": "ClusterRole", "metadata": {"name": NAME},
            "rules": [
                {"apiGroups": every, "resources": every, "verbs": every},
                {"nonResourceURLs": every, "verbs": every},
            ],
        }),
        json!({
            "apiVersion": format!("{role}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
            "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM_NAMESPACE}],
        }),
    ] {
        apply_named(cluster, client, object).await?;
    }
    let failed = |source| apply_error(cluster, format!("a token of ServiceAccount {NAME}"), source);
    let unread = |source| failed(kube::Error::SerdeError(source));
    let request: TokenRequest =
        from_value(json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_SECS}})).map_err(unread)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let made = accounts
        .create_token_request(NAME, &PostParams::default(), &request)
        .await
        .map_err(failed)?;
    wait_allowed(cluster, client).await?;
    Ok(made.status.and_then(|status| status.token).unwrap_or_default())
}

/// Waits until the API server knows of the binding.
async fn wait_allowed(cluster: &str, client: &Client) -> Result<(), Error> {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let question = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{NAME}")),
            resource_attributes: Some(ResourceAttributes {
                verb: Some("*".to_owned()),
                group: Some("*".to_owned()),
                resource: Some("*".to_owned()),
                ..ResourceAttributes::default()
            }),
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
                what: format!("{cluster} gives ServiceAccount {NAME} no rights"),
                waited: PATIENCE,
                detail: String::new(),
            });
        }
        sleep(POLL).await;
    }
}
