//! Jobs that a user or an administrator stops on the manager.

use anyhow::ensure;
use kube::ResourceExt as _;
use serde_json::json;

use super::report::Report;
use super::room::{Room, TARGET_ONLY, cluster_name, says};
use super::scene::{MANAGER, Scene};

pub(super) async fn play(scene: &Scene, report: &mut Report) {
    report.play(scene, "deleted", TARGET_ONLY, deleted).await;
    report.play(scene, "deactivated", TARGET_ONLY, deactivated).await;
    report
        .play(scene, "queue-drained", TARGET_ONLY, queue_drained)
        .await;
}

/// Spec: multikueue 3.9, 10.F24
async fn deleted(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    room.submit(room.job("cancelled", 1, 600)).await?;
    room.runs_in(target, "cancelled").await?;
    room.delete_from(MANAGER, "cancelled").await?;
    room.is_swept().await?;
    room.eventually("the Workload is gone", || async {
        Ok(room.workload("cancelled").await?.is_none().then_some(()))
    })
    .await?;
    Ok(format!(
        "deleted while it ran in {target}: job, pods and Workload are gone there, the Workload on the manager too"
    ))
}

/// Spec: multikueue 3.8, 3.9
async fn deactivated(room: &Room<'_>) -> anyhow::Result<String> {
    room.submit(room.job("pausing", 1, 12)).await?;
    room.runs_in(room.scene.target, "pausing").await?;
    room.set_active("pausing", false).await?;
    let stopped = is_stopped(room, "pausing").await?;
    room.set_active("pausing", true).await?;
    runs_again(room, "pausing").await?;
    Ok(format!(
        "switched off: {stopped}; switched on: ran again to its end"
    ))
}

/// Spec: multikueue 3.8
async fn queue_drained(room: &Room<'_>) -> anyhow::Result<String> {
    room.submit(room.job("drained", 1, 12)).await?;
    room.runs_in(room.scene.target, "drained").await?;
    room.merge_queue(MANAGER, json!({"spec": {"stopPolicy": "HoldAndDrain"}}))
        .await?;
    let stopped = is_stopped(room, "drained").await?;
    room.merge_queue(MANAGER, json!({"spec": {"stopPolicy": "None"}}))
        .await?;
    runs_again(room, "drained").await?;
    Ok(format!("queue drained: {stopped}; let go: ran again to its end"))
}

/// Checks that nothing is left in the workers, and that the manager's quota is free.
async fn is_stopped(room: &Room<'_>, job: &str) -> anyhow::Result<String> {
    room.is_swept().await?;
    let stopped = room
        .workload_where(job, "is evicted without quota", |workload| {
            workload.is_true("Evicted")
                && !workload.is_true("QuotaReserved")
                && cluster_name(workload).is_none()
        })
        .await?;
    let there = room.scene.history.eviction(room.name, &stopped.name_any());
    let there = there.map_or_else(
        || "its copy was removed without an eviction".to_owned(),
        |reason| format!("its copy was evicted as {reason}"),
    );
    Ok(format!("{}, {there}", says(&stopped, "Evicted")))
}

async fn runs_again(room: &Room<'_>, job: &str) -> anyhow::Result<()> {
    let target = room.scene.target;
    room.ends_as(job, "Complete").await?;
    room.workload_where(job, "is Finished", |workload| workload.is_true("Finished"))
        .await?;
    room.is_swept().await?;
    let starts = room.starts(job);
    ensure!(starts == [target, target], "started in {starts:?}");
    Ok(())
}
