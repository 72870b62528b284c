//! Changes of the forest's shape: objects are added, changed and deleted.

use std::collections::BTreeMap;

use super::{Cell, ClusterQueue, Cohort, FlavorResource, Forest, Node, NodeId, NodeName, quotas};
use crate::name::{ClusterQueueName, CohortName};
use crate::queue::{ResourceGroup, Weight};

impl Forest {
    /// Puts a ClusterQueue where its object says, with the object's quotas. The usage of its workloads moves with it.
    pub fn put_queue(&mut self, queue: &ClusterQueue) -> NodeId {
        let id = self.ensure_queue(&queue.name);
        self.describe(id, &queue.groups, queue.weight);
        self.declare_parent(id, queue.cohort.clone());
        id
    }

    /// A ClusterQueue is deleted: it has no quota and no cohort any more. The usage of its workloads is kept.
    pub fn drop_queue(&mut self, name: &ClusterQueueName) {
        self.drop_node(self.queue(name));
    }

    /// Puts a cohort where its object says, with the object's quotas.
    pub fn put_cohort(&mut self, cohort: &Cohort) -> NodeId {
        let id = self.ensure_cohort(&cohort.name);
        self.describe(id, &cohort.groups, cohort.weight);
        self.declare_parent(id, cohort.parent.clone());
        id
    }

    /// A cohort object is deleted: its descendants stay together, below a root without own quota.
    pub fn drop_cohort(&mut self, name: &CohortName) {
        self.drop_node(self.cohort(name));
    }

    fn drop_node(&mut self, id: Option<NodeId>) {
        if let Some(id) = id {
            self.describe(id, &[], Weight::ONE);
            self.declare_parent(id, None);
            self.forget_exists(id);
            self.sweep(id);
        }
    }

    /// The node of a ClusterQueue, created if it is missing: workloads may be known before their queue is.
    pub fn ensure_queue(&mut self, name: &ClusterQueueName) -> NodeId {
        if let Some(id) = self.queue(name) {
            return id;
        }
        let id = self.new_node(NodeName::Queue(name.clone()));
        self.queues.insert(name.clone(), id);
        id
    }

    fn ensure_cohort(&mut self, name: &CohortName) -> NodeId {
        if let Some(id) = self.cohort(name) {
            return id;
        }
        let id = self.new_node(NodeName::Cohort(name.clone()));
        self.cohorts.insert(name.clone(), id);
        id
    }

    /// Forgets a node without object, children, usage and references to it.
    pub(super) fn sweep(&mut self, id: NodeId) {
        let Some(node) = self.node(id) else { return };
        let used = node.exists || !node.children.is_empty() || node.cells.iter().any(|(_, c)| c.usage != 0);
        let awaited = |name: &NodeName| match name {
            // A detached cohort may still name this one.
            NodeName::Cohort(name) => self.detached.iter().any(|other| {
                self.node(*other)
                    .is_some_and(|n| n.declared_parent.as_ref() == Some(name))
            }),
            NodeName::Queue(_) => false,
        };
        if used || awaited(&node.name) {
            return;
        }
        match node.name.clone() {
            NodeName::Cohort(name) => self.cohorts.remove(&name),
            NodeName::Queue(name) => self.queues.remove(&name),
        };
        self.detached.remove(&id);
        if let Some(slot) = self.nodes.get_mut(id.0 as usize) {
            *slot = None;
        }
    }

