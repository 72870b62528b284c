//! Claims of heads on the quota of workloads that are evicted in their favour. See [`Claim`].

use jiff::Timestamp;

use super::{Claim, State};
use crate::table::{ClusterId, WorkloadId};

impl State {
    /// From now on the head of a queue waits for its victims.
    pub(crate) fn make_claim(&mut self, cluster: ClusterId, claim: Claim) {
        self.forget_claim(cluster);
        let until = claim.until;
        if let Some(queue) = self.queue_mut(cluster) {
            queue.claim = Some(Box::new(claim));
            self.claim_ends.insert((until, cluster));
        }
    }

    /// The claim of a queue was served, or its workload gave it up.
    pub(crate) fn forget_claim(&mut self, cluster: ClusterId) -> Option<Box<Claim>> {
        let claim = self.queue_mut(cluster)?.claim.take()?;
        self.claim_ends.remove(&(claim.until, cluster));
        Some(claim)
    }

    /// A workload leaves a queue: the quota it had claimed there is free for others.
    pub(super) fn drop_claim_of(&mut self, id: WorkloadId, cluster: ClusterId) {
        let claim = self.queue(cluster).and_then(|queue| queue.claim.as_ref());
        if claim.is_some_and(|claim| claim.id == id) {
            self.forget_claim(cluster);
            self.stir_tree(cluster);
        }
    }

    pub(crate) fn has_claims(&self) -> bool {
        !self.claim_ends.is_empty()
    }

    /// The claim of a queue, if its workload is still head and its request is the same.
    pub(crate) fn standing_claim(&self, cluster: ClusterId) -> Option<&Claim> {
        let queue = self.queue(cluster).filter(|queue| self.is_served(queue))?;
        let claim = queue.claim.as_deref()?;
        let record = self.records.at(claim.id)?;
        let same = record.workload.uid == claim.uid && record.class == claim.class;
        (same && self.head_of(queue) == Some(claim.id)).then_some(claim)
    }

    /// Ends the claims that were not served in time: the quota they kept is free for all.
    pub(crate) fn end_claims(&mut self, now: Timestamp) {
        while let Some((at, cluster)) = self.claim_ends.first().copied() {
            if at > now {
                break;
            }
            self.claim_ends.remove(&(at, cluster));
            if let Some(mut claim) = self.forget_claim(cluster) {
                claim.until = Timestamp::MAX;
                self.make_claim(cluster, *claim);
            }
            self.stir_tree(cluster);
        }
    }
}

impl Claim {
    /// Whether the claim was not served in time.
    pub(crate) fn is_overdue(&self) -> bool {
        self.until == Timestamp::MAX
    }
}
