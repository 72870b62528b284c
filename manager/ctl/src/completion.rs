//! Completion on Tab: what can be typed next, with the names that the management cluster knows.
//!
//! The shell calls this command with the line typed so far. Names are read with the caller's own rights, within [`ANSWER_MAX`]; what
//! cannot be read is not proposed, and nothing is printed about it, because it would land in the middle of the line being typed.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Command, ValueEnum as _};
use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCandidates;
use clap_complete::env::Shells;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{LocalQueue, MultiKueueCluster, Workload};
use roadstead_convert::explanation::view::view;
use tokio::runtime;
use tokio::time::timeout;

use crate::args::Home;
use crate::args::look::{Completion, What};
use crate::failure::Failure;
use crate::get::jobs::called;
use crate::objects::{self, Scope};

/// Environment variable by which the shell asks for completions.
pub const VARIABLE: &str = "ROADSTEAD_COMPLETE";
/// Name that completions are registered for.
const PROGRAM: &str = "roadstead";
/// Longest wait for names.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// `roadstead completion`: prints what a shell has to read at its start.
pub fn run(args: &Completion) -> Result<(), Failure> {
    let name = args.shell.name();
    let mut text = Vec::new();
    let written = Shells::builtins().completer(name).map_or(Ok(()), |shell| {
        shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut text)
    });
    written.map_err(|error| {
        Failure::new(
            format!("the completion for {name} cannot be printed"),
            error.to_string(),
            "try another shell",
        )
    })?;
    let _closed = io::stdout().lock().write_all(&text);
    Ok(())
}

/// The command with candidates for the names that its arguments take.
///
/// Why here and not at each argument: the arguments know nothing of a cluster.
pub fn with_names(command: Command) -> Command {
    command.mut_subcommands(|area| match area.get_name() {
        "cluster" | "sync" => area.mut_subcommands(|verb| match verb.get_name() {
            // A new cluster has a new name.
            "join" => verb,
            _ => naming(verb, clusters),
        }),
        _ => naming(area, names),
    })
}

/// Proposes names for arguments `name` and `cluster`, and namespaces for `namespace`.
fn naming(command: Command, names: fn() -> Vec<CompletionCandidate>) -> Command {
    command.mut_args(|arg| match arg.get_id().as_str() {
        "name" | "cluster" => arg.add(ArgValueCandidates::new(names)),
        "namespace" => arg.add(ArgValueCandidates::new(namespaces)),
        _ => arg,
    })
}

/// Names for `get`, `explain`, `describe` and `events`: jobs, unless the line asks for another kind.
fn names() -> Vec<CompletionCandidate> {
    let line = Line::typed();
    let names = match line.what {
        What::Jobs => line.read(Kind::Jobs),
        What::Queues => line.read(Kind::Queues),
        What::Clusters => line.read(Kind::Clusters),
    };
    candidates(names)
}

/// Names of worker clusters.
fn clusters() -> Vec<CompletionCandidate> {
    candidates(Line::typed().read(Kind::Clusters))
}

fn namespaces() -> Vec<CompletionCandidate> {
    candidates(Line::typed().read(Kind::Namespaces))
}

fn candidates(names: Vec<String>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Jobs,
    Queues,
    Clusters,
    Namespaces,
}

/// What the line typed so far says about where names are to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    what: What,
    namespace: Option<String>,
    home: Home,
}

impl Line {
    fn typed() -> Self {
        // Why only the words after `--`: the words before it are how the shell calls this command.
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        Self::parse(words)
    }

