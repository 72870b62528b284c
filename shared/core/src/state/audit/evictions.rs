//! Evictions that take time: victims stop one after the other, some end by themselves, and all other workloads go on meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Just, ProptestConfig, any, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::histories::preemption;
use super::{Event, Server, Step, audit, key};
use crate::cycle::Decision;
use crate::name::{Key, Uid};
use crate::queue::{ClusterQueue, LocalQueue, Strategy};
use crate::reason::Reason;
use crate::rules::{FairStrategy, PreemptionRules};
use crate::state::fixtures::{cluster_queue, cohort, finish, flavor, group, release};

/// *Limit*: turns until all workloads must be at rest.
const TURNS: usize = 400;

/// What happens in a turn to a workload that is evicted and has not stopped.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It goes on stopping.
    None,
    /// It has stopped and waits for quota again.
    Stopped,
    /// Its job had ended before it was stopped.
    Finished,
}

/// A workload that arrives.
#[derive(Clone, Copy, Debug)]
struct Coming {
    queue: u8,
    priority: i8,
    cpu: u8,
}

/// The workloads evicted for a workload that waits, and how many its first decision named.
#[derive(Debug, Default)]
struct Toll {
    victims: BTreeSet<Uid>,
    needed: Option<usize>,
}

fn fair_or_not() -> impl Generator<Value = PreemptionRules> {
    let only = |strategy| PreemptionRules::FairSharing {
        strategies: vec![strategy],
    };
    prop_oneof![
        1 => Just(PreemptionRules::Classical),
        2 => Just(PreemptionRules::fair_sharing()),
        1 => Just(only(FairStrategy::LessThanOrEqualToFinalShare)),
        1 => Just(only(FairStrategy::LessThanInitialShare)),
    ]
}

/// A queue of one of three cohorts, two of which are in the third, with two flavors.
fn queue() -> impl Generator<Value = ClusterQueue> {
    (0..3_usize, 0..5_i64, 0..3_i64, any::<bool>(), preemption()).prop_map(
        |(cohort, first, second, strict, preemption)| {
            let flavors: [(&str, &[(&str, i64)]); 2] = [
                ("f1", &[("cpu", first * 1_000)]),
                ("f2", &[("cpu", second * 1_000)]),
            ];
            let mut queue = cluster_queue("", vec![group(&flavors)]);
            queue.cohort = Some(["root", "left", "right"][cohort].into());
            queue.preemption = preemption;
            if strict {
                queue.strategy = Strategy::StrictFifo;
            }
            queue
        },
    )
}

fn coming(cpu: std::ops::Range<u8>) -> impl Generator<Value = Coming> {
    (0..3_u8, 0..3_i8, cpu).prop_map(|(queue, priority, cpu)| Coming { queue, priority, cpu })
}

fn end() -> impl Generator<Value = End> {
    prop_oneof![3 => Just(End::Stopped), 1 => Just(End::Finished), 1 => Just(End::None)]
}

struct Play {
    server: Server,
    tolls: BTreeMap<Uid, Toll>,
    /// The number of decisions that were checked.
    seen: usize,
}

impl Play {
    fn new(rules: PreemptionRules, queues: Vec<ClusterQueue>) -> Self {
        let mut server = Server::new(rules);
        for name in ["f1", "f2"] {
            server.take(&Step::Tell(Event::Flavor(flavor(name))));
        }
        server.take(&Step::Tell(cohort("left", Some("root"))));
        server.take(&Step::Tell(cohort("right", Some("root"))));
        for (number, mut queue) in queues.into_iter().enumerate() {
            queue.name = format!("cq{number}").into();
            for namespace in ["even", "odd"] {
                server.take(&Step::Tell(Event::LocalQueue(LocalQueue {
                    key: Key::new(namespace, format!("lq{number}")),
                    cluster_queue: queue.name.clone(),
                    ..LocalQueue::default()
                })));
            }
            server.take(&Step::Tell(Event::ClusterQueue(Box::new(queue))));
        }
        server.take(&Step::Tell(Event::Synced));
        Self {
            server,
            tolls: BTreeMap::new(),
            seen: 0,
        }
    }

    fn create(&mut self, number: u8, coming: Coming) {
        self.server.take(&Step::Create {
            number,
            queue: coming.queue,
            cpu: coming.cpu,
            count: 1,
            priority: coming.priority,
        });
    }

