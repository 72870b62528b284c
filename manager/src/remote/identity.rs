//! Which cluster a MultiKueueCluster leads to: looked at before a connection, and remembered on the MultiKueueCluster.
//!
//! Decided in [`roadstead_core::cluster::identity`]. Where this account may keep no lease nothing is known, and nothing is refused.
//!
//! *Source*: `spec/safety.md 3.8`.

use kube::{Client, ResourceExt as _};
use roadstead_api::constants::annotations::CLUSTER_IDENTITY;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::Reason;
use roadstead_core::cluster::identity::Identity;
use serde_json::{Map, Value, json};

use super::supervisor::Fleet;
use super::{Place, Remote};
use crate::lease::Renewed;

/// What is remembered of a cluster.
pub(crate) fn remembered(cluster: &MultiKueueCluster) -> Option<Identity> {
    cluster
        .annotations()
        .get(CLUSTER_IDENTITY)
        .and_then(|text| Identity::read(text))
}

fn sentence(name: &str) -> String {
    format!(
        "its Secret leads to another cluster now, while jobs of this manager may run on the one before, and they would run twice: point \
         it back until they have ended; until then they are treated as those of a lost worker, by the policy of their queue, and taking \
         \"{name}\" out of the MultiKueueConfig says that they are lost; if it is the same cluster after all, remove annotation \
         {CLUSTER_IDENTITY} of MultiKueueCluster \"{name}\""
    )
}

impl Fleet {
    /// Why a cluster is not to be used where its Secret leads now.
    pub(super) async fn is_another(
        &self,
        remote: &Remote,
        client: &Client,
        place: &Place,
    ) -> Option<(Reason, String)> {
        let name = remote.name.as_str();
        let known = remembered(&*self.clusters.named(name)?)?;
        // Why first without asking: nearly always it is the same place.
        if !known.is_another(None, &place.print()) || !(self.may_run)(&remote.name) {
            return None;
        }
        let lease = match self.lessor.stored(client).await {
            Ok(lease) => lease.and_then(|lease| lease.metadata.uid),
            Err(Renewed::Unclear(why)) => {
                let sentence = format!("it is not known yet whether it is the same cluster as before: {why}");
                return Some((Reason::ClientConnectionFailed, sentence));
            }
            // Why then not: who may keep no lease there has none to know it by.
            Err(Renewed::Forbidden(_) | Renewed::Kept | Renewed::Taken(..)) => return None,
        };
        let is_another = known.is_another(lease.as_deref(), &place.print());
        is_another.then(|| (Reason::ClusterChanged, sentence(name)))
    }

    /// What is to be changed in the annotations of a cluster so that it is remembered; empty when it is.
    pub(super) fn to_remember(&self, cluster: &MultiKueueCluster) -> Map<String, Value> {
        let remote = self.registry.get(&cluster.name_any().as_str().into());
        let place = remote
            .as_ref()
            .map(|remote| remote.with(|link| link.place.clone()));
        let lease = remote.and_then(|remote| remote.lease.get());
        let (Some(lease), Some(place)) = (lease, place) else {
            return Map::new();
        };
        let identity = Identity {
            lease: lease.to_string(),
            place: place.print(),
        };
        if remembered(cluster).as_ref() == Some(&identity) {
            return Map::new();
        }
        Map::from_iter([(CLUSTER_IDENTITY.to_owned(), json!(identity.to_string()))])
    }

    /// Remembers a lease that was made anew. Never ends by itself.
    pub(super) async fn follow_lease(&self, remote: &Remote) {
        let mut lease = remote.lease.follow();
        loop {
            lease.changed().await;
            self.hold(remote.name.as_str()).await;
        }
    }
}
