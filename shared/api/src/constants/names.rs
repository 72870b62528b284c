//! Names of objects and of keys in them that have a meaning of their own (`spec/jobs.md` 2.3, `spec/multikueue.md` 1.1).

/// `LocalQueue` for jobs of its namespace that name no queue.
pub const DEFAULT_LOCAL_QUEUE: &str = "default";
/// `WorkloadPriorityClass` for jobs that name none.
pub const DEFAULT_PRIORITY_CLASS: &str = "default";
/// Pod set of a job that has only one.
pub const MAIN_POD_SET: &str = "main";
/// The mutating webhook configuration, as the reference has it.
pub const MUTATING_WEBHOOKS: &str = "kueue-mutating-webhook-configuration";
/// The validating webhook configuration, as the reference has it.
pub const VALIDATING_WEBHOOKS: &str = "kueue-validating-webhook-configuration";
/// The field manager under which a process writes the webhook configurations.
pub const REGISTRAR: &str = "roadstead";

/// Name of the node that stands for a worker cluster on its manager.
pub fn virtual_node(cluster: &str) -> String {
    format!("roadstead-{cluster}")
}
