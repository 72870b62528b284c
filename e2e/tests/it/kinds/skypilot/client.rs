//! The client itself, a Python package: it launches two nodes, waits behind the gates longer than its own time-out, and takes the nodes away.
//!
//! Kwok plays the pods and runs nothing in them, so the client gives up where it wants to set up its runtime inside. What follows in
//! `sky down` is asked of the client's own provisioning module.
//!
//! Needs what [`NEEDED`] names, and the `venv` of Python.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::ListParams;
use roadstead_e2e::Progress;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{Launch, Team, apply, pods_resource, team};
use crate::kinds::ground::{Home, LONG_SECS, Room, play_pods, resource};
use crate::shared::{eventually, output_of};

/// The client and its provisioner call these. `.ci/nightly` installs them.
const NEEDED: [&str; 5] = ["python3", "kubectl", "socat", "nc", "rsync"];
const PACKAGE: &str = "skypilot[kubernetes]==0.14.1";
/// How long the client waits for a pod that is not gated.
const PROVISION_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);
const NAMESPACE: &str = "client-team1";
/// A node asks for two cores.
const TASK: &str =
    "resources: {infra: kubernetes, cpus: 2, memory: 2, image_id: 'docker:none'}\nrun: echo hello\n";

/// The environment with the client, installed once.
// Why blocking: it happens before the test, whose limit does not count it.
fn environment() -> PathBuf {
    let has = |program: &&str| {
        let path = std::env::var_os("PATH").unwrap();
        std::env::split_paths(&path).any(|folder| folder.join(program).exists())
    };
    let missing: Vec<_> = NEEDED.iter().filter(|program| !has(program)).collect();
    assert!(missing.is_empty(), "install {missing:?}: the client needs them");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skypilot-0.14.1");
    if !folder.join("bin/sky").exists() {
        Progress::stderr().step("installing the client (once, takes minutes)");
        let mut venv = std::process::Command::new("python3");
        assert!(venv.args(["-m", "venv"]).arg(&folder).status().unwrap().success());
        let mut pip = std::process::Command::new(folder.join("bin/pip"));
        assert!(
            pip.args(["install", "--quiet", PACKAGE])
                .status()
                .unwrap()
                .success()
        );
    }
    folder
}

/// The kubeconfig of a user of the team.
fn kubeconfig(room: Room) -> Value {
    let Home::Solo(solo) = room.home else {
        panic!("this test shares one cluster with others");
    };
    let text = solo.plane().kubeconfig();
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
        let all = api.list(&ListParams::default()).await.ok()?;
        let made = all
            .items
            .iter()
            .filter_map(|pod| Some(pod.metadata.creation_timestamp.as_ref()?.0));
        let oldest = made.min()?;
        (Timestamp::now().duration_since(oldest) > PROVISION_TIMEOUT * 2).then_some(())
    })
    .await;
}

/// A user with the client.
struct User {
    environment: PathBuf,
    home: tempfile::TempDir,
}

impl User {
    /// A program of the client's environment, in the home of the user.
    fn run(&self, program: &str) -> Command {
        let folder = self.environment.join("bin");
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(folder.join(program));
        command
            .env("HOME", self.home.path())
            .env("PATH", path)
            .env("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
            .env_remove("KUBECONFIG")
            .current_dir(self.home.path());
        command
    }

    fn launch(&self, name: &str, nodes: usize) -> Child {
        let file = |name: &str| File::create(self.home.path().join(name)).unwrap();
        self.run("sky")
            .args([
                "launch",
                "--yes",
                "--cluster",
                name,
                "--num-nodes",
                &nodes.to_string(),
                "work/task.yaml",
            ])
            .stdin(Stdio::null())
            .stdout(file("launch.log"))
            .stderr(file("launch.err"))
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// What the last launch printed.
    fn said(&self) -> String {
        let read = |file: &str| fs::read_to_string(self.home.path().join(file)).unwrap();
        format!("the client said:\n{}{}", read("launch.log"), read("launch.err"))
    }
}

/// Launches so many nodes, has the launch wait and admitted, and takes the nodes away.
async fn up_and_down(user: &User, team: Team<'_>, context: &Value, name: &str, nodes: usize) {
    let mut launch = user.launch(name, nodes);
    let gang = tokio::select! {
        gang = team.workload(name, |found| found["status"]["admission"].is_object()) => gang,
        _ = launch.wait() => panic!("{}", user.said()),
    };
    let sets = gang["spec"]["podSets"].as_array().unwrap();
    let pods: u64 = sets.iter().map(|set| set["count"].as_u64().unwrap()).sum();
    assert_eq!(pods, nodes as u64, "{gang:#}");
    outwait(team).await;
    assert!(launch.try_wait().unwrap().is_none(), "{}", user.said());

    team.provision(name).await;
    let pods = team
        .api(&pods_resource())
        .list(&ListParams::default())
        .await
        .unwrap();
    let cluster = pods.items[0].labels()["skypilot-cluster"].clone();
    team.are_running(&cluster, nodes).await;
    launch.wait().await.unwrap();
    let said = user.said();
    assert!(
        said.contains("Failed to set up SkyPilot runtime"),
        "it reached its pods: {said}"
    );

    let down = format!(
        "from sky.provision.kubernetes import instance\n\
         instance.terminate_instances({cluster:?}, {{'namespace': {NAMESPACE:?}, 'context': {context}}})"
    );
    output_of(user.run("python").args(["-c", &down])).await;
    for kind in [pods_resource(), resource("kueue.x-k8s.io/v1beta2", "Workload")] {
        let api = team.api(&kind);
        eventually(|| async {
            let left = api.list(&ListParams::default()).await.ok()?;
            left.items.is_empty().then_some(())
        })
        .await;
    }
}

/// Spec: jobs 13.1
#[test]
fn the_client_waits_behind_the_gates_and_goes_on_when_the_launch_is_admitted() {
    let environment = environment();
    play_pods("sky-client", 1, async |room| {
        apply(room, "client", &["check.yaml", "one-queue.yaml"]).await;
        let team = team(room, NAMESPACE);
        let kubeconfig = kubeconfig(room);
        let home = home(&kubeconfig);
        let user = User { environment, home };
        // Why: one that an interrupted test left behind has another home.
        output_of(user.run("sky").args(["api", "stop"])).await;
        for (name, nodes) in [("train", 2), ("serve", 1)] {
            up_and_down(&user, team, &kubeconfig["current-context"], name, nodes).await;
        }
        output_of(user.run("sky").args(["api", "stop"])).await;
        // The quota is free again: a launch of the same size starts.
        team.launch("again", Launch::Gang(2), 2).await;
        team.provision("again").await;
        team.are_running("again", 2).await;
    });
}
