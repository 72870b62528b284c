//! Kueue manages two workers of Roadstead, whose account has the rights of Kueue's own sample.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use kube::Api;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::kind::Kind;
use super::report::Report;
use super::room::{Room, TARGET_ONLY, cluster_name};
use super::scene::{Cast, Gates, MANAGER, Scene, WORKER_LOST_TIMEOUT_SECS, condition, kueue};
use super::{account, ends, kills, moves, stops, waits};
use crate::link::Cut;
use crate::stage::{Engine, Kueue};

const TARGET: &str = "east";
const OTHER: &str = "west";

/// Starts all clusters and registers both workers.
pub(super) async fn set_up(theirs: &Arc<Kueue>, gates: &Gates, kind: Kind) -> anyhow::Result<Scene> {
    let scene = Scene::set_up(Cast {
        title: "kueue-manager",
        manager: kueue(theirs),
        target: (TARGET, Engine::Roadstead),
        other: (OTHER, Engine::Roadstead),
        gates,
        kind,
    })
    .await?;
    account::register(&scene, kind).await?;
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
    moves::play(scene, report).await;
    kills::play(scene, report).await;
    report
        .play(scene, "cut-for-long", TARGET_ONLY, cut_for_long)
        .await;
}

async fn registration(room: &Room<'_>) -> anyhow::Result<String> {
    let clusters: Api<MultiKueueCluster> = Api::all(room.scene.client(MANAGER)?);
    let mut said = Vec::new();
    for worker in [TARGET, OTHER] {
        let cluster = json!(clusters.get(worker).await?);
        let active = condition(&cluster, "Active").context("no condition Active")?;
        ensure!(active["status"] == "True", "Active says {active}");
        said.push(format!("{worker} Active {}", active["message"]));
    }
    Ok(format!("registered by a Secret; {}", said.join(", ")))
}

/// A Kueue manager keeps no lease on its workers, so a Roadstead worker must not stop its jobs, however long the link is cut.
///
/// Spec: safety 3
async fn cut_for_long(room: &Room<'_>) -> anyhow::Result<String> {
    room.submit(room.job("left-alone", 4, 40)).await?;
    room.runs_in(TARGET, "left-alone").await?;
    room.scene.stage.link(TARGET)?.cut(Cut::Refuse);
    let long = Duration::from_secs(WORKER_LOST_TIMEOUT_SECS + 5);
    sleep(long).await;
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = room.api(TARGET)?;
    let there = jobs.get("left-alone").await;
    room.scene.stage.link(TARGET)?.heal();
    let there = json!(there?);
    ensure!(
        there["spec"]["suspend"] == json!(false) && there["status"]["active"] == 1,
        "the worker has stopped it: {}",
        there["status"]
    );
    let ended = room.ends_as("left-alone", "Complete").await?;
    room.is_swept().await?;
    let held = room
        .workload("left-alone")
        .await?
        .context("the Workload is gone")?;
    Ok(format!(
        "cut for {} s: the worker went on; afterwards {} on the manager, started in {}, recorded in {:?}",
        long.as_secs(),
        if ended.is_null() { "unknown" } else { "Complete" },
        room.starts("left-alone").join(", then in "),
        cluster_name(&held)
    ))
}
