//! The rows, in the order of `spec/jobs.md 4.1`.

use crate::{
    Ability, Absent, Holder, Idle, Kind, ManagedBy, Members, On, PodPlace, Pods, Review, Right, Rights,
};

/// All rows.
pub(crate) static ALL: [&Kind; 19] = [
    &JOB,
    &JOB_SET,
    &MPI_JOB,
    &TF_JOB,
    &PYTORCH_JOB,
    &PADDLE_JOB,
    &XGBOOST_JOB,
    &JAX_JOB,
    &TRAIN_JOB,
    &RAY_JOB,
    &RAY_CLUSTER,
    &RAY_SERVICE,
    &APP_WRAPPER,
    &SPARK_APPLICATION,
    &POD,
    &DEPLOYMENT,
    &STATEFUL_SET,
    &LEADER_WORKER_SET,
    &WORKFLOW,
];

/// Rights for an object that its own controller runs. The engine suspends, starts, stops and deletes it, and shows the status of its copy
/// on it. A manager creates that copy and deletes it.
const OF_JOBS: Rights = Rights {
    engine: &[
        Right {
            on: On::Objects,
            verbs: &["delete", "get", "list", "patch", "watch"],
        },
        Right {
            on: On::Part("status"),
            verbs: &["patch"],
        },
        // Why: an API server may forbid an owner reference that blocks the deletion of the owner.
        Right {
            on: On::Part("finalizers"),
            verbs: &["update"],
        },
    ],
    account: &[
        Right {
            on: On::Objects,
            verbs: &["create", "delete", "get", "list", "patch", "watch"],
        },
        Right {
            on: On::Part("status"),
            verbs: &["get"],
        },
    ],
};

/// Rights for kinds whose pods are the jobs: the engine holds and releases the pods, and only reads the object itself.
const OF_PARENTS: Rights = Rights {
    engine: &[Right {
        on: On::Objects,
        verbs: &["get", "list", "watch"],
    }],
    account: &[],
};

/// Rights for pods. Why task results: a pod that is a step of an Argo Workflow stores its result on the worker, and the manager brings it
/// back.
const OF_PODS: Rights = Rights {
    engine: OF_JOBS.engine,
    account: &[
        OF_JOBS.account[0],
        OF_JOBS.account[1],
        Right {
            on: On::Other {
                group: "argoproj.io",
                resource: "workflowtaskresults",
            },
            verbs: &["delete", "list", "watch"],
        },
    ],
};

/// Rights for Argo Workflows, which have no status subresource. Why templates: a Workflow may name templates, which must exist
/// on the worker.
const OF_WORKFLOWS: Rights = Rights {
    engine: OF_JOBS.engine,
    account: &[
        OF_JOBS.account[0],
        Right {
            on: On::Other {
                group: "argoproj.io",
                resource: "workflowtemplates",
            },
            verbs: &["get"],
        },
        Right {
            on: On::Other {
                group: "argoproj.io",
                resource: "clusterworkflowtemplates",
            },
            verbs: &["get"],
        },
    ],
};

const ADOPTED: &[Ability] = &[Ability::Prebuilt, Ability::Dispatched];
const RESIZED: &[Ability] = &[Ability::Prebuilt, Ability::Elastic, Ability::Dispatched];

/// The common part of most rows.
const COMMON: Kind = Kind {
    framework: "",
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    managed_by: None,
    idle: Idle::ManagedBy,
    members: Members::One,
    review: Review::Every,
    abilities: ADOPTED,
    rights: OF_JOBS,
    implies: None,
    gate: None,
    wrapped: &[],
};

const fn spec(default: &'static str) -> ManagedBy {
    ManagedBy {
        path: &["spec", "managedBy"],
        said: "spec.managedBy",
        default,
    }
}

const fn run_policy(said: &'static str, default: &'static str) -> ManagedBy {
    ManagedBy {
        path: &["spec", "runPolicy", "managedBy"],
        said,
        default,
    }
}

const fn replicas_at(holder: &'static [&'static str]) -> PodPlace {
    PodPlace {
        holder: Holder::At(holder),
        template: &["template"],
        absent: Absent::Unseen,
        pods: Pods::Replicas(&["replicas"]),
    }
}

const fn head_at(template: &'static [&'static str]) -> PodPlace {
    PodPlace {
        holder: Holder::At(&[]),
        template,
        absent: Absent::Wrong,
        pods: Pods::One,
    }
}

const fn groups_at(list: &'static [&'static str]) -> PodPlace {
    PodPlace {
        holder: Holder::EachOf(list),
        template: &["template"],
        absent: Absent::NoPods,
        pods: Pods::ReplicasOf(&["numOfHosts"], &["replicas"]),
    }
}

const TEMPLATE_OF_REPLICAS: PodPlace = PodPlace {
    holder: Holder::At(&[]),
    template: &["spec", "template"],
    absent: Absent::NoPods,
    pods: Pods::Replicas(&["spec", "replicas"]),
};

