//! The admission engine's state alone, without Kubernetes: how long a round takes, what admission costs, how much memory a
//! pending workload needs.
//!
//! Invariant: only the public interface of [`roadstead_core::state::State`] is used, as the product uses it: events in,
//! decisions out, and every decision comes back as the Workload that shows it.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use roadstead_core::amount::Amount;
use roadstead_core::condition::Truth;
use roadstead_core::cycle::Decision;
use roadstead_core::name::{ClusterQueueName, CohortName, Key};
use roadstead_core::queue::{
    ClusterQueue, Flavor, FlavorQuota, FungibilityPolicy, LocalQueue, PreemptionPolicy, Quota, Reclaim,
    ResourceGroup, Selector, StopPolicy, Strategy, UsageOrder, Weight, WithinClusterQueue,
};
use roadstead_core::state::{Event, Settings, State};
use roadstead_core::status::{Admission, Status};
use roadstead_core::workload::{PodSet, Workload};
use serde::Serialize;

use super::{cpu_of, millis, rounded};
use crate::Progress;

/// Number of queues.
const QUEUES: usize = 1_000;
const QUEUES_PER_COHORT: usize = 10;
const NAMESPACE: &str = "perf";
const FLAVOR: &str = "default";
/// Workloads that hold quota during a search for victims.
const HOLDERS: usize = 10_000;
/// Rounds that are measured for one figure.
const ROUNDS: usize = 50;
/// Searches for victims that are measured.
const SEARCHES: usize = 200;
/// Queues of the one cohort in which victims are searched.
const LENDING_QUEUES: usize = 101;
/// Victims that each search must find, of one core each.
const VICTIMS: u32 = 50;
/// Numbers of pending workloads, one for each row of the table of growth.
const GROWTH: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// The row from which the single figures are taken.
const MAIN: usize = 100_000;

/// Sizes of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Rows of the table of growth with more pending workloads are left out
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    pub most: u32,
}

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// A round over 1,000 queues that all have a head, with 100,000 pending: the median of 50.
    pub cycle_ms_1000_heads: f64,
    /// CPU seconds to admit 100,000 workloads, from their first events until the last one is shown as admitted.
    pub admit_100k_cpu_s: f64,
    /// The 99th percentile of rounds with one head that needs 50 victims among 10,000 admitted workloads of one cohort, milliseconds.
    pub preempt_search_ms_p99: f64,
    /// Resident memory per pending workload, the stored object included, bytes.
    pub bytes_per_pending: u64,
    /// The figures by number of pending workloads.
    pub growth: Vec<Row>,
}

/// A row of the table of growth.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Pending workloads.
    pub pending: usize,
    /// The median of the first rounds, milliseconds.
    pub cycle_ms: f64,
    /// CPU seconds to admit all of them.
    pub admit_cpu_s: f64,
    /// Resident memory per pending workload, bytes; 0 if it is too little to measure.
    pub bytes_per_pending: u64,
}

pub(super) fn measure(sizes: &Sizes) -> anyhow::Result<Report> {
    let progress = Progress::stderr();
    let most = usize::try_from(sizes.most)?;
    let mut growth = Vec::new();
    for pending in GROWTH.into_iter().filter(|pending| *pending <= most.max(MAIN)) {
        progress.step(&format!("{pending} pending workloads"));
        growth.push(row(pending)?);
    }
    progress.step(&format!("victims among {HOLDERS} admitted workloads"));
    let preempt_search_ms_p99 = searches()?;
    let main = { growth.iter() }
        .find(|row| row.pending == MAIN)
        .context("the main row is always measured")?;
    Ok(Report {
        cycle_ms_1000_heads: main.cycle_ms,
        admit_100k_cpu_s: main.admit_cpu_s,
        preempt_search_ms_p99,
        bytes_per_pending: main.bytes_per_pending,
        growth,
    })
}

fn row(pending: usize) -> anyhow::Result<Row> {
    let now = Timestamp::from_second(1_800_000_000)?;
    let mut state = furnished(pending, Room::None, now);
    let before = resident_bytes()?;
    fill(&mut state, pending, Room::None, now);
    let after = resident_bytes()?;
    let bytes = after.saturating_sub(before) / u64::try_from(pending)?;
    let cycle_ms = rounds(&mut state, now);
    drop(state);
    let started = cpu_of("self")?;
    let mut state = full(pending, Room::ForAll, now);
    let admitted = admit_all(&mut state, Room::ForAll, now);
    let admit_cpu_s = cpu_of("self")?.saturating_sub(started).as_secs_f64();
    anyhow::ensure!(
        admitted == pending,
        "{admitted} of {pending} workloads were admitted"
    );
    Ok(Row {
        pending,
        cycle_ms,
        admit_cpu_s: rounded(admit_cpu_s),
        bytes_per_pending: bytes,
    })
}

