//! Settings that are accepted but have no effect here: one table, so that no such setting is ignored silently.
//!
//! A change that gives a setting its effect deletes its lines here.

use roadstead_api::config::{Config, FeatureGate, RetiredGate};

use super::Findings;

/// How Roadstead behaves, whatever the gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fixed {
    /// As if the gate were on.
    On,
    /// As if the gate were off.
    Off,
}

const TOPOLOGY: &str = "topology-aware scheduling is not built yet";
const DEVICES: &str = "dynamic resource allocation is not built yet";
const SLICES: &str = "elastic jobs are not built yet";
const INTERNAL: &str = "it chooses between two ways of working inside the reference";

/// Gates whose setting is ignored: the behaviour instead, and why.
#[rustfmt::skip]
const GATES: &[(FeatureGate, Fixed, &str)] = &[
    (FeatureGate::AssignQueueLabelsForPods, Fixed::On, "pods always get the labels of their queues"),
    (FeatureGate::ConcurrentAdmission, Fixed::Off, "concurrent admission is not built yet"),
    (FeatureGate::DeferRayServiceFinalizationForRedisCleanup, Fixed::On, "a RayService with a Redis always keeps its quota until it is gone"),
    (FeatureGate::ElasticJobsViaWorkloadSlices, Fixed::Off, SLICES),
    (FeatureGate::ElasticJobsViaWorkloadSlicesWithTAS, Fixed::Off, SLICES),
    (FeatureGate::FailureRecoveryPolicy, Fixed::Off, "pods of lost nodes are not recovered yet"),
    (FeatureGate::FastQuotaReleaseInPodIntegration, Fixed::Off, "quota of pods is held until they have ended"),
    (FeatureGate::FlavorFungibilityPreserveScanProgress, Fixed::On, "the search for a flavor always goes on where it stopped"),
    (FeatureGate::KueueDRAIntegration, Fixed::Off, DEVICES),
    (FeatureGate::KueueDRAIntegrationConsumableCapacity, Fixed::Off, DEVICES),
    (FeatureGate::KueueDRAIntegrationExtendedResource, Fixed::Off, DEVICES),
    (FeatureGate::KueueDRAIntegrationPartitionableDevices, Fixed::Off, DEVICES),
    (FeatureGate::LWSImmutableGroupSize, Fixed::On, "the group size of a queued LeaderWorkerSet never changes"),
    (FeatureGate::MultiKueueClusterProfile, Fixed::Off, "workers are registered by Secrets only"),
    (FeatureGate::MultiKueueKubeConfigPathValidation, Fixed::On, "paths of kubeconfigs are refused altogether"),
    (FeatureGate::MultiKueueManagerQuotaAutomation, Fixed::Off, "quotas of the manager are not adjusted yet"),
    (FeatureGate::MultiKueueOrchestratedPreemption, Fixed::Off, "workers preempt by themselves"),
    (FeatureGate::PodIntegrationValidateGroupOwner, Fixed::On, "a group of pods never takes a Workload that was not made for it"),
    (FeatureGate::RemoveFinalizersWithStrictPatch, Fixed::On, INTERNAL),
    (FeatureGate::SchedulerLibraryIntegration, Fixed::Off, INTERNAL),
    (FeatureGate::SchedulingEquivalenceHashing, Fixed::On, INTERNAL),
    (FeatureGate::ShortWorkloadNames, Fixed::Off, "names are made as without it"),
    (FeatureGate::SkipAncestorCheckForDeletedWorkloads, Fixed::On, "changes of an object that is being deleted are always allowed"),
    (FeatureGate::SkipReassignmentForPodOwnedWorkloads, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASAssignmentsEncodingByHostnamePrefix, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASBalancedPlacement, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASCacheNodeMatchResults, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASCacheTopologyTree, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASCachingRemainingResources, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASFailedNodeReplacement, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASFailedNodeReplacementFailFast, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASHandleOverlappingFlavors, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASMultiLayerTopology, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASProfileMixed, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASRecomputeAssignmentWithinSchedulingCycle, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASReplaceNodeDueToNotReadyOverFixedTime, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASReplaceNodeOnNodeTaints, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASReplaceNodeOnPodTermination, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASRespectNodeAffinityPreferred, Fixed::Off, TOPOLOGY),
    (FeatureGate::TASValidateWorkloadSliceSize, Fixed::Off, TOPOLOGY),
    (FeatureGate::TopologyAwareScheduling, Fixed::Off, TOPOLOGY),
    (FeatureGate::ValidateRayAndSparkJobUpdates, Fixed::On, "updates of queued jobs are always validated"),
    (FeatureGate::VectorizedResourceRequests, Fixed::On, INTERNAL),
    (FeatureGate::WorkloadRequestUseMergePatch, Fixed::Off, INTERNAL),
];

