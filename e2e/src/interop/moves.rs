//! Jobs that a worker stops.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use roadstead_api::constants::labels::PRIORITY_CLASS;
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::json;

use super::report::Report;
use super::room::{Room, TARGET_ONLY, cluster_name};
use super::scene::{MANAGER, Scene};

pub(super) async fn play(scene: &Scene, report: &mut Report) {
    report.play(scene, "preempted", TARGET_ONLY, preempted).await;
    report.play(scene, "preempting", TARGET_ONLY, preempting).await;
    report
        .play(scene, "off-there", TARGET_ONLY, switched_off_there)
        .await;
    report
        .play(scene, "deleted-there", TARGET_ONLY, deleted_there)
        .await;
}

/// Spec: multikueue 3.7, 10.F22; safety I1
async fn preempted(room: &Room<'_>) -> anyhow::Result<String> {
    let (target, other) = (room.scene.target, room.scene.other);
    let lower = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    room.merge_queue(target, lower).await?;
    room.submit(room.job("victim", 6, 20)).await?;
    room.runs_in(target, "victim").await?;
    room.set_quota(other, 8).await?;
    let mut urgent = room.job("urgent", 6, 600);
    urgent["metadata"]["labels"][PRIORITY_CLASS] = json!("high");
    room.submit_to(target, urgent).await?;
    let moved = room
        .workload_where("victim", "goes to the other worker", |workload| {
            cluster_name(workload) == Some(other)
        })
        .await?;
    room.runs_in(other, "victim").await?;
    room.is_swept_in(target).await?;
    let urgent: Job = room.api::<Job>(target)?.get("urgent").await?;
    ensure!(
        json!(urgent)["spec"]["suspend"] == false,
        "the worker's own job does not run"
    );
    room.ends_as("victim", "Complete").await?;
    room.is_swept().await?;
    let starts = room.starts("victim");
    ensure!(starts == [target, other], "started in {starts:?}");
    room.delete_from(target, "urgent").await?;
    room.delete_from(MANAGER, "victim").await?;
    let requeued = moved.status.context("no status")?.requeue_state;
    Ok(format!(
        "preempted in {target} by a job of its own, ran again in {other} to its end (requeueState {})",
        json!(requeued)
    ))
}

/// The manager's job takes the place of one of the worker's own.
///
/// Spec: multikueue 3.5
async fn preempting(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    let lower = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    room.merge_queue(target, lower).await?;
    let mut own = room.job("own", 6, 600);
    own["metadata"]["labels"][PRIORITY_CLASS] = json!("low");
    room.submit_to(target, own).await?;
    let jobs = room.api::<Job>(target)?;
    let is_held = async |held: bool| {
        let what = format!("the worker's own job is held: {held}");
        room.eventually(&what, || async {
            let own = json!(jobs.get("own").await?);
            Ok((own["spec"]["suspend"] == held).then_some(()))
        })
        .await
    };
    is_held(false).await?;
    let mut urgent = room.job("urgent", 6, 6);
    urgent["metadata"]["labels"][PRIORITY_CLASS] = json!("high");
    room.submit(urgent).await?;
    is_held(true).await?;
    room.ends_as("urgent", "Complete").await?;
    room.is_swept().await?;
    is_held(false).await?;
    let starts = room.starts("urgent");
    ensure!(starts == [target], "started in {starts:?}");
    room.delete_from(target, "own").await?;
    Ok(format!(
        "took the place of a job of {target}, ran once to its end; the other one went on"
    ))
}

/// The worker's administrator deactivates the copy.
///
/// Spec: multikueue 3.7
async fn switched_off_there(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    room.submit(room.job("refused", 1, 10)).await?;
    room.runs_in(target, "refused").await?;
    room.set_quota(room.scene.other, 8).await?;
    let copy = room.copy(target, "refused").await?.context("no copy")?.name_any();
    room.merge::<Workload>(target, &copy, json!({"spec": {"active": false}}))
        .await?;
    runs_again(room, "refused").await
}

/// The worker's administrator deletes the job.
///
/// Spec: multikueue 3.3 R3
async fn deleted_there(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    room.submit(room.job("removed", 1, 10)).await?;
    room.runs_in(target, "removed").await?;
    room.set_quota(room.scene.other, 8).await?;
    room.delete_from(target, "removed").await?;
    runs_again(room, "removed").await
}

/// Checks that the job runs again in a worker with room, to its end.
async fn runs_again(room: &Room<'_>, job: &str) -> anyhow::Result<String> {
    room.ends_as(job, "Complete").await?;
    room.workload_where(job, "is Finished", |workload| workload.is_true("Finished"))
        .await?;
    room.is_swept().await?;
    let starts = room.starts(job);
    ensure!(starts.len() == 2, "started in {starts:?}");
    Ok(format!(
        "started in {}, ended once, nothing left",
        starts.join(", then in ")
    ))
}
