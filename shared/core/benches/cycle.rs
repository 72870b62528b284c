//! The cycle without Kubernetes: 1,000 `ClusterQueues` in 100 cohorts.
//!
//! `cargo bench -p roadstead-core --bench cycle`.

use divan::Bencher;
use jiff::Timestamp;
use roadstead_core::amount::Amount;
use roadstead_core::cycle::Decision;
use roadstead_core::name::Key;
use roadstead_core::queue::{ClusterQueue, Flavor, FlavorQuota, LocalQueue, Quota, ResourceGroup, Selector};
use roadstead_core::state::{Event, Settings, State};
use roadstead_core::workload::{PodSet, Workload};

const QUEUES: usize = 1_000;
const QUEUES_PER_COHORT: usize = 10;

fn main() {
    divan::main();
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn queue(number: usize, cores: i64) -> ClusterQueue {
    ClusterQueue {
        name: format!("queue-{number:04}").into(),
        cohort: Some(format!("cohort-{:03}", number / QUEUES_PER_COHORT).into()),
        namespaces: Some(Selector::default()),
        groups: vec![ResourceGroup {
            covered: vec!["cpu".into(), "memory".into()],
            flavors: vec![FlavorQuota {
                name: "default".into(),
                quotas: [
                    ("cpu".into(), Quota::of(Amount::new(cores * 1_000))),
                    ("memory".into(), Quota::of(Amount::UNLIMITED)),
                ]
                .into(),
            }],
        }],
        ..ClusterQueue::default()
    }
}

fn workload(number: usize) -> Workload {
    let at = number % QUEUES;
    Workload {
        key: Key::new("team", format!("workload-{number:07}")),
        uid: format!("00000000-0000-0000-0000-{number:012}").into(),
        generation: 1,
        queue: format!("queue-{at:04}"),
        active: true,
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: 1,
            requests: [
                ("cpu".into(), Amount::new(1_000)),
                // A hundred different requests.
                (
                    "memory".into(),
                    Amount::new(i64::try_from(number / QUEUES % 100).unwrap_or(0)),
                ),
            ]
            .into(),
            ..PodSet::default()
        }],
        ..Workload::default()
    }
}

/// A state with that many pending workloads and cores per queue; nothing is decided yet.
fn state(pending: usize, cores: i64) -> State {
    let mut state = State::new(Settings::default());
    let flavor = Flavor {
        name: "default".into(),
        ..Flavor::default()
    };
    state.apply(Event::Flavor(flavor), now());
    for number in 0..QUEUES {
        let queue = queue(number, cores);
        let local = LocalQueue {
            key: Key::new("team", queue.name.as_str()),
            cluster_queue: queue.name.clone(),
            ..LocalQueue::default()
        };
        state.apply(Event::ClusterQueue(Box::new(queue)), now());
        state.apply(Event::LocalQueue(local), now());
    }
    for number in 0..pending {
        state.apply(Event::Workload(Box::new(workload(number))), now());
    }
    state.apply(Event::Synced, now());
    state
}

fn served(decisions: &[Decision]) -> usize {
    let reserved = |decision: &&Decision| matches!(decision, Decision::Reserve { .. });
    decisions.iter().filter(reserved).count()
}

fn settle(state: &mut State) -> usize {
    let mut total = 0;
    loop {
        total += served(&state.cycle(now()));
        if !state.has_work() {
            return total;
        }
    }
}

/// One call that serves 1,000 heads while 100,000 workloads wait.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn one_call(bencher: Bencher<'_, '_>) {
    let ready = state(100_000, 1_000_000);
    bencher
        .with_inputs(|| ready.clone())
        .bench_local_values(|mut state| {
            let decisions = state.cycle(now());
            assert!(served(&decisions) >= 1_000);
            (state, decisions)
        });
}

/// Everything is told and served, from nothing.
#[divan::bench(args = [10_000, 100_000, 1_000_000], sample_count = 3, sample_size = 1)]
fn from_nothing(pending: usize) -> State {
    let mut state = state(pending, 1_000_000);
    assert_eq!(settle(&mut state), pending);
    state
}

/// A full system: 10 of each queue's workloads run, the others wait; what ends is replaced.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn a_thousand_ends(bencher: Bencher<'_, '_>) {
    let mut full = state(100_000, 10);
    assert_eq!(settle(&mut full), 10 * QUEUES);
    bencher
        .with_inputs(|| full.clone())
        .bench_local_values(|mut state| {
            for number in 0..QUEUES {
                let Workload { key, uid, .. } = workload(number);
                state.apply(Event::WorkloadGone { key, uid }, now());
            }
            assert_eq!(settle(&mut state), QUEUES);
            state
        });
}
