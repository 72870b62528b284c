//! One worker alone under many bare Workloads, as a ratio to a bare client that writes the same objects.
//!
//! 5 cohorts of 6 ClusterQueues; small, medium and large workloads of growing priority, all submitted at once. The harness
//! finishes each admitted workload a few milliseconds later, so admission is measured and not the run.
//!
//! *Limits*: the bare client runs after the worker process was stopped and its webhooks removed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use roadstead_api::kueue::v1beta2::Workload;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::federation::remove_webhooks;
use super::requests::{self, Counted, Tally, per_one};
use super::rounded;
use crate::plane::HARNESS_USER_AGENT;
use crate::stage::{self, Solo};
use crate::{Options, Progress};

const CLUSTER: &str = "worker";
const NAMESPACE: &str = "perf";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const COHORTS: usize = 5;
const QUEUES_PER_COHORT: usize = 6;
/// Nominal quota of a queue, in cores.
const NOMINAL: u32 = 20;
const BORROWING: u32 = 100;
/// Requests in flight at once, of the submitter, the finisher and the bare client.
const CONCURRENCY: usize = 32;
/// Admitted workloads that may wait for the finisher.
const FINISHING_MAX: usize = 65_536;
/// Wait after the start and after the end until the process is idle.
const REST: Duration = Duration::from_secs(2);
/// Longest time without progress.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often the run checks for its end.
const POLL: Duration = Duration::from_millis(20);

/// One size of workloads.
#[derive(Debug, Clone, Copy)]
struct Size {
    name: &'static str,
    cores: u32,
    priority: i32,
    /// Time from admission to the end.
    runs: Duration,
    /// How many of ten workloads have this size.
    of_ten: usize,
}

const SIZES: [Size; 3] = [
    Size {
        name: "small",
        cores: 1,
        priority: 50,
        runs: Duration::from_millis(2),
        of_ten: 7,
    },
    Size {
        name: "medium",
        cores: 5,
        priority: 100,
        runs: Duration::from_millis(5),
        of_ten: 2,
    },
    Size {
        name: "large",
        cores: 20,
        priority: 200,
        runs: Duration::from_millis(10),
        of_ten: 1,
    },
];

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Workloads in all
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(30..=200_000))]
    pub workloads: u32,
}

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The total time as a ratio to the bare client's.
    pub total_ratio: f64,
    /// From the first submission until the last workload is finished, seconds.
    pub total_s: f64,
    /// The bare client's total time, seconds.
    pub bare_total_s: f64,
    /// CPU time of the worker meanwhile, seconds.
    pub cpu_s: f64,
    /// Peak resident memory of the worker, megabytes.
    pub rss_mb_peak: f64,
    /// Requests of the worker per workload, watches not counted.
    pub requests_per_workload: f64,
    /// Requests that were refused or failed (status 400 and above), per workload.
    pub failed_requests_per_workload: f64,
    /// Number of workloads.
    pub workloads: u32,
    /// Requests in flight at once.
    pub concurrency: usize,
    /// Requests by user agent, verb and resource.
    pub requests: Vec<Tally>,
}

/// A workload to submit.
#[derive(Debug, Clone)]
struct Order {
    name: String,
    queue: String,
    size: Size,
}

