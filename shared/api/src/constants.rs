//! Names.

/// Condition types.
pub mod conditions {
    /// Workload.
    pub mod workload {}
    /// ProvisioningRequest.
    pub mod provisioning_request {}
}
