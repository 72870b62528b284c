//! I3, for what configures the federation: at rest its condition `Active` says again that it can be used.
//!
//! Why: a queue, check or worker that is only said to be unusable keeps jobs waiting as surely as one that is.

use super::Findings;
use super::book::{Book, CHECKS, CLUSTERS};
use super::object::{condition, is_deleting, text};

const QUEUES: &[&str] = &["clusterqueues.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"];

pub(super) fn at_rest(book: &Book, findings: &mut Findings) {
    let rules = &book.rules;
    for cluster in std::iter::once(&rules.manager).chain(&rules.workers) {
        for (place, object) in book.all_on(cluster) {
            let resource = &*place.resource;
            let of_ours = resource == CLUSTERS || resource == CHECKS || QUEUES.contains(&resource);
            if !of_ours || is_deleting(object) || book.left.contains(&place.name) {
                continue;
            }
            if let Some(said) = condition(object, "Active").filter(|active| active["status"] != "True") {
                let why = text(said, &["message"]);
                findings.of("I3", place, None, format!("it is not said to be usable: {why}"));
            }
        }
    }
}
