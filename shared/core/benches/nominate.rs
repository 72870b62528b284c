//! How long one nomination takes. `slowest` is the worst of a thousand single nominations, so it is above the 99th percentile.
//!
//! `cargo bench -p roadstead-core --bench nominate`
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark may stop")]

use std::collections::BTreeMap;

use divan::Bencher;
use jiff::Timestamp;
use roadstead_core::amount::Amount;
use roadstead_core::fair::{Contender, Tournament};
use roadstead_core::flavor::Placement;
use roadstead_core::ground::{Footprint, Ground};
use roadstead_core::hierarchy::NodeId;
use roadstead_core::holders::{Holder, Holders};
use roadstead_core::name::{FlavorName, Key};
use roadstead_core::nominate::{CompiledQueue, Facts, Head, Mode, Nomination, nominate};
use roadstead_core::queue::{
    ClusterQueue, Flavor, FlavorQuota, PreemptionPolicy, Quota, Reclaim, ResourceGroup, Selector,
    WithinClusterQueue,
};
use roadstead_core::rules::{PreemptionRules, Rules, Switch};
use roadstead_core::workload::{PodSet, Workload};

const HOLDERS: usize = 10_000;
const QUEUES_PER_COHORT: usize = 10;

fn main() {
    divan::main();
}

fn at(second: usize) -> Timestamp {
    Timestamp::from_second(i64::try_from(second).unwrap()).unwrap()
}

/// Two groups: cpu and memory, gpu; two flavors each.
fn queue(name: String, cohort: String, cores: i64) -> ClusterQueue {
    let group = |resources: &[&str], flavors: &[&str]| ResourceGroup {
        covered: resources.iter().map(|r| (*r).into()).collect(),
        flavors: flavors
            .iter()
            .map(|flavor| FlavorQuota {
                name: (*flavor).into(),
                quotas: resources
                    .iter()
                    .map(|r| ((*r).into(), Quota::of(Amount::new(cores))))
                    .collect(),
            })
            .collect(),
    };
    ClusterQueue {
        name: name.into(),
        cohort: Some(cohort.into()),
        namespaces: Some(Selector::default()),
        groups: vec![
            group(&["cpu", "memory"], &["small", "large"]),
            group(&["gpu"], &["new"]),
        ],
        preemption: PreemptionPolicy {
            within_cluster_queue: WithinClusterQueue::LowerPriority,
            reclaim_within_cohort: Reclaim::Any,
            ..PreemptionPolicy::default()
        },
        ..ClusterQueue::default()
    }
}

struct World {
    ground: Ground,
    holders: Holders,
    flavors: BTreeMap<FlavorName, Flavor>,
    rules: Rules,
    asker: CompiledQueue,
    node: NodeId,
    priority: i64,
}

/// All but the first queue of each cohort borrow what belongs to the first; each flavor is full to the last unit.
fn world(cohorts: usize, queues: usize, rules: PreemptionRules) -> World {
    let mut ground = Ground::default();
    let mut holders = Holders::default();
    let per_queue = HOLDERS / cohorts / queues;
    let mut asker = None;
    let mut taken = 0_usize;
    for cohort in 0..cohorts {
        for index in 0..queues {
            let cores = i64::try_from(per_queue - per_queue / queues).unwrap();
            let queue = queue(format!("q{cohort}-{index}"), format!("c{cohort}"), cores);
            let compiled = CompiledQueue::of(&mut ground, &queue);
            let node = ground.put_queue(&queue);
            if asker.is_none() {
                asker = Some((compiled, node));
            }
            let holding = if index == 0 { 0 } else { per_queue / 2 };
            for flavor in ["small", "large"] {
                let pairs: Vec<_> = ["cpu", "memory"]
                    .iter()
                    .map(|resource| ground.pair(&flavor.into(), &(*resource).into()))
                    .collect();
                for _ in 0..holding {
                    taken += 1;
                    let mut usage: Vec<_> = pairs.iter().map(|pair| (*pair, 2_i128)).collect();
                    usage.sort_unstable();
                    ground.take(Footprint::of(node, &usage));
                    holders.insert(Holder {
                        key: Key::new("ns", format!("h{taken}")),
                        uid: format!("uid-{taken}").into(),
                        node,
                        local: Key::new("ns", "lq"),
                        priority: i64::try_from(taken * 7_919 % 100).unwrap(),
                        queue_time: at(taken),
                        reserved_at: at(taken * 31 % 10_007),
                        evicted: false,
                        usage,
                        past: None,
                    });
                }
            }
        }
    }
    let (asker, node) = asker.expect("there is a queue");
    let flavors = ["small", "large", "new"].map(|name| {
        let flavor = Flavor {
            name: name.into(),
            ..Flavor::default()
        };
        (flavor.name.clone(), flavor)
    });
    World {
        ground,
        holders,
        flavors: flavors.into(),
        rules: Rules {
            preemption: rules,
            ..Rules::default()
        },
        asker,
        node,
        priority: 50,
    }
}

