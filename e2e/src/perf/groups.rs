//! Many groups of pods at once on one cluster, admitted by our engine or by the reference.
//!
//! All pods are created at once, group after group, in queues that have quota for all. A pod is let go when it has lost its scheduling
//! gate. Nothing schedules or runs it, so only the engine, its webhooks and the API server work.
//!
//! *Limits*: the reference runs as its release configures it: it sends 300 requests a second at most.
//!
//! *Source*: `e2e/docs/performance.md`.

use std::collections::BTreeSet;
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, from_value, json};
use tokio::time::{sleep, timeout};

use super::federation::megabytes;
use super::requests::{self, Counted, Tally, per_one};
use super::rounded;
use crate::plane::HARNESS_USER_AGENT;
use crate::stage::{Kueue, Rival, Single, Solo, apply};
use crate::{Options, Progress};

const CLUSTER: &str = "worker";
const NAMESPACE: &str = "perf";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const GATE: &str = "kueue.x-k8s.io/admission";
/// ClusterQueues; groups go to them in turn.
const QUEUES: u32 = 10;
/// Requests of the harness in flight at once.
const CONCURRENCY: usize = 32;
/// Wait after the start and after the end until the process is idle.
const REST: Duration = Duration::from_secs(2);
/// Longest time without progress.
const PATIENCE: Duration = Duration::from_mins(2);

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Groups in all
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub groups: u32,
    /// Pods of each group
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub pods: u32,
    /// The engines that are measured, one after the other; the reference is built from its published module
    #[arg(long, default_value = "ours,reference", value_delimiter = ',')]
    pub engines: Vec<Engine>,
}

/// The engine that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// Our worker.
    Ours,
    /// The reference's controller.
    Reference,
}

impl Engine {
    /// The user agent.
    const fn agent(self) -> &'static str {
        match self {
            Self::Ours => "roadstead-worker",
            Self::Reference => "kueue",
        }
    }
}

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The user agent of the engine.
    pub engine: &'static str,
    /// Groups in all.
    pub groups: u32,
    /// Pods of each group.
    pub pods: u32,
    /// From the first creation of a pod until the last, seconds.
    pub created_s: f64,
    /// From the first creation of a pod until all pods are let go, seconds.
    pub admitted_s: f64,
    /// CPU time of the engine's process meanwhile, seconds.
    pub cpu_s: f64,
    /// Peak resident memory of that process, megabytes.
    pub rss_mb_peak: f64,
    /// Requests of the engine per group, watches not counted.
    pub requests_per_group: f64,
    /// Requests that were refused or failed (status 400 and above), per group.
    pub failed_requests_per_group: f64,
    /// Requests by user agent, verb and resource.
    pub requests: Vec<Tally>,
}

/// Measures one engine after the other, each in a cluster of its own.
///
/// *Errors*: a program is missing, or pods are not let go.
pub(super) async fn measure(sizes: &Sizes) -> anyhow::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for &engine in &sizes.engines {
        reports.push(Box::pin(measure_one(engine, sizes)).await?);
    }
    Ok(reports)
}

async fn measure_one(engine: Engine, sizes: &Sizes) -> anyhow::Result<Report> {
    let progress = Progress::stderr();
    let mut subject = start(engine, &progress).await?;
    let client = subject.client()?;
    furnish(&client, sizes).await?;
    sleep(REST).await;
    let log = subject
        .plane()
        .audit_log()
        .context("the plane keeps no audit log")?;
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let count = usize::try_from(sizes.groups * sizes.pods)?;

    progress.step(&format!("{} groups of {} pods at once", sizes.groups, sizes.pods));
    let (mark, cpu, started) = (requests::mark(&log)?, subject.cpu()?, Instant::now());
    let submitted = async {
        submit(&pods, sizes).await?;
        anyhow::Ok(started.elapsed())
    };
    let (created, ()) = tokio::try_join!(submitted, until_let_go(pods.clone(), count))?;
    let admitted = started.elapsed();
    let cpu = subject.cpu()?.saturating_sub(cpu);
    sleep(REST).await;
    let peak = subject.memory()?.peak_kb;
    let counted = Counted::of_agents(engine.agent(), &log, mark, HARNESS_USER_AGENT)?;
    let each = |count| per_one(count, sizes.groups);
    Ok(Report {
        engine: engine.agent(),
        groups: sizes.groups,
        pods: sizes.pods,
        created_s: rounded(created.as_secs_f64()),
        admitted_s: rounded(admitted.as_secs_f64()),
        cpu_s: rounded(cpu.as_secs_f64()),
        rss_mb_peak: megabytes(peak),
        requests_per_group: each(counted.writes + counted.reads),
        failed_requests_per_group: each(counted.failed),
        requests: counted.tallies(CLUSTER, sizes.groups),
    })
}

