//! `roadstead config check`: reports what a process would say about a configuration file.

use std::path::Path;

use roadstead_api::config::{Config, FeatureGate};
use roadstead_serve::config::{self, Error, Problem, Source};
use serde::Serialize;

use crate::args::{Check, Format};
use crate::failure::{Code, Failure};
use crate::output;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    file: String,
    valid: bool,
    problems: Vec<Row>,
    warnings: Vec<String>,
}

/// One problem. Absent values are not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Row {
    origin: String,
    line: Option<u64>,
    column: Option<u64>,
    path: String,
    value: Option<String>,
    message: String,
}

impl Row {
    fn of(problem: &Problem) -> Self {
        let Problem {
            origin,
            position,
            path,
            value,
            message,
        } = problem.clone();
        Self {
            origin,
            line: position.map(|(line, _)| line),
            column: position.map(|(_, column)| column),
            path,
            value,
            message,
        }
    }
}

/// Reads a file and prints its summary or its problems.
///
/// *Errors*: all problems of the file, with exit code 2.
pub fn check(args: &Check) -> Result<(), Failure> {
    let file = args.file.display().to_string();
    let read = Source::read(&args.file).map(Source::unwrapped);
    let loaded = read.and_then(|Source { origin, text }| {
        config::parse(&origin, &text, &args.feature_gates, &args.namespace)
    });
    match loaded {
        Ok(config) => {
            let report = Report {
                file: file.clone(),
                valid: true,
                problems: Vec::new(),
                warnings: config.warnings.clone(),
            };
            output::result(args.output, &report, &file, || summary(&file, &config))
        }
        Err(error) => Err(refused(args, &file, &error)?),
    }
}

/// The failure; with `-o json` or `yaml` the problems are printed too.
fn refused(args: &Check, file: &str, error: &Error) -> Result<Failure, Failure> {
    let (why, next, problems) = match error {
        Error::Problems { problems } => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let rows: Vec<Row> = problems.iter().map(Row::of).collect();
            (
                lines.join("\n        "),
                "correct these keys, then check again",
                rows,
            )
        }
        Error::Read { source, .. } => (
            format!("{error}: {source}"),
            "name a file that can be read",
            Vec::new(),
        ),
        Error::TooLarge { .. } => (error.to_string(), "name a configuration file", Vec::new()),
    };
    match args.output {
        Format::Json | Format::Yaml => {
            let report = Report {
                file: file.to_owned(),
                valid: false,
                problems,
                warnings: Vec::new(),
            };
            output::result(args.output, &report, file, String::new)?;
        }
        Format::Table | Format::Name => {}
    }
    Ok(Failure::new(format!("{file} cannot be used"), why, next).code(Code::Usage))
}

