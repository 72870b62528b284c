//! The kinds of jobs that can be played, and what the scenes need to know of each.

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::options::{EXIT_CODE, RUN_SECONDS};
use crate::stage::Runs;

/// The kind of the jobs that are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Kind {
    /// Jobs of `batch/v1`
    #[default]
    Job,
    /// JobSets, with the JobSet controller
    #[value(name = "jobset")]
    JobSet,
    /// `PyTorchJobs`, with the training operator
    #[value(name = "pytorchjob")]
    PyTorchJob,
    /// `MPIJobs`, with the MPI operator
    #[value(name = "mpijob")]
    MpiJob,
}

impl Kind {
    /// The facts about a kind that has a controller of its own; `None` for Jobs.
    pub(super) const fn facts(self) -> Option<&'static Facts> {
        match self {
            Self::Job => None,
            Self::JobSet => Some(&JOBSET),
            Self::PyTorchJob => Some(&PYTORCH),
            Self::MpiJob => Some(&MPI),
        }
    }
}

/// What the scenes need to know of a kind.
#[derive(Debug)]
pub(super) struct Facts {
    /// The name of the integration.
    pub(super) framework: &'static str,
    /// Its controller.
    pub(super) runs: Runs,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    /// The name in paths.
    pub(super) plural: &'static str,
    /// Where its specification says that it is held.
    pub(super) suspend: &'static str,
    /// Where it names its controller.
    pub(super) managed_by: &'static str,
    /// The condition of a job that has succeeded.
    pub(super) succeeded: &'static str,
    /// The specification of two pods that run for so many seconds and end so.
    pub(super) spec: fn(u32, End) -> Value,
    /// Whether its status shows two running pods.
    pub(super) both_run: fn(&Value) -> bool,
    /// The fields of its status that do not change after its end.
    pub(super) lasting: &'static [&'static str],
}

/// How the pods of a job end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Well,
    Badly,
}

const JOBSET: Facts = Facts {
    framework: "jobset.x-k8s.io/jobset",
    runs: Runs::JobSets,
    group: "jobset.x-k8s.io",
    version: "v1alpha2",
    kind: "JobSet",
    plural: "jobsets",
    suspend: "/spec/suspend",
    managed_by: "/spec/managedBy",
    succeeded: "Completed",
    spec: |seconds, end| {
        let mut template = template("main", seconds, end);
        template["spec"]["restartPolicy"] = "Never".into();
        let job =
            json!({"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}});
        json!({"replicatedJobs": [
            {"name": "leader", "replicas": 1, "template": job},
            {"name": "worker", "replicas": 1, "template": job},
        ]})
    },
    both_run: |job| {
        let statuses = job["status"]["replicatedJobsStatus"].as_array();
        statuses
            .into_iter()
            .flatten()
            .filter(|one| one["ready"] == 1)
            .count()
            == 2
    },
    lasting: &["conditions", "restarts", "terminalState"],
};

const PYTORCH: Facts = Facts {
    framework: "kubeflow.org/pytorchjob",
    runs: Runs::TrainingJobs,
    group: "kubeflow.org",
    version: "v1",
    kind: "PyTorchJob",
    plural: "pytorchjobs",
    suspend: "/spec/runPolicy/suspend",
    managed_by: "/spec/runPolicy/managedBy",
    succeeded: "Succeeded",
    spec: |seconds, end| {
        let role = role("pytorch", seconds, end);
        json!({"pytorchReplicaSpecs": {"Master": role, "Worker": role}})
    },
    both_run: both_roles_run,
    lasting: &["conditions", "startTime", "completionTime"],
};

const MPI: Facts = Facts {
    framework: "kubeflow.org/mpijob",
    runs: Runs::MpiJobs,
    version: "v2beta1",
    kind: "MPIJob",
    plural: "mpijobs",
    spec: |seconds, end| {
        let role = role("mpi", seconds, end);
        let policy = match end {
            End::Well => json!({}),
            // Why: the launcher is a Job, which is tried again by default.
            End::Badly => json!({"backoffLimit": 0}),
        };
        json!({"runPolicy": policy, "mpiReplicaSpecs": {"Launcher": role, "Worker": role}})
    },
    ..PYTORCH
};

/// One replica of a role of Kubeflow.
fn role(container: &str, seconds: u32, end: End) -> Value {
    // Why not always `Never`: the operator calls a job failed whose pods were deleted when it was held.
    let restart = match end {
        End::Well => "OnFailure",
        End::Badly => "Never",
    };
    json!({
        "replicas": 1, "restartPolicy": restart, "template": template(container, seconds, end),
    })
}

/// Whether the pods of two roles run.
fn both_roles_run(job: &Value) -> bool {
    let roles = job["status"]["replicaStatuses"].as_object();
    let active = roles.into_iter().flatten().filter(|(_, one)| one["active"] == 1);
    active.count() == 2
}

fn template(container: &str, seconds: u32, end: End) -> Value {
    let mut annotations = json!({RUN_SECONDS: seconds.to_string()});
    if end == End::Badly {
        annotations[EXIT_CODE] = "3".into();
    }
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{
            "name": container, "image": "none", "resources": {"requests": {"cpu": "1"}},
        }]},
    })
}
