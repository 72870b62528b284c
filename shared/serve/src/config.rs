//! Loads the configuration file: strictly, with every problem reported at once, each with its key and line.
//!
//! The steps: YAML with positions (`tree`), documents by kind (`read`), rules that need more than one key
//! (`rules`), feature gates of file and flag. A process that starts has a [`Config`] without contradictions.

mod idle;
mod near;
mod read;
mod rules;
mod source;
mod tree;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use roadstead_api::config::{
    Config, DEFAULT_NAMESPACE, DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL,
    FeatureGate, FeatureGates, GateProblem, QuotaCheckStrategy,
};
use roadstead_kinds::{Kinds, TABLE};

use crate::args::GateSetting;
use crate::exit::ExitKind;
use crate::tls;

pub use rules::wrappers::app_wrapper_limits;
pub use source::Source;

/// Limit: size of the configuration file in bytes; a `ConfigMap` cannot be larger.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Limit: problems reported at once.
pub const PROBLEMS_MAX: usize = 64;

/// Longest lifetime of a requested token, in seconds. A larger setting is warned about. Source: spec/safety.md 5 S10.
const TOKEN_LIFETIME_SECONDS_MAX: i64 = 86_400;

/// Where a pod finds the name of its namespace.
pub const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Why there is no configuration. Each is for the user to correct.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("configuration file {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file is too large.
    #[error("configuration file {} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file has problems.
    #[error("{}", render(problems))]
    Problems {
        /// The problems, in order of the file; at most [`PROBLEMS_MAX`].
        problems: Vec<Problem>,
    },
}

impl Error {
    /// Always a mistake of the user.
    pub const fn exit_kind(&self) -> ExitKind {
        ExitKind::Usage
    }
}

/// One problem, at one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File, or the faulty flag.
    pub origin: String,
    /// Line and column, both from 1, where known.
    pub position: Option<(u64, u64)>,
    /// Full path of the key, such as `multiKueue.externalFrameworks[0].name`; empty for the whole document.
    pub path: String,
    /// The written value, if it is a single value and cannot be a secret.
    pub value: Option<String>,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.value {
            Some(value) if !self.message.contains(value) => write!(f, " (it is {value})"),
            Some(_) | None => Ok(()),
        }
    }
}

fn render(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    match lines.len() {
        1 => format!("the configuration has a problem: {}", lines.join("")),
        count => format!(
            "the configuration has {count} problems:\n  {}",
            lines.join("\n  ")
        ),
    }
}

/// The namespace of this process: from the service-account mount, else the default.
pub fn own_namespace(mount: &Path) -> String {
    let read = std::fs::read_to_string(mount).unwrap_or_default();
    match read.trim() {
        "" => DEFAULT_NAMESPACE.to_owned(),
        namespace => namespace.to_owned(),
    }
}

/// Loads the file, or the defaults when there is none, and applies `--feature-gates`.
///
/// # Errors
/// A file that cannot be read or is too large, or every problem in it.
pub fn load(file: Option<&Path>, gates: &[GateSetting], own_namespace: &str) -> Result<Config, Error> {
    let Some(path) = file else {
        return parse("--config", "", gates, own_namespace);
    };
    let Source { origin, text } = Source::read(path)?;
    parse(&origin, &text, gates, own_namespace)
}

/// As [`load`], from a text; `origin` names it in problems.
///
/// # Errors
/// Every problem in the text.
pub fn parse(origin: &str, text: &str, gates: &[GateSetting], own_namespace: &str) -> Result<Config, Error> {
    parse_with(TABLE, origin, text, (gates, own_namespace))
}

fn parse_with(
    kinds: Kinds,
    origin: &str,
    text: &str,
    (gates, own_namespace): (&[GateSetting], &str),
) -> Result<Config, Error> {
    let mut findings = Findings::new(origin);
    let documents = read::documents(text, &mut findings);
    let mut config = Config::from_documents(documents, own_namespace);
    let settings = resolve_gates(&mut config, gates, &mut findings);
    rules::check(&config, kinds, &mut findings);
    idle::warn(&mut config, &settings, &findings);
    warn_of_curves(&mut config);
    warn_of_dispatcher(&mut config);
    warn_of_lifetime(&mut config);
    warn_of_half_life(&mut config);
    match findings.into_problems() {
        problems if problems.is_empty() => Ok(config),
        problems => Err(Error::Problems { problems }),
    }
}

/// Collects problems and knows the position of each key.
pub(crate) struct Findings {
    origin: String,
    positions: tree::Positions,
    problems: Vec<Problem>,
}

