//! Stops all jobs of one manager.
//!
//! Invariant: a stopped copy stays stopped: it is deactivated, and only its manager can take it back, by deleting it. So a job
//! never goes on by itself when its worker returns (`spec/safety.md 3.3`).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::{annotations, finalizers, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::name::Key;
use roadstead_engine::caches::{KindCache, look_at};
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::{Fence, is_fenced_by_policy};

/// Writes under way at the same time.
const WRITES: usize = 16;
/// How long one write may take before it is repeated with fresh data: longer than its turn and its answer take on a busy API
/// server.
const WRITE_MAX: Duration = Duration::from_mins(1);

/// The kinds of failures, for the memory of those that were logged.
const STOPPING: &str = "stopping";
const LETTING_GO: &str = "letting go";
const FENCING: &str = "fencing";

/// The managers whose jobs are being stopped; no manager waits for another.
#[derive(Default)]
pub(super) struct Stopping<'a>(BTreeMap<String, BoxFuture<'a, ()>>);

impl<'a> Stopping<'a> {
    /// Begins to stop the jobs of these managers, unless that is under way, and cancels it for all other managers.
    pub(super) fn of(&mut self, fence: &'a Fence, origins: &[String]) {
        self.0.retain(|origin, _| origins.contains(origin));
        for origin in origins {
            let begin = || everything(fence, origin.clone()).boxed();
            self.0.entry(origin.clone()).or_insert_with(begin);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// Works until every stop that was begun has been carried out.
    pub(super) async fn go_on(&mut self) {
        poll_fn(|context| {
            self.0.retain(|_, one| one.as_mut().poll(context).is_pending());
            if self.0.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Deactivates the copies of this manager that have policy Fence and are still active.
async fn everything(fence: &Fence, origin: String) {
    let of_manager = |labels: &BTreeMap<String, String>| {
        labels
            .get(labels::MULTIKUEUE_ORIGIN)
            .is_some_and(|one| *one == origin)
    };
    let mut copies: Vec<Arc<Workload>> = fence.caches.workloads.all();
    copies.retain(|copy| {
        of_manager(copy.labels())
            && is_fenced_by_policy(copy)
            && copy.is_active()
            && !copy.is_true("Finished")
            && copy.metadata.deletion_timestamp.is_none()
    });
    // Running jobs first.
    copies.sort_by_key(|copy| {
        (
            !copy.is_true("Admitted"),
            roadstead_kubeio::cache::key_of(&**copy),
        )
    });
    let (troubles, this) = (
        &fence.knowledge.troubles,
        (FENCING, Key::new("", origin.as_str())),
    );
    if copies.is_empty() {
        troubles.ends(&this);
    // Why logged only when the number has changed: a failed stop is tried again after each look.
    } else if troubles.is_news(this, &copies.len().to_string()) {
        tracing::warn!(
            origin,
            copies = copies.len(),
            "the Lease of this manager was not renewed in time: this worker stops its jobs of policy Fence, which may start elsewhere; \
             check that the manager runs and reaches this cluster (there: roadstead cluster list)"
        );
    }
    stream::iter(copies)
        .for_each_concurrent(WRITES, |copy| async move { switch_off(fence, &copy).await })
        .await;
    for jobs in fence.caches.jobs.iter() {
        for job in jobs.objects.all() {
            let held = job.finalizers().iter().any(|one| one == finalizers::OUTCOME);
            let dying = job.metadata.deletion_timestamp.is_some() && look_at(jobs.kind, &job).ended.is_none();
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
    let (troubles, key) = (&fence.knowledge.troubles, roadstead_kubeio::cache::key_of(copy));
    match timely(write::patch(&api, &copy.name_any(), &patch)).await {
        Written::Done(object) => {
            if let Some(attempts) = troubles.ends(&(STOPPING, key.clone())) {
                tracing::info!(workload = %key, attempts, "its job is stopped after failed attempts");
            }
            let origin = object.labels().get(labels::MULTIKUEUE_ORIGIN);
            fence.metrics.fenced(origin.map_or("", String::as_str));
            fence.caches.workloads.observe(*object);
        }
        Written::Gone => {
            troubles.ends(&(STOPPING, key));
        }
        Written::Conflict | Written::AlreadyExists => {}
        Written::Refused(why) | Written::Unclear(why) => {
            if troubles.is_news((STOPPING, key.clone()), &why) {
                tracing::error!(
                    workload = %key,
                    "its manager is cut off and its job could not be stopped, so it may run twice: {why}; it is tried again until it \
                     succeeds; if this is a refusal, let this process patch Workloads (deploy/rights/roadstead-worker.yaml)"
                );
            }
        }
    }
}

/// Removes the manager's finalizer of a deleted job. Only the finalizer keeps the job and its pods, and no outcome will come.
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
    let (troubles, key) = (&fence.knowledge.troubles, roadstead_kubeio::cache::key_of(job));
    match timely(write::patch(&api, &job.name_any(), &patch)).await {
        Written::Done(_) | Written::Gone => {
            troubles.ends(&(LETTING_GO, key));
        }
        Written::Conflict | Written::AlreadyExists => {}
        Written::Refused(why) | Written::Unclear(why) => {
            if troubles.is_news((LETTING_GO, key.clone()), &why) {
                let (kind, finalizer) = (&jobs.resource.kind, finalizers::OUTCOME);
                tracing::error!(
                    job = %key,
                    kind,
                    "this job of a cut-off manager was deleted, but the manager's finalizer {finalizer} cannot be removed, so its pods go \
                     on and it may run twice: {why}; it is tried again until it succeeds; if this is a refusal, let this process patch \
                     {} (deploy/rights/roadstead-worker.yaml)",
                    jobs.resource.plural
                );
            }
        }
    }
}

async fn timely<K>(write: impl Future<Output = Written<K>>) -> Written<K> {
    let answer = tokio::time::timeout(WRITE_MAX, write).await;
    answer.unwrap_or_else(|_elapsed| Written::Unclear("no answer".to_owned()))
}
