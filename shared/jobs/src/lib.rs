//! Job kinds: how to suspend, start, stop and copy each kind of job, and how to read its end.
//!
//! A job is a set of [`kind::Members`]: one object for most kinds, many for a group of pods. Everything but their metadata is a
//! `serde_json::Value`, never a typed struct, so that unknown fields survive a copy to another cluster. This crate **never** talks to a
//! server, reads a clock or decides whether something happens; it only knows how.
//!
//! Reading order: [`kind`] (the contract), [`batch`] (a kind with code of its own), [`by_path`] (kinds that are data, such as [`jobset`]),
//! [`external`] (kinds that are in no table), [`podset`] (the injection at start), [`naming`], [`equivalence`], [`webhook`].
//!
//! ```
//! use roadstead_jobs::kind::{Member, Members};
//! use serde_json::json;
//! let kinds = roadstead_jobs::registry();
//! let (meta, data) = (&Default::default(), &json!({"spec": {"parallelism": 3, "template": {}}}));
//! let job = Member { meta, data };
//! assert_eq!(kinds[0].pod_sets(Members::one(&job)).unwrap()[0].count, 3);
//! ```

pub mod kind;

pub mod appwrapper;
pub mod argo;
pub mod batch;

pub mod by_path;
pub mod external;
pub mod jobset;
pub mod kubeflow;
pub mod parent;
pub mod pod;
pub mod ray;
pub mod spark;
pub mod trainjob;

pub mod equivalence;
pub mod json;
pub mod labels;
pub mod naming;
pub mod needs;
pub mod podset;
pub mod problem;
pub mod remote;
pub mod webhook;

#[cfg(test)]
mod every_kind;
#[cfg(test)]
mod fixture;

pub use kind::JobKind;
pub use podset::JobPodSet;

/// All kinds, in the order of the table.
pub fn registry() -> Vec<&'static dyn JobKind> {
    vec![
        &batch::BatchJob,
        &jobset::JOBSET,
        &kubeflow::MPI_JOB,
        &kubeflow::TF_JOB,
        &kubeflow::PYTORCH_JOB,
        &kubeflow::PADDLE_JOB,
        &kubeflow::XGBOOST_JOB,
        &kubeflow::JAX_JOB,
        &trainjob::TrainJob,
        &ray::RAY_JOB,
        &ray::RAY_CLUSTER,
        &ray::RAY_SERVICE,
        &appwrapper::AppWrapper,
        &spark::SPARK_APPLICATION,
        &pod::PlainPod,
        &parent::DEPLOYMENT,
        &parent::STATEFUL_SET,
        &parent::LEADER_WORKER_SET,
        &argo::Workflow,
    ]
}

/// The kind with this API group and kind name, whatever its version.
pub fn kind_of(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    registry().into_iter().find(|known| known.kind().is(group, kind))
}

/// The kind of the integration of this name.
pub fn kind_named(framework: &str) -> Option<&'static dyn JobKind> {
    registry()
        .into_iter()
        .find(|known| known.kind().framework == framework)
}

#[cfg(test)]
mod tests {
    use roadstead_kinds::{Kind, TABLE};

    /// Spec: jobs 4.1
    #[test]
    fn each_row_of_the_table_has_a_file_here_in_the_order_of_the_table() {
        let here: Vec<&Kind> = super::registry().into_iter().map(super::JobKind::kind).collect();
        assert_eq!(here, TABLE.iter().collect::<Vec<_>>());
    }
}
