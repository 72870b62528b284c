//! Rules that the type of one key cannot express: ranges, lists without repetition, keys that exclude each other.
//!
//! Messages in quotation marks in the specification are used unchanged. Source: spec/api.md API-13, spec/multikueue.md 7,
//! spec/jobs.md 3.

mod federation;
mod metrics;
pub(super) mod wrappers;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use roadstead_api::config::{
    Config, FeatureGate, Health, LabelSelector, PreemptionStrategy, QuotaCheckStrategy, SelectorOperator,
    TlsVersion,
};
use roadstead_kinds::{Kinds, rows};

use super::Findings;
use crate::tls;

const AT_LEAST_ZERO: &str = "must be greater than or equal to 0";
const ABOVE_ZERO: &str = "must be greater than 0";
const DEVICE_CLASS_MAPPINGS_MAX: usize = 16;
const TOKEN_LIFETIME_SECONDS_MIN: i64 = 600;
pub(super) fn check(config: &Config, kinds: Kinds, findings: &mut Findings) {
    namespaces(config, kinds, findings);
    process(config, findings);
    listeners(config, findings);
    pods_ready(config, findings);
    integrations(config, kinds, findings);
    fair_sharing(config, findings);
    resources(config, findings);
    metrics::check(config, findings);
    federation::check(&config.multi_kueue, kinds, findings);
    roadstead(config, findings);
    wrappers::check(config, findings);
}

fn not_negative(path: &str, span: SignedDuration, findings: &mut Findings) {
    if span.is_negative() {
        findings.add(path, AT_LEAST_ZERO);
    }
}

fn repeated<'a, T: Ord + 'a>(items: impl IntoIterator<Item = T>) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    items
        .into_iter()
        .enumerate()
        .filter_map(|(index, item)| (!seen.insert(item)).then_some(index))
        .collect()
}

fn selector(path: &str, selector: &LabelSelector, findings: &mut Findings) {
    for (index, requirement) in selector.match_expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}].values");
        match requirement.operator {
            SelectorOperator::In | SelectorOperator::NotIn if requirement.values.is_empty() => {
                findings.add(path, "must not be empty for the operators In and NotIn");
            }
            SelectorOperator::Exists | SelectorOperator::DoesNotExist if !requirement.values.is_empty() => {
                findings.add(path, "must be empty for the operators Exists and DoesNotExist");
            }
            SelectorOperator::In
            | SelectorOperator::NotIn
            | SelectorOperator::Exists
            | SelectorOperator::DoesNotExist => {}
        }
    }
}

fn spares_system(path: &str, written: &LabelSelector, own: &str, findings: &mut Findings) {
    selector(path, written, findings);
    for namespace in BTreeSet::from(["kube-system", own]) {
        if written.matches_namespace_named(namespace) {
            // Wire: the message of spec/jobs.md 3.
            findings.add(path, format!("should not match the \"{namespace}\" namespace"));
        }
    }
}

fn namespaces(config: &Config, kinds: Kinds, findings: &mut Findings) {
    if !is_dns_label(&config.namespace) {
        findings.add(
            "namespace",
            format!("`{}` is not the name of a namespace", config.namespace),
        );
    }
    let path = "managedJobsNamespaceSelector";
    spares_system(
        path,
        &config.managed_jobs_namespace_selector,
        &config.namespace,
        findings,
    );
    let pods = config
        .integrations
        .frameworks
        .iter()
        .filter_map(|name| kinds.named(name))
        // Why also kinds that work through pods: each of them enables the pod webhook. Source: spec/jobs.md 4.1.
        .any(|kind| kind == &rows::POD || kind.implies == Some(rows::POD.framework));
    let Some(options) = &config.integrations.pod_options else {
        return;
    };
    if let Some(namespaces) = options.namespace_selector.as_ref().filter(|_| pods) {
        spares_system(
            "integrations.podOptions.namespaceSelector",
            namespaces,
            &config.namespace,
            findings,
        );
    }
    if let Some(pods) = &options.pod_selector {
        selector("integrations.podOptions.podSelector", pods, findings);
    }
}

fn process(config: &Config, findings: &mut Findings) {
    let lease = &config.leader_election;
    if lease.resource_lock != "leases" {
        findings.add(
            "leaderElection.resourceLock",
            "unsupported value; supported is `leases`",
        );
    }
    if lease.retry_period <= SignedDuration::ZERO {
        findings.add("leaderElection.retryPeriod", ABOVE_ZERO);
    }
    if lease.renew_deadline <= lease.retry_period {
        findings.add("leaderElection.renewDeadline", "must be longer than retryPeriod");
    }
    if lease.lease_duration <= lease.renew_deadline {
        findings.add(
            "leaderElection.leaseDuration",
            "must be longer than renewDeadline",
        );
    }
    for (kind, count) in &config.group_kind_concurrency {
        if *count == 0 {
            findings.add(format!("controller.groupKindConcurrency.{kind}"), ABOVE_ZERO);
        }
    }
    if config.cache_sync_timeout <= SignedDuration::ZERO {
        findings.add("controller.cacheSyncTimeout", ABOVE_ZERO);
    }
}

