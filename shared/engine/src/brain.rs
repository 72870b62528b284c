//! The brain: one task that owns [`State`], takes in changes, runs cycles, and proposes what to write.
//!
//! Invariant: nothing else touches the state, and the brain never waits for a write. Its decisions go into [`Proposals`]. The
//! workload reconciler, the only writer of a Workload's status, takes them from there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_core::cycle::Decision;
use roadstead_core::lifecycle::{PREEMPTED, Proposal};
use roadstead_core::name::{Key, Uid};
use roadstead_core::note::Note;
use roadstead_core::state::{Event, State};
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::events::Recorder;
use roadstead_kubeio::queue::{Lane, Queue};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::clock::Clock;
use crate::feed::{self, Subject};
use crate::metrics::Metrics;
use crate::proposals::Proposals;
use crate::queue_status::Reports;
use crate::visibility::Ask;

/// Limit: messages from the writers that wait for the brain.
pub(crate) const MAIL_MAX: usize = 4096;

/// The shortest time between two reports. Why: when many workloads come and go, reports cost more than they are worth.
const REPORT_PACE: Duration = Duration::from_millis(100);

/// Everything the brain's task needs.
pub(crate) struct Brain {
    pub(crate) state: State,
    pub(crate) caches: Caches,
    pub(crate) dirty: Arc<Dirty<Subject>>,
    pub(crate) mail: mpsc::Receiver<Event>,
    /// Users' questions; they come last, one per turn.
    pub(crate) asks: mpsc::Receiver<Ask>,
    pub(crate) proposals: Arc<Proposals>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) due: Arc<Queue<Key>>,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

impl Brain {
    /// Runs until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        // Why: objects listed before the start are taken in as one batch, so the first cycle sees the whole cluster.
        let first = self.dirty.take_now();
        self.take_in(first);
        self.state.apply(Event::Synced, (self.clock)());
        let mut report_at = Instant::now();
        loop {
            self.decide();
            if self.state.has_changed_queues() && report_at <= Instant::now() {
                self.reports.take_in(&mut self.state);
                report_at = Instant::now() + REPORT_PACE;
            }
            for key in self.proposals.release((self.clock)()) {
                self.due.add(key, Lane::New);
            }
            // Why here too: while many events come in, the arm for questions below never gets its turn.
            if let Ok(ask) = self.asks.try_recv() {
                self.tell(ask);
            }
            let mut pause = self.until_wake();
            if self.state.has_changed_queues() {
                pause = pause.min(report_at.saturating_duration_since(Instant::now()));
            }
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
            for event in feed::events(&self.caches, subject) {
                self.state.apply(event, now);
            }
        }
    }

    fn tell(&self, ask: Ask) {
        let Ask { queue, limit, answer } = ask;
        // Why a failure is ignored: the client that asked may have gone.
        let _unheard = answer.send(self.state.pending_in_order(&queue, limit));
    }

    fn decide(&mut self) {
        loop {
            let started = (self.clock)();
            let decisions = self.state.cycle(started);
            let took = until(Some((self.clock)()), started).unwrap_or_default();
            self.metrics.rounds(&self.state.take_outcome(), took);
            for decision in decisions {
                self.propose(decision);
            }
            // Why asked only after a cycle: a back-off may have ended by time alone, and only a cycle notices that.
            if !self.state.has_work() {
                break;
            }
        }
    }

    fn propose(&self, decision: Decision) {
        let now = (self.clock)();
        let (key, uid, proposal) = match decision {
            Decision::Reserve {
                key,
                uid,
                admission,
                considered,
            } => (
                key,
                uid,
                Proposal::Reserve {
                    admission,
                    considered,
                },
            ),
            Decision::NotAdmitted { key, uid, reason } => {
                let proposal = Proposal::Pending {
                    reason: reason.word().as_str().into(),
                    message: reason.to_string(),
                };
                self.proposals.explain(key, uid, proposal, now);
                return;
            }
            Decision::Preempt {
                key,
                uid,
                reason,
                message,
                preemptor,
                preemptor_uid: _,
                preemptor_queue: _,
            } => {
                let priorities = self.state.priorities(&preemptor, &key).unwrap_or_default();
                self.tell_preemptor(&preemptor, &key, &uid, &priorities);
                let proposal = Proposal::Evict {
                    reason: PREEMPTED,
                    preempted_reason: reason,
                    message,
                    priorities,
                };
                (key, uid, proposal)
            }
        };
        self.proposals.put(key.clone(), uid, proposal, now);
        self.due.add(key, Lane::Placed);
    }

    /// *Source*: `spec/admission-engine.md 2.12`.
    fn tell_preemptor(&self, preemptor: &Key, victim: &Key, uid: &Uid, priorities: &str) {
        if let Some(workload) = self.caches.workloads.get(preemptor) {
            let stored = self.caches.workloads.get(victim);
            let queue = stored
                .as_ref()
                .and_then(|victim| Some(&victim.admission()?.cluster_queue));
            let queue = queue.map_or("UNKNOWN", String::as_str);
            let text =
                format!("Preempted workload {victim} (UID: {uid}) in ClusterQueue {queue}{priorities}");
            let about = kube::Resource::object_ref(&*workload, &());
            self.recorder
                .record(about, Note::normal("PreemptedWorkload", text));
        }
    }

    fn until_wake(&self) -> Duration {
        /// Why limited: a missed wake-up then delays the brain by no more than this.
        const LONGEST: Duration = Duration::from_mins(1);
        let now = (self.clock)();
        let next = [self.state.next_wake(), self.proposals.next_release(now)];
        until(next.into_iter().flatten().min(), now)
            .unwrap_or(LONGEST)
            .min(LONGEST)
    }
}

/// The time from `now` until `at`, zero when it has passed.
pub fn until(at: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
}
