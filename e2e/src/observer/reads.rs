//! Direct reads of clusters, without caches.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_api::kueue::v1beta2::Workload;

use super::Cluster;
use super::ledger::{Run, controller, is_suspended, job_outcome, pod_lives, run_of};

/// The result of reading for an overlap.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// These clusters run the workload at the same time.
    Overlap(Vec<String>),
    /// At most one cluster runs it.
    Over,
}

/// Reads all workers twice. A run that lives in two workers in both rounds lived in both when the first round ended.
pub(super) async fn confirm(
    workers: &[Cluster],
    kinds: &[ApiResource],
    run: &Run,
) -> Result<Confirmed, kube::Error> {
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let mut alive = BTreeSet::new();
        for worker in workers {
            if is_alive(worker, kinds, run).await? {
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

async fn is_alive(worker: &Cluster, kinds: &[ApiResource], run: &Run) -> Result<bool, kube::Error> {
    let mut all = Vec::new();
    for kind in kinds {
        let api: Api<DynamicObject> = Api::namespaced_with(worker.client.clone(), &run.namespace, kind);
        all.extend(api.list(&ListParams::default()).await?.items);
    }
    let is_of_run = |job: &&DynamicObject| run_of(job).as_ref() == Some(run);
    let unsuspended = |job: &DynamicObject| !is_suspended(job) && job_outcome(job).is_none();
    if all.iter().filter(is_of_run).any(unsuspended) {
        return Ok(true);
    }
    let mut uids: BTreeSet<String> = all
        .iter()
        .filter(is_of_run)
        .filter_map(ResourceExt::uid)
        .collect();
    // A job may have created jobs, which have pods or jobs of their own.
    loop {
        let is_made = |job: &&DynamicObject| controller(*job).is_some_and(|maker| uids.contains(&maker));
        let made: BTreeSet<String> = all.iter().filter(is_made).filter_map(ResourceExt::uid).collect();
        if made.is_subset(&uids) {
            break;
        }
        uids.extend(made);
    }
    let pods: Api<Pod> = Api::namespaced(worker.client.clone(), &run.namespace);
    let pods = pods.list(&ListParams::default()).await?;
    let of_run = |pod: &&Pod| controller(*pod).is_some_and(|job| uids.contains(&job));
    Ok(pods.iter().filter(of_run).any(pod_lives))
}

/// I5: objects that a manager created in a worker and that have no counterpart any more, each as a phrase.
pub(super) async fn orphans(
    manager: &Cluster,
    workers: &[Cluster],
    kinds: &[ApiResource],
) -> Result<Vec<String>, kube::Error> {
    // Why the workers first: an object created on the manager in between has no remote yet.
    let ours = ListParams::default().labels(MULTIKUEUE_ORIGIN);
    let mut jobs = Vec::new();
    let mut workloads = BTreeMap::new();
    for worker in workers {
        for kind in kinds {
            let api: Api<DynamicObject> = Api::all_with(worker.client.clone(), kind);
            jobs.push((&worker.name, &kind.kind, api.list(&ours).await?.items));
        }
        let api: Api<Workload> = Api::all(worker.client.clone());
        workloads.insert(&worker.name, api.list(&ours).await?.items);
    }
    let mut local_jobs = BTreeMap::new();
    for kind in kinds {
        let api: Api<DynamicObject> = Api::all_with(manager.client.clone(), kind);
        local_jobs.insert(&kind.kind, names(&api.list(&ListParams::default()).await?.items));
    }
    let api: Api<Workload> = Api::all(manager.client.clone());
    let local_workloads = names(&api.list(&ListParams::default()).await?.items);

    let mut orphans = Vec::new();
    for (worker, kind, jobs) in jobs {
        let left = jobs
            .iter()
            .filter(|job| job.metadata.deletion_timestamp.is_none());
        for job in left {
            let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
            let run = run_of(job).map(|run| (run.namespace, run.workload));
            let is_there = local_jobs[kind].contains(&(namespace.clone(), name.clone()));
            let known = is_there && run.is_some_and(|run| local_workloads.contains(&run));
            if !known {
                let kind = kind.to_lowercase();
                orphans.push(format!("{kind} {namespace}/{name} in {worker}"));
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