fn probes(health: &Health, findings: &mut Findings) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    let endpoints = [
        ("health.readinessEndpointName", &health.readiness_endpoint),
        ("health.livenessEndpointName", &health.liveness_endpoint),
    ];
    for (path, name) in endpoints {
        if !name.bytes().all(plain) {
            findings.add(path, "must consist of letters, digits, - _ . and /");
        }
    }
    if health.readiness_endpoint == health.liveness_endpoint {
        findings.add(
            "health.livenessEndpointName",
            "must differ from readinessEndpointName",
        );
    }
}

fn listeners(config: &Config, findings: &mut Findings) {
    probes(&config.health, findings);
    for (index, name) in config.tls.cipher_suites.iter().enumerate() {
        if !tls::cipher_suite_known(name) {
            let known = tls::cipher_suite_names().join(", ");
            let message = format!("unsupported cipher suite `{name}`; supported are {known}");
            findings.add(format!("tls.cipherSuites[{index}]"), message);
        }
    }
    if config.tls.min_version == Some(TlsVersion::Tls13) && !config.tls.cipher_suites.is_empty() {
        findings.add(
            "tls.cipherSuites",
            "must not be set when minVersion is VersionTLS13",
        );
    }
    for (index, name) in config.tls.curve_preferences.iter().enumerate() {
        if !tls::curve_known(name) {
            let known = tls::curve_names().join(", ");
            let message = format!("unsupported curve `{name}`; supported are {known}");
            findings.add(format!("tls.curvePreferences[{index}]"), message);
        }
    }
    let certificates = &config.cert_management;
    if !is_dns_label(&certificates.webhook_service_name) {
        let name = &certificates.webhook_service_name;
        let message = format!("`{name}` is not the name of a Service");
        findings.add("internalCertManagement.webhookServiceName", message);
    }
    if !is_dns_subdomain(&certificates.webhook_secret_name) {
        let name = &certificates.webhook_secret_name;
        let message = format!("`{name}` is not the name of a Secret");
        findings.add("internalCertManagement.webhookSecretName", message);
    }
}

fn pods_ready(config: &Config, findings: &mut Findings) {
    let Some(wait) = &config.wait_for_pods_ready else {
        return;
    };
    not_negative("waitForPodsReady.timeout", wait.timeout, findings);
    // Why: an absent recoveryTimeout equals timeout, and would repeat the problem of timeout.
    if wait.recovery_timeout != wait.timeout {
        not_negative(
            "waitForPodsReady.recoveryTimeout",
            wait.recovery_timeout,
            findings,
        );
    }
    let strategy = "waitForPodsReady.requeuingStrategy";
    let counts = [
        (
            "backoffLimitCount",
            wait.requeuing.backoff_limit_count.unwrap_or(0),
        ),
        ("backoffBaseSeconds", wait.requeuing.backoff_base_seconds),
        ("backoffMaxSeconds", wait.requeuing.backoff_max_seconds),
    ];
    for (key, value) in counts {
        if value < 0 {
            findings.add(format!("{strategy}.{key}"), AT_LEAST_ZERO);
        }
    }
}

fn integrations(config: &Config, kinds: Kinds, findings: &mut Findings) {
    let frameworks = &config.integrations.frameworks;
    for (index, name) in frameworks.iter().enumerate() {
        let Some(kind) = kinds.named(name) else {
            let message = format!(
                "Unsupported value: \"{name}\": supported values: {}",
                kinds.frameworks().join(", ")
            );
            findings.add(format!("integrations.frameworks[{index}]"), message);
            continue;
        };
        let is_on =
            |gate: &str| FeatureGate::named(gate).is_some_and(|gate| config.feature_gates.enabled(gate));
        if let Some(gate) = kind.gate.filter(|gate| !is_on(gate)) {
            let message = format!("needs the feature gate {gate}");
            findings.add(format!("integrations.frameworks[{index}]"), message);
        }
    }
    for index in repeated(frameworks) {
        findings.add(format!("integrations.frameworks[{index}]"), "is listed twice");
    }
    for index in repeated(&config.integrations.external_frameworks) {
        findings.add(
            format!("integrations.externalFrameworks[{index}]"),
            "is listed twice",
        );
    }
}

