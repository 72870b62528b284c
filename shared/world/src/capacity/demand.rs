//! The amounts that one pod takes from a node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::amount::{self, Amounts, ONE};

/// The resource that counts pods.
const PODS: &str = "pods";

/// The amounts that a pod takes from a node, its place among the node's pods included. The error names the unreadable quantity.
///
/// *Source*: `spec/provisioning.md` 14.2 rule 2: containers and sidecars add up, init containers run alone before them,
/// pod-level requests replace the sum, overhead comes on top.
pub(super) fn of_pod(spec: &PodSpec) -> Result<Amounts, String> {
    let mut running = Amounts::new();
    let mut starting = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let asked = of_resources(container.resources.as_ref())?;
        if is_sidecar(container) {
            add(&mut running, &asked);
            raise(&mut starting, &running);
        } else {
            let mut together = running.clone();
            add(&mut together, &asked);
            raise(&mut starting, &together);
        }
    }
    for container in &spec.containers {
        add(&mut running, &of_resources(container.resources.as_ref())?);
    }
    raise(&mut running, &starting);
    running.extend(of_resources(spec.resources.as_ref())?);
    if let Some(overhead) = &spec.overhead {
        add(&mut running, &amount::parse_all(overhead)?);
    }
    running.insert(PODS.to_owned(), ONE);
    Ok(running)
}

/// Why this answerer cannot judge whether such a pod fits; `None` if it can.
///
/// *Source*: `spec/provisioning.md` 14.2 rule 4: a clear refusal rather than a false yes.
pub(super) fn unsupported(spec: &PodSpec) -> Option<&'static str> {
    let affinity = spec.affinity.as_ref();
    let near = affinity
        .and_then(|affinity| affinity.pod_affinity.as_ref())
        .and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref());
    let apart = affinity
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
        .and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref());
    let spread = spec.topology_spread_constraints.iter().flatten();
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let ports = all.flat_map(|container| container.ports.iter().flatten());
    let volumes = spec.volumes.iter().flatten();
    if near.is_some_and(|terms| !terms.is_empty()) {
        Some("required podAffinity")
    } else if apart.is_some_and(|terms| !terms.is_empty()) {
        Some("required podAntiAffinity")
    } else if { spread }.any(|each| each.when_unsatisfiable == "DoNotSchedule") {
        Some("topologySpreadConstraints with DoNotSchedule")
    } else if { ports }.any(|port| port.host_port.is_some_and(|port| port != 0)) {
        Some("hostPort")
    } else if spec
        .resource_claims
        .as_ref()
        .is_some_and(|claims| !claims.is_empty())
    {
        Some("resourceClaims")
    } else if { volumes }.any(|each| each.persistent_volume_claim.is_some() || each.ephemeral.is_some()) {
        Some("persistent volumes")
    } else {
        None
    }
}

pub(super) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let held = sum.entry(name.clone()).or_default();
        *held = held.saturating_add(*amount);
    }
}

fn raise(most: &mut Amounts, to: &Amounts) {
    for (name, amount) in to {
        let held = most.entry(name.clone()).or_default();
        *held = (*held).max(*amount);
    }
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Requests; a limit without a request counts as one, as the API server defaults it.
fn of_resources(resources: Option<&ResourceRequirements>) -> Result<Amounts, String> {
    let none = BTreeMap::<String, Quantity>::new();
    let list = |list: fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>| {
        amount::parse_all(resources.and_then(list).unwrap_or(&none))
    };
    let mut amounts = list(|resources| resources.limits.as_ref())?;
    amounts.extend(list(|resources| resources.requests.as_ref())?);
    Ok(amounts)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn asked(spec: Value) -> Vec<(String, i64)> {
        of_pod(&from_value(spec).unwrap()).unwrap().into_iter().collect()
    }

    fn amounts(list: &[(&str, i64)]) -> Vec<(String, i64)> {
        list.iter()
            .map(|(name, amount)| ((*name).to_owned(), *amount))
            .collect()
    }

    /// Spec: provisioning 14.2 rule 2.
    #[test]
    fn sidecars_add_init_containers_are_a_maximum_and_overhead_comes_on_top() {
        let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let spec = json!({
            "initContainers": [
                {"name": "early", "resources": cpu("3")},
                {"name": "sidecar", "restartPolicy": "Always", "resources": cpu("500m")},
                {"name": "late", "resources": cpu("3")},
            ],
            "containers": [{"name": "a", "resources": cpu("1")}, {"name": "b", "resources": cpu("1")}],
            "overhead": {"cpu": "100m"},
        });
        assert_eq!(asked(spec), amounts(&[("cpu", 3600), ("pods", 1000)]));
    }

    /// Spec: provisioning 14.2 rule 2.
    #[test]
    fn a_limit_stands_in_for_a_missing_request_and_the_pod_level_replaces_the_sum() {
        let spec = json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "2", "cpu": "4"}}}],
            "resources": {"requests": {"cpu": "3"}},
        });
        assert_eq!(
            asked(spec),
            amounts(&[("cpu", 3000), ("nvidia.com/gpu", 2000), ("pods", 1000)])
        );
    }

    /// Spec: provisioning 14.2 rule 4.
    #[test]
    fn what_cannot_be_judged_is_named() {
        let container = json!([{"name": "a"}]);
        for (spec, name) in [
            (json!({"containers": container}), None),
            (
                json!({"containers": container, "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}),
                None,
            ),
            (
                json!({"containers": container, "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
                Some("topologySpreadConstraints with DoNotSchedule"),
            ),
            (
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}]}]}),
                Some("hostPort"),
            ),
            (
                json!({"containers": container, "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}}),
                Some("required podAntiAffinity"),
            ),
            (
                json!({"containers": container, "resourceClaims": [{"name": "gpu"}]}),
                Some("resourceClaims"),
            ),
        ] {
            let parsed: PodSpec = from_value(spec.clone()).unwrap();
            assert_eq!(unsupported(&parsed), name, "{spec}");
        }
    }
}
