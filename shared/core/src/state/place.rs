//! Moves of a Workload from place to place. Heaps, ledgers, ground, holders and counts are updated together here and nowhere else.

use jiff::Timestamp;

use super::workloads::backoff_end;
use super::{Holding, Place, Readiness, State};
use crate::afs::ByResource;
use crate::ground::Footprint;
use crate::hierarchy::{Exact, FlavorResource, Forest, NodeId};
use crate::holders::{Holder, PastUsage};
use crate::pending::{Stance, Ticket, Wait};
use crate::queue::{QueueRef, Strategy, UsageOrder};
use crate::quota::{self, Stage};
use crate::table::{ClusterId, LocalId, WorkloadId};

impl State {
    pub(crate) fn move_to(&mut self, id: WorkloadId, wanted: Place, now: Timestamp) {
        let Some(record) = self.records.at_mut(id) else {
            return;
        };
        let old = std::mem::replace(&mut record.place, Place::Out);
        if let (Place::Holding(was), Place::Holding(is)) = (&old, &wanted)
            && was.amounts == is.amounts
            && (was.cluster, was.local) == (is.cluster, is.local)
            && was.priority == is.priority
        {
            self.restage(id, was, is);
            self.book_past(id, &old, &wanted);
            if let Some(record) = self.records.at_mut(id) {
                record.place = wanted;
            }
            return;
        }
        let sticky = self.leave(id, &old);
        if let Place::Queued { cluster, .. } = old
            && !matches!(wanted, Place::Queued { cluster: is, .. } if is == cluster)
        {
            self.drop_claim_of(id, cluster);
        }
        self.enter(id, &wanted, now);
        if let (true, Place::Queued { cluster: was, .. }, Place::Queued { cluster, ticket, .. }) =
            (sticky, &old, &wanted)
            && was == cluster
            && let Some(queue) = self.queue_mut(*cluster)
        {
            queue.pending.stick(ticket);
        }
        let repriced = match (&old, &wanted) {
            (Place::Holding(was), Place::Holding(is)) if was.priority != is.priority => Some(is.cluster),
            (Place::Out | Place::Queued { .. } | Place::Holding(_), _) => None,
        };
        self.book_past(id, &old, &wanted);
        self.note_freed(&old, &wanted);
        if let Some(record) = self.records.at_mut(id) {
            record.place = wanted;
        }
        // Why: holders that could not be preempted before may be preempted now.
        self.flush_trees(repriced);
        if let Some(cluster) = place_cluster(&old) {
            self.touch(cluster);
            self.sweep_cluster(cluster);
        }
        if let Some(cluster) = self.cluster_of(id) {
            self.touch(cluster);
        }
    }

    /// A workload holds the same amounts, but its stage changed.
    fn restage(&mut self, id: WorkloadId, was: &Holding, is: &Holding) {
        if was.readiness != is.readiness {
            self.count_ready(was.readiness, -1);
            self.count_ready(is.readiness, 1);
        }
        if was.stage != is.stage {
            if let Some(cluster) = self.clusters.at_mut(is.cluster) {
                cluster.ledger.remove(&was.amounts, was.stage);
                cluster.ledger.add(&is.amounts, is.stage);
            }
            if let Some(local) = self.locals.at_mut(is.local) {
                local.ledger.remove(&was.amounts, was.stage);
                local.ledger.add(&is.amounts, is.stage);
            }
            self.queue_changed(is.cluster, is.local);
        }
        let standing = |held: &Holding| (held.evicted, held.queue_time, held.reserved_at);
        if standing(was) != standing(is) {
            let node = self.node_of(is.cluster);
            if let Some(holder) = node.and_then(|node| self.holder(id, is, node)) {
                self.holders.insert(holder);
            }
        }
    }

