//! The brain: one task that owns [`State`], takes in what changed, runs cycles, and proposes what to write.
//!
//! Invariant: nothing else touches the state; it never waits for a write. What it decides goes into [`Proposals`], from
//! where the workload reconciler, the only writer of a Workload's status, takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_core::cycle::Decision;
use roadstead_core::lifecycle::Proposal;
use roadstead_core::name::{ClusterQueueName, Key, Uid};
use roadstead_core::report::{ClusterQueueReport, LocalQueueReport, QueueRef};
use roadstead_core::state::{Event, State};
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::queue::{Lane, Queue};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::clock::Clock;
use crate::feed::{self, Subject};
use crate::visibility::Ask;

/// Messages from the writers that may wait for the brain.
pub(crate) const MAIL_MAX: usize = 4096;

/// What the brain wants written about Workloads, until it is written or withdrawn.
#[derive(Debug, Default)]
pub(crate) struct Proposals(Mutex<BTreeMap<Key, (Uid, Proposal)>>);

impl Proposals {
    /// The proposal for this Workload, if it is about this UID.
    pub(crate) fn get(&self, key: &Key, uid: &Uid) -> Option<Proposal> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key)
            .filter(|(about, _)| about == uid)
            .map(|(_, proposal)| proposal.clone())
    }

    /// Takes out a proposal that was carried out or has lost its ground; a newer one for the same Workload stays.
    pub(crate) fn settle(&self, key: &Key, proposal: &Proposal) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(key).is_some_and(|(_, current)| current == proposal) {
            all.remove(key);
        }
    }

    fn put(&self, key: Key, uid: Uid, proposal: Proposal) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, (uid, proposal));
    }
}

/// Reports on queues for the status writer.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// By ClusterQueue.
    pub(crate) cluster_queues: Mutex<BTreeMap<ClusterQueueName, ClusterQueueReport>>,
    /// By LocalQueue.
    pub(crate) local_queues: Mutex<BTreeMap<Key, LocalQueueReport>>,
    /// Which changed since the writer last looked.
    pub(crate) changed: Dirty<QueueRef>,
}

impl Reports {
    /// The last report on a ClusterQueue.
    pub(crate) fn cluster_queue(&self, name: &ClusterQueueName) -> Option<ClusterQueueReport> {
        self.cluster_queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// The last report on a LocalQueue.
    pub(crate) fn local_queue(&self, key: &Key) -> Option<LocalQueueReport> {
        self.local_queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()
    }
}

/// Everything the brain's task needs.
pub(crate) struct Brain {
    pub(crate) state: State,
    pub(crate) caches: Caches,
    pub(crate) dirty: Arc<Dirty<Subject>>,
    pub(crate) mail: mpsc::Receiver<Event>,
    /// Questions of people; they come last, one per turn.
    pub(crate) asks: mpsc::Receiver<Ask>,
    pub(crate) proposals: Arc<Proposals>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) due: Arc<Queue<Key>>,
    pub(crate) clock: Clock,
}

impl Brain {
    /// Runs until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        // Why: what was listed before we started is taken in as one batch, so the first cycle sees the whole cluster.
        let first = self.dirty.take_now();
        self.take_in(first);
        self.state.apply(Event::Synced, (self.clock)());
        loop {
            self.decide();
            // Why here too: in a storm of events the last arm below never gets its turn.
            if let Ok(ask) = self.asks.try_recv() {
                self.tell(ask);
            }
            let pause = self.until_wake();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(event) = self.mail.recv() => {
                    let now = (self.clock)();
                    self.state.apply(event, now);
                    while let Ok(event) = self.mail.try_recv() {
                        self.state.apply(event, now);
                    }
                }
                changed = self.dirty.take() => self.take_in(changed),
                Some(ask) = self.asks.recv() => self.tell(ask),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn take_in(&mut self, changed: BTreeSet<Subject>) {
        let now = (self.clock)();
        for subject in changed {
            let event = feed::event(&self.caches, subject);
            self.state.apply(event, now);
        }
    }

    fn tell(&self, ask: Ask) {
        let Ask { queue, limit, answer } = ask;
        // Why it may fail: nobody waits for the answer any more.
        let _unheard = answer.send(self.state.pending_in_order(&queue, limit));
    }

    fn decide(&mut self) {
        while self.state.has_work() {
            for decision in self.state.cycle((self.clock)()) {
                let (key, uid, proposal, lane) = match decision {
                    Decision::Reserve { key, uid, admission } => {
                        (key, uid, Proposal::Reserve(admission), Lane::Placed)
                    }
                    Decision::NotAdmitted {
                        key,
                        uid,
                        reason,
                        message,
                    } => (
                        key,
                        uid,
                        Proposal::Pending {
                            reason: reason.as_str().into(),
                            message,
                        },
                        Lane::New,
                    ),
                };
                self.proposals.put(key.clone(), uid, proposal);
                self.due.add(key, lane);
            }
        }
        self.report();
    }

    fn report(&mut self) {
        for queue in self.state.take_changed_queues() {
            match &queue {
                QueueRef::Cluster(name) => {
                    let mut all = self
                        .reports
                        .cluster_queues
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    match self.state.cluster_queue_report(name) {
                        Some(report) => all.insert(name.clone(), report),
                        None => all.remove(name),
                    };
                }
                QueueRef::Local(key) => {
                    let mut all = self
                        .reports
                        .local_queues
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    match self.state.local_queue_report(key) {
                        Some(report) => all.insert(key.clone(), report),
                        None => all.remove(key),
                    };
                }
            }
            self.reports.changed.mark(queue);
        }
    }

    fn until_wake(&self) -> Duration {
        /// Why: a wake-up that is missed must not be missed for ever.
        const LONGEST: Duration = Duration::from_mins(1);
        until(self.state.next_wake(), (self.clock)())
            .unwrap_or(LONGEST)
            .min(LONGEST)
    }
}

/// The time from `now` until `at`, zero when it has passed.
pub fn until(at: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
}
