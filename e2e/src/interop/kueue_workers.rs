//! Roadstead manages one worker of Kueue, which the scenes are about, and one Roadstead worker.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::EXPLANATION;
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::kind::Kind;
use super::report::Report;
use super::room::{BOTH, Checks, Quota, Room, TARGET_ONLY, cluster_name};
use super::scene::{Cast, Gates, MANAGER, Scene, WORKER_LOST_TIMEOUT_SECS, condition, kueue};
use super::{ends, kills, moves, stops, waits};
use crate::link::Cut;
use crate::stage::{Engine, Kueue, SYSTEM_NAMESPACE};

/// The worker of Kueue.
const TARGET: &str = "kueue";
/// The Roadstead worker.
const OTHER: &str = "roadstead";
/// How long a scene watches that a job stays in its worker after the link was healed.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Starts all clusters and registers both workers with the command.
pub(super) async fn set_up(theirs: &Arc<Kueue>, gates: &Gates, kind: Kind) -> anyhow::Result<Scene> {
    let scene = Scene::set_up(Cast {
        title: "kueue-workers",
        manager: Engine::Roadstead,
        target: (TARGET, kueue(theirs)),
        other: (OTHER, Engine::Roadstead),
        gates,
        kind,
    })
    .await?;
    scene.stage.join(TARGET).await?;
    scene.stage.join(OTHER).await?;
    Ok(scene)
}

/// All scenes of this direction.
pub(super) async fn play(scene: &Scene, report: &mut Report) {
    report
        .play(scene, "registration", TARGET_ONLY, registration)
        .await;
    ends::play(scene, report).await;
    stops::play(scene, report).await;
    waits::play(scene, report).await;
    report.play(scene, "explained", NO_ROOM, explained).await;
    moves::play(scene, report).await;
    kills::play(scene, report).await;
    report.play(scene, "all-at-once", NO_ROOM, all_at_once).await;
    report.play(scene, "foreign", BOTH, foreign).await;
    report.play(scene, "cut-shortly", BOTH, cut_shortly).await;
    report.play(scene, "lost", TARGET_ONLY, lost).await;
    report.play(scene, "left", TARGET_ONLY, left).await;
}

/// A job of 4 CPUs fills a worker.
const NO_ROOM: Quota = Quota {
    manager: 16,
    target: 4,
    other: 4,
    checks: Checks::None,
};

/// Spec: multikueue 2.2; safety 3
async fn registration(room: &Room<'_>) -> anyhow::Result<String> {
    let clusters: Api<MultiKueueCluster> = Api::all(room.scene.client(MANAGER)?);
    let said = room
        .eventually("WorkerFence of the Kueue worker is settled", || async {
            let cluster = json!(clusters.get(TARGET).await?);
            Ok(condition(&cluster, "WorkerFence").cloned())
        })
        .await?;
    ensure!(
        said["status"] == "False" && said["reason"] == "NoFence",
        "WorkerFence says {said}"
    );
    let cluster = json!(clusters.get(TARGET).await?);
    let active = condition(&cluster, "Active").context("no condition Active")?;
    ensure!(active["status"] == "True", "Active says {active}");
    Ok(format!(
        "joined by the command; Active {}, WorkerFence {} {} {}",
        active["message"], said["status"], said["reason"], said["message"]
    ))
}

/// Fills both workers with local jobs that run longer than a scene.
async fn fill(room: &Room<'_>) -> anyhow::Result<()> {
    for worker in [TARGET, OTHER] {
        room.submit_to(worker, room.job("local", 4, 600)).await?;
        room.runs_in(worker, "local").await?;
    }
    Ok(())
}

/// Spec: multikueue 4.3
async fn all_at_once(room: &Room<'_>) -> anyhow::Result<String> {
    fill(room).await?;
    room.submit(room.job("wide", 3, 1)).await?;
    let waiting = room
        .workload_where("wide", "is offered to both workers", |workload| {
            let named = workload
                .status
                .as_ref()
                .map(|status| status.nominated_cluster_names.len());
            named == Some(2)
        })
        .await?;
    for worker in [TARGET, OTHER] {
        room.eventually(&format!("{worker} has a copy"), || room.copy(worker, "wide"))
            .await?;
    }
    room.delete_from(MANAGER, "wide").await?;
    room.is_swept().await?;
    let named = waiting
        .status
        .map(|status| status.nominated_cluster_names)
        .unwrap_or_default();
    Ok(format!(
        "offered to {} at once, and taken back from both when it was deleted",
        named.join(" and ")
    ))
}

