//! The command line.

pub mod look;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use roadstead_kinds::{Ability, Kind, TABLE};
use roadstead_serve::args::GateSetting;

/// One queue in front of many Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "roadstead", version, propagate_version = true)]
pub struct Cli {
    /// The area of the command.
    #[command(subcommand)]
    pub area: Area,
}

/// The area of a command.
#[derive(Debug, Subcommand)]
pub enum Area {
    /// Install the manager or the worker in a cluster, with the objects of the charts.
    Install(Install),
    /// Remove the manager or the worker, and prove that nothing of it is left.
    Uninstall(Uninstall),
    /// Check whether this cluster is healthy: named checks, each with what was seen, why it matters, and the next command. Reads
    /// only.
    Doctor(Doctor),
    /// Worker clusters: register, list, cordon, uncordon, drain, give up, remove.
    Cluster {
        /// The verb.
        #[command(subcommand)]
        verb: ClusterVerb,
    },
    /// Explain why a job does not run, or show where it runs: one reason, each worker cluster's answer, the next step.
    Explain(Explain),
    /// List jobs, queues or worker clusters of the whole federation, as kubectl get does.
    Get(look::Get),
    /// Say all that is known of a job: what explain says, its pods, admission, conditions and events.
    Describe(Explain),
    /// Show what has happened to jobs, in order of time.
    Events(look::Events),
    /// Show quota and jobs per queue, or jobs per worker cluster.
    Top(look::Top),
    /// Namespaces and LocalQueues that a worker cluster lacks for the queues of the manager.
    Sync {
        /// The verb.
        #[command(subcommand)]
        verb: SyncVerb,
    },
    /// Print what a shell reads at its start to complete commands and names on Tab.
    Completion(look::Completion),
    /// Write manual pages, for packages.
    Man(look::Man),
    /// Configuration files of the manager and the workers.
    Config {
        /// The verb.
        #[command(subcommand)]
        verb: ConfigVerb,
    },
}

/// The part of Roadstead in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// On the management cluster.
    Manager,
    /// On a worker cluster.
    Worker,
}

