//! Room for the pod sets of workloads on flavors: what fits, what is taken, and what is in the way.
//!
//! All decisions of admission ask here whether a workload fits, and take and give room only here. The first member is the quota of
//! ClusterQueues and cohorts, the [`Forest`]. A member that counts nodes or devices joins beside it: a [`Footprint`] then says where the
//! pods are placed, and the callers stay as they are.
//!
//! Invariant: [`Ground::take`] and [`Ground::give`] are exact inverses, and no other function changes what is taken. So a search that tries
//! a change gives back what it took and leaves the ground as it was. *Source*: `spec/admission-engine.md 2.4`.

use crate::hierarchy::{Exact, FlavorResource, Forest, NodeId};
use crate::name::{ClusterQueueName, CohortName, FlavorName, ResourceName};
use crate::queue::{ClusterQueue, Cohort};

/// What the pod sets of one workload take up together, in one ClusterQueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint<'a> {
    /// The node of the ClusterQueue.
    pub node: NodeId,
    /// The amount of each resource on each flavor; each pair once.
    pub usage: &'a [(FlavorResource, Exact)],
}

impl<'a> Footprint<'a> {
    /// The footprint of these amounts in a ClusterQueue.
    pub const fn of(node: NodeId, usage: &'a [(FlavorResource, Exact)]) -> Self {
        Self { node, usage }
    }

    /// The part of it that is one resource on one flavor, if there is such a part.
    pub(crate) fn only(self, pair: FlavorResource) -> Option<Self> {
        let part = self.usage.iter().find(|(at, _)| *at == pair)?;
        Some(Self::of(self.node, std::slice::from_ref(part)))
    }
}

/// All room that there is for workloads, and how much of it is taken.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    forest: Forest,
}

impl Ground {
    /// Whether there is room for a workload now.
    pub fn fits(&self, asked: Footprint<'_>) -> bool {
        { asked.usage.iter() }.all(|(pair, value)| self.forest.fits(asked.node, *pair, *value))
    }

    /// The resources on flavors that a workload lacks: each alone has too little room now. Empty exactly when the workload fits.
    pub fn contested(&self, asked: Footprint<'_>) -> Vec<FlavorResource> {
        { asked.usage.iter() }
            .filter(|(pair, value)| !self.forest.fits(asked.node, *pair, *value))
            .map(|(pair, _)| *pair)
            .collect()
    }

    /// Counts a workload as running, whether or not there is room for it.
    pub fn take(&mut self, taken: Footprint<'_>) {
        for (pair, value) in taken.usage {
            self.forest.add(taken.node, *pair, *value);
        }
    }

    /// Stops counting a workload that was taken. It does not report that another may fit now; [`Ground::released`] does.
    pub fn give(&mut self, given: Footprint<'_>) {
        for (pair, value) in given.usage {
            self.forest.remove(given.node, *pair, *value);
        }
    }

    /// The answer to a question that is asked as if these workloads did not run.
    pub fn without<'f, T>(
        &mut self,
        gone: impl Iterator<Item = Footprint<'f>> + Clone,
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        for footprint in gone.clone() {
            self.give(footprint);
        }
        let answer = ask(self);
        for footprint in gone {
            self.take(footprint);
        }
        answer
    }

    /// Records that room was released for good in the tree of this ClusterQueue. A queue without object and without usage is forgotten.
    pub fn released(&mut self, node: NodeId) {
        self.forest.released(node);
    }

    /// The room that a ClusterQueue has left of one resource on one flavor; negative when more is taken than there is.
    pub(crate) fn free(&self, node: NodeId, pair: FlavorResource) -> Exact {
        self.forest.available_exact(node, pair)
    }

    /// The most room that a ClusterQueue could ever have of one resource on one flavor, with everything else idle.
    pub(crate) fn most(&self, node: NodeId, pair: FlavorResource) -> Exact {
        self.forest.potential_exact(node, pair)
    }

    /// Quotas, and the trees in which ClusterQueues lend and borrow: for all questions that are about quota itself.
    pub const fn quotas(&self) -> &Forest {
        &self.forest
    }

    /// The number that stands for a resource on a flavor. The same pair always gets the same number.
    pub fn pair(&mut self, flavor: &FlavorName, resource: &ResourceName) -> FlavorResource {
        self.forest.pair(flavor, resource)
    }

    /// Puts a ClusterQueue where its object says, with the object's quotas. What its workloads have taken moves with it.
    pub fn put_queue(&mut self, queue: &ClusterQueue) -> NodeId {
        self.forest.put_queue(queue)
    }

    /// A ClusterQueue is deleted: it has no room any more. What its workloads have taken stays taken.
    pub fn drop_queue(&mut self, name: &ClusterQueueName) {
        self.forest.drop_queue(name);
    }

    /// The node of a ClusterQueue, created if it is missing: workloads may be known before their queue is.
    pub fn ensure_queue(&mut self, name: &ClusterQueueName) -> NodeId {
        self.forest.ensure_queue(name)
    }

    /// Puts a cohort where its object says, with the object's quotas.
    pub fn put_cohort(&mut self, cohort: &Cohort) {
        self.forest.put_cohort(cohort);
    }

    /// A cohort object is deleted: its descendants stay together, below a root without own quota.
    pub fn drop_cohort(&mut self, name: &CohortName) {
        self.forest.drop_cohort(name);
    }
}

#[cfg(test)]
mod tests;
