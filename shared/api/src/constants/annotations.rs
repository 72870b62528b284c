//! Annotation keys (`spec/api.md` API-12), and those of our own under `roadstead.dev/`.

/// On a `Workload`: group, version and kind of the job it was made for.
pub const JOB_OWNER_GVK: &str = "kueue.x-k8s.io/job-owner-gvk";
/// On a `Workload`: name of the job it was made for.
pub const JOB_OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";
/// On a `Workload`: index among the workloads of one owner.
pub const COMPONENT_WORKLOAD_INDEX: &str = "kueue.x-k8s.io/component-workload-index";
/// On a job: the existing `Workload` to use; wins over the label.
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// On a pod template: name of the `Workload` it started with.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// On a job and its `Workload`: opts in to workload slices; value `true`.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// On a `Workload` slice and its pods: name the slices of one job share.
pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// On a `Workload` slice: `namespace/name` of the slice it replaces.
pub const WORKLOAD_SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// On a job or `Workload`: comma list of gates; while not empty it stays out of the queue.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// On a `Workload`: integer added to the priority (gate `PriorityBoost`).
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// On a `Workload`: the flavors it may use (concurrent admission).
pub const WORKLOAD_ALLOWED_RESOURCE_FLAVORS: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// On a pod template: topology level that all pods of the set must share a domain of.
pub const PODSET_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
/// On a pod template: topology level that all pods of the set should share a domain of.
pub const PODSET_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// On a pod template: place by topology, anywhere; parses as a boolean.
pub const PODSET_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// On a pod template: topology level that the pods of a slice must share a domain of.
pub const PODSET_SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// On a pod template: number of pods in a slice.
pub const PODSET_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// On a pod template: JSON list of 1 to 3 layers `{topology, size}`.
pub const PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: &str =
    "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// On a pod template: name shared by two pod sets that must be in the same domain.
pub const PODSET_GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
/// The annotations of a pod template that ask for places by topology.
pub const TOPOLOGY_REQUEST: [&str; 7] = [
    PODSET_REQUIRED_TOPOLOGY,
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_UNCONSTRAINED_TOPOLOGY,
    PODSET_SLICE_REQUIRED_TOPOLOGY,
    PODSET_SLICE_SIZE,
    PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
    PODSET_GROUP_NAME,
];
/// On a pod template: shift of the index in the rank label.
pub const POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
/// On a pod: the group it belongs to; same as the label.
pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// On a pod: number of pods in its group.
pub const POD_GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// On a pod: the group may be admitted before all its pods exist.
pub const POD_GROUP_FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// On a pod: the group serves and does not finish.
pub const POD_GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// On a pod: the label that holds its index in the group.
pub const POD_GROUP_POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// On a pod: `false` means that it is not replaced when it fails.
pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
/// On a pod: hash of its shape; pods of one hash form a pod set.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// On a `Workload`: it was built from a pod group; value `true`.
pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";
/// On a pod: the integration of the parent that suspends it.
pub const POD_SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// On a `batch/v1` Job: smallest parallelism with which it may run.
pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// On a `batch/v1` Job: completions follow the admitted parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// On a pod: it may be deleted by force when its node is gone.
pub const SAFE_TO_FORCEFULLY_DELETE: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";
/// On a remote copy: UID of the object on the manager.
pub const MULTIKUEUE_ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";
/// On a `batch/v1` Job: it is being suspended; value `true`.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// On a Ray object: the replica counts its workload was made with.
pub const RAYCLUSTER_PODSET_REPLICA_SIZES: &str = "kueue.x-k8s.io/raycluster-podset-replica-sizes";
/// On a Ray object: the generation its workload was made with.
pub const RAYCLUSTER_GENERATION: &str = "kueue.x-k8s.io/raycluster-generation";

