//! One failing worker: are jobs placed on the others as quickly as without a failure?
//!
//! The sick worker has the most quota, so the manager prefers it as long as it seems healthy. Its API server answers 500 to
//! reads, then to writes, then its etcd has no space left, then it is stopped. Before, between and after these faults there are
//! calm phases. Jobs are submitted one after the other, each when the last one has ended. *Source*: `spec/safety.md` I12.
//!
//! *Limits*: each sick phase is compared with the calm phases around it, so other load on the machine must last less or much
//! longer than three phases.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use tokio::time::sleep;

use super::eyes::Mark;
use super::federation::{Bench, MANAGER, NAMESPACE, ROOMY};
use super::{millis, rounded};
use crate::link::Failing;
use crate::stage::{Queue, Spec, Stage, Worker};
use crate::{ControlPlane, Link, Options, Progress};

/// The worker that fails.
const SICK: &str = "worker-1";
/// The quota of that worker and of the others, in CPUs.
const QUOTA: (&str, &str) = ("1000", "8");
/// Pause between two jobs, so that one does not disturb the other.
const PAUSE: Duration = Duration::from_millis(150);
/// Jobs at the start that are not counted.
const WARM_UP: u16 = 5;
/// How long one job may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most jobs until a recovered worker is used again.
const TRIES: u16 = 200;

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Exit with code 1 if a mean misses its limit, with a line for each on standard error; needs a machine that does nothing else
    #[arg(long)]
    pub check: bool,
    /// How many workers, the sick one among them
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=50))]
    pub workers: u16,
    /// Jobs in each phase; 150 take about 50 seconds
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u16).range(2..=2000))]
    pub jobs: u16,
}

/// How one worker fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Illness {
    Reads,
    Writes,
    Full,
    Stopped,
}

const ILLNESSES: [Illness; 4] = [Illness::Reads, Illness::Writes, Illness::Full, Illness::Stopped];

/// The figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Number of workers.
    pub workers: u16,
    /// Jobs in each phase.
    pub jobs: u16,
    /// Beside a worker that answers 500 to every read.
    pub reads_fail: Beside,
    /// Beside a worker that answers 500 to every write.
    pub writes_fail: Beside,
    /// Beside a worker whose etcd has no space left: unlike above, its connections stay open.
    pub full: Beside,
    /// Beside a worker whose API server is stopped.
    pub stopped: Beside,
    /// Duration of the whole run, seconds.
    pub seconds: f64,
}

/// Times from the creation of a job until it may run on its worker, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Beside {
    /// The median beside the sick worker, as a ratio to that of the calm phases before and after.
    pub ratio_p50: f64,
    /// The ratio of the 99th percentiles.
    pub ratio_p99: f64,
    /// The ratio of the means.
    pub ratio_mean: f64,
    /// The median of the calm phases before and after.
    pub calm_ms_p50: f64,
    /// The 90th percentile of the calm phases.
    pub calm_ms_p90: f64,
    /// The 99th percentile of the calm phases.
    pub calm_ms_p99: f64,
    /// The maximum of the calm phases.
    pub calm_ms_max: f64,
    /// The median beside the sick worker.
    pub sick_ms_p50: f64,
    /// The 90th percentile beside the sick worker.
    pub sick_ms_p90: f64,
    /// The 99th percentile beside the sick worker.
    pub sick_ms_p99: f64,
    /// The maximum beside the sick worker.
    pub sick_ms_max: f64,
    /// How long the worker was sick, seconds.
    pub sick_for_s: f64,
    /// From its recovery until it got a job again, seconds.
    pub used_again_s: f64,
}

impl Beside {
    fn of(calm: &[Duration], sick: &[Duration], (lasted, used_again): (Duration, Duration)) -> Self {
        Self {
            ratio_p50: rounded(millis(sick, 50) / millis(calm, 50)),
            ratio_p99: rounded(millis(sick, 99) / millis(calm, 99)),
            ratio_mean: rounded(mean(sick).div_duration_f64(mean(calm))),
            calm_ms_p50: millis(calm, 50),
            calm_ms_p90: millis(calm, 90),
            calm_ms_p99: millis(calm, 99),
            calm_ms_max: millis(calm, 100),
            sick_ms_p50: millis(sick, 50),
            sick_ms_p90: millis(sick, 90),
            sick_ms_p99: millis(sick, 99),
            sick_ms_max: millis(sick, 100),
            sick_for_s: rounded(lasted.as_secs_f64()),
            used_again_s: rounded(used_again.as_secs_f64()),
        }
    }
}

/// The three slowest jobs with their position, for the output.
fn slowest(placed: &[(Duration, usize)]) -> String {
    let mut by_time: Vec<_> = placed.iter().enumerate().collect();
    by_time.sort_by_key(|(_, (took, _))| Reverse(*took));
    let words = { by_time.into_iter().take(3) }.map(|(at, (took, _))| format!("number {at} with {took:.0?}"));
    words.collect::<Vec<_>>().join(", ")
}

fn mean(of: &[Duration]) -> Duration {
    let count = u32::try_from(of.len().max(1)).unwrap_or(u32::MAX);
    of.iter().sum::<Duration>() / count
}

