//! Statuses of ClusterQueues and LocalQueues, written from the brain's reports.
//!
//! Invariant: at most one write per queue and [`PACE`], however many jobs come and go; only what differs is written.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue};
use roadstead_core::report::QueueRef;
use roadstead_kubeio::write::{self, Written};
use tokio_util::sync::CancellationToken;

use crate::brain::Reports;
use crate::caches::Caches;
use crate::clock::Clock;

/// The shortest time between two writes of one queue's status.
const PACE: Duration = Duration::from_secs(1);

/// Writes statuses until `stop`.
pub(crate) async fn run(
    client: Client,
    caches: Caches,
    reports: Arc<Reports>,
    clock: Clock,
    stop: CancellationToken,
) {
    let work = async {
        loop {
            for changed in reports.changed.take().await {
                let result = match &changed {
                    QueueRef::Cluster(name) => {
                        let report = reports.cluster_queue(name);
                        let stored = caches.cluster_queues.named(name.as_str());
                        let (Some(report), Some(stored)) = (report, stored) else {
                            continue;
                        };
                        let patch = roadstead_convert::cluster_queue_status(&stored, &report, clock());
                        let Some(patch) = patch else { continue };
                        let api: Api<ClusterQueue> = Api::all(client.clone());
                        let answer = write::patch_status(&api, name.as_str(), &patch).await;
                        answer.map(|object| {
                            caches.cluster_queues.observe(*object);
                            Box::new(())
                        })
                    }
                    QueueRef::Local(key) => {
                        let report = reports.local_queue(key);
                        let (Some(report), Some(stored)) = (report, caches.local_queues.get(key)) else {
                            continue;
                        };
                        let patch = roadstead_convert::local_queue_status(&stored, &report, clock());
                        let Some(patch) = patch else { continue };
                        let api: Api<LocalQueue> = Api::namespaced(client.clone(), &key.namespace);
                        let answer = write::patch_status(&api, &key.name, &patch).await;
                        answer.map(|object| {
                            caches.local_queues.observe(*object);
                            Box::new(())
                        })
                    }
                };
                match result {
                    Written::Done(_) | Written::Gone | Written::Conflict | Written::AlreadyExists => {}
                    Written::Refused(why) | Written::Unclear(why) => {
                        tracing::warn!(queue = ?changed, "writing a queue's status failed: {why}");
                        reports.changed.mark(changed);
                    }
                }
            }
            tokio::time::sleep(PACE).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
}
