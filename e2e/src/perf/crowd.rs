//! Hundreds of workers: do a manager's work and memory grow with the changes, or with the number of workers?
//!
//! The manager runs on a real API server. The workers' API servers are embedded in this process and serve HTTPS, because two
//! hundred real ones do not fit on an ordinary machine. The worker processes are real. A MultiKueueConfig lists at most
//! [`GROUP`] clusters, so there are several configs, each with a queue, and jobs are submitted to the queues in turn.
//!
//! *Limits*: all processes share the processors, so times are those of a busy machine; memory, CPU time and counts are the
//! manager's own. Requests are counted from the servers' audit logs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tokio::time::sleep;

use super::federation::{Bench, MANAGER, NAMESPACE, ROOMY, megabytes};
use super::requests::{Tally, per_one};
use super::rounded;
use crate::options::Kind;
use crate::stage::{Queue, Spec, Stage, Worker};
use crate::{Options, Progress};

/// Clusters of one MultiKueueConfig. *Source*: the definition of the kind.
const GROUP: u16 = 20;
/// Workers that are prepared and registered at the same time.
const AT_ONCE: usize = 4;
/// Jobs before anything is counted.
const WARM_UP: u16 = 10;
/// Wait after the start, and after jobs, until the processes are idle.
const REST: Duration = Duration::from_secs(10);
/// The manager's user agent.
const AGENT: &str = "roadstead-manager";

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// How many workers; several numbers are measured one after the other. 300 of them and two cores fit into 24 GB
    #[arg(long, default_value = "20,100,200", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=400))]
    pub workers: Vec<u16>,
    /// Jobs submitted at once, the same for each number of workers
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=5000))]
    pub jobs: u16,
    /// Seconds without a job over which idle work is counted
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(10..=3600))]
    pub idle: u16,
}

/// The figures of one number of workers.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Number of workers.
    pub workers: u16,
    /// MultiKueueConfigs, and queues.
    pub configs: u16,
    /// Time to register and connect all workers with the command, four at a time, seconds.
    pub registered_s: f64,
    /// Resident memory of the manager with all workers connected and before any job, megabytes.
    pub rss_mb_idle: f64,
    /// The manager's open files at that time, connections included.
    pub open_files: usize,
    /// The manager's threads at that time.
    pub threads: usize,
    /// The manager's CPU time per minute while idle, seconds.
    pub idle_cpu_s_per_min: f64,
    /// The manager's requests to all workers per minute while idle.
    pub idle_worker_requests_per_min: f64,
    /// The manager's requests to its own API server per minute while idle.
    pub idle_own_requests_per_min: f64,
    /// Jobs submitted at once.
    pub jobs: u16,
    /// Jobs per second from the first submission until the last job may run on its worker.
    pub jobs_per_s: f64,
    /// CPU time of the manager per job, without its idle use, milliseconds.
    pub cpu_ms_per_job: f64,
    /// Copies (Workloads) created on workers per job.
    pub copies_per_job: f64,
    /// Requests of the manager to all workers per job, without leases and heartbeats.
    pub worker_requests_per_job: f64,
    /// Requests of the manager to its own API server per job, without its lease.
    pub own_requests_per_job: f64,
    /// Resident memory of the manager with all of them running, megabytes.
    pub rss_mb_held: f64,
    /// Growth of the manager's resident memory per running job, kilobytes.
    pub rss_kb_per_job: f64,
    /// The cost of killing the manager then and starting it again.
    pub restart: Restart,
    /// Requests of the manager during the burst: to itself and to all workers, by verb and resource.
    pub requests: Vec<Tally>,
    /// Duration of the whole run, seconds.
    pub seconds: f64,
}

