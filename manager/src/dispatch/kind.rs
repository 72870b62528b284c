//! What is known of the kind of a job on a worker.

use std::collections::BTreeMap;

use roadstead_core::dispatch::Site;
use roadstead_core::kind::KindState;
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::KindCache;
use roadstead_jobs::labels::controller;
use roadstead_kinds::Kind;
use roadstead_kubeio::cache::Health;

use super::Dispatch;
use super::owning::group_of;
use crate::remote::Remote;

/// The worker's jobs of the kind of a Workload's job. The local job names the kind; if it is gone, the objects on the worker do.
/// `None` if neither names one.
///
/// Limit: a copy without an owner names no kind. It is deleted even if its job is of a kind that cannot be read; that job is
/// found as soon as the kind can be read.
pub(super) fn jobs_like<'a>(remote: &'a Remote, key: &Key, kind: Option<&Kind>) -> Option<&'a KindCache> {
    if let Some(kind) = kind {
        return remote.jobs.iter().find(|jobs| jobs.kind.kind() == kind);
    }
    if let Some((held, _)) = remote.held.jobs_of(key).into_iter().next() {
        return remote.jobs.get(held);
    }
    let copy = remote.workloads.get(key)?;
    let owner = controller(&copy.metadata)?;
    let is_it = |jobs: &&KindCache| jobs.kind.kind().is(group_of(&owner.api_version), &owner.kind);
    remote.jobs.iter().find(is_it)
}

/// Whether a worker serves this kind; `Serving` without a kind, because the worker needs none then.
pub(super) fn state_on(remote: &Remote, kind: Option<&Kind>) -> KindState {
    let jobs = kind.and_then(|kind| remote.jobs.iter().find(|jobs| jobs.kind.kind() == kind));
    jobs.map_or(KindState::Serving, KindCache::state)
}

pub(super) fn note_kind(d: &Dispatch, sites: &mut BTreeMap<ClusterName, Site>, kind: Option<&Kind>) {
    for (name, site) in sites {
        let remote = d.registry.get(name);
        site.kind = remote.map_or(KindState::Serving, |remote| state_on(&remote, kind));
    }
}

/// Why it is unknown which of these jobs exist; `None` when it is known.
pub(super) fn unreadable(jobs: &KindCache) -> Option<String> {
    match jobs.objects.health().get() {
        Health::Live | Health::NotServed => None,
        Health::Starting => Some("its API server has not answered yet".to_owned()),
        Health::Failing(why) => Some(why),
    }
}
