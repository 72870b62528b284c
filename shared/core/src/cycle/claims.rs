//! Heads that wait for their victims are served first in every round of their tree.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Decision;
use super::head::{Entry, Fate, Requeue};
use super::scratch::Scratch;
use crate::ground::Footprint;
use crate::holders::Holder;
use crate::nominate::{Mode, Restriction};
use crate::reason::Reason;
use crate::state::{Claim, State};
use crate::table::ClusterId;

/// *Limit*: how long a head keeps the quota that its victims have given back while other victims have not stopped. After that the head goes
/// on waiting, but comes after all others, so that a victim that never stops blocks no other workload.
pub(super) const CLAIM_MAX: SignedDuration = SignedDuration::from_mins(10);

impl State {
    /// From now on the head waits for its victims and for victims that others have chosen.
    pub(super) fn claim_for(&mut self, entry: &Entry, now: Timestamp) {
        let Some(record) = self.records.at(entry.id) else {
            return;
        };
        let until = match self.standing_claim(entry.cluster) {
            Some(claim) if claim.is_overdue() => claim.until,
            Some(_) | None => now.checked_add(CLAIM_MAX).unwrap_or(Timestamp::MAX),
        };
        let claim = Claim {
            id: entry.id,
            uid: record.workload.uid.clone(),
            class: record.class,
            nomination: entry.nomination.clone(),
            victims: { entry.nomination.targets.iter() }
                .map(|target| Arc::clone(&target.holder))
                .collect(),
            until,
        };
        self.make_claim(entry.cluster, claim);
    }

    /// Counts all claims of a tree as taken, then serves those that fit by now. A claim that cannot be served any more is given up; its
    /// head goes on like any other.
    ///
    /// Why first: the quota that victims of a head have given back is for that head, whatever its place in the order.
    pub(super) fn serve_claims(
        &mut self,
        tree: &[ClusterId],
        entries: &mut [Entry],
        fates: &mut [Option<Fate>],
        scratch: &mut Scratch,
        (now, decisions): (Timestamp, &mut Vec<Decision>),
    ) {
        for cluster in tree {
            self.raise_claim(*cluster, scratch);
        }
        for (entry, fate) in entries.iter_mut().zip(fates) {
            let Some(claim) = self.queue(entry.cluster).and_then(|queue| queue.claim.clone()) else {
                continue;
            };
            if claim.is_overdue() {
                entry.last = entry.nomination.mode != Mode::Fit;
                continue;
            }
            scratch.unclaim(&mut self.ground, entry.cluster);
            if fate.is_none() {
                *fate = self.serve_claim(entry, &claim, scratch, (now, decisions));
            }
            if matches!(
                fate,
                Some(Fate::Refused(
                    _,
                    Requeue::PendingPreemption | Requeue::PodsNotReady
                ))
            ) {
                let promised = Footprint::of(entry.node, &claim.nomination.usage);
                scratch.claim(&mut self.ground, entry.cluster, promised);
            } else {
                self.forget_claim(entry.cluster);
                if matches!(fate, Some(Fate::Served)) {
                    if self.bequeath(&claim, tree) {
                        continue;
                    }
                } else {
                    scratch.given_up = true;
                }
                let own = |holder: &Arc<Holder>| claim.victims.iter().any(|victim| victim.uid == holder.uid);
                scratch.taken.retain(|holder| !own(holder));
            }
        }
    }

    /// A head was served before its victims have stopped: passes those victims on to another claim of its tree. Returns whether there is
    /// one.
    ///
    /// Why: the head was served with quota from victims of other heads, so those heads have a right to what its own victims will give back.
    fn bequeath(&mut self, claim: &Claim, tree: &[ClusterId]) -> bool {
        let mut heirs = tree.iter().filter_map(|cluster| {
            let heir = self.clusters.at(*cluster)?.queue.as_ref()?.claim.as_ref()?;
            (!heir.is_overdue()).then_some(*cluster)
        });
        let Some(heir) = heirs
            .next()
            .and_then(|cluster| self.queue_mut(cluster)?.claim.as_mut())
        else {
            return false;
        };
        heir.victims.extend(claim.victims.iter().cloned());
        true
    }

    /// Counts the claim of a queue as taken, and its victims as chosen by it. A claim that does not stand any more is forgotten.
    fn raise_claim(&mut self, cluster: ClusterId, scratch: &mut Scratch) {
        let Some(claim) = self.standing_claim(cluster) else {
            scratch.given_up |= self.forget_claim(cluster).is_some();
            return;
        };
        if claim.is_overdue() {
            return;
        }
        let stopping = |victim: &Arc<Holder>| {
            let holder = self.holders.get(&victim.uid)?;
            (holder.evicted && holder.node == victim.node).then(|| Arc::clone(holder))
        };
        let victims: Vec<Arc<Holder>> = claim.victims.iter().filter_map(stopping).collect();
        let Some(queue) = self.clusters.at_mut(cluster).and_then(|c| c.queue.as_mut()) else {
            return;
        };
        let node = queue.node;
        if let Some(claim) = &mut queue.claim {
            let promised = Footprint::of(node, &claim.nomination.usage);
            scratch.claim(&mut self.ground, cluster, promised);
            // Why: a victim that has stopped may get quota again, and then belongs to no claim.
            claim.victims.clone_from(&victims);
        }
        scratch.taken.extend(victims);
    }

    /// Serves a head whose own claim does not count as taken at this moment. `None`: the claim cannot be served any more.
    fn serve_claim(
        &mut self,
        entry: &mut Entry,
        claim: &Claim,
        scratch: &mut Scratch,
        (now, decisions): (Timestamp, &mut Vec<Decision>),
    ) -> Option<Fate> {
        if let Some(fate) = self.serve_if_it_fits(entry, scratch, (now, decisions)) {
            return Some(fate);
        }
        let restriction = Restriction {
            pinned: Some(&claim.nomination),
            gone: &scratch.taken,
        };
        let later = self.nominate(entry.cluster, entry.id, &entry.ticket, Some(&restriction));
        let later = later.filter(|later| later.mode == Mode::Fit)?;
        let seen = std::mem::replace(&mut entry.nomination, later);
        // Why again: the head may fit with the flavors that its claim promised, though it would choose others today.
        if let Some(fate) = self.serve_if_it_fits(entry, scratch, (now, decisions)) {
            return Some(fate);
        }
        let stopping = |victim: &&Arc<Holder>| scratch.taken.iter().any(|holder| holder.uid == victim.uid);
        let reason = match claim.victims.iter().filter(stopping).count() {
            0 => Reason::AwaitsVictimsOfOthers,
            count => Reason::AwaitsVictims {
                text: { seen.refusal.or_else(|| claim.nomination.refusal.clone()) }
                    .map_or_else(String::new, |refusal| refusal.message),
                count,
            },
        };
        Some(Fate::Refused(reason, Requeue::PendingPreemption))
    }

    /// Gives a head its quota, if it needs no victims and fits beside all other claims.
    fn serve_if_it_fits(
        &mut self,
        entry: &mut Entry,
        scratch: &mut Scratch,
        (now, decisions): (Timestamp, &mut Vec<Decision>),
    ) -> Option<Fate> {
        if entry.nomination.mode != Mode::Fit {
            return None;
        }
        match self.process(entry, scratch, (now, decisions)) {
            fate @ (Fate::Served | Fate::Refused(_, Requeue::PodsNotReady)) => Some(fate),
            Fate::Refused(..) => None,
        }
    }
}
