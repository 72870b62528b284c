//! Wake-ups of workloads that are worth another try: after released quota, changed configuration, or time.
//!
//! Unlike the anchor: a release does not wake every workload in the tree. It wakes only those for which there is enough now, and at once
//! instead of after a second. A woken workload is tried in the order of the heap, unless others were faster. *Source*:
//! `spec/admission-engine.md 1.5, 10.1`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::place::by_resource;
use super::{Fresh, Place, Queue, State};
use crate::hierarchy::{Exact, FlavorResource, NodeId};
use crate::pending::{Lack, Ticket};
use crate::queue::{QueueRef, Reclaim, UsageOrder, WithinClusterQueue};
use crate::table::{ClusterId, LocalId, WorkloadId};

/// The workloads that a queue could preempt.
struct Reach {
    /// The least priority of the holders in the queue itself, if they may be preempted at all.
    least: Option<i64>,
    /// Whether there are queues that borrow and from which this queue may reclaim.
    borrowers: bool,
}

impl Reach {
    /// Whether there is a possible victim for a workload of this priority.
    fn helps(&self, priority: i64, policy: WithinClusterQueue) -> bool {
        let own = self.least.is_some_and(|least| match policy {
            WithinClusterQueue::Never => false,
            WithinClusterQueue::LowerPriority => least < priority,
            WithinClusterQueue::LowerOrNewerEqualPriority => least <= priority,
        });
        own || self.borrowers
    }
}

impl State {
    /// The existing ClusterQueues in the tree of a ClusterQueue, itself included.
    pub(crate) fn tree_of(&self, id: ClusterId) -> Vec<ClusterId> {
        let node = match self.clusters.at(id) {
            Some(cluster) => cluster
                .queue
                .as_ref()
                .map(|queue| queue.node)
                .or_else(|| self.ground.quotas().queue(&cluster.name)),
            None => None,
        };
        node.map(|node| self.tree_at(node)).unwrap_or_default()
    }

    pub(crate) fn tree_at(&self, node: NodeId) -> Vec<ClusterId> {
        // Why a short way: a queue without cohort is a tree of its own.
        if self.ground.quotas().parent(node).is_none() && self.nodes.contains_key(&node) {
            return self.nodes.get(&node).copied().into_iter().collect();
        }
        let nodes = self.ground.quotas().queues_of_tree(node);
        nodes
            .iter()
            .filter_map(|node| self.nodes.get(node).copied())
            .collect()
    }

    /// Offers the amounts that became free since the last call to all workloads in the tree that lack them.
    pub(crate) fn spread_gains(&mut self) {
        let mut by_root: BTreeMap<NodeId, (ClusterId, BTreeMap<FlavorResource, Exact>)> = BTreeMap::new();
        for (cluster, gains) in std::mem::take(&mut self.gains) {
            let known = self.clusters.at(cluster);
            let Some(node) = known.and_then(|c| self.ground.quotas().queue(&c.name)) else {
                continue;
            };
            let root = self.ground.quotas().root(node);
            let (_, sums) = by_root.entry(root).or_insert_with(|| (cluster, BTreeMap::new()));
            for (pair, value) in gains {
                *sums.entry(pair).or_default() += value;
            }
            self.ground.released(node);
        }
        for (root, (cluster, gains)) in by_root {
            let tree = self.tree_of(cluster);
            for (pair, value) in gains {
                let freed = self.freed.entry((root, pair)).or_default();
                *freed += value;
                let freed = *freed;
                for member in &tree {
                    self.offer(*member, pair, freed);
                }
            }
            for member in tree {
                if let Some(queue) = self.queue_mut(member) {
                    queue.pending.stir();
                }
                self.touch(member);
            }
        }
    }

