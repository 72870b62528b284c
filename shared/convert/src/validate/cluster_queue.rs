//! The rules for a ClusterQueue. *Source*: `spec/api.md API-2.4`.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use roadstead_api::config::{FeatureGate, FeatureGates};
use roadstead_api::constants::annotations;
use roadstead_api::constants::labels::is_label_value;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_jobs::problem::{LABEL_KEY_RULE, LABEL_VALUE_RULE, Problem, is_label_key};

use super::quotas::{self, Holder};

/// *Limit*: flavors of a ClusterQueue with `concurrentAdmissionPolicy`.
const CONCURRENT_FLAVORS_MAX: usize = 16;

/// Checks a ClusterQueue that is being created (`old` is `None`) or changed. An empty list means that it is valid.
pub fn cluster_queue(
    old: Option<&api::ClusterQueue>,
    new: &api::ClusterQueue,
    gates: &FeatureGates,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let spec = &new.spec;
    let holder = match spec.cohort_name.as_deref() {
        None | Some("") => Holder::LoneQueue,
        Some(_) => Holder::QueueInCohort,
    };
    quotas::groups(&spec.resource_groups, holder, &mut problems);
    if let Some(namespaces) = &spec.namespace_selector {
        selector("spec.namespaceSelector", namespaces, &mut problems);
    }
    quotas::weight(spec.fair_sharing.as_ref(), &mut problems);
    on_flavors(old, new, gates, &mut problems);
    concurrent(old, new, gates, &mut problems);
    lost_policy(old, new, &mut problems);
    problems
}

/// Checks the policy for lost workers. Unlike the anchor: the annotation is ours. An unknown word would silently mean the default, which
/// stops runs.
///
/// *Source*: `spec/safety.md 3.5`.
fn lost_policy(old: Option<&api::ClusterQueue>, new: &api::ClusterQueue, problems: &mut Vec<Problem>) {
    let word = |queue: &api::ClusterQueue| {
        let annotations = queue.metadata.annotations.as_ref()?;
        annotations.get(annotations::WORKER_LOST_POLICY).cloned()
    };
    let Some(said) = word(new) else { return };
    // Why an old unknown word may stay: it must not block every other change.
    let is_known = crate::lost_policy(new.metadata.annotations.as_ref()).is_some();
    if !is_known && old.and_then(word).as_ref() != Some(&said) {
        let field = format!("metadata.annotations[{}]", annotations::WORKER_LOST_POLICY);
        problems.push(Problem::not_supported(
            field,
            &said,
            &["Wait", "Fence", "RetryAnyway"],
        ));
    }
}

