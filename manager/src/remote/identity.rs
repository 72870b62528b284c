//! Which cluster a MultiKueueCluster leads to: looked at before a connection, and remembered on the MultiKueueCluster.
//!
//! Decided in [`roadstead_core::cluster::identity`].
//!
//! Invariant: nothing is written to a cluster before it is recognised, or known to be another one while nothing of ours runs.
//!
//! *Source*: `spec/safety.md 3.8`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ListParams, ObjectMeta, PartialObjectMeta};
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::annotations::{CLUSTER_IDENTITY, WORKLOAD_UID};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_core::cluster::Reason;
use roadstead_core::cluster::identity::{Copies, Copy, Identity, Known, Lease, Verdict};
use roadstead_core::name::Key;
use roadstead_kubeio::cache::key_of;
use roadstead_kubeio::write;
use serde_json::{Map, Value, json};

use super::supervisor::{Fleet, of_kind};
use super::{Place, Remote};
use crate::lease::Renewed;

/// Copies that are looked at in one request, how long that may take, and how many requests there may be.
const PAGE: u32 = 500;
const PAGE_TIME: Duration = Duration::from_secs(10);
const PAGES_MAX: u32 = 1_000;
/// How long what is remembered of a cluster may stay wrong after the manager could not write it.
const HOLD_PAUSE: Duration = Duration::from_secs(10);
/// How often it is tried each time.
const TRIES_AGAIN: u32 = 2;
/// Why nothing can be said yet.
const NOT_LISTED: &str = "this manager has not listed all of its Workloads yet";

/// What is remembered of a cluster.
pub(crate) fn remembered(cluster: &MultiKueueCluster) -> Option<Identity> {
    cluster
        .annotations()
        .get(CLUSTER_IDENTITY)
        .and_then(|text| Identity::read(text))
}

/// What is to be done where a Secret leads now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recognised {
    /// It may be connected.
    Enter,
    /// What this process knows under this name is of another cluster: it is to begin anew.
    BeginAnew,
    /// It is not to be used.
    Refused(Reason, String),
}

fn changed(name: &str) -> String {
    format!(
        "its Secret leads to another cluster now, while jobs of this manager may run on the one before, and they would run twice: point \
         it back until they have ended; until then they are treated as those of a lost worker, by the policy of their queue, and taking \
         \"{name}\" out of the MultiKueueConfig says that they are lost; if it is the same cluster after all, remove annotation \
         {CLUSTER_IDENTITY} of MultiKueueCluster \"{name}\""
    )
}

fn still_ends(name: &str) -> String {
    format!(
        "its Secret leads to another cluster now, while jobs that have ended or were deleted here are still on the one before: point it \
         back until they are gone there; otherwise it is used, and they stay there, when the time after which a worker counts as lost \
         has passed (multiKueue.workerLostTimeout); if it is the same cluster after all, remove annotation {CLUSTER_IDENTITY} of \
         MultiKueueCluster \"{name}\""
    )
}

fn left_behind(ours: &str) -> String {
    format!(
        "its Secret leads to another cluster now, as far as can be seen, which is used from now on because no Workload of this manager is \
         placed on the one before; what was only offered there, and jobs deleted here that still end there, stay until the Secret leads \
         back or somebody deletes them; to see them, ask the one before: kubectl get workloads.kueue.x-k8s.io,jobs.batch \
         --all-namespaces --selector {ours}"
    )
}

impl Fleet {
    /// Whether a cluster may be connected where its Secret leads now.
    pub(super) async fn recognise(&self, remote: &Remote, client: &Client, place: &Place) -> Recognised {
        let cluster = self.clusters.named(remote.name.as_str());
        let past = remote.past();
        let mut same = None;
        if let Some(known) = past.known(cluster.and_then(|cluster| remembered(&cluster))) {
            match self.is_same(&known, remote, client, place).await {
                Ok(true) => same = Some(known),
                Ok(false) => {}
                Err((reason, sentence)) => return Recognised::Refused(reason, sentence),
            }
        }
        if !past.stays(&place.print(), same.as_ref()) {
            return Recognised::BeginAnew;
        }
        remote.moves_to(place);
        Recognised::Enter
    }

    /// Whether it is the cluster that is remembered. *Errors*: why it is not to be used.
    async fn is_same(
        &self,
        known: &Identity,
        remote: &Remote,
        client: &Client,
        place: &Place,
    ) -> Result<bool, (Reason, String)> {
        let not_yet = |why: String| {
            let sentence = format!("it is not known yet whether it is the same cluster as before: {why}");
            (Reason::ClientConnectionFailed, sentence)
        };
        let (print, mut lease, mut copies) = (place.print(), None, None);
        loop {
            match known.judge(&print, lease.as_ref(), copies) {
                Verdict::Same => return Ok(true),
                Verdict::Another => break,
                Verdict::AskLease => lease = Some(self.lease_there(client).await.map_err(not_yet)?),
                Verdict::AskCopies => {
                    copies = Some(self.copies_there(remote, client).await.map_err(not_yet)?);
                }
            }
        }
        let placed = (self.placed)(&remote.name).ok_or_else(|| not_yet(NOT_LISTED.to_owned()))?;
        let name = remote.name.as_str();
        if !placed.is_empty() {
            return Err((Reason::ClusterChanged, changed(name)));
        }
        if remote.held.has_jobs() && !(self.is_free)(&remote.name) {
            return Err((Reason::ClusterChanged, still_ends(name)));
        }
        self.told.decided(name, &left_behind(&self.ours));
        Ok(false)
    }