    /// Wakes the classes of a queue that may have enough of `pair`, now that `freed` is the total that has become free.
    ///
    /// Invariant: a class that stays asleep neither fits nor has candidates for preemption. That stays so until as much more has become
    /// free as it lacks now: others can take no more than what is available, so preempting them gives back no more either.
    fn offer(&mut self, id: ClusterId, pair: FlavorResource, freed: Exact) {
        let Some(queue) = self.queue(id) else { return };
        let thirsty = queue.pending.thirsty(pair, freed);
        if thirsty.is_empty() {
            return;
        }
        let available = self.ground.free(queue.node, pair);
        let (reach, policy) = (
            self.reach(queue, &[pair]),
            queue.spec.preemption.within_cluster_queue,
        );
        let Some(queue) = self.queue_mut(id) else { return };
        for class in thirsty {
            if class.needed <= available || reach.helps(class.priority, policy) {
                queue.pending.wake(class.kind);
            } else {
                let after = freed + class.needed - available;
                queue.pending.postpone(class.kind, pair, after);
            }
        }
    }

    /// The lacks of a head whose class was woken because there was enough quota, if other workloads have taken it since. `None`: the head
    /// is to be tried.
    pub(crate) fn dried_up(&self, queue: &Queue, ticket: &Ticket) -> Option<Vec<Lack>> {
        let hopes = queue.pending.hopes(ticket)?;
        let still = |lack: &Lack| {
            let available = self.ground.free(queue.node, lack.pair);
            let after = self.freed_after(queue.node, lack.pair, lack.needed - available);
            (lack.needed > available).then_some(Lack { after, ..*lack })
        };
        let lacks: Vec<Lack> = hopes.iter().map(still).collect::<Option<_>>()?;
        let pairs: Vec<FlavorResource> = lacks.iter().map(|lack| lack.pair).collect();
        let reach = self.reach(queue, &pairs);
        let helps = reach.helps(ticket.rank.priority(), queue.spec.preemption.within_cluster_queue);
        (!helps).then_some(lacks)
    }

    /// The workloads that a queue could possibly preempt for one of these pairs. It may include too many, never too few.
    fn reach(&self, queue: &Queue, pairs: &[FlavorResource]) -> Reach {
        let policy = queue.spec.preemption;
        let least = match policy.within_cluster_queue {
            WithinClusterQueue::Never => None,
            WithinClusterQueue::LowerPriority | WithinClusterQueue::LowerOrNewerEqualPriority => {
                let first = self.holders.of(queue.node).next();
                // Why: the first holder has the least priority only where neither evictions nor past usage come before priority.
                first.map(|holder| match (holder.evicted, holder.past) {
                    (false, None) => holder.priority,
                    (true, _) | (false, Some(_)) => i64::MIN,
                })
            }
        };
        let borrowers = match policy.reclaim_within_cohort {
            Reclaim::Never => false,
            Reclaim::LowerPriority | Reclaim::Any => {
                let quotas = self.ground.quotas();
                let mut others = quotas.queues_of_tree(queue.node).into_iter();
                others.any(|node| node != queue.node && pairs.iter().any(|pair| quotas.borrows(node, *pair)))
            }
        };
        Reach { least, borrowers }
    }

    /// The total that must have become free in the tree of a node when `more` has been added to it.
    pub(crate) fn freed_after(&self, node: NodeId, pair: FlavorResource, more: Exact) -> Exact {
        let root = self.ground.quotas().root(node);
        self.freed.get(&(root, pair)).copied().unwrap_or(0) + more
    }

    /// Something other than a release made room in a tree.
    pub(crate) fn stir_tree(&mut self, cluster: ClusterId) {
        for member in self.tree_of(cluster) {
            if let Some(queue) = self.queue_mut(member) {
                queue.pending.stir();
            }
            self.touch(member);
        }
    }

    /// The configuration of trees changed: all workloads in them are tried again.
    pub(super) fn flush_trees(&mut self, clusters: impl IntoIterator<Item = ClusterId>) {
        let mut done = BTreeSet::new();
        for cluster in clusters {
            if done.contains(&cluster) {
                continue;
            }
            for member in self.tree_of(cluster) {
                if done.insert(member) {
                    self.flush(member);
                }
            }
            self.touch(cluster);
        }
    }