/// The cost of a restart of the manager while the jobs run.
#[derive(Debug, Clone, Serialize)]
pub struct Restart {
    /// From its death until it is ready, seconds.
    pub ready_s: f64,
    /// From its death until a job that was submitted as soon as it was ready may run on a worker, seconds.
    pub dispatch_s: f64,
    /// CPU time of the new process in the first half minute, seconds.
    pub cpu_s: f64,
    /// Its requests to all workers in that time, without watches.
    pub worker_requests: usize,
    /// Its requests to its own API server in that time, without watches.
    pub own_requests: usize,
    /// Its peak resident memory, megabytes.
    pub rss_mb_peak: f64,
    /// Its resident memory at the end of that time, megabytes.
    pub rss_mb_settled: f64,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Found {
    /// The figures by number of workers.
    pub by_workers: BTreeMap<u16, Report>,
    /// The cost of one more worker, if several numbers were measured.
    pub each_worker: Option<Slope>,
}

/// The cost of one more worker for the manager: the difference between the smallest and the largest number, per worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slope {
    /// Resident memory while idle, kilobytes.
    pub rss_kb_idle: f64,
    /// Open files.
    pub open_files: f64,
    /// CPU time in a minute while idle, milliseconds.
    pub idle_cpu_ms_per_min: f64,
    /// Requests to that worker in a minute while idle.
    pub idle_requests_per_min: f64,
}

impl Found {
    pub(super) fn of(reports: Vec<Report>) -> Self {
        let by_workers: BTreeMap<u16, Report> = { reports.into_iter() }
            .map(|report| (report.workers, report))
            .collect();
        let ends = by_workers.values().next().zip(by_workers.values().next_back());
        let each_worker = ends.and_then(|(least, most)| Slope::between(least, most));
        Self {
            by_workers,
            each_worker,
        }
    }
}

impl Slope {
    fn between(least: &Report, most: &Report) -> Option<Self> {
        let more = f64::from(most.workers.checked_sub(least.workers).filter(|more| *more > 0)?);
        let each = |of: &dyn Fn(&Report) -> f64| rounded((of(most) - of(least)) / more);
        Some(Self {
            rss_kb_idle: each(&|report| report.rss_mb_idle * 1024.0),
            open_files: each(&|report| float(report.open_files)),
            idle_cpu_ms_per_min: each(&|report| report.idle_cpu_s_per_min * 1000.0),
            idle_requests_per_min: each(&|report| report.idle_worker_requests_per_min),
        })
    }
}

pub(super) async fn measure(sizes: &Sizes, workers: u16) -> anyhow::Result<Report> {
    let (jobs, begun) = (sizes.jobs, Instant::now());
    let (mut bench, registered) = set_up(workers).await?;
    sleep(REST).await;

    bench.progress.step(&format!("{} s without a job", sizes.idle));
    let idle = Span::begin(&bench)?;
    sleep(Duration::from_secs(sizes.idle.into())).await;
    let idle = idle.end(&bench)?;
    let rss_idle = bench.stage.memory(MANAGER)?.resident_kb;
    let handles = bench.stage.handles(MANAGER)?;

    bench.progress.step(&format!("{jobs} jobs at once"));
    bench.burst("warm", WARM_UP).await?;
    sleep(REST).await;
    let busy = Span::begin(&bench)?;
    let burst = bench.burst("burst", jobs).await?;
    sleep(REST).await;
    let busy = busy.end(&bench)?;
    let rss_held = bench.stage.memory(MANAGER)?.resident_kb;
    let all_jobs = f64::from(jobs) + f64::from(WARM_UP);
    let unoccupied = busy.took.mul_f64(idle.cpu.div_duration_f64(idle.took));

    bench.progress.step("the manager is killed and started again");
    let restart = restart(&mut bench).await?;

    let (own, theirs) = busy.work();
    let copies = theirs
        .iter()
        .filter(|tally| is_copy(tally))
        .map(|tally| tally.count);
    let a_minute = |tallies: &[Tally]| rounded(float(sum(tallies)) * 60.0 / idle.took.as_secs_f64());
    let (idle_own, idle_theirs) = split(idle.tallies.clone());
    Ok(Report {
        workers,
        configs: workers.div_ceil(GROUP),
        registered_s: rounded(registered.as_secs_f64()),
        rss_mb_idle: megabytes(rss_idle),
        open_files: handles.files,
        threads: handles.threads,
        idle_cpu_s_per_min: rounded(60.0 * idle.cpu.div_duration_f64(idle.took)),
        idle_worker_requests_per_min: a_minute(&idle_theirs),
        idle_own_requests_per_min: a_minute(&idle_own),
        jobs,
        jobs_per_s: rounded(f64::from(jobs) / burst.as_secs_f64()),
        cpu_ms_per_job: rounded(busy.cpu.saturating_sub(unoccupied).as_secs_f64() * 1000.0 / f64::from(jobs)),
        copies_per_job: per_one(copies.sum(), jobs.into()),
        worker_requests_per_job: per_one(sum(&theirs), jobs.into()),
        own_requests_per_job: per_one(sum(&own), jobs.into()),
        rss_mb_held: megabytes(rss_held),
        rss_kb_per_job: rounded((megabytes(rss_held) - megabytes(rss_idle)) * 1024.0 / all_jobs),
        restart,
        requests: { own.into_iter().chain(theirs) }
            .map(|tally| Tally {
                per_job: per_one(tally.count, jobs.into()),
                ..tally
            })
            .collect(),
        seconds: rounded(begun.elapsed().as_secs_f64()),
    })
}

