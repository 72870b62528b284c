//! What one round keeps and remembers until it ends.

use std::sync::Arc;

use crate::ground::{Footprint, Ground};
use crate::hierarchy::NodeId;
use crate::holders::Holder;
use crate::quota::Amounts;
use crate::table::ClusterId;

/// What the end of the round undoes, and what happened in the round.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says independently of the others that something happened in the round"
)]
pub(super) struct Scratch {
    /// What preemptors will take once their victims have stopped, by their queues.
    pub(super) claims: Vec<Kept>,
    /// Quota kept for heads that have no candidates for preemption.
    pub(super) withheld: Vec<Kept>,
    /// The victims of this round and of earlier ones that have not stopped yet.
    pub(super) taken: Vec<Arc<Holder>>,
    /// Whether a head got quota.
    pub(super) served: bool,
    /// Whether a head left the heap, or was put back to try other flavors.
    pub(super) moved: bool,
    pub(super) evicted: bool,
    /// Whether a head gave up a claim, so that others may fit though nothing was released.
    pub(super) given_up: bool,
}

/// Room that counts as taken until the round ends.
#[derive(Debug)]
pub(super) struct Kept {
    /// The queue for whose head it is kept.
    pub(super) cluster: ClusterId,
    pub(super) node: NodeId,
    pub(super) amounts: Amounts,
}

impl Kept {
    pub(super) fn footprint(&self) -> Footprint<'_> {
        Footprint::of(self.node, &self.amounts)
    }
}

impl Scratch {
    /// Gives back all that was only kept for this round.
    pub(super) fn undo(&mut self, ground: &mut Ground) {
        for kept in self.claims.drain(..).chain(self.withheld.drain(..)) {
            ground.give(kept.footprint());
        }
    }

    /// Counts a claim as taken.
    pub(super) fn claim(&mut self, ground: &mut Ground, cluster: ClusterId, footprint: Footprint<'_>) {
        ground.take(footprint);
        self.claims.push(Kept {
            cluster,
            node: footprint.node,
            amounts: footprint.usage.to_vec(),
        });
    }

    /// Stops counting the claim of a queue as taken.
    pub(super) fn unclaim(&mut self, ground: &mut Ground, cluster: ClusterId) {
        self.claims.retain(|kept| {
            if kept.cluster == cluster {
                ground.give(kept.footprint());
            }
            kept.cluster != cluster
        });
    }
}