pub(super) async fn measure(sizes: &Sizes) -> anyhow::Result<Report> {
    let progress = Progress::stderr();
    let options = Options::bare(CLUSTER).with_audit();
    let mut solo = Solo::start(options, &json!({}), progress.clone()).await?;
    let client = solo.client()?;
    progress.step("creating queues");
    furnish(&client).await?;
    sleep(REST).await;
    let log = solo.plane().audit_log().context("the plane keeps no audit log")?;

    let orders = orders(sizes.workloads);
    progress.step(&format!("{} workloads at once", orders.len()));
    let (mark, cpu) = (requests::mark(&log)?, solo.cpu()?);
    let (took, content) = run(&client, &orders).await?;
    let cpu = solo.cpu()?.saturating_sub(cpu);
    sleep(REST).await;
    let peak = solo.memory()?.peak_kb;
    let counted = Counted::since(&log, mark, HARNESS_USER_AGENT)?;
    progress.step(&format!("{:.1} s; now the bare client", took.as_secs_f64()));

    solo.kill();
    remove_webhooks(&client).await?;
    let bare = bare(&client, &orders, &content).await?;
    let each = |count| per_one(count, sizes.workloads);
    Ok(Report {
        total_ratio: rounded(took.as_secs_f64() / bare.as_secs_f64()),
        total_s: rounded(took.as_secs_f64()),
        bare_total_s: rounded(bare.as_secs_f64()),
        cpu_s: rounded(cpu.as_secs_f64()),
        rss_mb_peak: rounded(f64::from(u32::try_from(peak)?) / 1024.0),
        requests_per_workload: each(counted.writes + counted.reads),
        failed_requests_per_workload: each(counted.failed),
        workloads: sizes.workloads,
        concurrency: CONCURRENCY,
        requests: counted.tallies(CLUSTER, sizes.workloads),
    })
}

fn queue_name(index: usize) -> String {
    format!("queue-{index:02}")
}

async fn furnish(client: &Client) -> anyhow::Result<()> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}}),
    ];
    for index in 0..COHORTS * QUEUES_PER_COHORT {
        let name = queue_name(index);
        let quota = json!({"name": "cpu", "nominalQuota": NOMINAL.to_string(), "borrowingLimit": BORROWING.to_string()});
        objects.push(json!({
            "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {
                "cohortName": format!("cohort-{}", index / QUEUES_PER_COHORT),
                "namespaceSelector": {},
                "resourceGroups": [{
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "default", "resources": [quota]}],
                }],
            },
        }));
        objects.push(json!({
            "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterQueue": name},
        }));
    }
    for object in objects {
        stage::apply(client, object).await?;
    }
    Ok(())
}

/// All workloads, in the order in which they are submitted: queues and sizes take turns.
fn orders(count: u32) -> Vec<Order> {
    let by_turns: Vec<Size> = SIZES
        .iter()
        .flat_map(|size| std::iter::repeat_n(*size, size.of_ten))
        .collect();
    let queues = COHORTS * QUEUES_PER_COHORT;
    let order = |index: u32| {
        let index = usize::try_from(index).unwrap_or(0);
        // Why: each queue gets all sizes even if the numbers of queues and sizes have a common divisor.
        let size = by_turns[(index / queues) % by_turns.len()];
        Order {
            name: format!("{}-{index:06}", size.name),
            queue: queue_name(index % queues),
            size,
        }
    };
    (0..count).map(order).collect()
}

fn object(order: &Order) -> Value {
    json!({
        "apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": order.name},
        "spec": {
            "queueName": order.queue,
            "priority": order.size.priority,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main",
                    "image": "registry.example/train:1",
                    "resources": {"requests": {"cpu": order.size.cores.to_string()}},
                }],
            }}}],
        },
    })
}

/// An admitted workload: its name, and its status as read.
type Admitted = (String, Value);

/// Submits all workloads at once and finishes the admitted ones until all are finished. Returns the duration, and the status
/// of an admitted workload.
async fn run(client: &Client, orders: &[Order]) -> anyhow::Result<(Duration, Value)> {
    let api = workloads(client);
    let (sender, admitted) = mpsc::channel(FINISHING_MAX);
    let mut eyes = JoinSet::new();
    eyes.spawn(watch_admissions(client.clone(), sender));
    let (count, mut finished) = watch::channel(0_usize);
    let sample: Arc<Mutex<Option<Value>>> = Arc::default();
    let started = Instant::now();
    let finisher = {
        let (api, sample) = (api.clone(), sample.clone());
        let finish = move |(name, status): Admitted| {
            let (api, count) = (api.clone(), count.clone());
            sample
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert_with(|| status.clone());
            async move {
                let size = SIZES.iter().find(|size| name.starts_with(size.name));
                sleep(size.map_or(Duration::ZERO, |size| size.runs)).await;
                patch_status(&api, &name, &with_end(&status)).await?;
                count.send_modify(|count| *count += 1);
                anyhow::Ok(())
            }
        };
        let stream = stream::unfold(admitted, |mut admitted| async move {
            let next = admitted.recv().await?;
            Some((next, admitted))
        });
        stream
            .map(finish)
            .buffer_unordered(CONCURRENCY)
            .try_for_each(|()| async { Ok(()) })
    };
    let submit = async {
        let create = |order| create(&api, order);
        stream::iter(orders)
            .map(create)
            .buffer_unordered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
        let wanted = orders.len();
        while *finished.borrow_and_update() < wanted {
            let so_far = *finished.borrow();
            if timeout(PATIENCE, finished.changed()).await.is_err() {
                bail!("only {so_far} of {wanted} workloads finished, and nothing happens any more");
            }
        }
        Ok(started.elapsed())
    };
    let took = tokio::select! {
        biased;
        took = submit => took?,
        ended = finisher => {
            ended?;
            bail!("the watch of workloads ended");
        }
    };
    let sample = sample.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((took, sample.context("nothing was admitted")?))
}

