//! Events about Workloads, and where a Workload lives.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::configuration::unlink;
use super::{Assumption, Place, Record, State};
use crate::condition::{Condition, Truth};
use crate::name::{ClusterQueueName, Key, Uid};
use crate::pending::{Rank, Wait};
use crate::queue::StopPolicy;
use crate::quota::{Charge, Ledger, Stage};
use crate::report::QueueRef;
use crate::workload::Workload;

/// Whether something about the workload changed that is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// It goes back to the heap.
    Yes,
    /// It stays where it is, if it can.
    No,
}

impl State {
    pub(super) fn put_workload(&mut self, workload: Box<Workload>, now: Timestamp) {
        let key = workload.key.clone();
        if let Some(record) = self.records.get(&key) {
            if record.workload == workload {
                return;
            }
            if record.workload.uid != workload.uid {
                self.drop_workload(&key, now);
            }
        }
        let local = local_key(&workload);
        let mut fresh = Fresh::Yes;
        if let Some(record) = self.records.get_mut(&key) {
            let old = &record.workload;
            let old_local = local_key(old);
            if !is_worth_another_try(old, &workload) {
                fresh = Fresh::No;
            }
            if old.status.conditions.get("QuotaReserved") != workload.status.conditions.get("QuotaReserved") {
                record.said = None;
            }
            let over = |a: &Assumption| workload.is_finished() || a.is_over(&workload);
            if record.assumption.as_ref().is_some_and(over) {
                record.assumption = None;
            }
            record.workload = workload;
            if old_local != local {
                unlink(&mut self.by_local, &old_local, &key);
            }
        } else {
            let record = Record {
                workload,
                place: Place::Out,
                assumption: None,
                said: None,
            };
            self.records.insert(key.clone(), record);
        }
        self.by_local.entry(local).or_default().insert(key.clone());
        self.settle(&key, now, fresh);
    }

    pub(super) fn drop_workload(&mut self, key: &Key, now: Timestamp) {
        self.move_to(key, &Place::Out, now);
        self.unexplained.remove(key);
        if let Some(record) = self.records.remove(key) {
            unlink(&mut self.by_local, &local_key(&record.workload), key);
        }
    }

