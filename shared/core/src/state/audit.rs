//! Random histories, and an auditor that recomputes everything the state keeps incrementally.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::{Just, ProptestConfig, any, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::fixtures::{at, cluster_queue, finish, flavor, group, hold, pod_set, release, workload};
use super::{Event, Pace, Place, Settings, State};
use crate::condition::Truth;
use crate::cycle::Decision;
use crate::name::{ClusterQueueName, Key};
use crate::pending::Wait;
use crate::queue::{Check, LocalQueue, Selector, StopPolicy, Strategy};
use crate::quota::{Ledger, nominal};
use crate::status::{Admission, Requeue};
use crate::workload::{Operator, Requirement, Workload};

#[derive(Clone, Debug)]
enum Step {
    Tell(Event),
    Create {
        number: u8,
        queue: u8,
        cpu: u8,
        count: u8,
        priority: i8,
    },
    Delete(u8),
    Finish(u8),
    Release(u8),
    Backoff(u8, u8),
    Reclaim(u8),
    Toggle(u8),
    Gate(u8),
    Admit(u8),
    Resync,
    Cycle,
    Write,
    Fail,
    Wait(u8),
}

/// The API server and the writer: they hold the Workloads and carry decisions out late.
#[derive(Clone)]
struct Server {
    state: State,
    now: Timestamp,
    workloads: BTreeMap<Key, Workload>,
    unwritten: Vec<Decision>,
    decisions: Vec<Decision>,
    born: u32,
}

fn key(number: u8) -> Key {
    Key::new(
        if number.is_multiple_of(2) { "even" } else { "odd" },
        format!("w{number}"),
    )
}

impl Server {
    fn new() -> Self {
        Self {
            state: State::new(Settings::default()),
            now: at(1_000),
            workloads: BTreeMap::new(),
            unwritten: Vec::new(),
            decisions: Vec::new(),
            born: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Tell(event) => self.state.apply(event.clone(), self.now),
            Step::Create {
                number,
                queue,
                cpu,
                count,
                priority,
            } => {
                if self.workloads.contains_key(&key(*number)) {
                    return;
                }
                self.born += 1;
                let pods = pod_set("main", u32::from(*count), &[("cpu", i64::from(*cpu) * 500)]);
                let mut created = workload("", i64::from(self.born), vec![pods]);
                created.key = key(*number);
                created.uid = format!("uid-{}", self.born).into();
                created.queue = format!("lq{queue}");
                created.priority = i32::from(*priority);
                self.put(created);
            }
            Step::Delete(number) => {
                if let Some(old) = self.workloads.remove(&key(*number)) {
                    let (key, uid) = (old.key, old.uid);
                    self.state.apply(Event::WorkloadGone { key, uid }, self.now);
                }
            }
            Step::Finish(number) => self.edit(*number, finish),
            Step::Release(number) => {
                let now = self.now;
                self.edit(*number, |w| {
                    if w.has_quota() {
                        release(w, now);
                    }
                });
            }
            Step::Backoff(number, seconds) => {
                let until = self.now + SignedDuration::from_secs(i64::from(*seconds));
                let requeue = Requeue {
                    count: Some(1),
                    at: Some(until),
                };
                self.edit(*number, |w| w.status.requeue = Some(requeue));
            }
            Step::Reclaim(number) => self.edit(*number, |w| {
                let most = w.pod_sets[0].count;
                let gone = w.status.reclaimable.entry("main".into()).or_default();
                *gone = gone.saturating_add(1).min(most);
            }),
            Step::Toggle(number) => self.edit(*number, |w| {
                w.active = !w.active;
                w.generation += 1;
            }),
            Step::Gate(number) => self.edit(*number, |w| w.gated = !w.gated),
            Step::Admit(number) => {
                let now = self.now;
                self.edit(*number, |w| {
                    if w.has_quota() {
                        w.status
                            .conditions
                            .set("Admitted", Truth::True, "Admitted", "", now);
                    }
                });
            }
            Step::Resync => {
                for workload in self.workloads.values() {
                    self.state
                        .apply(Event::Workload(Box::new(workload.clone())), self.now);
                }
            }
            Step::Cycle => {
                let decisions = self.state.cycle(self.now);
                audit_quota(&self.state, &decisions);
                self.decisions.extend(decisions.clone());
                self.unwritten.extend(decisions);
            }
            Step::Write => self.write(),
            Step::Fail => self.fail(),
            Step::Wait(seconds) => self.now += SignedDuration::from_secs(i64::from(*seconds)),
        }
    }

    fn put(&mut self, workload: Workload) {
        self.workloads.insert(workload.key.clone(), workload.clone());
        self.state.apply(Event::Workload(Box::new(workload)), self.now);
    }

