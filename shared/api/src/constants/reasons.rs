//! Reasons of conditions, by kind and condition type (`spec/api.md` API-2.3, API-3, API-9.6, `spec/multikueue.md` 1.4
//! and 2.2, `spec/provisioning.md` 3 and 13.2).

/// Reasons of `QuotaReserved` of a workload; the first is for True, the others for False.
pub mod quota_reserved {
    /// Quota is reserved.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// No flavor suits the pods.
    pub const NO_MATCHING_FLAVOR: &str = "NoMatchingFlavor";
    /// Not enough quota is free.
    pub const WAITING_FOR_QUOTA: &str = "WaitingForQuota";
    /// It asks for more than the queue could ever have.
    pub const EXCEEDS_MAX_QUOTA: &str = "ExceedsMaxQuota";
    /// The pods do not fit into the topology.
    pub const TOPOLOGY_PLACEMENT_FAILED: &str = "TopologyPlacementFailed";
    /// Other workloads are being stopped to make room.
    pub const WAITING_FOR_PREEMPTED_WORKLOADS: &str = "WaitingForPreemptedWorkloads";
    /// An earlier workload is still starting its pods.
    pub const WAITING_FOR_PODS_READY: &str = "WaitingForPodsReady";
    /// A queue or flavor it needs is missing or wrong.
    pub const MISCONFIGURED: &str = "Misconfigured";
    /// A queue is stopped.
    pub const SUSPENDED: &str = "Suspended";
    /// The engine has not evaluated it yet.
    pub const PENDING_EVALUATION: &str = "PendingEvaluation";
    /// It waits before it is tried again.
    pub const ON_HOLD: &str = "OnHold";
    /// An admission gate keeps it out of the queue.
    pub const ADMISSION_GATED: &str = "AdmissionGated";
    /// It is not active.
    pub const DEACTIVATED: &str = "Deactivated";
    /// Older reason of a waiting workload (gate `UnadmittedWorkloadsObservability` off).
    pub const PENDING: &str = "Pending";
    /// Older reason of a workload that cannot be admitted (same gate).
    pub const INADMISSIBLE: &str = "Inadmissible";
    /// Older reason of a workload that waits for others (same gate).
    pub const WAITING: &str = "Waiting";
}

/// Reasons of `Admitted` of a workload; the first is for True, the others for False.
pub mod admitted {
    /// All is ready.
    pub const ADMITTED: &str = "Admitted";
    /// No quota is reserved.
    pub const NO_RESERVATION: &str = "NoReservation";
    /// A check is not ready.
    pub const UNSATISFIED_ADMISSION_CHECKS: &str = "UnsatisfiedAdmissionChecks";
    /// The place in the topology is not chosen yet.
    pub const PENDING_DELAYED_TOPOLOGY_REQUESTS: &str = "PendingDelayedTopologyRequests";
}

/// Reasons of `Evicted` of a workload with status True.
pub mod evicted {
    /// To make room for another workload.
    pub const PREEMPTED: &str = "Preempted";
    /// Its pods were not ready in time.
    pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
    /// A check went to Retry.
    pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    /// The cluster queue is stopped.
    pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
    /// The local queue is stopped.
    pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
    /// Nodes failed and could not be replaced.
    pub const NODE_FAILURES: &str = "NodeFailures";
    /// It moves to another flavor.
    pub const FLAVOR_MIGRATION: &str = "FlavorMigration";
    /// The manager evicted it.
    pub const EVICTED_ON_MANAGER_CLUSTER: &str = "EvictedOnManagerCluster";
    /// It was deactivated.
    pub const DEACTIVATED: &str = "Deactivated";
    /// A check rejected it.
    pub const DEACTIVATED_DUE_TO_ADMISSION_CHECK: &str = "DeactivatedDueToAdmissionCheck";
    /// It ran too long.
    pub const DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED: &str =
        "DeactivatedDueToMaximumExecutionTimeExceeded";
    /// It was requeued too often.
    pub const DEACTIVATED_DUE_TO_REQUEUING_LIMIT_EXCEEDED: &str = "DeactivatedDueToRequeuingLimitExceeded";
}

