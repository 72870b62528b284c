//! The command `roadstead` as a user has it at a shell: formats for scripts, contexts, watches, completion on Tab, the plugin of
//! kubectl, colours.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Stdio;

use kube::api::DeleteParams;
use kube::config::Kubeconfig;
use roadstead_e2e::Progress;
use roadstead_e2e::binaries::Program;
use roadstead_e2e::stage::Programs;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::fixture::{EAST, EVEN, LONG_SECS, MANAGER, Room, WEST, beside_others};
use crate::shared::{chain, eventually, output_of, tool};

/// The bytes that begin a colour.
const ESCAPE: char = '\u{1b}';

async fn program() -> PathBuf {
    let found = Programs::find_or_build(&Progress::stderr()).await;
    found.unwrap_or_else(|error| panic!("{}", chain(&error))).command
}

/// `roadstead` with these arguments, for a user whose kubeconfig leads to the management cluster.
async fn roadstead(room: Room, args: &[&str]) -> Command {
    let mut command = Command::new(program().await);
    command
        .args(args)
        .env("KUBECONFIG", room.shared.stage.kubeconfig(MANAGER));
    command
}

async fn said(room: Room, args: &[&str]) -> String {
    output_of(&mut roadstead(room, args).await).await
}

/// A kubeconfig with a context for the management cluster, which is the current one, and one for a worker; both are in the
/// room's namespace.
fn with_contexts(room: Room, folder: &TempDir) -> PathBuf {
    let read = |cluster: &str| Kubeconfig::read_from(room.shared.stage.kubeconfig(cluster)).unwrap();
    let (mut both, of_worker) = (read(MANAGER), read(WEST));
    both.clusters.extend(of_worker.clusters);
    both.auth_infos.extend(of_worker.auth_infos);
    both.contexts.extend(of_worker.contexts);
    for context in both
        .contexts
        .iter_mut()
        .filter_map(|named| named.context.as_mut())
    {
        context.namespace = Some(room.name.to_owned());
    }
    let file = folder.path().join("both.kubeconfig");
    // JSON is YAML.
    std::fs::write(&file, serde_json::to_vec(&both).unwrap()).unwrap();
    file
}