impl Findings {
    fn new(origin: &str) -> Self {
        Self {
            origin: origin.into(),
            positions: tree::Positions::default(),
            problems: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        let path = path.into();
        let position = self.positions.nearest(&path);
        self.add_at(position, path, message);
    }

    fn add_at(&mut self, position: Option<(u64, u64)>, path: impl Into<String>, message: impl Into<String>) {
        let (origin, path) = (self.origin.clone(), path.into());
        let value = self.positions.value(&path).map(ToOwned::to_owned);
        self.problems.push(Problem {
            origin,
            position,
            path,
            value,
            message: message.into(),
        });
    }

    fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems;
        problems.sort_by_key(|problem| problem.position.unwrap_or((u64::MAX, 0)));
        problems.truncate(PROBLEMS_MAX);
        problems
    }
}

/// Merges the gates of file and flag, and returns those that were set.
fn resolve_gates(config: &mut Config, flag: &[GateSetting], findings: &mut Findings) -> Vec<(String, bool)> {
    let in_file = config.feature_gate_settings.len();
    if in_file > 0 && !flag.is_empty() {
        // Wire: file and flag exclude each other. Source: spec/api.md API-13.
        findings.add(
            "featureGates",
            "cannot be used together with --feature-gates; keep one of the two",
        );
    }
    let written = config.feature_gate_settings.iter();
    let settings: Vec<(String, bool)> = written
        .map(|(name, on)| (name.clone(), *on))
        .chain(flag.iter().map(|setting| (setting.name.clone(), setting.on)))
        .collect();
    match FeatureGates::resolve(settings.iter().map(|(name, on)| (name.as_str(), *on))) {
        Ok(gates) => config.feature_gates = gates,
        Err(problems) => {
            for problem in problems {
                let message = gate_message(&problem);
                if flag.iter().any(|setting| setting.name == problem.name()) {
                    findings.problems.push(Problem {
                        origin: "--feature-gates".into(),
                        position: None,
                        path: String::new(),
                        value: None,
                        message,
                    });
                } else {
                    findings.add(format!("featureGates.{}", problem.name()), message);
                }
            }
        }
    }
    if config.feature_gates.enabled(FeatureGate::DisableWaitForPodsReady) {
        config.wait_for_pods_ready = None;
    }
    if !config.feature_gates.enabled(FeatureGate::QuotaCheckStrategy) {
        config.resources.quota_check_strategy = QuotaCheckStrategy::default();
    }
    settings
}

/// The message for a wrong gate. Why it names only the most similar gate if there is one: the list of all gates is long.
fn gate_message(problem: &GateProblem) -> String {
    let near = match problem {
        GateProblem::Unknown { name } => {
            near::nearest(name, FeatureGate::ALL.iter().map(|gate| gate.name())).map(|near| (name, near))
        }
        GateProblem::Locked { .. } | GateProblem::Needs { .. } => None,
    };
    match near {
        Some((name, near)) => format!("unknown feature gate `{name}`; did you mean `{near}`?"),
        None => problem.to_string(),
    }
}

fn warn_of_curves(config: &mut Config) {
    let curves = config.tls.curve_preferences.iter();
    for curve in curves.filter(|curve| !tls::curve_usable(curve)) {
        config.warnings.push(format!(
            "tls.curvePreferences: {curve} is not available here and is ignored"
        ));
    }
}

/// Warns of an unknown dispatcher in the domain of a known one. Why no other domains: an external dispatcher may have any name there.
fn warn_of_dispatcher(config: &mut Config) {
    let known = [
        DISPATCHER_ALL_AT_ONCE,
        DISPATCHER_INCREMENTAL,
        DISPATCHER_CAPACITY,
    ];
    let name = config.multi_kueue.dispatcher_name.as_str();
    let domain = |name: &str| name.split_once('/').map(|(domain, _)| domain.to_lowercase());
    let is_ours = known.iter().any(|known| domain(known) == domain(name));
    if known.contains(&name) || !is_ours {
        return;
    }
    let near = near::nearest(name, known).map(|near| format!("; did you mean `{near}`?"));
    config.warnings.push(format!(
        "multiKueue.dispatcherName: `{name}` is none of {}, so no job is sent anywhere unless an external dispatcher of that name \
         nominates clusters{}",
        known.map(|name| format!("`{name}`")).join(", "),
        near.unwrap_or_default()
    ));
}

fn warn_of_lifetime(config: &mut Config) {
    let secs = config.roadstead.multi_kueue.token_lifetime_seconds;
    if secs > TOKEN_LIFETIME_SECONDS_MAX {
        config.warnings.push(format!(
            "multiKueue.tokenLifetimeSeconds: {secs} is too long, no more than {TOKEN_LIFETIME_SECONDS_MAX} s (one day) are asked for"
        ));
    }
}

fn warn_of_half_life(config: &mut Config) {
    let sharing = config.admission_fair_sharing.as_ref();
    if sharing.is_some_and(|sharing| sharing.usage_half_life_time.is_zero()) {
        config.warnings.push(
            "admissionFairSharing.usageHalfLifeTime: it is 0s, the default, so past usage is forgotten at once and orders nothing; \
             write for example 168h"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests;