pub(super) async fn measure(sizes: &Sizes) -> anyhow::Result<Report> {
    let (jobs, begun) = (sizes.jobs, Instant::now());
    let mut bench = set_up(sizes.workers).await?;
    bench.one_by_one("warm", WARM_UP).await?;
    bench.progress.step(&format!("{jobs} jobs on a calm day"));
    let mut before = bench.calm("calm", jobs).await?;
    let mut found = Vec::new();
    for illness in ILLNESSES {
        bench
            .progress
            .step(&format!("{jobs} jobs beside a worker: {illness:?}"));
        let prefix = format!("{illness:?}").to_lowercase();
        let falls_ill = Instant::now();
        bench.falls_ill(illness).await?;
        let sick = bench.one_by_one(&prefix, jobs).await?;
        let lasted = falls_ill.elapsed();
        bench.progress.step(&format!("the slowest: {}", slowest(&sick)));
        ensure!(
            sick.iter().all(|(_, worker)| *worker != 0),
            "a job ran on the sick worker"
        );
        bench.recovers(illness).await?;
        let used_again = bench.is_used_again(&prefix).await?;
        bench.progress.step(&format!("{jobs} jobs on a calm day again"));
        let after = bench.calm(&format!("after-{prefix}"), jobs).await?;
        let sick: Vec<Duration> = sick.into_iter().map(|(took, _)| took).collect();
        let calm = [before, after.clone()].concat();
        found.push(Beside::of(&calm, &sick, (lasted, used_again)));
        before = after;
    }
    let [reads_fail, writes_fail, full, stopped] = *found else {
        bail!("{} illnesses instead of {}", found.len(), ILLNESSES.len());
    };
    Ok(Report {
        workers: sizes.workers,
        jobs,
        reads_fail,
        writes_fail,
        full,
        stopped,
        seconds: rounded(begun.elapsed().as_secs_f64()),
    })
}

async fn set_up(workers: u16) -> anyhow::Result<Bench> {
    let progress = Progress::stderr();
    let names: Vec<String> = (1..=workers).map(|number| format!("worker-{number}")).collect();
    let queue = Queue::new("main").with_quota(MANAGER, &[("cpu", ROOMY), ("memory", "100Ti")]);
    let queue = { names.iter() }.fold(queue, |queue, name| {
        let cpus = if name == SICK { QUOTA.0 } else { QUOTA.1 };
        queue.with_quota(name, &[("cpu", cpus), ("memory", "100Ti")])
    });
    let there = |name: &String| Worker {
        answers_capacity: false,
        ..Worker::new(Options::bare(name))
    };
    let spec = Spec::new(Options::bare(MANAGER), names.iter().map(there).collect())
        .with_namespace(NAMESPACE)
        .with_queue(queue);
    let stage = Stage::start(spec, progress.clone()).await?;
    Bench::on(stage, names, vec!["main".to_owned()], progress)
}

impl Bench {
    /// Submits `count` jobs one after the other. Returns the time until each might run, and the index of its worker.
    async fn one_by_one(&mut self, prefix: &str, count: u16) -> anyhow::Result<Vec<(Duration, usize)>> {
        let mut placed = Vec::new();
        for number in 0..count {
            placed.push(self.one(&format!("{prefix}-{number}")).await?);
        }
        Ok(placed)
    }

    async fn one(&mut self, name: &str) -> anyhow::Result<(Duration, usize)> {
        let began = Instant::now();
        self.create(name).await?;
        let (at, worker) = self.eyes.see(Mark::Started, name, PATIENCE).await?;
        sleep(PAUSE).await;
        self.end(name, worker).await?;
        self.eyes.see(Mark::Finished, name, PATIENCE).await?;
        sleep(PAUSE).await;
        Ok((at.duration_since(began), worker))
    }

    /// The same in a calm phase, in which most jobs must run in the worker with the most quota.
    async fn calm(&mut self, prefix: &str, count: u16) -> anyhow::Result<Vec<Duration>> {
        let placed = self.one_by_one(prefix, count).await?;
        let there = placed.iter().filter(|(_, worker)| *worker == 0).count();
        ensure!(
            there * 2 > placed.len(),
            "only {there} jobs ran on {SICK} on a calm day"
        );
        Ok(placed.into_iter().map(|(took, _)| took).collect())
    }

    async fn falls_ill(&self, illness: Illness) -> anyhow::Result<()> {
        let (link, plane) = self.sick()?;
        match illness {
            Illness::Reads => link.fail(Failing::Reads),
            Illness::Writes => link.fail(Failing::Writes),
            Illness::Full => plane.fill_storage().await?,
            Illness::Stopped => plane.pause()?,
        }
        Ok(())
    }

    async fn recovers(&self, illness: Illness) -> anyhow::Result<()> {
        let (link, plane) = self.sick()?;
        match illness {
            Illness::Reads | Illness::Writes => link.heal(),
            Illness::Full => plane.free_storage().await?,
            Illness::Stopped => plane.resume()?,
        }
        Ok(())
    }

    fn sick(&self) -> anyhow::Result<(&Link, &ControlPlane)> {
        let plane = self.stage.planes().worker(SICK).context(SICK)?;
        Ok((self.stage.link(SICK)?, plane))
    }

    async fn is_used_again(&mut self, prefix: &str) -> anyhow::Result<Duration> {
        let well = Instant::now();
        for number in 0..TRIES {
            let (_, worker) = self.one(&format!("{prefix}-well-{number}")).await?;
            if worker == 0 {
                return Ok(well.elapsed());
            }
        }
        bail!("{SICK} is well and was given none of {TRIES} jobs")
    }
}