/// `roadstead install`
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of a command line are on or off, each by itself"
)]
#[derive(Clone, Debug, Args)]
pub struct Install {
    /// What to install
    pub part: Part,
    /// Kubeconfig of an administrator of the cluster [default: KUBECONFIG, else ~/.kube/config, else in-cluster]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace to install into
    #[arg(short, long, default_value = "kueue-system")]
    pub namespace: String,
    /// Values as for the chart, in YAML: image, replicas, ports, configuration and others
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,
    /// Show what would be done, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the objects as YAML, to apply them with another tool; no cluster is contacted
    #[arg(long)]
    pub print_yaml: bool,
    /// Wait until every replica is ready
    #[arg(long)]
    pub wait: bool,
    /// Longest wait
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
    /// Do not ask for consent
    #[arg(short, long)]
    pub yes: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `roadstead uninstall`
#[derive(Clone, Debug, Args)]
pub struct Uninstall {
    /// What to remove
    pub part: Part,
    /// Kubeconfig of an administrator of the cluster [default: KUBECONFIG, else ~/.kube/config, else in-cluster]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the installation
    #[arg(short, long, default_value = "kueue-system")]
    pub namespace: String,
    /// Remove the definitions too, and with them every queue and every Workload of the cluster
    #[arg(long)]
    pub definitions: bool,
    /// Longest wait for everything to be gone
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
    /// Do not ask for consent
    #[arg(short, long)]
    pub yes: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `roadstead doctor`. Exit code 0: healthy, 1: a check failed, 2: nothing could be read.
#[derive(Clone, Debug, Args)]
pub struct Doctor {
    /// Kubeconfig of the cluster [default: KUBECONFIG, else ~/.kube/config, else in-cluster]; the right to read is enough
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the manager or the worker
    #[arg(short, long, default_value = "kueue-system")]
    pub namespace: String,
    /// Check again until no check fails
    #[arg(long)]
    pub wait: bool,
    /// Longest wait
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
    /// Format of the result: table shows all checks, short only the problems
    #[arg(short, long, value_enum, default_value_t)]
    pub output: DoctorFormat,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// All checks, as a table.
    #[default]
    Table,
    /// Only the problems.
    Short,
    /// One JSON value.
    Json,
}

/// The management cluster, for commands that read nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Home {
    /// Kubeconfig of the management cluster [default: KUBECONFIG, else ~/.kube/config, else in-cluster]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// `roadstead explain`
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// Name of a job or of a Workload; KIND/NAME where one name means several
    #[arg(value_parser = object)]
    pub name: String,
    /// Its namespace [default: that of the kubeconfig's context]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The management cluster.
    #[command(flatten)]
    pub home: Home,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// The verbs of `roadstead sync`.
#[derive(Debug, Subcommand)]
pub enum SyncVerb {
    /// Show what the worker lacks, change nothing.
    Plan(Sync),
    /// Create what the worker lacks. Existing objects stay as they are.
    Apply(Sync),
}

/// `roadstead sync plan` and `apply`
#[derive(Clone, Debug, Args)]
pub struct Sync {
    /// Name of the worker cluster
    pub cluster: String,
    /// Kubeconfig of an administrator of the worker cluster (it is never stored)
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The management cluster.
    #[command(flatten)]
    pub manager: Manager,
    /// `ClusterQueue` of the worker for new LocalQueues [default: the one of the same name as on the manager]
    #[arg(long, value_name = "NAME")]
    pub cluster_queue: Option<String>,
    /// Do not ask for consent
    #[arg(short, long)]
    pub yes: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// The verbs of `roadstead config`.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Read a file as the manager and the workers do, and report every problem in it. No cluster is contacted.
    Check(Check),
}

/// `roadstead config check`
#[derive(Clone, Debug, Args)]
pub struct Check {
    /// The file: a Kueue `Configuration`, and optionally `RoadsteadConfiguration` as a second document; or a `ConfigMap` that holds it;
    /// `-` is standard input
    pub file: PathBuf,
    /// Feature gates as on the command line of the process, for example MultiKueue=true,PriorityBoost=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<GateSetting>,
    /// Namespace of the process, for files that name none
    #[arg(short, long, default_value = "kueue-system")]
    pub namespace: String,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// The verbs of `roadstead cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Register a worker cluster: create an account there, give its credential to the manager, wait until it is connected.
    Join(Join),
    /// List the worker clusters.
    List(List),
    /// Remove a worker cluster, and everything that was created for it.
    Leave(Leave),
    /// Send no new jobs to a worker cluster; running jobs go on.
    Cordon(Cordon),
    /// Let a worker cluster take new jobs again.
    Uncordon(Cordon),
    /// Send no new jobs to a worker cluster, and wait until no job of this manager is left there.
    Drain(Drain),
    /// Declare the runs on a lost worker cluster lost: its jobs are started elsewhere at once.
    GiveUp(GiveUp),
    /// Say that a name leads to another cluster from now on, or that its cluster has another address.
    Move(Move),
}

/// `roadstead cluster move`
#[derive(Clone, Debug, Args)]
pub struct Move {
    /// The name, and the cluster to which it is to lead.
    #[command(flatten)]
    pub join: Join,
    /// The kubeconfig leads to the cluster that the name leads to already; asked for where that was never identified
    #[arg(long)]
    pub same_cluster: bool,
}

/// `roadstead cluster give-up`
#[derive(Clone, Debug, Args)]
pub struct GiveUp {
    /// Name of the cluster
    pub name: String,
    /// The management cluster.
    #[command(flatten)]
    pub manager: Manager,
    /// Do not ask for consent
    #[arg(short, long)]
    pub yes: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `roadstead cluster cordon` and `uncordon`
#[derive(Clone, Debug, Args)]
pub struct Cordon {
    /// Name of the cluster
    pub name: String,
    /// The management cluster.
    #[command(flatten)]
    pub manager: Manager,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `roadstead cluster drain`
#[derive(Clone, Debug, Args)]
pub struct Drain {
    /// Name of the cluster
    pub name: String,
    /// The management cluster.
    #[command(flatten)]
    pub manager: Manager,
    /// Stop the jobs that run there and queue them again, instead of waiting for their end
    #[arg(long)]
    pub evict: bool,
    /// Longest wait for the cluster to be empty; 0s does not wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
    /// Do not ask for consent
    #[arg(short, long)]
    pub yes: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, for reading.
    #[default]
    #[value(alias = "text")]
    Table,
    /// One JSON value.
    Json,
    /// YAML documents.
    Yaml,
    /// Only kind and name.
    Name,
}

/// The management cluster.
#[derive(Clone, Debug, Args)]
pub struct Manager {
    /// Kubeconfig of the management cluster [default: KUBECONFIG, else ~/.kube/config, else in-cluster]
    #[arg(id = "manager_kubeconfig", long = "manager-kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in it [default: the current one]
    #[arg(id = "manager_context", long = "manager-context", value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace on the management cluster in which the manager looks for Secrets
    #[arg(short, long, default_value = "kueue-system")]
    pub namespace: String,
}

/// The owner of the account on the worker.
#[derive(Clone, Debug, Args)]
pub struct Owner {
    /// Origin of the manager, any value of a label: multiKueue.origin of its configuration, from which another one is refused [default:
    /// that one; multikueue if the configuration cannot be read]
    #[arg(long)]
    pub origin: Option<String>,
    /// Namespace of the account and of the manager's lease on the worker cluster: multiKueue.leaseNamespace of the manager's configuration,
    /// from which another one is refused [default: that one; the manager's namespace if the configuration cannot be read]
    #[arg(long)]
    pub worker_namespace: Option<String>,
}

/// `roadstead cluster join`
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of a command line are on or off, each by itself"
)]
#[derive(Clone, Debug, Args)]
pub struct Join {
    /// Name of the cluster: lower-case letters, digits, dashes
    pub name: String,
    /// Kubeconfig of an administrator of the worker cluster (it is never stored)
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The management cluster.
    #[command(flatten)]
    pub manager: Manager,
    /// The owner of the account.
    #[command(flatten)]
    pub owner: Owner,
    /// Integrations of the manager whose jobs it may send there, as in its configuration (integrations.frameworks) [default: those of
    /// the account, batch/job for a new one]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = integration)]
    pub integrations: Vec<&'static Kind>,
    /// Address at which the manager reaches the worker's API server [default: the one in the kubeconfig]
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Accept a loopback address from the kubeconfig: the manager runs on the same machine as the worker's API server
    #[arg(long)]
    pub allow_loopback: bool,
    /// `MultiKueueConfig` to add the cluster to [default: the only one, else the only one that a MultiKueue
    /// AdmissionCheck names, else a new one named multikueue]
    #[arg(long, value_name = "NAME")]
    pub config_name: Option<String>,
    /// Lifetime of the credential; the manager renews it well before it ends (10m to 24h)
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = token_lifetime)]
    pub token_lifetime: Duration,
    /// Longest wait for the manager to connect
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub timeout: Duration,
    /// Show what would be done, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the objects as YAML, to apply them with another tool; change nothing. No credential is created
    #[arg(long)]
    pub print_yaml: bool,
    /// Do not ask for consent
    #[arg(short, long)]
    pub yes: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `roadstead cluster list`
#[derive(Clone, Debug, Args)]
pub struct List {
    /// The management cluster.
    #[command(flatten)]
    pub manager: Manager,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `roadstead cluster leave`
#[derive(Clone, Debug, Args)]
pub struct Leave {
    /// Name of the cluster
    pub name: String,
    /// Kubeconfig of an administrator of the worker cluster; without it the account there is not removed
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The management cluster.
    #[command(flatten)]
    pub manager: Manager,
    /// The owner of the account.
    #[command(flatten)]
    pub owner: Owner,
    /// Longest wait for the worker to be empty
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
    /// Delete the manager's workloads and jobs on the worker instead of waiting for them, and go on without the worker if
    /// it cannot be reached
    #[arg(long)]
    pub force: bool,
    /// Show what would be done, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for consent
    #[arg(short, long)]
    pub yes: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

fn integration(name: &str) -> Result<&'static Kind, String> {
    let known = TABLE.named(name).filter(|kind| kind.can(Ability::Dispatched));
    known.ok_or_else(|| {
        let names = TABLE
            .iter()
            .filter(|kind| kind.can(Ability::Dispatched))
            .map(|kind| kind.framework);
        format!(
            "jobs of no such integration are sent to workers; known are: {}",
            names.collect::<Vec<_>>().join(", ")
        )
    })
}

/// `90`, `90s`, `15m` or `1h`.
fn duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.get(number.len()..).unwrap_or_default()),
        None => (text, "s"),
    };
    let factor = match unit {
        "h" => 3600,
        "m" => 60,
        _ => 1,
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .map(Duration::from_secs)
        .ok_or("expected a whole number with s, m or h, such as 90s, 15m, 1h")
}

