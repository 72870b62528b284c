//! The turn of one head. *Source*: `spec/admission-engine.md 2.11`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::head::{Entry, Fate, Requeue, refuse};
use super::scratch::{Kept, Scratch};
use super::{Decision, preempt};
use crate::flavor::Remedy;
use crate::ground::Ground;
use crate::hierarchy::Exact;
use crate::nominate::{Mode, Restriction};
use crate::pending::Needs;
use crate::preempt::{PreemptReason, Target, preemption_message};
use crate::queue::Reclaim;
use crate::reason::Reason;
use crate::rules::Switch;
use crate::state::workloads::eviction_count;
use crate::state::{Assumption, Blocking, Eviction, Fresh, Holding, Place, Readiness, Record, State, Told};
use crate::status::Admission;

/// *Limit*: how long a decided eviction may take to become visible before it is decided again.
const EVICTION_VISIBLE: SignedDuration = SignedDuration::from_secs(60);

impl State {
    pub(super) fn process(
        &mut self,
        entry: &mut Entry,
        scratch: &mut Scratch,
        (now, decisions): (Timestamp, &mut Vec<Decision>),
    ) -> Fate {
        if overlaps(entry, scratch) && self.settings.rules.recompute_overlap == Switch::On {
            self.recompute(entry, scratch);
            if entry.nomination.mode == Mode::Fit && entry.nomination.fits_only_with_gone {
                scratch.claim(&mut self.ground, entry.cluster, entry.footprint());
                self.claim_for(entry, now);
                return Fate::Refused(Reason::AwaitsVictimsOfOthers, Requeue::PendingPreemption);
            }
        }
        let victims = !entry.nomination.targets.is_empty();
        match entry.nomination.mode {
            Mode::NoFit => return refuse(entry),
            Mode::NoCandidates | Mode::Preempt | Mode::Reclaim if !victims => {
                self.withhold(entry, scratch);
                return refuse(entry);
            }
            Mode::NoCandidates | Mode::Preempt | Mode::Reclaim | Mode::Fit => {}
        }
        let gated = |record: &Record| record.workload.status.has_closed_gate();
        if victims && self.records.at(entry.id).is_some_and(gated) {
            return Fate::Refused(Reason::PreemptionGated, Requeue::NoRoom(Remedy::Capacity));
        }
        if overlaps(entry, scratch) {
            if let Some(queue) = self.queue(entry.cluster) {
                let name = queue.spec.name.clone();
                self.outcome.preemption_skips.insert(name, 1);
                self.skipping.insert(entry.cluster);
            }
            return Fate::Refused(Reason::VictimsTaken, Requeue::Skipped);
        }
        if !self.still_fits(entry, scratch) {
            return Fate::Refused(Reason::NoLongerFits, Requeue::Skipped);
        }
        if victims {
            return self.evict_for(entry, scratch, (now, decisions));
        }
        if self.settings.blocking == Blocking::UntilPodsReady && self.unready > 0 {
            return Fate::Refused(Reason::PodsNotReady, Requeue::PodsNotReady);
        }
        decisions.extend(self.reserve(entry, now));
        scratch.served = true;
        Fate::Served
    }

    /// Computes a nomination again, with the victims of others treated as gone.
    fn recompute(&mut self, entry: &mut Entry, scratch: &Scratch) {
        let restriction = Restriction {
            pinned: Some(&entry.nomination),
            gone: &scratch.taken,
        };
        let again = self.nominate(entry.cluster, entry.id, &entry.ticket, Some(&restriction));
        let Some(again) = again else { return };
        let found = again.mode == Mode::Fit || !again.targets.is_empty();
        if let Some(queue) = self.queue(entry.cluster) {
            let name = queue.spec.name.clone();
            let (success, failure) = self.outcome.recomputations.entry(name).or_default();
            *(if found { success } else { failure }) += 1;
        }
        entry.nomination = again;
        // Why: the nomination was computed against claims that may end without any release.
        entry.needs = Needs::Anything;
    }

    /// For this round, keeps the quota that a head without candidates for preemption could have as its own.
    fn withhold(&mut self, entry: &Entry, scratch: &mut Scratch) {
        let reclaims_any = self
            .queue(entry.cluster)
            .is_some_and(|queue| queue.spec.preemption.reclaim_within_cohort == Reclaim::Any);
        if reclaims_any {
            // Why nothing is kept: the head can reclaim whatever others take meanwhile.
            return;
        }
        let quotas = self.ground.quotas();
        let mut amounts = entry.nomination.usage.clone();
        for (pair, value) in &mut amounts {
            let used = quotas.usage(entry.node, *pair);
            let nominal = Exact::from(quotas.nominal(entry.node, *pair).get());
            let most = if entry.nomination.level > 0 {
                let limit = quotas.borrowing_limit(entry.node, *pair);
                limit.map(|limit| nominal + Exact::from(limit.get()) - used)
            } else {
                Some(nominal - used)
            };
            *value = most.map_or(*value, |most| most.min(*value));
        }
        amounts.retain(|(_, value)| *value > 0);
        let withheld = Kept {
            cluster: entry.cluster,
            node: entry.node,
            amounts,
        };
        self.ground.take(withheld.footprint());
        scratch.withheld.push(withheld);
    }