/// Spec: experience 5; multikueue 4.4
async fn explained(room: &Room<'_>) -> anyhow::Result<String> {
    fill(room).await?;
    room.submit(room.job("wide", 3, 1)).await?;
    let manager = room.scene.stage.kubeconfig(MANAGER).display().to_string();
    let args = [
        "explain",
        "wide",
        "-n",
        room.name,
        "--kubeconfig",
        &manager,
        "-o",
        "json",
    ];
    let theirs = room
        .eventually("the explanation quotes Kueue", || async {
            let said: Value = serde_json::from_str(&room.scene.stage.command(&args).await?)?;
            let clusters = said[0]["clusters"].as_array().cloned().unwrap_or_default();
            let theirs = clusters.into_iter().find(|cluster| cluster["cluster"] == TARGET);
            Ok(theirs.filter(|theirs| theirs["answer"] == "NoRoom"))
        })
        .await?;
    room.delete_from(MANAGER, "wide").await?;
    room.is_swept().await?;
    Ok(format!(
        "explain: {} {} {}",
        theirs["cluster"], theirs["answer"], theirs["detail"]
    ))
}

/// Another client's job already has the name of the job's copy.
///
/// Spec: multikueue 6; safety I7
async fn foreign(room: &Room<'_>) -> anyhow::Result<String> {
    let mut theirs = room.job("taken", 1, 1);
    theirs["metadata"]["labels"] = json!({});
    theirs["spec"]["suspend"] = json!(true);
    let theirs = room.submit_to(TARGET, theirs).await?;
    room.set_quota(OTHER, 0).await?;
    room.submit(room.job("taken", 1, 3)).await?;
    let reason = room
        .eventually("the copy is withdrawn from the worker", || async {
            let workload = room.workload("taken").await?.context("the Workload is gone")?;
            let said = workload.annotations().get(EXPLANATION).cloned();
            Ok(said.filter(|said| said.contains(TARGET)))
        })
        .await?;
    room.set_quota(OTHER, 8).await?;
    room.ends_as("taken", "Complete").await?;
    let starts = room.starts("taken");
    ensure!(starts == [OTHER], "started in {starts:?}");
    let kept = room.api::<Job>(TARGET)?.get("taken").await?;
    ensure!(kept.uid() == theirs.uid(), "the job of somebody else is gone");
    ensure!(kept.spec == theirs.spec, "the job of somebody else was changed");
    room.is_swept().await?;
    let said: Value = serde_json::from_str(&reason)?;
    Ok(format!(
        "left alone; the manager said {}: {}; ran in {OTHER}",
        said["reason"], said["clusters"]
    ))
}

/// Spec: multikueue 3.10
async fn cut_shortly(room: &Room<'_>) -> anyhow::Result<String> {
    room.set_quota(OTHER, 0).await?;
    room.submit(room.job("survivor", 4, 30)).await?;
    room.runs_in(TARGET, "survivor").await?;
    room.set_quota(OTHER, 8).await?;
    room.scene.stage.link(TARGET)?.cut(Cut::Refuse);
    sleep(Duration::from_secs(WORKER_LOST_TIMEOUT_SECS / 2)).await;
    room.scene.stage.link(TARGET)?.heal();
    sleep(AFTERWARDS).await;
    let held = room.workload("survivor").await?.context("the Workload is gone")?;
    ensure!(
        cluster_name(&held) == Some(TARGET),
        "it is not held in {TARGET} any more"
    );
    ensure!(held.condition("Evicted").is_none(), "it was evicted");
    room.ends_as("survivor", "Complete").await?;
    room.is_swept().await?;
    let starts = room.starts("survivor");
    ensure!(starts == [TARGET], "started in {starts:?}");
    Ok(format!(
        "cut for {} s: nothing evicted, ended in {TARGET}, started once",
        WORKER_LOST_TIMEOUT_SECS / 2
    ))
}