/// Keys whose value is ignored, and why.
const KEYS: &[(&str, &str)] = &[
    ("clientConnection", "requests to API servers are not throttled"),
    (
        "controller.cacheSyncTimeout",
        "the process says that it is not ready until its caches are filled",
    ),
    (
        "controller.groupKindConcurrency",
        "the numbers of parallel passes are fixed",
    ),
    (
        "multiKueue.clusterProfile",
        "workers are registered by Secrets only",
    ),
    ("pprofBindAddress", "no profiler is served"),
    ("queueVisibility", "use the visibility API instead"),
    ("resources.deviceClassMappings", DEVICES),
];

/// One sentence for each key and gate that was written but has no effect. `settings` are the gates of file and flag.
pub(super) fn warnings(settings: &[(String, bool)], findings: &Findings) -> Vec<String> {
    let keys = KEYS
        .iter()
        .filter(|(path, _)| findings.positions.is_written(path))
        .map(|(path, why)| format!("{path} has no effect: {why}"));
    let gates = settings.iter().filter_map(|(name, on)| {
        if let Some(gate) = RetiredGate::named(name) {
            return Some(format!("feature gate {name}={on} has no effect: {}", gate.fate));
        }
        let gate = FeatureGate::named(name)?;
        let (_, fixed, why) = GATES.iter().find(|(idle, _, _)| *idle == gate)?;
        // Why no warning if both agree: the behaviour is the requested one.
        ((*fixed == Fixed::On) != *on).then(|| format!("feature gate {name}={on} has no effect: {why}"))
    });
    let strategy = (FeatureGate::QuotaCheckStrategy, "resources.quotaCheckStrategy");
    let is_off = settings.iter().any(|(name, on)| name == strategy.0.name() && !on);
    let unread = (is_off && findings.positions.is_written(strategy.1)).then(|| {
        format!(
            "{} has no effect: feature gate {} is off",
            strategy.1,
            strategy.0.name()
        )
    });
    keys.chain(gates).chain(unread).collect()
}

