//! Many `AppWrappers` of three children each on one cluster, run by our controller or by the reference's operator.
//!
//! All are submitted at once and run together. Then, each minute, one in a hundred loses a pod and is tried again. Finally all pods
//! succeed. They name no queue, so nothing waits for quota and only their controller is measured. Each wraps a Service and two pods, which
//! kwok plays; the harness fails and ends the pods.
//!
//! *Limits*: beside the operator our worker runs too, with its own controller off: it defaults and validates `AppWrappers`, which the
//! operator's webhooks would do. Requests, CPU and memory are those of the controller's process, so ours include the webhooks. The operator
//! sends 20 requests a second at most and cannot be configured otherwise: it needs about a second for the start of one `AppWrapper`.
//!
//! *Source*: `e2e/docs/performance.md`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use roadstead_api::appwrapper::v1beta2::AppWrapper;
use roadstead_api::rights;
use serde::Serialize;
use serde_json::{Value, from_value, json};
use tokio::time::{interval, sleep, timeout_at};

use super::federation::megabytes;
use super::requests::{self, Counted, Tally, per_one};
use super::rounded;
use crate::options::{BATCH_CONTROLLERS, RUN_SECONDS};
use crate::plane::HARNESS_USER_AGENT;
use crate::stage::{Controller, Memory, Runs, SYSTEM_NAMESPACE, Solo, apply};
use crate::{Node, Options, Progress};

const CLUSTER: &str = "worker";
const NAMESPACE: &str = "perf";
/// Pods that fit on the node. Why twice as many as there are: a pod that finds no room waits until the scheduler tries it again, which
/// may take minutes.
const PODS: &str = "20k";
/// How long its pods would run if the harness did not end them.
const RUN: Duration = Duration::from_hours(24);
/// One `AppWrapper` in so many fails each minute.
const FAILS_EVERY: u32 = 100;
/// Requests of the harness in flight at once.
const CONCURRENCY: usize = 32;
/// Wait after the start and after the end until the process is idle.
const REST: Duration = Duration::from_secs(2);
/// Longest time without progress. The operator looks at running pods once a minute.
const PATIENCE: Duration = Duration::from_mins(3);
const MINUTE: Duration = Duration::from_mins(1);
const TUNING: &str = "workload.codeflare.dev.appwrapper";
/// Children of each.
const CHILDREN: usize = 3;
/// Suspended, Resuming, Running, Succeeded.
const PHASES: usize = 4;
/// Resetting, Resuming, Running.
const PHASES_OF_A_RETRY: usize = 3;

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Exit with code 1 if a figure of ours misses its limit, with a line for each on standard error; needs a machine that does nothing else
    #[arg(long)]
    pub check: bool,
    /// `AppWrappers` in all; several numbers are measured one after the other
    #[arg(long, default_value = "500", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub wrappers: Vec<u32>,
    /// Minutes in each of which one in a hundred loses a pod
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=30))]
    pub minutes: u32,
    /// The controllers that are measured, one after the other; the reference's operator is built from its published module
    #[arg(long, default_value = "ours", value_delimiter = ',')]
    pub controllers: Vec<Runner>,
}

/// The controller that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Runner {
    /// Our controller.
    Ours,
    /// The reference's operator.
    Reference,
}

impl Runner {
    /// The user agent.
    pub(super) const fn agent(self) -> &'static str {
        match self {
            Self::Ours => "roadstead-worker",
            Self::Reference => "appwrapper-operator",
        }
    }
}

/// The figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The user agent of the controller.
    pub controller: &'static str,
    /// `AppWrappers` in all.
    pub wrappers: u32,
    /// From the first creation until the pods of all run, seconds.
    pub start_s: f64,
    /// While one in a hundred fails each minute; `None` without such a minute.
    pub failing: Option<Failing>,
    /// From the first ended pod until all `AppWrappers` have succeeded, seconds.
    pub end_s: f64,
    /// CPU time of the controller's process, seconds.
    pub cpu_s: f64,
    /// The same for each change of the phase of an `AppWrapper`, milliseconds.
    pub cpu_ms_per_change: f64,
    /// Peak resident memory of that process, megabytes.
    pub rss_mb_peak: f64,
    /// Changes of the phases of all `AppWrappers`.
    pub phase_changes: usize,
    /// Writes of the controller to an `AppWrapper` and its status, for each of these changes.
    pub writes_per_change: f64,
    /// Creations for each child, of which each attempt has its own.
    pub creations_per_child: f64,
    /// All its requests per `AppWrapper`, watches not counted.
    pub requests_per_wrapper: f64,
    /// Requests that were refused or failed (status 400 and above), per `AppWrapper`.
    pub failed_requests_per_wrapper: f64,
    /// How often an `AppWrapper` was tried again.
    pub retries: usize,
    /// Requests by user agent, verb and resource.
    pub requests: Vec<Tally>,
}

