//! Condition types and status values (`spec/api.md` API-2.3, API-9.6, `spec/provisioning.md` 2.5).

/// Status of a condition that holds.
pub const TRUE: &str = "True";
/// Status of a condition that does not hold.
pub const FALSE: &str = "False";
/// Status of a condition that is not known.
pub const UNKNOWN: &str = "Unknown";
/// Queues, checks and worker clusters: it can be used.
pub const ACTIVE: &str = "Active";
/// Cluster queues: their quotas follow the workers.
pub const MULTI_KUEUE_MANAGER_QUOTA_AUTOMATION: &str = "MultiKueueManagerQuotaAutomation";

/// Conditions of a `Workload`.
pub mod workload {
    /// Quota is reserved in a cluster queue.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// Quota is reserved, all checks are ready, and the job may start.
    pub const ADMITTED: &str = "Admitted";
    /// The job is being stopped, or was, and quota is given back.
    pub const EVICTED: &str = "Evicted";
    /// The eviction makes room for another workload.
    pub const PREEMPTED: &str = "Preempted";
    /// Whether the workload is back in the queue after an eviction.
    pub const REQUEUED: &str = "Requeued";
    /// All pods are ready or have succeeded.
    pub const PODS_READY: &str = "PodsReady";
    /// The job has ended; never becomes false.
    pub const FINISHED: &str = "Finished";
    /// The workload is about to be deactivated.
    pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
    /// It would have to preempt other workloads, and a gate forbids it.
    pub const BLOCKED_ON_PREEMPTION_GATES: &str = "BlockedOnPreemptionGates";
    /// A pod group waits for pods that replace failed ones; keeps it out of the queue.
    pub const WAITING_FOR_REPLACEMENT_PODS: &str = "WaitingForReplacementPods";
}

/// Conditions of a `ProvisioningRequest`.
pub mod provisioning_request {
    /// The autoscaler has taken the request up.
    pub const ACCEPTED: &str = "Accepted";
    /// The nodes are there or on their way.
    pub const PROVISIONED: &str = "Provisioned";
    /// The request failed for good.
    pub const FAILED: &str = "Failed";
    /// The capacity is no longer held for the pods.
    pub const BOOKING_EXPIRED: &str = "BookingExpired";
    /// The capacity is taken away.
    pub const CAPACITY_REVOKED: &str = "CapacityRevoked";
}