/// Adds the sentences to the configuration.
pub(super) fn warn(config: &mut Config, settings: &[(String, bool)], findings: &Findings) {
    config.warnings.extend(warnings(settings, findings));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::parse;

    const HEADER: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

    #[test]
    fn no_line_stands_twice_and_none_is_for_a_locked_gate() {
        let gates: BTreeSet<FeatureGate> = GATES.iter().map(|(gate, _, _)| *gate).collect();
        assert_eq!(gates.len(), GATES.len());
        assert!(!gates.iter().any(|gate| gate.locked()));
        let keys: BTreeSet<&str> = KEYS.iter().map(|(path, _)| *path).collect();
        assert_eq!(keys.len(), KEYS.len());
    }

    #[test]
    fn a_gate_is_warned_about_only_where_it_is_set_against_what_we_do() {
        for (gate, fixed, why) in GATES {
            for on in [true, false] {
                let text = format!("{HEADER}featureGates: {{{}: {on}}}\n", gate.name());
                let found = parse("f", &text, &[], "ns").unwrap().warnings;
                let against = (*fixed == Fixed::On) != on;
                assert_eq!(
                    found.len(),
                    usize::from(against),
                    "{} {on}: {found:?}",
                    gate.name()
                );
                assert!(found.iter().all(|text| text.ends_with(why)), "{found:?}");
            }
        }
        assert_eq!(parse("f", HEADER, &[], "ns").unwrap().warnings, [""; 0]);
        let flag = ["TASProfileMixed=true".parse().unwrap()];
        let found = parse("f", HEADER, &flag, "ns").unwrap().warnings;
        assert_eq!(
            found,
            ["feature gate TASProfileMixed=true has no effect: topology-aware scheduling is not built yet"]
        );
    }

    /// These behaviours are built.
    #[test]
    fn what_is_always_on_is_not_called_unbuilt() {
        for gate in [
            FeatureGate::DeferRayServiceFinalizationForRedisCleanup,
            FeatureGate::FlavorFungibilityPreserveScanProgress,
            FeatureGate::LWSImmutableGroupSize,
            FeatureGate::PodIntegrationValidateGroupOwner,
            FeatureGate::SkipAncestorCheckForDeletedWorkloads,
            FeatureGate::ValidateRayAndSparkJobUpdates,
        ] {
            let line = GATES.iter().find(|(idle, _, _)| *idle == gate);
            assert_eq!(line.map(|(_, fixed, _)| *fixed), Some(Fixed::On), "{gate:?}");
        }
    }

    /// Spec: api API-14
    #[test]
    fn a_gate_of_an_earlier_release_is_accepted_with_one_warning() {
        for gate in RetiredGate::ALL {
            assert_eq!(FeatureGate::named(gate.name), None, "{}", gate.name);
            for on in [true, false] {
                let text = format!("{HEADER}featureGates: {{{}: {on}}}\n", gate.name);
                let found = parse("f", &text, &[], "ns").unwrap().warnings;
                let wanted = format!("feature gate {}={on} has no effect: {}", gate.name, gate.fate);
                assert_eq!(found, [wanted]);
            }
        }
        let flag = ["LendingLimit=true".parse().unwrap()];
        let found = parse("f", HEADER, &flag, "ns").unwrap().warnings;
        assert_eq!(
            found,
            ["feature gate LendingLimit=true has no effect: always on since 0.17"]
        );
        assert!(
            parse(
                "f",
                &format!("{HEADER}featureGates: {{LendingLimits: true}}\n"),
                &[],
                "ns"
            )
            .is_err()
        );
    }

    /// Spec: api API-13, API-14
    #[test]
    fn the_quota_check_strategy_of_a_gate_that_is_off_does_not_count() {
        let text = format!(
            "{HEADER}featureGates: {{QuotaCheckStrategy: false}}\n\
             resources: {{quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [example.com]}}\n"
        );
        let config = parse("f", &text, &[], "ns").unwrap();
        assert_eq!(
            config.resources.quota_check_strategy,
            roadstead_api::config::QuotaCheckStrategy::BlockUndeclared
        );
        assert_eq!(
            config.warnings,
            ["resources.quotaCheckStrategy has no effect: feature gate QuotaCheckStrategy is off"]
        );
        let on = text.replace("QuotaCheckStrategy: false", "QuotaCheckStrategy: true");
        assert!(
            parse("f", &on, &[], "ns").is_err(),
            "the two keys exclude each other"
        );
    }

    /// Spec: api API-13; admission-engine 6
    #[test]
    fn fair_sharing_by_usage_that_forgets_at_once_is_warned_about() {
        let warned = |text: &str| {
            parse("f", &format!("{HEADER}{text}\n"), &[], "ns")
                .unwrap()
                .warnings
        };
        let found = warned("admissionFairSharing: {}");
        assert!(
            found[0].starts_with("admissionFairSharing.usageHalfLifeTime: it is 0s"),
            "{found:?}"
        );
        assert_eq!(warned("admissionFairSharing: {usageHalfLifeTime: 168h}"), [""; 0]);
    }

    /// Spec: multikueue 11.45
    #[test]
    fn no_kind_of_jobs_is_without_effect() {
        let all = roadstead_kinds::TABLE.frameworks().join(", ");
        let gates = "featureGates: {SparkApplicationIntegration: true}";
        let text = format!("{HEADER}{gates}\nintegrations: {{frameworks: [{all}]}}\n");
        assert_eq!(parse("f", &text, &[], "ns").unwrap().warnings, [""; 0]);
    }

    #[test]
    fn a_key_is_warned_about_only_where_it_is_written() {
        let text = format!("{HEADER}leaderElection: {{leaderElect: false}}\nclientConnection: {{qps: 50}}\n");
        let found = parse("f", &text, &[], "ns").unwrap().warnings;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("clientConnection has no effect: "));
    }
}
