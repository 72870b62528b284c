//! The checks that a Workload must pass, and the message of their verdicts.

use std::collections::BTreeSet;

use crate::name::{CheckName, FlavorName};
use crate::queue::{CheckRule, ClusterQueue};
use crate::status::{Admission, CheckPhase, Status};

/// The checks that a Workload must pass in a `ClusterQueue`. With an admission they are those for the assigned flavors; without one those
/// that cover all flavors of the queue.
///
/// *Source*: `spec/admission-engine.md 3.2`.
pub fn required_checks(queue: &ClusterQueue, admission: Option<&Admission>) -> BTreeSet<CheckName> {
    let assigned: Option<BTreeSet<&FlavorName>> = admission.map(|admission| {
        admission
            .pod_sets
            .iter()
            .flat_map(|set| set.flavors.values())
            .collect()
    });
    let offered: BTreeSet<&FlavorName> = queue
        .groups
        .iter()
        .flat_map(|group| group.flavors.iter().map(|flavor| &flavor.name))
        .collect();
    let applies = |rule: &&CheckRule| {
        rule.on_flavors.is_empty()
            || match &assigned {
                Some(assigned) => rule.on_flavors.iter().any(|flavor| assigned.contains(flavor)),
                None => !offered.is_empty() && offered.iter().all(|flavor| rule.on_flavors.contains(flavor)),
            }
    };
    queue
        .checks
        .iter()
        .filter(applies)
        .map(|rule| rule.name.clone())
        .collect()
}

/// The joint message of the checks in this phase; `None` when there are none.
///
/// *Source*: `spec/provisioning.md 7`: `AdmissionCheck in Retry state: "a" (m)`, or with several
/// `AdmissionChecks in Retry state: "a" (m1); "b" (m2)`, sorted by name, without an empty parenthesis.
pub(super) fn text_of(status: &Status, phase: CheckPhase) -> Option<String> {
    let told: Vec<String> = status
        .checks
        .iter()
        .filter(|(_, check)| check.phase == phase)
        .map(|(name, check)| match check.message.as_str() {
            "" => format!("\"{name}\""),
            message => format!("\"{name}\" ({message})"),
        })
        .collect();
    let noun = match told.len() {
        0 => return None,
        1 => "AdmissionCheck",
        _ => "AdmissionChecks",
    };
    Some(format!("{noun} in {} state: {}", phase.as_str(), told.join("; ")))
}
