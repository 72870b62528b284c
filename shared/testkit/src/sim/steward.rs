//! What is done to workers by those who run them.

use http::Method;
use jiff::Timestamp;
use roadstead_apiserver::Server;
use serde_json::{Value, json};

use super::objects::{self, cluster_name};
use super::script::Act;

/// What it means for a worker: while it is closed nobody waits for it.
pub(super) enum Hand {
    /// It may take nothing new.
    Closes(usize),
    /// It may again.
    Opens(usize),
}

/// Does it, if it can be done; `None` when nothing was changed.
///
/// Spec: safety F28
pub(super) async fn perform(manager: &Server, act: &Act) -> Option<Hand> {
    match act {
        Act::Cordon(worker, wish) => {
            let patch = json!({"metadata": {"annotations": {"roadstead.dev/cordon": wish}}});
            objects::ask(manager, Method::PATCH, &path(*worker), Some(&patch)).await;
            Some(match wish {
                Some(_) => Hand::Closes(*worker),
                None => Hand::Opens(*worker),
            })
        }
        Act::TakeOut(worker) if !is_lost(manager, *worker).await => {
            let is_listed = relist(manager, |listed| {
                listed.retain(|name| *name != cluster_name(*worker));
            })
            .await;
            is_listed.then_some(Hand::Closes(*worker))
        }
        Act::PutBack(worker) => {
            let comes = relist(manager, |listed| {
                if !listed.iter().any(|name| *name == cluster_name(*worker)) {
                    listed.push(cluster_name(*worker).into());
                }
            });
            comes.await.then_some(Hand::Opens(*worker))
        }
        Act::Unregister(worker) if !is_lost(manager, *worker).await => {
            let (status, _) = objects::ask(manager, Method::DELETE, &path(*worker), None).await;
            status.is_success().then_some(Hand::Closes(*worker))
        }
        Act::Register(worker) => {
            let (path, object) = objects::cluster(&cluster_name(*worker));
            let (status, _) = objects::ask(manager, Method::POST, &path, Some(&object)).await;
            status.is_success().then_some(Hand::Opens(*worker))
        }
        Act::TakeOut(_)
        | Act::Unregister(_)
        | Act::Submit(_)
        | Act::Delete(_)
        | Act::DeleteWorkload(_)
        | Act::Deactivate(_)
        | Act::Activate(_)
        | Act::Squat(..)
        | Act::Vacate(..)
        | Act::Lie(..)
        | Act::Spoil(_)
        | Act::Mend(_)
        | Act::Revoke(_) => None,
    }
}

fn path(worker: usize) -> String {
    let name = cluster_name(worker);
    format!("{}/{name}", objects::cluster(&name).0)
}

/// Whether nobody says that the manager is connected to it.
async fn is_lost(manager: &Server, worker: usize) -> bool {
    let (_, cluster) = objects::ask(manager, Method::GET, &path(worker), None).await;
    let mut conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    !conditions.any(|said| said["type"] == "Active" && said["status"] == "True")
}

/// Changes the list of the config; tells whether it did.
async fn relist(manager: &Server, change: impl FnOnce(&mut Vec<Value>)) -> bool {
    let path = objects::config_path();
    let (_, config) = objects::ask(manager, Method::GET, &path, None).await;
    let before = config["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let mut listed = before.clone();
    change(&mut listed);
    if listed == before {
        return false;
    }
    let patch = json!({"spec": {"clusters": listed}});
    let (status, _) = objects::ask(manager, Method::PATCH, &path, Some(&patch)).await;
    status.is_success()
}

/// Says of all requests that were given capacity that it is taken back at `now`.
///
/// Spec: safety F29
pub(super) async fn revoke(worker: &Server, now: Timestamp) {
    let path = objects::requests_path();
    let (_, list) = objects::ask(worker, Method::GET, &path, None).await;
    for request in list["items"].as_array().into_iter().flatten() {
        let mut conditions = request["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_given = |said: &Value| said["type"] == "Provisioned" && said["status"] == "True";
        if !conditions.iter().any(is_given) {
            continue;
        }
        conditions.retain(|said| said["type"] != "CapacityRevoked");
        conditions.push(json!({
            "type": "CapacityRevoked", "status": "True", "reason": "Revoked", "message": "the provider wants it back",
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }));
        let patch = json!({"status": {"conditions": conditions}});
        let name = request["metadata"]["name"].as_str().unwrap_or_default();
        objects::ask(
            worker,
            Method::PATCH,
            &format!("{path}/{name}/status"),
            Some(&patch),
        )
        .await;
    }
}
