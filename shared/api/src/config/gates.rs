//! Feature gates: which exist, their defaults, and the answer for one process.
//!
//! The names are the reference's. A gate whose behaviour Roadstead always has (or never has) is still known, so that
//! a file written for the reference is accepted; so are the gates of its earlier releases (`retired`). Source: spec/api.md API-14.

mod retired;

use std::collections::BTreeMap;
use std::fmt;

pub use retired::RetiredGate;

macro_rules! gates {
    ($($name:ident $default:ident $lock:ident,)*) => {
        /// One feature gate, named as in the file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names and meanings are the reference's, listed in spec/api.md API-14")]
        pub enum FeatureGate { $($name,)* }

        impl FeatureGate {
            /// Every gate, in order of name.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name as files and flags write it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            const fn default_and_lock(self) -> (Preset, Lock) {
                match self { $(Self::$name => (Preset::$default, Lock::$lock),)* }
            }
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Preset {
    On,
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    Open,
    Locked,
}

#[rustfmt::skip]
gates! {
    AdmissionFairSharing On Open,
    AdmissionGatedBy On Open,
    AssignQueueLabelsForPods On Open,
    CleanupProvisioningRequestsOnEviction On Open,
    ConcurrentAdmission Off Open,
    CustomMetricLabels Off Open,
    DeferRayServiceFinalizationForRedisCleanup On Open,
    DisableWaitForPodsReady Off Open,
    ElasticJobsViaWorkloadSlices On Open,
    ElasticJobsViaWorkloadSlicesWithTAS Off Open,
    FailureRecoveryPolicy Off Open,
    FairSharingPreemptWithinNominal On Open,
    FairSharingPrioritizeNonBorrowing On Open,
    FastQuotaReleaseInPodIntegration Off Open,
    FinishOrphanedWorkloads On Open,
    FlavorFungibility On Open,
    FlavorFungibilityPreserveScanProgress On Open,
    KueueDRAIntegration On Open,
    KueueDRAIntegrationConsumableCapacity Off Open,
    KueueDRAIntegrationExtendedResource On Open,
    KueueDRAIntegrationPartitionableDevices On Open,
    KueueDRARejectWorkloadsWhenDRADisabled On Open,
    LWSImmutableGroupSize On Open,
    LocalQueueMetrics On Open,
    ManagedJobsNamespaceSelectorAlwaysRespected On Locked,
    MetricForWorkloadCreationLatency On Open,
    MetricsForCohorts On Open,
    MultiKueue On Open,
    MultiKueueAdaptersForCustomJobs On Open,
    MultiKueueClusterProfile Off Open,
    MultiKueueIncrementalDispatcherConfig On Open,
    MultiKueueIncrementalDispatcherRespectConfigOrder On Open,
    MultiKueueKubeConfigPathValidation On Open,
    MultiKueueManagerQuotaAutomation Off Open,
    MultiKueueOrchestratedPreemption Off Open,
    MultiKueueRemoteSpecSync On Open,
    PartialAdmission On Open,
    PodIntegrationValidateGroupOwner On Open,
    PrioritizePreemptorWorkloads Off Open,
    PriorityBoost Off Open,
    PrioritySortingWithinCohort On Open,
    QuotaCheckStrategy On Open,
    ReclaimablePods On Open,
    RecomputeAssignmentUponPreemptionTargetsOverlap On Open,
    RejectUpdatesToCQWithInvalidOnFlavors Off Open,
    RemoveFinalizersWithStrictPatch On Open,
    SchedulerLibraryIntegration Off Open,
    SchedulingEquivalenceHashing On Open,
    ShortWorkloadNames Off Open,
    SkipAncestorCheckForDeletedWorkloads On Open,
    SkipReassignmentForPodOwnedWorkloads On Open,
    SparkApplicationIntegration Off Open,
    TASAssignmentsEncodingByHostnamePrefix On Open,
    TASBalancedPlacement Off Open,
    TASCacheNodeMatchResults On Open,
    TASCacheTopologyTree On Open,
    TASCachingRemainingResources On Open,
    TASFailedNodeReplacement On Open,
    TASFailedNodeReplacementFailFast On Open,
    TASHandleOverlappingFlavors On Open,
    TASMultiLayerTopology On Open,
    TASProfileMixed On Open,
    TASRecomputeAssignmentWithinSchedulingCycle On Open,
    TASReplaceNodeDueToNotReadyOverFixedTime Off Open,
    TASReplaceNodeOnNodeTaints On Open,
    TASReplaceNodeOnPodTermination On Open,
    TASRespectNodeAffinityPreferred Off Open,
    TASValidateWorkloadSliceSize On Open,
    TLSOptions On Locked,
    TopologyAwareScheduling On Open,
    UnadmittedWorkloadsExplicitStatus Off Open,
    UnadmittedWorkloadsObservability On Open,
    ValidateRayAndSparkJobUpdates On Open,
    VectorizedResourceRequests On Open,
    VisibilityOnDemand On Open,
    WorkloadIdentifierAnnotations On Open,
    WorkloadPriorityClassDefaulting On Open,
    WorkloadRequestUseMergePatch Off Open,
    WorkloadValidateResourcesAreNonNegative On Open,
    WorkloadValidationForPodSetMetadata On Open,
}

impl FeatureGate {
    /// The gate of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|gate| gate.name() == name)
    }

    /// The default of the gate.
    pub fn default_on(self) -> bool {
        self.default_and_lock().0 == Preset::On
    }

    /// Whether the gate is locked to its default.
    pub fn locked(self) -> bool {
        self.default_and_lock().1 == Lock::Locked
    }

    /// The gate that must be on for this one to have an effect.
    fn builds_on(self) -> Option<Self> {
        if self.name().starts_with("TAS") || self == Self::ElasticJobsViaWorkloadSlicesWithTAS {
            Some(Self::TopologyAwareScheduling)
        } else if self == Self::UnadmittedWorkloadsExplicitStatus {
            Some(Self::UnadmittedWorkloadsObservability)
        } else {
            None
        }
    }
}

/// The gates of one process: the defaults and the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureGates {
    set: BTreeMap<FeatureGate, bool>,
}

