//! Spec: admission-engine 2.4, 2.8.1, behaviours B084 to B097 and B134 to B140.

use proptest::prelude::{Strategy as _, any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::{Counting, Exact, FlavorResource, Forest, NodeId};
use crate::amount::Amount;
use crate::queue::{ClusterQueue, Cohort, FlavorQuota, Quota, ResourceGroup, Weight};
use crate::state::fixtures::cluster_queue;

/// Nominal quota, borrowing limit, lending limit.
type Limits = (i64, Option<i64>, Option<i64>);

fn groups(quotas: &[(&str, &str, Limits)]) -> Vec<ResourceGroup> {
    let quota = |(nominal, borrow, lend): Limits| Quota {
        nominal: Amount::new(nominal),
        borrowing_limit: borrow.map(Amount::new),
        lending_limit: lend.map(Amount::new),
    };
    quotas
        .iter()
        .map(|(flavor, resource, limits)| ResourceGroup {
            covered: vec![(*resource).into()],
            flavors: vec![FlavorQuota {
                name: (*flavor).into(),
                quotas: [((*resource).into(), quota(*limits))].into(),
            }],
        })
        .collect()
}

fn queue(name: &str, cohort: &str, limits: Limits) -> ClusterQueue {
    let mut queue = cluster_queue(name, groups(&[("default", "cpu", limits)]));
    queue.cohort = (!cohort.is_empty()).then(|| cohort.into());
    queue
}

fn cohort(name: &str, parent: &str, limits: Limits) -> Cohort {
    Cohort {
        name: name.into(),
        parent: (!parent.is_empty()).then(|| parent.into()),
        groups: groups(&[("default", "cpu", limits)]),
        weight: Weight::ONE,
    }
}

const fn own(nominal: i64) -> Limits {
    (nominal, None, None)
}

struct World {
    forest: Forest,
    cpu: FlavorResource,
}

impl World {
    fn new(cohorts: &[Cohort], queues: &[ClusterQueue]) -> Self {
        let mut forest = Forest::default();
        let cpu = forest.pair(&"default".into(), &"cpu".into());
        for queue in queues {
            forest.put_queue(queue);
        }
        for cohort in cohorts {
            forest.put_cohort(cohort);
        }
        Self { forest, cpu }
    }

    fn at(&self, name: &str) -> NodeId {
        let queue = self.forest.queue(&name.into());
        queue.or_else(|| self.forest.cohort(&name.into())).unwrap()
    }

    fn using(mut self, usage: &[(&str, Exact)]) -> Self {
        for (name, value) in usage {
            self.forest.add(self.at(name), self.cpu, *value);
        }
        self
    }

    fn available(&self, names: &[&str]) -> Vec<i64> {
        let value = |name: &&str| {
            self.forest
                .available(self.at(name), self.cpu)
                .max(Amount::ZERO)
                .get()
        };
        names.iter().map(value).collect()
    }

    fn potential(&self, names: &[&str]) -> Vec<i64> {
        let value = |name: &&str| self.forest.potential(self.at(name), self.cpu).get();
        names.iter().map(value).collect()
    }
}

/// Spec: admission-engine B084.
#[test]
fn a_queue_may_use_what_its_cohort_leaves_idle_up_to_its_borrowing_limit() {
    for (limit, most) in [(None, 10), (Some(0), 5), (Some(2), 7)] {
        let world = World::new(
            &[],
            &[queue("a", "all", (5, limit, None)), queue("b", "all", own(5))],
        );
        assert_eq!(world.available(&["a"]), [most]);
    }
}

/// Spec: admission-engine B085, B086, B087.
#[test]
fn availability_follows_borrowing_and_lending_limits() {
    let world =
        World::new(&[cohort("all", "", own(10))], &[queue("cq1", "all", own(10))]).using(&[("cq1", 11)]);
    assert_eq!(
        (world.available(&["cq1"]), world.potential(&["cq1"])),
        (vec![9], vec![20])
    );

    let names = ["cq1", "cq2", "cq3"];
    let queues = [
        queue("cq1", "all", own(10)),
        queue("cq2", "all", (10, Some(2), None)),
        queue("cq3", "all", (10, None, Some(5))),
    ];
    let world =
        World::new(&[cohort("all", "", own(10))], &queues).using(&[("cq1", 20), ("cq2", 10), ("cq3", 6)]);
    assert_eq!(world.available(&names), [4, 2, 4]);
    assert_eq!(world.potential(&names), [35, 12, 40]);
    assert_eq!(world.forest.usage(world.at("all"), world.cpu), 31);
}

/// Spec: admission-engine B088, B089, B090.
#[test]
fn availability_crosses_levels_of_cohorts() {
    let cohorts = [
        cohort("root", "", own(10)),
        cohort("left", "root", own(10)),
        cohort("right", "root", own(0)),
    ];
    let queues = [
        queue("cq1", "left", own(10)),
        queue("cq2", "right", (10, None, Some(0))),
    ];
    let world = World::new(&cohorts, &queues).using(&[("cq1", 10), ("cq2", 5)]);
    assert_eq!(world.available(&["cq1", "cq2"]), [20, 25]);
    assert_eq!(world.potential(&["cq1", "cq2"]), [30, 40]);

    let cohorts = [
        cohort("root", "", own(0)),
        cohort("left", "root", (10, Some(5), None)),
        cohort("right", "root", own(10)),
    ];
    let queues = [
        queue("left-cq1", "left", own(10)),
        queue("left-cq2", "left", (10, Some(5), None)),
        queue("right-cq", "right", own(10)),
    ];
    let world = World::new(&cohorts, &queues);
    assert_eq!(
        world.available(&["left-cq1", "left-cq2", "right-cq"]),
        [35, 15, 50]
    );

    let cohorts = [
        cohort("root", "", own(0)),
        cohort("left", "root", (0, None, Some(5))),
        cohort("right", "root", own(0)),
    ];
    let queues = [
        queue("left-cq1", "left", (10, None, Some(5))),
        queue("left-cq2", "left", own(10)),
        queue("right-cq", "right", own(0)),
        queue("root-cq", "root", own(0)),
    ];
    let world = World::new(&cohorts, &queues);
    assert_eq!(
        world.available(&["left-cq1", "left-cq2", "right-cq", "root-cq"]),
        [20, 15, 5, 5]
    );
}

/// Spec: admission-engine B091, B092.
#[test]
fn overuse_spills_and_what_is_not_lent_stays() {
    let cohorts = [cohort("all", "", own(10))];
    let queues = [
        queue("cq1", "all", own(10)),
        queue("cq2", "all", (10, Some(0), Some(0))),
    ];
    let world = World::new(&cohorts, &queues).using(&[("cq1", 31)]);
    assert_eq!(world.available(&["cq1", "cq2"]), [0, 0]);
    assert_eq!(world.potential(&["cq1", "cq2"]), [20, 10]);

    let world = World::new(
        &[],
        &[queue("a", "all", (10, None, Some(0))), queue("b", "all", own(5))],
    );
    assert_eq!(world.available(&["a", "b"]), [15, 5]);
}

/// Spec: admission-engine B094.
#[test]
fn a_circle_of_cohorts_is_seen_and_can_be_broken() {
    let mut world = World::new(
        &[cohort("A", "B", own(1)), cohort("B", "A", own(2))],
        &[queue("q", "A", own(4)), queue("free", "C", own(8))],
    );
    assert!(world.forest.in_cycle(world.at("q")));
    assert!(!world.forest.in_cycle(world.at("free")));
    world.forest.put_cohort(&cohort("A", "", own(1)));
    assert!(!world.forest.in_cycle(world.at("q")));
    assert_eq!(world.available(&["q"]), [7]);
    world.forest.put_cohort(&cohort("self", "self", own(1)));
    assert!(world.forest.in_cycle(world.at("self")));
}

/// Spec: admission-engine B095.
#[test]
fn the_borrowing_level_is_the_height_of_the_smallest_subtree_with_room() {
    let cohorts = [cohort("R", "", own(0)), cohort("C", "R", own(2))];
    let world = World::new(&cohorts, &[queue("q2", "R", own(5)), queue("q", "C", own(0))]);
    let level = |value| {
        let fit = world
            .forest
            .smallest_fit(world.at("q"), world.cpu, value, Counting::Usage);
        (fit.height, fit.below_root)
    };
    assert_eq!(
        [level(2), level(3), level(8)],
        [(1, true), (2, false), (2, false)]
    );
    assert_eq!(world.potential(&["q"]), [7]);
}

/// Spec: admission-engine B096.
#[test]
fn quotas_without_bound_do_not_wrap() {
    let queues = [queue("a", "all", own(i64::MAX)), queue("b", "all", own(i64::MAX))];
    let world = World::new(&[], &queues).using(&[("a", 5), ("b", Exact::from(i64::MAX))]);
    assert_eq!(world.available(&["a", "b", "all"]), [i64::MAX; 3]);
}

/// Spec: admission-engine B097.
#[test]
fn usage_moves_with_its_queue() {
    let mut world = World::new(
        &[],
        &[
            queue("q", "X", own(2)),
            queue("x", "X", own(3)),
            queue("y", "Y", own(4)),
        ],
    )
    .using(&[("q", 5)]);
    let before = world.forest.generation(world.at("x"));
    world.forest.put_queue(&queue("q", "Y", own(2)));
    assert_eq!(world.forest.usage(world.at("X"), world.cpu), 0);
    assert_eq!(world.forest.usage(world.at("Y"), world.cpu), 5);
    assert_eq!(world.available(&["x", "y"]), [3, 1]);
    assert!(world.forest.generation(world.at("x")) > before);
    assert_eq!(world.forest.path_text(world.at("q")), "/Y/q");
    // No object names the cohort any more.
    world.forest.put_queue(&queue("x", "", own(3)));
    assert_eq!(world.forest.cohort(&"X".into()), None);
}

#[test]
fn usage_of_a_queue_that_is_not_known_yet_counts_once_it_is() {
    let mut world = World::new(&[], &[queue("b", "all", own(5))]);
    let node = world.forest.ensure_queue(&"a".into());
    world.forest.add(node, world.cpu, 3);
    assert_eq!(world.forest.put_queue(&queue("a", "all", own(1))), node);
    assert_eq!(world.available(&["b"]), [3]);
    world.forest.drop_queue(&"a".into());
    assert_eq!(
        (world.available(&["b"]), world.forest.queue(&"a".into())),
        (vec![5], Some(node))
    );
    world.forest.remove(node, world.cpu, 3);
    world.forest.released(node);
    assert_eq!(world.forest.queue(&"a".into()), None);
}

/// A queue `q` with these quotas and usages, beside a queue that has the rest of what the cohort lends.
fn shared(cells: &[(&str, i64, i64, i64)], weight: Weight) -> (Forest, NodeId) {
    let mut forest = Forest::default();
    let quotas: Vec<_> = cells
        .iter()
        .map(|(r, nominal, _, _)| ("default", *r, own(*nominal)))
        .collect();
    let mut taker = cluster_queue("q", groups(&quotas));
    (taker.cohort, taker.weight) = (Some("all".into()), weight);
    let rest: Vec<_> = cells
        .iter()
        .map(|(r, nominal, _, lendable)| ("default", *r, (lendable - nominal, None, None)))
        .collect();
    let mut giver = cluster_queue("other", groups(&rest));
    giver.cohort = Some("all".into());
    forest.put_queue(&giver);
    let node = forest.put_queue(&taker);
    for (resource, _, used, _) in cells {
        let pair = forest.pair(&"default".into(), &(*resource).into());
        forest.add(node, pair, Exact::from(*used));
    }
    (forest, node)
}

/// Spec: admission-engine B134, B135, B136, B137, B138, B140.
#[test]
fn the_share_is_what_is_borrowed_of_what_can_be_lent_for_the_weight() {
    let weight = |whole: u64| Weight::from_nano(whole * 1_000_000_000);
    let reported = |cells: &[(&str, i64, i64, i64)], weight| {
        let (forest, node) = shared(cells, weight);
        forest.share(node).reported()
    };
    assert_eq!(reported(&[("gpu", 5, 7, 10)], weight(1)), 200);
    assert_eq!(reported(&[("gpu", 5, 7, 10)], weight(2)), 100);
    assert_eq!(reported(&[("cpu", 500, 501, 1500)], weight(1)), 1);
    assert_eq!(reported(&[("cpu", 500, 800, 1500)], weight(300)), 1);
    assert_eq!(reported(&[("cpu", 2, 5, 10)], weight(1)), 300);
    assert_eq!(reported(&[("cpu", 2, 3, 10)], Weight::ZERO), i64::MAX);
    assert_eq!(reported(&[("cpu", 2, 2, 10)], Weight::ZERO), 0);
    let (forest, node) = shared(&[("cpu", 2, 3, 10), ("gpu", 5, 3, 10)], Weight::ONE);
    let share = forest.share(node);
    assert_eq!((share.reported(), share.dominant), (100, Some("cpu".into())));
}

/// Spec: admission-engine B139.
#[test]
fn what_nobody_lends_does_not_count_in_the_share() {
    let mut forest = Forest::default();
    let none = (5, None, Some(0));
    for name in ["q", "other"] {
        let mut queue = cluster_queue(
            name,
            groups(&[("default", "cpu", own(5)), ("default", "gpu", none)]),
        );
        queue.cohort = Some("all".into());
        forest.put_queue(&queue);
    }
    let node = forest.queue(&"q".into()).unwrap();
    for (resource, used) in [("cpu", 6), ("gpu", 9)] {
        let pair = forest.pair(&"default".into(), &resource.into());
        forest.add(node, pair, used);
    }
    let share = forest.share(node);
    assert_eq!((share.reported(), share.dominant), (100, Some("cpu".into())));
}

/// A change of a small forest.
#[derive(Clone, Debug)]
enum Change {
    Queue(usize, Option<usize>, Limits),
    Cohort(usize, Option<usize>, Limits),
    DropQueue(usize),
    DropCohort(usize),
    Add(usize, i64),
}

fn limits() -> impl proptest::strategy::Strategy<Value = Limits> {
    let limit = || prop::option::of(0..20_i64);
    (0..20_i64, limit(), limit())
}

fn change() -> impl proptest::strategy::Strategy<Value = Change> {
    let parent = || prop::option::of(0..4_usize);
    proptest::prop_oneof![
        (0..5_usize, parent(), limits()).prop_map(|(at, parent, l)| Change::Queue(at, parent, l)),
        (0..4_usize, parent(), limits()).prop_map(|(at, parent, l)| Change::Cohort(at, parent, l)),
        (0..5_usize).prop_map(Change::DropQueue),
        (0..4_usize).prop_map(Change::DropCohort),
        (0..5_usize, 0..15_i64).prop_map(|(at, value)| Change::Add(at, value)),
    ]
}

fn name(letter: &str, at: usize) -> String {
    format!("{letter}{at}")
}

/// Every sum, computed again from the leaves.
fn audit(forest: &Forest, cpu: FlavorResource) -> Result<(), proptest::test_runner::TestCaseError> {
    for node in forest.nodes.iter().flatten() {
        let cell = node.cell(cpu);
        let children: Vec<_> = node.children.iter().map(|id| forest.cell(*id, cpu)).collect();
        let quota: Exact = children.iter().map(super::Cell::shown_quota).sum();
        prop_assert_eq!(cell.subtree, cell.nominal + quota, "quota of {:?}", node.name);
        if !children.is_empty() {
            let usage: Exact = children.iter().map(super::Cell::shown_usage).sum();
            prop_assert_eq!(cell.usage, usage, "usage of {:?}", node.name);
        }
        let heights = node.children.iter().filter_map(|id| forest.node(*id));
        let height = heights
            .filter(|child| child.height > 0 || matches!(child.name, super::NodeName::Queue(_)))
            .map(|child| child.height + 1)
            .max();
        prop_assert_eq!(node.height, height.unwrap_or(0), "height of {:?}", node.name);
        prop_assert!(node.parent.is_none_or(|parent| forest.node(parent).is_some()));
    }
    Ok(())
}

proptest! {
    /// Sums are right after any changes in any order, and adding then removing leaves no trace.
    #[test]
    fn sums_are_exact_after_any_changes(changes in prop::collection::vec(change(), 1..40), probe in any::<bool>()) {
        let mut forest = Forest::default();
        let cpu = forest.pair(&"default".into(), &"cpu".into());
        for change in changes {
            match change {
                Change::Queue(at, parent, limits) => {
                    let parent = parent.map_or_else(String::new, |p| name("c", p));
                    forest.put_queue(&queue(&name("q", at), &parent, limits));
                }
                Change::Cohort(at, parent, limits) => {
                    let parent = parent.map_or_else(String::new, |p| name("c", p));
                    forest.put_cohort(&cohort(&name("c", at), &parent, limits));
                }
                Change::DropQueue(at) => forest.drop_queue(&name("q", at).as_str().into()),
                Change::DropCohort(at) => forest.drop_cohort(&name("c", at).as_str().into()),
                Change::Add(at, value) => {
                    let node = forest.ensure_queue(&name("q", at).as_str().into());
                    forest.add(node, cpu, Exact::from(value));
                }
            }
            audit(&forest, cpu)?;
            if probe && let Some(node) = forest.queue(&"q0".into()) {
                let before = format!("{forest:?}");
                forest.add(node, cpu, 7);
                forest.remove(node, cpu, 7);
                prop_assert_eq!(before, format!("{forest:?}"));
            }
        }
    }
}
