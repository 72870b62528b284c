//! Quota arithmetic: what is available, what fits, and which nodes borrow.

use super::{Amount, Exact, FlavorResource, Forest, NodeId, NodeName, UNBOUNDED, Weight, amount};

/// Whether a question about room counts what is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Quota minus usage.
    Usage,
    /// Quota alone, as if no workload used any.
    QuotaOnly,
}

/// The smallest subtree that has room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitting {
    /// Its height: 0 is the ClusterQueue itself. Without any subtree that has room: the height of the whole tree.
    pub height: u32,
    /// Whether it is smaller than the whole tree.
    pub below_root: bool,
}

impl Forest {
    /// Adds usage to a node and to the usage that its ancestors see. `value` may exceed what is available.
    pub fn add(&mut self, id: NodeId, pair: FlavorResource, value: Exact) {
        self.change_cell(id, pair, |cell| cell.usage += value);
    }

    /// Removes usage from a node: the exact inverse of [`Forest::add`]. It does not report that something may fit now; [`Forest::released`]
    /// does.
    pub fn remove(&mut self, id: NodeId, pair: FlavorResource, value: Exact) {
        self.change_cell(id, pair, |cell| cell.usage -= value);
    }

    /// Records that usage was released for good in the tree of this node. A queue without object and without usage is forgotten.
    pub fn released(&mut self, id: NodeId) {
        self.renew(id);
        self.sweep(id);
    }

    /// Own nominal quota.
    pub fn nominal(&self, id: NodeId, pair: FlavorResource) -> Amount {
        amount(self.cell(id, pair).nominal)
    }

    /// Own borrowing limit, if there is one.
    pub fn borrowing_limit(&self, id: NodeId, pair: FlavorResource) -> Option<Amount> {
        self.cell(id, pair).borrowing_limit.map(amount)
    }

    /// Nominal quota of the node plus the quota that its descendants lend upwards.
    pub fn subtree_quota(&self, id: NodeId, pair: FlavorResource) -> Amount {
        amount(self.cell(id, pair).subtree())
    }

    /// What a ClusterQueue uses, or what a cohort sees of the usage below it, exactly.
    pub fn usage(&self, id: NodeId, pair: FlavorResource) -> Exact {
        self.cell(id, pair).usage
    }

