//! API groups, and prefixes of keys.

/// Group of queues and workloads.
pub const KUEUE: &str = "kueue.x-k8s.io";
/// Prefix of labels and annotations of the queue.
pub const KUEUE_PREFIX: &str = "kueue.x-k8s.io/";
/// Group of `ProvisioningRequest`.
pub const AUTOSCALING: &str = "autoscaling.x-k8s.io";
/// Group of the `PriorityClass` of pods.
pub const SCHEDULING: &str = "scheduling.k8s.io";
/// Aggregated group that lists pending workloads (`spec/api.md` API-15).
pub const VISIBILITY: &str = "visibility.kueue.x-k8s.io";
/// Domain of everything that Kueue does not have.
pub const ROADSTEAD: &str = "roadstead.dev";
/// Prefix of Roadstead's own labels and annotations.
pub const ROADSTEAD_PREFIX: &str = "roadstead.dev/";
/// Group of the `Configuration` file.
pub const CONFIG_KUEUE: &str = "config.kueue.x-k8s.io";
/// Group of the `RoadsteadConfiguration` file.
pub const CONFIG_ROADSTEAD: &str = "config.roadstead.dev";
