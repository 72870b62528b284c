//! Pods that belong together stay in one cluster: the one that took the first of them.
//!
//! Why: the next step of an Argo Workflow looks for the results of a step (a volume, a cache, an artifact in the cluster's own store)
//! in the same cluster, and the pods of a Deployment or a `LeaderWorkerSet` serve together.
//!
//! *Source*: `spec/jobs.md 9.11, 9.13, 13.2`.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::constants::annotations::SPREAD;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::dispatch::{Cordon, Failure};
use roadstead_core::kind::KindState;
use roadstead_core::name::{CheckName, ClusterName, Key};
use roadstead_engine::caches::CachedJob;
use roadstead_kinds::rows;
use roadstead_kubeio::queue::Lane;

use super::Dispatch;
use super::kind::state_on;
use crate::families::Relative;
use crate::sites;
use crate::steps::pods_of;

/// Where a job may go that has no cluster yet.
pub(super) struct Choice {
    /// The clusters.
    pub(super) clusters: Vec<ClusterName>,
    /// The name of the Workload that goes first: until it has a cluster, this job has none.
    pub(super) behind: Option<String>,
}

/// Where a job may go, of the clusters of its check; without a job that seeks one, to each.
pub(super) fn choice(d: &Dispatch, key: &Key, job: Option<&CachedJob>, clusters: Vec<ClusterName>) -> Choice {
    let pod = job.map(CachedJob::first);
    let stays = |pod: &&Arc<DynamicObject>| pod.annotations().get(SPREAD).is_none_or(|said| said != "true");
    let Some(pod) = pod.filter(stays) else {
        return Choice {
            clusters,
            behind: None,
        };
    };
    match home(d, pod) {
        Some(home) if clusters.contains(&home) && takes(d, key, &home) => Choice {
            clusters: vec![home],
            behind: None,
        },
        Some(_) | None => Choice {
            clusters,
            behind: first_of(d, key, pod),
        },
    }
}

/// The cluster of another pod of the same family.
fn home(d: &Dispatch, pod: &DynamicObject) -> Option<ClusterName> {
    d.families.among_others(pod, |other| {
        let workloads = d.caches.owners.of(other.uid);
        let mut placed = workloads.iter().filter_map(|workload| {
            let workload = d.caches.workloads.get(workload)?;
            workload.cluster_name().map(ClusterName::from)
        });
        placed.next()
    })
}

/// The first of the Workloads of pods that are alike and seek a place too, if it is not this one. Why one at a time: all would be
/// offered at once, and different clusters would take them.
fn first_of(d: &Dispatch, key: &Key, pod: &DynamicObject) -> Option<String> {
    let own = d.caches.workloads.get(key)?;
    let mut first = own.clone();
    d.families.among_others(pod, |other: Relative<'_>| {
        let workloads = other.is_alike.then(|| d.caches.owners.of(other.uid));
        for workload in workloads.into_iter().flatten() {
            if let Some(workload) = d.caches.workloads.get(&workload)
                && seeks(d, &workload)
                && age(&workload) < age(&first)
            {
                first = workload;
            }
        }
        None::<()>
    });
    (age(&first) < age(&own)).then(|| first.name_any())
}

fn age(workload: &Workload) -> (Option<jiff::Timestamp>, &str) {
    let created = workload.metadata.creation_timestamp.as_ref();
    (
        created.map(|time| time.0),
        workload.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Whether a Workload holds quota for workers, or is about to be looked at for the first time, and has no cluster yet.
fn seeks(d: &Dispatch, workload: &Workload) -> bool {
    let is_over = workload.metadata.deletion_timestamp.is_some()
        || !workload.is_active()
        || workload.is_true("Evicted")
        || workload.is_true("Finished");
    if is_over || workload.cluster_name().is_some() {
        return false;
    }
    let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
    let mut checks = checks.map(|check| CheckName::from(check.name.as_str()));
    match workload.condition("QuotaReserved") {
        // Why: its reservation may be on the way to the storage while that of a younger one is there.
        None => true,
        Some(reserved) => reserved.status == "True" && checks.any(|check| d.federation.is_ours(&check)),
    }
}

/// Whether a cluster can take a pod now. Why another one may follow: a Workflow goes on without the cluster in which it began.
fn takes(d: &Dispatch, key: &Key, cluster: &ClusterName) -> bool {
    let Some(stored) = d.federation.clusters.named(cluster.as_str()) else {
        return false;
    };
    let has_failed = |failure: &Failure| failure.until > (d.clock)();
    let is_well = d.registry.get(cluster).is_some_and(|remote| {
        remote.lost_since().is_none() && state_on(&remote, Some(&rows::POD)) != KindState::NotServed
    });
    is_well
        && sites::cordon(&stored) == Cordon::Open
        && !d.memory.of(key).get(cluster).is_some_and(has_failed)
}

impl Dispatch {
    /// Looks again at the pods that belong together when one of them has got a cluster, or no longer seeks one.
    pub(crate) fn wake_relatives(&self) {
        let Some(pods) = pods_of(&self.caches) else {
            return;
        };
        let (this, objects) = (self.clone(), pods.objects.clone());
        self.caches.workloads.listen(move |change| {
            let sought = change.old.filter(|workload| seeks(&this, workload));
            let Some(workload) = sought.filter(|_| !change.new.is_some_and(|now| seeks(&this, now))) else {
                return;
            };
            // Why one of its pods: those of a group are of one family.
            let mut owners = workload.owner_references().iter();
            let key = |name: &str| Key::new(change.key.namespace.clone(), name);
            if let Some(pod) = owners.find_map(|owner| objects.get(&key(&owner.name))) {
                this.wake_relatives_of(&pod);
            }
        });
        // Why too: a pod may be gone before its Workload.
        let this = self.clone();
        pods.objects.listen(move |change| {
            if let Some(pod) = change.old.filter(|_| change.new.is_none()) {
                this.wake_relatives_of(pod);
            }
        });
    }

    fn wake_relatives_of(&self, pod: &DynamicObject) {
        self.families.among_others(pod, |other| {
            for key in self.caches.owners.of(other.uid) {
                let workload = self.caches.workloads.get(&key);
                if workload.is_some_and(|workload| seeks(self, &workload)) {
                    self.due.add(key, Lane::New);
                }
            }
            None::<()>
        });
    }
}
