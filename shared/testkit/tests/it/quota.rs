//! The product's forest and the reference model answer the same questions.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roadstead_core::amount::Amount;
use roadstead_core::hierarchy::{Counting, FlavorResource, Forest, NodeId};
use roadstead_core::queue::{ClusterQueue, Cohort, FlavorQuota, Quota, ResourceGroup, Weight};
use roadstead_testkit::reference::{self, Model, Node, Pair};

/// How many random forests are compared.
const CASES: u64 = 100_000;
/// How many threads share them.
const PARTS: u64 = 4;
const PAIRS: [Pair; 3] = [(0, 0), (1, 0), (0, 1)];
const FLAVORS: [&str; 2] = ["f0", "f1"];
const RESOURCES: [&str; 2] = ["cpu", "gpu"];
/// Weights in halves.
const WEIGHTS: [u32; 4] = [0, 1, 2, 5];

/// Cohorts first, each below an earlier one or a root; then queues anywhere.
fn model(dice: &mut ChaCha8Rng) -> Model {
    let (cohorts, queues) = (dice.random_range(0..4_usize), dice.random_range(1..5_usize));
    let node = |at: usize| {
        let above = at.min(cohorts);
        let parent = (above > 0 && dice.random_ratio(4, 5)).then(|| dice.random_range(0..above));
        let quotas = PAIRS.map(|pair| {
            let mut limit = || dice.random_ratio(1, 3).then(|| dice.random_range(0..25));
            let (borrow, lend) = (limit(), limit());
            let nominal = dice.random_range(0..20);
            (
                pair,
                reference::Quota {
                    nominal,
                    borrow,
                    lend,
                },
            )
        });
        let is_queue = at >= cohorts;
        let used = PAIRS.map(|pair| (pair, if is_queue { dice.random_range(0..25) } else { 0 }));
        Node {
            parent,
            is_queue,
            quotas: BTreeMap::from(quotas),
            used: BTreeMap::from(used),
            weight: f64::from(WEIGHTS[dice.random_range(0..WEIGHTS.len())]) / 2.0,
        }
    };
    Model((0..cohorts + queues).map(node).collect())
}

fn groups(node: &Node) -> Vec<ResourceGroup> {
    let group = |resource: usize| {
        let of = |flavor: usize| {
            let quota = node.quotas.get(&(flavor, resource))?;
            let amount = |value: i128| Amount::new(i64::try_from(value).unwrap());
            let quota = Quota {
                nominal: amount(quota.nominal),
                borrowing_limit: quota.borrow.map(amount),
                lending_limit: quota.lend.map(amount),
            };
            Some(FlavorQuota {
                name: FLAVORS[flavor].into(),
                quotas: [(RESOURCES[resource].into(), quota)].into(),
            })
        };
        ResourceGroup {
            covered: vec![RESOURCES[resource].into()],
            flavors: (0..FLAVORS.len()).filter_map(of).collect(),
        }
    };
    (0..RESOURCES.len()).map(group).collect()
}

fn weight(node: &Node) -> Weight {
    let halves = WEIGHTS
        .into_iter()
        .find(|w| (f64::from(*w) / 2.0 - node.weight).abs() < 0.1)
        .unwrap();
    Weight::from_nano(u64::from(halves) * 500_000_000)
}

fn queue(at: usize, node: &Node) -> ClusterQueue {
    ClusterQueue {
        name: format!("n{at}").into(),
        cohort: node.parent.map(|parent| format!("n{parent}").into()),
        groups: groups(node),
        weight: weight(node),
        ..ClusterQueue::default()
    }
}

/// The product's forest: objects in the given order, usage before, between and after.
fn forest(model: &Model, order: &[usize], dice: &mut ChaCha8Rng) -> Forest {
    let mut forest = Forest::default();
    let mut later = Vec::new();
    for at in order {
        let node = &model.0[*at];
        let name = format!("n{at}");
        for (pair, used) in &node.used {
            if !node.is_queue {
                continue;
            }
            let id = forest.ensure_queue(&name.as_str().into());
            let pair = known(&mut forest, *pair);
            let early = dice.random_range(0..=*used);
            forest.add(id, pair, early);
            later.push((id, pair, used - early));
        }
        if node.is_queue {
            forest.put_queue(&queue(*at, node));
        } else {
            forest.put_cohort(&Cohort {
                name: name.as_str().into(),
                parent: node.parent.map(|parent| format!("n{parent}").into()),
                groups: groups(node),
                weight: weight(node),
            });
        }
    }
    for (id, pair, rest) in later {
        forest.add(id, pair, rest + 3);
        forest.remove(id, pair, 3);
    }
    forest
}

fn known(forest: &mut Forest, (flavor, resource): Pair) -> FlavorResource {
    forest.pair(&FLAVORS[flavor].into(), &RESOURCES[resource].into())
}

fn shuffled(count: usize, dice: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, dice.random_range(0..=at));
    }
    order
}

/// What is printed when the two differ.
#[derive(Debug)]
#[expect(dead_code, reason = "read by the derived Debug alone")]
struct Told<'a>(u64, usize, Pair, &'a Model);

fn saturated(value: i128) -> i64 {
    i64::try_from(value).unwrap()
}

/// Spec: admission-engine 2.4, 2.8.1.
#[test]
fn the_forest_answers_as_the_reference_model_does() {
    std::thread::scope(|scope| {
        for part in 0..PARTS {
            scope.spawn(move || compare((part..CASES).step_by(usize::try_from(PARTS).unwrap())));
        }
    });
}

fn compare(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let model = model(&mut dice);
        let order = shuffled(model.0.len(), &mut dice);
        let mut forest = forest(&model, &order, &mut dice);
        for (at, node) in model.0.iter().enumerate() {
            let name = format!("n{at}");
            let id: NodeId = if node.is_queue {
                forest.queue(&name.as_str().into()).unwrap()
            } else {
                forest.cohort(&name.as_str().into()).unwrap()
            };
            for pair in PAIRS {
                let known = known(&mut forest, pair);
                let told = Told(seed, at, pair, &model);
                assert_eq!(forest.usage(id, known), model.usage(at, pair), "usage: {told:?}");
                let subtree = forest.subtree_quota(id, known).get();
                assert_eq!(subtree, saturated(model.subtree(at, pair)), "quota: {told:?}");
                let available = forest.available(id, known).get();
                assert_eq!(
                    available,
                    saturated(model.available(at, pair)),
                    "available: {told:?}"
                );
                let potential = forest.potential(id, known).get();
                assert_eq!(
                    potential,
                    saturated(model.potential(at, pair)),
                    "potential: {told:?}"
                );
                if node.is_queue {
                    let request = dice.random_range(0..40);
                    let fit = forest.smallest_fit(id, known, request, Counting::Usage);
                    assert_eq!(
                        fit.height,
                        model.level(at, pair, request),
                        "level of {request}: {told:?}"
                    );
                }
            }
            let (share, expected) = (forest.share(id).value(), model.share(at, &PAIRS));
            let same = share.total_cmp(&expected).is_eq() || (share - expected).abs() < 1e-9;
            assert!(
                same,
                "share {share} instead of {expected}: seed {seed}, node {at} of {model:#?}"
            );
        }
    }
}
