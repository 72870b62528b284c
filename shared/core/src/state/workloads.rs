//! Events about Workloads, and the place where a Workload belongs.

use jiff::Timestamp;

use super::{Assumption, Cluster, Fresh, Holding, Local, Place, Readiness, Record, State, Told};
use crate::condition::Truth;
use crate::name::{CheckName, Key, Uid};
use crate::pending::{Rank, Ticket};
use crate::queue::{StopPolicy, UsageOrder};
use crate::quota::{self, Stage};
use crate::status::CheckPhase;
use crate::table::{ClusterId, LocalId, WorkloadId};
use crate::workload::Workload;

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
        let Some(id) = self.records.id(&key) else {
            self.add_workload(workload, now);
            return;
        };
        let Some(record) = self.records.at(id) else { return };
        let (old_class, old_local) = (record.class, record.local);
        let (same_local, same_class) = (
            record.workload.queue == workload.queue,
            asks_the_same(&record.workload, &workload),
        );
        // Why not always: most changes concern only the status, and a look-up by name costs more than a number.
        let local = if same_local {
            old_local
        } else {
            self.ensure_local(&local_key(&workload))
        };
        let class = if same_class {
            old_class
        } else {
            self.classes.join(&workload)
        };
        let Some(record) = self.records.at_mut(id) else {
            return;
        };
        let old = &record.workload;
        let fresh = if is_worth_another_try(old, &workload) {
            Fresh::Yes
        } else {
            Fresh::No
        };
        if old.status.conditions.get("QuotaReserved") != workload.status.conditions.get("QuotaReserved") {
            record.said = None;
        }
        let over = |a: &Assumption| workload.is_finished() || a.is_over(&workload);
        if record.assumption.as_deref().is_some_and(over) {
            record.assumption = None;
        }
        if old_class != class {
            record.progress = None;
        }
        record.workload = workload;
        record.class = class;
        record.local = local;
        if !same_class {
            self.classes.leave(old_class);
        }
        self.follow_eviction(id);
        if old_local != local {
            if let Some(named) = self.locals.at_mut(old_local) {
                named.workloads.remove(&id);
            }
            if let Some(named) = self.locals.at_mut(local) {
                named.workloads.insert(id);
            }
        }
        self.settle(id, now, fresh);
        if old_local != local {
            self.sweep_local(old_local);
        }
    }

    fn add_workload(&mut self, workload: Box<Workload>, now: Timestamp) {
        let key = workload.key.clone();
        let local = self.ensure_local(&local_key(&workload));
        let class = self.classes.join(&workload);
        let id = self.records.ensure(&key, || Record {
            workload,
            local,
            class,
            place: Place::Out,
            assumption: None,
            eviction: None,
            said: None,
            progress: None,
        });
        if let Some(named) = self.locals.at_mut(local) {
            named.workloads.insert(id);
        }
        self.settle(id, now, Fresh::Yes);
    }

    pub(super) fn drop_workload(&mut self, key: &Key, now: Timestamp) {
        let Some(id) = self.records.id(key) else { return };
        self.forget_eviction(id);
        self.move_to(id, Place::Out, now);
        self.unexplained.remove(&id);
        self.bypassed.remove(&id);
        if let Some(record) = self.records.remove(key) {
            self.classes.leave(record.class);
            if let Some(local) = self.locals.at_mut(record.local) {
                local.workloads.remove(&id);
            }
            self.sweep_local(record.local);
        }
    }

    /// A decision could not be written: forgets it.
    pub(super) fn forget_decisions(&mut self, key: &Key, uid: &Uid, now: Timestamp) {
        let Some(id) = self.records.id(key) else { return };
        let Some(record) = self.records.at_mut(id).filter(|r| r.workload.uid == *uid) else {
            return;
        };
        let (assumption, eviction) = (record.assumption.take(), record.eviction.is_some());
        if assumption.is_none() && !eviction {
            return;
        }
        self.lose_eviction(id);
        self.settle(id, now, Fresh::Yes);
        if eviction && let Some(Place::Holding(held)) = self.records.at(id).map(|r| &r.place) {
            let cluster = held.cluster;
            self.stir_tree(cluster);
        }
    }

    /// Moves a workload to the place where it belongs now.
    pub(crate) fn settle(&mut self, id: WorkloadId, now: Timestamp, fresh: Fresh) {
        let Some(wanted) = self.place_of(id) else { return };
        self.unexplained.insert(id);
        let stays = self.records.at(id).is_some_and(|record| record.place == wanted);
        if stays && (fresh == Fresh::No || !matches!(wanted, Place::Queued { .. })) {
            return;
        }
        self.move_to(id, wanted, now);
    }

    /// *Source*: `spec/admission-engine.md 1.1`.
    fn place_of(&mut self, id: WorkloadId) -> Option<Place> {
        let record = self.records.at(id)?;
        let workload = &record.workload;
        if workload.is_finished() {
            return Some(Place::Out);
        }
        let shown = workload
            .status
            .admission
            .as_ref()
            .filter(|_| workload.has_quota());
        let assumed = record.assumption.as_ref().map(|a| &a.admission);
        if let Some(admission) = shown.or(assumed) {
            let quota = workload.status.conditions.when_true("QuotaReserved");
            let since = record.assumption.as_ref().map(|a| a.since);
            let cluster = self.clusters.ensure(&admission.cluster_queue, || {
                Cluster::unknown(&admission.cluster_queue)
            });
            return Some(Place::Holding(Box::new(Holding {
                cluster,
                local: record.local,
                amounts: quota::held(&mut self.ground, admission, workload),
                stage: if shown.is_some() && workload.is_admitted() {
                    Stage::Admitted
                } else {
                    Stage::Reserved
                },
                readiness: if workload.pods_ready() {
                    Readiness::Ready
                } else {
                    Readiness::NotReady
                },
                evicted: workload.is_evicted() && shown.is_some() || record.eviction.is_some(),
                priority: workload.effective_priority(),
                queue_time: self.settings.age().queue_time(workload),
                reserved_at: quota.map(|c| c.since).or(since).unwrap_or(workload.created),
            })));
        }
        if workload.has_quota() || !workload.may_queue() {
            return Some(Place::Out);
        }
        let local = self.locals.at(record.local)?;
        let cluster = local.cluster.filter(|_| {
            local
                .queue
                .as_ref()
                .is_some_and(|queue| queue.stop == StopPolicy::None)
        });
        let Some((cluster, queue)) = cluster.and_then(|cluster| Some((cluster, self.queue(cluster)?))) else {
            return Some(Place::Out);
        };
        let counts = queue.spec.usage_order == UsageOrder::LeastUsedFirst && self.book.is_some();
        Some(Place::Queued {
            cluster,
            local: record.local,
            ticket: Ticket {
                rank: Rank::of(id, workload, self.settings.age()),
                class: record.class,
                line: counts.then_some(record.local),
            },
        })
    }

    pub(super) fn ensure_local(&mut self, key: &Key) -> LocalId {
        self.locals.ensure(key, || Local {
            key: key.clone(),
            ..Local::default()
        })
    }

    /// Forgets a LocalQueue without object that no object names.
    pub(super) fn sweep_local(&mut self, id: LocalId) {
        let unused = |local: &Local| {
            local.queue.is_none()
                && local.workloads.is_empty()
                && local.ledger.is_empty()
                && local.pending == 0
        };
        if let Some(key) = self.locals.at(id).filter(|l| unused(l)).map(|l| l.key.clone()) {
            self.locals.remove(&key);
            self.stale_past.remove(&id);
        }
    }

    /// Follows a decided eviction after a change of its Workload. It is forgotten once it is visible, or nothing is left to evict; it is
    /// handed out once the reservation is visible.
    fn follow_eviction(&mut self, id: WorkloadId) {
        let Some(record) = self.records.at(id) else { return };
        let Some(eviction) = &record.eviction else { return };
        let (shown, assumed) = (record.workload.has_quota(), record.assumption.is_some());
        if record.workload.is_finished() || (shown && record.workload.is_evicted()) || !(shown || assumed) {
            self.forget_eviction(id);
        } else if shown && eviction.told == Told::NotYet {
            self.orders.insert(id);
        }
    }

    pub(super) fn forget_eviction(&mut self, id: WorkloadId) {
        if let Some(eviction) = self.records.at_mut(id).and_then(|record| record.eviction.take()) {
            self.expectations.remove(&(eviction.until, id));
            self.orders.remove(&id);
        }
    }

    /// A decided eviction will not happen: its victim may be chosen again.
    pub(super) fn lose_eviction(&mut self, id: WorkloadId) {
        if let Some(record) = self.records.at(id)
            && let Some(eviction) = &record.eviction
        {
            self.holders
                .forget_displacement(&eviction.preemptor_uid, &record.workload.uid);
        }
        self.forget_eviction(id);
    }

    /// The queue that a workload is in, or whose quota it holds.
    pub(crate) fn cluster_of(&self, id: WorkloadId) -> Option<ClusterId> {
        match &self.records.at(id)?.place {
            Place::Out => None,
            Place::Queued { cluster, .. } => Some(*cluster),
            Place::Holding(held) => Some(held.cluster),
        }
    }
}

