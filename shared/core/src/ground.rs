//! Where workloads find room: every search asks it, every reservation takes from it.
//!
//! Its first member is the quota forest; topology and devices become further members, so who only wants to know whether
//! something fits asks the ground and no member. Invariants: usage changes by [`Ground::take`] and [`Ground::give`] only, and
//! the two are exact inverses; a search that tries "what if" undoes what it did. *Source*: `spec/admission-engine.md 2.4`.

use crate::hierarchy::{Exact, FlavorResource, Forest, NodeId};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// Quota and usage of all ClusterQueues and cohorts.
    pub forest: Forest,
}

impl Ground {
    /// Whether all of a usage (each pair once) fits into a ClusterQueue now.
    pub fn fits(&self, queue: NodeId, usage: &[(FlavorResource, Exact)]) -> bool {
        usage
            .iter()
            .all(|(pair, value)| self.forest.fits(queue, *pair, *value))
    }

    /// Of what a usage asks for more than there is now.
    pub fn contested(&self, queue: NodeId, usage: &[(FlavorResource, Exact)]) -> Vec<FlavorResource> {
        let lacking = |(pair, value): &&(FlavorResource, Exact)| !self.forest.fits(queue, *pair, *value);
        usage.iter().filter(lacking).map(|(pair, _)| *pair).collect()
    }

    /// Counts a usage in a ClusterQueue. It may exceed what is available.
    pub fn take(&mut self, queue: NodeId, usage: &[(FlavorResource, Exact)]) {
        for (pair, value) in usage {
            self.forest.add(queue, *pair, *value);
        }
    }

    /// Counts a usage no more: the exact inverse of [`Ground::take`].
    pub fn give(&mut self, queue: NodeId, usage: &[(FlavorResource, Exact)]) {
        for (pair, value) in usage {
            self.forest.remove(queue, *pair, *value);
        }
    }
}

#[cfg(test)]
mod tests;
