//! Command-line arguments that all processes share.
//!
//! Binaries flatten [`Args`] into their own parser and add `#[command(version)]` for `--version`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ArgAction;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::exit::ExitKind;

/// Arguments of every process. An argument on the command line wins over its environment variable.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Args {
    /// Kubeconfig of the cluster to run against; without it the in-cluster credentials are used
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_parser = maybe_empty_path())]
    kubeconfig: Option<PathBuf>,

    /// Configuration file: a Kueue `Configuration`, and optionally `RoadsteadConfiguration` as a second document
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_CONFIG", value_parser = maybe_empty_path())]
    config: Option<PathBuf>,

    /// Feature gates, for example MultiKueue=true,PriorityBoost=false; not together with featureGates in the file
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<GateSetting>,

    /// Parts to run: '*' is all, NAME adds one, -NAME takes one out
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    pub controllers: Vec<String>,

    /// Format of the log lines
    #[arg(long, value_enum, default_value_t, env = "ROADSTEAD_LOG_FORMAT")]
    pub log_format: LogFormat,

    /// Log level: error, warn, info, debug, trace, or directives such as `info,roadstead_engine=debug`
    #[arg(long, value_name = "LEVEL", env = "ROADSTEAD_LOG_LEVEL")]
    pub log_level: Option<String>,

    /// Name of this replica, such as its pod's name. A starting process takes over at once from one of the same name, so two
    /// running replicas must not share it. Without a name it waits until the lease of a killed process has expired
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,

    /// Log more: -v is debug, -vv is trace; --log-level wins
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Parses a path that may be empty. Why: clap refuses an empty path, but an empty environment variable means that no path is given.
fn maybe_empty_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl Args {
    /// Kubeconfig file; empty text counts as not given.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig
            .as_deref()
            .filter(|path| !path.as_os_str().is_empty())
    }

    /// Name of this replica, if it has one; empty text counts as not given.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref().filter(|name| !name.is_empty())
    }

    /// Configuration file; empty text counts as not given.
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref().filter(|path| !path.as_os_str().is_empty())
    }
}

/// Format of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For readers at a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// One `GATE=BOOL` of `--feature-gates`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateSetting {
    /// Name as written; checked together with the file.
    pub name: String,
    /// On or off.
    pub on: bool,
}

impl FromStr for GateSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not of the form GATE=true or GATE=false");
        let (name, value) = text.split_once('=').ok_or_else(refuse)?;
        let on = match value.trim().to_ascii_lowercase().as_str() {
            // Wire: the spellings that Go's strconv.ParseBool accepts.
            "true" | "t" | "1" => true,
            "false" | "f" | "0" => false,
            _ => return Err(refuse()),
        };
        match name.trim() {
            "" => Err(refuse()),
            name => Ok(Self {
                name: name.into(),
                on,
            }),
        }
    }
}

/// Why `--controllers` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that this binary does not have.
    #[error("--controllers: unknown {}; the known ones are {}, and * for all", unknown.join(", "), known.join(", "))]
    UnknownControllers {
        /// The unknown names.
        unknown: Vec<String>,
        /// The names of this binary.
        known: Vec<&'static str>,
    },
    /// The list leaves no part.
    #[error("--controllers={list}: nothing would run; write *,{list} to run all others")]
    NothingToRun {
        /// The list as given.
        list: String,
    },
}

impl Error {
    /// Always a mistake of the user.
    pub const fn exit_kind(&self) -> ExitKind {
        ExitKind::Usage
    }
}

