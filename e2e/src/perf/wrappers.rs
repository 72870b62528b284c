//! Many `AppWrappers` of three children each on one cluster, all submitted at once, run by our controller or by the reference's operator.
//!
//! They name no queue, so nothing waits for quota and only their controller is measured. Each wraps a Service and two pods, which
//! kwok plays. One in a hundred has a pod that fails, and is tried again once.
//!
//! *Limits*: beside the operator our worker runs too, with its own controller off: it defaults and validates `AppWrappers`, which the
//! operator's webhooks would do. Requests, CPU and memory are those of the controller's process.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::{ListParams, PostParams};
use roadstead_api::appwrapper::v1beta2::AppWrapper;
use roadstead_api::rights;
use serde::Serialize;
use serde_json::{Value, from_value, json};
use tokio::time::sleep;

use super::requests::{self, Counted, Tally, per_one};
use super::rounded;
use crate::options::{BATCH_CONTROLLERS, EXIT_CODE, RUN_SECONDS};
use crate::plane::HARNESS_USER_AGENT;
use crate::stage::{Controller, Memory, Runs, SYSTEM_NAMESPACE, Solo, apply};
use crate::{Node, Options, Progress};

const CLUSTER: &str = "worker";
const NAMESPACE: &str = "perf";
/// Pods that fit on the node: two for each of the most `AppWrappers`.
const PODS: &str = "10k";
/// How long its pods run.
const RUN: Duration = Duration::from_secs(30);
/// One `AppWrapper` in so many fails.
const FAILS_EVERY: u32 = 100;
/// Requests of the submitter in flight at once.
const CONCURRENCY: usize = 32;
/// Wait after the start and after the end until the process is idle.
const REST: Duration = Duration::from_secs(2);
/// Longest time without another end.
const PATIENCE: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_secs(1);
const TUNING: &str = "workload.codeflare.dev.appwrapper";

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Print one JSON object on standard output; progress goes to standard error
    #[arg(long)]
    pub json: bool,
    /// `AppWrappers` in all
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub wrappers: u32,
    /// Measure the reference's operator, built from its published module, instead of our controller
    #[arg(long)]
    pub reference: bool,
}

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The user agent of the controller.
    pub controller: &'static str,
    /// From the first creation until the last has ended, seconds; the pods run for 30 of them.
    pub total_s: f64,
    /// CPU time of the controller's process meanwhile, seconds.
    pub cpu_s: f64,
    /// Peak resident memory of that process, megabytes.
    pub rss_mb_peak: f64,
    /// Its writes to an `AppWrapper` and its status, until the end; without failures there are four changes of the phase.
    pub writes_to_one: f64,
    /// Children that it created, per `AppWrapper`.
    pub children_created: f64,
    /// All its requests per `AppWrapper`, watches not counted.
    pub requests_per_wrapper: f64,
    /// Requests that were refused or failed (status 400 and above), per `AppWrapper`.
    pub failed_requests_per_wrapper: f64,
    /// `AppWrappers` that succeeded.
    pub succeeded: usize,
    /// `AppWrappers` that failed after a retry.
    pub failed: usize,
    /// Requests by user agent, verb and resource.
    pub requests: Vec<Tally>,
}

