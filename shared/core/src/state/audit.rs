//! Random histories, and an auditor that recomputes everything that the state keeps incrementally.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::{ProptestConfig, any, proptest};

use super::fixtures::{
    at, cluster_queue, evict, finish, flavor, group, hold, in_cohort, pod_set, release, workload,
};
use super::{Event, Pace, Place, Readiness, Settings, State, Told};
use crate::amount::Amount;
use crate::condition::Truth;
use crate::cycle::Decision;
use crate::hierarchy::{Exact, FlavorResource, NodeId};
use crate::name::Key;
use crate::pending::{Stance, Wait};
use crate::queue::{LocalQueue, PreemptionPolicy, StopPolicy};
use crate::quota::Ledger;
use crate::rules::{PreemptionRules, Rules};
use crate::status::Requeue;
use crate::table::{ClusterId, LocalId, WorkloadId};
use crate::workload::Workload;
use histories::{comings, ground, preemption, rules, step};

mod evictions;
mod histories;

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
    Stop,
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

/// The API server and the writer: they hold the Workloads and carry out decisions late.
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
    fn new(preemption: PreemptionRules) -> Self {
        let rules = Rules {
            preemption,
            ..Rules::default()
        };
        Self {
            state: State::new(Settings {
                rules,
                ..Settings::default()
            }),
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
            Step::Stop => self.stop_evicted(),
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
            Step::Gate(number) => self.edit(*number, |w| {
                w.gated_by = if w.is_gated() {
                    String::new()
                } else {
                    "x.io/a".to_owned()
                };
            }),
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
            let current = self.workloads.get(decision.key());
            let Some(mut workload) = current.filter(|w| w.uid == *decision.uid()).cloned() else {
                continue;
            };
            match decision {
                Decision::Reserve {
                    key,
                    uid,
                    admission,
                    considered: _,
                } => {
                    if workload.active && !workload.is_finished() {
                        hold(&mut workload, admission, now);
                    } else {
                        self.state.apply(Event::ReserveFailed { key, uid }, now);
                        continue;
                    }
                }
                Decision::NotAdmitted { reason, .. } => {
                    if workload.has_quota() {
                        continue;
                    }
                    let conditions = &mut workload.status.conditions;
                    let word = reason.word().as_str();
                    conditions.set("QuotaReserved", Truth::False, word, reason.to_string(), now);
                }
                Decision::Preempt { reason, message, .. } => {
                    if !workload.has_quota() || workload.is_evicted() {
                        continue;
                    }
                    evict(&mut workload, reason.as_str(), message, now);
                }
            }
            self.put(workload);
        }
    }

    fn fail(&mut self) {
        for decision in std::mem::take(&mut self.unwritten) {
            if let Decision::Reserve { key, uid, .. } | Decision::Preempt { key, uid, .. } = decision {
                self.state.apply(Event::ReserveFailed { key, uid }, self.now);
            }
        }
    }

    /// Jobs of evicted workloads stop, and their quota is released.
    fn stop_evicted(&mut self) {
        let now = self.now;
        let holds = |w: &&Workload| w.is_evicted() && w.has_quota() && !w.is_finished();
        let evicted: Vec<Workload> = self.workloads.values().filter(holds).cloned().collect();
        for mut workload in evicted {
            release(&mut workload, now);
            self.put(workload);
        }
    }

    /// Decides and writes until nothing changes.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.take(&Step::Cycle);
            let stopping = self
                .workloads
                .values()
                .any(|w| w.is_evicted() && w.has_quota() && !w.is_finished());
            if self.unwritten.is_empty() && !self.state.has_work() && !stopping {
                return;
            }
            self.write();
            self.stop_evicted();
        }
        panic!("the brain does not come to rest");
    }
}

/// Quota that was just given must be within all limits: its own and those above.
fn audit_quota(state: &State, decisions: &[Decision]) {
    for decision in decisions {
        let Decision::Reserve { admission, .. } = decision else {
            continue;
        };
        let queue = state.queue_named(&admission.cluster_queue).unwrap();
        assert!(state.is_served(queue));
        for assignment in &admission.pod_sets {
            for (resource, flavor) in &assignment.flavors {
                let pair = state.ground.quotas().known_pair(flavor, resource).unwrap();
                let asked = assignment.usage[resource].get() > 0;
                let left = state.ground.quotas().available(queue.node, pair);
                assert!(!asked || left >= Amount::ZERO, "{left} of {flavor}/{resource}");
            }
        }
    }
}