/// The common part of the training operator's kinds.
const OF_TRAINING_OPERATOR: Kind = Kind {
    group: "kubeflow.org",
    managed_by: Some(run_policy("spec.managedBy", "kubeflow.org/training-operator")),
    ..COMMON
};

/// The common part of `KubeRay`'s kinds.
const OF_RAY: Kind = Kind {
    group: "ray.io",
    managed_by: Some(spec("ray.io/kuberay-operator")),
    abilities: RESIZED,
    ..COMMON
};

/// The common part of kinds whose pods are the jobs.
const OF_PARENT: Kind = Kind {
    members: Members::WithPods,
    abilities: &[],
    rights: OF_PARENTS,
    implies: Some("pod"),
    ..COMMON
};

/// `batch/v1 Job`. *Source*: `spec/jobs.md 9.1`.
pub static JOB: Kind = Kind {
    framework: "batch/job",
    group: "batch",
    kind: "Job",
    plural: "jobs",
    managed_by: Some(spec("kubernetes.io/job-controller")),
    abilities: RESIZED,
    wrapped: &[PodPlace {
        holder: Holder::At(&[]),
        template: &["spec", "template"],
        absent: Absent::Wrong,
        pods: Pods::OfJob(&["spec"]),
    }],
    ..COMMON
};

/// `JobSet`. *Source*: `spec/jobs.md 9.2`.
pub static JOB_SET: Kind = Kind {
    framework: "jobset.x-k8s.io/jobset",
    group: "jobset.x-k8s.io",
    version: "v1alpha2",
    kind: "JobSet",
    plural: "jobsets",
    managed_by: Some(spec("jobset.sigs.k8s.io/jobset-controller")),
    wrapped: &[PodPlace {
        holder: Holder::EachOf(&["spec", "replicatedJobs"]),
        template: &["template", "spec", "template"],
        absent: Absent::Unseen,
        pods: Pods::OfJobs(&["template", "spec"]),
    }],
    ..COMMON
};

/// `MPIJob`. *Source*: `spec/jobs.md 9.4`.
pub static MPI_JOB: Kind = Kind {
    framework: "kubeflow.org/mpijob",
    group: "kubeflow.org",
    version: "v2beta1",
    kind: "MPIJob",
    plural: "mpijobs",
    managed_by: Some(run_policy(
        "spec.runPolicy.managedBy",
        "kubeflow.org/mpi-operator",
    )),
    ..COMMON
};

/// `TFJob`. *Source*: `spec/jobs.md 9.3`.
pub static TF_JOB: Kind = Kind {
    framework: "kubeflow.org/tfjob",
    kind: "TFJob",
    plural: "tfjobs",
    ..OF_TRAINING_OPERATOR
};

/// `PyTorchJob`. *Source*: `spec/jobs.md 9.3`.
pub static PYTORCH_JOB: Kind = Kind {
    framework: "kubeflow.org/pytorchjob",
    kind: "PyTorchJob",
    plural: "pytorchjobs",
    wrapped: &[
        replicas_at(&["spec", "pytorchReplicaSpecs", "Master"]),
        replicas_at(&["spec", "pytorchReplicaSpecs", "Worker"]),
    ],
    ..OF_TRAINING_OPERATOR
};

/// `PaddleJob`. *Source*: `spec/jobs.md 9.3`.
pub static PADDLE_JOB: Kind = Kind {
    framework: "kubeflow.org/paddlejob",
    kind: "PaddleJob",
    plural: "paddlejobs",
    ..OF_TRAINING_OPERATOR
};

/// `XGBoostJob`. *Source*: `spec/jobs.md 9.3`.
pub static XGBOOST_JOB: Kind = Kind {
    framework: "kubeflow.org/xgboostjob",
    kind: "XGBoostJob",
    plural: "xgboostjobs",
    ..OF_TRAINING_OPERATOR
};

/// `JAXJob`. Unlike the anchor: it may name a prebuilt Workload, otherwise no worker could accept its copy. It stays suspended on a
/// manager, because the training operator (seen with 1.9.3) heeds `managedBy` for every kind but this one. *Source*: `spec/jobs.md 9.3`.
pub static JAX_JOB: Kind = Kind {
    framework: "kubeflow.org/jaxjob",
    kind: "JAXJob",
    plural: "jaxjobs",
    idle: Idle::Held,
    ..OF_TRAINING_OPERATOR
};

/// `TrainJob`. Unlike the anchor: it stays suspended on a manager, because Trainer (seen with 2.2.0) does not heed `managedBy`. *Source*:
/// `spec/jobs.md 9.5`.
pub static TRAIN_JOB: Kind = Kind {
    framework: "trainer.kubeflow.org/trainjob",
    group: "trainer.kubeflow.org",
    version: "v1alpha1",
    kind: "TrainJob",
    plural: "trainjobs",
    managed_by: Some(spec("trainer.kubeflow.org/trainjob-controller")),
    idle: Idle::Held,
    implies: Some("jobset.x-k8s.io/jobset"),
    ..COMMON
};

