//! I5: each object that the manager made on a worker still has an owner there or on the manager.

use serde_json::Value;

use super::Findings;
use super::book::{Book, Name, Place};
use super::hands::LEASES;
use super::object::{
    PODS, WORKLOADS, controller, epoch, holds_quota, is_deleting, is_live_pod, is_offered, is_true, list,
    origin, uid, winner,
};
use super::word::Words;

/// Prefixes of finalizers that the federation or the cluster itself takes off.
const OWN_FINALIZERS: &[&str] = &[
    "kueue.x-k8s.io/",
    "roadstead.dev/",
    "batch.kubernetes.io/",
    "foregroundDeletion",
    "orphan",
];

/// At rest the manager has had time for one garbage collection, so no object without an owner may be left on a worker.
pub(super) fn at_rest(book: &Book, words: &Words, findings: &mut Findings) {
    for cluster in &book.rules.workers {
        if book.left.contains(cluster.as_str()) || words.is_abandoned(cluster) {
            continue;
        }
        for (place, object) in book.all_on(cluster) {
            let Some(case) = book.case_of(place, object) else {
                // Why: the lease belongs to no job. The manager has no right to delete it, so it stays on a worker that has left
                // until `roadstead cluster leave` deletes it.
                let is_lease = *place.resource == *LEASES;
                if origin(object) == book.rules.origin && !is_lease {
                    let what = "it bears our origin and names no Workload".to_owned();
                    findings.of("I5", place, None, what);
                }
                continue;
            };
            let is_made = *place.resource == *PODS && !controller(object).is_empty();
            let complaint = if is_made || book.is_child(place, object) {
                ownerless(book, cluster, object)
            } else if origin(object) == book.rules.origin && !somebody_else_holds(object) {
                unwanted(book, place, &case, object)
            } else {
                None
            };
            if let Some(what) = complaint {
                findings.of("I5", place, Some(&case), what);
            }
        }
    }
}

/// Why the manager should have deleted this copy or job on a worker; `None` if the manager still wants it.
fn unwanted(book: &Book, place: &Place, case: &Name, object: &Value) -> Option<String> {
    let Some(local) = book.local(case).filter(|local| !is_deleting(local)) else {
        return Some("the manager has no Workload for it".to_owned());
    };
    let cluster = &*place.cluster;
    let chosen = winner(local);
    if is_true(local, "Finished") {
        return Some("the manager's Workload is Finished".to_owned());
    }
    if !holds_quota(local) {
        return Some("the manager's Workload holds no quota".to_owned());
    }
    let wanted = if *place.resource == *WORKLOADS {
        chosen == cluster || (chosen.is_empty() && is_offered(local, cluster))
    } else {
        chosen == cluster
    };
    if !wanted {
        return Some(format!("the manager's Workload is on \"{chosen}\""));
    }
    if is_deleting(object) {
        return Some("it is being deleted and does not go".to_owned());
    }
    match (epoch(local), epoch(object)) {
        (Some(now), Some(then)) if now != then => Some(format!("it is of dispatch {then}, now is {now}")),
        _ => None,
    }
}

/// A pod whose job is gone, or a job whose owner is gone.
fn ownerless(book: &Book, cluster: &str, child: &Value) -> Option<String> {
    let owner = controller(child);
    let there = book.all_on(cluster).any(|(_, object)| uid(object) == owner);
    (is_live_pod(child) && !owner.is_empty() && !there).then(|| "its job is gone and it lives on".to_owned())
}

/// Whether a client outside the federation keeps an object that is being deleted.
fn somebody_else_holds(object: &Value) -> bool {
    is_deleting(object)
        && list(object, &["metadata", "finalizers"])
            .iter()
            .filter_map(Value::as_str)
            .any(|finalizer| !OWN_FINALIZERS.iter().any(|own| finalizer.starts_with(own)))
}