/// Prefix of annotations that become parameters of a `ProvisioningRequest` (`spec/provisioning.md` 6.1).
pub const PROVISIONING_PARAMETER_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// On a pod: the `ProvisioningRequest` whose capacity it uses.
pub const CONSUME_PROVISIONING_REQUEST: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// On a pod: class of the `ProvisioningRequest` whose capacity it uses.
pub const PROVISIONING_CLASS_NAME: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// On a `Workload` and on its copies: number of the present dispatch (`spec/safety.md` 3), from 1; absent means 1.
pub const DISPATCH_EPOCH: &str = "roadstead.dev/dispatch-epoch";
/// On a job of the manager: how often it is tried on another worker when it has failed on one, a number from 0 to 100.
pub const RETRY_ELSEWHERE: &str = "roadstead.dev/retry-elsewhere";
/// On a `Workload` of the manager: the workers on which its job has failed, with commas between.
pub const FAILED_ON: &str = "roadstead.dev/failed-on";
/// On copies of a `Workload` and of its job: UID of the Workload on the manager (`spec/safety.md` 3.1).
pub const WORKLOAD_UID: &str = "roadstead.dev/workload-uid";
/// On a `ClusterQueue` of the manager: what happens to its jobs when their worker is lost, `Wait`, `Fence` or `RetryAnyway`.
/// On the copy of a `Workload`: the same; with `Fence` its worker stops it when the manager's lease runs out.
pub const WORKER_LOST_POLICY: &str = "roadstead.dev/worker-lost-policy";
/// On the copy of a `Workload`: the worker fenced it; its value is the number of the dispatch (`spec/safety.md` 3.3).
pub const FENCED: &str = "roadstead.dev/fenced";
/// On the copy of a `Workload` with policy Fence: length of the lease that its manager keeps there, in seconds. It shows a
/// restarted worker that a lease is missing.
pub const LEASE_SECONDS: &str = "roadstead.dev/lease-seconds";
/// On the lease of a manager: number of the last renewal.
pub const LEASE_RENEWAL: &str = "roadstead.dev/lease-renewal";
/// On the lease of a manager: changed by the worker regularly, so that the manager knows that the worker watches the lease.
pub const LEASE_WATCHED: &str = "roadstead.dev/lease-watched";
/// On a `MultiKueueCluster`: which cluster it leads to, as `UID at PRINT`: the UID of its namespace `kube-system` (`-` where that may
/// not be read) and a print of the address and the certificate authority of its API server.
pub const CLUSTER_IDENTITY: &str = "roadstead.dev/cluster-identity";
/// On a `Workload`: why it does not run, as a record for users and programs (`spec/experience.md`).
pub const EXPLANATION: &str = "roadstead.dev/explanation";
/// On a pod of the manager: the node on which it shows in which cluster it runs.
pub const VIRTUAL_NODE: &str = "roadstead.dev/virtual-node";
/// On a pod of an Argo Workflow, a Deployment or a `LeaderWorkerSet` of the manager: `true` when it may run in another cluster than the
/// others.
pub const SPREAD: &str = "roadstead.dev/spread";
/// On a namespace of the manager: `true` when the `ConfigMaps`, Secrets and headless Services that its jobs name may be carried to the worker
/// that runs them.
pub const CARRIES_NEEDS: &str = "roadstead.dev/carries-needs";
/// On a namespace of a worker: the origins of the managers that may bring such objects, with commas between.
pub const ACCEPTS_FROM: &str = "roadstead.dev/accepts-from";
/// On an object that a manager brought to a worker: `true`.
pub const CARRIED: &str = "roadstead.dev/carried";
/// On the copy of a pod: the gates of other owners that the pod had when it was sent, with commas between. One that the pod of the
/// manager has lost since is removed from the copy.
pub const SENT_GATES: &str = "roadstead.dev/sent-gates";
/// On an Argo Workflow that is queued as one unit: the pods for which it gets quota, a JSON list of `{name, count, requests}`.
pub const POD_SETS: &str = "roadstead.dev/pod-sets";
/// On an Argo Workflow that runs as one unit: the fields that its start has changed, as they were before.
pub const BEFORE_START: &str = "roadstead.dev/before-start";
/// On a `MultiKueueCluster`: `true` when it gets no new jobs, `drain` when its jobs go elsewhere too.
pub const CORDON: &str = "roadstead.dev/cordon";
/// On a `MultiKueueCluster`: an administrator's statement that the runs on this lost cluster are lost. The value is the time at
/// which condition `Active` became False; a statement about an earlier loss is void.
pub const GIVEN_UP: &str = "roadstead.dev/given-up";