fn workload(requests: &[(&str, i64)]) -> Workload {
    Workload {
        key: Key::new("ns", "head"),
        uid: "uid-head".into(),
        generation: 1,
        queue: "lq".to_owned(),
        priority: 50,
        active: true,
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: 1,
            requests: requests
                .iter()
                .map(|(r, v)| ((*r).into(), Amount::new(*v)))
                .collect(),
            ..PodSet::default()
        }],
        ..Workload::default()
    }
}

fn ask(world: &mut World, workload: &Workload) -> Nomination {
    let mut facts = Facts {
        ground: &mut world.ground,
        holders: &world.holders,
        flavors: &world.flavors,
        rules: &world.rules,
    };
    let head = Head {
        workload,
        queue: &world.asker,
        node: world.node,
        placement: Placement::Here,
        priority: world.priority,
        queue_time: at(0),
        progress: None,
    };
    nominate(&mut facts, &head, None)
}

fn measure(bencher: Bencher<'_, '_>, mut world: World, requests: &[(&str, i64)], expect: Mode) {
    let workload = workload(requests);
    assert_eq!(
        ask(&mut world, &workload).mode,
        expect,
        "the benchmark measures what it says"
    );
    bencher.bench_local(|| ask(&mut world, &workload));
}

#[divan::bench(sample_count = 1_000, sample_size = 10)]
fn fits(bencher: Bencher<'_, '_>) {
    let mut world = world(100, QUEUES_PER_COHORT, PreemptionRules::Classical);
    let other = world
        .ground
        .quotas()
        .queue(&"q0-1".into())
        .expect("there is another queue");
    for holder in world.holders.of(other) {
        world.ground.give(holder.footprint());
    }
    measure(
        bencher,
        world,
        &[("cpu", 4), ("memory", 4), ("gpu", 1)],
        Mode::Fit,
    );
}

#[divan::bench(args = [1, 4, 9], sample_count = 1_000, sample_size = 1)]
fn reclaims_in_one_of_100_cohorts(bencher: Bencher<'_, '_>, size: i64) {
    let world = world(100, QUEUES_PER_COHORT, PreemptionRules::Classical);
    measure(bencher, world, &[("cpu", size), ("memory", size)], Mode::Reclaim);
}

#[divan::bench(args = [1, 4, 9], sample_count = 1_000, sample_size = 1)]
fn shares_in_one_of_100_cohorts(bencher: Bencher<'_, '_>, size: i64) {
    let mut world = world(100, QUEUES_PER_COHORT, PreemptionRules::fair_sharing());
    world.rules.fair_within_nominal = Switch::Off;
    measure(bencher, world, &[("cpu", size), ("memory", size)], Mode::Reclaim);
}

#[divan::bench(args = [1, 10, 90], sample_count = 200, sample_size = 1)]
fn reclaims_among_10000_in_one_cohort(bencher: Bencher<'_, '_>, size: i64) {
    let world = world(1, 100, PreemptionRules::Classical);
    measure(bencher, world, &[("cpu", size), ("memory", size)], Mode::Reclaim);
}

#[divan::bench(args = [1, 10, 90], sample_count = 200, sample_size = 1)]
fn shares_among_10000_in_one_cohort(bencher: Bencher<'_, '_>, size: i64) {
    let mut world = world(1, 100, PreemptionRules::fair_sharing());
    world.rules.fair_within_nominal = Switch::Off;
    measure(bencher, world, &[("cpu", size), ("memory", size)], Mode::Reclaim);
}

#[divan::bench(sample_count = 1_000, sample_size = 1)]
fn finds_nobody_to_preempt(bencher: Bencher<'_, '_>) {
    let mut world = world(1, 100, PreemptionRules::Classical);
    world.asker = {
        let mut queue = queue("q0-0".to_owned(), "c0".to_owned(), 99);
        queue.preemption.reclaim_within_cohort = Reclaim::LowerPriority;
        CompiledQueue::of(&mut world.ground, &queue)
    };
    world.priority = 0;
    measure(bencher, world, &[("cpu", 1), ("memory", 1)], Mode::NoCandidates);
}

/// A whole tournament of a thousand heads in one cohort.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn tournament_of_1000_heads(bencher: Bencher<'_, '_>) {
    let mut ground = Ground::default();
    let contenders: Vec<Contender> = (0..1_000)
        .map(|index| {
            let node = ground.put_queue(&queue(format!("q{index}"), "c".to_owned(), 1));
            let pair = ground.pair(&"small".into(), &"cpu".into());
            Contender {
                node,
                usage: vec![(pair, i128::try_from(index % 7 + 1).unwrap())],
                level: 0,
                priority: 0,
                queue_time: at(index),
                preemptor: false,
                second_pass: false,
            }
        })
        .collect();
    let rules = Rules::default();
    bencher
        .with_inputs(|| contenders.clone())
        .bench_local_values(|contenders| {
            let mut tournament = Tournament::new(&ground, contenders);
            std::iter::from_fn(|| tournament.next(&mut ground, &rules)).count()
        });
}