/// Measures one of the two controllers.
///
/// *Errors*: a program is missing, or `AppWrappers` do not end.
pub async fn measure(sizes: &Sizes) -> anyhow::Result<Report> {
    let progress = Progress::stderr();
    let node = Node::new("node", "10k", "10Ti").with_resource("pods", PODS);
    let mut options = Options::complete(CLUSTER).with_audit().with_node(node);
    options.controllers = BATCH_CONTROLLERS.iter().map(|name| (*name).to_owned()).collect();
    let frameworks = ["batch/job", "workload.codeflare.dev/appwrapper"];
    let configuration = json!({"integrations": {"frameworks": frameworks}});
    let args: &[&str] = if sizes.reference {
        &["--controllers=*,-appwrapper"]
    } else {
        &[]
    };
    let mut solo = Solo::start_with(options, &configuration, args, progress.clone()).await?;
    let client = solo.client()?;
    for object in rights::appwrapper(SYSTEM_NAMESPACE) {
        apply(&client, object).await?;
    }
    apply(
        &client,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    )
    .await?;
    let subject = if sizes.reference {
        let started = Controller::start(Runs::AppWrappers, solo.plane(), &progress).await?;
        Subject::Theirs(Box::new(started))
    } else {
        Subject::Ours
    };
    sleep(REST).await;
    let log = solo.plane().audit_log().context("the plane keeps no audit log")?;

    progress.step(&format!("{} AppWrappers at once", sizes.wrappers));
    let (mark, cpu, started) = (requests::mark(&log)?, subject.cpu(&mut solo)?, Instant::now());
    let wrappers: Api<AppWrapper> = Api::namespaced(client, NAMESPACE);
    submit(&wrappers, sizes.wrappers).await?;
    let ended = all_ended(&wrappers, sizes.wrappers).await?;
    let (took, cpu) = (started.elapsed(), subject.cpu(&mut solo)?.saturating_sub(cpu));
    sleep(REST).await;
    let peak = subject.memory(&mut solo)?.peak_kb;
    let agent = subject.agent();
    let counted = Counted::of_agents(agent, &log, mark, HARNESS_USER_AGENT)?;
    let each = |count| per_one(count, sizes.wrappers);
    Ok(Report {
        controller: agent,
        total_s: rounded(took.as_secs_f64()),
        cpu_s: rounded(cpu.as_secs_f64()),
        rss_mb_peak: rounded(f64::from(u32::try_from(peak)?) / 1024.0),
        writes_to_one: each(counted.writes_to("appwrappers")),
        children_created: each(counted.writes_by("create", &["pods", "services"])),
        requests_per_wrapper: each(counted.writes + counted.reads),
        failed_requests_per_wrapper: each(counted.failed),
        succeeded: ended.succeeded,
        failed: ended.failed,
        requests: counted.tallies(CLUSTER, sizes.wrappers),
    })
}

/// The process that is measured.
enum Subject {
    Ours,
    Theirs(Box<Controller>),
}

impl Subject {
    const fn agent(&self) -> &'static str {
        match self {
            Self::Ours => "roadstead-worker",
            Self::Theirs(_) => "appwrapper-operator",
        }
    }

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

fn object(number: u32) -> Value {
    let name = format!("aw-{number:05}");
    let pod = |suffix: &str, exit_code: u8| {
        json!({"template": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{suffix}"),
                "annotations": {RUN_SECONDS: RUN.as_secs().to_string(), EXIT_CODE: exit_code.to_string()},
            },
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}},
            ]},
        }})
    };
    let fails = u8::from(number % FAILS_EVERY == FAILS_EVERY - 1);
    let service = json!({"template": {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 80}]},
    }});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {
            format!("{TUNING}/failureGracePeriodDuration"): "0s",
            format!("{TUNING}/retryPausePeriodDuration"): "1s",
            format!("{TUNING}/retryLimit"): "1",
        }},
        "spec": {"components": [service, pod("first", 0), pod("second", fails)]},
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

/// How many have ended, and how.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Ended {
    succeeded: usize,
    failed: usize,
}

/// Waits until all have ended and those that failed hold nothing.
async fn all_ended(wrappers: &Api<AppWrapper>, count: u32) -> anyhow::Result<Ended> {
    let (mut last, mut since) = (Ended::default(), Instant::now());
    loop {
        let mut now = Ended::default();
        for wrapper in wrappers.list(&ListParams::default()).await? {
            let Some(status) = wrapper.status else { continue };
            let free = status
                .conditions
                .iter()
                .any(|one| one.type_ == "QuotaReserved" && one.status == "False");
            match status.phase.as_str() {
                "Succeeded" => now.succeeded += 1,
                "Failed" if free => now.failed += 1,
                _ => {}
            }
        }
        if now.succeeded + now.failed == usize::try_from(count)? {
            return Ok(now);
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            let Ended { succeeded, failed } = now;
            bail!("of {count} AppWrappers only {succeeded} succeeded and {failed} failed");
        }
        sleep(POLL).await;
    }
}
