//! `TrainJob`, with Kubeflow's Trainer and the JobSet controller.

use roadstead_e2e::stage;
use serde_json::{Value, json};

use super::ground::{self, EAST, LONG_SECS, MANAGER, Room, is_true, play};
use super::scenes::{SHORT_SECS, Subject, alone, far, stopped_from_far};

pub(super) const TRAINER: &str = "trainer.kubeflow.org/v1alpha1";

/// Runtimes whose pods run so long.
async fn runtimes(room: Room, clusters: &[&str]) {
    for (cluster, secs) in
        { clusters.iter() }.flat_map(|cluster| [SHORT_SECS, LONG_SECS].map(|secs| (cluster, secs)))
    {
        let mut runtime = runtime("ClusterTrainingRuntime", 1, secs);
        runtime["metadata"] = json!({"name": format!("run-{secs}")});
        stage::apply(&room.client(cluster), runtime).await.unwrap();
    }
}

/// A runtime without a name, of so many pods of one core that run so long.
pub(super) fn runtime(kind: &str, pods: usize, secs: u32) -> Value {
    let mut template = ground::pods(secs);
    template["spec"]["containers"][0]["name"] = json!("node");
    let step = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let node = json!({"name": "node", "template": {"metadata": step, "spec": {"template": template}}});
    json!({
        "apiVersion": TRAINER, "kind": kind,
        "spec": {"mlPolicy": {"numNodes": pods}, "template": {"spec": {"replicatedJobs": [node]}}},
    })
}

static TRAIN_JOB: [Subject; 1] = [Subject {
    api_version: TRAINER,
    kind: "TrainJob",
    spec: |secs| json!({"runtimeRef": {"name": format!("run-{secs}")}, "trainer": {"numNodes": 2}}),
    pods: 2,
    suspend: "/spec/suspend",
    managed_by: "/spec/managedBy",
    template: "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template",
    runs: |job| job["status"]["jobsStatus"][0]["ready"] == 1,
    succeeded: |job: &Value| is_true(job, "Complete"),
    // Why: Trainer would run it on the manager too.
    stays_held: true,
    makes: &[
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("batch/v1", "Job"),
        ("v1", "Service"),
    ],
}];

/// Spec: jobs 9.5, 5.2, 5.8, 5.9, 15.79
#[test]
fn a_trainjob_is_admitted_preempted_resumed_and_ends_on_one_cluster() {
    play("train-alone", &[(EAST, "2")], async |room| {
        runtimes(room, &[EAST]).await;
        alone(room, &TRAIN_JOB).await;
    });
}

/// Spec: jobs 9.5, 10.1; multikueue 5, 11.57
#[test]
fn a_trainjob_of_the_manager_runs_on_a_worker_and_shows_its_end() {
    play("train-far", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        runtimes(room, &[MANAGER, EAST]).await;
        far(room, &TRAIN_JOB).await;
    });
}

/// Spec: multikueue 3.8, 3.9, 11.80; safety 1 I1
#[test]
fn a_trainjob_that_is_stopped_by_the_manager_goes_with_its_pods_and_runs_anew() {
    play("train-anew", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        runtimes(room, &[MANAGER, EAST]).await;
        stopped_from_far(room, &TRAIN_JOB).await;
    });
}
