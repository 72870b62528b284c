//! What can be typed to look at jobs, queues and worker clusters. The flags mean what they mean to kubectl.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Format, Home, object};

/// Where a command looks.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Namespace to look into [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// Look into all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// The management cluster.
    #[command(flatten)]
    pub home: Home,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people.
    #[default]
    #[value(alias = "text")]
    Table,
    /// For people, with more columns.
    Wide,
    /// The objects of the API as JSON.
    Json,
    /// The objects of the API as YAML.
    Yaml,
    /// Only kind and name.
    Name,
}

/// What `get` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Jobs, wherever in the federation they run: the Workloads of the management cluster.
    #[default]
    #[value(aliases = ["job", "workloads", "workload", "wl"])]
    Jobs,
    /// LocalQueues of the management cluster.
    #[value(aliases = ["queue", "localqueues", "localqueue", "lq"])]
    Queues,
    /// Worker clusters: the MultiKueueClusters of the management cluster.
    #[value(aliases = ["cluster", "multikueueclusters", "multikueuecluster"])]
    Clusters,
}

/// `roadstead get`
#[derive(Clone, Debug, Args)]
pub struct Get {
    /// What to show
    #[arg(value_enum, default_value_t)]
    pub what: What,
    /// Only this one; of jobs the name of a job or of a Workload, KIND/NAME where one name means several
    #[arg(conflicts_with_all = ["all_namespaces", "selector"], value_parser = object)]
    pub name: Option<String>,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
    /// Only objects with these labels; jobs are selected by the labels of their Workloads
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Format of the result; json and yaml are the objects of the API
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    /// After the list, go on and show every change until interrupted
    #[arg(short, long)]
    pub watch: bool,
}

/// What `top` measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Measured {
    /// Quota per queue, flavor and resource.
    #[default]
    #[value(aliases = ["queue", "clusterqueues", "localqueues"])]
    Queues,
    /// Jobs per worker cluster, and what they use.
    #[value(aliases = ["cluster", "multikueueclusters"])]
    Clusters,
}

/// `roadstead top`
#[derive(Clone, Debug, Args)]
pub struct Top {
    /// What to measure
    #[arg(value_enum, default_value_t)]
    pub what: Measured,
    /// Only the LocalQueues, or the jobs, of this namespace [default: ClusterQueues, and jobs of all namespaces]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// The LocalQueues of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// The management cluster.
    #[command(flatten)]
    pub home: Home,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `roadstead events`
#[derive(Clone, Debug, Args)]
pub struct Events {
    /// Only those of this job and its Workload: name of a job or of a Workload, KIND/NAME where one name means several
    #[arg(conflicts_with = "all_namespaces", value_parser = object)]
    pub name: Option<String>,
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
    /// Format of the result; json and yaml are the objects of the API
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    /// After the list, go on and show every new event until interrupted
    #[arg(short, long)]
    pub watch: bool,
}

/// A shell that can complete what is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// The shell fish.
    Fish,
    /// `PowerShell`.
    #[value(name = "powershell")]
    PowerShell,
}

impl Shell {
    /// As it is called on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
            Self::PowerShell => "powershell",
        }
    }
}

/// `roadstead completion`
#[derive(Clone, Debug, Args)]
pub struct Completion {
    /// The shell: `source <(roadstead completion bash)`, or the same in its own words
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `roadstead man`
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// Folder to write into, which must exist: one page for each command
    pub folder: PathBuf,
}
