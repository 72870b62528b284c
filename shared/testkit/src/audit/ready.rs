//! I3, for what configures the federation: at rest its condition `Active` says again that it can be used, and a queue counts as
//! held what is held (I4).
//!
//! Why: a queue, check or worker that is only said to be unusable keeps jobs waiting as surely as one that is; so does quota
//! that an engine takes for held and that nobody holds (seed 24087).

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
