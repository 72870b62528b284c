//! Jobs that end by themselves.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use roadstead_api::constants::controllers::MULTIKUEUE;
use roadstead_api::kueue::v1beta2::CheckState;
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::report::Report;
use super::room::{BOTH, Room, TARGET_ONLY, cluster_name};
use super::scene::{MANAGER, Scene};
use crate::options::EXIT_CODE;

/// How long it is looked whether what has ended is started again.
const AFTERWARDS: Duration = Duration::from_secs(5);

pub(super) async fn play(scene: &Scene, report: &mut Report) {
    report.play(scene, "success", TARGET_ONLY, success).await;
    report.play(scene, "failure", TARGET_ONLY, failure).await;
    report.play(scene, "ttl-zero", TARGET_ONLY, ttl_zero).await;
    report.play(scene, "one-of-two", BOTH, one_of_two).await;
}

/// Spec: multikueue 1.8, 3.3 R6, 3.6
async fn success(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    let made = json!(room.submit(room.job("train", 1, 4)).await?);
    ensure!(made["spec"]["suspend"] == true, "the webhook did not suspend it");
    ensure!(
        made["spec"]["managedBy"] == MULTIKUEUE,
        "managedBy is {}",
        made["spec"]["managedBy"]
    );
    room.runs_in(target, "train").await?;
    let placed = room
        .workload_where("train", "names the worker", |workload| {
            cluster_name(workload) == Some(target)
        })
        .await?;
    let checks = placed
        .status
        .map(|status| status.admission_checks)
        .unwrap_or_default();
    let check = checks.first().context("no check")?;
    ensure!(check.state == CheckState::Ready, "the check is {:?}", check.state);
    let done = room.ends_as("train", "Complete").await?;
    ensure!(
        done["status"]["succeeded"] == 1,
        "the manager shows {}",
        done["status"]
    );
    ended_alike(room, "train", "Succeeded").await
}

/// Spec: multikueue 3.6
async fn failure(room: &Room<'_>) -> anyhow::Result<String> {
    let mut job = room.job("fails", 1, 1);
    job["spec"]["template"]["metadata"]["annotations"][EXIT_CODE] = "3".into();
    room.submit(job).await?;
    let done = room.ends_as("fails", "Failed").await?;
    ensure!(
        done["status"]["failed"] == 1,
        "the manager shows {}",
        done["status"]
    );
    ended_alike(room, "fails", "Failed").await
}

/// Spec: multikueue 5.1; safety I11
async fn ttl_zero(room: &Room<'_>) -> anyhow::Result<String> {
    let mut job = room.job("fleeting", 1, 2);
    job["spec"]["ttlSecondsAfterFinished"] = json!(0);
    room.submit(job).await?;
    room.ends_as("fleeting", "Complete").await?;
    ended_alike(room, "fleeting", "Succeeded").await
}

/// Spec: multikueue 3.3 R6b; safety I1
async fn one_of_two(room: &Room<'_>) -> anyhow::Result<String> {
    const JOBS: usize = 4;
    let names: Vec<String> = (0..JOBS).map(|index| format!("job-{index}")).collect();
    for name in &names {
        room.submit(room.job(name, 3, 3)).await?;
    }
    let mut placed = Vec::new();
    for name in &names {
        room.ends_as(name, "Complete").await?;
        let starts = room.starts(name);
        ensure!(starts.len() == 1, "{name} was started in {starts:?}");
        placed.extend(starts);
    }
    room.is_swept().await?;
    let there = |worker: &str| placed.iter().filter(|each| *each == worker).count();
    let (target, other) = (room.scene.target, room.scene.other);
    Ok(format!(
        "{JOBS} jobs ran once each: {} in {target}, {} in {other}; nothing left",
        there(target),
        there(other)
    ))
}

/// The Workload ended on the manager as its copy did in the worker, once, and nothing is left.
async fn ended_alike(room: &Room<'_>, job: &str, reason: &str) -> anyhow::Result<String> {
    let target = room.scene.target;
    let workload = room
        .workload_where(job, "is Finished", |workload| workload.is_true("Finished"))
        .await?;
    let end = workload.condition("Finished").context("no end")?;
    room.is_swept().await?;
    sleep(AFTERWARDS).await;
    let starts = room.starts(job);
    ensure!(starts == [target], "started in {starts:?}");
    ensure!(end.reason == reason, "the manager's reason is {}", end.reason);
    let there = room.scene.history.end(room.name, &workload.name_any());
    let there = there.context("its end was not seen in the worker")?;
    ensure!(
        (end.reason.as_str(), end.message.as_str()) == (there.0.as_str(), there.1.as_str()),
        "the manager says {} \"{}\", the worker said {there:?}",
        end.reason,
        end.message
    );
    let kept = room.api::<Job>(MANAGER)?.get_opt(job).await?;
    ensure!(kept.is_some(), "the job is gone from the manager");
    Ok(format!(
        "ran once in {target}; Finished {} \"{}\" on both; nothing left",
        end.reason, end.message
    ))
}
