//! The job of a Workload of the manager, and how its objects and their copies on a worker differ.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::name::Key;
use roadstead_engine::caches::{CachedJob, JobKey, JobRef, KindCache, is_of_group};
use roadstead_engine::jobs::job_of;
use roadstead_jobs::kind::{Later, Members, Unmatched};
use roadstead_jobs::labels::controller;

use super::Dispatch;

/// The job of a local Workload, whether or not the job exists.
pub(super) struct Owning<'a> {
    pub(super) jobs: &'a KindCache,
    pub(super) key: JobKey,
    uid: Option<String>,
}

impl Owning<'_> {
    pub(super) fn job(&self) -> Option<CachedJob> {
        let is_it = |job: &CachedJob| self.uid.is_none() || job.first().uid() == self.uid;
        self.jobs.job(&self.key).filter(is_it)
    }
}

/// The objects of a job that are to be copied: those that its Workload counts and that are not being deleted.
pub(super) fn local_job(owner: &Owning<'_>, workload: &Workload) -> Option<CachedJob> {
    let job = owner.job()?;
    let sets = roadstead_convert::pod_sets(workload);
    let kind = owner.jobs.kind;
    let tending = job.with(|members| kind.tend(members, Some(&sets), roadstead_convert::asks_for_more));
    let kept: Option<BTreeSet<String>> =
        tending.map(|group| group.kept.into_iter().map(|id| id.uid).collect());
    job.only(|object| {
        let is_counted =
            { kept.as_ref() }.is_none_or(|kept| object.uid().is_some_and(|uid| kept.contains(&uid)));
        is_counted && object.metadata.deletion_timestamp.is_none()
    })
}

pub(super) fn owner_of<'a>(d: &'a Dispatch, workload: &Workload) -> Option<Owning<'a>> {
    if is_of_group(workload) {
        let JobRef { kind, key } = job_of(&d.caches, workload)?;
        let jobs = d.caches.jobs.get(kind)?;
        return Some(Owning { jobs, key, uid: None });
    }
    let owner = controller(&workload.metadata)?;
    let jobs = d.caches.kind(group_of(&owner.api_version), &owner.kind)?;
    let key = Key::new(workload.namespace().unwrap_or_default(), owner.name.as_str());
    Some(Owning {
        jobs,
        key: JobKey::Object(key),
        uid: Some(owner.uid.clone()),
    })
}

/// How the objects of a local job and its copies on a worker differ; no difference if the local job is gone.
pub(super) fn unmatched_on(d: &Dispatch, key: &Key, copies: &CachedJob) -> Unmatched {
    let stored = d.caches.workloads.get(key);
    let owner = stored.as_deref().and_then(|stored| owner_of(d, stored));
    let both = stored.as_deref().zip(owner.as_ref());
    both.map(|(stored, owner)| unmatched(owner, stored, copies))
        .unwrap_or_default()
}

/// The same for a caller that has read the `owner` already.
pub(super) fn unmatched(owner: &Owning<'_>, workload: &Workload, copies: &CachedJob) -> Unmatched {
    let Some(whole) = owner.job() else {
        return Unmatched::default();
    };
    let compare = |local: Members<'_>| copies.with(|copies| owner.jobs.kind.unmatched(local, copies));
    let mut unmatched = whole.with(compare);
    let counted = local_job(owner, workload);
    let names: BTreeSet<String> = { counted.iter() }
        .flat_map(CachedJob::objects)
        .map(|object| object.name_any())
        .collect();
    unmatched.lacking.retain(|name| names.contains(name));
    unmatched
}

/// The changes of the objects of a local job, made after they were sent, that their copies on a worker lack.
pub(super) fn later(d: &Dispatch, owner: &Owning<'_>, copies: &CachedJob) -> Vec<Later> {
    // Why changes of a group of pods are sent in any case: the setting is about the spec of a job.
    if !d.may_forward && owner.jobs.kind.kind().members != roadstead_kinds::Members::Group {
        return Vec::new();
    }
    let compare = |local: Members<'_>| copies.with(|copies| owner.jobs.kind.later(local, copies));
    owner.job().map(|job| job.with(compare)).unwrap_or_default()
}

/// The API group of a version such as `batch/v1`; empty for `v1`.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
