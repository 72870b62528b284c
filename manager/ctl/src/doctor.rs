//! `roadstead doctor`: named checks of one cluster, each with what was seen, why it matters, and the next command.
//!
//! It only reads. A kind that it may not read is reported as unknown, which is no failure.
//!
//! Reading order: [`run`], `facts` (reads the cluster), `checks` (judges the facts).

mod checks;
mod facts;

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use roadstead_kubeio::connect::Chosen;

use crate::access;
use crate::args::{Doctor, DoctorFormat};
use crate::failure::{Code, Failure};
use crate::install::LOOK_EVERY;
use crate::output;
use checks::{Finding, Level};
use facts::Facts;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    healthy: bool,
    failed: usize,
    warnings: usize,
    unknown: usize,
    findings: Vec<Finding>,
}

impl Report {
    fn of(findings: Vec<Finding>) -> Self {
        let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
        Self {
            healthy: count(Level::Failed) == 0,
            failed: count(Level::Failed),
            warnings: count(Level::Warning),
            unknown: count(Level::Unknown),
            findings,
        }
    }
}

/// The time after so much waiting. Why not `now`: a lease that is renewed while we wait would seem to be renewed in the future, and
/// one that is not would never grow old.
fn later(now: Timestamp, waited: Duration) -> Timestamp {
    now.checked_add(waited).unwrap_or(now)
}

/// Checks a cluster and prints the findings; `now` is the time of the call.
///
/// *Errors*: a check failed (exit code 1), or nothing could be read (exit code 2).
pub async fn run(args: &Doctor, now: Timestamp) -> Result<(), Failure> {
    let chosen = Chosen {
        kubeconfig: args.kubeconfig.as_deref(),
        context: args.context.as_deref(),
    };
    let client = access::local(chosen, "--kubeconfig")
        .await
        .map_err(|failure| failure.code(Code::Usage))?;
    let started = Instant::now();
    let report = loop {
        let facts = Facts::read(&client, &args.namespace, later(now, started.elapsed())).await?;
        let report = Report::of(checks::judge(&facts));
        if report.healthy || !args.wait || started.elapsed() >= args.timeout {
            break report;
        }
        sleep(LOOK_EVERY).await;
    };
    print(args.output, &report, args.kubeconfig.as_deref())?;
    let Some(first) = { report.findings.iter() }.find(|finding| finding.level == Level::Failed) else {
        return Ok(());
    };
    Err(Failure::new(
        format!("{} of {} checks failed", report.failed, report.findings.len()),
        format!("{}: {}", first.check, first.seen),
        first.next.clone().unwrap_or_else(|| "see above".to_owned()),
    ))
}

fn print(format: DoctorFormat, report: &Report, kubeconfig: Option<&Path>) -> Result<(), Failure> {
    let is_shown = |finding: &&Finding| match format {
        DoctorFormat::Table | DoctorFormat::Json => true,
        DoctorFormat::Short => matches!(finding.level, Level::Failed | Level::Warning),
    };
    let shape = match format {
        DoctorFormat::Json => crate::args::Format::Json,
        DoctorFormat::Table | DoctorFormat::Short => crate::args::Format::Table,
    };
    output::result(shape, report, "", || {
        let mut lines = Vec::new();
        let mut group = "";
        for finding in report.findings.iter().filter(is_shown) {
            if finding.group != group {
                group = finding.group;
                lines.push(group.to_owned());
            }
            lines.push(format!(
                "  {:<7} {}: {}",
                finding.level.word(),
                finding.check,
                finding.seen
            ));
            if matches!(finding.level, Level::Failed | Level::Warning) {
                lines.push(format!("          why:  {}", finding.why));
                lines.extend(finding.next.iter().map(|next| format!("          next: {next}")));
            }
        }
        lines.push(format!(
            "{} checks: {} failed, {} warnings, {} unknown",
            report.findings.len(),
            report.failed,
            report.warnings,
            report.unknown
        ));
        lines.extend(elsewhere(report, kubeconfig));
        lines.join("\n")
    })
}

/// Says which cluster the next commands must reach: they name no kubeconfig.
fn elsewhere(report: &Report, kubeconfig: Option<&Path>) -> Option<String> {
    let gives_next = report.failed + report.warnings > 0;
    kubeconfig.filter(|_| gives_next).map(|path| {
        format!(
            "the commands above are for this cluster: export KUBECONFIG={}",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_commands_are_for_the_cluster_that_was_checked() {
        let mut report = Report::of(Vec::new());
        let path = Path::new("east.kubeconfig");
        assert_eq!(elsewhere(&report, Some(path)), None, "there is no next command");
        report.warnings = 1;
        assert!(
            elsewhere(&report, Some(path))
                .unwrap()
                .ends_with("KUBECONFIG=east.kubeconfig")
        );
        assert_eq!(elsewhere(&report, None), None, "they reach it anyway");
    }

    #[test]
    fn the_time_goes_on_while_the_command_waits() {
        let later = later(Timestamp::UNIX_EPOCH, Duration::from_secs(90));
        assert_eq!(later.as_second(), 90);
    }
}
