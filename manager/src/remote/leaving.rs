//! A MultiKueueCluster that is being deleted stays, and its connection with it, until nothing of ours is left on its cluster.
//!
//! Invariant: the manager puts its finalizer on a MultiKueueCluster before it sends anything to the cluster. It takes the
//! finalizer off only if the MultiKueueCluster is being deleted and its cluster counts as free. So a deletion cuts off no running
//! job and leaves nothing behind.
//!
//! *Limits*: if the finalizer cannot be written, the failure is logged and the cluster is used without it. A cluster that is
//! given up, or was lost for the whole timeout, counts as free.
//!
//! *Source*: `spec/safety.md 3.8, F28`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::finalizers::LEAVING;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_kubeio::write::{self, Written};
use serde_json::{Value, json};

use super::fleet::Fleet;
use super::told::REMEDY;

/// How often a cluster that leaves is looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How many times in a row a write is tried that must be stored before a cluster is connected.
pub(super) const TRIES: u32 = 5;
/// How often the manager checks that its finalizer is on.
const HOLD_PAUSE: Duration = Duration::from_secs(10);

/// The condition of a cluster that leaves and does not answer.
const KIND: &str = "Leaving";
/// The name of this write in the memory of reported failures.
const HOLDING: &str = "putting the finalizer on";
const FINALIZERS: &str = "writing finalizers";

/// Whether a MultiKueueCluster is being deleted and waits for our finalizer.
pub(super) fn leaves(cluster: &MultiKueueCluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some() && cluster.finalizers().iter().any(|f| f == LEAVING)
}

impl Fleet {
    /// Puts our finalizer on, before anything of ours is sent to the cluster.
    pub(super) async fn hold(&self, name: &str) {
        for _ in 0..TRIES {
            let Some(cluster) = self.clusters.named(name) else {
                return;
            };
            let held = cluster.finalizers().iter().any(|f| f == LEAVING);
            // Why not where it is being deleted: an API server takes no new finalizer then.
            if held || cluster.metadata.deletion_timestamp.is_some() {
                self.told.succeeded(name, HOLDING);
                return;
            }
            let mut finalizers = cluster.finalizers().to_vec();
            finalizers.push(LEAVING.to_owned());
            if { self.write_metadata(&cluster, json!({"finalizers": finalizers})) }.await {
                self.told.succeeded(name, HOLDING);
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        let why = format!(
            "its MultiKueueCluster cannot be given finalizer {LEAVING}, so its deletion cuts off what runs there; it is tried again as \
             long as the cluster is connected"
        );
        self.told.failed(name, HOLDING, &why);
    }

    /// Puts our finalizer on again if that failed before, or if another client took it off. Never ends by itself.
    pub(super) async fn keep_holding(&self, name: &str) {
        loop {
            tokio::time::sleep(HOLD_PAUSE).await;
            self.hold(name).await;
        }
    }

    /// Takes our finalizer off every MultiKueueCluster that is being deleted and whose cluster is free.
    pub(super) async fn let_go(&self) {
        for cluster in self.clusters.all().into_iter().filter(|cluster| leaves(cluster)) {
            if !(self.is_free)(&cluster.name_any().into()) {
                self.tell_why(&cluster).await;
                continue;
            }
            let finalizers = cluster.finalizers().iter().filter(|f| *f != LEAVING);
            let finalizers: Vec<String> = finalizers.cloned().collect();
            let metadata = json!({"finalizers": finalizers});
            if self.write_metadata(&cluster, metadata).await {
                tracing::info!(
                    cluster = cluster.name_any(),
                    "nothing of ours is left there; it may go"
                );
            }
        }
    }

    /// Writes why a lost cluster is not deleted: nothing else shows it, and the deletion may wait for ever.
    async fn tell_why(&self, cluster: &MultiKueueCluster) {
        let name = cluster.name_any();
        let remote = self.registry.get(&name.as_str().into());
        let is_lost = remote.is_some_and(|remote| remote.lost_since().is_some());
        let old = cluster.status.as_ref().map(|status| status.conditions.as_slice());
        let Some(conditions) = told(&name, (old.unwrap_or_default(), is_lost), (self.clock)()) else {
            return;
        };
        let patch = json!({
            "metadata": {"resourceVersion": cluster.metadata.resource_version},
            "status": {"conditions": conditions},
        });
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        match write::patch_status(&api, &name, &patch).await {
            Written::Done(object) => {
                self.clusters.observe(*object);
                self.told.succeeded(&name, KIND);
            }
            Written::Gone | Written::Conflict | Written::AlreadyExists => {}
            Written::Refused(why) | Written::Unclear(why) => {
                let why = format!(
                    "condition {KIND} of its MultiKueueCluster cannot be written, so it does not show what its deletion waits for: {why}; \
                     {REMEDY}"
                );
                self.told.failed(&name, KIND, &why);
            }
        }
    }

    pub(super) async fn write_metadata(&self, cluster: &MultiKueueCluster, mut metadata: Value) -> bool {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        metadata["resourceVersion"] = json!(cluster.metadata.resource_version);
        match write::patch(&api, &cluster.name_any(), &json!({"metadata": metadata})).await {
            Written::Done(object) => {
                let goes = object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty();
                // Why not if that was the last finalizer: the watch shows the deletion, and after that the old object must not
                // come back into the cache.
                if !goes {
                    self.clusters.observe(*object);
                }
                self.told.succeeded(&cluster.name_any(), FINALIZERS);
                true
            }
            Written::Gone => true,
            Written::Conflict | Written::AlreadyExists => false,
            Written::Refused(why) | Written::Unclear(why) => {
                let leaving = if leaves(cluster) {
                    ", so it stays although nothing of ours is left there"
                } else {
                    ""
                };
                let why = format!(
                    "finalizers and annotations of its MultiKueueCluster cannot be written{leaving}: {why}; if this is a refusal, apply \
                     deploy/rights on the manager"
                );
                self.told.failed(&cluster.name_any(), FINALIZERS, &why);
                false
            }
        }
    }
}

/// The conditions of a cluster that leaves and still holds objects; `None` if they need no change.
fn told(name: &str, (old, is_lost): (&[Condition], bool), now: Timestamp) -> Option<Vec<Condition>> {
    if old.iter().any(|one| one.type_ == KIND) == is_lost {
        return None;
    }
    let mut conditions = old.to_vec();
    conditions.retain(|one| one.type_ != KIND);
    if is_lost {
        conditions.push(Condition {
            type_: KIND.to_owned(),
            status: "True".to_owned(),
            reason: "WorkerLost".to_owned(),
            message: format!(
                "The cluster is being deleted and does not answer, and what was sent there may still run, so it stays: bring it back, or, \
                 if you know that nothing runs there any more: roadstead cluster give-up {name}"
            ),
            // Times of conditions have whole seconds.
            last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
            observed_generation: None,
        });
    }
    Some(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: multikueue 4.5
    #[test]
    fn a_cluster_that_leaves_says_what_it_waits_for_as_long_as_it_is_lost() {
        let now = Timestamp::UNIX_EPOCH;
        let told = |old: &[Condition], is_lost| told("east", (old, is_lost), now);
        assert_eq!(told(&[], false), None);
        let lost = told(&[], true).unwrap();
        assert!(lost[0].message.contains("roadstead cluster give-up east"));
        assert_eq!(told(&lost, true), None, "it stands there");
        assert_eq!(told(&lost, false), Some(Vec::new()), "it is back");
    }
}