/// The cluster and the process that is measured.
type Subject = Box<dyn DerefMut<Target = Single>>;

async fn start(engine: Engine, progress: &Progress) -> anyhow::Result<Subject> {
    let options = Options::bare(CLUSTER).with_audit();
    let configuration = json!({"integrations": {"frameworks": ["pod"]}});
    Ok(match engine {
        Engine::Ours => Box::new(Solo::start(options, &configuration, progress.clone()).await?),
        Engine::Reference => {
            let kueue = Kueue::built(progress).await?;
            Box::new(Rival::start(options, &configuration, &kueue, progress.clone()).await?)
        }
    })
}

fn queue_name(index: u32) -> String {
    format!("queue-{index:02}")
}

/// Creates the queues, each with quota for all pods, and the account that pods need.
async fn furnish(client: &Client, sizes: &Sizes) -> anyhow::Result<()> {
    let quota = json!({"name": "cpu", "nominalQuota": (sizes.groups * sizes.pods).to_string()});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}),
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}}),
    ];
    for index in 0..QUEUES {
        let name = queue_name(index);
        objects.push(json!({
            "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}],
            }]},
        }));
        objects.push(json!({
            "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterQueue": name},
        }));
    }
    for object in objects {
        apply(client, object).await?;
    }
    Ok(())
}

fn pod(group: u32, size: u32, member: u32) -> Value {
    let name = format!("group-{group:05}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{name}-{member:02}"),
            "labels": {
                "kueue.x-k8s.io/queue-name": queue_name(group % QUEUES), "kueue.x-k8s.io/pod-group-name": name,
            },
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": size.to_string()},
        },
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]},
    })
}

async fn submit(pods: &Api<Pod>, sizes: &Sizes) -> anyhow::Result<()> {
    let size = sizes.pods;
    let all = (0..sizes.groups).flat_map(|group| (0..size).map(move |member| (group, member)));
    stream::iter(all)
        .map(|(group, member)| async move {
            let pod: Pod = from_value(pod(group, size, member))?;
            let created = pods.create(&PostParams::default(), &pod).await;
            created.map(drop).context("creating a pod")
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

/// Waits until so many pods have lost their gate.
async fn until_let_go(pods: Api<Pod>, count: usize) -> anyhow::Result<()> {
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
    let (mut let_go, mut last) = (BTreeSet::new(), Instant::now());
    while let_go.len() < count {
        match timeout(PATIENCE.saturating_sub(last.elapsed()), events.next()).await {
            Ok(Some(Ok(Event::Apply(pod) | Event::InitApply(pod)))) => {
                if !is_gated(&pod) && let_go.insert(pod.name_any()) {
                    last = Instant::now();
                }
            }
            Ok(Some(Ok(Event::Delete(_) | Event::Init | Event::InitDone) | Err(_))) => {}
            Ok(None) => bail!("the watch of pods ended"),
            Err(_elapsed) => bail!("of {count} pods only {} were let go", let_go.len()),
        }
    }
    Ok(())
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.scheduling_gates.iter().flatten());
    { gates }.any(|gate| gate.name == GATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_belongs_to_its_group_and_is_held_by_its_gate_only() {
        let mut object = pod(12, 8, 3);
        assert_eq!(
            object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"],
            "queue-02"
        );
        assert_eq!(object["metadata"]["name"], "group-00012-03");
        let is_gated = |object: &Value| is_gated(&from_value(object.clone()).unwrap());
        assert!(!is_gated(&object));
        object["spec"]["schedulingGates"] = json!([{"name": "another"}]);
        assert!(!is_gated(&object));
        object["spec"]["schedulingGates"] = json!([{"name": "another"}, {"name": GATE}]);
        assert!(is_gated(&object));
    }
}
