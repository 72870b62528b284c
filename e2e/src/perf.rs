//! Measures how fast Roadstead is, and what it costs the API servers.
//!
//! `perf federation`: one manager and some workers, each an etcd and a kube-apiserver and nothing else: no Job controller, no scheduler, no
//! nodes. The harness ends jobs itself, so that nothing is measured but our processes and the API servers. A bare client
//! then sends only the unavoidable writes for the same number of jobs to the same servers; ratios are to that.
//!
//! *Limits*: the bare client runs after Roadstead's processes were stopped and their webhooks removed, so no process reacts to
//! its objects; the cost of webhooks and watches counts against Roadstead.
//!
//! `perf crowd`: hundreds of workers, whose API servers are embedded. `perf herd`: everything restarts at once while many jobs wait.
//! `perf sick`: beside a worker that fails. `perf worker`: one worker under many bare Workloads. `perf wrappers`: one worker with many
//! `AppWrappers`. `perf groups`: one worker with many groups of pods. `perf engine`: the decisions alone, without Kubernetes.
//!
//! Reading order: this file (the report), `federation` (the run), `bare` (the bare client), `eyes` (times of observations),
//! `requests` (requests to the API servers), `limits` (the limits of `--check`), `crowd`, `herd`, `sick`, `worker`, `wrappers`,
//! `groups`, `engine`.

mod bare;
pub mod crowd;
pub mod engine;
mod eyes;
mod federation;
pub mod groups;
pub mod herd;
mod limits;
mod requests;
pub mod sick;
pub mod worker;
pub mod wrappers;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use serde::Serialize;

use requests::Tally;

use crate::stage::parse_cpu;

/// Measures on this machine; figures are ratios to a bare client wherever the machine matters.
#[derive(Debug, Clone, Parser)]
#[command(name = "perf")]
pub struct Args {
    /// Print one JSON object on standard output; progress goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// What to measure
    #[command(subcommand)]
    pub what: What,
}

/// What is measured.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// Dispatch latency, mirroring, throughput, requests and memory of one manager and its workers
    Federation(Sizes),
    /// Memory, CPU and requests of one manager with hundreds of workers, whose API servers are embedded
    Crowd(crowd::Sizes),
    /// Time, requests and memory when every server and process dies at once while many jobs wait
    Herd(herd::Sizes),
    /// How quickly jobs are placed beside one worker that fails, to a calm day
    Sick(sick::Sizes),
    /// Time, requests, CPU and memory of one worker under many bare Workloads
    Worker(worker::Sizes),
    /// Time, requests, CPU and memory of the controller of many `AppWrappers`: ours or the reference's operator
    Wrappers(wrappers::Sizes),
    /// Time, requests, CPU and memory of the engine that admits many groups of pods: ours or the reference
    Groups(groups::Sizes),
    /// Time, CPU and memory of the decisions alone, without Kubernetes
    Engine(engine::Sizes),
}

/// Sizes of a measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Exit with code 1 if a figure misses its limit, with a line for each on standard error; needs a machine that does nothing else
    #[arg(long)]
    pub check: bool,
    /// How many workers; several numbers are measured one after the other
    #[arg(long, default_value = "2", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=50))]
    pub workers: Vec<u16>,
    /// Jobs submitted one after the other, each when nothing else is going on
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub samples: u16,
    /// Jobs submitted at once
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=5000))]
    pub burst: u16,
    /// Jobs dispatched and not ended when memory is read; at least the burst
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10000))]
    pub held: u16,
    /// Also kill the manager and start it again while they run; the figures per job then include the cost
    #[arg(long)]
    pub restart: bool,
}

/// The cost of a restart of the manager while jobs run.
#[derive(Debug, Clone, Serialize)]
pub struct Restart {
    /// From its death until it is ready, milliseconds.
    pub ready_ms: f64,
    /// From its death until a job that was submitted as soon as it was ready may run on a worker, milliseconds.
    pub dispatch_ms: f64,
    /// Writes of our processes to all API servers from its death until the processes are idle, with those for that one job.
    pub writes: usize,
    /// Reads in the same time, the lists of a start included.
    pub reads: usize,
    /// Peak resident memory of the manager until then, megabytes.
    pub rss_mb: f64,
    /// Those requests by cluster, user agent, verb and resource.
    pub requests: Vec<Tally>,
}

