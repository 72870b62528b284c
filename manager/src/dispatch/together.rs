//! Steps of one Argo Workflow stay in one cluster: the one that took the first of them.
//!
//! Why: the next step looks for the results of a step (a volume, a cache, an artifact in the cluster's own store) in the same
//! cluster.
//!
//! *Source*: `spec/jobs.md 13.2`.

use kube::ResourceExt as _;
use roadstead_api::constants::annotations::SPREAD;
use roadstead_core::dispatch::{Cordon, Failure};
use roadstead_core::kind::KindState;
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::CachedJob;
use roadstead_kinds::rows;

use super::Dispatch;
use super::kind::state_on;
use crate::sites;

/// The clusters of a check to which a job that has none yet may go.
pub(super) fn narrowed(
    d: &Dispatch,
    (key, job): (&Key, &CachedJob),
    clusters: Vec<ClusterName>,
) -> Vec<ClusterName> {
    let pod = job.first();
    if pod.annotations().get(SPREAD).is_some_and(|said| said == "true") {
        return clusters;
    }
    let home = d.steps.among_others(pod, |uid| {
        let workloads = d.caches.owners.of(uid);
        let mut placed = workloads.iter().filter_map(|workload| {
            let workload = d.caches.workloads.get(workload)?;
            workload.cluster_name().map(ClusterName::from)
        });
        placed.next()
    });
    match home {
        Some(home) if clusters.contains(&home) && takes(d, key, &home) => vec![home],
        Some(_) | None => clusters,
    }
}

/// Whether a cluster can take a step now. Why another one may follow: a Workflow goes on without the cluster in which it began.
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
