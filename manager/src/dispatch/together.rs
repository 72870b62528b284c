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
use roadstead_core::dispatch::together::{Age, Course, Place, Search};
use roadstead_core::dispatch::{Cordon, Failure};
use roadstead_core::kind::KindState;
use roadstead_core::name::{CheckName, ClusterName, Key};
use roadstead_engine::caches::CachedJob;
use roadstead_kinds::rows;
use roadstead_kubeio::queue::Lane;

use super::Dispatch;
use super::kind::state_on;
use crate::sites;
use crate::steps::pods_of;

/// Where a job without a cluster may go.
pub(super) struct Choice {
    /// The clusters.
    pub(super) clusters: Vec<ClusterName>,
    /// The name of the Workload that is placed first: this job gets no cluster before that Workload has one.
    pub(super) behind: Option<String>,
}

/// The clusters of the check to which a job may go; all of them if `job` is `None`, because it seeks no cluster.
pub(super) fn choice(d: &Dispatch, key: &Key, job: Option<&CachedJob>, clusters: Vec<ClusterName>) -> Choice {
    let pod = job.map(CachedJob::first);
    let stays = |pod: &&Arc<DynamicObject>| pod.annotations().get(SPREAD).is_none_or(|said| said != "true");
    let course = pod.filter(stays).map_or(Course::Free, |pod| {
        let may = |cluster: &ClusterName| clusters.contains(cluster) && takes(d, key, cluster);
        // Why removed first: a relative that gets a cluster while this pass reads must make this Workload due again.
        d.families.courses.forget(key);
        let course = course(d, key, pod, may);
        if d.caches
            .workloads
            .get(key)
            .is_some_and(|workload| seeks(d, &workload))
        {
            d.families.courses.note(key.clone(), course.clone());
        }
        course
    });
    let (clusters, behind) = match course {
        Course::To(cluster) => (vec![cluster], None),
        Course::Behind(first) => (clusters, Some(first)),
        Course::Free => (clusters, None),
    };
    Choice { clusters, behind }
}

fn course(d: &Dispatch, key: &Key, pod: &DynamicObject, may: impl Fn(&ClusterName) -> bool) -> Course {
    let Some(own) = d.caches.workloads.get(key) else {
        return Course::Free;
    };
    let mut search = Search::new(age(&own));
    let decided = among_relatives(d, pod, |other, is_alike| {
        search.meet(age(other), place(d, other, is_alike), &may)
    });
    decided.unwrap_or_else(|| search.end())
}

/// The first answer for a Workload with a pod of the same family. The flag says whether that pod was made from the same template.
/// For a Workload with several such pods, `answer` is called for each pod.
fn among_relatives<T>(
    d: &Dispatch,
    pod: &DynamicObject,
    mut answer: impl FnMut(&Workload, bool) -> Option<T>,
) -> Option<T> {
    d.families.among_others(pods_of(&d.caches)?, pod, |other| {
        let workloads = d.caches.workloads_of(other.job, other.uid);
        let mut stored = workloads.iter().filter_map(|key| d.caches.workloads.get(key));
        stored.find_map(|workload| answer(&workload, other.is_alike))
    })
}

fn age(workload: &Workload) -> Age<'_> {
    let created = workload.metadata.creation_timestamp.as_ref();
    Age {
        created: created.map(|time| time.0),
        name: workload.metadata.name.as_deref().unwrap_or_default(),
    }
}

fn place(d: &Dispatch, workload: &Workload, is_alike: bool) -> Place {
    match workload.cluster_name() {
        Some(cluster) => Place::In(ClusterName::from(cluster)),
        None if is_alike && seeks(d, workload) => Place::Seeking,
        None => Place::Nowhere,
    }
}

/// Whether a Workload seeks a cluster: it has none, and it holds quota for workers or has no condition `QuotaReserved` yet.
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
        // Why: its reservation may not be stored yet, although that of a younger Workload is.
        None => true,
        Some(reserved) => reserved.status == "True" && checks.any(|check| d.federation.is_ours(&check)),
    }
}

/// Whether a cluster can take a pod at present. If it cannot, the pod may go to another cluster, because a Workflow continues
/// without the cluster in which it began.
fn takes(d: &Dispatch, key: &Key, cluster: &ClusterName) -> bool {
    let Some(stored) = d.federation.clusters.named(cluster.as_str()) else {
        return false;
    };
    let has_failed = |failure: &Failure| failure.excludes((d.clock)());
    let is_well = d.registry.get(cluster).is_some_and(|remote| {
        remote.lost_since().is_none() && state_on(&remote, Some(&rows::POD)) != KindState::NotServed
    });
    is_well
        && sites::cordon(&stored) == Cordon::Open
        && !d.memory.of(key).get(cluster).is_some_and(has_failed)
}

impl Dispatch {
    /// When a Workload gets a cluster or stops seeking one, makes the Workloads of its family due that still seek one and may have to go
    /// elsewhere now.
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
            this.families.courses.forget(change.key);
            let now = change.new.and_then(|workload| workload.cluster_name());
            let cluster = now.map(ClusterName::from);
            // Why one pod is enough: all pods of a group are of one family.
            let mut owners = workload.owner_references().iter();
            let key = |name: &str| Key::new(change.key.namespace.clone(), name);
            if let Some(pod) = owners.find_map(|owner| objects.get(&key(&owner.name))) {
                this.wake_relatives_of(&pod, cluster.as_ref());
            }
        });
        // Why the pods too: a pod may be deleted before its Workload.
        let this = self.clone();
        pods.objects.listen(move |change| {
            if let Some(pod) = change.old.filter(|_| change.new.is_none()) {
                this.wake_relatives_of(pod, None);
            }
        });
    }

    fn wake_relatives_of(&self, pod: &DynamicObject, cluster: Option<&ClusterName>) {
        among_relatives(self, pod, |workload, _| {
            let key = roadstead_kubeio::cache::key_of(workload);
            if seeks(self, workload) && self.families.courses.changes(&key, cluster) {
                self.due.add(key, Lane::New);
            }
            None::<()>
        });
    }
}