    fn edit(&mut self, number: u8, change: impl FnOnce(&mut Workload)) {
        if let Some(mut workload) = self.workloads.get(&key(number)).cloned() {
            change(&mut workload);
            self.put(workload);
        }
    }

    fn write(&mut self) {
        let now = self.now;
        for decision in std::mem::take(&mut self.unwritten) {
            let (Decision::Reserve { key, uid, .. } | Decision::NotAdmitted { key, uid, .. }) = &decision;
            let Some(mut workload) = self.workloads.get(key).filter(|w| w.uid == *uid).cloned() else {
                continue;
            };
            match decision {
                Decision::Reserve { key, uid, admission } => {
                    if workload.active && !workload.is_finished() {
                        hold(&mut workload, admission, now);
                    } else {
                        self.state.apply(Event::ReserveFailed { key, uid }, now);
                        continue;
                    }
                }
                Decision::NotAdmitted { reason, message, .. } => {
                    if workload.has_quota() {
                        continue;
                    }
                    let conditions = &mut workload.status.conditions;
                    conditions.set("QuotaReserved", Truth::False, reason.as_str(), message, now);
                }
            }
            self.put(workload);
        }
    }

    fn fail(&mut self) {
        for decision in std::mem::take(&mut self.unwritten) {
            if let Decision::Reserve { key, uid, .. } = decision {
                self.state.apply(Event::ReserveFailed { key, uid }, self.now);
            }
        }
    }

    /// Decides and writes until nothing moves.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.take(&Step::Cycle);
            if self.unwritten.is_empty() && !self.state.has_work() {
                return;
            }
            self.write();
        }
        panic!("the brain does not come to rest");
    }
}

/// What was just given must be within the nominal quota.
fn audit_quota(state: &State, decisions: &[Decision]) {
    for decision in decisions {
        let Decision::Reserve { admission, .. } = decision else {
            continue;
        };
        let Admission {
            cluster_queue,
            pod_sets,
        } = admission;
        let (queue, ledger) = (&state.queues[cluster_queue], &state.ledgers[cluster_queue]);
        assert!(queue.active.is_active());
        for assignment in pod_sets {
            for (resource, flavor) in &assignment.flavors {
                let quotas = queue.spec.groups.iter().flat_map(|g| &g.flavors);
                let quota = quotas.into_iter().find(|q| q.name == *flavor).unwrap();
                let held = ledger.reserved().total(flavor, resource);
                let asked = assignment.usage[resource].get() > 0;
                assert!(
                    !asked || held <= nominal(quota, resource),
                    "{held} of {flavor}/{resource}"
                );
            }
        }
    }
}

/// Recomputes from the records what the state keeps.
fn audit(server: &Server) {
    let state = &server.state;
    let known: BTreeSet<_> = state.records.keys().collect();
    assert_eq!(known, server.workloads.keys().collect(), "no workload is lost");
    let mut ledgers: BTreeMap<ClusterQueueName, Ledger> = BTreeMap::new();
    let mut local_ledgers: BTreeMap<Key, Ledger> = BTreeMap::new();
    let mut local_pending: BTreeMap<Key, usize> = BTreeMap::new();
    let mut queued: BTreeMap<&ClusterQueueName, BTreeSet<&Key>> = BTreeMap::new();
    for (key, record) in &state.records {
        let may_be_out = record.workload.is_finished()
            || !crate::state::workloads::may_queue(&record.workload)
            || state
                .locals
                .get(&crate::state::workloads::local_key(&record.workload))
                .is_none_or(|l| l.stop != StopPolicy::None || !state.queues.contains_key(&l.cluster_queue));
        match &record.place {
            Place::Out => assert!(may_be_out, "{key} is lost"),
            Place::Queued { cluster, local } => {
                assert!(!may_be_out, "{key} is queued without right");
                queued.entry(cluster).or_default().insert(key);
                *local_pending.entry(local.clone()).or_default() += 1;
            }
            Place::Holding {
                cluster,
                local,
                charge,
                stage,
            } => {
                assert!(record.workload.has_quota() || record.assumption.is_some());
                ledgers.entry(cluster.clone()).or_default().add(charge, *stage);
                local_ledgers
                    .entry(local.clone())
                    .or_default()
                    .add(charge, *stage);
            }
        }
    }
    assert_eq!(state.ledgers, ledgers);
    assert_eq!(state.local_ledgers, local_ledgers);
    assert_eq!(state.local_pending, local_pending);
    let mut backoffs = BTreeSet::new();
    for (name, queue) in &state.queues {
        let pending: BTreeSet<_> = queue.pending.keys().collect();
        assert_eq!(
            pending,
            queued.remove(name).unwrap_or_default(),
            "pending in {name}"
        );
        backoffs.extend(queue.pending.backoffs().map(|(at, key)| (at, key.clone())));
        let ready = queue.active.is_active() && queue.pending.head().is_some();
        assert_eq!(state.ready.contains(name), ready, "{name} is ready");
    }
    assert!(queued.is_empty(), "queued in a queue that is gone");
    assert_eq!(state.backoffs, backoffs);
}

