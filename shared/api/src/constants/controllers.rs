//! Names by which controllers are addressed in objects.

/// Controller of the `MultiKueue` check: in `AdmissionCheck.spec.controllerName` and in `managedBy` of jobs.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// Controller of the `ProvisioningRequest` check: in `AdmissionCheck.spec.controllerName`.
pub const PROVISIONING_REQUEST: &str = "kueue.x-k8s.io/provisioning-request";

/// Provisioning class that only looks whether the pods fit now (`spec/provisioning.md` 13.2).
pub const CLASS_CHECK_CAPACITY: &str = "check-capacity.autoscaling.x-k8s.io";
/// Provisioning class that adds nodes for all pods or none (`spec/provisioning.md` 13.2).
pub const CLASS_ATOMIC_SCALE_UP: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
/// Provisioning class of GKE's queued provisioning (`spec/provisioning.md` 13.3).
pub const CLASS_QUEUED_PROVISIONING: &str = "queued-provisioning.gke.io";
