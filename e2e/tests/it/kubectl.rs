//! The real kubectl against the embedded API server: what users type first must not fail on what the server does not speak.
//!
//! kubectl is that of the machine, else it is built. Its typed commands send protobuf whatever they are told, and `apply` asks for
//! the description of what it sends.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use roadstead_e2e::binaries::{Program, locate_or_build};
use roadstead_e2e::options::Kind;
use roadstead_e2e::{ControlPlane, Options, Progress};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::shared::{start, within};

/// A user with kubectl and an embedded API server.
struct Desk {
    kubectl: PathBuf,
    dir: TempDir,
    _plane: ControlPlane,
}

impl Desk {
    async fn new(name: &str) -> Self {
        let find = || locate_or_build(&[Program::Kubectl], &Progress::stderr()).unwrap();
        let found = tokio::task::spawn_blocking(find).await.unwrap();
        let plane = start(Options::bare(name).of_kind(Kind::Embedded)).await;
        let dir = tempfile::tempdir().unwrap();
        plane.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        Self {
            kubectl: found.path(Program::Kubectl).unwrap().to_owned(),
            dir,
            _plane: plane,
        }
    }

    /// Runs a command with this text as its input. Returns what it printed, or what it complained about.
    async fn run(&self, args: &[&str], input: &str) -> Result<String, String> {
        let home: &Path = self.dir.path();
        let mut child = Command::new(&self.kubectl)
            .args(args)
            .env_clear()
            .env("HOME", home)
            .env("KUBECONFIG", home.join("kubeconfig"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Why no failure: a command that reads no input may have ended.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    async fn does(&self, command: &str) -> String {
        let args: Vec<&str> = command.split(' ').collect();
        self.run(&args, "")
            .await
            .unwrap_or_else(|said| panic!("kubectl {command}: {said}"))
    }

    async fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.does(&format!("get {what} -o json")).await).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_what_it_has_commands_for() {
    within(async {
        let desk = Desk::new("kubectl-creates").await;
        for command in [
            "create namespace team",
            "create secret generic keys -n team --from-literal=k=v",
            "create configmap words -n team --from-literal=k=v",
            "create serviceaccount robot -n team",
            "create job sleeper -n team --image=none -- sleep 1",
            "create role reader -n team --verb=get,list --resource=pods",
            "create rolebinding readers -n team --role=reader --serviceaccount=team:robot",
            "create clusterrole seer --verb=get --resource=nodes",
            "create clusterrolebinding seers --clusterrole=seer --user=jane",
            "create priorityclass urgent --value=1000 --description=soon",
            "create service clusterip web -n team --tcp=80:8080",
        ] {
            let said = desk.does(command).await;
            assert!(said.contains("created"), "{command}: {said}");
        }
        let secret = desk.get("secret keys -n team").await;
        assert_eq!(secret["data"], json!({"k": "dg=="}));
        let job = desk.get("job sleeper -n team").await;
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["sleep", "1"]));
        let role = desk.get("role reader -n team").await;
        assert_eq!(role["rules"][0]["verbs"], json!(["get", "list"]));
        let binding = desk.get("rolebinding readers -n team").await;
        assert_eq!(binding["subjects"][0]["name"], "robot");
        assert_eq!(desk.get("priorityclass urgent").await["value"], 1000);
        let again = desk.run(&["create", "namespace", "team"], "").await.unwrap_err();
        assert!(again.contains("already exists"), "{again}");
        let can = desk.does("auth can-i create jobs -n team").await;
        assert_eq!(can.trim(), "yes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_a_list_with_validation() {
    within(async {
        let desk = Desk::new("kubectl-applies").await;
        let list = |field: &str| {
            json!({"apiVersion": "v1", "kind": "List", "items": [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words", "namespace": "team"}, field: {"k": "v"}},
            ]})
            .to_string()
        };
        let apply = ["apply", "--validate=true", "-f", "-"];
        let said = desk.run(&apply, &list("data")).await.unwrap();
        assert!(
            said.contains("namespace/team created") && said.contains("configmap/words created"),
            "{said}"
        );
        let said = desk.run(&apply, &list("data")).await.unwrap();
        assert!(said.contains("configmap/words unchanged"), "{said}");
        let refused = desk.run(&apply, &list("date")).await.unwrap_err();
        assert!(refused.contains("unknown field \"date\""), "{refused}");
        assert_eq!(desk.get("configmap words -n team").await["data"], json!({"k": "v"}));
    })
    .await;
}
