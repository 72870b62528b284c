//! Condition types and status values (`spec/api.md` API-2.3, API-9.6, `spec/provisioning.md` 2.5).

/// Status of a condition that holds.
pub const TRUE: &str = "True";
/// Status of a condition that does not hold.
pub const FALSE: &str = "False";
/// Queues, checks and worker clusters: it can be used.
pub const ACTIVE: &str = "Active";

/// Conditions of a `Workload`.
pub mod workload {
    /// Quota is reserved in a cluster queue.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// Quota is reserved, all checks are ready, and the job may start.
    pub const ADMITTED: &str = "Admitted";
    /// The job is being stopped, or was, and quota is given back.
    pub const EVICTED: &str = "Evicted";
    /// The job has ended; never becomes false.
    pub const FINISHED: &str = "Finished";
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