/// The figures of one number of workers.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Number of workers.
    pub workers: u16,
    /// Idle: from a job's creation on the manager until the winner's queue has admitted it, milliseconds.
    pub admitted_ms_p50: f64,
    /// The same as a ratio to the bare client's series until the job is unsuspended everywhere.
    pub admitted_ratio_p50: f64,
    /// Idle: from a job's creation on the manager until it is unsuspended on the winner, as a ratio to the bare client's writes.
    pub latency_ratio_p50: f64,
    /// The median of the same latency, milliseconds.
    pub latency_ms_p50: f64,
    /// The 99th percentile of the same latency, milliseconds.
    pub latency_ms_p99: f64,
    /// The bare client's series: the job and the eight writes until it is unsuspended everywhere, milliseconds.
    pub bare_latency_ms_p50: f64,
    /// The part of that series that must be sequential: without the manager's second status and its unsuspended job, milliseconds.
    pub bare_critical_ms_p50: f64,
    /// From the write of a job's end in the worker until the manager's job shows it, as a ratio to one bare status write.
    pub mirror_ratio_p50: f64,
    /// The median of the same time, milliseconds.
    pub mirror_ms_p50: f64,
    /// The 99th percentile of the same time, milliseconds.
    pub mirror_ms_p99: f64,
    /// One status write of a job by the bare client, milliseconds.
    pub bare_status_ms_p50: f64,
    /// Jobs per second of the burst, as a ratio to the bare client's.
    pub throughput_ratio: f64,
    /// Jobs per second from the first submission of the burst until the last job is unsuspended on its winner.
    pub jobs_per_s: f64,
    /// The bare client's jobs per second, with as many requests in flight.
    pub bare_jobs_per_s: f64,
    /// During the burst: from the decision on a worker until the job exists there, milliseconds.
    pub placed_to_job_ms_p99: f64,
    /// CPU time of the manager for one job of the burst and the held ones, from submission until nothing is left, milliseconds.
    pub manager_cpu_ms_per_job: f64,
    /// The same as a ratio to the CPU time of the API server of its cluster in that time.
    pub manager_cpu_ratio: f64,
    /// Writes of our processes to the manager's API server, per job from submission to the end.
    pub manager_writes_per_job: f64,
    /// Reads of our processes from the manager's API server, watches not counted.
    pub manager_reads_per_job: f64,
    /// Writes of our processes to the workers' API servers together.
    pub worker_writes_per_job: f64,
    /// Reads of our processes from the workers' API servers together.
    pub worker_reads_per_job: f64,
    /// All requests of our processes, per job.
    pub requests_per_job: f64,
    /// The requests among them to Jobs and Workloads, which a job causes. The others depend on time: leases, events, queue statuses.
    pub job_requests_per_job: f64,
    /// Requests that were refused or failed (status 400 and above), per job.
    pub failed_requests_per_job: f64,
    /// Jobs that were taken back from a worker and sent again.
    pub jobs_sent_again: usize,
    /// Resident memory of the manager with its workers registered and no job, megabytes.
    pub manager_rss_mb_idle: f64,
    /// Resident memory of the manager while `jobs_held` jobs are dispatched, megabytes.
    pub manager_rss_mb_1000: f64,
    /// Resident memory of the larger worker process at that time, megabytes.
    pub worker_rss_mb_1000: f64,
    /// Jobs that were dispatched when memory was read.
    pub jobs_held: u16,
    /// The cost of a restart, if it was requested.
    pub restart: Option<Restart>,
    /// Size of the burst.
    pub jobs_burst: u16,
    /// Requests in flight at once, of the submitter and of the bare client.
    pub concurrency: usize,
    /// How many jobs the requests were counted over.
    pub jobs_counted: u16,
    /// Requests by cluster, user agent, verb and resource.
    pub requests: Vec<Tally>,
    /// Duration of the whole run, seconds.
    pub seconds: f64,
}

/// The reports of several runs.
#[derive(Debug, Serialize)]
struct ByWorkers {
    by_workers: BTreeMap<u16, Report>,
}

impl ByWorkers {
    fn of(reports: Vec<Report>) -> Self {
        let by_workers = { reports.into_iter() }.map(|report| (report.workers, report));
        Self {
            by_workers: by_workers.collect(),
        }
    }
}

