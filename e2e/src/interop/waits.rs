//! Jobs that have to wait.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_api::constants::annotations::JOB_MIN_PARALLELISM;
use roadstead_api::constants::labels::PRIORITY_CLASS;
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::report::Report;
use super::room::{Checks, Quota, Room, TARGET_ONLY, says};
use super::scene::{MANAGER, Scene};

/// How long a scene watches that a job waits.
const MEANWHILE: Duration = Duration::from_secs(3);
/// A job of 6 CPUs fits into the quota of the manager only.
const TARGET_TOO_SMALL: Quota = Quota {
    manager: 16,
    target: 4,
    other: 0,
    checks: Checks::None,
};
/// A worker asks its autoscaler before a job starts.
const ASKED_FIRST: Quota = Quota {
    checks: Checks::Capacity,
    ..TARGET_ONLY
};

pub(super) async fn play(scene: &Scene, report: &mut Report) {
    report.play(scene, "no-quota", TARGET_TOO_SMALL, no_quota).await;
    report.play(scene, "priority", TARGET_TOO_SMALL, priority).await;
    report.play(scene, "partial", TARGET_TOO_SMALL, partial).await;
    report.play(scene, "provisioned", ASKED_FIRST, provisioned).await;
}

/// Spec: multikueue 3.5
async fn no_quota(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    room.submit(room.job("wide", 6, 2)).await?;
    let copy = room
        .eventually("the worker says why the copy waits", || async {
            let copy = room.copy(target, "wide").await?;
            Ok(copy.filter(|copy| copy.condition("QuotaReserved").is_some()))
        })
        .await?;
    sleep(MEANWHILE).await;
    let here = room
        .workload_where("wide", "holds quota", |workload| {
            workload.is_true("QuotaReserved")
        })
        .await?;
    ensure!(!here.is_true("Admitted"), "it is admitted on the manager");
    ensure!(room.starts("wide").is_empty(), "it was started");
    room.set_quota(target, 8).await?;
    room.ends_as("wide", "Complete").await?;
    room.is_swept().await?;
    let starts = room.starts("wide");
    ensure!(starts == [target], "started in {starts:?}");
    Ok(format!(
        "waited in {target} ({}), ran when there was quota",
        says(&copy, "QuotaReserved")
    ))
}

/// Spec: multikueue 3.3 R5
async fn priority(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    let mut job = room.job("rising", 6, 1);
    job["metadata"]["labels"][PRIORITY_CLASS] = json!("low");
    room.submit(job).await?;
    let has = async |class: &str, priority: i32| {
        room.eventually(&format!("the copy has priority {priority}"), || async {
            let copy = room.copy(target, "rising").await?;
            Ok(copy.filter(|copy| {
                let spec = json!(copy.spec);
                spec["priority"] == priority && spec["priorityClassRef"]["name"] == class
            }))
        })
        .await
    };
    let before = has("low", 10).await?;
    let labels = json!({"metadata": {"labels": {PRIORITY_CLASS: "high"}}});
    room.merge::<Job>(MANAGER, "rising", labels).await?;
    let after = has("high", 1000).await?;
    ensure!(
        before.metadata.uid == after.metadata.uid,
        "the copy was made anew"
    );
    room.delete_from(MANAGER, "rising").await?;
    room.is_swept().await?;
    Ok(format!(
        "low (10) became high (1000) on the copy in {target}, which stayed the same object"
    ))
}

/// Spec: jobs 5.3
async fn partial(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    let mut job = room.job("shrinking", 2, 3);
    job["spec"]["parallelism"] = json!(4);
    job["metadata"]["annotations"] = json!({JOB_MIN_PARALLELISM: "1"});
    room.submit(job).await?;
    let jobs = room.api::<Job>(target)?;
    let started = room
        .eventually("the job is started in the worker", || async {
            let job = json!(jobs.get("shrinking").await?);
            Ok((job["spec"]["suspend"] == false).then_some(job))
        })
        .await?;
    room.ends_as("shrinking", "Complete").await?;
    room.is_swept().await?;
    let starts = room.starts("shrinking");
    ensure!(starts == [target], "started in {starts:?}");
    let there = &started["spec"]["parallelism"];
    ensure!(there == 2, "it was started with parallelism {there}");
    let here = json!(room.api::<Job>(MANAGER)?.get("shrinking").await?);
    Ok(format!(
        "asked for 4 pods, at least 1; ran once in {target} with {there}, the manager shows parallelism {}",
        here["spec"]["parallelism"]
    ))
}

/// The worker is named only when its checks are passed too.
///
/// Spec: multikueue 3.15
async fn provisioned(room: &Room<'_>) -> anyhow::Result<String> {
    let target = room.scene.target;
    room.submit(room.job("booked", 2, 4)).await?;
    room.runs_in(target, "booked").await?;
    let copy = room.copy(target, "booked").await?.context("no copy")?;
    let checks = copy
        .status
        .map(|status| status.admission_checks)
        .unwrap_or_default();
    let check = checks.first().context("no check in the worker")?;
    let requests = room.api::<ProvisioningRequest>(target)?;
    let asked = requests.list(&ListParams::default()).await?.items.len();
    room.ends_as("booked", "Complete").await?;
    room.is_swept().await?;
    room.eventually("the request is gone from the worker", || async {
        Ok(requests
            .list(&ListParams::default())
            .await?
            .items
            .is_empty()
            .then_some(()))
    })
    .await?;
    let starts = room.starts("booked");
    ensure!(starts == [target], "started in {starts:?}");
    Ok(format!(
        "{asked} ProvisioningRequest in {target}; its check said {:?} \"{}\"; ran once, the request is gone",
        check.state, check.message
    ))
}