    pub(super) fn forget_assumption(&mut self, key: &Key, uid: &Uid, now: Timestamp) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        if record.workload.uid == *uid && record.assumption.take().is_some() {
            self.settle(key, now, Fresh::Yes);
        }
    }

    /// Moves a workload to where it belongs now.
    pub(super) fn settle(&mut self, key: &Key, now: Timestamp, fresh: Fresh) {
        let Some(record) = self.records.get(key) else {
            return;
        };
        let wanted = self.place_of(record);
        let stays = wanted == record.place;
        self.unexplained.insert(key.clone());
        if stays && (fresh == Fresh::No || !matches!(wanted, Place::Queued { .. })) {
            return;
        }
        self.move_to(key, &wanted, now);
    }

    /// *Source*: `spec/admission-engine.md 1.1`.
    fn place_of(&self, record: &Record) -> Place {
        let workload = &record.workload;
        let status = &workload.status;
        let local = local_key(workload);
        if workload.is_finished() {
            return Place::Out;
        }
        let shown = status.admission.as_ref().filter(|_| workload.has_quota());
        let assumed = record.assumption.as_ref().map(|a| &a.admission);
        if let Some(admission) = shown.or(assumed) {
            return Place::Holding {
                cluster: admission.cluster_queue.clone(),
                local,
                charge: Charge::of(admission, workload),
                stage: if shown.is_some() && workload.is_admitted() {
                    Stage::Admitted
                } else {
                    Stage::Reserved
                },
            };
        }
        if workload.has_quota() || !may_queue(workload) {
            return Place::Out;
        }
        match self.locals.get(&local) {
            Some(queue)
                if queue.stop == StopPolicy::None && self.queues.contains_key(&queue.cluster_queue) =>
            {
                Place::Queued {
                    cluster: queue.cluster_queue.clone(),
                    local,
                }
            }
            Some(_) | None => Place::Out,
        }
    }

    /// Moves a workload and keeps the heaps, the ledgers and the counts in step.
    pub(crate) fn move_to(&mut self, key: &Key, wanted: &Place, now: Timestamp) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        let old = std::mem::replace(&mut record.place, wanted.clone());
        let uid = record.workload.uid.clone();
        self.note_usage(&uid, wanted);
        self.leave(key, &old);
        self.enter(key, wanted, now);
        let (cluster, freed) = match (&old, wanted) {
            (
                Place::Holding { cluster, charge, .. },
                Place::Holding {
                    cluster: now_in,
                    charge: held,
                    ..
                },
            ) if cluster == now_in => (cluster, held.frees(charge)),
            (Place::Holding { cluster, .. }, _) => (cluster, true),
            (Place::Out | Place::Queued { .. }, _) => return,
        };
        if freed {
            self.flush_capacity(cluster);
        }
    }

    /// Keeps the book of past usage in step. *Source*: `spec/admission-engine.md 6`.
    fn note_usage(&mut self, uid: &Uid, place: &Place) {
        let Some(book) = &mut self.book else { return };
        match place {
            Place::Out | Place::Queued { .. } => book.drop(uid),
            Place::Holding {
                local,
                charge,
                stage: Stage::Reserved,
                ..
            } => book.reserve(uid, local, &charge.by_resource()),
            Place::Holding {
                stage: Stage::Admitted,
                ..
            } => book.settle(uid),
        }
    }

    /// Samples the usage of the LocalQueues that are due.
    pub(crate) fn sample_usage(&mut self, now: Timestamp) {
        let Some(book) = &mut self.book else { return };
        let ledgers = &self.local_ledgers;
        let admitted = |local: &Key| {
            let ledger = ledgers.get(local);
            ledger.map(|l| l.admitted().by_resource()).unwrap_or_default()
        };
        let sampled = book.sample(now, admitted);
        self.changed.extend(sampled.into_iter().map(QueueRef::Local));
    }

    fn leave(&mut self, key: &Key, place: &Place) {
        match place {
            Place::Out => {}
            Place::Queued { cluster, local } => {
                let wait = self.queues.get_mut(cluster).and_then(|q| q.pending.remove(key));
                if let Some(Wait::Backoff(Some(at))) = wait {
                    self.backoffs.remove(&(at, key.clone()));
                }
                if let Some(count) = self.local_pending.get_mut(local) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        self.local_pending.remove(local);
                    }
                }
                self.queue_changed(cluster, local);
            }
            Place::Holding {
                cluster,
                local,
                charge,
                stage,
            } => {
                book(&mut self.ledgers, cluster, |ledger| ledger.remove(charge, *stage));
                let node = self.forest.ensure_queue(cluster);
                for (flavor, resource, value) in charge.entries() {
                    let pair = self.forest.pair(flavor, resource);
                    self.forest.remove(node, pair, value);
                }
                self.forest.released(node);
                book(&mut self.local_ledgers, local, |ledger| {
                    ledger.remove(charge, *stage);
                });
                self.queue_changed(cluster, local);
            }
        }
    }

    fn enter(&mut self, key: &Key, place: &Place, now: Timestamp) {
        match place {
            Place::Out => {}
            Place::Queued { cluster, local } => {
                let (Some(record), Some(queue)) = (self.records.get(key), self.queues.get_mut(cluster))
                else {
                    return;
                };
                let rank = Rank::of(&record.workload, self.settings.timestamp);
                if record.workload.in_backoff(now) {
                    let at = backoff_end(&record.workload);
                    queue.pending.park(rank, Wait::Backoff(at));
                    self.backoffs.extend(at.map(|at| (at, key.clone())));
                } else {
                    queue.pending.push(rank);
                }
                *self.local_pending.entry(local.clone()).or_default() += 1;
                self.queue_changed(cluster, local);
            }
            Place::Holding {
                cluster,
                local,
                charge,
                stage,
            } => {
                book(&mut self.ledgers, cluster, |ledger| ledger.add(charge, *stage));
                let node = self.forest.ensure_queue(cluster);
                for (flavor, resource, value) in charge.entries() {
                    let pair = self.forest.pair(flavor, resource);
                    self.forest.add(node, pair, value);
                }
                book(&mut self.local_ledgers, local, |ledger| {
                    ledger.add(charge, *stage);
                });
                self.queue_changed(cluster, local);
            }
        }
    }

    fn queue_changed(&mut self, cluster: &ClusterQueueName, local: &Key) {
        self.changed.insert(QueueRef::Cluster(cluster.clone()));
        self.changed.insert(QueueRef::Local(local.clone()));
        self.touch(cluster);
    }

    fn flush_capacity(&mut self, name: &ClusterQueueName) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.pending.flush_capacity();
        }
        self.touch(name);
    }

    /// Puts those in the heap whose back-off has ended.
    pub(crate) fn end_backoffs(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.backoffs.first().cloned() {
            if at > now {
                break;
            }
            self.backoffs.remove(&(at, key.clone()));
            let Some(Place::Queued { cluster, .. }) = self.records.get(&key).map(|r| &r.place) else {
                continue;
            };
            let cluster = cluster.clone();
            if let Some(queue) = self.queues.get_mut(&cluster) {
                queue.pending.unpark(&key);
            }
            self.touch(&cluster);
        }
    }
}