/// The figures of the minutes in which `AppWrappers` fail.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Failing {
    /// `AppWrappers` that lost a pod.
    pub failures: usize,
    /// From the first failure until the pods of all run again, seconds.
    pub seconds: f64,
    /// CPU time of the controller's process in that time, seconds.
    pub cpu_s: f64,
    /// Requests of the controller for each failure.
    pub requests_per_failure: f64,
}

/// Measures one controller after the other with one number of `AppWrappers` after the other.
///
/// *Errors*: a program is missing, or `AppWrappers` do not run or end.
pub async fn measure(sizes: &Sizes) -> anyhow::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for &runner in &sizes.controllers {
        for &wrappers in &sizes.wrappers {
            reports.push(Box::pin(measure_one(runner, wrappers, sizes.minutes)).await?);
        }
    }
    Ok(reports)
}

async fn measure_one(runner: Runner, wrappers: u32, minutes: u32) -> anyhow::Result<Report> {
    let progress = Progress::stderr();
    let (mut solo, subject) = start(runner, &progress).await?;
    let client = solo.client()?;
    let log = solo.plane().audit_log().context("the plane keeps no audit log")?;
    let objects: Api<AppWrapper> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let count = usize::try_from(wrappers)?;
    let mut crowd = Crowd::watch(objects.clone());

    progress.step(&format!("{wrappers} AppWrappers at once"));
    let (mark, cpu, started) = (requests::mark(&log)?, subject.cpu(&mut solo)?, Instant::now());
    let running = crowd.until(count, "run", |one| one.ready);
    tokio::try_join!(submit(&objects, wrappers), running)?;
    let start_s = rounded(started.elapsed().as_secs_f64());

    let failing = if minutes > 0 {
        progress.step(&format!("{minutes} minutes in which one in a hundred fails"));
        let (mark, cpu, started) = (requests::mark(&log)?, subject.cpu(&mut solo)?, Instant::now());
        let chosen = to_fail(wrappers, minutes);
        let was_retried = |one: &Seen| one.ready && one.retries > 0;
        let again = crowd.until(chosen.len(), "were tried again", was_retried);
        if let Err(error) = tokio::try_join!(fail(&pods, &chosen, minutes), again) {
            let unretried = crowd.unlike(chosen.iter().map(|number| name(*number)), was_retried);
            return Err(error.context(stuck(&objects, &pods, &unretried).await?));
        }
        let counted = Counted::of_agents(runner.agent(), &log, mark, HARNESS_USER_AGENT)?;
        Some(Failing {
            failures: chosen.len(),
            seconds: rounded(started.elapsed().as_secs_f64()),
            cpu_s: rounded(subject.cpu(&mut solo)?.saturating_sub(cpu).as_secs_f64()),
            requests_per_failure: per_one(counted.writes + counted.reads, u32::try_from(chosen.len())?),
        })
    } else {
        None
    };

    progress.step("the pods end");
    let ending = Instant::now();
    let succeeded = crowd.until(count, "succeeded", |one| one.succeeded);
    tokio::try_join!(end(&pods), succeeded)?;
    let end_s = rounded(ending.elapsed().as_secs_f64());
    let cpu = subject.cpu(&mut solo)?.saturating_sub(cpu);
    sleep(REST).await;
    let peak = subject.memory(&mut solo)?.peak_kb;
    let counted = Counted::of_agents(runner.agent(), &log, mark, HARNESS_USER_AGENT)?;
    let retries = crowd.retries();
    let changes = count * PHASES + retries * PHASES_OF_A_RETRY;
    let children = (count + retries) * CHILDREN;
    let each = |count| per_one(count, wrappers);
    Ok(Report {
        controller: runner.agent(),
        wrappers,
        start_s,
        failing,
        end_s,
        cpu_s: rounded(cpu.as_secs_f64()),
        cpu_ms_per_change: rounded(cpu.as_secs_f64() * 1000.0 / f64::from(u32::try_from(changes)?)),
        rss_mb_peak: megabytes(peak),
        phase_changes: changes,
        writes_per_change: per_one(counted.writes_to("appwrappers"), u32::try_from(changes)?),
        creations_per_child: per_one(
            counted.writes_by("create", &["pods", "services"]),
            u32::try_from(children)?,
        ),
        requests_per_wrapper: each(counted.writes + counted.reads),
        failed_requests_per_wrapper: each(counted.failed),
        retries,
        requests: counted.tallies(CLUSTER, wrappers),
    })
}

