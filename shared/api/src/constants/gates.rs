//! Scheduling gates of pods and preemption gates of workloads (`spec/api.md` API-12).

/// Scheduling gate of a plain pod, removed at admission.
pub const ADMISSION: &str = "kueue.x-k8s.io/admission";
/// Scheduling gate of a pod, removed when its topology domain is assigned.
pub const TOPOLOGY: &str = "kueue.x-k8s.io/topology";
/// Scheduling gate of a pod of an elastic job, removed when its slice is admitted.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// Preemption gate of the variants of a workload.
pub const CONCURRENT_ADMISSION: &str = "kueue.x-k8s.io/concurrent-admission";
/// Preemption gate of a remote copy.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