/// Decides which parts run, as kube-controller-manager does: `NAME` and `-NAME` win over `*`, and a removed name wins over an
/// added one.
///
/// # Errors
/// Every unknown name at once; or that no part is left.
pub fn select_controllers(list: &[String], known: &[&'static str]) -> Result<BTreeSet<&'static str>, Error> {
    let items: Vec<&str> = list
        .iter()
        .map(|item| item.trim())
        .filter(|item| !item.is_empty())
        .collect();
    let named = |item: &str| item == "*" || known.contains(&item.strip_prefix('-').unwrap_or(item));
    let unknown: Vec<String> = items
        .iter()
        .filter(|item| !named(item))
        .map(|item| (*item).into())
        .collect();
    if !unknown.is_empty() {
        return Err(Error::UnknownControllers {
            unknown,
            known: known.to_vec(),
        });
    }
    let removed = |name: &str| items.iter().any(|item| item.strip_prefix('-') == Some(name));
    let added = |name: &str| items.iter().any(|item| *item == "*" || *item == name);
    let selected: BTreeSet<&'static str> = known
        .iter()
        .copied()
        .filter(|name| added(name) && !removed(name))
        .collect();
    if selected.is_empty() {
        return Err(Error::NothingToRun {
            list: items.join(","),
        });
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "x", version = "1.2.3")]
    struct Binary {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Args {
        Binary::try_parse_from(line.split_whitespace()).unwrap().args
    }

    const KNOWN: &[&str] = &["admission", "gc", "webhooks"];

    fn select(list: &str) -> Result<Vec<&'static str>, Error> {
        let list: Vec<String> = list.split(',').map(Into::into).collect();
        select_controllers(&list, KNOWN).map(|set| set.into_iter().collect())
    }

    #[test]
    fn all_arguments_are_read() {
        let args = parse(
            "x --kubeconfig k --config c --feature-gates A=true,B=0 --controllers *,-gc --log-format json --log-level warn -vv",
        );
        assert_eq!(args.kubeconfig(), Some(Path::new("k")));
        assert_eq!(args.config(), Some(Path::new("c")));
        let gates: Vec<(&str, bool)> = args
            .feature_gates
            .iter()
            .map(|gate| (gate.name.as_str(), gate.on))
            .collect();
        assert_eq!(gates, [("A", true), ("B", false)]);
        assert_eq!(args.controllers, ["*", "-gc"]);
        assert_eq!(
            (args.log_format, args.log_level.as_deref(), args.verbose),
            (LogFormat::Json, Some("warn"), 2)
        );
    }

    #[test]
    fn a_list_that_starts_with_a_dash_is_a_value() {
        assert_eq!(parse("x --controllers -gc,*").controllers, ["-gc", "*"]);
        assert_eq!(parse("x --controllers=-gc").controllers, ["-gc"]);
    }

    #[test]
    fn empty_paths_count_as_not_given() {
        let args = parse("x --kubeconfig= --config=");
        assert_eq!((args.kubeconfig(), args.config()), (None, None));
        assert_eq!(args.controllers, ["*"]);
        assert_eq!(args.log_format, LogFormat::Text);
    }

    #[test]
    fn wrong_arguments_exit_with_two() {
        for line in [
            "x --feature-gates A",
            "x --feature-gates A=maybe",
            "x --log-format xml",
            "x --what",
        ] {
            let error = Binary::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        let version = Binary::try_parse_from(["x", "--version"]).unwrap_err();
        assert_eq!((version.exit_code(), version.to_string().trim()), (0, "x 1.2.3"));
    }

    #[test]
    fn star_names_and_minus_names_combine() {
        assert_eq!(select("*"), Ok(vec!["admission", "gc", "webhooks"]));
        assert_eq!(select("*,-gc"), Ok(vec!["admission", "webhooks"]));
        assert_eq!(select("gc"), Ok(vec!["gc"]));
        assert_eq!(select("gc, admission,-gc"), Ok(vec!["admission"]));
    }

    #[test]
    fn unknown_names_are_all_named_with_the_known_ones() {
        let error = select("gC,*,-wat").unwrap_err();
        assert_eq!(error.exit_kind().code(), 2);
        assert_eq!(
            error.to_string(),
            "--controllers: unknown gC, -wat; the known ones are admission, gc, webhooks, and * for all",
        );
    }

    #[test]
    fn a_list_that_leaves_nothing_says_what_to_write() {
        let error = select("-gc").unwrap_err();
        assert_eq!(
            error.to_string(),
            "--controllers=-gc: nothing would run; write *,-gc to run all others"
        );
    }
}
