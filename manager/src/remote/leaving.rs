//! A cluster that leaves: it keeps its MultiKueueCluster, and so its connection, until nothing of ours is there any more.
//!
//! Invariant: a cluster has our finalizer from its first connection on, and loses it only when it is deleted and nothing is
//! held there. So a deletion never cuts off a job that runs, and nothing is left behind.
//!
//! *Source*: `spec/safety.md 3.8, F28`.

use std::time::Duration;

use kube::{Api, ResourceExt as _};
use roadstead_api::constants::finalizers::LEAVING;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::supervisor::Fleet;

/// How often a cluster that leaves is looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How often putting the finalizer on is tried when somebody else writes the object at the same time.
const TRIES: u32 = 5;

/// Whether it is being deleted and waits for us.
pub(super) fn leaves(cluster: &MultiKueueCluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some() && cluster.finalizers().iter().any(|f| f == LEAVING)
}

impl Fleet {
    /// Puts our finalizer on, before anything of ours is sent there.
    pub(super) async fn hold(&self, name: &str) {
        for _ in 0..TRIES {
            let Some(cluster) = self.clusters.named(name) else {
                return;
            };
            let held = cluster.finalizers().iter().any(|f| f == LEAVING);
            if held || cluster.metadata.deletion_timestamp.is_some() {
                return;
            }
            let mut finalizers = cluster.finalizers().to_vec();
            finalizers.push(LEAVING.to_owned());
            if self.write_finalizers(&cluster, &finalizers).await {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        tracing::warn!(
            cluster = name,
            "it could not be given finalizer {LEAVING}: who deletes it cuts off what runs there"
        );
    }

    /// Lets every cluster go that leaves and holds nothing any more.
    pub(super) async fn let_go(&self) {
        for cluster in self.clusters.all().into_iter().filter(|cluster| leaves(cluster)) {
            if !(self.is_free)(&cluster.name_any().into()) {
                continue;
            }
            tracing::info!(
                cluster = cluster.name_any(),
                "nothing of ours is left there; it may go"
            );
            let finalizers = cluster.finalizers().iter().filter(|f| *f != LEAVING);
            let finalizers: Vec<String> = finalizers.cloned().collect();
            self.write_finalizers(&cluster, &finalizers).await;
        }
    }

    async fn write_finalizers(&self, cluster: &MultiKueueCluster, finalizers: &[String]) -> bool {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        let meta = &cluster.metadata;
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}});
        match write::patch(&api, &cluster.name_any(), &patch).await {
            Written::Done(object) => {
                let goes = object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty();
                // Why not when it goes: the watch says so, and an old object must not come back after that.
                if !goes {
                    self.clusters.observe(*object);
                }
                true
            }
            Written::Gone => true,
            Written::Conflict | Written::AlreadyExists => false,
            Written::Refused(why) | Written::Unclear(why) => {
                tracing::warn!(
                    cluster = cluster.name_any(),
                    "writing its finalizers failed: {why}"
                );
                false
            }
        }
    }
}