    /// Takes a workload out of its place; returns whether it was waiting for its victims.
    fn leave(&mut self, id: WorkloadId, place: &Place) -> bool {
        match place {
            Place::Out => false,
            Place::Queued {
                cluster,
                local,
                ticket,
            } => self.dequeue(id, (*cluster, *local), ticket),
            Place::Holding(held) => {
                let amounts = &held.amounts;
                self.count_ready(held.readiness, -1);
                if let Some(cluster) = self.clusters.at_mut(held.cluster) {
                    cluster.ledger.remove(amounts, held.stage);
                }
                if let Some(local) = self.locals.at_mut(held.local) {
                    local.ledger.remove(amounts, held.stage);
                }
                let uid = self.records.at(id).map(|record| &record.workload.uid);
                if let Some(holder) = uid.and_then(|uid| self.holders.remove(uid)) {
                    self.ground.give(Footprint::of(holder.node, amounts));
                }
                self.queue_changed(held.cluster, held.local);
                false
            }
        }
    }

    fn dequeue(&mut self, id: WorkloadId, (cluster, local): (ClusterId, LocalId), ticket: &Ticket) -> bool {
        let mut sticky = false;
        let mut claimed = false;
        let mut backoff = None;
        if let Some(queue) = self.queue_mut(cluster) {
            sticky = queue.pending.is_sticky(id);
            claimed = queue.pending.stance(id) == Some(Stance::Claims);
            backoff = queue.pending.remove(ticket);
        }
        if let Some(at) = backoff {
            self.backoffs.remove(&(at, id));
        }
        self.bypassed.remove(&id);
        if let Some(local) = self.locals.at_mut(local) {
            local.pending = local.pending.saturating_sub(1);
        }
        self.queue_changed(cluster, local);
        if claimed {
            // Why: the quota it claimed is free for others, though nothing was released.
            self.stir_tree(cluster);
        }
        sticky
    }

    fn enter(&mut self, id: WorkloadId, place: &Place, now: Timestamp) {
        match place {
            Place::Out => {}
            Place::Queued {
                cluster,
                local,
                ticket,
            } => {
                let Some(record) = self.records.at(id) else { return };
                let wait = record
                    .workload
                    .in_backoff(now)
                    .then(|| backoff_end(&record.workload));
                let Some(queue) = self.queue_mut(*cluster) else {
                    return;
                };
                match wait {
                    Some(at) => {
                        queue.pending.park(ticket, Wait::Backoff(at));
                        self.backoffs.extend(at.map(|at| (at, id)));
                    }
                    None if queue.spec.strategy == Strategy::BestEffortFifo
                        && queue.pending.is_hopeless(ticket) =>
                    {
                        queue.pending.join(ticket);
                        self.bypassed.insert(id);
                    }
                    None => queue.pending.push(ticket),
                }
                if let Some(local) = self.locals.at_mut(*local) {
                    local.pending += 1;
                }
                self.queue_changed(*cluster, *local);
            }
            Place::Holding(held) => {
                let amounts = &held.amounts;
                self.count_ready(held.readiness, 1);
                let node = self.node_of(held.cluster);
                if let Some(cluster) = self.clusters.at_mut(held.cluster) {
                    cluster.ledger.add(amounts, held.stage);
                }
                if let Some(local) = self.locals.at_mut(held.local) {
                    local.ledger.add(amounts, held.stage);
                }
                if let Some(holder) = node.and_then(|node| self.holder(id, held, node)) {
                    self.ground.take(holder.footprint());
                    self.holders.insert(holder);
                }
                self.queue_changed(held.cluster, held.local);
            }
        }
    }

    /// The node of a ClusterQueue, with or without object.
    pub(crate) fn node_of(&mut self, id: ClusterId) -> Option<NodeId> {
        let cluster = self.clusters.at(id)?;
        match &cluster.queue {
            Some(queue) => Some(queue.node),
            None => Some(self.ground.ensure_queue(&cluster.name)),
        }
    }

