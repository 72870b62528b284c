//! Processes that die while a job runs.

use anyhow::ensure;
use k8s_openapi::api::batch::v1::Job;
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::report::Report;
use super::room::{Room, TARGET_ONLY};
use super::scene::{MANAGER, Scene, condition};

/// How long an engine stays killed: longer than its job runs.
const DEAD: Duration = Duration::from_secs(8);

pub(super) async fn play(scene: &Scene, report: &mut Report) {
    report
        .play(scene, "manager-killed", TARGET_ONLY, manager_killed)
        .await;
    report
        .play(scene, "worker-killed", TARGET_ONLY, worker_killed)
        .await;
}

/// The job ends while the manager is dead.
///
/// Spec: multikueue 10.F11; safety I11
async fn manager_killed(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    room.submit(room.job("unwatched", 1, 5)).await?;
    room.runs_in(target, "unwatched").await?;
    room.scene.stage.kill(MANAGER)?;
    let jobs = room.api::<Job>(target)?;
    let ended = room
        .eventually("the job ends in the worker", || async {
            let job = json!(jobs.get("unwatched").await?);
            let complete = condition(&job, "Complete").is_some_and(|found| found["status"] == "True");
            Ok(complete.then_some(()))
        })
        .await;
    room.scene.stage.restart(MANAGER).await?;
    ended?;
    ends_once(room, "unwatched").await?;
    Ok(format!(
        "ended in {target} while the manager was dead; known when it was back, ran once, nothing left"
    ))
}

/// Spec: safety I11
async fn worker_killed(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    room.submit(room.job("unattended", 1, 5)).await?;
    room.runs_in(target, "unattended").await?;
    room.scene.stage.kill(target)?;
    // Why no wait for its end: without the engine's webhooks the API server refuses changes of its pod, so the pod does not end.
    sleep(DEAD).await;
    room.scene.stage.restart(target).await?;
    ends_once(room, "unattended").await?;
    Ok(format!(
        "its pod ended in {target} while the engine there was dead; ran once, nothing left when it was back"
    ))
}

async fn ends_once(room: &Room<'_>, job: &str) -> anyhow::Result<()> {
    room.ends_as(job, "Complete").await?;
    room.workload_where(job, "is Finished", |workload| workload.is_true("Finished"))
        .await?;
    room.is_swept().await?;
    let starts = room.starts(job);
    ensure!(starts == [room.scene.target], "started in {starts:?}");
    Ok(())
}
