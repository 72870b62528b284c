//! What administrators do with workers.

use http::Method;
use jiff::Timestamp;
use roadstead_apiserver::Server;
use serde_json::{Value, json};

use super::objects::{self, cluster_name};
use super::script::Duty;

/// The effect of a duty on a worker. While a worker is closed, decisions for it may wait without limit (I12).
pub(super) enum Hand {
    /// The worker may take nothing new.
    Closes(usize),
    /// The worker may take new work again.
    Opens(usize),
}

/// Carries out a duty, if possible. `None` if it opens or closes no worker.
///
/// Spec: safety F28
pub(super) async fn perform(manager: &Server, duty: Duty) -> Option<Hand> {
    match duty {
        Duty::Cordon(worker, wish) => {
            let patch = json!({"metadata": {"annotations": {"roadstead.dev/cordon": wish}}});
            objects::ask(manager, Method::PATCH, &path(worker), Some(&patch)).await;
            Some(match wish {
                Some(_) => Hand::Closes(worker),
                None => Hand::Opens(worker),
            })
        }
        Duty::TakeOut(worker) => {
            let is_listed = relist(manager, |listed| {
                listed.retain(|name| *name != cluster_name(worker));
            })
            .await;
            is_listed.then_some(Hand::Closes(worker))
        }
        Duty::PutBack(worker) => {
            let comes = relist(manager, |listed| {
                if !listed.iter().any(|name| *name == cluster_name(worker)) {
                    listed.push(cluster_name(worker).into());
                }
            });
            comes.await.then_some(Hand::Opens(worker))
        }
        Duty::Unregister(worker) => {
            let (_, cluster) = objects::ask(manager, Method::GET, &path(worker), None).await;
            // Why: a cluster that is already being deleted was closed before, and closing is counted.
            if !cluster["metadata"]["deletionTimestamp"].is_null() {
                return None;
            }
            let (status, _) = objects::ask(manager, Method::DELETE, &path(worker), None).await;
            status.is_success().then_some(Hand::Closes(worker))
        }
        Duty::Register(worker) => {
            let (path, object) = objects::cluster(&cluster_name(worker));
            let (status, _) = objects::ask(manager, Method::POST, &path, Some(&object)).await;
            status.is_success().then_some(Hand::Opens(worker))
        }
        Duty::GiveUp(worker) => {
            give_up(manager, worker).await;
            None
        }
        Duty::Mislead(worker, other) => {
            write_secret(manager, worker, other, objects::Trust::Worker).await;
            Some(Hand::Closes(worker))
        }
        Duty::LeadBack(worker) => {
            write_secret(manager, worker, worker, objects::Trust::Worker).await;
            Some(Hand::Opens(worker))
        }
    }
}

/// Writes a kubeconfig that leads to worker `to` into the Secret of `worker`.
pub(super) async fn write_secret(manager: &Server, worker: usize, to: usize, trust: objects::Trust) {
    let (path, secret) = objects::secret(&cluster_name(worker), &cluster_name(to), trust);
    let path = format!("{path}/{}", cluster_name(worker));
    objects::ask(manager, Method::PATCH, &path, Some(&secret)).await;
}

fn path(worker: usize) -> String {
    let name = cluster_name(worker);
    format!("{}/{name}", objects::cluster(&name).0)
}

/// Gives up the runs on a worker if its condition `Active` is False. The patch fails if the object has changed since it was read.
///
/// Spec: safety 3.5
async fn give_up(manager: &Server, worker: usize) {
    let (_, cluster) = objects::ask(manager, Method::GET, &path(worker), None).await;
    let mut conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    let Some(lost) = conditions.find(|said| said["type"] == "Active" && said["status"] == "False") else {
        return;
    };
    let patch = json!({"metadata": {
        "resourceVersion": cluster["metadata"]["resourceVersion"],
        "annotations": {"roadstead.dev/given-up": lost["lastTransitionTime"]},
    }});
    objects::ask(manager, Method::PATCH, &path(worker), Some(&patch)).await;
}

/// Changes the list of clusters in the MultiKueueConfig; returns whether the list is another one now.
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

/// Marks all requests that were given capacity as revoked at `now`.
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
