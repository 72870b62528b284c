//! Quota and use of each queue, one row for each flavor and resource. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::{ClusterQueue, FlavorUsage, LocalQueue, LocalQueueFlavorUsage};
use serde::Serialize;

use crate::objects::Scope;
use crate::table::table;

/// Amount of a resource as the API writes it.
const ZERO: &str = "0";

/// One resource of one flavor in one queue. A queue without quota has one row without flavor and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// Namespace of a LocalQueue; a ClusterQueue has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cohort: Option<String>,
    pub(super) flavor: Option<String>,
    pub(super) resource: Option<String>,
    /// Quota of admitted jobs: they run, or may run.
    pub(super) used: Option<String>,
    /// Quota of all jobs that hold some, including those that wait for a worker.
    pub(super) reserved: Option<String>,
    /// Nominal quota; only ClusterQueues have it.
    pub(super) nominal: Option<String>,
    /// The part of the reserved quota that is borrowed from the cohort.
    pub(super) borrowed: Option<String>,
    /// Jobs that wait for quota.
    pub(super) waiting: i32,
    pub(super) admitted: i32,
}

/// Flavor and resource.
type Place<'a> = (&'a str, &'a str);

pub(super) fn of_cluster_queues(queues: &[ClusterQueue]) -> Vec<Row> {
    queues.iter().flat_map(of_cluster_queue).collect()
}

fn of_cluster_queue(queue: &ClusterQueue) -> Vec<Row> {
    let status = queue.status.clone().unwrap_or_default();
    let used = totals(&status.flavors_usage);
    let reserved = totals(&status.flavors_reservation);
    let mut borrowed = BTreeMap::new();
    for flavor in &status.flavors_reservation {
        for used in &flavor.resources {
            borrowed.insert(
                (flavor.name.as_str(), used.name.as_str()),
                used.borrowed.0.as_str(),
            );
        }
    }
    let row = Row {
        queue: queue.name_any(),
        cohort: queue.spec.cohort_name.clone().filter(|name| !name.is_empty()),
        waiting: status.pending_workloads,
        admitted: status.admitted_workloads,
        ..Row::default()
    };
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    let quotas = flavors.flat_map(|flavor| flavor.resources.iter().map(move |quota| (flavor, quota)));
    let amount = |of: &BTreeMap<Place<'_>, &str>, at: Place<'_>| {
        let amount = of.get(&at).copied().filter(|amount| !amount.is_empty());
        Some(amount.unwrap_or(ZERO).to_owned())
    };
    let rows = quotas.map(|(flavor, quota)| {
        let at = (flavor.name.as_str(), quota.name.as_str());
        Row {
            flavor: Some(flavor.name.clone()),
            resource: Some(quota.name.clone()),
            used: amount(&used, at),
            reserved: amount(&reserved, at),
            nominal: Some(quota.nominal_quota.0.clone()),
            borrowed: amount(&borrowed, at),
            ..row.clone()
        }
    });
    or_bare(rows.collect(), row.clone())
}

pub(super) fn of_local_queues(queues: &[LocalQueue]) -> Vec<Row> {
    queues.iter().flat_map(of_local_queue).collect()
}

fn of_local_queue(queue: &LocalQueue) -> Vec<Row> {
    let status = queue.status.clone().unwrap_or_default();
    let used = local_totals(&status.flavors_usage);
    let reserved = local_totals(&status.flavors_reservation);
    let row = Row {
        namespace: queue.namespace(),
        queue: queue.name_any(),
        waiting: status.pending_workloads,
        admitted: status.admitted_workloads,
        ..Row::default()
    };
    let rows = reserved.iter().map(|(at, amount)| Row {
        flavor: Some(at.0.to_owned()),
        resource: Some(at.1.to_owned()),
        used: Some(used.get(at).copied().unwrap_or(ZERO).to_owned()),
        reserved: Some((*amount).to_owned()),
        ..row.clone()
    });
    or_bare(rows.collect(), row.clone())
}

fn or_bare(rows: Vec<Row>, bare: Row) -> Vec<Row> {
    if rows.is_empty() { vec![bare] } else { rows }
}

fn totals(usage: &[FlavorUsage]) -> BTreeMap<Place<'_>, &str> {
    let mut totals = BTreeMap::new();
    for flavor in usage {
        for used in &flavor.resources {
            totals.insert((flavor.name.as_str(), used.name.as_str()), used.total.0.as_str());
        }
    }
    totals
}

fn local_totals(usage: &[LocalQueueFlavorUsage]) -> BTreeMap<Place<'_>, &str> {
    let mut totals = BTreeMap::new();
    for flavor in usage {
        for used in &flavor.resources {
            totals.insert((flavor.name.as_str(), used.name.as_str()), used.total.0.as_str());
        }
    }
    totals
}

/// For people: LocalQueues when a scope is given, else ClusterQueues.
pub(super) fn render(rows: &[Row], scope: Option<&Scope>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut header = vec!["QUEUE"];
    match scope {
        Some(Scope::All) => header.insert(0, "NAMESPACE"),
        Some(Scope::One(_)) => {}
        None => header.push("COHORT"),
    }
    header.extend(["FLAVOR", "RESOURCE", "USED", "RESERVED"]);
    if scope.is_none() {
        header.extend(["NOMINAL", "BORROWED"]);
    }
    header.extend(["WAITING", "ADMITTED"]);
    let cells = |row: &Row| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let cell = |name: &&str| match *name {
            "NAMESPACE" => text(&row.namespace),
            "QUEUE" => row.queue.clone(),
            "COHORT" => text(&row.cohort),
            "FLAVOR" => text(&row.flavor),
            "RESOURCE" => text(&row.resource),
            "USED" => text(&row.used),
            "RESERVED" => text(&row.reserved),
            "NOMINAL" => text(&row.nominal),
            "BORROWED" => text(&row.borrowed),
            "WAITING" => row.waiting.to_string(),
            _ => row.admitted.to_string(),
        };
        header.iter().map(cell).collect()
    };
    table(&header, rows.iter().map(cells).collect())
}

#[cfg(test)]
mod tests;