/// Recomputes from the records what the state keeps incrementally.
#[expect(
    clippy::too_many_lines,
    reason = "one list of what the state keeps, each compared with the records"
)]
fn audit(server: &Server) {
    let state = &server.state;
    let known: BTreeSet<_> = state.records.iter().map(|(key, _, _)| key).collect();
    assert_eq!(known, server.workloads.keys().collect(), "no workload is lost");
    let mut ledgers: BTreeMap<ClusterId, Ledger> = BTreeMap::new();
    let mut local_ledgers: BTreeMap<LocalId, Ledger> = BTreeMap::new();
    let mut local_pending: BTreeMap<LocalId, usize> = BTreeMap::new();
    let mut queued: BTreeMap<ClusterId, BTreeSet<WorkloadId>> = BTreeMap::new();
    let mut usage: BTreeMap<(NodeId, FlavorResource), Exact> = BTreeMap::new();
    let (mut holders, mut unready, mut classes) = (0, 0, BTreeSet::new());
    for (key, id, record) in state.records.iter() {
        classes.insert(record.class);
        let local = crate::state::workloads::local_key(&record.workload);
        assert!(state.locals.get(&local).unwrap().workloads.contains(&id));
        let may_be_out = record.workload.is_finished()
            || !record.workload.may_queue()
            || state.local_named(&local).is_none_or(|(l, _)| {
                l.stop != StopPolicy::None || state.queue_named(&l.cluster_queue).is_none()
            });
        match &record.place {
            Place::Out => assert!(may_be_out, "{key} is lost"),
            Place::Queued { cluster, local, .. } => {
                assert!(!may_be_out, "{key} is queued without right");
                queued.entry(*cluster).or_default().insert(id);
                *local_pending.entry(*local).or_default() += 1;
            }
            Place::Holding(held) => {
                assert!(record.workload.has_quota() || record.assumption.is_some());
                let ledger = ledgers.entry(held.cluster).or_default();
                ledger.add(&held.amounts, held.stage);
                let ledger = local_ledgers.entry(held.local).or_default();
                ledger.add(&held.amounts, held.stage);
                let holder = state.holders.get(&record.workload.uid).unwrap();
                assert_eq!(holder.usage, held.amounts);
                assert_eq!(holder.evicted, held.evicted);
                holders += 1;
                unready += usize::from(held.readiness == Readiness::NotReady);
                for (pair, value) in &held.amounts {
                    *usage.entry((holder.node, *pair)).or_default() += value;
                }
            }
        }
        let on_its_way = record.eviction.as_ref();
        assert!(on_its_way.is_none() || matches!(record.place, Place::Holding(_)));
        assert!(on_its_way.is_none_or(|e| e.told == Told::Yes
            || record.assumption.is_some()
            || state.orders.contains(&id)));
    }
    assert_eq!((state.holders.len(), state.unready), (holders, unready));
    assert_eq!(state.classes.len(), classes.len());
    for (_, id, local) in state.locals.iter() {
        assert_eq!(local.ledger, local_ledgers.remove(&id).unwrap_or_default());
        assert_eq!(local.pending, local_pending.remove(&id).unwrap_or(0));
    }
    assert!(local_ledgers.is_empty() && local_pending.is_empty());
    let mut backoffs = BTreeSet::new();
    for (name, id, cluster) in state.clusters.iter() {
        assert_eq!(cluster.ledger, ledgers.remove(&id).unwrap_or_default());
        let Some(queue) = &cluster.queue else { continue };
        let pending: BTreeSet<_> = queue.pending.ids().collect();
        assert_eq!(pending.len(), queue.pending.len());
        let (mut heap, mut parked) = (BTreeSet::new(), BTreeSet::new());
        for (_, _, record) in state.records.iter() {
            if let Place::Queued { cluster, ticket, .. } = &record.place
                && *cluster == id
            {
                let place = if queue.pending.in_heap(ticket) {
                    &mut heap
                } else {
                    &mut parked
                };
                place.insert(record.class);
            }
        }
        assert_eq!(queue.pending.class_counts(), (heap.len(), parked.len()));
        assert_eq!(
            pending,
            queued.remove(&id).unwrap_or_default(),
            "pending in {name}"
        );
        backoffs.extend(queue.pending.backoffs());
        let head = state.head_of(queue);
        let ready = state.is_served(queue) && head.is_some_and(|head| queue.pending.stance(head).is_none());
        assert_eq!(state.ready.contains(&id), ready, "{name} is ready");
        assert_eq!(state.nodes.get(&queue.node), Some(&id));
        for pair in state.ground.quotas().pairs_of(queue.node).collect::<Vec<_>>() {
            let sum = usage.remove(&(queue.node, pair)).unwrap_or(0);
            assert_eq!(
                state.ground.quotas().usage(queue.node, pair),
                sum,
                "usage of {name}"
            );
        }
    }
    for ((node, pair), sum) in usage {
        assert_eq!(
            state.ground.quotas().usage(node, pair),
            sum,
            "usage of a queue that is gone"
        );
    }
    assert!(ledgers.is_empty());
    assert!(queued.is_empty(), "queued in a queue that is gone");
    assert_eq!(state.backoffs, backoffs);
    let claims = state.clusters.iter().filter_map(|(_, id, cluster)| {
        let claim = cluster.queue.as_ref()?.claim.as_ref()?;
        Some((claim.until, id))
    });
    assert_eq!(state.claim_ends, claims.collect());
}

