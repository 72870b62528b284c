//! The kinds of Kubeflow's training operator, version 1, and of its MPI operator.
//!
//! *Source*: `spec/jobs.md 9.3, 9.4`, `spec/multikueue.md 5`.

mod mpi;

use roadstead_kinds::{Kind, rows};

use crate::by_path::places::{At, PodSets, Pods};
use crate::by_path::signs::{Conditions, Ends, Sign};
use crate::by_path::{ByPath, Path, Rules};

/// The common part of all these kinds.
const fn kubeflow(row: &'static Kind, pod_sets: &'static [PodSets]) -> ByPath {
    ByPath {
        row,
        suspend: &["spec", "runPolicy", "suspend"],
        pod_sets,
        active: Sign::Any {
            of: &["status", "replicaStatuses"],
            count: "active",
        },
        ready: Sign::Condition("Running"),
        ends: Some(Ends::Conditions(Conditions {
            succeeded: "Succeeded",
            failed: "Failed",
            repeated: None,
        })),
        spare: None,
        time_to_live: Some(&["spec", "runPolicy", "ttlSecondsAfterFinished"]),
        priority_class: Some(&["spec", "runPolicy", "schedulingPolicy", "priorityClass"]),
        followed: &[],
        rules: Rules::NONE,
    }
}

const fn replicas(map: Path, roles: &'static [&'static str]) -> PodSets {
    PodSets {
        at: At::Roles { map, roles },
        template: &["template"],
        pods: Pods::Replicas(&["replicas"]),
    }
}

const MASTER_AND_WORKERS: &[&str] = &["Master", "Worker"];

/// The kind `kubeflow.org/v1 TFJob`.
pub static TF_JOB: ByPath = kubeflow(
    &rows::TF_JOB,
    &[replicas(
        &["spec", "tfReplicaSpecs"],
        &["Chief", "Master", "PS", "Worker", "Evaluator"],
    )],
);

/// The kind `kubeflow.org/v1 PyTorchJob`.
pub static PYTORCH_JOB: ByPath = kubeflow(
    &rows::PYTORCH_JOB,
    &[replicas(&["spec", "pytorchReplicaSpecs"], MASTER_AND_WORKERS)],
);

/// The kind `kubeflow.org/v1 PaddleJob`.
pub static PADDLE_JOB: ByPath = kubeflow(
    &rows::PADDLE_JOB,
    &[replicas(&["spec", "paddleReplicaSpecs"], MASTER_AND_WORKERS)],
);

/// The kind `kubeflow.org/v1 XGBoostJob`.
pub static XGBOOST_JOB: ByPath = kubeflow(
    &rows::XGBOOST_JOB,
    &[replicas(&["spec", "xgbReplicaSpecs"], MASTER_AND_WORKERS)],
);

/// The kind `kubeflow.org/v1 JAXJob`.
pub static JAX_JOB: ByPath = kubeflow(
    &rows::JAX_JOB,
    &[replicas(&["spec", "jaxReplicaSpecs"], &["Worker"])],
);

/// The kind `kubeflow.org/v2beta1 MPIJob`.
pub static MPI_JOB: ByPath = ByPath {
    rules: Rules {
        default: mpi::default,
        ..Rules::NONE
    },
    ..kubeflow(
        &rows::MPI_JOB,
        &[replicas(&["spec", "mpiReplicaSpecs"], &["Launcher", "Worker"])],
    )
};

#[cfg(test)]
mod tests;
