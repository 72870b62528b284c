//! Field managers of server-side apply (`spec/api.md` API-12).
//!
//! Wire: clients that merge tell the writers apart by these names.

/// Admission and the conditions that go with it.
pub const ADMISSION: &str = "kueue-admission";
/// Prefix of the manager that writes one condition from a job; the condition type follows.
pub const JOB_CONDITION_PREFIX: &str = "kueue-job-controller-";
/// `status.reclaimablePods`.
pub const RECLAIMABLE_PODS: &str = "kueue-reclaimable-pods";
/// State of a `MultiKueue` check.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// State of a `ProvisioningRequest` check.
pub const PROVISIONING_REQUEST: &str = "kueue.x-k8s.io/provisioning-request";
/// Condition `TerminationTarget` of a pod that is being stopped.
pub const POD_TERMINATION: &str = "kueue";