    /// The pairs for which the node has quota or usage.
    pub fn pairs_of(&self, id: NodeId) -> impl Iterator<Item = FlavorResource> + '_ {
        self.node(id)
            .into_iter()
            .flat_map(|node| node.cells.iter().map(|(pair, _)| *pair))
    }

    /// What could be added now; negative when more is in use than there is quota.
    pub fn available(&self, id: NodeId, pair: FlavorResource) -> Amount {
        amount(self.available_exact(id, pair))
    }

    /// As [`Forest::available`], exactly.
    pub(crate) fn available_exact(&self, id: NodeId, pair: FlavorResource) -> Exact {
        let Some(node) = self.node(id) else { return 0 };
        let cell = node.cell(pair);
        let Some(parent) = node.parent else {
            return cell.subtree() - cell.usage;
        };
        let above = self.available_exact(parent, pair);
        let above = cell.borrowing_limit.map_or(above, |limit| {
            above.min(cell.shown_quota() - cell.shown_usage() + limit)
        });
        cell.local_free() + above
    }

    /// The most that the node could ever use, with everything else idle.
    pub fn potential(&self, id: NodeId, pair: FlavorResource) -> Amount {
        amount(self.potential_exact(id, pair))
    }

    /// As [`Forest::potential`], exactly.
    pub(crate) fn potential_exact(&self, id: NodeId, pair: FlavorResource) -> Exact {
        let Some(node) = self.node(id) else { return 0 };
        let cell = node.cell(pair);
        let Some(parent) = node.parent else {
            return cell.subtree();
        };
        let most = cell.local() + self.potential_exact(parent, pair);
        let most = most.min(UNBOUNDED);
        cell.borrowing_limit
            .map_or(most, |limit| most.min(cell.subtree() + limit))
    }

    /// Whether a request fits in what is available now.
    pub fn fits(&self, id: NodeId, pair: FlavorResource, value: Exact) -> bool {
        value <= self.available_exact(id, pair).max(0)
    }

    /// Whether the node with `value` more stays within its own quota: the nominal quota of a ClusterQueue, the quota of
    /// the subtree of a cohort.
    pub fn within_quota(&self, id: NodeId, pair: FlavorResource, value: Exact) -> bool {
        let cell = self.cell(id, pair);
        cell.usage + value <= cell.subtree()
    }

    /// Whether the node uses more than its own quota.
    pub fn borrows(&self, id: NodeId, pair: FlavorResource) -> bool {
        !self.within_quota(id, pair, 0)
    }

    /// The part of a request that exceeds the node's local quota.
    pub fn beyond_local(&self, id: NodeId, pair: FlavorResource, value: Exact) -> Exact {
        (value - self.cell(id, pair).local_free()).max(0)
    }

    /// The smallest subtree around a ClusterQueue that has room for a request; its height is the borrowing level.
    pub fn smallest_fit(
        &self,
        id: NodeId,
        pair: FlavorResource,
        value: Exact,
        counting: Counting,
    ) -> Fitting {
        let (mut value, mut height) = (value, 0);
        for at in self.path(id) {
            let cell = self.cell(at, pair);
            height = self.height(at);
            let (used, free) = match counting {
                Counting::Usage => (cell.usage, cell.local_free()),
                Counting::QuotaOnly => (0, cell.local()),
            };
            if used + value <= cell.subtree() {
                return Fitting {
                    height,
                    below_root: self.parent(at).is_some(),
                };
            }
            value = (value - free).max(0);
        }
        Fitting {
            height,
            below_root: false,
        }
    }

    /// The parent node, if there is one.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id).and_then(|node| node.parent)
    }

    /// The child nodes, in the order of their numbers.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.node(id)
            .into_iter()
            .flat_map(|node| node.children.iter().copied())
    }

    /// The node, then everything above it up to the root.
    pub fn path(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(id), |at| self.parent(*at))
    }

    /// The root of the tree that the node is in.
    pub fn root(&self, id: NodeId) -> NodeId {
        self.path(id).last().unwrap_or(id)
    }

    /// Edges to the farthest ClusterQueue below: 0 for a ClusterQueue.
    pub fn height(&self, id: NodeId) -> u32 {
        self.node(id).map_or(0, |node| node.height)
    }

    /// The object that the node stands for.
    pub fn name(&self, id: NodeId) -> Option<&NodeName> {
        self.node(id).map(|node| &node.name)
    }

    /// Weight in fair sharing.
    pub fn weight(&self, id: NodeId) -> Weight {
        self.node(id).map_or(Weight::ONE, |node| node.weight)
    }

    /// Whether the cohorts above the node form a circle, so that nothing below may be admitted.
    pub fn in_cycle(&self, id: NodeId) -> bool {
        let root = self.root(id);
        self.node(root).is_some_and(|node| node.declared_parent.is_some())
    }

    /// Grows whenever something in the tree of this node may have become available.
    pub fn generation(&self, id: NodeId) -> u64 {
        self.node(self.root(id)).map_or(0, |node| node.generation)
    }

    /// The names from the root to the node, each after a slash, as preemption messages show them.
    pub fn path_text(&self, id: NodeId) -> String {
        let mut names: Vec<&str> = self
            .path(id)
            .filter_map(|at| self.name(at).map(NodeName::as_str))
            .collect();
        names.push("");
        names.reverse();
        names.join("/")
    }

    /// The ClusterQueues in the tree of this node, in the order of their numbers within each cohort.
    pub fn queues_of_tree(&self, id: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut open = vec![self.root(id)];
        while let Some(at) = open.pop() {
            if matches!(self.name(at), Some(NodeName::Queue(_))) {
                found.push(at);
            }
            open.extend(self.children(at));
        }
        found.sort_unstable();
        found
    }
}
