//! Stopping everything of one manager.
//!
//! Invariant: a copy that was stopped stays stopped: it is switched off, and only its manager can take it back, by deleting
//! it. So a job that returns with its worker never goes on by itself (`spec/safety.md 3.3`).

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::{annotations, finalizers, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_engine::caches::KindCache;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::{Fence, is_fenced_by_policy};

/// Writes under way at the same time.
const WRITES: usize = 16;

/// Switches off what this manager has here and wants fenced. What is done already is not done again.
pub(super) async fn everything(fence: &Fence, origin: &str) {
    let of_manager = |labels: &std::collections::BTreeMap<String, String>| {
        labels
            .get(labels::MULTIKUEUE_ORIGIN)
            .is_some_and(|one| one == origin)
    };
    let mut copies: Vec<Arc<Workload>> = fence.caches.workloads.all();
    copies.retain(|copy| {
        of_manager(copy.labels())
            && is_fenced_by_policy(copy)
            && copy.is_active()
            && !copy.is_true("Finished")
            && copy.metadata.deletion_timestamp.is_none()
    });
    // What runs first.
    copies.sort_by_key(|copy| {
        (
            !copy.is_true("Admitted"),
            roadstead_kubeio::cache::key_of(&**copy),
        )
    });
    if !copies.is_empty() {
        tracing::warn!(
            origin,
            copies = copies.len(),
            "not heard of this manager for too long: stopping its jobs"
        );
    }
    stream::iter(copies)
        .for_each_concurrent(WRITES, |copy| async move { switch_off(fence, &copy).await })
        .await;
    for jobs in fence.caches.jobs.iter() {
        for job in jobs.objects.all() {
            let held = job.finalizers().iter().any(|one| one == finalizers::OUTCOME);
            let dying = job.metadata.deletion_timestamp.is_some() && jobs.kind.finished(&job.data).is_none();
            if held && dying && of_manager(job.labels()) {
                let_go(fence, jobs, &job).await;
            }
        }
    }
}

async fn switch_off(fence: &Fence, copy: &Workload) {
    let epoch = copy.annotations().get(annotations::DISPATCH_EPOCH);
    let patch = json!({
        "metadata": {
            "uid": copy.metadata.uid,
            "annotations": { annotations::FENCED: epoch.map_or("1", String::as_str) },
        },
        "spec": { "active": false },
    });
    let namespace = copy.namespace().unwrap_or_default();
    let api: Api<Workload> = Api::namespaced(fence.client.clone(), &namespace);
    match write::patch(&api, &copy.name_any(), &patch).await {
        Written::Done(object) => {
            let origin = object.labels().get(labels::MULTIKUEUE_ORIGIN);
            fence.metrics.fenced(origin.map_or("", String::as_str));
            fence.caches.workloads.observe(*object);
        }
        Written::Gone | Written::Conflict | Written::AlreadyExists => {}
        Written::Refused(why) | Written::Unclear(why) => {
            tracing::warn!(workload = %roadstead_kubeio::cache::key_of(copy), "fencing: {why}");
        }
    }
}

/// A job that somebody deleted, and that only its manager's finalizer keeps: its pods go on until it is let go, and it has no
/// outcome to wait for.
async fn let_go(fence: &Fence, jobs: &KindCache, job: &DynamicObject) {
    let kept: Vec<&String> = job
        .finalizers()
        .iter()
        .filter(|one| *one != finalizers::OUTCOME)
        .collect();
    let patch =
        json!({ "metadata": { "finalizers": kept, "resourceVersion": job.metadata.resource_version } });
    let namespace = job.namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(fence.client.clone(), &namespace, &jobs.resource);
    match write::patch(&api, &job.name_any(), &patch).await {
        Written::Done(_) | Written::Gone | Written::Conflict | Written::AlreadyExists => {}
        Written::Refused(why) | Written::Unclear(why) => {
            tracing::warn!(job = %roadstead_kubeio::cache::key_of(job), "letting it go: {why}");
        }
    }
}
