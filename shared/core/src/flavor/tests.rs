//! Spec: admission-engine 2.5, behaviours B052 to B083.

use std::collections::BTreeMap;

use super::{Category, Remedy};
use crate::amount::Amount;
use crate::name::FlavorName;
use crate::nominate::scene::{Scene, asks, cpu_group, own, queue as member};
use crate::nominate::{Mode, Refusal};
use crate::queue::{
    ClusterQueue, Flavor, FlavorPreference, Fungibility, Reclaim, ResourceGroup, Weight, WithinClusterQueue,
};
use crate::rules::{Rules, Switch, Undeclared};
use crate::state::fixtures::{cluster_queue, flavor, group, pod_set, workload};
use crate::status::Assignment;
use crate::taint::{Effect, Taint, Toleration};
use crate::workload::{AffinityTerm, Operator, PodSet, Requirement};

struct Case {
    queue: ClusterQueue,
    flavors: BTreeMap<FlavorName, Flavor>,
    used: Vec<(&'static str, i64)>,
    undeclared: Undeclared,
}

impl Case {
    fn new(groups: Vec<ResourceGroup>) -> Self {
        let named = groups.iter().flat_map(|g| &g.flavors);
        let flavors = named.map(|f| (f.name.clone(), flavor(f.name.as_str()))).collect();
        Self {
            queue: cluster_queue("cq", groups),
            flavors,
            used: Vec::new(),
            undeclared: Undeclared::Refuse,
        }
    }

    fn edit(mut self, name: &str, change: impl FnOnce(&mut Flavor)) -> Self {
        change(self.flavors.get_mut(&FlavorName::from(name)).unwrap());
        self
    }

    fn using(mut self, flavor: &'static str, cpu: i64) -> Self {
        self.used.push((flavor, cpu * 1_000));
        self
    }

    fn assign(&self, pod_sets: &[PodSet]) -> Result<Vec<Assignment>, Refusal> {
        let undeclared = self.undeclared;
        let rules = |rules: &mut Rules| rules.undeclared = undeclared;
        let mut scene = Scene::default().rules(rules).queue(&self.queue);
        scene.flavors.clone_from(&self.flavors);
        for (flavor, cpu) in &self.used {
            scene = scene.holds_of(flavor, "cq", &format!("user-{flavor}"), 0, *cpu);
        }
        let nomination = scene.nominate("cq", &workload("w", 0, pod_sets.to_vec()));
        nomination.refusal.map_or(Ok(nomination.pod_sets), Err)
    }

    /// The flavor of each resource of each pod set, as `cpu=f1`.
    fn gives(&self, pod_sets: &[PodSet], expect: &[&str]) {
        let assignments = self.assign(pod_sets).unwrap();
        let lines: Vec<String> = assignments
            .iter()
            .map(|a| {
                let pairs: Vec<_> = a.flavors.iter().map(|(r, f)| format!("{r}={f}")).collect();
                pairs.join(" ")
            })
            .collect();
        assert_eq!(lines, expect);
    }