/// `RayJob`. *Source*: `spec/jobs.md 9.7`.
pub static RAY_JOB: Kind = Kind {
    framework: "ray.io/rayjob",
    kind: "RayJob",
    plural: "rayjobs",
    wrapped: &[
        head_at(&["spec", "rayClusterSpec", "headGroupSpec", "template"]),
        groups_at(&["spec", "rayClusterSpec", "workerGroupSpecs"]),
    ],
    ..OF_RAY
};

/// `RayCluster`. *Source*: `spec/jobs.md 9.6`.
pub static RAY_CLUSTER: Kind = Kind {
    framework: "ray.io/raycluster",
    kind: "RayCluster",
    plural: "rayclusters",
    wrapped: &[
        head_at(&["spec", "headGroupSpec", "template"]),
        groups_at(&["spec", "workerGroupSpecs"]),
    ],
    ..OF_RAY
};

/// `RayService`; the clusters that it makes follow it. *Source*: `spec/jobs.md 9.8`.
pub static RAY_SERVICE: Kind = Kind {
    framework: "ray.io/rayservice",
    kind: "RayService",
    plural: "rayservices",
    implies: Some("ray.io/raycluster"),
    ..OF_RAY
};

/// `AppWrapper`. *Source*: `spec/jobs.md 9.9`.
pub static APP_WRAPPER: Kind = Kind {
    framework: "workload.codeflare.dev/appwrapper",
    group: "workload.codeflare.dev",
    version: "v1beta2",
    kind: "AppWrapper",
    plural: "appwrappers",
    managed_by: Some(spec("workload.codeflare.dev/appwrapper-controller")),
    ..COMMON
};

/// `SparkApplication`. Unlike the anchor: it is dispatched, and stays suspended on the manager because it has no `managedBy`. *Source*:
/// `spec/jobs.md 9.10`.
pub static SPARK_APPLICATION: Kind = Kind {
    framework: "sparkoperator.k8s.io/sparkapplication",
    group: "sparkoperator.k8s.io",
    version: "v1beta2",
    kind: "SparkApplication",
    plural: "sparkapplications",
    idle: Idle::Held,
    gate: Some("SparkApplicationIntegration"),
    ..COMMON
};

/// `Pod`, alone or in a group. *Source*: `spec/jobs.md 9.14, 12`.
pub static POD: Kind = Kind {
    framework: "pod",
    kind: "Pod",
    plural: "pods",
    idle: Idle::Gate,
    members: Members::Group,
    review: Review::Queued,
    rights: OF_PODS,
    wrapped: &[PodPlace {
        holder: Holder::At(&[]),
        template: &[],
        absent: Absent::Unseen,
        pods: Pods::One,
    }],
    ..COMMON
};

/// `Deployment`: each of its pods is a job. *Source*: `spec/jobs.md 9.11`.
pub static DEPLOYMENT: Kind = Kind {
    framework: "deployment",
    group: "apps",
    kind: "Deployment",
    plural: "deployments",
    wrapped: &[TEMPLATE_OF_REPLICAS],
    ..OF_PARENT
};

/// `StatefulSet`. *Source*: `spec/jobs.md 9.12`.
pub static STATEFUL_SET: Kind = Kind {
    framework: "statefulset",
    group: "apps",
    kind: "StatefulSet",
    plural: "statefulsets",
    wrapped: &[TEMPLATE_OF_REPLICAS],
    ..OF_PARENT
};

/// `LeaderWorkerSet`. *Source*: `spec/jobs.md 9.13`.
pub static LEADER_WORKER_SET: Kind = Kind {
    framework: "leaderworkerset.x-k8s.io/leaderworkerset",
    group: "leaderworkerset.x-k8s.io",
    kind: "LeaderWorkerSet",
    plural: "leaderworkersets",
    ..OF_PARENT
};

/// Argo's `Workflow` as one unit. Unlike the anchor, which does not know it. It stays suspended on the manager because it has no
/// `managedBy`. *Source*: `spec/jobs.md 9.15`.
pub static WORKFLOW: Kind = Kind {
    framework: "argoproj.io/workflow",
    group: "argoproj.io",
    version: "v1alpha1",
    kind: "Workflow",
    plural: "workflows",
    idle: Idle::Held,
    review: Review::Queued,
    rights: OF_WORKFLOWS,
    ..COMMON
};

/// The row of a kind that the administrator names by `framework`, with the group, version, kind and plural of its API. *Source*:
/// `spec/jobs.md 11`.
pub const fn external(framework: &'static str, [group, version, kind, plural]: [&'static str; 4]) -> Kind {
    Kind {
        framework,
        group,
        version,
        kind,
        plural,
        managed_by: Some(ManagedBy {
            path: &["spec", "managedBy"],
            said: ".spec.managedBy",
            default: "",
        }),
        gate: Some("MultiKueueAdaptersForCustomJobs"),
        ..COMMON
    }
}

/// An invented kind, which no cluster serves. Tests use it to show that a rule depends only on the row of a kind.
pub static INVENTED: Kind = Kind {
    framework: "example.com/train",
    group: "example.com",
    kind: "Train",
    plural: "trains",
    ..JOB
};