    fn flush(&mut self, id: ClusterId) {
        if let Some(queue) = self.queue_mut(id) {
            queue.pending.flush_all();
            let name = queue.spec.name.clone();
            self.changed.insert(QueueRef::Cluster(name));
        }
        self.touch(id);
    }

    /// Lets all heads that failed be tried again.
    pub(super) fn unblock_all(&mut self) {
        for id in self.nodes.values().copied().collect::<Vec<_>>() {
            if let Some(queue) = self.queue_mut(id) {
                queue.pending.unblock();
            }
            self.touch(id);
        }
    }

    /// Puts workloads whose back-off has ended into the heap.
    pub(crate) fn end_backoffs(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.backoffs.first().copied() {
            if at > now {
                break;
            }
            self.backoffs.remove(&(at, id));
            let Some(cluster) = self.cluster_of(id) else {
                continue;
            };
            if let Some(queue) = self.queue_mut(cluster) {
                queue.pending.flush_aside_one(id);
            }
            self.touch(cluster);
        }
    }

    /// Expects that an eviction becomes visible by `until`.
    pub(crate) fn expect_eviction(&mut self, id: WorkloadId, until: Timestamp) {
        self.expectations.insert((until, id));
    }

    /// Stops waiting for evictions that should be visible by now, so that they are decided again.
    pub(crate) fn end_expectations(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.expectations.first().copied() {
            if at > now {
                break;
            }
            self.expectations.remove(&(at, id));
            self.give_up_eviction(id, now);
        }
    }

    /// An eviction will not happen, so that heads that count on it decide again.
    pub(crate) fn give_up_eviction(&mut self, id: WorkloadId, now: Timestamp) {
        self.lose_eviction(id);
        self.settle(id, now, Fresh::No);
        if let Some(cluster) = self.cluster_of(id) {
            self.stir_tree(cluster);
        }
    }

    /// Samples usage that is due, and lets queues whose order depends on it look again.
    pub(crate) fn sample_past(&mut self, now: Timestamp) {
        let Some(book) = self.book.as_mut() else { return };
        let (locals, quotas) = (&self.locals, self.ground.quotas());
        let sampled = book.sample(now, |key| {
            let admitted = locals.get(key).map(|local| local.ledger.admitted().exact());
            by_resource(quotas, admitted.unwrap_or_default())
        });
        let mut queues = BTreeSet::new();
        for key in sampled {
            if let Some(id) = self.locals.id(&key) {
                self.stale_past.insert(id);
                queues.extend(self.locals.at(id).and_then(|local| local.cluster));
            }
            self.changed.insert(QueueRef::Local(key));
        }
        for queue in queues {
            self.touch(queue);
        }
    }

    /// Lists the holders of a queue with their present past usage, if it can matter. *Source*: `spec/admission-engine.md 2.7.2`.
    pub(crate) fn refresh_past(&mut self, id: ClusterId) {
        if self.stale_past.is_empty() {
            return;
        }
        let Some(cluster) = self.clusters.at(id) else {
            return;
        };
        let matters = cluster.queue.as_ref().is_some_and(|queue| {
            queue.spec.usage_order == UsageOrder::LeastUsedFirst
                && queue.spec.preemption.within_cluster_queue != WithinClusterQueue::Never
        });
        if !matters {
            return;
        }
        let stale: Vec<LocalId> = cluster.locals.intersection(&self.stale_past).copied().collect();
        for local in stale {
            self.stale_past.remove(&local);
            let members: Vec<WorkloadId> = self
                .locals
                .at(local)
                .map(|local| local.workloads.iter().copied().collect())
                .unwrap_or_default();
            for member in members {
                let Some(Place::Holding(held)) = self.records.at(member).map(|record| &record.place) else {
                    continue;
                };
                let node = self.queue(held.cluster).map(|queue| queue.node);
                if let Some(holder) = node.and_then(|node| self.holder(member, held, node)) {
                    self.holders.insert(holder);
                }
            }
        }
    }
}
