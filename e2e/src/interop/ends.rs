//! Jobs that end by themselves.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use roadstead_api::constants::controllers::MULTIKUEUE;
use roadstead_api::constants::labels::{MAX_EXEC_TIME_SECONDS, MULTIKUEUE_WORKER_WORKLOAD_POD};
use roadstead_api::kueue::v1beta2::CheckState;
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::report::Report;
use super::room::{BOTH, Room, TARGET_ONLY, cluster_name};
use super::scene::{MANAGER, Scene};
use crate::options::EXIT_CODE;

/// How long a scene watches that an ended job is not started again.
const AFTERWARDS: Duration = Duration::from_secs(5);

pub(super) async fn play(scene: &Scene, report: &mut Report) {
    report.play(scene, "success", TARGET_ONLY, success).await;
    report.play(scene, "failure", TARGET_ONLY, failure).await;
    report.play(scene, "ttl-zero", TARGET_ONLY, ttl_zero).await;
    report.play(scene, "one-of-two", BOTH, one_of_two).await;
    report.play(scene, "burst", BOTH, burst).await;
    report.play(scene, "parallel", TARGET_ONLY, parallel).await;
    report.play(scene, "rich", TARGET_ONLY, rich).await;
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
    let marked = ListParams::default().labels(&format!("{MULTIKUEUE_WORKER_WORKLOAD_POD}=true"));
    let pods = room.api::<Pod>(target)?.list(&marked).await?;
    ensure!(
        pods.items.len() == 1,
        "{} pods are marked as those of a manager",
        pods.items.len()
    );
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
    many(room, 4, 3).await
}

/// More jobs than fit at once.
///
/// Spec: multikueue 3.3 R6b; safety I1
async fn burst(room: &Room<'_>) -> anyhow::Result<String> {
    many(room, 24, 2).await
}

async fn many(room: &Room<'_>, jobs: usize, cpu: u8) -> anyhow::Result<String> {
    let names: Vec<String> = (0..jobs).map(|index| format!("job-{index}")).collect();
    for name in &names {
        room.submit(room.job(name, cpu, 3)).await?;
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
        "{jobs} jobs ran once each: {} in {target}, {} in {other}; nothing left",
        there(target),
        there(other)
    ))
}

/// Spec: multikueue 5.1
async fn parallel(room: &Room<'_>) -> anyhow::Result<String> {
    let mut job = room.job("wave", 2, 2);
    job["spec"]["parallelism"] = json!(3);
    job["spec"]["completions"] = json!(5);
    job["spec"]["completionMode"] = json!("Indexed");
    room.submit(job).await?;
    let done = room.ends_as("wave", "Complete").await?;
    ensure!(
        done["status"]["succeeded"] == 5 && done["status"]["completedIndexes"] == "0-4",
        "the manager shows {}",
        done["status"]
    );
    ended_alike(room, "wave", "Succeeded").await
}

/// A default value that the worker's cluster fills in must not look like a change of the job to the manager, and vice versa.
///
/// Spec: multikueue 3.3 R5
async fn rich(room: &Room<'_>) -> anyhow::Result<String> {
    let mut job = room.job("rich", 1, 4);
    job["metadata"]["labels"][MAX_EXEC_TIME_SECONDS] = json!("600");
    job["metadata"]["annotations"] = json!({"example.org/note": "kept"});
    let pod = &mut job["spec"]["template"]["spec"];
    pod["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    pod["containers"][0]["env"] =
        json!([{"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    pod["containers"][0]["resources"]["limits"] = json!({"memory": "1Gi", "cpu": "1500m"});
    pod["containers"][0]["resources"]["requests"] = json!({"cpu": "1000m"});
    pod["containers"][0]["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    pod["volumes"] = json!([{"name": "scratch", "emptyDir": {"sizeLimit": "1024Mi"}}]);
    pod["initContainers"] =
        json!([{"name": "first", "image": "none", "resources": {"requests": {"cpu": "2"}}}]);
    pod["tolerations"] = json!([{"key": "example.org/any", "operator": "Exists"}]);
    pod["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000});
    room.set_quota_of_all(&[("cpu", "8"), ("memory", "8Gi")]).await?;
    room.submit(job).await?;
    room.runs_in(room.scene.target, "rich").await?;
    let copy = room.copy(room.scene.target, "rich").await?.context("no copy")?;
    room.ends_as("rich", "Complete").await?;
    let name = copy.name_any();
    let seen = ended_alike(room, "rich", "Succeeded").await?;
    let made = room.scene.history.copies(room.scene.target, room.name, &name);
    ensure!(made == 1, "the copy was made {made} times");
    Ok(format!("{seen}; its copy was made once"))
}

/// Checks that the Workload ended on the manager as its copy did in the worker, once, and that nothing is left.
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
