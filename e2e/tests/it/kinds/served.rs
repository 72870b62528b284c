//! A kind that a worker does not serve at first, and that is added while everything runs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use serde_json::{Value, json};

use super::ground::{KUEUE, MANAGER, Room, WEST, WEST_CHANGES, is_true, join, play, pods, resource};
use super::jobset::{all_of_it, jobset, jobsets, submit};
use crate::shared::{chain, eventually};

const JOBSETS: &str = "jobsets.jobset.x-k8s.io";
pub(super) const EXPLANATION: &str = "roadstead.dev/explanation";

pub(super) fn definitions(room: Room) -> Api<CustomResourceDefinition> {
    Api::all(room.client(WEST))
}

/// Takes a kind away from the worker. Returns its definition.
pub(super) async fn take_away(room: Room, name: &str) -> CustomResourceDefinition {
    let mut definition = definitions(room).get(name).await.unwrap();
    definitions(room)
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
    eventually(|| async {
        let there = definitions(room).get_opt(name).await.ok()?;
        there.is_none().then_some(())
    })
    .await;
    definition.metadata.resource_version = None;
    definition.metadata.uid = None;
    definition.metadata.managed_fields = None;
    definition.metadata.finalizers = None;
    definition.status = None;
    definition
}

/// A job of one pod, in the queue of the test.
fn plain_job(room: Room, name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name},
        },
        "spec": {"template": pods(1)},
    })
}

async fn is_active(room: Room) -> bool {
    let clusters: Api<MultiKueueCluster> = Api::all(room.client(MANAGER));
    let west = clusters.get(WEST).await.unwrap();
    let conditions = west.status.unwrap_or_default().conditions;
    conditions
        .iter()
        .any(|c| c.type_ == "Active" && c.status == "True")
}

pub(super) async fn explained(room: Room, job: &str) -> String {
    let kubeconfig = room.stage().kubeconfig(MANAGER).display().to_string();
    let args = ["explain", job, "-n", room.name, "--kubeconfig", &kubeconfig];
    let said = room.stage().command(&args).await;
    said.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// No process is restarted: the worker stays connected, and its other jobs run.
///
/// Spec: safety F26; multikueue 10.F6 (deviation); experience 5
#[test]
fn a_worker_without_jobsets_runs_jobs_and_gets_jobsets_as_soon_as_it_serves_them() {
    play("jobset-comes", &[(MANAGER, "16"), (WEST, "8")], async |room| {
        let _alone = WEST_CHANGES.lock().await;
        join(room.stage(), WEST).await;
        let definition = take_away(room, JOBSETS).await;
        submit(room, MANAGER, jobset(room, "train", 3)).await;
        let waits = |w: &Value| {
            let record = w["metadata"]["annotations"][EXPLANATION].as_str();
            record.is_some_and(|record| record.contains("KindNotServedOnCluster"))
        };
        room.workload(MANAGER, "train", waits).await;
        let said = explained(room, "jobset/train").await;
        assert!(
            said.contains("west") && said.contains("KindNotServedOnCluster"),
            "{said}"
        );
        let there = room.api(WEST, &resource(KUEUE, "Workload"));
        assert!(there.list(&ListParams::default()).await.unwrap().items.is_empty());

        let job = resource("batch/v1", "Job");
        room.apply(MANAGER, plain_job(room, "plain")).await;
        room.until(MANAGER, &job, "plain", |j| is_true(j, "Complete"))
            .await;
        assert!(is_active(room).await);

        let params = PostParams::default();
        definitions(room).create(&params, &definition).await.unwrap();
        room.until(MANAGER, &jobsets(), "train", |j| is_true(j, "Completed"))
            .await;
        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Finished")).await;
        assert_eq!(workload["status"]["clusterName"], WEST);
        assert!(is_active(room).await);
        room.stage().check().unwrap();
        room.delete(MANAGER, &jobsets(), "train").await;
        room.delete(MANAGER, &job, "plain").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(WEST, &all_of_it()).await;
    });
}