/// The median of rounds in which every queue has a head to be tried. Nothing fits, so nothing changes but the reason.
fn rounds(state: &mut State, now: Timestamp) -> f64 {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        // Why: the engine tries all workloads of a changed queue again, so each round starts with a head in every queue.
        for index in 0..QUEUES {
            let odd = i64::try_from(round % 2).unwrap_or(0);
            let queue = queue(index, Room::None, Amount::new(1 + odd));
            state.apply(Event::ClusterQueue(Box::new(queue)), now);
        }
        let started = Instant::now();
        black_box(state.cycle(now));
        took.push(started.elapsed());
    }
    millis(&took, 50)
}

/// Admits until nothing is left to do. Returns how many workloads got quota.
fn admit_all(state: &mut State, room: Room, now: Timestamp) -> usize {
    let mut admitted = 0;
    while state.has_work() {
        for decision in state.cycle(now) {
            if let Decision::Reserve { key, admission, .. } = decision {
                state.apply(Event::Workload(Box::new(shown(&key, admission, room, now))), now);
                admitted += 1;
            }
        }
    }
    admitted
}

/// The 99th percentile of rounds with one head that reclaims its quota from queues that borrow all of it. The head leaves
/// again each time, and its victims stay.
fn searches() -> anyhow::Result<f64> {
    let mut now = Timestamp::from_second(1_800_000_000)?;
    let room = Room::LentByFirst;
    let mut state = full(HOLDERS, room, now);
    let admitted = admit_all(&mut state, room, now);
    anyhow::ensure!(
        admitted == HOLDERS,
        "{admitted} of {HOLDERS} workloads were admitted"
    );
    let mut took = Vec::new();
    for index in 0..SEARCHES {
        now += SignedDuration::from_secs(1);
        let mut head = workload(HOLDERS + index, room, now);
        head.queue = name(0);
        head.priority = 1_000;
        for set in &mut head.pod_sets {
            set.count = VICTIMS;
        }
        let (key, uid) = (head.key.clone(), head.uid.clone());
        state.apply(Event::Workload(Box::new(head)), now);
        let started = Instant::now();
        let decisions = state.cycle(now);
        took.push(started.elapsed());
        let mut victims = 0_u32;
        for decision in decisions {
            if let Decision::Preempt { key, uid, .. } = decision {
                victims += 1;
                state.apply(Event::ReserveFailed { key, uid }, now);
            }
        }
        anyhow::ensure!(victims == VICTIMS, "{victims} victims instead of {VICTIMS}");
        state.apply(Event::WorkloadGone { key, uid }, now);
        state.cycle(now);
    }
    Ok(millis(&took, 99))
}

/// Whether the queues have quota for their pending workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Each queue has as much as its own workloads request.
    ForAll,
    /// No queue has enough for a workload.
    None,
    /// All queues are in one cohort, and only the first, which has no workloads, has quota: as much as all others request.
    LentByFirst,
}

impl Room {
    const fn queues(self) -> usize {
        match self {
            Self::ForAll | Self::None => QUEUES,
            Self::LentByFirst => LENDING_QUEUES,
        }
    }

    fn nominal(self, index: usize, pending: usize) -> Amount {
        let cores =
            |count: usize| Amount::new(i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1_000));
        match self {
            Self::ForAll => cores(pending.div_ceil(QUEUES)),
            Self::None => Amount::new(1),
            Self::LentByFirst if index == 0 => cores(pending),
            Self::LentByFirst => Amount::ZERO,
        }
    }

    fn cohort(self, index: usize) -> CohortName {
        match self {
            Self::ForAll | Self::None => CohortName::from(format!("cohort-{:03}", index / QUEUES_PER_COHORT)),
            Self::LentByFirst => CohortName::from("all"),
        }
    }

    /// The queue of a workload.
    const fn place(self, workload: usize) -> usize {
        match self {
            Self::ForAll | Self::None => workload % QUEUES,
            Self::LentByFirst => 1 + workload % (LENDING_QUEUES - 1),
        }
    }
}

