//! Events about queues, flavors, checks and namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::{Queue, State};
use crate::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key};
use crate::pending::Pending;
use crate::queue::{Check, ClusterQueue, Cohort, Flavor, LocalQueue};
use crate::report::{self, QueueRef};
use crate::state::workloads::Fresh;

impl State {
    pub(super) fn put_cluster_queue(&mut self, spec: ClusterQueue, now: Timestamp) {
        let name = spec.name.clone();
        if self.queues.get(&name).is_some_and(|queue| queue.spec == spec) {
            return;
        }
        self.unlink(&name);
        self.link(&spec);
        self.forest.put_queue(&spec);
        let active = report::active(&spec, &self.flavors, &self.checks);
        if let Some(queue) = self.queues.get_mut(&name) {
            queue.spec = spec;
            queue.active = active;
            self.activity_changed(&name);
            self.flush_all(&name);
            return;
        }
        let pending = Pending::default();
        self.queues.insert(
            name.clone(),
            Queue {
                spec,
                active,
                pending,
            },
        );
        self.mark(&name);
        self.settle_locals_of(&name, now);
    }

    pub(super) fn drop_cluster_queue(&mut self, name: &ClusterQueueName, now: Timestamp) {
        self.unlink(name);
        let Some(queue) = self.queues.remove(name) else {
            return;
        };
        self.forest.drop_queue(name);
        for (at, key) in queue.pending.backoffs() {
            self.backoffs.remove(&(at, key.clone()));
        }
        self.mark(name);
        self.settle_locals_of(name, now);
        self.touch(name);
    }

    pub(super) fn put_cohort(&mut self, cohort: &Cohort) {
        self.forest.put_cohort(cohort);
        self.changed.insert(QueueRef::Cohort(cohort.name.clone()));
    }

    pub(super) fn drop_cohort(&mut self, name: &CohortName) {
        self.forest.drop_cohort(name);
        self.changed.insert(QueueRef::Cohort(name.clone()));
    }

    pub(super) fn put_local_queue(&mut self, queue: LocalQueue, now: Timestamp) {
        let (key, cluster) = (queue.key.clone(), queue.cluster_queue.clone());
        if let Some(book) = &mut self.book {
            book.open(&key, queue.weight, now);
        }
        if self.locals.get(&key) == Some(&queue) {
            return;
        }
        if let Some(old) = self.locals.insert(key.clone(), queue) {
            unlink(&mut self.locals_of, &old.cluster_queue, &key);
        }
        self.locals_of.entry(cluster).or_default().insert(key.clone());
        self.changed.insert(QueueRef::Local(key.clone()));
        self.settle_local(&key, now);
    }

    pub(super) fn drop_local_queue(&mut self, key: &Key, now: Timestamp) {
        let Some(old) = self.locals.remove(key) else {
            return;
        };
        if let Some(book) = &mut self.book {
            book.close(key);
        }
        unlink(&mut self.locals_of, &old.cluster_queue, key);
        self.changed.insert(QueueRef::Local(key.clone()));
        self.settle_local(key, now);
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
        let first = Key::new(Arc::clone(&name), "");
        let queues: BTreeSet<ClusterQueueName> = self
            .locals
            .range(first..)
            .take_while(|(key, _)| key.namespace == name)
            .map(|(_, local)| local.cluster_queue.clone())
            .collect();
        for cluster in queues {
            let Some(queue) = self.queues.get_mut(&cluster) else {
                continue;
            };
            if queue.spec.namespaces.as_ref().is_some_and(|s| s.matches(&labels)) {
                queue.pending.flush_namespace(&name);
                self.touch(&cluster);
            }
        }
        self.namespaces.insert(name, labels);
    }

    fn flavor_changed(&mut self, name: &FlavorName) {
        for cluster in self.users_of_flavor.get(name).cloned().unwrap_or_default() {
            self.refresh_activity(&cluster);
            self.flush_all(&cluster);
        }
    }

    fn check_changed(&mut self, name: &CheckName) {
        for cluster in self.users_of_check.get(name).cloned().unwrap_or_default() {
            self.refresh_activity(&cluster);
        }
    }

    fn refresh_activity(&mut self, name: &ClusterQueueName) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let active = report::active(&queue.spec, &self.flavors, &self.checks);
        if active != queue.active {
            queue.active = active;
            self.activity_changed(name);
            self.flush_all(name);
        }
    }

    /// Everything pending must be explained anew, and the queue's LocalQueues follow it.
    fn activity_changed(&mut self, name: &ClusterQueueName) {
        self.mark(name);
        if let Some(queue) = self.queues.get(name) {
            self.unexplained.extend(queue.pending.keys().cloned());
        }
    }

    fn flush_all(&mut self, name: &ClusterQueueName) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.pending.flush_all();
        }
        self.changed.insert(QueueRef::Cluster(name.clone()));
        self.touch(name);
    }

    /// The reports of a queue and of its LocalQueues change.
    fn mark(&mut self, name: &ClusterQueueName) {
        self.changed.insert(QueueRef::Cluster(name.clone()));
        let locals = self.locals_of.get(name).into_iter().flatten();
        self.changed.extend(locals.cloned().map(QueueRef::Local));
    }

    fn settle_locals_of(&mut self, name: &ClusterQueueName, now: Timestamp) {
        for key in self.locals_of.get(name).cloned().unwrap_or_default() {
            self.settle_local(&key, now);
        }
    }

    fn settle_local(&mut self, key: &Key, now: Timestamp) {
        for workload in self.by_local.get(key).cloned().unwrap_or_default() {
            self.settle(&workload, now, Fresh::No);
        }
    }

    fn link(&mut self, spec: &ClusterQueue) {
        for quota in spec.groups.iter().flat_map(|g| &g.flavors) {
            let users = self.users_of_flavor.entry(quota.name.clone()).or_default();
            users.insert(spec.name.clone());
        }
        for rule in &spec.checks {
            let users = self.users_of_check.entry(rule.name.clone()).or_default();
            users.insert(spec.name.clone());
        }
    }

    fn unlink(&mut self, name: &ClusterQueueName) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        for quota in queue.spec.groups.iter().flat_map(|g| &g.flavors) {
            unlink(&mut self.users_of_flavor, &quota.name, name);
        }
        for rule in &queue.spec.checks {
            unlink(&mut self.users_of_check, &rule.name, name);
        }
    }
}

/// Takes `member` out of the set under `key`, and the set with its last member.
pub(super) fn unlink<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, member: &V) {
    if let Some(members) = index.get_mut(key) {
        members.remove(member);
        if members.is_empty() {
            index.remove(key);
        }
    }
}