fn summary(file: &str, config: &Config) -> String {
    let name = Path::new(file)
        .file_name()
        .map_or_else(|| file.into(), |name| name.to_string_lossy());
    let on_or_off = |on: bool| if on { "on" } else { "off" };
    let changed: Vec<String> = FeatureGate::ALL
        .iter()
        .filter(|gate| config.feature_gates.enabled(**gate) != gate.default_on())
        .map(|gate| format!("{}={}", gate.name(), config.feature_gates.enabled(*gate)))
        .collect();
    let mut lines = vec![
        format!("{name} can be used."),
        format!("  namespace       {}", config.namespace),
        format!("  jobs            {}", config.integrations.frameworks.join(", ")),
        format!(
            "  listeners       webhook {}, health {}, metrics {}, visibility {}",
            config.webhook.bind(),
            config.health.bind,
            config.metrics.bind,
            config.visibility.bind()
        ),
        format!("  pods ready      {}", pods_ready(config)),
        format!("  fair sharing    {}", on_or_off(config.fair_sharing.is_some())),
        format!("  origin          {}", config.multi_kueue.origin),
        format!(
            "  feature gates   {}",
            if changed.is_empty() {
                "defaults".to_owned()
            } else {
                changed.join(", ")
            }
        ),
    ];
    lines.extend(
        config
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

/// Whether waiting for pods is on, the timeout, and whether the file sets it.
fn pods_ready(config: &Config) -> String {
    let from = if config.names_pods_ready { "" } else { ", default" };
    match &config.wait_for_pods_ready {
        Some(wait) => format!("on ({:#}{from})", wait.timeout),
        None => "off".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_serve::args::GateSetting;

    use super::*;

    const HEADER: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

    fn run(text: &str, gates: &[&str]) -> Option<Failure> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, text).unwrap();
        check(&Check {
            file,
            feature_gates: gates
                .iter()
                .map(|text| text.parse::<GateSetting>().unwrap())
                .collect(),
            namespace: "kueue-system".to_owned(),
            output: Format::Table,
        })
        .err()
    }

    #[test]
    fn a_good_file_passes_and_a_bad_one_names_every_key_with_exit_code_two() {
        assert_eq!(run(HEADER, &["PriorityBoost=true"]), None);
        let bad = format!("{HEADER}nmaespace: x\nmultiKueue: {{gcInterval: -1s}}\n");
        let failure = run(&bad, &[]).unwrap();
        assert_eq!(failure.code, Code::Usage);
        for part in [
            "config.yaml:3:1: nmaespace: unknown key `nmaespace`",
            "did you mean `namespace`?",
            "config.yaml:4:14: multiKueue.gcInterval: must be greater than or equal to 0 (it is -1s)",
        ] {
            assert!(failure.why.contains(part), "{part}: {}", failure.why);
        }
        let gate = run(HEADER, &["PriorityBost=true"]).unwrap();
        assert!(gate.why.contains("did you mean `PriorityBoost`?"), "{}", gate.why);
        let file = format!("{HEADER}featureGates: {{PriorityBoost: true}}\n");
        let both = run(&file, &["PriorityBoost=true"]).unwrap();
        assert!(both.why.contains("cannot be used together"), "{}", both.why);
    }

    /// Spec: api API-13
    #[test]
    fn a_config_map_is_checked_by_what_it_holds() {
        let map = |key: &str| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: kueue-manager-config}}\ndata:\n  \
                 controller_manager_config.yaml: |\n    apiVersion: config.kueue.x-k8s.io/v1beta1\n    kind: Configuration\n    {key}\n"
            )
        };
        assert_eq!(run(&map("namespace: kueue"), &[]), None);
        let failure = run(&map("nmaespace: kueue"), &[]).unwrap();
        let wanted = "config.yaml data[controller_manager_config.yaml]:3:1: nmaespace: unknown key";
        assert!(failure.why.contains(wanted), "{}", failure.why);
    }

    /// Spec: api API-13
    #[test]
    fn the_summary_tells_what_only_the_default_says() {
        let shown = |text: &str| summary("f", &config::parse("f", text, &[], "ns").unwrap());
        for (text, wanted) in [
            (HEADER.to_owned(), "pods ready      on (30m, default)\n"),
            (
                format!("{HEADER}waitForPodsReady: {{timeout: 90s}}\n"),
                "pods ready      on (1m 30s)\n",
            ),
            (HEADER.replace("v1beta2", "v1beta1"), "pods ready      off\n"),
        ] {
            let said = shown(&text);
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let missing = Check {
            file: "/nowhere/config.yaml".into(),
            feature_gates: Vec::new(),
            namespace: "n".to_owned(),
            output: Format::Table,
        };
        let failure = check(&missing).unwrap_err();
        assert_eq!(failure.code, Code::Usage);
        assert!(failure.why.contains("/nowhere/config.yaml cannot be read"));
    }

    #[test]
    fn the_summary_shows_what_differs_and_every_warning() {
        let text = format!("{HEADER}featureGates: {{PriorityBoost: true}}\npprofBindAddress: ':1'\n");
        let config = config::parse("f", &text, &[], "ns").unwrap();
        let shown = summary("/etc/f.yaml", &config);
        assert!(shown.starts_with("f.yaml can be used.\n"), "{shown}");
        assert!(shown.contains("PriorityBoost=true"), "{shown}");
        assert!(
            shown.contains("warning: pprofBindAddress has no effect"),
            "{shown}"
        );
    }
}
