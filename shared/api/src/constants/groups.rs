//! API groups, and prefixes of keys.

/// Group of queues and workloads.
pub const KUEUE: &str = "kueue.x-k8s.io";
