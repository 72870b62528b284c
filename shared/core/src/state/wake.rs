//! What makes a workload worth another try: released quota, changed configuration, time.
//!
//! Unlike the anchor: a release does not wake everybody in the tree, but those who lack some of what came free, and at
//! once instead of after a second. Who is woken is tried in the order of the heap.
//! *Source*: `spec/admission-engine.md 1.5, 10.1`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::place::by_resource;
use super::workloads::Fresh;
use super::{ClusterId, LocalId, Place, State, WorkloadId};
use crate::hierarchy::{Exact, FlavorResource, NodeId};
use crate::queue::{UsageOrder, WithinClusterQueue};

impl State {
    /// The ClusterQueues in the tree of one, itself included, as far as they exist.
    pub(crate) fn tree_of(&self, id: ClusterId) -> Vec<ClusterId> {
        let node = match self.clusters.at(id) {
            Some(cluster) => cluster
                .queue
                .as_ref()
                .map(|queue| queue.node)
                .or_else(|| self.forest.queue(&cluster.name)),
            None => None,
        };
        node.map(|node| self.tree_at(node)).unwrap_or_default()
    }

    pub(crate) fn tree_at(&self, node: NodeId) -> Vec<ClusterId> {
        // Why: most queues without cohort are trees of their own.
        if self.forest.parent(node).is_none() && self.nodes.contains_key(&node) {
            return self.nodes.get(&node).copied().into_iter().collect();
        }
        let nodes = self.forest.queues_of_tree(node);
        nodes
            .iter()
            .filter_map(|node| self.nodes.get(node).copied())
            .collect()
    }

    /// Tells everybody in the tree who lacks something of it what came free since the last call.
    pub(crate) fn spread_gains(&mut self) {
        let mut by_root: BTreeMap<NodeId, (ClusterId, BTreeMap<FlavorResource, Exact>)> = BTreeMap::new();
        for (cluster, gains) in std::mem::take(&mut self.gains) {
            let Some(node) = self.clusters.at(cluster).and_then(|c| self.forest.queue(&c.name)) else {
                continue;
            };
            let root = self.forest.root(node);
            let (_, sums) = by_root.entry(root).or_insert_with(|| (cluster, BTreeMap::new()));
            for (pair, value) in gains {
                *sums.entry(pair).or_default() += value;
            }
            self.forest.released(node);
        }
        for (root, (cluster, gains)) in by_root {
            let tree = self.tree_of(cluster);
            for (pair, value) in gains {
                let freed = self.freed.entry((root, pair)).or_default();
                *freed += value;
                let freed = *freed;
                for member in &tree {
                    if let Some(queue) = self.queue_mut(*member) {
                        queue.pending.gain(pair, freed);
                    }
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

    /// How much must ever have come free in the tree of a node before so much more has.
    pub(crate) fn freed_after(&self, node: NodeId, pair: FlavorResource, more: Exact) -> Exact {
        let root = self.forest.root(node);
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

    /// The configuration of trees changed: everybody in them is tried again.
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
            self.changed.insert(crate::report::QueueRef::Cluster(name));
        }
        self.touch(id);
    }

    /// Heads that failed are tried again everywhere.
    pub(super) fn unblock_all(&mut self) {
        for id in self.nodes.values().copied().collect::<Vec<_>>() {
            if let Some(queue) = self.queue_mut(id) {
                queue.pending.unblock();
            }
            self.touch(id);
        }
    }

    /// Puts those in the heap whose back-off has ended.
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
                queue.pending.end_backoff(id);
            }
            self.touch(cluster);
        }
    }

    /// An eviction must have become visible by then.
    pub(crate) fn expect_eviction(&mut self, id: WorkloadId, until: Timestamp) {
        self.expectations.insert((until, id));
    }

    /// Gives up waiting for evictions that should be visible by now, so that they are decided anew.
    pub(crate) fn end_expectations(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.expectations.first().copied() {
            if at > now {
                break;
            }
            self.expectations.remove(&(at, id));
            self.forget_eviction(id);
            self.settle(id, now, Fresh::No);
            if let Some(cluster) = self.cluster_of(id) {
                self.stir_tree(cluster);
            }
        }
    }

    /// Samples usage that is due, and lets queues whose order depends on it look again.
    pub(crate) fn sample_past(&mut self, now: Timestamp) {
        let Some(book) = self.book.as_mut() else { return };
        let (locals, forest) = (&self.locals, &self.forest);
        let sampled = book.sample(now, |key| {
            let admitted = locals.get(key).map(|local| local.ledger.admitted().exact());
            by_resource(forest, admitted.unwrap_or_default())
        });
        let mut queues = BTreeSet::new();
        for key in sampled {
            if let Some(id) = self.locals.id(&key) {
                self.stale_past.insert(id);
                queues.extend(self.locals.at(id).and_then(|local| local.cluster));
            }
            self.changed.insert(crate::report::QueueRef::Local(key));
        }
        for queue in queues {
            self.touch(queue);
        }
    }

    /// Lists the holders of a queue with the past usage of today, if that can matter. *Source*:
    /// `spec/admission-engine.md 2.7.2`.
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
