//! What runs on each worker cluster. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_core::amount::Amount;
use roadstead_core::quantity;
use serde::Serialize;

use crate::cluster::{active, list};
use crate::table::table;

/// Value of `connected` for a cluster on which jobs are placed and that is not registered.
const NOT_REGISTERED: &str = "NotRegistered";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) cluster: String,
    /// `True`, `False`, `Unknown`, or `NotRegistered`.
    pub(super) connected: String,
    /// `cordoned`, `draining` or `leaving`, when it takes nothing new.
    pub(super) closed: Option<String>,
    /// Jobs placed there that have not ended.
    pub(super) placed: usize,
    /// Placed jobs that are admitted: they run, or may run.
    pub(super) running: usize,
    /// Jobs that wait for a worker, and are offered to this one.
    pub(super) offered: usize,
    /// What the placed jobs use, by resource.
    pub(super) used: BTreeMap<String, String>,
}

/// A row for each registered cluster, and for each other one that jobs are placed on.
pub(super) fn rows(clusters: &[MultiKueueCluster], workloads: &[Workload]) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for cluster in clusters {
        let name = cluster.name_any();
        let row = Row {
            cluster: name.clone(),
            connected: active(cluster).map_or_else(|| "Unknown".to_owned(), |c| c.status.clone()),
            closed: list::closed(cluster).map(str::to_owned),
            ..Row::default()
        };
        rows.insert(name, row);
    }
    let mut used: BTreeMap<(String, String), Amount> = BTreeMap::new();
    for workload in workloads.iter().filter(|workload| !workload.is_true("Finished")) {
        if let Some(name) = workload.cluster_name() {
            let row = rows.entry(name.to_owned()).or_insert_with(|| Row {
                cluster: name.to_owned(),
                connected: NOT_REGISTERED.to_owned(),
                ..Row::default()
            });
            row.placed += 1;
            row.running += usize::from(workload.is_true("Admitted"));
            for (resource, amount) in usage(workload) {
                let sum = used.entry((name.to_owned(), resource)).or_insert(Amount::ZERO);
                *sum = sum.plus(amount);
            }
            continue;
        }
        for name in workload
            .status
            .iter()
            .flat_map(|status| &status.nominated_cluster_names)
        {
            if let Some(row) = rows.get_mut(name) {
                row.offered += 1;
            }
        }
    }
    for ((name, resource), amount) in used {
        if let Some(row) = rows.get_mut(&name) {
            let text = quantity::wire(&resource, amount);
            row.used.insert(resource, text);
        }
    }
    rows.into_values().collect()
}

/// What a Workload is admitted with, by resource.
fn usage(workload: &Workload) -> impl Iterator<Item = (String, Amount)> {
    let pod_sets = workload
        .admission()
        .into_iter()
        .flat_map(|admission| &admission.pod_set_assignments);
    pod_sets.flat_map(|pod_set| {
        pod_set.resource_usage.iter().filter_map(|(resource, amount)| {
            Some((resource.clone(), quantity::parse(resource, &amount.0).ok()?))
        })
    })
}

/// The table, for people.
pub(super) fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let header = [
        "CLUSTER",
        "CONNECTED",
        "CLOSED",
        "PLACED",
        "RUNNING",
        "OFFERED",
        "USED",
    ];
    let cells = |row: &Row| {
        let used: Vec<String> = { row.used.iter() }
            .map(|(resource, amount)| format!("{resource}={amount}"))
            .collect();
        vec![
            row.cluster.clone(),
            row.connected.clone(),
            row.closed.clone().unwrap_or_default(),
            row.placed.to_string(),
            row.running.to_string(),
            row.offered.to_string(),
            used.join(","),
        ]
    };
    table(&header, rows.iter().map(cells).collect())
}

#[cfg(test)]
mod tests;
