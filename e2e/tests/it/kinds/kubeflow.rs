//! The kinds of Kubeflow, with the training operator and the MPI operator.

use serde_json::{Value, json};

use super::ground::{EAST, MANAGER, is_true, play, pods};
use super::scenes::{Subject, alone, far, stopped_from_far};

/// A template of one core whose container has this name, as the operators ask for it.
fn template(container: &str, secs: u32) -> Value {
    let mut template = pods(secs);
    // Why: the restart policy stands beside the template.
    template["spec"].as_object_mut().unwrap().remove("restartPolicy");
    template["spec"]["containers"][0]["name"] = json!(container);
    template
}

/// One replica of each of these roles.
///
/// Why not `Never`: a pod that is deleted ends as failed, and with that policy the operator then calls a job failed that was held and
/// let go again before its pods were gone.
pub(super) fn replicas(container: &str, roles: &[&str], secs: u32) -> Value {
    let one = json!({"replicas": 1, "restartPolicy": "OnFailure", "template": template(container, secs)});
    roles
        .iter()
        .map(|role| ((*role).to_owned(), one.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Whether so many pods run, of all replicas.
fn active(job: &Value, wanted: i64) -> bool {
    let statuses = job["status"]["replicaStatuses"].as_object().into_iter().flatten();
    let active: i64 = statuses.filter_map(|(_, status)| status["active"].as_i64()).sum();
    active == wanted && is_true(job, "Running")
}

const fn trained(kind: &'static str, template: &'static str, spec: fn(u32) -> Value) -> Subject {
    Subject {
        api_version: "kubeflow.org/v1",
        kind,
        spec,
        pods: 2,
        suspend: "/spec/runPolicy/suspend",
        managed_by: "/spec/runPolicy/managedBy",
        template,
        runs: |job| active(job, 2),
        succeeded: |job| is_true(job, "Succeeded"),
        stays_held: false,
        makes: &[("v1", "Service")],
    }
}

pub(super) const MASTER_AND_WORKER: [&str; 2] = ["Master", "Worker"];

pub(super) static TRAINING: [Subject; 5] = [
    trained(
        "PyTorchJob",
        "/spec/pytorchReplicaSpecs/Worker/template",
        |secs| json!({"pytorchReplicaSpecs": replicas("pytorch", &MASTER_AND_WORKER, secs)}),
    ),
    trained(
        "TFJob",
        "/spec/tfReplicaSpecs/Worker/template",
        |secs| json!({"tfReplicaSpecs": replicas("tensorflow", &["Chief", "Worker"], secs)}),
    ),
    trained(
        "PaddleJob",
        "/spec/paddleReplicaSpecs/Worker/template",
        |secs| json!({"paddleReplicaSpecs": replicas("paddle", &MASTER_AND_WORKER, secs)}),
    ),
    trained(
        "XGBoostJob",
        "/spec/xgbReplicaSpecs/Worker/template",
        |secs| json!({"xgbReplicaSpecs": replicas("xgboost", &MASTER_AND_WORKER, secs)}),
    ),
    Subject {
        // Why: its controller would run it on the manager too.
        stays_held: true,
        ..trained("JAXJob", "/spec/jaxReplicaSpecs/Worker/template", |secs| {
            let mut workers = replicas("jax", &["Worker"], secs);
            workers["Worker"]["replicas"] = json!(2);
            json!({"jaxReplicaSpecs": workers})
        })
    },
];

pub(super) static MPI: [Subject; 1] = [Subject {
    api_version: "kubeflow.org/v2beta1",
    template: "/spec/mpiReplicaSpecs/Worker/template",
    makes: &[
        ("batch/v1", "Job"),
        ("v1", "Service"),
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
    ],
    ..trained(
        "MPIJob",
        "",
        |secs| json!({"mpiReplicaSpecs": replicas("mpi", &["Launcher", "Worker"], secs)}),
    )
}];

/// Spec: jobs 9.3, 5.8, 5.9, 15.26, 15.34, 15.72
#[test]
fn kubeflow_jobs_are_admitted_preempted_resumed_and_end_on_one_cluster() {
    play("kubeflow-alone", &[(EAST, "10")], async |room| {
        alone(room, &TRAINING).await;
    });
}

/// Spec: jobs 9.3, 10.1, 15.53; multikueue 5, 11.57
#[test]
fn kubeflow_jobs_of_the_manager_run_on_a_worker_and_show_their_end() {
    play("kubeflow-far", &[(MANAGER, "16"), (EAST, "16")], async |room| {
        far(room, &TRAINING).await;
    });
}

/// Spec: multikueue 3.8, 3.9, 11.80; safety 1 I1
#[test]
fn kubeflow_jobs_that_are_stopped_by_the_manager_go_with_their_pods_and_run_anew() {
    play("kubeflow-anew", &[(MANAGER, "16"), (EAST, "16")], async |room| {
        stopped_from_far(room, &TRAINING).await;
    });
}

/// Spec: jobs 9.4, 5.2, 5.8, 5.9
#[test]
fn an_mpijob_is_admitted_preempted_resumed_and_ends_on_one_cluster() {
    play("mpi-alone", &[(EAST, "2")], async |room| alone(room, &MPI).await);
}

/// Spec: jobs 9.4, 10.1; multikueue 5, 11.57
#[test]
fn an_mpijob_of_the_manager_runs_on_a_worker_and_shows_its_end() {
    play("mpi-far", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        far(room, &MPI).await;
    });
}

/// Spec: multikueue 3.8, 3.9, 11.80; safety 1 I1
#[test]
fn an_mpijob_that_is_stopped_by_the_manager_goes_with_its_pods_and_runs_anew() {
    play("mpi-anew", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        stopped_from_far(room, &MPI).await;
    });
}