/// Measures and prints. Fails if a measurement fails, or a figure misses a limit under `--check`.
pub async fn main(args: Args) -> ExitCode {
    let json = args.json;
    let mut missed = Vec::new();
    let done = async {
        match args.what {
            What::Federation(sizes) => {
                let mut reports = Vec::new();
                for workers in &sizes.workers {
                    reports.push(federation::measure(&sizes, *workers).await?);
                }
                if sizes.check {
                    missed = limits::of_federation(&reports);
                }
                match &*reports {
                    [report] => print(report, &report.requests, json),
                    _ if json => print(&ByWorkers::of(reports), &[], true),
                    _ => reports
                        .iter()
                        .try_for_each(|report| print(report, &report.requests, false)),
                }
            }
            What::Crowd(sizes) => {
                let mut reports = Vec::new();
                for workers in &sizes.workers {
                    reports.push(crowd::measure(&sizes, *workers).await?);
                }
                let found = crowd::Found::of(reports);
                if json {
                    return print(&found, &[], true);
                }
                { found.by_workers.values() }
                    .try_for_each(|report| print(report, &report.requests, false))?;
                found
                    .each_worker
                    .iter()
                    .try_for_each(|slope| print(slope, &[], false))
            }
            What::Herd(sizes) => {
                let report = herd::measure(&sizes).await?;
                print(&report, &report.requests, json)
            }
            What::Sick(sizes) => {
                let report = sick::measure(&sizes).await?;
                if sizes.check {
                    missed = limits::of_sick(&report);
                }
                print(&report, &[], json)
            }
            What::Worker(sizes) => {
                let report = worker::measure(&sizes).await?;
                print(&report, &report.requests, json)
            }
            What::Wrappers(sizes) => {
                let reports = wrappers::measure(&sizes).await?;
                if sizes.check {
                    missed = limits::of_wrappers(&reports);
                }
                match &*reports {
                    [report] => print(report, &report.requests, json),
                    _ if json => print(&reports, &[], true),
                    _ => reports
                        .iter()
                        .try_for_each(|report| print(report, &report.requests, false)),
                }
            }
            What::Groups(sizes) => {
                let reports = groups::measure(&sizes).await?;
                if json {
                    return print(&reports, &[], true);
                }
                reports
                    .iter()
                    .try_for_each(|report| print(report, &report.requests, false))
            }
            What::Engine(sizes) => {
                let report = tokio::task::spawn_blocking(move || engine::measure(&sizes)).await??;
                print(&report, &[], json)
            }
        }
    };
    let failed = done.await.err();
    let mut said: Vec<String> = failed.iter().map(|error| format!("{error:#}")).collect();
    said.extend(missed.iter().map(ToString::to_string));
    for line in &said {
        // Why: a closed standard error must not hide the exit code.
        let _ = writeln!(std::io::stderr().lock(), "perf: {line}");
    }
    if said.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print(report: &impl Serialize, requests: &[Tally], json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(report)?)?;
    } else {
        writeln!(out, "{}", in_words(report, requests))?;
    }
    Ok(())
}

fn in_words(report: &impl Serialize, requests: &[Tally]) -> String {
    let value = serde_json::to_value(report).unwrap_or_default();
    let lines = value.as_object().into_iter().flatten();
    let lines = lines.filter(|(name, _)| *name != "requests");
    let mut text: Vec<String> = lines.map(|(name, value)| format!("{name:<26} {value}")).collect();
    for tally in requests {
        let Tally {
            cluster,
            agent,
            verb,
            resource,
            per_job,
            count,
        } = tally;
        text.push(format!(
            "{cluster:<8} {agent:<18} {verb:<8} {resource:<40} {count:>7} {per_job:>8.2} per job"
        ));
    }
    text.join("\n")
}

/// CPU time, user and system, that a process has used so far. `self` is this process.
fn cpu_of(process: &str) -> anyhow::Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    parse_cpu(&text).with_context(|| format!("{path} has no CPU time"))
}

/// Percentile (nearest rank) of some durations, in milliseconds with two digits.
fn millis(durations: &[Duration], hundredths: usize) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    let duration = sorted.get(rank - 1).copied().unwrap_or_default();
    rounded(duration.as_secs_f64() * 1000.0)
}

/// Rounds to two decimal digits.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
