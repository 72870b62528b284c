//! The run: idle samples, a burst, memory, requests, then the bare client.

use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::labels::{MULTIKUEUE_ORIGIN, QUEUE_NAME};
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bare::{Bare, Content, ended_status};
use super::eyes::{Eyes, Mark};
use super::requests::{self, Counted, Tally, per_one};
use super::{Report, Restart, Sizes, cpu_of, millis, rounded};
use crate::plane::{APISERVER, HARNESS_USER_AGENT};
use crate::stage::{Queue, Spec, Stage, Worker};
use crate::{ControlPlane, Options, Progress};

pub(super) const MANAGER: &str = "manager";
pub(super) const NAMESPACE: &str = "perf";
const QUEUE: &str = "main";
/// CPUs of each cluster: room for all jobs, because dispatch is measured, not the wait for quota.
pub(super) const ROOMY: &str = "100k";

/// Requests in flight at once.
const CONCURRENCY: usize = 32;
/// Pause between two idle samples, so that one does not disturb the other.
const PAUSE: Duration = Duration::from_millis(100);
/// Samples at the start that are not counted.
const WARM_UP: u16 = 5;
/// Wait after the start, and after the last job, until the processes are idle.
const REST: Duration = Duration::from_secs(2);
/// Wait after a restart until all its work is done.
const SETTLED: Duration = Duration::from_secs(20);
/// How long one sample may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a burst, or the clean-up after it, may take: a base, and more for each job.
const BURST_PATIENCE: (Duration, Duration) = (Duration::from_mins(3), Duration::from_millis(500));
const POLL: Duration = Duration::from_millis(250);

fn patience(jobs: usize) -> Duration {
    let (least, each) = BURST_PATIENCE;
    least + each * u32::try_from(jobs).unwrap_or(u32::MAX)
}

/// State that the phases share.
pub(super) struct Bench {
    pub(super) stage: Stage,
    pub(super) manager: Client,
    /// Their names, in the order of `workers`.
    pub(super) names: Vec<String>,
    pub(super) workers: Vec<Client>,
    /// LocalQueues that jobs are submitted to in turn, by the number at the end of their names.
    queues: Vec<String>,
    pub(super) eyes: Eyes,
    pub(super) progress: Progress,
}