/// Sends every admitted workload, once.
async fn watch_admissions(client: Client, sender: mpsc::Sender<Admitted>) {
    let resource = ApiResource::erase::<Workload>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
    let mut stream = std::pin::pin!(watcher(api, Config::default()).default_backoff());
    let mut told = std::collections::BTreeSet::new();
    while let Some(event) = stream.next().await {
        let Ok(Event::Apply(workload) | Event::InitApply(workload)) = event else {
            continue;
        };
        let status = &workload.data["status"];
        let is = |kind: &str| {
            let conditions = status["conditions"].as_array();
            { conditions.into_iter().flatten() }.any(|c| c["type"] == kind && c["status"] == "True")
        };
        if is("Admitted") && !is("Finished") && told.insert(workload.name_any()) {
            let admitted = (workload.name_any(), status.clone());
            if sender.send(admitted).await.is_err() {
                return;
            }
        }
    }
}

/// The bare client: create, admit, finish, with the contents of the measured run.
async fn bare(client: &Client, orders: &[Order], content: &Value) -> anyhow::Result<Duration> {
    let api = workloads(client);
    let started = Instant::now();
    let one = |order: &Order| {
        let api = api.clone();
        let order = Order {
            name: format!("bare-{}", order.name),
            ..order.clone()
        };
        async move {
            create(&api, &order).await?;
            patch_status(&api, &order.name, content).await?;
            patch_status(&api, &order.name, &with_end(content)).await
        }
    };
    stream::iter(orders)
        .map(one)
        .buffer_unordered(CONCURRENCY)
        .try_collect::<()>()
        .await?;
    sleep(POLL).await;
    Ok(started.elapsed())
}

fn with_end(status: &Value) -> Value {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    conditions.push(json!({
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "done", "lastTransitionTime": now,
    }));
    json!({"conditions": conditions})
}

fn workloads(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<Workload>(&());
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

async fn create(api: &Api<DynamicObject>, order: &Order) -> anyhow::Result<()> {
    let object = serde_json::from_value(object(order))?;
    let made = api.create(&PostParams::default(), &object).await;
    made.map(drop)
        .with_context(|| format!("creating workload {}", order.name))
}

async fn patch_status(api: &Api<DynamicObject>, name: &str, status: &Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    let done = api.patch_status(name, &PatchParams::default(), &patch).await;
    done.map(drop)
        .with_context(|| format!("writing the status of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_gets_every_size() {
        let orders = orders(3_000);
        for index in 0..COHORTS * QUEUES_PER_COHORT {
            let here = orders.iter().filter(|order| order.queue == queue_name(index));
            let count = |size: &str| here.clone().filter(|order| order.size.name == size).count();
            assert_eq!((count("small"), count("medium"), count("large")), (70, 20, 10));
        }
    }

    #[test]
    fn the_end_is_added_to_what_stands_there() {
        let status = json!({"conditions": [{"type": "Admitted", "status": "True"}], "admission": {}});
        let ended = with_end(&status);
        let types: Vec<&Value> = { ended["conditions"].as_array().unwrap().iter() }
            .map(|c| &c["type"])
            .collect();
        assert_eq!(types, ["Admitted", "Finished"]);
    }
}