/// Spec: experience 3
#[test]
fn lists_can_be_handed_to_kubectl_and_are_read_from_the_context_that_is_named() {
    beside_others("lists", EVEN, |room| async move {
        let namespace = room.name;
        room.submit(room.job("runs", "1", LONG_SECS)).await;
        room.started("runs").await;
        let kubectl = tool(Program::Kubectl).await;
        let names = said(room, &["get", "jobs", "-n", namespace, "-o", "name"]).await;
        let queues = said(room, &["get", "queues", "-n", namespace, "-o", "name"]).await;
        let names: Vec<&str> = names.lines().chain(queues.lines()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let known = output_of(
            Command::new(&kubectl)
                .args(["get", "-n", namespace, "-o", "name"])
                .args(&names)
                .env("KUBECONFIG", room.shared.stage.kubeconfig(MANAGER)),
        )
        .await;
        assert_eq!(known.lines().collect::<Vec<_>>(), names);
        let clusters = said(room, &["get", "clusters", EAST, "-o", "name"]).await;
        assert_eq!(
            clusters.trim(),
            format!("multikueuecluster.kueue.x-k8s.io/{EAST}")
        );

        let one = ["get", "jobs", "job/runs", "-n", namespace, "-o"];
        let yaml = said(room, &[&one[..], &["yaml"]].concat()).await;
        let json = said(room, &[&one[..], &["json"]].concat()).await;
        let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        for field in ["apiVersion", "kind", "spec"] {
            assert_eq!(yaml[field], json[field]);
        }
        let queue = said(room, &["get", "queues", namespace, "-n", namespace, "-o", "wide"]).await;
        assert!(queue.starts_with("NAME "), "{queue}");

        let folder = tempfile::tempdir().unwrap();
        let both = with_contexts(room, &folder).display().to_string();
        // The namespace is that of the context, and the current context leads to the management cluster.
        let here = said(room, &["get", "jobs", "--kubeconfig", &both]).await;
        assert!(here.contains("job/runs"), "{here}");
        let clusters = [
            "get",
            "clusters",
            "-o",
            "name",
            "--kubeconfig",
            &both,
            "--context",
        ];
        let there = said(room, &[&clusters[..], &[MANAGER]].concat()).await;
        assert!(there.contains(EAST), "{there}");
        // A worker registers no clusters.
        let there = said(room, &[&clusters[..], &[WEST]].concat()).await;
        assert_eq!(there, "");
        let unknown = roadstead(room, &[&clusters[..], &["nowhere"]].concat())
            .await
            .output()
            .await
            .unwrap();
        let told = String::from_utf8(unknown.stderr).unwrap();
        assert!(!unknown.status.success() && told.contains("nowhere"), "{told}");
    });
}

/// A command with `--watch` that runs, and what it prints.
struct Watch {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The next line that has all of these words.
    async fn shows(&mut self, words: &[&str]) -> String {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
        panic!("the watch ended before a line with {words:?}")
    }

    /// Closes its output. Returns the process, which ends with the next line that it cannot print.
    fn close(self) -> Child {
        self.process
    }
}

/// Spec: experience 3
#[test]
fn a_watch_shows_each_change_until_its_reader_is_gone() {
    beside_others("watches", EVEN, |room| async move {
        let namespace = room.name;
        room.submit(room.job("first", "1", LONG_SECS)).await;
        let worker = room.started("first").await;
        let watch = |args: &'static [&str]| async move {
            Watch::start(roadstead(room, &[args, &["--watch", "-n", namespace]].concat()).await)
        };
        let mut jobs = watch(&["get", "jobs"]).await;
        let mut names = watch(&["get", "jobs", "-o", "name"]).await;
        let mut events = watch(&["events"]).await;
        let header = jobs.lines.next_line().await.unwrap().unwrap();
        assert!(
            header.starts_with("NAME ") && header.contains(" STATE "),
            "{header}"
        );
        jobs.shows(&["job/first", "Running", &worker]).await;
        names.shows(&["workload.kueue.x-k8s.io/job-first-"]).await;
        room.submit(room.job("second", "1", LONG_SECS)).await;
        jobs.shows(&["job/second", "Running"]).await;
        names.shows(&["workload.kueue.x-k8s.io/job-second-"]).await;
        events.shows(&["second"]).await;
        let gone = DeleteParams::background();
        room.jobs(MANAGER).delete("second", &gone).await.unwrap();
        jobs.shows(&["job/second", "deleted"]).await;

        let mut closed = jobs.close();
        room.submit(room.job("third", "1", LONG_SECS)).await;
        let ended = closed.wait().await.unwrap();
        assert!(ended.success(), "{ended}");
    });
}

/// What a shell proposes at the end of this line of words: bash by itself, the others as the text does that they read at their
/// start.
async fn proposes(room: Room, shell: &str, words: &[&str]) -> Vec<String> {
    let text = if shell == "bash" {
        let program = program().await;
        let script = r#"
            source <(roadstead completion bash) || exit
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
            _clap_complete_roadstead roadstead "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", script, "bash"])
            .args(words)
            .env("PATH", path)
            .env("KUBECONFIG", room.shared.stage.kubeconfig(MANAGER));
        output_of(&mut bash).await
    } else {
        let mut asked = roadstead(room, &[&["--"], words].concat()).await;
        asked
            .env("ROADSTEAD_COMPLETE", shell)
            .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
            .env("_CLAP_IFS", "\n");
        output_of(&mut asked).await
    };
    let mut found: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    found.sort();
    found
}

