//! API groups, and prefixes of keys.

/// Group of queues and workloads.
pub const KUEUE: &str = "kueue.x-k8s.io";
/// Prefix of labels and annotations of the queue.
pub const KUEUE_PREFIX: &str = "kueue.x-k8s.io/";
/// Prefix of Roadstead's own labels and annotations.
pub const ROADSTEAD_PREFIX: &str = "roadstead.dev/";