/// At rest nobody waits who could be served: no wake-up was missed.
fn audit_rest(state: &State) {
    for queue in state.queues.values().filter(|q| q.active.is_active()) {
        assert_eq!(queue.pending.head(), None);
        for key in queue.pending.keys() {
            match queue.pending.wait(key) {
                Some(Wait::Backoff(_)) => continue,
                Some(Wait::Capacity(_) | Wait::Configuration | Wait::Namespace) => {}
                None => assert_eq!(queue.spec.strategy, Strategy::StrictFifo, "{key} was not tried"),
            }
            let first = queue.pending.first_in_heap();
            let behind = first.is_some_and(|first| first != key) && queue.pending.in_heap(key);
            assert!(behind || !state.would_fit(key), "{key} could be served");
        }
    }
}

fn configuration() -> impl Generator<Value = Event> {
    let cluster = (0..2_u8, 0..9_i64, 0..9_i64, any::<bool>(), 0..8_u8, 0..6_u8).prop_map(
        |(name, first, second, strict, odd, rest)| {
            let flavors: [(&str, &[(&str, i64)]); 2] = [
                ("f1", &[("cpu", first * 1_000)]),
                ("f2", &[("cpu", second * 1_000)]),
            ];
            let mut queue = cluster_queue(&format!("cq{name}"), vec![group(&flavors)]);
            if strict {
                queue.strategy = Strategy::StrictFifo;
            }
            if odd == 0 {
                queue.namespaces = Some(Selector(vec![Requirement {
                    key: "team".to_owned(),
                    operator: Operator::Exists,
                    values: Vec::new(),
                }]));
            }
            if rest == 0 {
                queue.stop = StopPolicy::Hold;
            }
            if rest == 1 {
                queue.checks = vec![super::fixtures::rule("check")];
            }
            Event::ClusterQueue(Box::new(queue))
        },
    );
    let local = (0..3_u8, any::<bool>(), 0..2_u8, 0..6_u8).prop_map(|(name, even, cluster, stop)| {
        Event::LocalQueue(LocalQueue {
            key: Key::new(if even { "even" } else { "odd" }, format!("lq{name}")),
            cluster_queue: format!("cq{cluster}").into(),
            stop: if stop == 0 {
                StopPolicy::Hold
            } else {
                StopPolicy::None
            },
            weight: crate::queue::Weight::ONE,
        })
    });
    let flavor = (1..3_u8, any::<bool>()).prop_map(|(name, labelled)| {
        let mut flavor = flavor(&format!("f{name}"));
        if labelled {
            flavor.node_labels.insert("type".to_owned(), "x".to_owned());
        }
        Event::Flavor(flavor)
    });
    let check = any::<bool>().prop_map(|active| {
        Event::Check(Check {
            name: "check".into(),
            controller: "example.com/check".to_owned(),
            active,
        })
    });
    let namespace = (any::<bool>(), any::<bool>()).prop_map(|(even, labelled)| Event::Namespace {
        name: if even { "even" } else { "odd" }.into(),
        labels: if labelled {
            [("team".to_owned(), "a".to_owned())].into()
        } else {
            BTreeMap::new()
        },
    });
    prop_oneof![4 => cluster, 4 => local, 2 => flavor, 1 => check, 1 => namespace]
}

fn step() -> impl Generator<Value = Step> {
    let number = || 0..10_u8;
    let create =
        (number(), 0..3_u8, 0..12_u8, 1..4_u8, 0..3_i8).prop_map(|(number, queue, cpu, count, priority)| {
            Step::Create {
                number,
                queue,
                cpu,
                count,
                priority,
            }
        });
    let gone = prop_oneof![
        (0..2_u8).prop_map(|n| Event::ClusterQueueGone(format!("cq{n}").into())),
        (0..3_u8).prop_map(|n| Event::LocalQueueGone(Key::new("even", format!("lq{n}")))),
        (1..3_u8).prop_map(|n| Event::FlavorGone(format!("f{n}").into())),
        Just(Event::CheckGone("check".into())),
        Just(Event::NamespaceGone("odd".into())),
        Just(Event::Paused(Pace::Paused)),
        Just(Event::Paused(Pace::Running)),
    ];
    prop_oneof![
        8 => create,
        3 => configuration().prop_map(Step::Tell),
        1 => gone.prop_map(Step::Tell),
        1 => number().prop_map(Step::Delete),
        2 => number().prop_map(Step::Finish),
        3 => number().prop_map(Step::Release),
        1 => (number(), 0..30_u8).prop_map(|(n, s)| Step::Backoff(n, s)),
        1 => number().prop_map(Step::Reclaim),
        1 => number().prop_map(Step::Toggle),
        1 => number().prop_map(Step::Gate),
        2 => number().prop_map(Step::Admit),
        1 => Just(Step::Resync),
        6 => Just(Step::Cycle),
        4 => Just(Step::Write),
        1 => Just(Step::Fail),
        1 => (0..20_u8).prop_map(Step::Wait),
    ]
}