impl Assumption {
    /// Whether the assumed reservation is visible in `workload`, or was visible and is already over.
    fn is_over(&self, workload: &Workload) -> bool {
        let Some(quota) = workload.status.conditions.get("QuotaReserved") else {
            return false;
        };
        // Why not only the first test: a watch may skip the time in which quota was held. Its traces are a moved transition time and one
        // more eviction. The text alone proves nothing: an earlier explanation may still be on its way.
        quota.truth == Truth::True
            || self.quota_since.is_some_and(|since| since != quota.since)
            || self.evictions != eviction_count(workload)
    }
}

/// The number of evictions of the workload so far.
pub(crate) fn eviction_count(workload: &Workload) -> u64 {
    workload
        .status
        .evictions
        .values()
        .map(|count| u64::from(*count))
        .sum()
}

pub(crate) fn local_key(workload: &Workload) -> Key {
    Key::new(workload.key.namespace.clone(), workload.queue.as_str())
}

/// The time at which a back-off ends by itself.
pub(super) fn backoff_end(workload: &Workload) -> Option<Timestamp> {
    // Why: while Requeued is False only a change of that condition ends the back-off.
    if workload.status.conditions.is_false("Requeued") {
        return None;
    }
    workload.status.requeue.and_then(|r| r.at)
}

/// *Source*: `spec/admission-engine.md 1.5`, last paragraph but one.
fn is_worth_another_try(old: &Workload, new: &Workload) -> bool {
    fn phases(w: &Workload) -> impl Iterator<Item = (&CheckName, CheckPhase)> {
        w.status.checks.iter().map(|(name, state)| (name, state.phase))
    }
    old.generation != new.generation
        || !asks_the_same(old, new)
        || old.created != new.created
        || old.problems != new.problems
        || old.beyond != new.beyond
        || old.status.requeue != new.status.requeue
        || !phases(old).eq(phases(new))
        || ["Evicted", "Requeued"]
            .iter()
            .any(|kind| old.status.conditions.get(kind) != new.status.conditions.get(kind))
}

/// Whether two versions of a workload are of one class.
fn asks_the_same(old: &Workload, new: &Workload) -> bool {
    old.effective_priority() == new.effective_priority()
        && old.pod_sets == new.pod_sets
        && old.status.reclaimable == new.status.reclaimable
        && old.status.has_closed_gate() == new.status.has_closed_gate()
}
