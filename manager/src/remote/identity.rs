//! Which cluster a MultiKueueCluster leads to: read before each connection, and stored on the MultiKueueCluster.
//!
//! Decided in [`roadstead_core::cluster::identity`].
//!
//! Invariant: nothing is sent to a cluster before its identity is stored. If it is another cluster than the stored one, it is
//! accepted only if the stored one is free of our objects.
//!
//! *Source*: `spec/safety.md 3.8`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::annotations::CLUSTER_IDENTITY;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::Reason;
use roadstead_core::cluster::identity::{Identity, Verdict};
use roadstead_kubeconfigs::account::rights::IDENTITY;
use roadstead_kubeio::failure::Failure;
use serde_json::json;

use super::fleet::{Fleet, NOT_ACCEPTED};
use super::leaving::{LOOK, TRIES};
use super::{Place, Remote};

fn remembered(cluster: &MultiKueueCluster) -> Option<Identity> {
    let text = cluster.annotations().get(CLUSTER_IDENTITY)?;
    Identity::read(text)
}

/// What to do with the cluster to which a Secret leads now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recognised {
    Enter,
    /// The caches of this process are of another cluster under this name: its supervisor must start again with empty caches.
    BeginAnew,
    Refused(Reason, String),
    /// Its identity cannot be read, or cannot be stored: the attempt to connect has failed.
    Failed(String),
}

fn changed(name: &str) -> String {
    format!(
        "its Secret leads to another cluster now, and jobs of this manager may be on the one before, which would start twice: point it \
         back until they are gone there; if the cluster before is lost and they do not run any more: roadstead cluster give-up {name}; if \
         the name shall lead elsewhere, or the same cluster has a new address: roadstead cluster move {name} --kubeconfig NEW"
    )
}

fn registered_twice(other: &str) -> String {
    format!(
        "this manager has this cluster already, as MultiKueueCluster \"{other}\"; use that one, or let it leave before this one \
         comes (roadstead cluster leave {other}, or delete it and wait until it is gone)"
    )
}

fn management_cluster(name: &str) -> String {
    format!(
        "its Secret leads to the management cluster, where this manager runs: register a worker under this name (roadstead cluster join \
         {name} --kubeconfig WORKER), or delete this MultiKueueCluster"
    )
}

impl Fleet {
    /// Whether the cluster to which the Secret leads may be connected under this name.
    pub(super) async fn recognise(
        &self,
        remote: &Remote,
        client: &Client,
        place: &Place,
        timeout: Duration,
    ) -> Recognised {
        let uid = match uid_there(client, timeout).await {
            Ok(uid) => uid,
            Err(failure) => return Recognised::Failed(failure.into()),
        };
        if uid.is_some() {
            let own = tokio::time::timeout(timeout, self.lessor.identity()).await;
            let Ok(own) = own else {
                return Recognised::Failed(format!(
                    "the manager cannot check that this is not the management cluster: it has not read its own namespace {IDENTITY} yet; \
                     tried again; if this stays, let the manager list namespaces (deploy/rights)"
                ));
            };
            if uid == Some(own) {
                return Recognised::Refused(
                    Reason::ManagementCluster,
                    management_cluster(remote.name.as_str()),
                );
            }
        }
        let found = Identity {
            uid,
            place: Some(place.print()),
        };
        let mut recognised = self.recognise_as(remote, &found).await;
        for _ in 1..TRIES {
            // Why more tries: the MultiKueueCluster that was read from the cache may be older than the stored one.
            let Recognised::Failed(_) = recognised else { break };
            tokio::time::sleep(LOOK).await;
            recognised = self.recognise_as(remote, &found).await;
        }
        recognised
    }

    async fn recognise_as(&self, remote: &Remote, found: &Identity) -> Recognised {
        let name = remote.name.as_str();
        // Why one name at a time: if two names lead to one cluster, the second must see the identity that was stored for the
        // first.
        let _one_at_a_time = self.naming.lock().await;
        let Some(cluster) = self.clusters.named(name) else {
            return Recognised::Failed("the MultiKueueCluster is gone".to_owned());
        };
        let known = remembered(&cluster);
        let is_same = { known.as_ref() }.is_none_or(|known| known.judge(found) == Verdict::Same);
        if !is_same && !(self.is_free)(&remote.name) {
            return Recognised::Refused(Reason::ClusterChanged, changed(name));
        }
        let other = self.other_name(name, found);
        let next = match (&other, known.as_ref()) {
            // Why the stored identity is removed: its cluster holds nothing of ours, and the two names may have exchanged their
            // clusters.
            (Some(_), _) if !is_same => None,
            (Some(_), _) => known.clone(),
            (None, Some(known)) if is_same => Some(known.updated(found)),
            (None, _) => Some(found.clone()),
        };
        if next != known {
            let text = next.map(|next| next.to_string());
            let metadata = json!({"annotations": {CLUSTER_IDENTITY: text}});
            if !self.write_metadata(&cluster, metadata).await {
                return Recognised::Failed(format!(
                    "annotation {CLUSTER_IDENTITY} of its MultiKueueCluster cannot be written, so nothing is sent to this cluster; tried \
                     again; if it is forbidden, apply deploy/rights on the management cluster"
                ));
            }
        }
        if let Some(other) = other {
            return Recognised::Refused(Reason::RegisteredTwice, registered_twice(&other));
        }
        if !is_same {
            tracing::warn!(
                cluster = name,
                "its Secret leads to another cluster now, which is used from now on because nothing of this manager is known to be on the \
                 one before"
            );
        }
        if remote.is_at(found) {
            Recognised::Enter
        } else {
            Recognised::BeginAnew
        }
    }

    /// The other MultiKueueCluster that leads to this cluster, if there is one.
    fn other_name(&self, name: &str, found: &Identity) -> Option<String> {
        let others = self.clusters.all().into_iter();
        let mut others = others.filter(|cluster| cluster.name_any() != name);
        let leads_there = |known: Identity| known.judge(found) == Verdict::Same;
        let other = others.find(|cluster| remembered(cluster).is_some_and(leads_there))?;
        Some(other.name_any())
    }
}

/// The UID of a cluster; `None` where our account may not read it.
///
/// *Errors*: why it was not answered.
async fn uid_there(client: &Client, timeout: Duration) -> Result<Option<String>, Failure> {
    let api: Api<Namespace> = Api::all(client.clone());
    match tokio::time::timeout(timeout, api.get_opt(IDENTITY)).await {
        Ok(Ok(found)) => Ok(found.and_then(|found| found.metadata.uid)),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Ok(None),
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => Err(Failure::lasting(NOT_ACCEPTED)),
        Ok(Err(error)) => Err(error.into()),
        Err(_elapsed) => Err(Failure::passing(format!(
            "the API server did not answer within {} s when it was asked for namespace {IDENTITY}",
            timeout.as_secs()
        ))),
    }
}

#[cfg(test)]
pub(super) mod tests;