/// Reasons of `Preempted` of a workload with status True.
pub mod preempted {
    /// By a workload of the same queue.
    pub const IN_CLUSTER_QUEUE: &str = "InClusterQueue";
    /// By a queue that takes back its nominal quota.
    pub const IN_COHORT_RECLAMATION: &str = "InCohortReclamation";
    /// By a queue with a smaller share.
    pub const IN_COHORT_FAIR_SHARING: &str = "InCohortFairSharing";
    /// By a workload of higher priority that borrows.
    pub const IN_COHORT_RECLAIM_WHILE_BORROWING: &str = "InCohortReclaimWhileBorrowing";
}

/// Reasons of `Requeued` of a workload with status True; with False it is the reason of the eviction.
pub mod requeued {
    /// After a preemption.
    pub const PREEMPTED: &str = "Preempted";
    /// After node failures.
    pub const NODE_FAILURES: &str = "NodeFailures";
    /// It was made active again.
    pub const REACTIVATED: &str = "Reactivated";
    /// Its waiting time is over.
    pub const BACKOFF_FINISHED: &str = "BackoffFinished";
    /// The cluster queue admits again.
    pub const CLUSTER_QUEUE_RESTARTED: &str = "ClusterQueueRestarted";
    /// The local queue admits again.
    pub const LOCAL_QUEUE_RESTARTED: &str = "LocalQueueRestarted";
    /// With status False: it cannot be admitted.
    pub const INADMISSIBLE: &str = "Inadmissible";
}

/// Reasons of `PodsReady` of a workload; the first two are for False, the others for True.
pub mod pods_ready {
    /// The pods have not been ready yet.
    pub const WAIT_FOR_START: &str = "WaitForStart";
    /// The pods were ready and are not now.
    pub const WAIT_FOR_RECOVERY: &str = "WaitForRecovery";
    /// The pods are ready for the first time.
    pub const STARTED: &str = "Started";
    /// The pods are ready again.
    pub const RECOVERED: &str = "Recovered";
}

/// Reasons of `Finished` of a workload.
pub mod finished {
    /// The job succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The job failed.
    pub const FAILED: &str = "Failed";
    /// The job does not match the workload; on a worker this is not an end of the job.
    pub const OUT_OF_SYNC: &str = "OutOfSync";
    /// The job is gone; on a worker this is not an end of the job.
    pub const OWNER_NOT_FOUND: &str = "OwnerNotFound";
    /// The job could not be started.
    pub const FAILED_TO_START: &str = "FailedToStart";
    /// A newer slice took its place.
    pub const WORKLOAD_SLICE_REPLACED: &str = "WorkloadSliceReplaced";
}

/// Reasons of `DeactivationTarget` of a workload.
pub mod deactivation_target {
    /// A check rejected it.
    pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    /// It ran too long.
    pub const MAXIMUM_EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";
    /// It was requeued too often.
    pub const REQUEUING_LIMIT_EXCEEDED: &str = "RequeuingLimitExceeded";
    /// The manager evicted it.
    pub const EVICTED_ON_MANAGER_CLUSTER: &str = "EvictedOnManagerCluster";
}

/// Reasons of `BlockedOnPreemptionGates` of a workload.
pub mod blocked_on_preemption_gates {
    /// It would have to preempt other workloads, and a gate forbids it.
    pub const PREEMPTION_GATED: &str = "PreemptionGated";
}

/// Reasons of `Active` of a cluster queue; the first is for True, the others for False, the most important first.
pub mod cluster_queue_active {
    /// It can admit workloads.
    pub const READY: &str = "Ready";
    /// It is being deleted.
    pub const TERMINATING: &str = "Terminating";
    /// Its stop policy holds it.
    pub const STOPPED: &str = "Stopped";
    /// A flavor is missing.
    pub const FLAVOR_NOT_FOUND: &str = "FlavorNotFound";
    /// A check is missing.
    pub const ADMISSION_CHECK_NOT_FOUND: &str = "AdmissionCheckNotFound";
    /// A check is not active.
    pub const ADMISSION_CHECK_INACTIVE: &str = "AdmissionCheckInactive";
    /// It has more than one `MultiKueue` check.
    pub const MULTIPLE_MULTI_KUEUE_ADMISSION_CHECKS: &str = "MultipleMultiKueueAdmissionChecks";
    /// Its `MultiKueue` check does not apply to all flavors.
    pub const MULTI_KUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR: &str =
        "MultiKueueAdmissionCheckAppliedPerFlavor";
    /// It has both a `MultiKueue` and a `ProvisioningRequest` check.
    pub const MULTI_KUEUE_WITH_PROVISIONING_REQUEST: &str = "MultiKueueWithProvisioningRequest";
    /// The topology of a flavor is missing.
    pub const TOPOLOGY_NOT_FOUND: &str = "TopologyNotFound";
    /// None of the above.
    pub const UNKNOWN: &str = "Unknown";
}