impl FeatureGates {
    /// Applies settings on top of the defaults.
    ///
    /// # Errors
    /// Every unknown name, every locked gate that would change, and every gate switched on without the one it builds on. Gates of
    /// earlier releases are accepted and change nothing.
    pub fn resolve<'a>(
        settings: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<Self, Vec<GateProblem>> {
        let mut set = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, on) in settings {
            match FeatureGate::named(name) {
                None if RetiredGate::named(name).is_some() => {}
                None => problems.push(GateProblem::Unknown { name: name.into() }),
                Some(gate) if gate.locked() && on != gate.default_on() => {
                    problems.push(GateProblem::Locked {
                        gate,
                        on: gate.default_on(),
                    });
                }
                Some(gate) => {
                    set.insert(gate, on);
                }
            }
        }
        for (gate, on) in &set {
            if let Some(needed) = gate.builds_on()
                && *on
                && set.get(&needed) == Some(&false)
            {
                problems.push(GateProblem::Needs { gate: *gate, needed });
            }
        }
        if problems.is_empty() {
            Ok(Self { set })
        } else {
            Err(problems)
        }
    }

    /// Whether a gate is on. It is off when the one it builds on is.
    pub fn enabled(&self, gate: FeatureGate) -> bool {
        let on = |gate: FeatureGate| self.set.get(&gate).copied().unwrap_or_else(|| gate.default_on());
        on(gate) && gate.builds_on().is_none_or(on)
    }
}

/// A problem of one feature-gate setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateProblem {
    /// No such gate.
    Unknown {
        /// As written.
        name: String,
    },
    /// The gate cannot be changed.
    Locked {
        /// The gate.
        gate: FeatureGate,
        /// The value it is locked to.
        on: bool,
    },
    /// A gate is on while the one it builds on is off.
    Needs {
        /// The gate that is on.
        gate: FeatureGate,
        /// The gate that is off.
        needed: FeatureGate,
    },
}

impl GateProblem {
    /// The name of the faulty gate, as written.
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown { name } => name,
            Self::Locked { gate, .. } | Self::Needs { gate, .. } => gate.name(),
        }
    }
}

impl fmt::Display for GateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name } => {
                let known: Vec<&str> = FeatureGate::ALL.iter().map(|gate| gate.name()).collect();
                write!(
                    f,
                    "unknown feature gate `{name}`; the known ones are {}",
                    known.join(", ")
                )
            }
            Self::Locked { gate, on } => write!(f, "feature gate `{}` is locked to {on}", gate.name()),
            Self::Needs { gate, needed } => {
                write!(
                    f,
                    "feature gate `{}` needs `{}`; switch that on or this off",
                    gate.name(),
                    needed.name()
                )
            }
        }
    }
}
