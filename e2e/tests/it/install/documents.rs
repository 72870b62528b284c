//! The commands of `deploy/docs`, run in the order in which an administrator reads them.
//!
//! Each command runs as it stands there. The test adds only what a machine with all clusters on it needs: ports of their own, loopback
//! addresses, and consent in place of a terminal.

use std::os::unix::fs::symlink;

use roadstead_e2e::binaries::Program;
use roadstead_e2e::stage::merge;

use super::*;
use crate::shared::{output_of, tool};

/// Namespace of an installation if a command names none.
const USUAL: &str = "kueue-system";
/// Commands that other tests run, by their beginning.
const ELSEWHERE: &[(&str, &str)] = &[
    ("deploy/images", "the tests of `images` build them"),
    ("crane", "the tests of `images` push to a registry of their own"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

fn document(name: &str) -> String {
    fs::read_to_string(repository().join("deploy/docs").join(name)).unwrap()
}

/// The code blocks of one language in a document.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let after = text.split(&fence).skip(1);
    after.map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// The commands of a document, without comments.
fn commands(name: &str) -> Vec<String> {
    let text = document(name);
    let joined: Vec<String> = { blocks(&text, "sh").into_iter() }
        .map(|block| block.replace("\\\n", " "))
        .collect();
    let lines = joined.iter().flat_map(|block| block.lines());
    lines
        .map(|line| line.split(" #").next().unwrap().trim().to_owned())
        .collect()
}

/// An administrator's folder: kubeconfigs, files of values, and the repository's `deploy`.
struct Desk {
    dir: PathBuf,
    helm: PathBuf,
    kubectl: PathBuf,
    roadstead: PathBuf,
}

impl Desk {
    async fn new(dir: &Path) -> Self {
        symlink(repository().join("deploy"), dir.join("deploy")).unwrap();
        let programs = Programs::find_or_build(&Progress::stderr()).await.unwrap();
        Self {
            dir: dir.to_owned(),
            helm: tool(Program::Helm).await,
            kubectl: tool(Program::Kubectl).await,
            roadstead: programs.command,
        }
    }

    fn keep(&self, name: &str, value: &Value) {
        fs::write(self.dir.join(name), value.to_string()).unwrap();
    }

    /// Runs a line with more arguments. `KUBECONFIG` names the cluster of commands that name none.
    async fn types(&self, line: &str, more: &[&str], kubeconfig: &str) -> String {
        let mut words = line.split_whitespace();
        let program = match words.next() {
            Some("roadstead") => &self.roadstead,
            Some("helm") => &self.helm,
            Some("kubectl") => &self.kubectl,
            other => panic!("no test runs {other:?}: `{line}`"),
        };
        let mut command = Command::new(program);
        command.args(words).args(more).current_dir(&self.dir);
        command
            .env("HOME", &self.dir)
            .env("KUBECONFIG", self.dir.join(kubeconfig));
        output_of(&mut command).await
    }
}

/// Values of one process on a machine that runs several.
fn beside_others() -> Value {
    let [health, metrics, webhook, visibility] = free_ports().unwrap();
    json!({
        "ports": {"health": health, "metrics": metrics, "webhook": webhook, "visibility": visibility},
        "roadsteadConfiguration": {"multiKueue": {"allowLoopbackWorkers": true}},
    })
}

/// Arguments that the test adds to a `roadstead` command.
fn added(line: &str) -> Vec<&'static str> {
    let says = |words: &str| line.starts_with(&format!("roadstead {words}"));
    let reads_only = line.contains("--dry-run") || line.contains("--print-yaml");
    let mut more = Vec::new();
    if says("install worker") {
        more.extend(["--values", "east.values"]);
    } else if says("install") && !line.contains("--values") {
        more.extend(["--values", "values.yaml"]);
    }
    if says("cluster join") {
        more.push("--allow-loopback");
    }
    let writes = [
        "install",
        "uninstall",
        "cluster join",
        "cluster leave",
        "sync apply",
    ];
    if writes.iter().any(|words| says(words)) && !reads_only {
        more.push("--yes");
    }
    more
}

/// Spec: experience 3
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_documents_install_register_and_uninstall_as_they_stand_there() {
    let dir = tempfile::tempdir().unwrap();
    let named = |name: &str| Options {
        scheduler: false,
        kwok: false,
        ..Options::complete(name)
    };
    let (manager, east, by_helm, by_kubectl, desk) = tokio::join!(
        Cluster::start(named("manager"), "manager", dir.path()),
        Cluster::start(named("east"), "worker", dir.path()),
        Cluster::start(Options::bare("helm"), "manager", dir.path()),
        Cluster::start(Options::bare("kubectl"), "manager", dir.path()),
        Desk::new(dir.path()),
    );
    for cluster in [&manager, &east, &by_helm, &by_kubectl] {
        fs::copy(
            cluster.kubeconfig(),
            format!("{}.kubeconfig", cluster.kubeconfig()),
        )
        .unwrap();
    }
    let installation = document("install.md");
    let [example] = blocks(&installation, "yaml")[..] else {
        panic!("install.md shows one file of values");
    };
    let mut values: Value = serde_saphyr::from_str(example).unwrap();
    merge(&mut values, &beside_others());
    desk.keep("values.yaml", &values);
    desk.keep("east.values", &beside_others());
    let configuration = json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"});
    desk.keep("kueue-config.yaml", &configuration);

    let mut processes = Vec::new();
    for line in commands("install.md") {
        if ELSEWHERE.iter().any(|(begins, _)| line.starts_with(begins)) {
            continue;
        }
        let more = added(&line);
        // A kubelet starts the process while the command waits; here the test does, so the first run of the command does not wait.
        let waits = line.contains("--wait");
        for cluster in [&manager, &east].into_iter().filter(|_| waits) {
            let begins = format!("roadstead install {} ", cluster.part);
            if line.starts_with(&begins) && !line.contains("--values") {
                desk.types(&line.replace("--wait", ""), &more, "manager.kubeconfig")
                    .await;
                let name = format!("roadstead-{}", cluster.part);
                let started = Deployed::start(&cluster.plane, USUAL, &name).await;
                processes.push(started.unwrap_or_else(|error| panic!("{}", chain(&error))));
            }
        }
        let kubeconfig = match line.split_whitespace().next() {
            Some("helm") => "helm.kubeconfig",
            Some("kubectl") => "kubectl.kubeconfig",
            _ => "manager.kubeconfig",
        };
        desk.types(&line, &more, kubeconfig).await;
    }
    for cluster in [&by_helm, &by_kubectl] {
        let installed = cluster.inventory().await;
        let deployment = format!("Deployment {:?} roadstead-manager", Some(USUAL));
        assert!(installed.contains(&deployment), "{installed:?}");
    }

    furnish(&manager, Some("multikueue")).await;
    // The case for `sync`: the worker has the queue, and lacks the namespace and its LocalQueue.
    for object in of_the_queue(None) {
        apply(&east.client, object).await.unwrap();
    }
    for line in commands("register.md") {
        desk.types(&line, &added(&line), "manager.kubeconfig").await;
    }
    is_active(&manager, "MultiKueueCluster", None, "east").await;
    is_active(&east, "LocalQueue", Some(TEAM), QUEUE).await;
    for line in commands("doctor.md") {
        desk.types(&line, &added(&line), "manager.kubeconfig").await;
    }

    for line in commands("uninstall.md") {
        if line.starts_with("roadstead uninstall") {
            // A kubelet ends the process when the Deployment goes; none is here.
            processes.clear();
        }
        desk.types(&line, &added(&line), "manager.kubeconfig").await;
    }
    for cluster in [&manager, &east] {
        let left = cluster.inventory().await;
        let left: Vec<&String> = left.iter().filter(|name| name.contains("roadstead-")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
