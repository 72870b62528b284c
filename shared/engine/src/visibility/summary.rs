//! The list of pending workloads, as the API shows it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use roadstead_api::visibility::GROUP;
use roadstead_core::name::Key;
use roadstead_core::state::PendingEntry;
use serde_json::{Value, json};

use super::page::Page;
use crate::caches::Caches;

/// A workload and its zero-based places in the ClusterQueue and in its LocalQueue.
struct Placed<'a> {
    entry: &'a PendingEntry,
    in_cluster_queue: usize,
    in_local_queue: usize,
}

/// `entries` must begin with the first entry of the queue.
fn placed(entries: &[PendingEntry]) -> impl Iterator<Item = Placed<'_>> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    entries.iter().enumerate().map(move |(in_cluster_queue, entry)| {
        let count = counts
            .entry((&entry.key.namespace, &entry.local_queue))
            .or_default();
        let in_local_queue = *count;
        *count += 1;
        Placed {
            entry,
            in_cluster_queue,
            in_local_queue,
        }
    })
}

/// The page of all workloads of a ClusterQueue.
pub(super) fn of_cluster_queue(
    version: &str,
    entries: &[PendingEntry],
    page: Page,
    caches: &Caches,
) -> Value {
    render(version, &page.of(placed(entries)), caches)
}

/// The page of those that came through one LocalQueue.
pub(super) fn of_local_queue(
    version: &str,
    entries: &[PendingEntry],
    queue: &Key,
    page: Page,
    caches: &Caches,
) -> Value {
    let ours = placed(entries).filter(|placed| {
        placed.entry.key.namespace == queue.namespace && placed.entry.local_queue == *queue.name
    });
    render(version, &page.of(ours), caches)
}

fn render(version: &str, items: &[Placed<'_>], caches: &Caches) -> Value {
    let items: Vec<Value> = items.iter().map(|item| workload(item, caches)).collect();
    json!({
        "kind": "PendingWorkloadsSummary",
        "apiVersion": format!("{GROUP}/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn workload(placed: &Placed<'_>, caches: &Caches) -> Value {
    let entry = placed.entry;
    let stored = caches.workloads.get(&entry.key);
    let stored = stored.filter(|workload| workload.metadata.uid.as_deref() == Some(entry.uid.as_str()));
    let metadata = ObjectMeta {
        name: Some(entry.key.name.to_string()),
        namespace: Some(entry.key.namespace.to_string()),
        creation_timestamp: Some(Time(entry.created)),
        owner_references: stored.and_then(|workload| workload.metadata.owner_references.clone()),
        ..ObjectMeta::default()
    };
    json!({
        "metadata": metadata,
        "priority": entry.priority,
        "localQueueName": entry.local_queue,
        "positionInClusterQueue": placed.in_cluster_queue,
        "positionInLocalQueue": placed.in_local_queue,
    })
}