/// Starts a cluster with a worker, and the process that is measured.
async fn start(runner: Runner, progress: &Progress) -> anyhow::Result<(Solo, Subject)> {
    let node = Node::new("node", "10k", "10Ti").with_resource("pods", PODS);
    let mut options = Options::complete(CLUSTER).with_audit().with_node(node);
    options.controllers = BATCH_CONTROLLERS.iter().map(|name| (*name).to_owned()).collect();
    let frameworks = ["batch/job", "workload.codeflare.dev/appwrapper"];
    let configuration = json!({"integrations": {"frameworks": frameworks}});
    let args: &[&str] = match runner {
        Runner::Ours => &[],
        Runner::Reference => &["--controllers=*,-appwrapper"],
    };
    let solo = Solo::start_with(options, &configuration, args, progress.clone()).await?;
    let client = solo.client()?;
    for object in rights::appwrapper(SYSTEM_NAMESPACE) {
        apply(&client, object).await?;
    }
    apply(
        &client,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    )
    .await?;
    let subject = match runner {
        Runner::Ours => Subject::Ours,
        Runner::Reference => {
            let started = Controller::start(Runs::AppWrappers, solo.plane(), progress).await?;
            Subject::Theirs(Box::new(started))
        }
    };
    sleep(REST).await;
    Ok((solo, subject))
}

/// The process that is measured.
enum Subject {
    Ours,
    Theirs(Box<Controller>),
}

impl Subject {
    fn cpu(&self, solo: &mut Solo) -> anyhow::Result<Duration> {
        Ok(match self {
            Self::Ours => solo.cpu()?,
            Self::Theirs(controller) => controller.cpu()?,
        })
    }

    fn memory(&self, solo: &mut Solo) -> anyhow::Result<Memory> {
        Ok(match self {
            Self::Ours => solo.memory()?,
            Self::Theirs(controller) => controller.memory()?,
        })
    }
}

fn name(number: u32) -> String {
    format!("aw-{number:05}")
}

fn object(number: u32) -> Value {
    let name = name(number);
    let pod = |suffix: &str| {
        json!({"template": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{suffix}"),
                "annotations": {RUN_SECONDS: RUN.as_secs().to_string()},
            },
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}},
            ]},
        }})
    };
    let service = json!({"template": {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 80}]},
    }});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {
            // Why so long: the scheduler places thousands of pods, and the operator makes a few in a second.
            format!("{TUNING}/admissionGracePeriodDuration"): "12h",
            format!("{TUNING}/warmupGracePeriodDuration"): "12h",
            format!("{TUNING}/failureGracePeriodDuration"): "0s",
            format!("{TUNING}/retryPausePeriodDuration"): "1s",
        }},
        "spec": {"components": [service, pod("first"), pod("second")]},
    })
}