pub(super) async fn measure(sizes: &Sizes, workers: u16) -> anyhow::Result<Report> {
    let (samples, burst) = (sizes.samples, sizes.burst);
    let held = sizes.held.max(burst);
    let started = Instant::now();
    let mut bench = Bench::set_up(workers, ROOMY, ROOMY).await?;
    sleep(REST).await;
    let idle = bench.stage.memory(MANAGER)?;

    bench
        .progress
        .step(&format!("{samples} jobs, one after the other"));
    let Idle {
        admitted,
        latency,
        mirror,
        content,
    } = bench.idle(samples).await?;

    bench.progress.step(&format!("{burst} jobs at once"));
    bench.swept(0).await?;
    let marks = bench.marks()?;
    let mut cpu = bench.stage.cpu(MANAGER)?;
    let served = bench.apiserver_cpu()?;
    let took = bench.burst("burst", burst).await?;
    let jobs_per_s = f64::from(burst) / took.as_secs_f64();
    bench.progress.step(&format!(
        "{jobs_per_s:.1} jobs/s; now {held} at once for the memory"
    ));
    if held > burst {
        bench.burst("held", held - burst).await?;
    }
    sleep(REST).await;
    let full = bench.stage.memory(MANAGER)?;
    let worker_rss_mb = bench.worker_memory()?;

    let (mut restart, mut earlier) = (None, Duration::ZERO);
    if sizes.restart {
        bench.progress.step("the manager is killed and started again");
        // Why: a new process starts with a CPU time of zero.
        earlier = bench.stage.cpu(MANAGER)?.saturating_sub(mem::take(&mut cpu));
        restart = Some(bench.restart().await?);
    }

    let sent_again = bench.sent_again().await?.len();
    bench.progress.step("ending all of them");
    bench.end_all(burst, held).await?;
    bench.swept(held).await?;
    let counted = bench.counted(marks)?;
    let cpu = earlier + bench.stage.cpu(MANAGER)?.saturating_sub(cpu);
    let served = bench.apiserver_cpu()?.saturating_sub(served);
    let sent = bench
        .eyes
        .between(Mark::Placed, Mark::Sent, &names("burst", 0..burst));
    let requests = bench.tallies(&counted, held.into());

    bench.progress.step("the bare client");
    let bare = bench.bare(content, samples, burst).await?;
    let seconds = started.elapsed().as_secs_f64();

    let latency_ms_p50 = millis(&latency, 50);
    let mirror_ms_p50 = millis(&mirror, 50);
    let writes = |clusters: &[Counted]| clusters.iter().map(|each| each.writes).sum::<usize>();
    let reads = |clusters: &[Counted]| clusters.iter().map(|each| each.reads).sum::<usize>();
    let (manager, others) = counted.split_at(1);
    let failed = counted.iter().map(|each| each.failed).sum();
    Ok(Report {
        workers,
        latency_ratio_p50: rounded(latency_ms_p50 / bare.series_ms),
        admitted_ms_p50: millis(&admitted, 50),
        admitted_ratio_p50: rounded(millis(&admitted, 50) / bare.series_ms),
        latency_ms_p50,
        latency_ms_p99: millis(&latency, 99),
        bare_latency_ms_p50: bare.series_ms,
        bare_critical_ms_p50: bare.critical_ms,
        mirror_ratio_p50: rounded(mirror_ms_p50 / bare.status_ms),
        mirror_ms_p50,
        mirror_ms_p99: millis(&mirror, 99),
        bare_status_ms_p50: bare.status_ms,
        throughput_ratio: rounded(jobs_per_s / bare.jobs_per_s),
        jobs_per_s: rounded(jobs_per_s),
        bare_jobs_per_s: rounded(bare.jobs_per_s),
        manager_writes_per_job: per_one(writes(manager), held.into()),
        manager_reads_per_job: per_one(reads(manager), held.into()),
        worker_writes_per_job: per_one(writes(others), held.into()),
        worker_reads_per_job: per_one(reads(others), held.into()),
        requests_per_job: per_one(writes(&counted) + reads(&counted), held.into()),
        job_requests_per_job: per_one(counted.iter().map(Counted::on_jobs).sum(), held.into()),
        failed_requests_per_job: per_one(failed, held.into()),
        jobs_sent_again: sent_again,
        placed_to_job_ms_p99: millis(&sent, 99),
        manager_cpu_ms_per_job: rounded(cpu.as_secs_f64() * 1000.0 / f64::from(held)),
        manager_cpu_ratio: rounded(cpu.div_duration_f64(served)),
        manager_rss_mb_idle: megabytes(idle.resident_kb),
        manager_rss_mb_1000: megabytes(full.resident_kb),
        worker_rss_mb_1000: worker_rss_mb,
        jobs_held: held,
        restart,
        jobs_burst: burst,
        concurrency: CONCURRENCY,
        jobs_counted: held,
        requests,
        seconds: rounded(seconds),
    })
}

/// Durations of single jobs, and the objects of one of them.
struct Idle {
    /// From submission until the winner's queue had admitted the job.
    admitted: Vec<Duration>,
    /// From submission until the job might run there.
    latency: Vec<Duration>,
    /// From the job's end there until the manager showed it.
    mirror: Vec<Duration>,
    content: Content,
}

/// Durations of the bare client.
struct BareFigures {
    series_ms: f64,
    critical_ms: f64,
    status_ms: f64,
    jobs_per_s: f64,
}

impl Bench {
    /// Starts a manager and `workers` workers, with the quota of the manager and of each worker in CPUs.
    pub(super) async fn set_up(workers: u16, of_manager: &str, of_each: &str) -> anyhow::Result<Self> {
        let progress = Progress::stderr();
        let bare = |name: &str| Options::bare(name).with_audit();
        let worker = |name: &str| Worker {
            answers_capacity: false,
            ..Worker::new(bare(name))
        };
        let quota = |queue: Queue, cluster: &str, cpus: &str| {
            queue.with_quota(cluster, &[("cpu", cpus), ("memory", "100Ti")])
        };
        let names: Vec<String> = (1..=workers).map(|number| format!("worker-{number}")).collect();
        let queue = { names.iter() }.fold(quota(Queue::new(QUEUE), MANAGER, of_manager), |queue, worker| {
            quota(queue, worker, of_each)
        });
        let spec = Spec::new(bare(MANAGER), names.iter().map(|name| worker(name)).collect())
            .with_namespace(NAMESPACE)
            .with_queue(queue);
        let stage = Stage::start(spec, progress.clone()).await?;
        Self::on(stage, names, vec![QUEUE.to_owned()], progress)
    }