/// A configuration under which most things can be admitted.
fn ground() -> Vec<Step> {
    let flavors: [(&str, &[(&str, i64)]); 2] = [("f1", &[("cpu", 6_000)]), ("f2", &[("cpu", 4_000)])];
    let mut events = vec![Event::Flavor(flavor("f1")), Event::Flavor(flavor("f2"))];
    for name in ["cq0", "cq1"] {
        events.push(Event::ClusterQueue(Box::new(cluster_queue(
            name,
            vec![group(&flavors)],
        ))));
    }
    for (namespace, name, cluster) in [
        ("even", "lq0", "cq0"),
        ("odd", "lq0", "cq0"),
        ("even", "lq1", "cq1"),
        ("odd", "lq2", "cq1"),
    ] {
        events.push(Event::LocalQueue(LocalQueue {
            key: Key::new(namespace, name),
            cluster_queue: cluster.into(),
            stop: StopPolicy::None,
            weight: crate::queue::Weight::ONE,
        }));
    }
    events.push(Event::Synced);
    events.into_iter().map(Step::Tell).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Spec: admission-engine 1.1, 1.5, 2.4 (books agree, nobody is lost, no wake-up is missed, quota is kept).
    #[test]
    fn random_histories_satisfy_the_auditor(steps in proptest::collection::vec(step(), 1..120)) {
        let mut server = Server::new();
        for step in ground().iter().chain(&steps) {
            server.take(step);
            audit(&server);
        }
        server.take(&Step::Tell(Event::Paused(Pace::Running)));
        server.settle();
        audit(&server);
        audit_rest(&server.state);
    }

    /// The same input gives the same decisions, and telling everything twice changes none of them.
    #[test]
    fn decisions_depend_on_the_input_alone(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut once, mut again, mut twice) = (Server::new(), Server::new(), Server::new());
        for step in ground().iter().chain(&steps) {
            once.take(step);
            again.take(step);
            twice.take(step);
            if let Step::Tell(event) = step {
                twice.state.apply(event.clone(), twice.now);
            }
            twice.take(&Step::Resync);
        }
        assert_eq!(once.decisions, again.decisions);
        assert_eq!(once.decisions, twice.decisions);
    }

    /// Spec: admission-engine 1.5 (events in any order lead to the same state).
    #[test]
    fn the_order_of_configuration_does_not_matter(
        steps in proptest::collection::vec(step(), 1..60),
        seed in any::<u64>(),
    ) {
        let mut server = Server::new();
        for step in ground().iter().chain(&steps) {
            server.take(step);
        }
        let old = &server.state;
        let mut events: Vec<Event> = Vec::new();
        events.extend(old.queues.values().map(|q| Event::ClusterQueue(Box::new(q.spec.clone()))));
        events.extend(old.locals.values().cloned().map(Event::LocalQueue));
        events.extend(old.flavors.values().cloned().map(Event::Flavor));
        events.extend(old.checks.values().cloned().map(Event::Check));
        events.extend(old.namespaces.iter().map(|(name, labels)| Event::Namespace {
            name: name.clone(),
            labels: labels.clone(),
        }));
        events.extend(server.workloads.values().map(|w| Event::Workload(Box::new(w.clone()))));
        let mut shuffled: Vec<_> = (0..events.len()).collect();
        shuffled.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
        let tell = |order: Vec<usize>| {
            let mut fresh = Server::new();
            fresh.workloads = server.workloads.clone();
            for index in order {
                fresh.state.apply(events[index].clone(), fresh.now);
            }
            fresh.state.apply(Event::Synced, fresh.now);
            audit(&fresh);
            fresh.settle();
            audit_rest(&fresh.state);
            fresh
        };
        let (straight, other) = (tell((0..events.len()).collect()), tell(shuffled));
        assert_eq!(straight.decisions, other.decisions);
        for name in straight.state.queues.keys() {
            assert_eq!(straight.state.cluster_queue_report(name), other.state.cluster_queue_report(name));
        }
        for name in straight.state.locals.keys() {
            assert_eq!(straight.state.local_queue_report(name), other.state.local_queue_report(name));
        }
    }
}
