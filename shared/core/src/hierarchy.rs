//! The forest of cohorts and ClusterQueues: how much quota each may use, and how much each uses.
//!
//! A tree has cohorts as inner nodes and ClusterQueues as leaves; a ClusterQueue without cohort is a tree of its own. A change of usage
//! costs the depth of the tree. There are no copies: a search that tries a change calls [`Forest::add`] and [`Forest::remove`] and undoes
//! it afterwards; the two are exact inverses.
//!
//! Invariants: a node's usage is the exact sum of the usage that its children show; sums are kept in 128 bits and saturate only when they
//! are read as an [`Amount`]. A cohort whose ancestors form a circle is the root of a tree of its own until the circle is broken, and
//! [`Forest::in_cycle`] says so.
//! *Source*: `spec/admission-engine.md 2.4`.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Amount;
use crate::name::{ClusterQueueName, CohortName, FlavorName, ResourceName};
use crate::queue::{ClusterQueue, Cohort, ResourceGroup, Weight};

mod arithmetic;
mod shape;
mod share;

pub use arithmetic::{Counting, Fitting};
pub use share::Share;

/// A pair of flavor and resource, in which quota is counted. A small number that stands for the two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlavorResource(u32);

/// A ClusterQueue or a cohort of a [`Forest`]. Valid until that node is dropped; a number is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

/// An exact amount of one flavor and resource, as usage is counted; never negative in a request.
pub type Exact = i128;

/// Stands for a quota without bound: far above every sum of 64-bit amounts, far below the limit of 128 bits.
const UNBOUNDED: Exact = 1 << 100;

/// Which object a node stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeName {
    /// A cohort; its object need not exist.
    Cohort(CohortName),
    /// A ClusterQueue; its object need not be known yet.
    Queue(ClusterQueueName),
}

impl NodeName {
    /// The name without its kind.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cohort(name) => name.as_str(),
            Self::Queue(name) => name.as_str(),
        }
    }
}

/// The forest of cohorts and ClusterQueues with their quotas and usage.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    pairs: Vec<(FlavorName, ResourceName)>,
    pair_ids: BTreeMap<FlavorName, BTreeMap<ResourceName, FlavorResource>>,
    nodes: Vec<Option<Node>>,
    queues: BTreeMap<ClusterQueueName, NodeId>,
    cohorts: BTreeMap<CohortName, NodeId>,
    /// Cohorts whose declared parent could not become their parent because that would close a circle.
    detached: BTreeSet<NodeId>,
    /// Grows with every change that may make something fit that did not fit before.
    generations: u64,
}

#[derive(Clone, Debug)]
struct Node {
    name: NodeName,
    declared_parent: Option<CohortName>,
    parent: Option<NodeId>,
    children: BTreeSet<NodeId>,
    /// Whether an object of this name exists.
    exists: bool,
    weight: Weight,
    /// The number of edges to the farthest ClusterQueue below.
    height: u32,
    /// Kept at the root only: when something in the tree last became available.
    generation: u64,
    /// Sorted by flavor and resource.
    cells: Vec<(FlavorResource, Cell)>,
}

/// Quota and usage of a node for one flavor and resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    nominal: Exact,
    borrowing_limit: Option<Exact>,
    lending_limit: Option<Exact>,
    /// Own nominal quota plus the quota that the children show.
    subtree: Exact,
    /// Own usage (ClusterQueue), or the usage that the children show (cohort).
    usage: Exact,
}

impl Cell {
    fn subtree(&self) -> Exact {
        self.subtree.min(UNBOUNDED)
    }

    /// The part of the quota that no node outside the subtree may use.
    fn local(&self) -> Exact {
        self.lending_limit
            .map_or(0, |limit| (self.subtree() - limit).max(0))
    }

    fn shown_quota(&self) -> Exact {
        self.subtree() - self.local()
    }

    fn shown_usage(&self) -> Exact {
        (self.usage - self.local()).max(0)
    }

