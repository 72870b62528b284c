//! Whether a ClusterQueue admits workloads: its condition `Active`.
//!
//! *Source*: `spec/api.md API-2.3`, `spec/multikueue.md 1.5`.

use std::collections::BTreeMap;

use crate::check::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use crate::condition::{Active, Truth};
use crate::name::{CheckName, FlavorName};
use crate::queue::{Check, ClusterQueue, Flavor, StopPolicy};

/// The condition `Active` of a ClusterQueue. *Source*: `spec/api.md API-2.3`, `spec/multikueue.md 1.5`.
pub(super) fn active(
    spec: &ClusterQueue,
    flavors: &BTreeMap<FlavorName, Flavor>,
    checks: &BTreeMap<CheckName, Check>,
) -> Active {
    if spec.terminating {
        return Active::new(
            Truth::False,
            "Terminating",
            "Can't admit new workloads; clusterQueue is terminating",
        );
    }
    let mut parts: Vec<(&'static str, String)> = Vec::new();
    match spec.stop {
        StopPolicy::None => {}
        StopPolicy::Hold | StopPolicy::HoldAndDrain => parts.push(("Stopped", "is stopped".to_owned())),
    }
    let named: Vec<&FlavorName> = spec
        .groups
        .iter()
        .flat_map(|g| &g.flavors)
        .map(|f| &f.name)
        .collect();
    let missing: Vec<&str> = named
        .iter()
        .filter(|name| !flavors.contains_key(**name))
        .map(|name| name.as_str())
        .collect();
    if !missing.is_empty() {
        let text = format!("references missing ResourceFlavor(s): {}", missing.join(","));
        parts.push(("FlavorNotFound", text));
    }
    let federated = check_parts(spec, &named, checks, &mut parts);
    if !federated {
        let topology = named
            .iter()
            .find_map(|name| Some((*name, flavors.get(*name)?.topology.as_ref()?)));
        if let Some((flavor, topology)) = topology {
            // Unlike the anchor: any topology is refused, because topology-aware placement is not built.
            let text = format!(
                "ResourceFlavor \"{flavor}\" names Topology \"{topology}\", but topology-aware scheduling is not supported \
                 yet: use a flavor without topologyName"
            );
            parts.push(("TopologyNotFound", text));
        }
    }
    let Some((reason, _)) = parts.first() else {
        return Active::new(Truth::True, "Ready", "Can admit new workloads");
    };
    let reason = *reason;
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    Active {
        truth: Truth::False,
        reason,
        message: format!("Can't admit new workloads: {}.", texts.join(", ")).into(),
    }
}

/// Adds the problems of the checks; returns whether a MultiKueue check is attached.
fn check_parts(
    spec: &ClusterQueue,
    named: &[&FlavorName],
    checks: &BTreeMap<CheckName, Check>,
    parts: &mut Vec<(&'static str, String)>,
) -> bool {
    let mut rules: Vec<_> = spec.checks.iter().collect();
    rules.sort_by(|a, b| a.name.cmp(&b.name));
    let (mut missing, mut inactive, mut federated, mut provisioning, mut per_flavor) =
        (vec![], vec![], vec![], vec![], vec![]);
    for rule in rules {
        let name = rule.name.as_str();
        let Some(check) = checks.get(&rule.name) else {
            missing.push(name);
            continue;
        };
        if !check.active {
            inactive.push(name);
        }
        match check.controller.as_str() {
            MULTIKUEUE_CONTROLLER => {
                federated.push(name);
                if !rule.on_flavors.is_empty() && !named.iter().all(|flavor| rule.on_flavors.contains(flavor))
                {
                    per_flavor.push(name);
                }
            }
            PROVISIONING_CONTROLLER => provisioning.push(name),
            _ => {}
        }
    }
    if !missing.is_empty() {
        let text = format!("references missing AdmissionCheck(s): {}", missing.join(","));
        parts.push(("AdmissionCheckNotFound", text));
    }
    if !inactive.is_empty() {
        let text = format!("references inactive AdmissionCheck(s): {}", inactive.join(","));
        parts.push(("AdmissionCheckInactive", text));
    }
    if federated.len() > 1 {
        let text = format!(
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}",
            federated.join(",")
        );
        parts.push(("MultipleMultiKueueAdmissionChecks", text));
    }
    if !per_flavor.is_empty() {
        let text = format!(
            "Cannot specify MultiKueue AdmissionCheck per flavor, found: {}",
            per_flavor.join(",")
        );
        parts.push(("MultiKueueAdmissionCheckAppliedPerFlavor", text));
    }
    if !federated.is_empty() && !provisioning.is_empty() {
        let found = [federated.as_slice(), provisioning.as_slice()].concat();
        let text = format!(
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {}",
            found.join(", ")
        );
        parts.push(("MultiKueueWithProvisioningRequest", text));
    }
    !federated.is_empty()
}