    /// Lets workloads run until nothing changes; workloads without room leave.
    fn fill(&mut self, users: Vec<Coming>) {
        for (number, user) in users.into_iter().enumerate() {
            let number = u8::try_from(number).unwrap();
            self.create(number, user);
            self.server.settle();
            for other in 0..=number {
                if { self.server.workloads.get(&key(other)) }.is_some_and(|w| !w.has_quota()) {
                    self.server.take(&Step::Delete(other));
                }
            }
        }
        self.server.settle();
        self.seen = self.server.decisions.len();
    }

    fn stopping(&self) -> Vec<Key> {
        let stops = |w: &&crate::workload::Workload| w.is_evicted() && w.has_quota() && !w.is_finished();
        self.server
            .workloads
            .values()
            .filter(stops)
            .map(|w| w.key.clone())
            .collect()
    }

    /// Decides, writes, and lets one of the evicted workloads end.
    fn turn(&mut self, (which, end): (u8, End)) {
        self.server.take(&Step::Cycle);
        self.judge();
        self.server.take(&Step::Write);
        audit(&self.server);
        let stopping = self.stopping();
        let Some(key) = stopping.get(usize::from(which) % stopping.len().max(1)) else {
            return;
        };
        let mut workload = self.server.workloads[key].clone();
        match end {
            End::None => return,
            End::Stopped => {
                self.forgive(&workload.queue, workload.priority);
                release(&mut workload, self.server.now);
            }
            End::Finished => finish(&mut workload),
        }
        self.server.put(workload);
    }

    /// No workload has more victims evicted than its first decision named.
    fn judge(&mut self) {
        for decision in &self.server.decisions[self.seen..] {
            match decision {
                Decision::Preempt {
                    uid, preemptor_uid, ..
                } => {
                    let toll = self.tolls.entry(preemptor_uid.clone()).or_default();
                    toll.victims.insert(uid.clone());
                }
                Decision::NotAdmitted {
                    uid,
                    reason: Reason::AwaitsVictims { count, .. },
                    ..
                } => {
                    self.tolls
                        .entry(uid.clone())
                        .or_default()
                        .needed
                        .get_or_insert(*count);
                }
                Decision::Reserve { uid, .. } => {
                    self.tolls.remove(uid);
                }
                Decision::NotAdmitted { .. } => {}
            }
        }
        self.seen = self.server.decisions.len();
        for (uid, Toll { victims, needed }) in &self.tolls {
            assert!(
                needed.is_none_or(|needed| victims.len() <= needed),
                "{uid}: {victims:?} of {needed:?}"
            );
        }
    }

    /// A workload that comes to a queue, or comes back, may go before workloads of no higher priority: something else changed.
    fn forgive(&mut self, queue: &str, priority: i32) {
        for workload in self.server.workloads.values() {
            if workload.queue == queue && workload.priority <= priority {
                self.tolls.remove(&workload.uid);
            }
        }
    }

    /// Every evicted workload stops in the end, and no workload was evicted in vain.
    fn rest(&mut self) {
        for _ in 0..TURNS {
            self.turn((0, End::Stopped));
            if self.stopping().is_empty() && !self.server.state.has_work() && self.server.unwritten.is_empty()
            {
                assert!(self.tolls.is_empty(), "evicted in vain: {:?}", self.tolls);
                assert!(!self.server.state.has_claims());
                return;
            }
        }
        panic!("no rest");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Spec: admission-engine B130, 2.12, 10.2 (no second set of victims while the first one stops, and no other workload takes the quota
    /// that it gives back).
    #[test]
    fn nobody_needs_more_victims_than_its_first_decision_named(
        rules in fair_or_not(),
        queues in proptest::collection::vec(queue(), 3),
        users in proptest::collection::vec(coming(1..5), 0..9),
        heads in proptest::collection::vec((coming(2..12), 0..4_u8), 1..4),
        ends in proptest::collection::vec((any::<u8>(), end()), 0..12),
    ) {
        let mut play = Play::new(rules, queues);
        play.fill(users);
        let mut ends = ends.into_iter();
        for (number, (head, turns)) in heads.into_iter().enumerate() {
            play.forgive(&format!("lq{}", head.queue), i32::from(head.priority));
            play.create(100 + u8::try_from(number).unwrap(), head);
            for end in ends.by_ref().take(usize::from(turns)) {
                play.turn(end);
            }
        }
        for end in ends {
            play.turn(end);
        }
        play.rest();
    }
}
