//! Collects orphans: objects of ours on a worker whose Workload is gone on the manager, even if every event about them was
//! missed.
//!
//! Invariant: this module only makes a key due. The usual plan then removes the objects, because the local Workload is missing.
//! Objects of other clients are not seen, because the caches select by origin.

use std::sync::Arc;
use std::time::Duration;

use roadstead_core::bug;
use roadstead_kubeio::queue::Lane;
use tokio_util::sync::CancellationToken;

use crate::dispatch::Dispatch;
use crate::remote::registry::Registry;

/// Looks through all workers every `interval` until `stop`; an interval of zero switches it off.
pub(crate) async fn run(
    dispatch: Dispatch,
    registry: Arc<Registry>,
    interval: Duration,
    stop: CancellationToken,
) {
    if interval.is_zero() {
        return stop.cancelled().await;
    }
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
        for remote in registry.all().iter() {
            for key in remote.held.all() {
                let forgets = bug!(dispatch.policy, OrphanOnUnreachable);
                if !forgets && dispatch.caches.workloads.get(&key).is_none() {
                    tracing::info!(workload = %key, cluster = %remote.name, "its Workload on the manager is gone; removing its copy and its job on the worker");
                    dispatch.metrics.orphan(&remote.name);
                    remote.due.add(key, Lane::New);
                }
            }
        }
    }
}