    /// The holder that stands for a workload with quota.
    pub(super) fn holder(&self, id: WorkloadId, held: &Holding, node: NodeId) -> Option<Holder> {
        let record = self.records.at(id)?;
        let local = self.locals.at(held.local)?;
        let counts = self
            .queue(held.cluster)
            .is_some_and(|queue| queue.spec.usage_order == UsageOrder::LeastUsedFirst);
        let past = self
            .book
            .as_ref()
            .filter(|_| counts)
            .map(|book| PastUsage::new(book.score(&local.key).value()));
        Some(Holder {
            key: record.workload.key.clone(),
            uid: record.workload.uid.clone(),
            node,
            local: local.key.clone(),
            priority: held.priority,
            queue_time: held.queue_time,
            reserved_at: held.reserved_at,
            evicted: held.evicted,
            usage: held.amounts.clone(),
            past,
        })
    }

    /// Updates past usage. *Source*: `spec/admission-engine.md 6`.
    fn book_past(&mut self, id: WorkloadId, old: &Place, new: &Place) {
        let (Some(book), Some(record)) = (self.book.as_mut(), self.records.at(id)) else {
            return;
        };
        let ((Place::Holding(held), _) | (_, Place::Holding(held))) = (new, old) else {
            return;
        };
        let Some(local) = self.locals.at(held.local) else {
            return;
        };
        let uid = &record.workload.uid;
        let of = |held: &Holding| by_resource(self.ground.quotas(), &held.amounts);
        match (old, new) {
            (Place::Holding(was), Place::Holding(is)) => match (was.stage, is.stage) {
                (Stage::Reserved, Stage::Admitted) => book.settle(uid),
                (_, Stage::Reserved) if was.amounts != is.amounts => book.reserve(uid, &local.key, &of(is)),
                (_, Stage::Reserved | Stage::Admitted) => return,
            },
            (Place::Holding(_), Place::Out | Place::Queued { .. }) => book.drop(uid),
            (Place::Out | Place::Queued { .. }, Place::Holding(is)) if is.stage == Stage::Reserved => {
                book.reserve(uid, &local.key, &of(is));
            }
            (Place::Out | Place::Queued { .. }, _) => return,
        }
        self.stale_past.insert(held.local);
    }

    /// Records the amounts that became free. *Source*: `spec/admission-engine.md 1.5`.
    fn note_freed(&mut self, old: &Place, new: &Place) {
        let Place::Holding(was) = old else { return };
        let later: &[_] = match new {
            Place::Holding(is) if is.cluster == was.cluster => &is.amounts,
            Place::Holding(_) | Place::Out | Place::Queued { .. } => &[],
        };
        let mut freed = quota::freed(&was.amounts, later).peekable();
        if freed.peek().is_none() {
            return;
        }
        let gains = self.gains.entry(was.cluster).or_default();
        for (pair, value) in freed {
            *gains.entry(pair).or_default() += value;
        }
    }

    fn count_ready(&mut self, readiness: Readiness, by: isize) {
        if readiness == Readiness::Ready {
            return;
        }
        self.unready = self.unready.saturating_add_signed(by);
        if self.unready == 0 {
            self.unblock_all();
        }
    }

    fn queue_changed(&mut self, cluster: ClusterId, local: LocalId) {
        if let Some(cluster) = self.clusters.at_mut(cluster).filter(|cluster| !cluster.noted) {
            cluster.noted = true;
            self.changed.insert(QueueRef::Cluster(cluster.name.clone()));
        }
        if let Some(local) = self.locals.at_mut(local).filter(|local| !local.noted) {
            local.noted = true;
            self.changed.insert(QueueRef::Local(local.key.clone()));
        }
    }
}

pub(super) fn by_resource(quotas: &Forest, amounts: &[(FlavorResource, Exact)]) -> ByResource {
    let mut sums = ByResource::new();
    for (pair, value) in amounts {
        if let Some((_, resource)) = quotas.pair_names(*pair) {
            let sum = sums.entry(resource.clone()).or_default();
            *sum = sum.plus(crate::hierarchy::amount(*value));
        }
    }
    sums
}

fn place_cluster(place: &Place) -> Option<ClusterId> {
    match place {
        Place::Out => None,
        Place::Queued { cluster, .. } => Some(*cluster),
        Place::Holding(held) => Some(held.cluster),
    }
}