    /// Uses a stage with these workers. Jobs go to these queues in turn.
    pub(super) fn on(
        stage: Stage,
        names: Vec<String>,
        queues: Vec<String>,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        let manager = stage.client(MANAGER)?;
        let workers = names
            .iter()
            .map(|name| stage.client(name))
            .collect::<Result<Vec<_>, _>>()?;
        let eyes = Eyes::open(manager.clone(), workers.clone());
        Ok(Self {
            stage,
            manager,
            names,
            workers,
            queues,
            eyes,
            progress,
        })
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = &str> {
        std::iter::once(MANAGER).chain(self.names.iter().map(String::as_str))
    }

    pub(super) fn planes(&self) -> impl Iterator<Item = &ControlPlane> {
        let planes = self.stage.planes();
        std::iter::once(&planes.manager).chain(&planes.workers)
    }

    async fn idle(&mut self, samples: u16) -> anyhow::Result<Idle> {
        let (mut admitted, mut latency, mut mirror) = (Vec::new(), Vec::new(), Vec::new());
        let mut content = None;
        let mut admissions = Eyes::of_admissions(self.workers.clone());
        for sample in 0..WARM_UP + samples {
            let name = format!("idle-{sample}");
            let begun = Instant::now();
            self.create(&name).await?;
            let (at, worker) = self.eyes.see(Mark::Started, &name, PATIENCE).await?;
            let dispatched = at.duration_since(begun);
            let (at, _) = admissions.see(Mark::Admitted, &name, PATIENCE).await?;
            let until_admitted = at.duration_since(begun);
            sleep(PAUSE).await;
            if sample == 0 {
                let read = Content::read(&self.manager, &self.workers[worker], NAMESPACE, job());
                content = Some(read.await?);
            }
            self.end(&name, worker).await?;
            let ended = Instant::now();
            let (at, _) = self.eyes.see(Mark::Finished, &name, PATIENCE).await?;
            if sample >= WARM_UP {
                admitted.push(until_admitted);
                latency.push(dispatched);
                // Why saturating: the manager may see the end before the harness does.
                mirror.push(at.saturating_duration_since(ended));
            }
            sleep(PAUSE).await;
        }
        let content = content.context("no sample")?;
        Ok(Idle {
            admitted,
            latency,
            mirror,
            content,
        })
    }

    /// Submits `count` jobs at once. Returns the time until the last one may run.
    pub(super) async fn burst(&mut self, prefix: &str, count: u16) -> anyhow::Result<Duration> {
        let names = names(prefix, 0..count);
        let begun = Instant::now();
        self.submit(&names).await?;
        let last = self
            .eyes
            .see_all(Mark::Started, &names, patience(names.len()))
            .await?;
        Ok(last.duration_since(begun))
    }

    /// Kills the manager and starts it again, and waits until it has placed one more job, which is then ended.
    pub(super) async fn restart(&mut self) -> anyhow::Result<Restart> {
        const NAME: &str = "after-restart";
        let (marks, begun) = (self.marks()?, Instant::now());
        self.stage.restart(MANAGER).await?;
        let ready = begun.elapsed();
        self.create(NAME).await?;
        let (at, worker) = self.eyes.see(Mark::Started, NAME, PATIENCE).await?;
        let dispatched = at.duration_since(begun);
        sleep(SETTLED).await;
        let counted = self.counted(marks)?;
        let rss_mb = megabytes(self.stage.memory(MANAGER)?.peak_kb);
        self.end(NAME, worker).await?;
        self.eyes.see(Mark::Finished, NAME, PATIENCE).await?;
        Ok(Restart {
            ready_ms: millis(&[ready], 50),
            dispatch_ms: millis(&[dispatched], 50),
            writes: counted.iter().map(|each| each.writes).sum(),
            reads: counted.iter().map(|each| each.reads).sum(),
            rss_mb,
            requests: self.tallies(&counted, 1),
        })
    }

    /// Names of the Workloads that were sent more than once, and the number of their last run.
    pub(super) async fn sent_again(&self) -> anyhow::Result<BTreeSet<(String, String)>> {
        let api: Api<Workload> = Api::namespaced(self.manager.clone(), NAMESPACE);
        let all = api.list_metadata(&ListParams::default()).await?;
        let again = |workload: &PartialObjectMeta<Workload>| {
            let number = workload.annotations().get(DISPATCH_EPOCH)?;
            Some((workload.name_any(), number.clone()))
        };
        Ok(all.items.iter().filter_map(again).collect())
    }

    /// Ends all jobs of the bursts as the Job controller would, and waits until the manager shows every end.
    async fn end_all(&mut self, burst: u16, held: u16) -> anyhow::Result<()> {
        let names = [names("burst", 0..burst), names("held", 0..held - burst)].concat();
        let mut places = Vec::new();
        for name in &names {
            places.push((name, self.eyes.see(Mark::Started, name, PATIENCE).await?.1));
        }
        let end = stream::iter(places).map(|(name, worker)| self.end(name, worker));
        end.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        self.eyes
            .see_all(Mark::Finished, &names, patience(names.len()))
            .await?;
        Ok(())
    }

    /// Resident memory of the largest worker process, megabytes.
    fn worker_memory(&self) -> anyhow::Result<f64> {
        let each = self.names.iter().map(|worker| self.stage.memory(worker));
        each.map(|memory| Ok(megabytes(memory?.resident_kb)))
            .try_fold(0.0, |most, memory: anyhow::Result<f64>| Ok(memory?.max(most)))
    }

    /// CPU time that the API server of the manager's cluster has used so far.
    fn apiserver_cpu(&self) -> anyhow::Result<Duration> {
        let processes = self.stage.planes().manager.process_ids();
        let server = processes.iter().find(|(name, _)| *name == APISERVER);
        let (_, id) = server.context("the manager's cluster has no API server")?;
        cpu_of(&id.to_string())
    }

    /// Waits until no copy is left in the workers and all Workloads of the manager are Finished.
    async fn swept(&self, jobs: u16) -> anyhow::Result<()> {
        let (started, patience) = (Instant::now(), patience(jobs.into()));
        loop {
            let mut left = 0;
            for worker in &self.workers {
                let api: Api<Workload> = Api::namespaced(worker.clone(), NAMESPACE);
                let ours = ListParams::default().labels(MULTIKUEUE_ORIGIN);
                left += api.list_metadata(&ours).await?.items.len();
            }
            let api: Api<Workload> = Api::namespaced(self.manager.clone(), NAMESPACE);
            let local = api.list(&ListParams::default()).await?;
            left += local.iter().filter(|workload| !is_finished(workload)).count();
            if left == 0 {
                sleep(REST).await;
                return Ok(());
            }
            if started.elapsed() > patience {
                bail!("{left} workloads are left after {} s", patience.as_secs());
            }
            sleep(POLL).await;
        }
    }

    pub(super) fn marks(&self) -> anyhow::Result<Vec<requests::Mark>> {
        self.planes()
            .map(|plane| Ok(requests::mark(&log(plane)?)?))
            .collect()
    }

    pub(super) fn counted(&self, marks: Vec<requests::Mark>) -> anyhow::Result<Vec<Counted>> {
        self.planes()
            .zip(marks)
            .map(|(plane, mark)| Ok(Counted::since(&log(plane)?, mark, HARNESS_USER_AGENT)?))
            .collect()
    }

    /// The tallies of all clusters, with counts per job for `jobs` jobs.
    pub(super) fn tallies(&self, counted: &[Counted], jobs: u32) -> Vec<Tally> {
        let tallies = |(name, counted): (&str, &Counted)| counted.tallies(name, jobs);
        self.clusters().zip(counted).flat_map(tallies).collect()
    }

    /// Stops Roadstead's processes and lets the bare client do the same work.
    async fn bare(self, content: Content, samples: u16, burst: u16) -> anyhow::Result<BareFigures> {
        for cluster in self.clusters() {
            self.stage.kill(cluster)?;
        }
        for client in std::iter::once(&self.manager).chain(&self.workers) {
            remove_webhooks(client).await?;
        }
        let bare = Bare::new(&self.manager, &self.workers, content);
        let (mut series, mut critical, mut status) = (Vec::new(), Vec::new(), Vec::new());
        for sample in 0..WARM_UP + samples {
            let name = format!("bare-idle-{sample}");
            let (all, needed) = bare.dispatch(sample.into(), &name).await?;
            sleep(PAUSE).await;
            let ended = bare.finish(&name).await?;
            if sample >= WARM_UP {
                series.push(all);
                critical.push(needed);
                status.push(ended);
            }
            sleep(PAUSE).await;
        }
        let names = names("bare-burst", 0..burst);
        let begun = Instant::now();
        let dispatch = stream::iter(names.iter().enumerate()).map(|(turn, name)| bare.dispatch(turn, name));
        dispatch
            .buffer_unordered(CONCURRENCY)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        Ok(BareFigures {
            series_ms: millis(&series, 50),
            critical_ms: millis(&critical, 50),
            status_ms: millis(&status, 50),
            jobs_per_s: f64::from(burst) / begun.elapsed().as_secs_f64(),
        })
    }

    /// Submits these jobs at once.
    pub(super) async fn submit(&self, names: &[String]) -> anyhow::Result<()> {
        let submit = stream::iter(names)
            .map(|name| self.create(name))
            .buffer_unordered(CONCURRENCY);
        submit.try_collect().await
    }

    pub(super) async fn create(&self, name: &str) -> anyhow::Result<()> {
        let mut object = job();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["labels"][QUEUE_NAME] = json!(queue_of(name, &self.queues));
        let api: Api<Job> = Api::namespaced(self.manager.clone(), NAMESPACE);
        let job = serde_json::from_value(object)?;
        let made = api.create(&PostParams::default(), &job).await;
        made.map(drop).with_context(|| format!("creating job {name}"))
    }

    /// Ends a job as the Job controller would: its one pod has succeeded.
    pub(super) async fn end(&self, name: &str, worker: usize) -> anyhow::Result<()> {
        let api: Api<Job> = Api::namespaced(self.workers[worker].clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"status": ended_status()}));
        let done = api.patch_status(name, &PatchParams::default(), &patch).await;
        done.map(drop).with_context(|| format!("ending job {name}"))
    }
}

