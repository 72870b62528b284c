//! I3, for the objects that configure the federation: at rest their condition `Active` is True again, and a queue counts the
//! Workloads that hold its quota (I4).
//!
//! Why: jobs wait for ever if a queue, check or worker is wrongly shown as unusable, or if an engine counts quota as held that no
//! Workload holds.

use super::Findings;
use super::book::{Book, CHECKS, CLUSTERS};
use super::object::{WORKLOADS, at, condition, holds_quota, is_deleting, text};

const CLUSTER_QUEUES: &str = "clusterqueues.kueue.x-k8s.io";
const QUEUES: &[&str] = &[CLUSTER_QUEUES, "localqueues.kueue.x-k8s.io"];

pub(super) fn at_rest(book: &Book, findings: &mut Findings) {
    let rules = &book.rules;
    for cluster in std::iter::once(&rules.manager).chain(&rules.workers) {
        for (place, object) in book.all_on(cluster) {
            let resource = &*place.resource;
            let of_ours = resource == CLUSTERS || resource == CHECKS || QUEUES.contains(&resource);
            if !of_ours || is_deleting(object) || book.left.contains(&place.name) {
                continue;
            }
            if let Some(counted) = at(object, &["status", "reservingWorkloads"]).as_u64() {
                let held = { book.all_of(cluster, WORKLOADS) }.filter(|(_, workload)| {
                    let queue = text(workload, &["status", "admission", "clusterQueue"]);
                    holds_quota(workload) && queue == &*place.name
                });
                let held = held.count();
                if resource == CLUSTER_QUEUES && u64::try_from(held) != Ok(counted) {
                    let what = format!("it says that {counted} Workloads hold its quota, and {held} do");
                    findings.of("I4", place, None, what);
                }
            }
            if let Some(said) = condition(object, "Active").filter(|active| active["status"] != "True") {
                let why = text(said, &["message"]);
                findings.of("I3", place, None, format!("it is not said to be usable: {why}"));
            }
        }
    }
}