fn selector(path: &str, selector: &LabelSelector, problems: &mut Vec<Problem>) {
    for (key, value) in selector.match_labels.iter().flatten() {
        let field = format!("{path}.matchLabels");
        key_and_values(&field, key, std::slice::from_ref(value), problems);
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = expression.values.as_deref().unwrap_or_default();
        key_and_values(&path, &expression.key, values, problems);
        match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when operator is In or NotIn";
                problems.push(Problem::required(format!("{path}.values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when operator is Exists or DoesNotExist";
                problems.push(Problem::forbidden(format!("{path}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => problems.push(Problem::not_supported(
                format!("{path}.operator"),
                other,
                &["In", "NotIn", "Exists", "DoesNotExist"],
            )),
        }
    }
}

fn key_and_values(path: &str, key: &str, values: &[String], problems: &mut Vec<Problem>) {
    if !is_label_key(key) {
        problems.push(Problem::invalid(path, LABEL_KEY_RULE).of(key));
    }
    for value in values.iter().filter(|value| !is_label_value(value)) {
        problems.push(Problem::invalid(path, LABEL_VALUE_RULE).of(value));
    }
}

fn flavors(queue: &api::ClusterQueue) -> impl Iterator<Item = &str> {
    let groups = queue.spec.resource_groups.iter();
    groups.flat_map(|group| group.flavors.iter().map(|flavor| flavor.name.as_str()))
}

fn rules(queue: &api::ClusterQueue) -> &[api::AdmissionCheckStrategyRule] {
    let strategy = queue.spec.admission_checks_strategy.as_ref();
    strategy.map_or(&[], |strategy| &strategy.admission_checks)
}

/// Rule 9: the flavors that an admission check names must be flavors of this queue.
fn on_flavors(
    old: Option<&api::ClusterQueue>,
    new: &api::ClusterQueue,
    gates: &FeatureGates,
    problems: &mut Vec<Problem>,
) {
    let known: BTreeSet<&str> = flavors(new).collect();
    let allowed: Vec<&str> = known.iter().copied().collect();
    let tolerant = !gates.enabled(FeatureGate::RejectUpdatesToCQWithInvalidOnFlavors);
    for (index, rule) in rules(new).iter().enumerate() {
        if tolerant && old.is_some_and(|old| was_as_wrong(old, rule)) {
            continue;
        }
        for (at, name) in rule.on_flavors.iter().enumerate() {
            if !known.contains(name.as_str()) {
                let field = format!("spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{at}]");
                problems.push(Problem::not_supported(field, name, &allowed));
            }
        }
    }
}

/// Whether the stored queue already has the same `onFlavors` for this check, with a flavor that the stored queue lacks.
fn was_as_wrong(old: &api::ClusterQueue, rule: &api::AdmissionCheckStrategyRule) -> bool {
    let known: BTreeSet<&str> = flavors(old).collect();
    let same = rules(old).iter().find(|before| before.name == rule.name);
    same.is_some_and(|before| {
        before.on_flavors == rule.on_flavors
            && before
                .on_flavors
                .iter()
                .any(|name| !known.contains(name.as_str()))
    })
}

/// What a ClusterQueue asks for in vain, for its administrator to read.
pub fn cluster_queue_warnings(queue: &api::ClusterQueue) -> Vec<String> {
    let concurrent = queue.spec.concurrent_admission_policy.is_some();
    let text = "spec.concurrentAdmissionPolicy has no effect: concurrent admission is not built yet";
    concurrent.then(|| text.to_owned()).into_iter().collect()
}

/// Rule 10: concurrent admission.
fn concurrent(
    old: Option<&api::ClusterQueue>,
    new: &api::ClusterQueue,
    gates: &FeatureGates,
    problems: &mut Vec<Problem>,
) {
    const FIELD: &str = "spec.concurrentAdmissionPolicy";
    let spec = &new.spec;
    if old.is_some_and(|old| old.spec.concurrent_admission_policy != spec.concurrent_admission_policy) {
        problems.push(Problem::invalid(FIELD, "field is immutable"));
    }
    let Some(policy) = &spec.concurrent_admission_policy else {
        return;
    };
    if !gates.enabled(FeatureGate::ConcurrentAdmission) {
        return;
    }
    if spec.resource_groups.len() != 1 {
        let why = "must have exactly one resource group when concurrentAdmissionPolicy is set";
        let found = spec.resource_groups.len().to_string();
        problems.push(Problem::invalid("spec.resourceGroups", why).of(&found));
    }
    let count = flavors(new).count();
    if count > CONCURRENT_FLAVORS_MAX {
        let field = "spec.resourceGroups[*].flavors";
        problems.push(Problem::too_many(field, count, CONCURRENT_FLAVORS_MAX));
    }
    if spec.queueing_strategy == api::QueueingStrategy::StrictFifo {
        let why = "must not be StrictFIFO when concurrentAdmissionPolicy is set";
        problems.push(Problem::invalid("spec.queueingStrategy", why).of("StrictFIFO"));
    }
    let Some(constraints) = &policy.migration.constraints else {
        return;
    };
    if policy.migration.mode != api::ConcurrentAdmissionMigrationMode::TryPreferredFlavors {
        let why = "may only be set with migration mode TryPreferredFlavors";
        problems.push(Problem::forbidden(format!("{FIELD}.migration.constraints"), why));
    }
    if let Some(last) = &constraints.last_acceptable_flavor_name
        && flavors(new).all(|name| name != last)
    {
        let field = format!("{FIELD}.migration.constraints.lastAcceptableFlavorName");
        let allowed: Vec<&str> = flavors(new).collect();
        problems.push(Problem::not_supported(field, last, &allowed));
    }
}

#[cfg(test)]
mod tests;
