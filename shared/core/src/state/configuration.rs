//! Events about queues, cohorts, flavors, checks and namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::activity::active;
use super::{Cluster, Fresh, Queue, State};
use crate::afs::PastUsage;
use crate::hierarchy::{NodeId, NodeName};
use crate::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key};
use crate::nominate::CompiledQueue;
use crate::pending::Pending;
use crate::queue::{Check, ClusterQueue, Cohort, Flavor, LocalQueue, QueueRef};
use crate::table::{ClusterId, LocalId};

impl State {
    pub(super) fn put_cluster_queue(&mut self, spec: ClusterQueue, now: Timestamp) {
        let id = self.clusters.ensure(&spec.name, || Cluster::unknown(&spec.name));
        if self.queue(id).is_some_and(|queue| queue.spec == spec) {
            return;
        }
        let mut touched = self.tree_of(id);
        self.mark_cohorts_above(self.ground.quotas().queue(&spec.name));
        self.unlink(id);
        self.link(id, &spec);
        let node = self.ground.put_queue(&spec);
        self.nodes.insert(node, id);
        let compiled = CompiledQueue::of(&mut self.ground, &spec);
        let active = active(&spec, &self.flavors, &self.checks);
        let Some(cluster) = self.clusters.at_mut(id) else {
            return;
        };
        let renew = match &mut cluster.queue {
            Some(queue) => {
                let renew = queue.spec.usage_order != spec.usage_order;
                queue.spec = spec;
                queue.compiled = compiled;
                queue.active = active;
                renew
            }
            none => {
                *none = Some(Queue {
                    spec,
                    compiled,
                    node,
                    active,
                    pending: Pending::default(),
                    tries: 0,
                    claim: None,
                });
                true
            }
        };
        if renew {
            self.settle_locals_of(id, now);
        }
        self.activity_changed(id);
        touched.push(id);
        self.flush_trees(touched);
    }

    pub(super) fn drop_cluster_queue(&mut self, name: &ClusterQueueName, now: Timestamp) {
        let Some(id) = self.clusters.id(name) else { return };
        let touched = self.tree_of(id);
        self.unlink(id);
        self.forget_claim(id);
        let Some(queue) = self.clusters.at_mut(id).and_then(|cluster| cluster.queue.take()) else {
            return;
        };
        for (at, workload) in queue.pending.backoffs() {
            self.backoffs.remove(&(at, workload));
        }
        self.nodes.remove(&queue.node);
        self.mark_cohorts_above(Some(queue.node));
        self.mark(id);
        self.settle_locals_of(id, now);
        self.ground.drop_queue(name);
        self.flush_trees(touched.into_iter().filter(|member| *member != id));
        self.touch(id);
        self.sweep_cluster(id);
    }

    pub(super) fn put_cohort(&mut self, cohort: Cohort) {
        if self.cohorts.get(&cohort.name) == Some(&cohort) {
            return;
        }
        let mut touched = self.tree_of_cohort(&cohort.name);
        self.mark_cohorts_above(self.ground.quotas().cohort(&cohort.name));
        self.ground.put_cohort(&cohort);
        touched.extend(self.tree_of_cohort(&cohort.name));
        self.changed.insert(QueueRef::Cohort(cohort.name.clone()));
        self.cohorts.insert(cohort.name.clone(), cohort);
        self.shape_changed(&touched);
    }

    pub(super) fn drop_cohort(&mut self, name: &CohortName) {
        if self.cohorts.remove(name).is_none() {
            return;
        }
        let mut touched = self.tree_of_cohort(name);
        self.changed.insert(QueueRef::Cohort(name.clone()));
        self.mark_cohorts_above(self.ground.quotas().cohort(name));
        self.ground.drop_cohort(name);
        touched.extend(self.tree_of_cohort(name));
        self.shape_changed(&touched);
    }

    /// Records the cohorts above a node that is about to move or go as changed. A cohort without object ends with the last object that
    /// names it.
    fn mark_cohorts_above(&mut self, node: Option<NodeId>) {
        let quotas = self.ground.quotas();
        for id in node.into_iter().flat_map(|node| quotas.path(node)) {
            if let Some(NodeName::Cohort(name)) = quotas.name(id) {
                self.changed.insert(QueueRef::Cohort(name.clone()));
            }
        }
    }