fn fair_sharing(config: &Config, findings: &mut Findings) {
    use PreemptionStrategy::{LessThanInitialShare as Initial, LessThanOrEqualToFinalShare as Final};
    if let Some(sharing) = &config.fair_sharing {
        let path = "fairSharing.preemptionStrategies";
        match sharing.preemption_strategies.as_slice() {
            [Final | Initial] | [Final, Initial] => {}
            // Wire: the message of spec/api.md API-13.
            [] => findings.add(path, "must be specified"),
            _ => findings.add(
                path,
                "Unsupported value: supported values: [LessThanOrEqualToFinalShare], [LessThanInitialShare], \
                 [LessThanOrEqualToFinalShare, LessThanInitialShare]",
            ),
        }
    }
    let Some(sharing) = &config.admission_fair_sharing else {
        return;
    };
    not_negative(
        "admissionFairSharing.usageHalfLifeTime",
        sharing.usage_half_life_time,
        findings,
    );
    if sharing.usage_sampling_interval <= SignedDuration::ZERO {
        findings.add("admissionFairSharing.usageSamplingInterval", ABOVE_ZERO);
    }
    for (resource, weight) in &sharing.resource_weights {
        if *weight < 0.0 {
            findings.add(
                format!("admissionFairSharing.resourceWeights.{resource}"),
                AT_LEAST_ZERO,
            );
        }
    }
}

fn resources(config: &Config, findings: &mut Findings) {
    let resources = &config.resources;
    if resources.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared
        && !resources.exclude_resource_prefixes.is_empty()
    {
        let message = "must not be set when quotaCheckStrategy is IgnoreUndeclared";
        findings.add("resources.excludeResourcePrefixes", message);
    }
    for (index, transformation) in resources.transformations.iter().enumerate() {
        if transformation.input.is_empty() {
            findings.add(
                format!("resources.transformations[{index}].input"),
                "must not be empty",
            );
        }
    }
    for index in repeated(
        resources
            .transformations
            .iter()
            .map(|transformation| &transformation.input),
    ) {
        findings.add(
            format!("resources.transformations[{index}].input"),
            "is listed twice",
        );
    }
    let mappings = &resources.device_class_mappings;
    if mappings.len() > DEVICE_CLASS_MAPPINGS_MAX {
        let message = format!("must have at most {DEVICE_CLASS_MAPPINGS_MAX} items");
        findings.add("resources.deviceClassMappings", message);
    }
    for index in repeated(mappings.iter().map(|mapping| &mapping.name)) {
        findings.add(
            format!("resources.deviceClassMappings[{index}].name"),
            "is listed twice",
        );
    }
    for (index, mapping) in mappings.iter().enumerate() {
        let path = format!("resources.deviceClassMappings[{index}]");
        if mapping.device_class_names.is_empty() {
            findings.add(format!("{path}.deviceClassNames"), "must not be empty");
        }
        for (source_index, source) in mapping.sources.iter().enumerate() {
            if source.counter.is_some() == source.capacity.is_some() {
                let message = "must have exactly one of counter and capacity";
                findings.add(format!("{path}.sources[{source_index}]"), message);
            }
        }
    }
    let retention = [
        ("afterFinished", config.retention.after_finished),
        (
            "afterDeactivatedByKueue",
            config.retention.after_deactivated_by_kueue,
        ),
    ];
    for (key, span) in retention {
        not_negative(
            &format!("objectRetentionPolicies.workloads.{key}"),
            span.unwrap_or_default(),
            findings,
        );
    }
}

fn roadstead(config: &Config, findings: &mut Findings) {
    let roadstead = &config.roadstead;
    if let Some(url) = &roadstead.webhook.url {
        let parsed = url.parse::<http::Uri>();
        let good = parsed.is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.query().is_none());
        if !good {
            findings.add(
                "webhook.url",
                "must be an address such as https://manager.example:9443",
            );
        }
    }
    // Why not if it equals `namespace`, its default: `namespaces` reports a wrong `namespace`.
    let lease_namespace = &roadstead.multi_kueue.lease_namespace;
    if !is_dns_label(lease_namespace) && *lease_namespace != config.namespace {
        findings.add("multiKueue.leaseNamespace", "must be the name of a namespace");
    }
    if roadstead.multi_kueue.token_lifetime_seconds < TOKEN_LIFETIME_SECONDS_MIN {
        let message = format!("must be at least {TOKEN_LIFETIME_SECONDS_MIN}");
        findings.add("multiKueue.tokenLifetimeSeconds", message);
    }
}

fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_dns_subdomain(name)
}

fn is_dns_subdomain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part_good = |part: &str| {
        let bytes = part.as_bytes();
        bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
            && bytes.first().is_some_and(|byte| plain(*byte))
            && bytes.last().is_some_and(|byte| plain(*byte))
    };
    name.len() <= 253 && name.split('.').all(part_good)
}