pub(super) fn names(prefix: &str, numbers: Range<u16>) -> Vec<String> {
    { numbers }.map(|number| format!("{prefix}-{number}")).collect()
}

/// The queue of a job, by the number at the end of its name; the first queue if there is no number.
fn queue_of<'a>(job: &str, queues: &'a [String]) -> Option<&'a String> {
    let number = job.rsplit('-').next().and_then(|end| end.parse::<usize>().ok());
    queues.get(number.unwrap_or_default() % queues.len().max(1))
}

/// The submitted job, without a name.
fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"labels": {QUEUE_NAME: QUEUE}},
        "spec": {
            "suspend": true,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main",
                    "image": "registry.example/train:1",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                }],
            }},
        },
    })
}

pub(super) async fn remove_webhooks(client: &Client) -> anyhow::Result<()> {
    let (params, all) = (DeleteParams::default(), ListParams::default());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    mutating.delete_collection(&params, &all).await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    validating.delete_collection(&params, &all).await?;
    Ok(())
}

fn is_finished(workload: &Workload) -> bool {
    let conditions = workload.status.iter().flat_map(|status| &status.conditions);
    { conditions }.any(|condition| condition.type_ == "Finished" && condition.status == "True")
}

fn log(plane: &ControlPlane) -> anyhow::Result<std::path::PathBuf> {
    plane
        .audit_log()
        .with_context(|| format!("{} keeps no audit log", plane.name()))
}

pub(super) fn megabytes(kilobytes: u64) -> f64 {
    rounded(u32::try_from(kilobytes).map_or(f64::MAX, f64::from) / 1024.0)
}