/// Starts the stage. Returns it with the duration of all registrations.
async fn set_up(workers: u16) -> anyhow::Result<(Bench, Duration)> {
    let progress = Progress::stderr();
    let names: Vec<String> = (1..=workers).map(|number| format!("worker-{number}")).collect();
    let there = |name: &String| Worker {
        answers_capacity: false,
        ..Worker::new(Options::bare(name).of_kind(Kind::Embedded).with_audit()).unregistered()
    };
    let spec = Spec::new(
        Options::bare(MANAGER).with_audit(),
        names.iter().map(there).collect(),
    );
    let stage = Stage::start(spec, progress.clone()).await?;

    progress.step(&format!("a queue in each of {workers} workers"));
    let places: Vec<(String, &String)> = { names.chunks(GROUP.into()).zip(1..) }
        .flat_map(|(group, number)| group.iter().map(move |name| (queue_name(number), name)))
        .collect();
    stream::iter(&places)
        .map(|(queue, worker)| {
            let room = [("cpu", ROOMY), ("memory", "100Ti")];
            let object = Queue::new(queue).with_quota(MANAGER, &room);
            stage.furnish_within(queue, worker, NAMESPACE, object.with_quota(*worker, &room))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;

    let begun = Instant::now();
    // Why the first of each config alone: two commands that create the same config would conflict.
    let (first, others): (Vec<_>, Vec<_>) =
        { places.iter().enumerate() }.partition(|(index, _)| index % usize::from(GROUP) == 0);
    for some in [first, others] {
        stream::iter(some)
            .map(|(_, (config, worker))| stage.join_within(config, worker))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
    }
    let registered = begun.elapsed();
    let queues = (1..=workers.div_ceil(GROUP)).map(queue_name).collect();
    Ok((Bench::on(stage, names, queues, progress)?, registered))
}

/// The name of a queue, of its config and of its check.
fn queue_name(number: u16) -> String {
    format!("group-{number}")
}

async fn restart(bench: &mut Bench) -> anyhow::Result<Restart> {
    let found = bench.restart().await?;
    let (own, theirs) = split(found.requests);
    Ok(Restart {
        ready_s: rounded(found.ready_ms / 1000.0),
        dispatch_s: rounded(found.dispatch_ms / 1000.0),
        cpu_s: rounded(bench.stage.cpu(MANAGER)?.as_secs_f64()),
        worker_requests: sum(&theirs),
        own_requests: sum(&own),
        rss_mb_peak: found.rss_mb,
        rss_mb_settled: megabytes(bench.stage.memory(MANAGER)?.resident_kb),
    })
}

/// A period over which the manager's CPU time and requests are counted.
struct Span {
    marks: Vec<super::requests::Mark>,
    cpu: Duration,
    begun: Instant,
}

/// The counts of a period.
struct Counts {
    took: Duration,
    cpu: Duration,
    /// Requests of all processes.
    tallies: Vec<Tally>,
}

impl Span {
    fn begin(bench: &Bench) -> anyhow::Result<Self> {
        // Why the marks first: reading the logs takes time.
        let marks = bench.marks()?;
        Ok(Self {
            marks,
            cpu: bench.stage.cpu(MANAGER)?,
            begun: Instant::now(),
        })
    }

    fn end(self, bench: &Bench) -> anyhow::Result<Counts> {
        let Self { marks, cpu, begun } = self;
        let (took, cpu) = (begun.elapsed(), bench.stage.cpu(MANAGER)?.saturating_sub(cpu));
        let counted = bench.counted(marks)?;
        Ok(Counts {
            took,
            cpu,
            tallies: bench.tallies(&counted, 1),
        })
    }
}

impl Counts {
    /// Requests because of jobs: to the manager's own server, and to all workers.
    fn work(&self) -> (Vec<Tally>, Vec<Tally>) {
        split(
            { self.tallies.iter() }
                .filter(|tally| is_work(tally))
                .cloned()
                .collect(),
        )
    }
}

/// The manager's requests to its own server, and to all workers together; by verb and resource.
fn split(tallies: Vec<Tally>) -> (Vec<Tally>, Vec<Tally>) {
    let (mut own, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    for tally in tallies.into_iter().filter(|tally| tally.agent == AGENT) {
        let (of, cluster) = if tally.cluster == MANAGER {
            (&mut own, MANAGER)
        } else {
            (&mut theirs, "workers")
        };
        let key = (tally.verb.clone(), tally.resource.clone());
        let sum: &mut Tally = of.entry(key).or_insert_with(|| Tally {
            cluster: cluster.to_owned(),
            count: 0,
            ..tally
        });
        sum.count += tally.count;
    }
    let most_first = |of: BTreeMap<_, Tally>| {
        let mut tallies: Vec<Tally> = of.into_values().collect();
        tallies.sort_by_key(|tally| std::cmp::Reverse(tally.count));
        tallies
    };
    (most_first(own), most_first(theirs))
}

fn sum(tallies: &[Tally]) -> usize {
    tallies.iter().map(|tally| tally.count).sum()
}

/// Whether a request is neither for a lease nor a heartbeat.
fn is_work(tally: &Tally) -> bool {
    tally.resource != "leases" && !tally.resource.starts_with('/')
}

fn is_copy(tally: &Tally) -> bool {
    tally.verb == "create" && tally.resource == "workloads"
}

fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(cluster: &str, agent: &str, verb: &str, resource: &str, count: usize) -> Tally {
        Tally {
            cluster: cluster.to_owned(),
            agent: agent.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            count,
            per_job: 0.0,
        }
    }

    #[test]
    fn workers_are_counted_together_and_only_what_the_manager_asks() {
        let found = split(vec![
            tally("worker-1", AGENT, "create", "workloads", 3),
            tally("worker-2", AGENT, "create", "workloads", 4),
            tally("worker-2", AGENT, "patch", "leases", 40),
            tally("worker-2", "roadstead-worker", "patch", "leases", 50),
            tally(MANAGER, AGENT, "patch", "workloads/status", 9),
        ]);
        let (own, theirs) = found;
        assert_eq!((sum(&own), sum(&theirs)), (9, 47));
        let work: Vec<&Tally> = theirs.iter().filter(|tally| is_work(tally)).collect();
        assert_eq!((work.len(), work[0].count, is_copy(work[0])), (1, 7, true));
    }

    fn report(workers: u16, rss_mb_idle: f64, open_files: usize) -> Report {
        Report {
            workers,
            configs: 1,
            registered_s: 0.0,
            rss_mb_idle,
            open_files,
            threads: 0,
            idle_cpu_s_per_min: f64::from(workers) / 100.0,
            idle_worker_requests_per_min: f64::from(workers) * 12.0,
            idle_own_requests_per_min: 0.0,
            jobs: 1,
            jobs_per_s: 0.0,
            cpu_ms_per_job: 0.0,
            copies_per_job: 0.0,
            worker_requests_per_job: 0.0,
            own_requests_per_job: 0.0,
            rss_mb_held: 0.0,
            rss_kb_per_job: 0.0,
            restart: Restart {
                ready_s: 0.0,
                dispatch_s: 0.0,
                cpu_s: 0.0,
                worker_requests: 0,
                own_requests: 0,
                rss_mb_peak: 0.0,
                rss_mb_settled: 0.0,
            },
            requests: Vec::new(),
            seconds: 0.0,
        }
    }

    #[test]
    fn one_more_worker_costs_the_difference_of_the_ends() {
        let found = Found::of(vec![report(100, 60.0, 2100), report(20, 40.0, 500)]);
        let slope = Slope {
            rss_kb_idle: 256.0,
            open_files: 20.0,
            idle_cpu_ms_per_min: 10.0,
            idle_requests_per_min: 12.0,
        };
        assert_eq!(found.each_worker, Some(slope));
        assert_eq!(Found::of(vec![report(20, 40.0, 500)]).each_worker, None);
    }
}
