//! Condition `WorkerFence` of a MultiKueueCluster: whether its worker stops by itself what it runs when it is cut off.
//!
//! *Source*: `spec/safety.md` "how this fits" 2, 3.6.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::Lessor;
use crate::remote::Remote;

/// The condition.
const KIND: &str = "WorkerFence";
/// How often it is looked whether it still holds.
const LOOK: Duration = Duration::from_secs(2);
/// How long a worker may take to be seen looking at its lease before it is said that it does not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Says it as long as the worker is connected; never ends by itself.
pub(crate) async fn tell(
    lessor: &Lessor,
    clusters: &Cache<MultiKueueCluster>,
    client: &Client,
    remote: &Remote,
) {
    let since = lessor.uptime.now();
    loop {
        tokio::time::sleep(LOOK).await;
        let guarded = remote.is_guarded();
        if !guarded && lessor.uptime.now().since(since) < PATIENCE {
            continue;
        }
        let name = remote.name.as_str();
        let Some(cluster) = clusters.named(name) else {
            continue;
        };
        let mut conditions = cluster
            .status
            .as_ref()
            .map(|s| s.conditions.clone())
            .unwrap_or_default();
        let new = condition(lessor, guarded, cluster.metadata.generation);
        let same =
            |old: &Condition| old.type_ == KIND && old.status == new.status && old.message == new.message;
        if conditions.iter().any(same) {
            continue;
        }
        conditions.retain(|old| old.type_ != KIND);
        conditions.push(new);
        let patch = json!({
            "metadata": { "resourceVersion": cluster.metadata.resource_version },
            "status": { "conditions": conditions },
        });
        let api: Api<MultiKueueCluster> = Api::all(client.clone());
        match write::patch_status(&api, name, &patch).await {
            Written::Done(object) => clusters.observe(*object),
            Written::Gone | Written::Conflict | Written::AlreadyExists => {}
            Written::Refused(why) | Written::Unclear(why) => {
                tracing::warn!(cluster = name, "writing condition {KIND} failed: {why}");
            }
        }
    }
}

/// Times of conditions have whole seconds.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn condition(lessor: &Lessor, guarded: bool, generation: Option<i64>) -> Condition {
    let (status, reason, message) = if guarded {
        let message = format!(
            "The worker stops jobs of queues with policy Fence when it has not heard of this manager for {} s; if its API \
             server or its engine is dead while its nodes live, pods go on",
            lessor.terms.length().as_secs()
        );
        ("True", "Fencing", message)
    } else {
        let message = "The worker does not stop jobs by itself: with policy Fence a lost job is dispatched again after \
                       workerLostTimeout, and may run twice until the worker is back";
        ("False", "NoFence", message.to_owned())
    };
    Condition {
        type_: KIND.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Time(whole((lessor.clock)())),
        observed_generation: generation,
    }
}