/// At rest no workload waits that could be served: no wake-up was missed.
fn audit_rest(state: &State) {
    for id in state.nodes.values() {
        let queue = state.queue(*id).unwrap();
        let claimed = state
            .tree_of(*id)
            .iter()
            .any(|other| state.queue(*other).unwrap().pending.has_claim());
        if !state.is_served(queue) || claimed {
            continue;
        }
        let head = state.head_of(queue);
        assert!(head.is_none_or(|head| queue.pending.stance(head) == Some(Stance::Waits)));
        for id in queue.pending.ids() {
            let record = state.records.at(id).unwrap();
            let key = &record.workload.key;
            let Place::Queued { ticket, .. } = &record.place else {
                panic!("{key} is not queued")
            };
            match queue.pending.wait(id) {
                Some(Wait::Backoff(_)) => continue,
                Some(Wait::Capacity(..) | Wait::Configuration | Wait::Namespace) | None => {}
            }
            let behind = head.is_some_and(|head| head != id) && queue.pending.in_heap(ticket);
            assert!(behind || !state.clone().would_fit(id), "{key} could be served");
            assert!(behind || !state.clone().would_preempt(id), "{key} could preempt");
        }
    }
}

/// Workloads of many sizes come and go in one queue without cohort. Returns the workloads that get quota, in order. `flushed`: all
/// workloads are tried again before each cycle.
fn served(policy: PreemptionPolicy, steps: &[Step], flushed: bool) -> (Vec<Key>, Server) {
    let mut server = Server::new(PreemptionRules::Classical);
    for step in ground() {
        server.take(&step);
    }
    let flavors: [(&str, &[(&str, i64)]); 2] = [("f1", &[("cpu", 6_000)]), ("f2", &[("cpu", 4_000)])];
    let mut queue = cluster_queue("cq0", vec![group(&flavors)]);
    queue.preemption = policy;
    server.take(&Step::Tell(Event::ClusterQueue(Box::new(queue))));
    let id = server.state.clusters.id(&"cq0".into()).unwrap();
    for step in steps {
        server.take(step);
        if flushed {
            server.state.flush_trees([id]);
        }
        server.settle();
    }
    let reserved = |d: &Decision| match d {
        Decision::Reserve { key, .. } => Some(key.clone()),
        Decision::NotAdmitted { .. } | Decision::Preempt { .. } => None,
    };
    (server.decisions.iter().filter_map(reserved).collect(), server)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Spec: admission-engine 1.2, 1.5 (a release wakes those workloads that would be served if all were tried again, in the same order).
    #[test]
    fn whoever_sleeps_is_missed_by_nobody(
        policy in preemption(),
        steps in proptest::collection::vec(comings(), 1..60),
    ) {
        let (quick, server) = served(policy, &steps, false);
        let (slow, _) = served(policy, &steps, true);
        assert_eq!(quick, slow);
        audit(&server);
        audit_rest(&server.state);
    }

    /// Spec: admission-engine 1.1, 1.5, 2.4 (ledgers agree, no workload is lost, no wake-up is missed, quota is kept).
    #[test]
    fn random_histories_satisfy_the_auditor(
        rules in rules(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut server = Server::new(rules);
        for step in ground().iter().chain(&steps) {
            server.take(step);
            audit(&server);
        }
        server.take(&Step::Tell(Event::Paused(Pace::Running)));
        server.settle();
        audit(&server);
        audit_rest(&server.state);
    }

    /// The same input gives the same decisions, and repeating every event changes none of them.
    #[test]
    fn decisions_depend_on_the_input_alone(
        rules in rules(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let new = || Server::new(rules.clone());
        let (mut once, mut again, mut twice) = (new(), new(), new());
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
        rules in rules(),
    ) {
        let mut server = Server::new(rules.clone());
        for step in ground().iter().chain(&steps) {
            server.take(step);
        }
        let old = &server.state;
        let mut events: Vec<Event> = Vec::new();
        let specs = old.clusters.iter().filter_map(|(_, _, cluster)| cluster.queue.as_ref());
        events.extend(specs.map(|q| Event::ClusterQueue(Box::new(q.spec.clone()))));
        let locals = old.locals.iter().filter_map(|(_, _, local)| local.queue.clone());
        events.extend(locals.map(Event::LocalQueue));
        events.extend(old.cohorts.values().cloned().map(Event::Cohort));
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
            let mut fresh = Server::new(rules.clone());
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
        // Why sorted: trees and explanations have no order among each other.
        let sorted = |server: &Server| {
            let mut decisions = server.decisions.clone();
            decisions.sort_by(|a, b| a.key().cmp(b.key()));
            decisions
        };
        assert_eq!(sorted(&straight), sorted(&other));
        for (name, _, _) in straight.state.clusters.iter() {
            assert_eq!(straight.state.cluster_queue_report(name), other.state.cluster_queue_report(name));
        }
        for (name, _, _) in straight.state.locals.iter() {
            assert_eq!(straight.state.local_queue_report(name), other.state.local_queue_report(name));
        }
    }

    /// Spec: admission-engine 2.7, 2.8.3 (evictions make enough room, and no workload is evicted for nothing).
    #[test]
    fn whoever_preempts_is_served_once_the_victims_have_stopped(
        rules in rules(),
        policies in (preemption(), preemption()),
        quota in (0..8_i64, 0..8_i64),
        users in proptest::collection::vec((any::<bool>(), 0..3_i8, 1..6_u8), 0..8),
        head in (any::<bool>(), 0..4_i8, 1..12_u8),
    ) {
        let mut server = Server::new(rules);
        server.take(&Step::Tell(Event::Flavor(flavor("default"))));
        for (number, (cpu, policy)) in [(quota.0, policies.0), (quota.1, policies.1)].into_iter().enumerate() {
            let mut queue = in_cohort(&format!("cq{number}"), "x", cpu);
            queue.preemption = policy;
            server.take(&Step::Tell(Event::ClusterQueue(Box::new(queue))));
            for namespace in ["even", "odd"] {
                server.take(&Step::Tell(Event::LocalQueue(LocalQueue {
                    key: Key::new(namespace, format!("lq{number}")),
                    cluster_queue: format!("cq{number}").into(),
                    ..LocalQueue::default()
                })));
            }
        }
        server.take(&Step::Tell(Event::Synced));
        for (number, (second, priority, cpu)) in users.into_iter().enumerate() {
            let number = u8::try_from(number).unwrap();
            server.take(&Step::Create { number, queue: u8::from(second), cpu: cpu * 2, count: 1, priority });
            server.settle();
            // Workloads without room and evicted workloads leave, so that only holders are left and no other workload waits for room.
            for other in 0..=number {
                if server.workloads.get(&key(other)).is_some_and(|workload| !workload.has_quota()) {
                    server.take(&Step::Delete(other));
                }
            }
        }
        server.decisions.clear();
        server.take(&Step::Create { number: 99, queue: u8::from(head.0), cpu: head.2 * 2, count: 1, priority: head.1 });
        server.take(&Step::Cycle);
        let evicts = server.decisions.iter().any(|d| matches!(d, Decision::Preempt { .. }));
        server.take(&Step::Write);
        server.stop_evicted();
        server.take(&Step::Cycle);
        let served = server.decisions.iter().any(
            |d| matches!(d, Decision::Reserve { key: served, .. } if *served == key(99)),
        );
        assert!(served || !evicts, "evicted for nothing");
        audit(&server);
    }
}