/// Spec: multikueue 3.10; safety 3
async fn lost(room: &Room<'_>) -> anyhow::Result<String> {
    let policy =
        |name: &str| json!({"metadata": {"annotations": {"roadstead.dev/worker-lost-policy": name}}});
    room.merge_queue(MANAGER, policy("Fence")).await?;
    room.submit(room.job("lost", 4, 60)).await?;
    room.runs_in(TARGET, "lost").await?;
    room.set_quota(OTHER, 8).await?;
    room.scene.stage.link(TARGET)?.cut(Cut::Refuse);
    // A Kueue worker does not fence itself, so the manager waits for it.
    sleep(Duration::from_secs(2 * WORKER_LOST_TIMEOUT_SECS)).await;
    let starts = room.starts("lost");
    ensure!(starts == [TARGET], "started in {starts:?}");
    room.may_run_twice();
    room.merge_queue(MANAGER, policy("RetryAnyway")).await?;
    let moved = moved_on(room).await;
    room.scene.stage.link(TARGET)?.heal();
    let warning = moved?;
    room.is_swept_in(TARGET).await?;
    room.ends_as("lost", "Complete").await?;
    room.is_swept().await?;
    let starts = room.starts("lost");
    ensure!(starts == [TARGET, OTHER], "started in {starts:?}");
    Ok(format!(
        "lost for more than {WORKER_LOST_TIMEOUT_SECS} s: waited for with Fence; with RetryAnyway runs in {OTHER}; Warning {warning}; \
         swept when it came back"
    ))
}

async fn moved_on(room: &Room<'_>) -> anyhow::Result<String> {
    let held = |workload: &Workload| cluster_name(workload) == Some(OTHER);
    let workload = room
        .workload_where("lost", "goes to the other worker", held)
        .await?;
    let events: Vec<Event> = room.api(MANAGER)?.list(&ListParams::default()).await?.items;
    let of_it = |event: &Event| {
        let regarding = event
            .regarding
            .as_ref()
            .and_then(|regarding| regarding.name.as_deref());
        regarding == Some(&workload.name_any()) && event.type_.as_deref() == Some("Warning")
    };
    let warnings: Vec<String> = { events.into_iter().filter(of_it) }
        .map(|event| {
            format!(
                "{}: {}",
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default()
            )
        })
        .collect();
    let warning = warnings.iter().find(|warning| warning.contains("twice"));
    let Some(warning) = warning else {
        bail!("no Warning says that it may run twice: {warnings:?}");
    };
    Ok(warning.clone())
}

/// Must be the last scene: it removes the worker of Kueue.
///
/// Spec: multikueue 4.5
async fn left(room: &Room<'_>) -> anyhow::Result<String> {
    room.submit(room.job("moving", 4, 20)).await?;
    room.runs_in(TARGET, "moving").await?;
    room.set_quota(OTHER, 8).await?;
    let kubeconfig = |cluster: &str| room.scene.stage.kubeconfig(cluster).display().to_string();
    let (of_worker, of_manager) = (kubeconfig(TARGET), kubeconfig(MANAGER));
    let manager = ["--manager-kubeconfig", &of_manager];
    let drain = [&["cluster", "drain", TARGET, "--evict", "--yes"], &manager[..]].concat();
    room.scene.stage.command(&drain).await?;
    room.is_swept_in(TARGET).await?;
    room.ends_as("moving", "Complete").await?;
    let starts = room.starts("moving");
    ensure!(starts == [TARGET, OTHER], "started in {starts:?}");
    let leave = ["cluster", "leave", TARGET, "--yes", "--kubeconfig", &of_worker];
    room.scene.stage.command(&[&leave, &manager[..]].concat()).await?;
    let clusters: Api<MultiKueueCluster> = Api::all(room.scene.client(MANAGER)?);
    ensure!(
        clusters.get_opt(TARGET).await?.is_none(),
        "the MultiKueueCluster is still there"
    );
    let accounts: Api<ServiceAccount> = Api::namespaced(room.scene.client(TARGET)?, SYSTEM_NAMESPACE);
    let accounts = accounts.list(&ListParams::default()).await?;
    let ours: Vec<String> = { accounts.iter() }
        .map(ServiceAccount::name_any)
        .filter(|name| name.starts_with("roadstead-"))
        .collect();
    ensure!(ours.is_empty(), "accounts are left: {ours:?}");
    Ok(format!(
        "drained: its job ran again in {OTHER} to its end; left: no account of ours is in {TARGET}"
    ))
}