    /// Whether an entry still fits after those before it. It must fit later, when all victims have stopped and all claims are taken. If it
    /// needs no victims, it must also fit now, while those victims still run.
    fn still_fits(&mut self, entry: &Entry, scratch: &Scratch) -> bool {
        let victims = entry.nomination.targets.iter().map(|target| &target.holder);
        let gone = scratch.taken.iter().chain(victims);
        let fits = |ground: &mut Ground| ground.fits(entry.footprint());
        let later = self.ground.without(gone.map(|holder| holder.footprint()), fits);
        let alone = scratch.claims.is_empty() && scratch.taken.is_empty();
        if !later || !entry.nomination.targets.is_empty() || alone {
            return later;
        }
        let claims = scratch.claims.iter().map(Kept::footprint);
        self.ground.without(claims, fits)
    }

    /// *Source*: `spec/admission-engine.md 2.12`.
    fn evict_for(
        &mut self,
        entry: &Entry,
        scratch: &mut Scratch,
        (now, decisions): (Timestamp, &mut Vec<Decision>),
    ) -> Fate {
        scratch.claim(&mut self.ground, entry.cluster, entry.footprint());
        self.claim_for(entry, now);
        for target in &entry.nomination.targets {
            scratch.taken.push(Arc::clone(&target.holder));
            if !target.holder.evicted {
                scratch.evicted = true;
                decisions.extend(self.evict(entry, target, now));
            }
        }
        let text = entry
            .nomination
            .refusal
            .as_ref()
            .map(|refusal| refusal.message.clone());
        let reason = Reason::AwaitsVictims {
            text: text.unwrap_or_default(),
            count: entry.nomination.targets.len(),
        };
        Fate::Refused(reason, Requeue::PendingPreemption)
    }

    /// Records that a victim is to be evicted; returns the decision if its reservation is visible already.
    fn evict(&mut self, entry: &Entry, target: &Target, now: Timestamp) -> Option<Decision> {
        let preemptor = &self.records.at(entry.id)?.workload;
        let uids = (Some(&preemptor.uid), preemptor.job_uid.as_ref());
        let message = preemption_message(self.ground.quotas(), uids.0, uids.1, entry.node, target);
        let (preemptor, preemptor_uid) = (preemptor.key.clone(), preemptor.uid.clone());
        let preemptor_queue = self.queue(entry.cluster)?.spec.name.clone();
        let victim = self.records.id(&target.holder.key)?;
        let record = self.records.at_mut(victim)?;
        if record.workload.uid != target.holder.uid {
            return None;
        }
        let told = if record.workload.has_quota() {
            Told::Yes
        } else {
            Told::NotYet
        };
        let until = now.checked_add(EVICTION_VISIBLE).unwrap_or(Timestamp::MAX);
        if target.reason == PreemptReason::InCohortFairSharing {
            self.holders.note_displaced(&preemptor_uid, &target.holder.uid);
        }
        let eviction = Eviction {
            reason: target.reason,
            message,
            preemptor,
            preemptor_uid,
            preemptor_queue,
            until,
            told,
        };
        let decision = (told == Told::Yes).then(|| {
            let workload = &record.workload;
            preempt(workload.key.clone(), workload.uid.clone(), &eviction)
        });
        record.eviction = Some(Box::new(eviction));
        self.expect_eviction(victim, until);
        self.settle(victim, now, Fresh::No);
        decision
    }

    /// Gives a head its quota.
    fn reserve(&mut self, entry: &Entry, now: Timestamp) -> Option<Decision> {
        let cluster_queue = self.queue(entry.cluster)?.spec.name.clone();
        let record = self.records.at_mut(entry.id)?;
        let Place::Queued { local, .. } = record.place else {
            return None;
        };
        let admission = Admission {
            cluster_queue,
            pod_sets: entry.nomination.pod_sets.clone(),
        };
        let workload = &record.workload;
        record.assumption = Some(Box::new(Assumption {
            admission: admission.clone(),
            since: now,
            quota_since: workload.status.conditions.get("QuotaReserved").map(|c| c.since),
            evictions: eviction_count(workload),
        }));
        // Why: if the reservation fails, an earlier explanation may never have been written.
        record.said = None;
        record.progress = None;
        let (key, uid) = (workload.key.clone(), workload.uid.clone());
        let mut amounts = entry.nomination.usage.clone();
        amounts.retain(|(_, value)| *value != 0);
        let place = Place::Holding(Box::new(Holding {
            cluster: entry.cluster,
            local,
            amounts,
            stage: crate::quota::Stage::Reserved,
            readiness: Readiness::NotReady,
            evicted: false,
            priority: entry.ticket.rank.priority(),
            queue_time: entry.ticket.rank.since(),
            reserved_at: now,
        }));
        self.forget_claim(entry.cluster);
        self.move_to(entry.id, place, now);
        let considered = entry.nomination.considered.clone();
        Some(Decision::Reserve {
            key,
            uid,
            admission,
            considered,
        })
    }
}

/// Whether an entry counts on victims that are already taken for other heads.
fn overlaps(entry: &Entry, scratch: &Scratch) -> bool {
    let taken = |target: &Target| scratch.taken.iter().any(|holder| holder.uid == target.holder.uid);
    entry.nomination.targets.iter().any(taken)
}
