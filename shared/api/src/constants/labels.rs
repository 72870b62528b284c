//! Label keys (`spec/api.md` API-12), and the rule for the value of any label.

/// On a job or pod: the `LocalQueue` it is submitted to.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// On a job: the `WorkloadPriorityClass` its workload gets.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// On a job: the existing `Workload` to use. Readers look at the annotation of the same name first.
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// On a job: becomes `spec.maximumExecutionTimeSeconds` of its workload; an integer above 0.
pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// On a `Workload`: UID of the job it was made for.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// On a pod or a `ProvisioningRequest`: made or handled by the queue; value [`TRUE`].
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// On a pod: name of its pod set.
pub const PODSET: &str = "kueue.x-k8s.io/podset";
/// On a pod: its `ClusterQueue` (gate `AssignQueueLabelsForPods`).
pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
/// On a pod: its `LocalQueue` (gate `AssignQueueLabelsForPods`).
pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
/// On a variant `Workload`: the workload it is a variant of.
pub const CONCURRENT_ADMISSION_PARENT: &str = "kueue.x-k8s.io/concurrent-admission-parent";
/// On a pod: the group it belongs to.
pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// On a pod: its index in the group, the rank for topology placement.
pub const POD_GROUP_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// On a remote copy: origin of the manager that made it.
pub const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// On the node that stands for a worker cluster, with its own name; also its taint, and what pods that are put on it select.
pub const VIRTUAL_NODE: &str = "roadstead.dev/virtual-node";
/// On the node that stands for a worker cluster: the cluster.
pub const CLUSTER: &str = "roadstead.dev/cluster";
/// On a pod of a remote copy, set by the worker; value [`TRUE`].
pub const MULTIKUEUE_WORKER_WORKLOAD_POD: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";

/// Value of labels and annotations that only say yes.
pub const TRUE: &str = "true";
/// Value of a metric's custom label when the real one is not tracked.
pub const UNTRACKED_VALUE: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";
/// Longest value of a label, in bytes.
pub const VALUE_LEN_MAX: usize = 63;

/// Whether a text may be the value of a label: empty, or at most [`VALUE_LEN_MAX`] letters, digits, `-`, `_` and `.` that begin and end
/// with a letter or digit.
pub fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    bytes.len() <= VALUE_LEN_MAX
        && bytes.iter().all(inner)
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::{VALUE_LEN_MAX, is_label_value};

    #[test]
    fn values_of_labels_are_checked_as_the_api_server_does() {
        for good in ["", "a", "A.b_c-9", "My_1.x", &"a".repeat(VALUE_LEN_MAX)] {
            assert!(is_label_value(good), "{good}");
        }
        for bad in [
            "-a",
            "a-",
            ".",
            "a b",
            "a/b",
            "\u{e9}",
            &"a".repeat(VALUE_LEN_MAX + 1),
        ] {
            assert!(!is_label_value(bad), "{bad}");
        }
    }
}