    fn new_node(&mut self, name: NodeName) -> NodeId {
        // Limit: four billion nodes do not fit in memory.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(Some(Node {
            name,
            declared_parent: None,
            parent: None,
            children: std::collections::BTreeSet::new(),
            exists: false,
            weight: Weight::ONE,
            height: 0,
            generation: 0,
            cells: Vec::new(),
        }));
        id
    }

    fn forget_exists(&mut self, id: NodeId) {
        if let Some(node) = self.node_mut(id) {
            node.exists = false;
        }
    }

    /// Copies quotas and weight of an object to its node.
    fn describe(&mut self, id: NodeId, groups: &[ResourceGroup], weight: Weight) {
        let mut wanted: BTreeMap<FlavorResource, Cell> = BTreeMap::new();
        for (flavor, resource, cell) in quotas(groups) {
            let pair = self.pair(flavor, resource);
            wanted.insert(pair, cell);
        }
        let Some(node) = self.node_mut(id) else { return };
        node.exists = true;
        node.weight = weight;
        for (pair, _) in &node.cells {
            wanted.entry(*pair).or_default();
        }
        for (pair, quota) in wanted {
            self.change_cell(id, pair, |cell| {
                cell.subtree += quota.nominal - cell.nominal;
                cell.nominal = quota.nominal;
                cell.borrowing_limit = quota.borrowing_limit;
                cell.lending_limit = quota.lending_limit;
            });
        }
        self.renew(id);
    }

    /// Changes one cell of a node and updates its ancestors.
    pub(super) fn change_cell(&mut self, id: NodeId, pair: FlavorResource, change: impl FnOnce(&mut Cell)) {
        let Some(node) = self.node_mut(id) else { return };
        let (before, after) = node.change(pair, change);
        let mut parent = node.parent;
        let mut quota = after.shown_quota() - before.shown_quota();
        let mut usage = after.shown_usage() - before.shown_usage();
        while let Some(at) = parent {
            if quota == 0 && usage == 0 {
                return;
            }
            let Some(node) = self.node_mut(at) else { return };
            let (before, after) = node.change(pair, |cell| {
                cell.subtree += quota;
                cell.usage += usage;
            });
            parent = node.parent;
            quota = after.shown_quota() - before.shown_quota();
            usage = after.shown_usage() - before.shown_usage();
        }
    }

    fn declare_parent(&mut self, id: NodeId, parent: Option<CohortName>) {
        let Some(node) = self.node_mut(id) else { return };
        if node.declared_parent == parent {
            return;
        }
        node.declared_parent = parent;
        let old = node.parent;
        self.detach(id);
        self.detached.insert(id);
        self.attach_detached();
        self.renew(id);
        if let Some(old) = old {
            self.renew(old);
            self.sweep(old);
        }
    }

    /// Attaches every detached node whose parent is known and that can be attached without closing a circle.
    fn attach_detached(&mut self) {
        // Why in a loop: attaching a node never prevents another attachment, but removing an edge may have made several possible. The order
        // by number makes the result the same everywhere.
        for id in self.detached.clone() {
            let declared = self.node(id).and_then(|node| node.declared_parent.clone());
            let Some(name) = declared else {
                self.detached.remove(&id);
                continue;
            };
            let parent = self.ensure_cohort(&name);
            if self.path(parent).any(|above| above == id) {
                continue;
            }
            self.detached.remove(&id);
            self.attach(id, parent);
        }
    }

    fn attach(&mut self, id: NodeId, parent: NodeId) {
        let Some(node) = self.node_mut(id) else { return };
        node.parent = Some(parent);
        let cells = node.cells.clone();
        if let Some(above) = self.node_mut(parent) {
            above.children.insert(id);
        }
        for (pair, cell) in cells {
            self.change_cell(parent, pair, |above| {
                above.subtree += cell.shown_quota();
                above.usage += cell.shown_usage();
            });
        }
        self.measure(Some(parent));
    }

    fn detach(&mut self, id: NodeId) {
        let Some(node) = self.node_mut(id) else { return };
        let Some(parent) = node.parent.take() else { return };
        let cells = node.cells.clone();
        if let Some(above) = self.node_mut(parent) {
            above.children.remove(&id);
        }
        for (pair, cell) in cells {
            self.change_cell(parent, pair, |above| {
                above.subtree -= cell.shown_quota();
                above.usage -= cell.shown_usage();
            });
        }
        self.measure(Some(parent));
    }

    /// Recomputes heights from here upwards.
    fn measure(&mut self, mut at: Option<NodeId>) {
        while let Some(id) = at {
            let Some(node) = self.node(id) else { return };
            let highest = node
                .children
                .iter()
                .filter_map(|child| self.node(*child))
                .filter(|child| child.height > 0 || matches!(child.name, NodeName::Queue(_)))
                .map(|child| child.height.saturating_add(1))
                .max()
                .unwrap_or(0);
            let parent = node.parent;
            if node.height == highest {
                return;
            }
            if let Some(node) = self.node_mut(id) {
                node.height = highest;
            }
            at = parent;
        }
    }

    /// Records that something may fit now in the tree of this node.
    pub(super) fn renew(&mut self, id: NodeId) {
        self.generations += 1;
        let generation = self.generations;
        let root = self.root(id);
        if let Some(node) = self.node_mut(root) {
            node.generation = generation;
        }
    }
}