async fn submit(wrappers: &Api<AppWrapper>, count: u32) -> anyhow::Result<()> {
    stream::iter(0..count)
        .map(|number| async move {
            let wrapper: AppWrapper = from_value(object(number))?;
            let created = wrappers.create(&PostParams::default(), &wrapper).await;
            created.map(drop).context("submitting an AppWrapper")
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

/// The `AppWrappers` that lose a pod: others in each minute.
fn to_fail(wrappers: u32, minutes: u32) -> Vec<u32> {
    let in_minute = |minute| (0..wrappers).filter(move |number| number % FAILS_EVERY == minute);
    (0..minutes).flat_map(in_minute).collect()
}

/// Fails the second pod of each, evenly over the minutes.
async fn fail(pods: &Api<Pod>, chosen: &[u32], minutes: u32) -> anyhow::Result<()> {
    let mut ticks = interval(MINUTE * minutes / u32::try_from(chosen.len())?.max(1));
    for number in chosen {
        ticks.tick().await;
        end_pod(pods, &format!("{}-second", name(*number)), 1).await?;
    }
    Ok(())
}

/// What there is of the first of these `AppWrappers`.
async fn stuck(objects: &Api<AppWrapper>, pods: &Api<Pod>, names: &[String]) -> anyhow::Result<String> {
    let Some(first) = names.first() else {
        return Ok("all are as they must be by now".to_owned());
    };
    let status = objects.get(first).await?.status.unwrap_or_default();
    let own = ListParams::default().labels(&format!("workload.codeflare.dev/appwrapper={first}"));
    let pods = pods.list(&own).await?.items;
    let pods = { pods.iter() }.map(|pod| json!({"name": pod.name_any(), "deleted": pod.metadata.deletion_timestamp, "status": pod.status}));
    Ok(format!(
        "{names:?}; of {first} there is {}",
        json!({"status": status, "pods": pods.collect::<Vec<_>>()})
    ))
}

/// Lets all pods succeed.
async fn end(pods: &Api<Pod>) -> anyhow::Result<()> {
    let running = pods.list_metadata(&ListParams::default()).await?.items;
    stream::iter(running)
        .map(|pod| async move { end_pod(pods, &pod.name_any(), 0).await })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

/// Ends a pod with this exit code, as a kubelet does.
async fn end_pod(pods: &Api<Pod>, name: &str, exit_code: u8) -> anyhow::Result<()> {
    let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
    let terminated = json!({"exitCode": exit_code, "reason": "Ended"});
    let container = json!({
        "name": "main", "image": "none", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated},
    });
    let patch = Patch::Merge(json!({"status": {"phase": phase, "containerStatuses": [container]}}));
    let ended = pods.patch_status(name, &PatchParams::default(), &patch).await;
    ended.map(drop).with_context(|| format!("ending pod {name}"))
}

/// All `AppWrappers`, as a watch shows them.
struct Crowd {
    events: BoxStream<'static, watcher::Result<Event<AppWrapper>>>,
    seen: BTreeMap<String, Seen>,
}

/// What the measurement waits for.
#[derive(Clone, Copy, Default)]
struct Seen {
    ready: bool,
    retries: i32,
    succeeded: bool,
}

impl Seen {
    fn of(wrapper: &AppWrapper) -> Self {
        let Some(status) = &wrapper.status else {
            return Self::default();
        };
        let mut conditions = status.conditions.iter();
        let ready = conditions.any(|one| one.type_ == "PodsReady" && one.status == "True");
        Self {
            ready: ready && status.phase == "Running",
            retries: status.resetting_count,
            succeeded: status.phase == "Succeeded",
        }
    }
}

impl Crowd {
    fn watch(wrappers: Api<AppWrapper>) -> Self {
        let events = watcher(wrappers, watcher::Config::default());
        Self {
            events: events.default_backoff().boxed(),
            seen: BTreeMap::new(),
        }
    }

    /// Waits until so many are as wished.
    async fn until(
        &mut self,
        count: usize,
        what: &str,
        wished: impl Fn(&Seen) -> bool,
    ) -> anyhow::Result<()> {
        let mut now = self.seen.values().filter(|seen| wished(seen)).count();
        let (mut most, mut last) = (now, tokio::time::Instant::now());
        while now < count {
            match timeout_at(last + PATIENCE, self.events.next()).await {
                Ok(Some(Ok(Event::Apply(one) | Event::InitApply(one)))) => {
                    let seen = Seen::of(&one);
                    let before = self.seen.insert(one.name_any(), seen);
                    now += usize::from(wished(&seen));
                    now -= usize::from(before.is_some_and(|before| wished(&before)));
                    if now > most {
                        (most, last) = (now, tokio::time::Instant::now());
                    }
                }
                Ok(Some(Ok(Event::Delete(_) | Event::Init | Event::InitDone) | Err(_))) => {}
                Ok(None) => bail!("the watch of AppWrappers ended"),
                Err(_elapsed) => bail!("of {count} AppWrappers only {most} {what}"),
            }
        }
        Ok(())
    }

    /// Those of these names that are not as wished.
    fn unlike(&self, names: impl Iterator<Item = String>, wished: impl Fn(&Seen) -> bool) -> Vec<String> {
        names
            .filter(|name| !self.seen.get(name).is_some_and(&wished))
            .collect()
    }

    fn retries(&self) -> usize {
        let retries = { self.seen.values() }.filter_map(|seen| usize::try_from(seen.retries).ok());
        retries.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_another_hundredth_fails() {
        assert_eq!(to_fail(250, 2), [0, 100, 200, 1, 101, 201]);
        assert_eq!(to_fail(20, 3), [0, 1, 2], "one at least");
        assert_eq!(to_fail(5_000, 1).len(), 50);
    }
}
