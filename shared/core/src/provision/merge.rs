//! Which pod sets a request covers, and which of them are merged. *Source*: `spec/provisioning.md 4.2, 6.2`.

use super::{Check, MergePolicy, Observed, Problem};
use crate::name::PodSetName;
use crate::status::Assignment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    /// The first pod set, whose template is used.
    pub(super) first: PodSetName,
    pub(super) members: Vec<PodSetName>,
    /// The total number of pods.
    pub(super) count: u32,
}

/// The pod sets of a request, in Workload order. Empty: no request is needed.
pub(super) fn pod_sets(
    o: &Observed<'_>,
    check: &Check,
    policy: Option<MergePolicy>,
) -> Result<Vec<Merged>, Problem> {
    let mut merged: Vec<Merged> = Vec::new();
    for pod_set in &o.workload.pod_sets {
        if pod_set.count == 0 || !check.managed.contains(&pod_set.name) {
            continue;
        }
        let name = &pod_set.name;
        let Some(Assignment { count, .. }) = assignment(o, name) else {
            return Err(Problem::NoAssignment {
                pod_set: name.clone(),
            });
        };
        if *count == 0 {
            continue;
        }
        match merged
            .iter_mut()
            .find(|other| alike(o, policy, &other.first, name))
        {
            Some(other) => {
                other.members.push(name.clone());
                other.count = other.count.saturating_add(*count);
            }
            None => merged.push(Merged {
                first: name.clone(),
                members: vec![name.clone()],
                count: *count,
            }),
        }
    }
    Ok(merged)
}

fn alike(o: &Observed<'_>, policy: Option<MergePolicy>, one: &PodSetName, other: &PodSetName) -> bool {
    let (Some(policy), Some(left), Some(right)) = (policy, o.classes.get(one), o.classes.get(other)) else {
        return false;
    };
    let same_template = match policy {
        MergePolicy::IdenticalPodTemplates => left.template == right.template,
        MergePolicy::IdenticalWorkloadSchedulingRequirements => left.scheduling == right.scheduling,
    };
    let flavors = |name| assignment(o, name).map(|assignment| &assignment.flavors);
    // Unlike the anchor: pod sets on different flavors are not merged, otherwise one would lose its node selector.
    same_template && flavors(one) == flavors(other)
}

fn assignment<'a>(o: &Observed<'a>, name: &PodSetName) -> Option<&'a Assignment> {
    let admission = o.workload.status.admission.as_ref()?;
    admission
        .pod_sets
        .iter()
        .find(|assignment| assignment.name == *name)
}
