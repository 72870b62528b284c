//! Gates of earlier releases of the reference: a file that sets them is still accepted, with one warning for each.
//!
//! Sources: `pkg/features` of the reference's releases 0.11 to 0.19.

/// A gate of an earlier release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredGate {
    /// Its name in files and flags.
    pub name: &'static str,
    /// Why it has no effect, to follow "feature gate NAME=true has no effect: ".
    pub fate: &'static str,
}

const fn gate(name: &'static str, fate: &'static str) -> RetiredGate {
    RetiredGate { name, fate }
}

impl RetiredGate {
    /// All of them, in order of name.
    #[rustfmt::skip]
    pub const ALL: &'static [Self] = &[
        gate("AdmissionCheckValidationRules", "gone since 0.12, the rules for multikueue checks always hold"),
        gate("ConfigurableResourceTransformations", "always on since 0.14"),
        gate("DRAExtendedResources", "renamed in 0.18, write KueueDRAIntegrationExtendedResource"),
        gate("DynamicResourceAllocation", "renamed in 0.18, write KueueDRAIntegration"),
        gate("ExposeFlavorsInLocalQueue", "gone since 0.15, a LocalQueue no longer lists its flavors"),
        gate("FlavorFungibilityImplicitPreferenceDefault", "gone since 0.16, write spec.flavorFungibility.preference of the ClusterQueue"),
        gate("HierarchicalCohorts", "always on since 0.17"),
        gate("KeepQuotaForProvReqRetry", "gone since 0.12, a retry always gives quota back"),
        gate("LendingLimit", "always on since 0.17"),
        gate("LocalQueueDefaulting", "always on since 0.17"),
        gate("ManagedJobsNamespaceSelector", "always on since 0.13"),
        gate("MultiKueueAllowInsecureKubeconfigs", "always off since 0.19"),
        gate("MultiKueueBatchJobWithManagedBy", "always on since 0.17"),
        gate("MultiKueueRedoAdmissionOnEvictionInWorker", "always on since 0.18"),
        gate("MultiKueueWaitForWorkloadAdmitted", "always on since 0.18"),
        gate("MultiplePreemptions", "always on since 0.10"),
        gate("ObjectRetentionPolicies", "always on since 0.17"),
        gate("PropagateBatchJobLabelsToWorkload", "always on since 0.17"),
        gate("ProvisioningACC", "always on since 0.14"),
        gate("QueueVisibility", "gone since 0.14, use the visibility API"),
        gate("SanitizePodSets", "always on since 0.17"),
        gate("SchedulerLongRequeueInterval", "gone since 0.20, requeues come in batches of one second"),
        gate("SchedulerTimestampPreemptionBuffer", "gone since 0.20, equal priorities are ordered by their whole time"),
        gate("SkipFinalizersForPodsSuspendedByParent", "always on since 0.18"),
        gate("TASProfileLeastFreeCapacity", "gone since 0.17, TASProfileMixed is what is left"),
        gate("TASProfileMostFreeCapacity", "gone since 0.13, TASProfileMixed is what is left"),
        gate("WorkloadResourceRequestsSummary", "always on since 0.11"),
    ];

    /// The retired gate of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|gate| gate.name == name)
    }
}
