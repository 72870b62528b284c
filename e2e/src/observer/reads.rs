//! Looking into clusters directly, past every cache.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_api::kueue::v1beta2::Workload;

use super::Cluster;
use super::ledger::{Run, job_outcome, owner_job, pod_lives, run_of};

/// What reading says about an overlap that was seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// These clusters run it at the same time.
    Overlap(Vec<String>),
    /// At most one does.
    Over,
}

/// Reads all workers twice. What lives in two workers in both rounds lived in both when the first round ended.
pub(super) async fn confirm(workers: &[Cluster], run: &Run) -> Result<Confirmed, kube::Error> {
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let mut alive = BTreeSet::new();
        for worker in workers {
            if is_alive(worker, run).await? {
                alive.insert(worker.name.clone());
            }
        }
        rounds.push(alive);
    }
    let both: Vec<String> = rounds[0].intersection(&rounds[1]).cloned().collect();
    Ok(if both.len() > 1 {
        Confirmed::Overlap(both)
    } else {
        Confirmed::Over
    })
}

async fn is_alive(worker: &Cluster, run: &Run) -> Result<bool, kube::Error> {
    let jobs: Api<Job> = Api::namespaced(worker.client.clone(), &run.namespace);
    let ours = ListParams::default().labels(MULTIKUEUE_ORIGIN);
    let jobs = jobs.list(&ours).await?.items;
    let jobs: Vec<&Job> = jobs
        .iter()
        .filter(|job| run_of(job).as_ref() == Some(run))
        .collect();
    let unsuspended = |job: &&Job| {
        let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
        !suspended && job_outcome(job).is_none()
    };
    if jobs.iter().any(unsuspended) {
        return Ok(true);
    }
    let uids: BTreeSet<String> = jobs.iter().filter_map(|job| job.uid()).collect();
    let pods: Api<Pod> = Api::namespaced(worker.client.clone(), &run.namespace);
    let pods = pods.list(&ListParams::default()).await?;
    let of_run = |pod: &&Pod| owner_job(pod).is_some_and(|job| uids.contains(&job));
    Ok(pods.iter().filter(of_run).any(pod_lives))
}

/// I5: objects that a manager put into a worker and that have no counterpart any more, each as a phrase.
pub(super) async fn orphans(manager: &Cluster, workers: &[Cluster]) -> Result<Vec<String>, kube::Error> {
    // Why the workers first: what is made on the manager in between then has no remote yet.
    let ours = ListParams::default().labels(MULTIKUEUE_ORIGIN);
    let mut jobs = BTreeMap::new();
    let mut workloads = BTreeMap::new();
    for worker in workers {
        let api: Api<Job> = Api::all(worker.client.clone());
        jobs.insert(&worker.name, api.list(&ours).await?.items);
        let api: Api<Workload> = Api::all(worker.client.clone());
        workloads.insert(&worker.name, api.list(&ours).await?.items);
    }
    let api: Api<Job> = Api::all(manager.client.clone());
    let local_jobs = names(&api.list(&ListParams::default()).await?.items);
    let api: Api<Workload> = Api::all(manager.client.clone());
    let local_workloads = names(&api.list(&ListParams::default()).await?.items);

    let mut orphans = Vec::new();
    for (worker, jobs) in jobs {
        let left = jobs
            .iter()
            .filter(|job| job.metadata.deletion_timestamp.is_none());
        for job in left {
            let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
            let run = run_of(job).map(|run| (run.namespace, run.workload));
            let known = run.is_some_and(|run| local_workloads.contains(&run))
                && local_jobs.contains(&(namespace.clone(), name.clone()));
            if !known {
                orphans.push(format!("job {namespace}/{name} in {worker}"));
            }
        }
    }
    for (worker, workloads) in workloads {
        let left = workloads
            .iter()
            .filter(|workload| workload.metadata.deletion_timestamp.is_none());
        for (namespace, name) in names(&left.cloned().collect::<Vec<_>>()) {
            if !local_workloads.contains(&(namespace.clone(), name.clone())) {
                orphans.push(format!("workload {namespace}/{name} in {worker}"));
            }
        }
    }
    Ok(orphans)
}

fn names(objects: &[impl ResourceExt]) -> BTreeSet<(String, String)> {
    let name = |object: &_| {
        let object: &_ = object;
        (
            ResourceExt::namespace(object).unwrap_or_default(),
            ResourceExt::name_any(object),
        )
    };
    objects.iter().map(name).collect()
}
