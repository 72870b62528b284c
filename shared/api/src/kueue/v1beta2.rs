//! Version `v1beta2` of `kueue.x-k8s.io`: what is stored and what goes over the wire between clusters.
//!
//! One module per kind; everything is re-exported here. The schemas follow `spec/api.md`.

mod admissioncheck;
mod clusterqueue;
mod cohort;
mod localqueue;
mod multikueuecluster;
mod multikueueconfig;
mod provisioningrequestconfig;
mod quota;
mod resourceflavor;
mod topology;
mod workload;
mod workloadpriorityclass;

pub use admissioncheck::{
    AdmissionCheck, AdmissionCheckParametersReference, AdmissionCheckSpec, AdmissionCheckStatus,
};
pub use clusterqueue::{
    AdmissionCheckStrategyRule, AdmissionChecksStrategy, AdmissionMode, AdmissionScope, BorrowWithinCohort,
    BorrowWithinCohortPolicy, ClusterQueue, ClusterQueuePreemption, ClusterQueueSpec, ClusterQueueStatus,
    ConcurrentAdmissionConstraints, ConcurrentAdmissionMigration, ConcurrentAdmissionMigrationMode,
    ConcurrentAdmissionPolicy, FlavorFungibility, FlavorFungibilityPolicy, FlavorFungibilityPreference,
    FlavorUsage, QueueingStrategy, ReclaimWithinCohort, ResourceUsage, WithinClusterQueue,
};
pub(crate) use clusterqueue::{BORROWING_NEEDS_COHORT, borrowing_needs};
pub use cohort::{Cohort, CohortSpec, CohortStatus};
pub use localqueue::{
    AdmissionFairSharingStatus, LocalQueue, LocalQueueFairSharingStatus, LocalQueueFlavorUsage,
    LocalQueueResourceUsage, LocalQueueSpec, LocalQueueStatus,
};
pub use multikueuecluster::{
    ClusterProfileReference, ClusterSource, KubeConfig, LocationType, MultiKueueCluster,
    MultiKueueClusterSpec, MultiKueueClusterStatus,
};
pub use multikueueconfig::{MultiKueueConfig, MultiKueueConfigSpec, QuotaManagement};
pub use provisioningrequestconfig::{
    PodSetMergePolicy, ProvisioningPodSetUpdates, ProvisioningRequestConfig, ProvisioningRequestConfigSpec,
    ProvisioningRequestNodeSelector, ProvisioningRetryStrategy,
};
pub use quota::{FairSharing, FairSharingStatus, FlavorQuotas, ResourceGroup, ResourceQuota, StopPolicy};
pub use resourceflavor::{ResourceFlavor, ResourceFlavorSpec};
pub use topology::{Topology, TopologyLevel, TopologySpec};
pub use workload::{
    Admission, AdmissionCheckState, CheckState, DelayedTopologyRequest, EvictionStats, GatePosition, PodSet,
    PodSetAssignment, PodSetRequest, PodSetSliceConstraint, PodSetTopologyRequest, PodSetUpdate,
    PreemptionGate, PreemptionGateState, PriorityClassGroup, PriorityClassKind, PriorityClassRef,
    RawTemplate, ReclaimablePod, RequeueState, SchedulingStats, SlicePodCounts, SliceRoots, SliceValues,
    TopologyAssignment, TopologyAssignmentSlice, UnhealthyNode, Workload, WorkloadSpec, WorkloadStatus,
};
pub(crate) use workload::{class_rules, v1beta1_class_rules, workload_object_rules};
pub use workloadpriorityclass::{WorkloadPriorityClass, WorkloadPriorityClassFields};
