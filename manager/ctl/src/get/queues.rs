//! A LocalQueue as one line.

use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::LocalQueue;

use super::Row;

pub(super) const COLUMNS: &[&str] = &["NAME", "CLUSTERQUEUE", "ACTIVE", "WAITING", "ADMITTED"];
pub(super) const WIDE: &[&str] = &["RESERVING", "REASON"];

pub(super) fn row(queue: &LocalQueue) -> Row {
    let status = queue.status.clone().unwrap_or_default();
    let active = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Active");
    Row {
        cells: vec![
            queue.name_any(),
            queue.spec.cluster_queue.clone(),
            active.map_or_else(|| "Unknown".to_owned(), |active| active.status.clone()),
            status.pending_workloads.to_string(),
            status.admitted_workloads.to_string(),
        ],
        wide: vec![
            status.reserving_workloads.to_string(),
            active.map_or_else(String::new, |active| {
                format!("{}: {}", active.reason, active.message)
            }),
        ],
    }
}