    fn tree_of_cohort(&self, name: &CohortName) -> Vec<ClusterId> {
        let node = self.ground.quotas().cohort(name);
        node.map(|node| self.tree_at(node)).unwrap_or_default()
    }

    fn shape_changed(&mut self, queues: &[ClusterId]) {
        for id in queues {
            // Why: cohorts in a circle make their queues inactive; the end of the circle makes them active again.
            self.activity_changed(*id);
        }
        self.flush_trees(queues.iter().copied());
    }

    pub(super) fn put_local_queue(&mut self, queue: LocalQueue, now: Timestamp) {
        let id = self.ensure_local(&queue.key);
        if self
            .locals
            .at(id)
            .is_some_and(|local| local.queue.as_ref() == Some(&queue))
        {
            return;
        }
        if let Some(book) = &mut self.book {
            book.open(&queue.key, queue.weight, now);
            self.stale_past.insert(id);
        }
        let cluster = self
            .clusters
            .ensure(&queue.cluster_queue, || Cluster::unknown(&queue.cluster_queue));
        let key = queue.key.clone();
        self.set_cluster(id, Some(cluster));
        if let Some(local) = self.locals.at_mut(id) {
            local.queue = Some(queue);
        }
        self.changed.insert(QueueRef::Local(key));
        self.settle_local(id, now);
        self.touch(cluster);
    }

    pub(super) fn drop_local_queue(&mut self, key: &Key, now: Timestamp) {
        let Some(id) = self.locals.id(key) else { return };
        if self
            .locals
            .at_mut(id)
            .and_then(|local| local.queue.take())
            .is_none()
        {
            return;
        }
        self.set_cluster(id, None);
        if let Some(book) = &mut self.book {
            book.close(key);
        }
        self.changed.insert(QueueRef::Local(key.clone()));
        self.settle_local(id, now);
        self.sweep_local(id);
    }

    fn set_cluster(&mut self, id: LocalId, cluster: Option<ClusterId>) {
        let Some(local) = self.locals.at_mut(id) else {
            return;
        };
        let old = std::mem::replace(&mut local.cluster, cluster);
        if let Some(new) = cluster.and_then(|new| self.clusters.at_mut(new)) {
            new.locals.insert(id);
        }
        if let Some(old) = old.filter(|old| Some(*old) != cluster) {
            if let Some(left) = self.clusters.at_mut(old) {
                left.locals.remove(&id);
            }
            self.sweep_cluster(old);
        }
    }

    pub(super) fn restore_past(&mut self, key: &Key, past: &PastUsage) {
        let (Some(book), Some(id)) = (self.book.as_mut(), self.locals.id(key)) else {
            return;
        };
        book.restore(key, past);
        self.stale_past.insert(id);
        if let Some(cluster) = self.locals.at(id).and_then(|local| local.cluster) {
            self.touch(cluster);
        }
    }

    pub(super) fn put_flavor(&mut self, flavor: Flavor) {
        if self.flavors.get(&flavor.name) == Some(&flavor) {
            return;
        }
        let name = flavor.name.clone();
        self.flavors.insert(name.clone(), flavor);
        self.flavor_changed(&name);
    }

    pub(super) fn drop_flavor(&mut self, name: &FlavorName) {
        if self.flavors.remove(name).is_some() {
            self.flavor_changed(name);
        }
    }

    pub(super) fn put_check(&mut self, check: Check) {
        if self.checks.get(&check.name) == Some(&check) {
            return;
        }
        let name = check.name.clone();
        self.checks.insert(name.clone(), check);
        self.check_changed(&name);
    }

    pub(super) fn drop_check(&mut self, name: &CheckName) {
        if self.checks.remove(name).is_some() {
            self.check_changed(name);
        }
    }

    pub(super) fn put_namespace(&mut self, name: Arc<str>, labels: BTreeMap<String, String>) {
        if self.namespaces.get(&name) == Some(&labels) {
            return;
        }
        let queues: BTreeSet<ClusterId> = self
            .locals
            .from(Key::new(Arc::clone(&name), ""))
            .take_while(|(key, _)| key.namespace == name)
            .filter_map(|(_, local)| local.cluster)
            .collect();
        for id in queues {
            let records = &self.records;
            let member = |id| records.at(id).is_some_and(|r| r.workload.key.namespace == name);
            let Some(queue) = self.clusters.at_mut(id).and_then(|c| c.queue.as_mut()) else {
                continue;
            };
            if queue.spec.namespaces.as_ref().is_some_and(|s| s.matches(&labels)) {
                queue.pending.flush_namespace(member);
                self.touch(id);
            }
        }
        self.namespaces.insert(name, labels);
    }