    fn refuses(&self, pod_sets: &[PodSet], category: Category, message: &str) -> Remedy {
        let refusal = self.assign(pod_sets).unwrap_err();
        assert_eq!((refusal.category, refusal.message.as_str()), (category, message));
        refusal.remedy
    }
}

fn two_flavors(first: i64, second: i64) -> Case {
    Case::new(vec![group(&[
        ("f1", &[("cpu", first * 1_000)]),
        ("f2", &[("cpu", second * 1_000)]),
    ])])
}

fn one_flavor(cpu: i64) -> Case {
    Case::new(vec![group(&[("default", &[("cpu", cpu * 1_000)])])])
}

fn pods(count: u32, cpu: i64) -> PodSet {
    pod_set("main", count, &[("cpu", cpu * 1_000)])
}

fn spot() -> Taint {
    Taint {
        key: "instance".to_owned(),
        value: "spot".to_owned(),
        effect: Effect::NoSchedule,
        time_added: None,
    }
}

fn toleration(key: Option<&str>, operator: Option<&str>, value: Option<&str>) -> Toleration {
    Toleration {
        key: key.map(str::to_owned),
        operator: operator.map(str::to_owned),
        value: value.map(str::to_owned),
        effect: None,
        seconds: None,
    }
}

fn label(flavor: &mut Flavor, key: &str, value: &str) {
    flavor.node_labels.insert(key.to_owned(), value.to_owned());
}

fn term(key: &str, value: &str) -> AffinityTerm {
    AffinityTerm {
        expressions: vec![Requirement {
            key: key.to_owned(),
            operator: Operator::In,
            values: vec![value.to_owned()],
        }],
    }
}

/// Spec: admission-engine 9.3 B052 B053.
#[test]
fn requests_are_multiplied_by_the_count() {
    let given = one_flavor(9).using("default", 6).assign(&[pods(3, 1)]).unwrap();
    assert_eq!(given[0].count, 3);
    assert_eq!(given[0].usage[&"cpu".into()], Amount::new(3_000));
}

/// Spec: admission-engine 2.5.3, 9.3 B054.
#[test]
fn more_than_the_queue_could_ever_give_exceeds_the_maximum() {
    let remedy = one_flavor(9).refuses(
        &[pods(1, 10)],
        Category::ExceedsMaxQuota,
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered \
         podsets requests (0) + current podset request (10) > maximum capacity (9)",
    );
    assert_eq!(remedy, Remedy::Configuration);
}

/// Spec: admission-engine 2.5.3, 9.3 B055 B062.
#[test]
fn what_would_fit_an_idle_queue_waits_for_quota() {
    let text = |n| {
        format!(
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, {n} more needed"
        )
    };
    let remedy =
        one_flavor(9)
            .using("default", 6)
            .refuses(&[pods(1, 4)], Category::WaitingForQuota, &text(1));
    assert_eq!(remedy, Remedy::Capacity);
    one_flavor(4)
        .using("default", 10)
        .refuses(&[pods(1, 3)], Category::WaitingForQuota, &text(3));
}

/// Spec: admission-engine 2.5.1, 9.3 B056.
#[test]
fn undeclared_resources_are_refused_unless_nothing_is_asked_or_they_are_ignored() {
    let gpus = |n| pod_set("main", 1, &[("cpu", 1_000), ("nvidia.com/gpu", n)]);
    let mut case = one_flavor(9);
    let text = "couldn't assign flavors to pod set main: resource nvidia.com/gpu unavailable in ClusterQueue";
    case.refuses(&[gpus(1)], Category::NoMatchingFlavor, text);
    case.gives(&[gpus(0)], &["cpu=default"]);
    case.undeclared = Undeclared::Ignore;
    case.gives(&[gpus(1)], &["cpu=default"]);
}

/// Spec: admission-engine 2.5.1, 9.3 B057.
#[test]
fn pods_are_a_resource_when_the_queue_covers_them() {
    let case = Case::new(vec![group(&[("default", &[("pods", 5)])])]);
    let given = case.assign(&[pod_set("main", 3, &[])]).unwrap();
    assert_eq!(given[0].usage[&"pods".into()], Amount::new(3));
    case.refuses(
        &[pod_set("main", 3, &[]), pod_set("more", 3, &[])],
        Category::ExceedsMaxQuota,
        "couldn't assign flavors to pod set more: insufficient quota for pods in flavor default, previously considered \
         podsets requests (3) + current podset request (3) > maximum capacity (5)",
    );
}

/// Spec: admission-engine 9.4 B067.
#[test]
fn a_full_flavor_is_passed_over() {
    two_flavors(4, 10)
        .using("f1", 3)
        .gives(&[pods(1, 2)], &["cpu=f2"]);
}

/// Spec: admission-engine 2.5.2, 9.4 B068 B069 B070.
#[test]
fn taints_need_a_toleration_of_the_pod_or_of_the_flavor() {
    let tainted = || two_flavors(4, 1).edit("f1", |f| f.taints.push(spot()));
    tainted().gives(&[pods(1, 1)], &["cpu=f2"]);
    tainted().refuses(
        &[pods(1, 2)],
        Category::ExceedsMaxQuota,
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor f2, previously considered podsets \
         requests (0) + current podset request (2) > maximum capacity (1), untolerated taint {instance spot NoSchedule \
         <nil>} in flavor f1",
    );
    for (tolerated, flavor) in [
        (toleration(Some("instance"), None, Some("spot")), "cpu=f1"),
        (toleration(Some("instance"), Some("Exists"), None), "cpu=f1"),
        (toleration(None, Some("Exists"), None), "cpu=f1"),
        (toleration(None, None, Some("spot")), "cpu=f2"),
        (toleration(Some("instance"), None, Some("other")), "cpu=f2"),
    ] {
        let mut pod = pods(1, 1);
        pod.tolerations.push(tolerated.clone());
        tainted().gives(&[pod], &[flavor]);
        tainted()
            .edit("f1", |f| f.tolerations.push(tolerated))
            .gives(&[pods(1, 1)], &[flavor]);
    }
    tainted()
        .edit("f1", |f| f.taints[0].effect = Effect::PreferNoSchedule)
        .gives(&[pods(1, 1)], &["cpu=f1"]);
}

/// Spec: admission-engine 2.5.2, 9.4 B071 B072.
#[test]
fn node_selection_counts_only_for_labels_that_the_flavors_define() {
    let case = two_flavors(4, 4)
        .edit("f1", |f| label(f, "type", "spot"))
        .edit("f2", |f| label(f, "type", "od"));
    let mut pod = pods(1, 1);
    pod.node_selector.insert("zone".to_owned(), "a".to_owned());
    case.gives(&[pod.clone()], &["cpu=f1"]);
    pod.node_selector.insert("type".to_owned(), "od".to_owned());
    case.gives(&[pod.clone()], &["cpu=f2"]);
    pod.node_selector.insert("type".to_owned(), "none".to_owned());
    case.refuses(
        &[pod],
        Category::NoMatchingFlavor,
        "couldn't assign flavors to pod set main: flavor f1 doesn't match node affinity, flavor f2 doesn't match node \
         affinity",
    );

    let mut pod = pods(1, 1);
    pod.affinity = vec![term("type", "od")];
    case.gives(&[pod.clone()], &["cpu=f2"]);
    pod.affinity.push(term("zone", "a"));
    case.gives(&[pod], &["cpu=f1"]);

    let case = case.edit("f2", |f| label(f, "zone", "b"));
    let mut pod = pods(1, 1);
    pod.node_selector.insert("type".to_owned(), "spot".to_owned());
    pod.node_selector.insert("zone".to_owned(), "a".to_owned());
    case.gives(&[pod.clone()], &["cpu=f1"]);
    pod.node_selector.remove("zone");
    pod.affinity = vec![term("zone", "a")];
    case.gives(&[pod], &["cpu=f1"]);
}

/// Spec: admission-engine 2.5.2.
#[test]
fn no_flavor_suits_pods_that_ask_for_places_by_topology() {
    let pod = PodSet {
        asks_topology: true,
        ..pods(1, 1)
    };
    let remedy = one_flavor(4).refuses(
        &[pod],
        Category::NoMatchingFlavor,
        "couldn't assign flavors to pod set main: Flavor \"default\" does not support TopologyAwareScheduling, which is not \
         built here: remove the topology annotations of the pod template",
    );
    assert_eq!(remedy, Remedy::Configuration);
    let idle = PodSet {
        asks_topology: true,
        ..pod_set("main", 1, &[])
    };
    one_flavor(4).refuses(
        &[idle],
        Category::NoMatchingFlavor,
        "couldn't assign flavors to pod set main: no support for TopologyAwareScheduling, which is not built here: remove the \
         topology annotations of the pod template",
    );
}

/// Spec: admission-engine 9.4 B073 B074.
#[test]
fn resources_of_one_group_share_a_flavor_and_groups_are_independent() {
    let both = |cpu, memory| [("cpu", cpu), ("memory", memory)];
    let case = Case::new(vec![
        group(&[("f1", &both(1_000, 99)), ("f2", &both(9_000, 10))]),
        group(&[("g1", &[("gpu", 0)]), ("g2", &[("gpu", 4)])]),
    ]);
    let pod = pod_set("main", 1, &[("cpu", 2_000), ("gpu", 1), ("memory", 5)]);
    case.gives(&[pod], &["cpu=f2 gpu=g2 memory=f2"]);
}

/// Spec: admission-engine 2.5.1, 9.3 B065, 9.4 B075.
#[test]
fn earlier_pod_sets_count_for_later_ones_and_all_get_quota_or_none() {
    let three = |name| pod_set(name, 1, &[("cpu", 3_000)]);
    two_flavors(5, 5).gives(&[three("a"), three("b")], &["cpu=f1", "cpu=f2"]);
    one_flavor(5).refuses(
        &[three("a"), three("b")],
        Category::ExceedsMaxQuota,
        "couldn't assign flavors to pod set b: insufficient quota for cpu in flavor default, previously considered podsets \
         requests (3) + current podset request (3) > maximum capacity (5)",
    );
}

/// Spec: admission-engine 2.5.6.
#[test]
fn the_least_severe_flavor_of_a_group_and_the_most_severe_pod_set_count() {
    let case = two_flavors(1, 5).using("f2", 5);
    case.refuses(
        &[pods(1, 2)],
        Category::WaitingForQuota,
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor f1, previously considered podsets \
         requests (0) + current podset request (2) > maximum capacity (1), insufficient unused quota for cpu in flavor f2, \
         2 more needed",
    );
    let gpus = pod_set("gpus", 1, &[("gpu", 1)]);
    case.refuses(
        &[pods(1, 1), gpus.clone()],
        Category::NoMatchingFlavor,
        "couldn't assign flavors to pod set gpus: resource gpu unavailable in ClusterQueue",
    );
    let refusal = case.assign(&[pods(1, 3), gpus]).unwrap_err();
    assert_eq!(refusal.category, Category::NoMatchingFlavor);
    assert!(refusal.message.contains("2 more needed; ") || refusal.message.contains("; couldn't assign"));
}

/// Spec: admission-engine 2.5.2.
#[test]
fn a_missing_flavor_object_is_named() {
    let mut case = one_flavor(5);
    case.flavors.clear();
    let text = "couldn't assign flavors to pod set main: flavor default not found";
    case.refuses(&[pods(1, 1)], Category::NoMatchingFlavor, text);
}

fn preempting(mut queue: ClusterQueue) -> ClusterQueue {
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    queue
}

fn two(name: &str, cohort: &str, first: i64, second: i64) -> ClusterQueue {
    let mut queue = member(name, cohort, own(0));
    queue.groups = vec![cpu_group(&[("f1", own(first)), ("f2", own(second))])];
    queue
}

fn given(scene: &mut Scene, priority: i32, cpu: i64) -> (String, Mode) {
    scene.flavor_of("q", &asks("incoming", priority, cpu))
}

fn is(flavor: &str, mode: Mode) -> (String, Mode) {
    (flavor.to_owned(), mode)
}

/// Spec: admission-engine B076.
#[test]
fn whether_to_borrow_or_to_try_the_next_flavor_is_up_to_the_queue() {
    let scene = |when| {
        let mut q = two("q", "all", 4_000, 10_000);
        q.fungibility.when_can_borrow = when;
        Scene::default()
            .queue(&q)
            .queue(&two("idle", "all", 10_000, 0))
            .holds_of("f1", "q", "full", 0, 4_000)
    };
    assert_eq!(
        given(&mut scene(Fungibility::MayStopSearch), 0, 2_000),
        is("f1", Mode::Fit)
    );
    let mut next = scene(Fungibility::TryNextFlavor);
    assert_eq!(given(&mut next, 0, 2_000), is("f2", Mode::Fit));
    let nomination = next.nominate("q", &asks("incoming", 0, 2_000));
    assert_eq!(
        (nomination.level, nomination.considered.as_str()),
        (0, "main: f1(Fit;borrow=1), f2(Fit)")
    );
    next.rules.flavor_fungibility = Switch::Off;
    assert_eq!(given(&mut next, 0, 2_000), is("f1", Mode::Fit));
}

/// Spec: admission-engine B077, B078.
#[test]
fn whether_to_preempt_or_to_try_the_next_flavor_is_up_to_the_queue() {
    let scene = |when, priority| {
        let mut q = preempting(two("q", "", 4_000, 10_000));
        q.fungibility.when_can_preempt = when;
        Scene::default()
            .queue(&q)
            .holds_of("f1", "q", "full", priority, 4_000)
    };
    assert_eq!(
        given(&mut scene(Fungibility::TryNextFlavor, -1), 0, 2_000),
        is("f2", Mode::Fit)
    );
    assert_eq!(
        given(&mut scene(Fungibility::MayStopSearch, -1), 0, 2_000),
        is("f1", Mode::Preempt)
    );
    assert_eq!(
        given(&mut scene(Fungibility::MayStopSearch, 0), 0, 2_000),
        is("f2", Mode::Fit)
    );
}

/// Spec: admission-engine B079, B080.
#[test]
fn borrowing_and_preempting_are_weighed_as_the_queue_prefers() {
    use FlavorPreference::{BorrowingOverPreemption, PreemptionOverBorrowing};

    let scene = |preference, priority| {
        let mut q = preempting(two("q", "all", 4_000, 0));
        q.fungibility.when_can_preempt = Fungibility::TryNextFlavor;
        q.fungibility.when_can_borrow = Fungibility::TryNextFlavor;
        q.fungibility.preference = preference;
        Scene::default()
            .queue(&q)
            .queue(&two("idle", "all", 0, 10_000))
            .holds_of("f1", "q", "full", priority, 4_000)
    };
    assert_eq!(
        given(&mut scene(BorrowingOverPreemption, -1), 0, 4_000),
        is("f2", Mode::Fit)
    );
    assert_eq!(
        given(&mut scene(PreemptionOverBorrowing, -1), 0, 4_000),
        is("f1", Mode::Preempt)
    );
    assert_eq!(
        given(&mut scene(PreemptionOverBorrowing, 0), 0, 4_000),
        is("f2", Mode::Fit)
    );
}

/// Spec: admission-engine B081.
#[test]
fn an_attempt_goes_on_where_the_one_before_stopped() {
    let mut q = preempting(member("q", "", own(0)));
    q.groups = vec![cpu_group(&[
        ("f1", own(4_000)),
        ("f2", own(4_000)),
        ("f3", own(4_000)),
    ])];
    q.fungibility.when_can_preempt = Fungibility::MayStopSearch;
    let mut scene = ["f1", "f2", "f3"]
        .iter()
        .fold(Scene::default().queue(&q), |scene, flavor| {
            scene.holds_of(flavor, "q", &format!("full-{flavor}"), -1, 4_000)
        });
    let workload = asks("incoming", 0, 2_000);
    let mut progress = None;
    for (flavor, pending) in [("f1", true), ("f2", true), ("f3", false), ("f1", true)] {
        let nomination = scene.nominate_with("q", &workload, progress.as_ref(), None);
        assert_eq!(nomination.pod_sets[0].flavors[&"cpu".into()].as_str(), flavor);
        assert_eq!(nomination.progress.is_pending(), pending);
        progress = Some(nomination.progress);
    }
}

/// Spec: admission-engine B082.
#[test]
fn of_flavors_that_must_be_borrowed_the_nearest_lender_wins() {
    let mut q = two("q", "near", 0, 0);
    q.fungibility.when_can_borrow = Fungibility::TryNextFlavor;
    let mut scene = Scene::default()
        .cohort("near", "far", own(0), Weight::ONE)
        .queue(&q)
        .queue(&two("lender", "near", 0, 4_000))
        .queue(&two("distant", "far", 4_000, 0));
    assert_eq!(given(&mut scene, 0, 2_000), is("f2", Mode::Fit));
}

/// Spec: admission-engine B083.
#[test]
fn pod_sets_of_one_group_get_one_flavor() {
    let grouped = |name, cpu: i64| {
        let mut pod_set = pod_set(name, 1, &[("cpu", cpu * 1_000)]);
        pod_set.group = Some("job".to_owned());
        pod_set
    };
    two_flavors(4, 8).gives(
        &[grouped("leader", 1), grouped("workers", 4)],
        &["cpu=f2", "cpu=f2"],
    );
    two_flavors(4, 4).refuses(
        &[grouped("leader", 1), grouped("workers", 4)],
        Category::ExceedsMaxQuota,
        "couldn't assign flavors to pod set leader: insufficient quota for cpu in flavor f1, previously considered podsets \
         requests (0) + current podset request (5) > maximum capacity (4), insufficient quota for cpu in flavor f2, \
         previously considered podsets requests (0) + current podset request (5) > maximum capacity (4); couldn't assign \
         flavors to pod set workers: insufficient quota for cpu in flavor f1, previously considered podsets requests (0) + \
         current podset request (5) > maximum capacity (4), insufficient quota for cpu in flavor f2, previously considered \
         podsets requests (0) + current podset request (5) > maximum capacity (4)",
    );
}

/// Spec: admission-engine 2.5.3 (when the oracle is asked at all).
#[test]
fn preemption_is_not_considered_for_what_only_the_whole_cohort_could_lend() {
    let mut q = preempting(member("q", "all", own(2_000)));
    q.preemption.reclaim_within_cohort = Reclaim::Any;
    let mut scene = Scene::default()
        .queue(&q)
        .queue(&member("other", "all", own(8_000)))
        .holds("q", "low", -1, 2_000)
        .holds("other", "rightful", -1, 8_000);
    assert_eq!(given(&mut scene, 0, 4_000), is("", Mode::NoFit));
    assert_eq!(given(&mut scene, 0, 2_000), is("default", Mode::Preempt));
}