    fn parse(words: impl Iterator<Item = OsString>) -> Self {
        let mut line = Self::default();
        let mut words = words
            .filter_map(|word| word.into_string().ok())
            .skip(1)
            .peekable();
        // Why: for these commands `--kubeconfig` names a worker, but the names are read from the manager.
        let of_worker = words
            .peek()
            .is_some_and(|area| matches!(area.as_str(), "cluster" | "sync"));
        let mut is_get = false;
        while let Some(word) = words.next() {
            let (flag, given) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with('-') => (flag.to_owned(), Some(value.to_owned())),
                Some(_) | None => (word, None),
            };
            match flag.as_str() {
                "-n" | "--namespace" => line.namespace = given.or_else(|| words.next()),
                "--kubeconfig" | "--context" if of_worker => drop(given.or_else(|| words.next())),
                "--kubeconfig" | "--manager-kubeconfig" => {
                    line.home.kubeconfig = given.or_else(|| words.next()).map(PathBuf::from);
                }
                "--context" | "--manager-context" => line.home.context = given.or_else(|| words.next()),
                "get" => is_get = true,
                word if is_get && !word.starts_with('-') => {
                    if let Ok(what) = What::from_str(word, false) {
                        line.what = what;
                    }
                    is_get = false;
                }
                _ => {}
            }
        }
        line
    }

    /// Names of a kind; none when they cannot be read in time.
    fn read(self, kind: Kind) -> Vec<String> {
        // Why a thread: a runtime may run in this one already.
        let reads = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async { timeout(ANSWER_MAX, self.list(kind)).await.ok()? })
        });
        reads.join().ok().flatten().unwrap_or_default()
    }

    async fn list(&self, kind: Kind) -> Option<Vec<String>> {
        let client = objects::connect(&self.home).await.ok()?;
        let namespace = self.namespace.clone();
        let scope = Scope::One(namespace.unwrap_or_else(|| client.default_namespace().to_owned()));
        let api: Api<DynamicObject> = match kind {
            Kind::Jobs => objects::untyped::<Workload>(&client, Some(&scope)),
            Kind::Queues => objects::untyped::<LocalQueue>(&client, Some(&scope)),
            Kind::Clusters => objects::untyped::<MultiKueueCluster>(&client, None),
            Kind::Namespaces => objects::untyped::<Namespace>(&client, None),
        };
        let found = objects::all(&api, None, |_| true).await.ok()?;
        Some(found.iter().map(|object| name(kind, object)).collect())
    }
}

fn name(kind: Kind, object: &DynamicObject) -> String {
    let workload = (kind == Kind::Jobs)
        .then(|| objects::typed::<Workload>(object).ok())
        .flatten();
    workload.map_or_else(
        || object.name_any(),
        |workload| called(&view(&workload, Timestamp::UNIX_EPOCH), &workload.name_any()),
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;
    use crate::args::look::Shell;

    fn parse(words: &str) -> Line {
        Line::parse(words.split(' ').map(OsString::from))
    }

    /// Spec: experience 3
    #[test]
    fn names_of_objects_are_proposed_and_new_names_are_not() {
        let command = with_names(Cli::command());
        let proposes = |path: &str, id: &str| {
            let verb = path
                .split(' ')
                .try_fold(&command, |at, word| at.find_subcommand(word))
                .unwrap();
            let arg = verb.get_arguments().find(|arg| arg.get_id() == id).unwrap();
            arg.get::<ArgValueCandidates>().is_some()
        };
        for path in [
            "get",
            "describe",
            "events",
            "explain",
            "cluster leave",
            "cluster give-up",
        ] {
            assert!(proposes(path, "name"), "{path}");
        }
        assert!(proposes("sync plan", "cluster"));
        assert!(proposes("get", "namespace"));
        assert!(!proposes("cluster join", "name"));
    }

    /// Spec: experience 3
    #[test]
    fn names_are_read_where_the_line_typed_so_far_says() {
        let line = parse("roadstead get queues -n team --kubeconfig=k --context c ma");
        let wanted = Line {
            what: What::Queues,
            namespace: Some("team".to_owned()),
            home: Home {
                kubeconfig: Some("k".into()),
                context: Some("c".to_owned()),
            },
        };
        assert_eq!(line, wanted);
        assert_eq!(parse("roadstead get tra").what, What::Jobs);
        assert_eq!(parse("roadstead explain -n"), Line::default());
        let leave = parse("roadstead cluster leave --kubeconfig worker --manager-kubeconfig manager ea");
        assert_eq!(leave.home.kubeconfig, Some("manager".into()));
    }

    /// Spec: experience 3
    #[test]
    fn each_of_the_shells_is_told_to_ask_this_command() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            let found = Shells::builtins();
            let found = found.completer(shell.name()).unwrap();
            found
                .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut text)
                .unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(
                text.contains(VARIABLE) && text.contains(PROGRAM),
                "{shell:?}: {text}"
            );
        }
    }
}