    fn flavor_changed(&mut self, name: &FlavorName) {
        let users = self.users_of_flavor.get(name).cloned().unwrap_or_default();
        for id in &users {
            self.refresh_activity(*id);
        }
        self.flush_trees(users);
    }

    fn check_changed(&mut self, name: &CheckName) {
        let users = self.users_of_check.get(name).cloned().unwrap_or_default();
        let turned: Vec<_> = users
            .into_iter()
            .filter(|id| self.refresh_activity(*id))
            .collect();
        self.flush_trees(turned);
    }

    /// Computes whether the queue is active; returns whether that changed.
    fn refresh_activity(&mut self, id: ClusterId) -> bool {
        let Some(queue) = self.clusters.at_mut(id).and_then(|c| c.queue.as_mut()) else {
            return false;
        };
        let active = active(&queue.spec, &self.flavors, &self.checks);
        if active == queue.active {
            return false;
        }
        queue.active = active;
        self.activity_changed(id);
        true
    }

    /// Records that a queue became active or inactive: its pending workloads need a new reason for waiting, and its LocalQueues new
    /// statuses.
    fn activity_changed(&mut self, id: ClusterId) {
        self.mark(id);
        if let Some(queue) = self.clusters.at(id).and_then(|cluster| cluster.queue.as_ref()) {
            self.unexplained.extend(queue.pending.ids());
        }
    }

    /// Records the queue and its LocalQueues as changed.
    fn mark(&mut self, id: ClusterId) {
        let Some(cluster) = self.clusters.at(id) else {
            return;
        };
        self.changed.insert(QueueRef::Cluster(cluster.name.clone()));
        let locals = cluster.locals.iter().filter_map(|local| self.locals.at(*local));
        self.changed
            .extend(locals.map(|local| QueueRef::Local(local.key.clone())));
    }

    fn settle_locals_of(&mut self, id: ClusterId, now: Timestamp) {
        let locals = self.clusters.at(id).map(|cluster| cluster.locals.clone());
        for local in locals.unwrap_or_default() {
            self.settle_local(local, now);
        }
    }

    fn settle_local(&mut self, id: LocalId, now: Timestamp) {
        let workloads = self.locals.at(id).map(|local| local.workloads.clone());
        for workload in workloads.unwrap_or_default() {
            self.settle(workload, now, Fresh::No);
        }
    }

    /// Forgets a ClusterQueue without object that no object names.
    pub(super) fn sweep_cluster(&mut self, id: ClusterId) {
        let unused = |cluster: &Cluster| {
            cluster.queue.is_none() && cluster.locals.is_empty() && cluster.ledger.is_empty()
        };
        let Some(cluster) = self.clusters.at(id).filter(|cluster| unused(cluster)) else {
            return;
        };
        let name = cluster.name.clone();
        self.clusters.remove(&name);
        self.ready.remove(&id);
        self.gains.remove(&id);
        self.skipping.remove(&id);
        if let Some(node) = self.ground.quotas().queue(&name) {
            self.ground.released(node);
        }
    }

    fn link(&mut self, id: ClusterId, spec: &ClusterQueue) {
        for quota in spec.groups.iter().flat_map(|g| &g.flavors) {
            self.users_of_flavor
                .entry(quota.name.clone())
                .or_default()
                .insert(id);
        }
        for rule in &spec.checks {
            self.users_of_check
                .entry(rule.name.clone())
                .or_default()
                .insert(id);
        }
    }

    fn unlink(&mut self, id: ClusterId) {
        let Some(queue) = self.clusters.at(id).and_then(|cluster| cluster.queue.as_ref()) else {
            return;
        };
        for quota in queue.spec.groups.iter().flat_map(|g| &g.flavors) {
            unlink(&mut self.users_of_flavor, &quota.name, &id);
        }
        for rule in &queue.spec.checks {
            unlink(&mut self.users_of_check, &rule.name, &id);
        }
    }
}

/// Removes `member` from the set under `key`, and the set with its last member.
fn unlink<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, member: &V) {
    if let Some(members) = index.get_mut(key) {
        members.remove(member);
        if members.is_empty() {
            index.remove(key);
        }
    }
}