impl Assumption {
    /// Whether the assumed reservation is visible in `workload`, or was visible and is over already.
    fn is_over(&self, workload: &Workload) -> bool {
        let Some(quota) = workload.status.conditions.get("QuotaReserved") else {
            return false;
        };
        // Why: a watch may skip the moment in which quota was held. Its traces are a moved transition time and another
        // eviction counted. Text alone proves nothing: an earlier explanation may still be on its way.
        quota.truth == Truth::True
            || self.quota_since.is_some_and(|since| since != quota.since)
            || self.evictions != eviction_count(workload)
    }
}

/// How often the workload was evicted so far.
pub(crate) fn eviction_count(workload: &Workload) -> u64 {
    workload
        .status
        .evictions
        .values()
        .map(|count| u64::from(*count))
        .sum()
}

/// The LocalQueue that a workload names.
pub(crate) fn local_key(workload: &Workload) -> Key {
    Key::new(workload.key.namespace.clone(), workload.queue.as_str())
}

/// The rules of `spec/admission-engine.md 1.1` that look at the workload alone.
pub(crate) fn may_queue(workload: &Workload) -> bool {
    let conditions = &workload.status.conditions;
    let on_hold = |c: &Condition| c.truth == Truth::False && c.reason == "OnHold";
    !workload.deleting
        && workload.active
        && !workload.gated
        && !conditions.get("QuotaReserved").is_some_and(on_hold)
        && !conditions.is_true("WaitingForReplacementPods")
}

/// When a back-off ends by itself.
fn backoff_end(workload: &Workload) -> Option<Timestamp> {
    // Why: while Requeued is False only a change of that condition ends the back-off.
    if workload.status.conditions.is_false("Requeued") {
        return None;
    }
    workload.status.requeue.and_then(|r| r.at)
}

/// *Source*: `spec/admission-engine.md 1.5`, last paragraph but one.
fn is_worth_another_try(old: &Workload, new: &Workload) -> bool {
    let phases = |w: &Workload| -> Vec<_> {
        w.status
            .checks
            .iter()
            .map(|(name, state)| (name.clone(), state.phase))
            .collect()
    };
    let condition = |w: &Workload, kind: &str| w.status.conditions.get(kind).cloned();
    old.generation != new.generation
        || old.priority != new.priority
        || old.created != new.created
        || old.pod_sets != new.pod_sets
        || old.problems != new.problems
        || old.status.reclaimable != new.status.reclaimable
        || old.status.requeue != new.status.requeue
        || phases(old) != phases(new)
        || ["Evicted", "Requeued"]
            .iter()
            .any(|kind| condition(old, kind) != condition(new, kind))
}

/// Changes one ledger, and drops it when it is empty.
fn book<K: Ord + Clone>(ledgers: &mut BTreeMap<K, Ledger>, key: &K, change: impl FnOnce(&mut Ledger)) {
    let ledger = ledgers.entry(key.clone()).or_default();
    change(ledger);
    if ledger.is_empty() {
        ledgers.remove(key);
    }
}
