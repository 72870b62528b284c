//! All processes die at once and are started again, while many jobs wait and every worker is full: is there a thundering herd?
//!
//! All etcds, all API servers and all of Roadstead's processes die. The servers are started first, so that their start does not
//! hide the work of Roadstead's processes. *Source*: `spec/safety.md` F31.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use roadstead_api::kueue::v1beta2::Workload;
use serde::Serialize;
use tokio::time::sleep;

use super::federation::{Bench, MANAGER, NAMESPACE, megabytes, names};
use super::requests::{Counted, Tally};
use super::rounded;
use crate::ControlPlane;

/// Jobs that run in each worker. Ten of them are a CPU.
const RUNNING_EACH: u16 = 10;
/// Wait after the restart until all its work is done.
const SETTLED: Duration = Duration::from_secs(30);
/// Limit of any wait.
const PATIENCE: Duration = Duration::from_mins(20);
const POLL: Duration = Duration::from_millis(100);
/// Interval between two reads of all waiting jobs.
const LOOK: Duration = Duration::from_secs(3);

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// How many workers
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=50))]
    pub workers: u16,
    /// Jobs that wait for quota, beside ten that run in each worker
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    pub pending: u16,
}

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Number of workers.
    pub workers: u16,
    /// Jobs that ran before the restart.
    pub running: u16,
    /// Jobs that waited before the restart.
    pub pending: u16,
    /// From the first submission of a waiting job until each has its Workload, seconds.
    pub submitted_s: f64,
    /// From the death of all processes until all control planes answer again, seconds.
    pub servers_ready_s: f64,
    /// From then, when Roadstead's processes are started, until all of them are ready, seconds.
    pub ready_s: f64,
    /// From then, when one job ends, until a waiting one runs in its place, seconds.
    pub next_started_s: f64,
    /// Writes of our processes to all API servers from their start until they are idle.
    pub writes: usize,
    /// Reads in the same time.
    pub reads: usize,
    /// Those reads and writes that were refused or failed.
    pub failed: usize,
    /// Most requests to the manager's API server in one second.
    pub manager_requests_in_a_second: usize,
    /// Most requests to the API server of any worker in one second.
    pub worker_requests_in_a_second: usize,
    /// Resident memory of the manager before, megabytes.
    pub manager_rss_mb_before: f64,
    /// Peak resident memory of the manager since its start, megabytes.
    pub manager_rss_mb_peak: f64,
    /// Workloads that had been sent more than once before the restart.
    pub sent_again_before: usize,
    /// Workloads that were sent again after it.
    pub sent_again: usize,
    /// Requests by cluster, user agent, verb and resource.
    pub requests: Vec<Tally>,
    /// Duration of the whole run, seconds.
    pub seconds: f64,
}

pub(super) async fn measure(sizes: &Sizes) -> anyhow::Result<Report> {
    let Sizes { workers, pending } = *sizes;
    let begun = Instant::now();
    let running = workers * RUNNING_EACH;
    let mut bench = Bench::set_up(workers, &workers.to_string(), "1").await?;
    bench.progress.step(&format!("{running} jobs that run"));
    bench.burst("running", running).await?;
    bench.progress.step(&format!("{pending} jobs that wait"));
    let submitting = Instant::now();
    bench.submit(&names("pending", 0..pending)).await?;
    let all = usize::from(running) + usize::from(pending);
    wait_for_workloads(&bench, all).await?;
    let submitted = submitting.elapsed();
    sleep(SETTLED).await;
    let before = bench.stage.memory(MANAGER)?;
    let again_before = bench.sent_again().await?;

    bench.progress.step("everything dies");
    let dead = Instant::now();
    let clusters: Vec<String> = bench.clusters().map(str::to_owned).collect();
    clusters
        .iter()
        .try_for_each(|cluster| bench.stage.kill(cluster))?;
    for plane in bench.planes() {
        plane.kill_apiserver()?;
        plane.kill_storage()?;
    }
    try_join_all(bench.planes().map(ControlPlane::revive)).await?;
    let servers_ready = dead.elapsed();
    bench.progress.step("starting the manager and the workers");
    let (marks, started) = (bench.marks()?, Instant::now());
    try_join_all(clusters.iter().map(|cluster| bench.stage.restart(cluster))).await?;
    let ready = started.elapsed();
    let next = next_started(&bench).await?;
    sleep(SETTLED).await;
    let counted = bench.counted(marks)?;
    let peak = bench.stage.memory(MANAGER)?.peak_kb;
    let again = bench.sent_again().await?;

    let (manager, others) = counted.split_at(1);
    let busiest = |counted: &[Counted]| counted.iter().map(Counted::busiest_second).max();
    Ok(Report {
        workers,
        running,
        pending,
        submitted_s: rounded(submitted.as_secs_f64()),
        servers_ready_s: rounded(servers_ready.as_secs_f64()),
        ready_s: rounded(ready.as_secs_f64()),
        next_started_s: rounded(next.as_secs_f64()),
        writes: counted.iter().map(|each| each.writes).sum(),
        reads: counted.iter().map(|each| each.reads).sum(),
        failed: counted.iter().map(|each| each.failed).sum(),
        manager_requests_in_a_second: busiest(manager).unwrap_or_default(),
        worker_requests_in_a_second: busiest(others).unwrap_or_default(),
        manager_rss_mb_before: megabytes(before.resident_kb),
        manager_rss_mb_peak: megabytes(peak),
        sent_again_before: again_before.len(),
        sent_again: again.difference(&again_before).count(),
        requests: bench.tallies(&counted, 1),
        seconds: rounded(begun.elapsed().as_secs_f64()),
    })
}

/// Waits until the manager has `wanted` Workloads.
async fn wait_for_workloads(bench: &Bench, wanted: usize) -> anyhow::Result<()> {
    let (api, begun) = (
        Api::<Workload>::namespaced(bench.manager.clone(), NAMESPACE),
        Instant::now(),
    );
    loop {
        let found = api.list_metadata(&ListParams::default()).await?.items.len();
        if found == wanted {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "{found} of {wanted} Workloads");
        sleep(LOOK).await;
    }
}

/// Ends one job, and waits until a waiting job runs in its worker.
async fn next_started(bench: &Bench) -> anyhow::Result<Duration> {
    for (index, client) in bench.workers.iter().enumerate() {
        let api: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
        let here = api.list(&ListParams::default()).await?;
        let Some(job) = here.iter().find(|job| job.name_any().starts_with("running")) else {
            continue;
        };
        let begun = Instant::now();
        bench.end(&job.name_any(), index).await?;
        loop {
            let now = api.list(&ListParams::default()).await?;
            let runs = |job: &&Job| job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true));
            let waited = now.iter().filter(runs);
            if { waited }.any(|job| job.name_any().starts_with("pending")) {
                return Ok(begun.elapsed());
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "nothing has started in {}",
                bench.names[index]
            );
            sleep(POLL).await;
        }
    }
    bail!("no job runs anywhere")
}