/// A name, or a kind and a name.
fn object(text: &str) -> Result<String, &'static str> {
    let is_part = |part: &str| !part.is_empty() && !part.contains('/');
    match text.split_once('/') {
        None if is_part(text) => Ok(text.to_owned()),
        Some((kind, name)) if is_part(kind) && is_part(name) => Ok(text.to_owned()),
        None | Some(_) => Err("expected NAME or KIND/NAME, such as train or job/train"),
    }
}

fn token_lifetime(text: &str) -> Result<Duration, &'static str> {
    use roadstead_kubeconfigs::account::token::{LIFETIME_MAX, LIFETIME_MIN};
    duration(text).and_then(|life| {
        if (LIFETIME_MIN..=LIFETIME_MAX).contains(&life) {
            Ok(life)
        } else {
            Err("API servers grant 10m at least; more than 24h is not asked for")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use clap::{CommandFactory as _, Parser as _};

    use super::{Area, Cli, ClusterVerb, duration};

    /// Shell lines in the README and in `deploy/docs` that call the command, each with its file.
    fn documented() -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files: Vec<PathBuf> = fs::read_dir(root.join("deploy/docs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files.push(root.join("README.md"));
        let mut found = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let calls = text.lines().filter(|line| line.starts_with("roadstead "));
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            found.extend(calls.map(|line| (name.clone(), line.split(" #").next().unwrap().to_owned())));
        }
        found
    }

    #[test]
    fn every_command_in_the_documentation_is_understood() {
        let documented = documented();
        assert!(documented.len() > 15, "{documented:?}");
        for (file, line) in documented {
            let parsed = Cli::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{file}: {line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn command_tree_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// The commands of a tree that have this flag, and those of them that lack the other.
    fn lacking(command: &clap::Command, (flag, other): (&str, &str)) -> (usize, Vec<String>) {
        let has = |long: &str| command.get_arguments().any(|arg| arg.get_long() == Some(long));
        let mut found = (usize::from(has(flag)), Vec::new());
        if has(flag) && !has(other) {
            found.1.push(command.get_name().to_owned());
        }
        for below in command.get_subcommands() {
            let (count, lacking) = lacking(below, (flag, other));
            found.0 += count;
            found.1.extend(lacking);
        }
        found
    }

    #[test]
    fn whatever_takes_a_kubeconfig_takes_a_context_in_it() {
        for flags in [
            ("kubeconfig", "context"),
            ("manager-kubeconfig", "manager-context"),
        ] {
            let (count, lacking) = lacking(&Cli::command(), flags);
            assert!(count > 5, "{flags:?}: {count}");
            assert_eq!(lacking, [""; 0], "{flags:?}");
        }
    }

    #[test]
    fn durations_have_a_unit_and_a_bound() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("15m"), Ok(Duration::from_mins(15)));
        assert_eq!(duration("1h"), Ok(Duration::from_hours(1)));
        for bad in [
            "",
            "h",
            "-1s",
            "1.5h",
            "1d",
            "99999999999999999999h",
            "9999999999999999999h",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_has_at_most_a_kind_before_it() {
        for command in ["explain", "describe", "events"] {
            let parse = |name: &str| Cli::try_parse_from(["roadstead", command, name]);
            for good in [
                "train",
                "job/train",
                "job.batch/train",
                "workload.kueue.x-k8s.io/job-train",
            ] {
                assert!(parse(good).is_ok(), "{command} {good}");
            }
            for bad in ["", "/", "job/", "/train", "team/job/train"] {
                let error = parse(bad).unwrap_err();
                assert!(
                    error.to_string().contains("such as train or job/train"),
                    "{command} {bad}: {error}"
                );
            }
        }
    }

    #[test]
    fn join_knows_its_defaults_and_refuses_eternal_tokens() {
        let parse = |more: &[&str]| {
            let fixed = ["roadstead", "cluster", "join", "east", "--kubeconfig", "w"];
            Cli::try_parse_from(fixed.iter().chain(more))
        };
        let Area::Cluster {
            verb: ClusterVerb::Join(join),
        } = parse(&[]).unwrap().area
        else {
            panic!("not a join");
        };
        assert_eq!(join.manager.namespace, "kueue-system");
        assert_eq!(join.owner.origin, None, "that of the manager's configuration");
        assert_eq!(
            join.owner.worker_namespace, None,
            "that of the manager's configuration"
        );
        assert_eq!(join.token_lifetime, Duration::from_hours(1));
        assert!(join.integrations.is_empty(), "those of the account");
        assert!(parse(&["--token-lifetime", "10m"]).is_ok());
        let unknown = parse(&["--integrations", "batch/job,no.such/kind"]).unwrap_err();
        assert!(unknown.to_string().contains("known are: batch/job"), "{unknown}");
        for bad in ["9m", "25h", "0"] {
            let error = parse(&["--token-lifetime", bad]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
        }
    }
}
