//! A namespace that is deleted while a job of it runs, on either side.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;

use super::fixture::{EAST, MANAGER, Room, WEST, alone, cluster_name, condition, cpu_queue};
use super::watched::Watched;
use crate::shared::{chain, eventually};

/// A wide job fits only into east.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "8"), (WEST, "4")];

async fn delete(room: Room, cluster: &str) {
    let namespaces: Api<Namespace> = Api::all(room.shared.client(cluster));
    namespaces
        .delete(room.name, &DeleteParams::default())
        .await
        .unwrap();
    eventually(|| async { namespaces.get_opt(room.name).await.ok()?.is_none().then_some(()) }).await;
}

async fn make_again(room: Room, quota: &[(&str, &str)]) {
    let made = room
        .shared
        .stage
        .furnish(room.name, cpu_queue(room.name, quota))
        .await;
    made.unwrap_or_else(|error| panic!("{}", chain(&error)));
}

/// Its pods die with it, and the job has failed by its own rules. What comes later is not tried there again and again, and
/// starts when the namespace is back.
///
/// Spec: safety F27, I1, I2; multikueue 10.F29
#[test]
fn a_job_whose_namespace_is_deleted_in_its_worker_has_failed_and_the_next_one_waits_for_the_namespace() {
    alone("namespace-of-worker", EAST_IS_LARGER, |room| async move {
        let seen = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        room.submit(room.job("wide", "6", 60)).await;
        assert_eq!(room.started("wide").await, EAST);
        let pods: Api<Pod> = room.api(EAST);
        eventually(|| async {
            let pods = pods.list(&ListParams::default()).await.ok()?;
            (!pods.items.is_empty()).then_some(())
        })
        .await;
        delete(room, EAST).await;
        let ended = room.job_is(MANAGER, "wide", "Failed").await;
        assert_eq!(ended.status.unwrap().failed, Some(1));

        room.submit(room.job("later", "6", 1)).await;
        room.submit(room.job("narrow", "1", 1)).await;
        room.job_is(MANAGER, "narrow", "Complete").await;
        assert_eq!(room.started("narrow").await, WEST);
        let waits = room.workload("later").await.unwrap();
        assert_eq!(cluster_name(&waits), None, "it fits nowhere else");
        assert_eq!(seen.created().await, ["wide"], "nothing was made again");

        make_again(room, EAST_IS_LARGER).await;
        let ended = room.job_is(MANAGER, "later", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        room.is_swept().await;
    });
}

/// Spec: safety F27, I5
#[test]
fn what_runs_for_a_namespace_that_is_deleted_on_the_manager_is_taken_away_and_nothing_keeps_the_namespace() {
    alone("namespace-of-manager", EAST_IS_LARGER, |room| async move {
        for (name, cpu) in [("wide", "6"), ("narrow", "1"), ("too-wide", "12")] {
            room.submit(room.job(name, cpu, 600)).await;
        }
        for name in ["wide", "narrow"] {
            room.started(name).await;
        }
        let placed = room
            .workload_where("wide", |workload| condition(workload, "Admitted").is_some())
            .await;
        delete(room, MANAGER).await;
        room.is_swept().await;
        make_again(room, EAST_IS_LARGER).await;
        room.queue_is_known(room.name).await;
        let jobs: Vec<Job> = room
            .jobs(MANAGER)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        assert!(jobs.is_empty(), "{jobs:?}");
        // The same name once more, and all of the quota.
        room.submit(room.job("wide", "8", 1)).await;
        room.job_is(MANAGER, "wide", "Complete").await;
        let now = room.workload("wide").await.unwrap();
        assert_ne!(now.metadata.uid, placed.metadata.uid);
        room.is_swept().await;
    });
}