/// Reasons of `Active` of a local queue; the first is for True, the others for False.
pub mod local_queue_active {
    /// Workloads can be submitted.
    pub const READY: &str = "Ready";
    /// Its stop policy holds it.
    pub const STOPPED: &str = "Stopped";
    /// Its cluster queue is missing.
    pub const CLUSTER_QUEUE_DOES_NOT_EXIST: &str = "ClusterQueueDoesNotExist";
    /// Its cluster queue is not active.
    pub const CLUSTER_QUEUE_IS_INACTIVE: &str = "ClusterQueueIsInactive";
}

/// Reasons of `Active` of a `MultiKueue` check; the first two are for True, the others for False.
pub mod multikueue_check_active {
    /// All clusters can be used.
    pub const ACTIVE: &str = "Active";
    /// Some clusters can be used.
    pub const SOME_ACTIVE_CLUSTERS: &str = "SomeActiveClusters";
    /// No cluster can be used.
    pub const NO_USABLE_CLUSTERS: &str = "NoUsableClusters";
    /// Its settings cannot be loaded.
    pub const BAD_CONFIG: &str = "BadConfig";
}

/// Reasons of `Active` of a worker cluster; the first is for True, the others for False.
pub mod multikueue_cluster_active {
    /// It is connected.
    pub const ACTIVE: &str = "Active";
    /// The kubeconfig is missing or its place is refused.
    pub const BAD_KUBE_CONFIG: &str = "BadKubeConfig";
    /// The kubeconfig is refused.
    pub const INSECURE_KUBE_CONFIG: &str = "InsecureKubeConfig";
    /// The `ClusterProfile` is missing or has no access provider.
    pub const BAD_CLUSTER_PROFILE: &str = "BadClusterProfile";
    /// The settings from the `ClusterProfile` are refused.
    pub const BAD_REST_CONFIG: &str = "BadRestConfig";
    /// `ClusterProfiles` are switched off.
    pub const MULTI_KUEUE_CLUSTER_PROFILE_FEATURE_DISABLED: &str = "MultiKueueClusterProfileFeatureDisabled";
    /// The cluster cannot be reached.
    pub const CLIENT_CONNECTION_FAILED: &str = "ClientConnectionFailed";
}

/// Reasons of `Active` of a `ProvisioningRequest` check; the first is for True, the other for False.
pub mod provisioning_check_active {
    /// It can be used.
    pub const ACTIVE: &str = "Active";
    /// Its settings are missing or wrong.
    pub const BAD_PARAMETERS_REF: &str = "BadParametersRef";
}

/// Reasons an autoscaler gives on a `ProvisioningRequest`.
pub mod provisioning_request {
    /// The request is taken up.
    pub const ACCEPTED: &str = "Accepted";
    /// The nodes are there.
    pub const CAPACITY_IS_FOUND: &str = "CapacityIsFound";
    /// The nodes are on their way.
    pub const CAPACITY_IS_PROVISIONED: &str = "CapacityIsProvisioned";
    /// There is no room.
    pub const CAPACITY_IS_NOT_FOUND: &str = "CapacityIsNotFound";
    /// The simulation failed.
    pub const FAILED_TO_CHECK_CAPACITY: &str = "FailedToCheckCapacity";
    /// The pod templates are gone.
    pub const FAILED_TO_BOOK_CAPACITY: &str = "FailedToBookCapacity";
    /// Pod templates are missing.
    pub const FAILED_TO_CREATE_PODS: &str = "FailedToCreatePods";
    /// Nothing was provisioned for too long.
    pub const EXPIRED: &str = "Expired";
    /// The booking is over.
    pub const CAPACITY_RESERVATION_TIME_EXPIRED: &str = "CapacityReservationTimeExpired";
    /// All pods are scheduled.
    pub const CAPACITY_BOOKING_CONSUMED: &str = "CapacityBookingConsumed";
}
