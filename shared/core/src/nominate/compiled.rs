//! A ClusterQueue prepared for the search: names are resolved to numbers once, when the queue changes, not per workload.

use crate::ground::Ground;
use crate::hierarchy::FlavorResource;
use crate::name::{FlavorName, ResourceName};
use crate::queue::{ClusterQueue, FungibilityPolicy, PreemptionPolicy};

/// The resource that stands for the number of pods.
const PODS: &str = "pods";

/// A ClusterQueue prepared for the search. It must be made again whenever the ClusterQueue changes; it stays valid as long as the ground
/// lives.
#[derive(Clone, Debug)]
pub struct CompiledQueue {
    pub(crate) groups: Vec<CompiledGroup>,
    pub(crate) fungibility: FungibilityPolicy,
    pub(crate) preemption: PreemptionPolicy,
    /// `pods`, if a group covers it.
    pub(crate) pods: Option<ResourceName>,
    /// Sorted by resource: group and column.
    columns: Vec<(ResourceName, usize, usize)>,
}

#[derive(Clone, Debug)]
pub(crate) struct CompiledGroup {
    /// The flavors in search order.
    pub(crate) flavors: Vec<CompiledFlavor>,
}

#[derive(Clone, Debug)]
pub(crate) struct CompiledFlavor {
    pub(crate) name: FlavorName,
    /// One per covered resource, in the order of the group.
    pub(crate) pairs: Vec<FlavorResource>,
}

impl CompiledQueue {
    /// Prepares a queue. The ground learns the pairs that it did not know.
    pub fn of(ground: &mut Ground, queue: &ClusterQueue) -> Self {
        let mut columns: Vec<(ResourceName, usize, usize)> = Vec::new();
        let mut groups = Vec::with_capacity(queue.groups.len());
        for (at, group) in queue.groups.iter().enumerate() {
            for (column, resource) in group.covered.iter().enumerate() {
                // Limit: the schema lets only one group cover a resource; otherwise the first group counts.
                if columns.iter().all(|(known, _, _)| known != resource) {
                    columns.push((resource.clone(), at, column));
                }
            }
            let flavors = group.flavors.iter().map(|quota| CompiledFlavor {
                name: quota.name.clone(),
                pairs: group
                    .covered
                    .iter()
                    .map(|resource| ground.pair(&quota.name, resource))
                    .collect(),
            });
            groups.push(CompiledGroup {
                flavors: flavors.collect(),
            });
        }
        columns.sort();
        let pods = columns
            .iter()
            .find(|(resource, _, _)| resource.as_str() == PODS)
            .map(|(resource, _, _)| resource.clone());
        Self {
            groups,
            fungibility: queue.fungibility,
            preemption: queue.preemption,
            pods,
            columns,
        }
    }

    pub(crate) fn column(&self, resource: &ResourceName) -> Option<(usize, usize)> {
        let at = self
            .columns
            .binary_search_by(|(known, _, _)| known.cmp(resource))
            .ok()?;
        self.columns.get(at).map(|(_, group, column)| (*group, *column))
    }
}