/// Spec: experience 3
#[test]
fn names_that_the_cluster_knows_are_completed_in_each_shell() {
    beside_others("completes", EVEN, |room| async move {
        let namespace = room.name;
        for job in ["alpha", "beta"] {
            room.submit(room.job(job, "1", LONG_SECS)).await;
            room.started(job).await;
        }
        for shell in ["bash", "zsh", "fish", "powershell"] {
            let ends = |words: &'static [&'static str], typed: &'static str| async move {
                proposes(
                    room,
                    shell,
                    &[&["roadstead"], words, &["-n", namespace, typed]].concat(),
                )
                .await
            };
            assert_eq!(
                ends(&["explain"], "job/").await,
                ["job/alpha", "job/beta"],
                "{shell}"
            );
            assert_eq!(ends(&["get", "jobs"], "job/a").await, ["job/alpha"], "{shell}");
            assert_eq!(ends(&["get", "queues"], "compl").await, [namespace], "{shell}");
            let place = proposes(room, shell, &["roadstead", "top", "-n", "complete"]).await;
            assert_eq!(place, [namespace], "{shell}");
            let cluster = proposes(room, shell, &["roadstead", "cluster", "drain", "ea"]).await;
            assert_eq!(cluster, [EAST], "{shell}");
            let verbs = proposes(room, shell, &["roadstead", "compl"]).await;
            assert!(verbs[0].starts_with("completion"), "{shell}: {verbs:?}");
        }
        // A cluster that cannot be reached has no names, and nothing is printed into the line that is being typed.
        let mut asked = roadstead(room, &["--", "roadstead", "explain", "job/"]).await;
        let silent = asked
            .env("ROADSTEAD_COMPLETE", "fish")
            .env("KUBECONFIG", "/nowhere")
            .output()
            .await
            .unwrap();
        assert!(
            silent.status.success() && silent.stdout.is_empty() && silent.stderr.is_empty(),
            "{silent:?}"
        );
    });
}

/// Whether the command prints colours when they are asked for, and with this value of `NO_COLOR`.
async fn colours(room: Room, no_colour: Option<&str>, args: &[&str]) -> bool {
    let mut command = roadstead(room, args).await;
    command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
    if let Some(value) = no_colour {
        command.env("NO_COLOR", value);
    }
    output_of(&mut command).await.contains(ESCAPE)
}

/// Spec: experience 3
#[test]
fn the_command_is_a_plugin_of_kubectl_and_prints_colours_only_where_they_are_wanted() {
    beside_others("plugin", EVEN, |room| async move {
        let namespace = room.name;
        room.submit(room.job("runs", "1", LONG_SECS)).await;
        room.started("runs").await;
        let folder = tempfile::tempdir().unwrap();
        symlink(program().await, folder.path().join("kubectl-roadstead")).unwrap();
        let kubectl = tool(Program::Kubectl).await;
        let plugin = |args: &[&str]| {
            let mut command = Command::new(&kubectl);
            command
                .arg("roadstead")
                .args(args)
                .env("PATH", folder.path())
                .env("KUBECONFIG", room.shared.stage.kubeconfig(MANAGER));
            command
        };
        let list = ["get", "jobs", "-n", namespace, "-o", "name"];
        assert_eq!(output_of(&mut plugin(&list)).await, said(room, &list).await);
        let help = output_of(&mut plugin(&["get", "--help"])).await;
        assert!(help.contains("Usage: kubectl roadstead get "), "{help}");
        let wrong = plugin(&["get", "--nonsense"]).output().await.unwrap();
        assert_eq!(wrong.status.code(), Some(2));

        assert!(
            colours(room, None, &["get", "--help"]).await,
            "colours were asked for"
        );
        for args in [&["get", "--help"][..], &["get", "clusters"], &["top"]] {
            assert!(!colours(room, Some("1"), args).await, "{args:?}");
        }
        // Why again through a pipe: that is no terminal.
        assert!(!said(room, &["get", "--help"]).await.contains(ESCAPE));
        let running = eventually(|| async {
            let text = output_of(&mut plugin(&["get", "jobs", "-n", namespace])).await;
            text.contains("Running").then_some(text)
        })
        .await;
        assert!(running.starts_with("NAME "), "{running}");
    });
}