/// A state with all queues and `pending` pending workloads, before any decision.
fn full(pending: usize, room: Room, now: Timestamp) -> State {
    let mut state = furnished(pending, room, now);
    fill(&mut state, pending, room, now);
    state
}

fn fill(state: &mut State, pending: usize, room: Room, now: Timestamp) {
    for index in 0..pending {
        state.apply(Event::Workload(Box::new(workload(index, room, now))), now);
    }
    state.apply(Event::Synced, now);
}

/// A state with all queues, and with quota for `pending` workloads if `room` gives any.
fn furnished(pending: usize, room: Room, now: Timestamp) -> State {
    let mut state = State::new(Settings::default());
    state.apply(
        Event::Namespace {
            name: NAMESPACE.into(),
            labels: BTreeMap::new(),
        },
        now,
    );
    state.apply(
        Event::Flavor(Flavor {
            name: FLAVOR.into(),
            node_labels: BTreeMap::new(),
            taints: Vec::new(),
            tolerations: Vec::new(),
            topology: None,
        }),
        now,
    );
    for index in 0..room.queues() {
        let queue = queue(index, room, room.nominal(index, pending));
        state.apply(Event::ClusterQueue(Box::new(queue)), now);
        state.apply(
            Event::LocalQueue(LocalQueue {
                key: Key::new(NAMESPACE, name(index)),
                cluster_queue: ClusterQueueName::from(name(index)),
                stop: StopPolicy::None,
                weight: Weight::ONE,
            }),
            now,
        );
    }
    state
}

fn name(index: usize) -> String {
    format!("queue-{index:04}")
}

fn queue(index: usize, room: Room, nominal: Amount) -> ClusterQueue {
    ClusterQueue {
        name: ClusterQueueName::from(name(index)),
        cohort: Some(room.cohort(index)),
        strategy: Strategy::BestEffortFifo,
        namespaces: Some(Selector::default()),
        groups: vec![ResourceGroup {
            covered: vec!["cpu".into()],
            flavors: vec![FlavorQuota {
                name: FLAVOR.into(),
                quotas: [("cpu".into(), Quota::of(nominal))].into(),
            }],
        }],
        checks: Vec::new(),
        stop: StopPolicy::None,
        fungibility: FungibilityPolicy::default(),
        preemption: PreemptionPolicy {
            within_cluster_queue: WithinClusterQueue::LowerPriority,
            reclaim_within_cohort: Reclaim::Any,
            ..PreemptionPolicy::default()
        },
        weight: Weight::ONE,
        usage_order: UsageOrder::Ignored,
        terminating: false,
    }
}

/// A workload of one pod with one core and one of three priorities. Workloads go to the queues in turn.
fn workload(index: usize, room: Room, now: Timestamp) -> Workload {
    let age = SignedDuration::from_secs(i64::try_from(index % 3_600).unwrap_or(0));
    Workload {
        key: Key::new(NAMESPACE, format!("workload-{index:07}")),
        uid: format!("11111111-2222-3333-4444-{index:012}").into(),
        created: now - age,
        generation: 1,
        deleting: false,
        queue: name(room.place(index)),
        boost: 0,
        priority: i32::try_from(index % 3).unwrap_or(0) * 50,
        active: true,
        job_uid: None,
        max_execution_secs: None,
        gated_by: String::new(),
        pod_sets: vec![PodSet {
            name: "main".into(),
            group: None,
            count: 1,
            min_count: None,
            requests: [("cpu".into(), Amount::new(1_000))].into(),
            node_selector: BTreeMap::new(),
            affinity: Vec::new(),
            tolerations: Vec::new(),
            asks_topology: false,
        }],
        problems: Vec::new(),
        beyond: None,
        status: Status::default(),
    }
}

/// The workload as the API server shows it once its admission is written.
fn shown(key: &Key, admission: Admission, room: Room, now: Timestamp) -> Workload {
    let number = key.name.rsplit('-').next().and_then(|text| text.parse().ok());
    let mut workload = workload(number.unwrap_or(0), room, now);
    workload.status.admission = Some(admission);
    let conditions = &mut workload.status.conditions;
    conditions.set("QuotaReserved", Truth::True, "QuotaReserved", "", now);
    conditions.set("Admitted", Truth::True, "Admitted", "", now);
    workload
}

fn resident_bytes() -> anyhow::Result<u64> {
    let path = "/proc/self/status";
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.context("no VmRSS")? * 1024)
}
