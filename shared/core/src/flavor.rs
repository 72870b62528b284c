//! Which flavors suit a pod set, and what a refusal means.
//!
//! The search for the flavors that a workload gets is a part of [`nominate`](crate::nominate). *Source*: `spec/admission-engine.md 2.5`.

use std::collections::BTreeMap;

use crate::name::FlavorName;
use crate::queue::Flavor;
use crate::taint::{Effect, Taint, Toleration};
use crate::workload::{AffinityTerm, PodSet};

/// Why a workload was refused, from least to most severe. *Source*: `spec/admission-engine.md 2.5.6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// It would fit if others released quota.
    WaitingForQuota,
    /// It requests more than the queue could ever give.
    ExceedsMaxQuota,
    /// No flavor suits it.
    NoMatchingFlavor,
}

/// What could turn a refusal into a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Released quota, or another configuration.
    Capacity,
    /// Only another configuration.
    Configuration,
}

/// The cluster that places pods by topology, if their pod set asks for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// This one. *Limit*: topology-aware placement is not built, so no flavor suits such a pod set.
    Here,
    /// A worker of the federation, or none, because the gate is off.
    Elsewhere,
}

/// What no flavor supports, and the way out. Why the way out: the reference has flavors for such pods, so its users would look for one.
pub(crate) const UNPLACED: &str =
    "TopologyAwareScheduling, which is not built here: remove the topology annotations of the pod template";

/// Whether the nodes of a flavor accept the pods of a pod set; else the reason. *Source*: `spec/admission-engine.md 2.5.2`.
pub(crate) fn suits(
    flavors: &BTreeMap<FlavorName, Flavor>,
    name: &FlavorName,
    pod_set: &PodSet,
    placement: Placement,
) -> Result<(), String> {
    let Some(flavor) = flavors.get(name) else {
        return Err(format!("flavor {name} not found"));
    };
    if pod_set.asks_topology && placement == Placement::Here {
        return Err(format!("Flavor \"{name}\" does not support {UNPLACED}"));
    }
    if let Some(taint) = flavor
        .taints
        .iter()
        .find(|taint| !tolerated(taint, &pod_set.tolerations) && !tolerated(taint, &flavor.tolerations))
    {
        return Err(format!(
            "untolerated taint {{{} {} {} {}}} in flavor {name}",
            taint.key,
            taint.value,
            effect(taint.effect),
            taint.time_added.as_deref().unwrap_or("<nil>")
        ));
    }
    if selected(flavor, pod_set) {
        Ok(())
    } else {
        Err(format!("flavor {name} doesn't match node affinity"))
    }
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::NoSchedule => "NoSchedule",
        Effect::PreferNoSchedule => "PreferNoSchedule",
        Effect::NoExecute => "NoExecute",
    }
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    taint.effect == Effect::PreferNoSchedule || tolerations.iter().any(|t| tolerates(t, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let Toleration {
        key,
        operator,
        value,
        effect: on,
        // Why: how long a NoExecute taint is tolerated matters only once the pod runs, not for the choice.
        seconds: _,
    } = toleration;
    let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let exists = operator.as_deref() == Some("Exists");
    let on_fits = given(on).is_none_or(|on| on == effect(taint.effect));
    let key_fits = given(key).map_or(exists, |key| key == taint.key);
    on_fits && key_fits && (exists || value.as_deref().unwrap_or("") == taint.value)
}

/// Node selector and required affinity, restricted to the keys that the flavor defines.
fn selected(flavor: &Flavor, pod_set: &PodSet) -> bool {
    let labels = &flavor.node_labels;
    let by_selector = { pod_set.node_selector.iter() }
        .all(|(key, value)| labels.get(key).is_none_or(|defined| defined == value));
    let term_fits = |term: &AffinityTerm| {
        term.expressions
            .iter()
            .filter(|e| labels.contains_key(&e.key))
            .all(|e| e.matches(labels))
    };
    by_selector && (pod_set.affinity.is_empty() || pod_set.affinity.iter().any(term_fits))
}

#[cfg(test)]
mod tests;
