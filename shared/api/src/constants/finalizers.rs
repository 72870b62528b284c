//! Finalizers (`spec/api.md` API-12).

/// On queues, flavors, checks, topologies and workloads: kept while something refers to them.
pub const RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
/// On the copy of a job in a worker cluster: kept until its outcome is stored on the manager (`spec/safety.md` 3.7).
pub const OUTCOME: &str = "roadstead.dev/outcome";
/// On pods that are queued by themselves: kept until the queue has seen their end.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// On a `MultiKueueCluster`: kept until nothing that the manager sent is left there (`spec/safety.md` 3.8).
pub const LEAVING: &str = "roadstead.dev/leaving";
/// Kubernetes' own: kept until what the object owns is gone. Not Kueue's.
pub const FOREGROUND: &str = "foregroundDeletion";