    async fn lease_there(&self, client: &Client) -> Result<Lease, String> {
        match self.lessor.stored(client).await {
            Ok(lease) => Ok({ lease.and_then(|lease| lease.metadata.uid) }.map_or(Lease::Missing, Lease::Is)),
            Err(Renewed::Unclear(why)) => Err(why),
            Err(Renewed::Forbidden(_) | Renewed::Kept | Renewed::Taken(..)) => Ok(Lease::Hidden),
        }
    }

    async fn copies_there(&self, remote: &Remote, client: &Client) -> Result<Copies, String> {
        let placed = (self.placed)(&remote.name).ok_or(NOT_LISTED)?;
        if placed.is_empty() && remote.workloads.is_empty() {
            return Ok(Copies::Strange);
        }
        let placed = placed.into_iter().map(|workload| (key_of(&*workload), workload));
        let placed: BTreeMap<Key, Arc<Workload>> = placed.collect();
        let is_known = |copy: &PartialObjectMeta<Workload>| {
            let key = key_of(copy);
            let seen = remote.workloads.get(&key);
            is_known(copy, placed.get(&key).map(Arc::as_ref), seen.as_deref())
        };
        let api: Api<Workload> = Api::all(client.clone());
        let mut params = ListParams::default().labels(&self.ours).limit(PAGE);
        for _ in 0..PAGES_MAX {
            let page = match tokio::time::timeout(PAGE_TIME, api.list_metadata(&params)).await {
                Ok(page) => page.map_err(|error| of_kind("Workload", write::describe(&error)))?,
                Err(_elapsed) => return Err("no answer when its Workloads were listed".to_owned()),
            };
            if page.items.iter().any(is_known) {
                return Ok(Copies::Known);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(Copies::Strange),
            }
        }
        let most = PAGE * PAGES_MAX;
        Err(format!("it has more than {most} Workloads of this manager"))
    }

    /// What is to be changed in the annotations of a cluster so that it is remembered; empty when it is.
    pub(super) fn to_remember(&self, cluster: &MultiKueueCluster) -> Map<String, Value> {
        let remote = self.registry.get(&cluster.name_any().as_str().into());
        let Some((remote, place)) = remote.and_then(|remote| {
            let home = remote.with(|link| link.home.clone())?;
            Some((remote, home.print()))
        }) else {
            return Map::new();
        };
        let before = remembered(cluster);
        let now = Identity::next(before.as_ref(), remote.lease.get().as_deref(), place);
        if before.as_ref() == Some(&now) {
            return Map::new();
        }
        Map::from_iter([(CLUSTER_IDENTITY.to_owned(), json!(now.to_string()))])
    }

    /// Remembers a lease that is made anew. Never ends by itself.
    pub(super) async fn follow_lease(&self, remote: &Remote) {
        let (mut lease, mut seen) = (remote.lease.follow(), remote.lease.follow());
        // Why beside the rest: what is to be written may hang.
        let remember = async {
            loop {
                remote.is_of_home();
                seen.changed().await;
            }
        };
        let write = async {
            loop {
                // Why before the first change: there may have been one since the cluster was remembered. Why again and again: it may
                // not have been possible to write that down.
                self.hold(remote.name.as_str(), TRIES_AGAIN).await;
                let _again = tokio::time::timeout(HOLD_PAUSE, lease.changed()).await;
            }
        };
        tokio::join!(remember, write);
    }
}

/// Whether a copy shows that it is on the cluster where this Workload is placed, or where the copy was seen.
fn is_known(copy: &PartialObjectMeta<Workload>, placed: Option<&Workload>, seen: Option<&Workload>) -> bool {
    let number = |metadata: &ObjectMeta| roadstead_convert::epoch(metadata.annotations.as_ref());
    let of_uid = copy.annotations().get(WORKLOAD_UID);
    let found = Copy {
        uid: copy.metadata.uid.as_deref(),
        dispatch: of_uid.map(String::as_str).zip(number(&copy.metadata)),
        has_job: !copy.owner_references().is_empty(),
    };
    found.is_known(Known {
        copy: seen.and_then(|seen| seen.metadata.uid.as_deref()),
        dispatch: placed.and_then(|placed| placed.metadata.uid.as_deref().zip(number(&placed.metadata))),
    })
}

#[cfg(test)]
pub(super) mod tests;
