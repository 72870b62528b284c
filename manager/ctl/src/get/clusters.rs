//! A worker cluster as one line.

use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;

use super::Row;
use crate::cluster::{active, list, secret_of};

pub(super) const COLUMNS: &[&str] = &["NAME", "CONNECTED", "CLOSED"];
pub(super) const WIDE: &[&str] = &["SECRET", "REASON"];

pub(super) fn row(cluster: &MultiKueueCluster) -> Row {
    let active = active(cluster);
    Row {
        cells: vec![
            cluster.name_any(),
            active.map_or_else(|| "Unknown".to_owned(), |active| active.status.clone()),
            list::closed(cluster).unwrap_or_default().to_owned(),
        ],
        wide: vec![
            secret_of(cluster).unwrap_or_default().to_owned(),
            active.map_or_else(String::new, |active| {
                format!("{}: {}", active.reason, active.message)
            }),
        ],
    }
}