    fn local_free(&self) -> Exact {
        (self.local() - self.usage).max(0)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn exact(amount: Amount) -> Exact {
    if amount.is_unlimited() {
        UNBOUNDED
    } else {
        Exact::from(amount.get())
    }
}

pub(crate) fn amount(exact: Exact) -> Amount {
    Amount::new(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
}

impl Forest {
    /// The number that stands for a flavor and a resource. The same pair always gets the same number.
    pub fn pair(&mut self, flavor: &FlavorName, resource: &ResourceName) -> FlavorResource {
        if let Some(id) = self.known_pair(flavor, resource) {
            return id;
        }
        // Limit: four billion pairs of names do not fit in memory.
        let id = FlavorResource(u32::try_from(self.pairs.len()).unwrap_or(u32::MAX));
        self.pairs.push((flavor.clone(), resource.clone()));
        self.pair_ids
            .entry(flavor.clone())
            .or_default()
            .insert(resource.clone(), id);
        id
    }

    /// The number of a pair, if it ever got one.
    pub fn known_pair(&self, flavor: &FlavorName, resource: &ResourceName) -> Option<FlavorResource> {
        self.pair_ids.get(flavor)?.get(resource).copied()
    }

    /// The names behind a number of this forest.
    pub fn pair_names(&self, pair: FlavorResource) -> Option<(&FlavorName, &ResourceName)> {
        self.pairs
            .get(pair.0 as usize)
            .map(|(flavor, resource)| (flavor, resource))
    }

    /// The node of a ClusterQueue, if it is known or used.
    pub fn queue(&self, name: &ClusterQueueName) -> Option<NodeId> {
        self.queues.get(name).copied()
    }

    /// The node of a cohort, if it has an object or another object names it.
    pub fn cohort(&self, name: &CohortName) -> Option<NodeId> {
        self.cohorts.get(name).copied()
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize).and_then(Option::as_ref)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    fn cell(&self, id: NodeId, pair: FlavorResource) -> Cell {
        self.node(id).map_or_else(Cell::default, |node| node.cell(pair))
    }
}

impl Node {
    fn cell(&self, pair: FlavorResource) -> Cell {
        self.cells
            .binary_search_by_key(&pair, |(at, _)| *at)
            .ok()
            .and_then(|index| self.cells.get(index))
            .map_or_else(Cell::default, |(_, cell)| *cell)
    }

    /// Changes one cell; an empty cell is removed.
    fn change(&mut self, pair: FlavorResource, change: impl FnOnce(&mut Cell)) -> (Cell, Cell) {
        match self.cells.binary_search_by_key(&pair, |(at, _)| *at) {
            Ok(index) => {
                let Some((_, cell)) = self.cells.get_mut(index) else {
                    return (Cell::default(), Cell::default());
                };
                let before = *cell;
                change(cell);
                let after = *cell;
                if after.is_empty() {
                    self.cells.remove(index);
                }
                (before, after)
            }
            Err(index) => {
                let mut cell = Cell::default();
                change(&mut cell);
                if !cell.is_empty() {
                    self.cells.insert(index, (pair, cell));
                }
                (Cell::default(), cell)
            }
        }
    }
}

/// The quotas of groups, in the order of the groups.
fn quotas(groups: &[ResourceGroup]) -> impl Iterator<Item = (&FlavorName, &ResourceName, Cell)> {
    groups.iter().flat_map(|group| &group.flavors).flat_map(|flavor| {
        flavor.quotas.iter().map(|(resource, quota)| {
            let cell = Cell {
                nominal: exact(quota.nominal),
                borrowing_limit: quota.borrowing_limit.map(exact),
                lending_limit: quota.lending_limit.map(exact),
                subtree: 0,
                usage: 0,
            };
            (&flavor.name, resource, cell)
        })
    })
}

#[cfg(test)]
mod tests;
