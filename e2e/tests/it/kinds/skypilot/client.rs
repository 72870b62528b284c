//! The client itself, a Python package: it launches two nodes, waits behind the gates longer than its own time-out, and takes the nodes away.
//!
//! Kwok plays the pods and runs nothing in them, so the client gives up where it wants to set up its runtime inside. What follows in
//! `sky down` is asked of the client's own provisioning module.
//!
//! Needs python3 with venv, kubectl, socat, netcat and rsync.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use jiff::{SignedDuration, Timestamp};
use roadstead_e2e::Progress;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Launch, Team, apply, pods_resource, team};
use crate::kinds::ground::{ALONE, LONG_SECS, play_pods, resource};
use crate::shared::{eventually, output_of};

const PACKAGE: &str = "skypilot[kubernetes]==0.14.1";
/// How long the client waits for a pod that is not gated.
const PROVISION_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);
const NAMESPACE: &str = "client-team1";
/// A node asks for two cores.
const TASK: &str = "num_nodes: 2\nresources: {infra: kubernetes, cpus: 2, memory: 2, image_id: 'docker:none'}\nrun: echo hello\n";

/// The environment with the client, installed once.
async fn environment() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skypilot-0.14.1");
    if !folder.join("bin/sky").exists() {
        Progress::stderr().step("installing the client (once, takes minutes)");
        output_of(Command::new("python3").args(["-m", "venv"]).arg(&folder)).await;
        output_of(Command::new(folder.join("bin/pip")).args(["install", "--quiet", PACKAGE])).await;
    }
    folder
}

/// The kubeconfig of a user of the team.
fn kubeconfig() -> Value {
    let text = ALONE.get().unwrap().plane().kubeconfig();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(NAMESPACE);
    kubeconfig
}

/// A user's home with this kubeconfig and the configuration of the example.
fn home(kubeconfig: &Value) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/skypilot/sky-config.yaml");
    let example = fs::read_to_string(example).unwrap();
    let mut config: Value = serde_saphyr::from_str(&example).unwrap();
    let annotations = json!({roadstead_e2e::options::RUN_SECONDS: LONG_SECS.to_string()});
    config["kubernetes"]["pod_config"] = json!({"metadata": {"annotations": annotations}});
    for (folder, file, text) in [
        (".kube", "config", kubeconfig.to_string()),
        (".sky", "config.yaml", config.to_string()),
        ("work", "task.yaml", TASK.to_owned()),
    ] {
        let folder = home.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }
    home
}

/// Waits until the gated pods of a launch are older than the client's own time-out.
async fn outwait(team: Team<'_>) {
    let api = team.api(&pods_resource());
    eventually(|| async {
        let all = api.list(&kube::api::ListParams::default()).await.ok()?;
        let made = all
            .items
            .iter()
            .filter_map(|pod| Some(pod.metadata.creation_timestamp.as_ref()?.0));
        let oldest = made.min()?;
        (Timestamp::now().duration_since(oldest) > PROVISION_TIMEOUT * 2).then_some(())
    })
    .await;
}

/// Spec: jobs 13.1
#[test]
fn the_client_waits_behind_the_gates_and_goes_on_when_the_launch_is_admitted() {
    play_pods("sky-client", 1, async |room| {
        let environment = environment().await;
        apply(room, "client", &["check.yaml", "one-queue.yaml"]).await;
        let team = team(room, NAMESPACE);
        let kubeconfig = kubeconfig();
        let home = home(&kubeconfig);
        let path = format!("{}/bin:{}", environment.display(), std::env::var("PATH").unwrap());
        let run = |program: &str| {
            let mut command = Command::new(environment.join("bin").join(program));
            command
                .env("HOME", home.path())
                .env("PATH", &path)
                .env_remove("KUBECONFIG");
            command
                .env("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
                .current_dir(home.path());
            command
        };
        let log = home.path().join("launch.log");
        let mut launch = run("sky")
            .args(["launch", "--yes", "--cluster", "train", "work/task.yaml"])
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(File::create(home.path().join("launch.err")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let gang = team
            .workload("train", |found| found["status"]["admission"].is_object())
            .await;
        let cluster = gang["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(gang["spec"]["podSets"][0]["count"], 2, "{gang:#}");
        outwait(team).await;
        assert!(
            launch.try_wait().unwrap().is_none(),
            "{}",
            fs::read_to_string(&log).unwrap()
        );

        team.provision("train").await;
        team.are_running(&cluster, 2).await;
        launch.wait().await.unwrap();
        let said = fs::read_to_string(&log).unwrap();
        assert!(
            said.contains("Failed to set up SkyPilot runtime"),
            "it reached its pods: {said}"
        );

        let down = format!(
            "from sky.provision.kubernetes import instance\n\
             instance.terminate_instances({cluster:?}, {{'namespace': {NAMESPACE:?}, 'context': {}}})",
            kubeconfig["current-context"]
        );
        output_of(run("python").args(["-c", &down])).await;
        output_of(run("sky").args(["api", "stop"])).await;
        for kind in [pods_resource(), resource("kueue.x-k8s.io/v1beta2", "Workload")] {
            let api = team.api(&kind);
            eventually(|| async {
                let left = api.list(&kube::api::ListParams::default()).await.ok()?;
                left.items.is_empty().then_some(())
            })
            .await;
        }
        // The quota is free again: a launch of the same size starts.
        team.launch("again", Launch::Gang(2), 2).await;
        team.provision("again").await;
        team.are_running("again", 2).await;
    });
}
