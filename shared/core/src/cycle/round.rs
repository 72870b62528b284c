//! One round: the heads of one tree, in order.

use jiff::Timestamp;

use super::Decision;
use super::head::{Entry, Fate, Requeue, refuse};
use super::scratch::Scratch;
use crate::fair::{Contender, Tournament, classical_order};
use crate::flavor::{Category, Remedy};
use crate::hierarchy::NodeId;
use crate::nominate::{Mode, Nomination};
use crate::pending::{Lack, Needs, Stance, Ticket, Wait};
use crate::queue::{ClusterQueue, QueueRef, Strategy};
use crate::reason::Reason;
use crate::rules::PreemptionRules;
use crate::state::{Place, State};
use crate::status::CheckPhase;
use crate::table::{ClusterId, WorkloadId};
use crate::workload::Workload;

impl State {
    /// Runs a round in the tree of a queue; returns how many heads were tried.
    pub(super) fn round(
        &mut self,
        trigger: ClusterId,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> usize {
        let tree = self.tree_of(trigger);
        let mut entries = Vec::new();
        let mut scratch = Scratch::default();
        let mut heads = 0;
        for cluster in &tree {
            let Some((id, ticket)) = self.head_for_round(*cluster, &mut scratch) else {
                // Why: this queue may have put its last heads aside untried. If it stayed ready, rounds of its tree would never end.
                if self.ready.contains(cluster) {
                    self.touch(*cluster);
                }
                continue;
            };
            heads += 1;
            if let Some((reason, wait)) = self.obstacle(*cluster, id) {
                self.set_aside(*cluster, &ticket, wait, &mut scratch);
                decisions.extend(self.say(id, reason));
                continue;
            }
            entries.extend(self.enter_round(*cluster, id, ticket));
        }
        if heads == 0 {
            self.touch(trigger);
            return 0;
        }
        // Why: where the rules leave the order open, it must not depend on the order of events.
        entries.sort_by(|a, b| a.ticket.rank.cmp(&b.ticket.rank));
        let mut fates: Vec<Option<Fate>> = entries.iter().map(|_| None).collect();
        for (at, entry) in entries.iter().enumerate() {
            // Why before the others: a head without room changes nothing for other heads.
            if entry.nomination.mode == Mode::NoFit
                && let Some(fate) = fates.get_mut(at)
            {
                *fate = Some(refuse(entry));
            }
        }
        if self.has_claims() {
            self.serve_claims(&tree, &mut entries, &mut fates, &mut scratch, (now, decisions));
        }
        self.serve_in_order(&mut entries, &mut fates, &mut scratch, (now, decisions));
        scratch.undo(&mut self.ground);
        let mut skipped = Vec::new();
        for (entry, fate) in entries.iter().zip(fates) {
            match fate {
                Some(Fate::Refused(reason, requeue)) => {
                    if requeue == Requeue::Skipped {
                        skipped.push(entry);
                    }
                    self.put_back(entry, requeue, &mut scratch);
                    decisions.extend(self.say(entry.id, reason));
                }
                Some(Fate::Served) | None => {}
            }
        }
        self.end_round(&tree, &skipped, &scratch);
        heads
    }

    /// The head of a queue that takes part. Workloads before it that need no try are put aside.
    fn head_for_round(&mut self, cluster: ClusterId, scratch: &mut Scratch) -> Option<(WorkloadId, Ticket)> {
        loop {
            let queue = self.queue(cluster).filter(|queue| self.is_served(queue))?;
            let id = self.head_of(queue)?;
            if queue.pending.stance(id) == Some(Stance::Waits) {
                return None;
            }
            let ticket = match &self.records.at(id)?.place {
                Place::Queued { ticket, .. } => ticket.clone(),
                Place::Out | Place::Holding(_) => return None,
            };
            if queue.spec.strategy == Strategy::StrictFifo {
                return Some((id, ticket));
            }
            if !queue.pending.is_hopeless(&ticket) {
                let Some(lacks) = self.dried_up(queue, &ticket) else {
                    return Some((id, ticket));
                };
                let wait = Wait::Capacity(Needs::AnyOf(lacks), Category::WaitingForQuota);
                self.set_aside(cluster, &ticket, wait, scratch);
                self.bypassed.insert(id);
                continue;
            }
            let queue = self.queue_mut(cluster)?;
            queue.pending.leave_heap(&ticket);
            queue.pending.unstick(id);
            queue.pending.join(&ticket);
            self.bypassed.insert(id);
            scratch.moved = true;
        }
    }

    /// What keeps a head from being nominated at all. *Source*: `spec/admission-engine.md 2.3`.
    fn obstacle(&self, cluster: ClusterId, id: WorkloadId) -> Option<(Reason, Wait)> {
        let (queue, record) = (self.queue(cluster)?, self.records.at(id)?);
        let workload = &record.workload;
        let failed = |phase| matches!(phase, CheckPhase::Retry | CheckPhase::Rejected);
        if workload.status.checks.values().any(|check| failed(check.phase)) {
            return Some((Reason::ChecksFailed, Wait::Configuration));
        }
        if !self.namespace_matches(&queue.spec, workload) {
            return Some((Reason::NamespaceMismatch, Wait::Namespace));
        }
        if let Some(sentence) = &workload.beyond {
            return Some((Reason::ExceedsEveryWorker(sentence.clone()), Wait::Namespace));
        }
        let invalid = !workload.problems.is_empty();
        invalid.then(|| {
            (
                Reason::RequestInvalid(workload.problems.clone()),
                Wait::Configuration,
            )
        })
    }

    fn namespace_matches(&self, queue: &ClusterQueue, workload: &Workload) -> bool {
        let Some(selector) = &queue.namespaces else {
            return false;
        };
        // Why: the labels of a namespace that is not known yet are unknown, so only a selector that matches everything matches it.
        self.namespaces
            .get(&workload.key.namespace)
            .map_or(selector.0.is_empty(), |labels| selector.matches(labels))
    }

    fn enter_round(&mut self, cluster: ClusterId, id: WorkloadId, ticket: Ticket) -> Option<Entry> {
        self.refresh_past(cluster);
        if self.skipping.remove(&cluster) {
            let name = self.queue(cluster)?.spec.name.clone();
            self.outcome.preemption_skips.insert(name, 0);
        }
        let queue = self.queue_mut(cluster)?;
        queue.tries += 1;
        let (node, preemptor) = (
            queue.node,
            queue.pending.is_sticky(id) || queue.pending.stance(id).is_some(),
        );
        let nomination = self.nominate(cluster, id, &ticket, None)?;
        let needs = self.needs_of(node, &nomination);
        self.outcome.heads += 1;
        Some(Entry {
            cluster,
            id,
            node,
            ticket,
            preemptor,
            last: false,
            nomination,
            needs,
        })
    }

    fn needs_of(&self, node: NodeId, nomination: &Nomination) -> Needs {
        match &nomination.refusal {
            Some(refusal) if !refusal.lacks.is_empty() => Needs::AnyOf(
                { refusal.lacks.iter() }
                    .map(|(pair, lack)| Lack {
                        pair: *pair,
                        after: self.freed_after(node, *pair, *lack),
                        needed: self.ground.free(node, *pair) + lack,
                    })
                    .collect(),
            ),
            Some(_) | None => Needs::Anything,
        }
    }

    /// *Source*: `spec/admission-engine.md 2.8.2, 2.10`.
    fn serve_in_order(
        &mut self,
        entries: &mut [Entry],
        fates: &mut [Option<Fate>],
        scratch: &mut Scratch,
        (now, decisions): (Timestamp, &mut Vec<Decision>),
    ) {
        let (last, open): (Vec<usize>, Vec<usize>) = (0..entries.len())
            .filter(|at| fates.get(*at).is_some_and(Option::is_none))
            .partition(|at| entries.get(*at).is_some_and(|entry| entry.last));
        let fair = matches!(
            self.settings.rules.preemption,
            PreemptionRules::FairSharing { .. }
        );
        let contender = |entry: &Entry| Contender {
            node: entry.node,
            usage: if fair {
                entry.nomination.usage.clone()
            } else {
                Vec::new()
            },
            level: entry.nomination.level,
            priority: entry.ticket.rank.priority(),
            queue_time: entry.ticket.rank.since(),
            preemptor: entry.preemptor,
            second_pass: false,
        };
        let mut contenders: Vec<(usize, Contender)> = open
            .into_iter()
            .filter_map(|at| Some((at, contender(entries.get(at)?))))
            .collect();
        let mut serve = |state: &mut Self, at: usize| {
            if let (Some(entry), Some(fate)) = (entries.get_mut(at), fates.get_mut(at)) {
                *fate = Some(state.process(entry, scratch, (now, &mut *decisions)));
            }
        };
        if !fair {
            let rules = &self.settings.rules;
            contenders.sort_by(|(_, a), (_, b)| classical_order(rules, a, b));
            for at in contenders.into_iter().map(|(at, _)| at).chain(last) {
                serve(self, at);
            }
            return;
        }
        let (at, contenders): (Vec<usize>, Vec<Contender>) = contenders.into_iter().unzip();
        let mut tournament = Tournament::new(&self.ground, contenders);
        while let Some(next) = tournament.next(&mut self.ground, &self.settings.rules) {
            let Some(at) = at.get(next).copied() else { break };
            serve(self, at);
        }
        for at in last {
            serve(self, at);
        }
    }

    /// Puts a head back. *Source*: `spec/admission-engine.md 1.3, 1.4, 1.6`.
    fn put_back(&mut self, entry: &Entry, requeue: Requeue, scratch: &mut Scratch) {
        let progress = &entry.nomination.progress;
        let left = progress.is_pending() && requeue != Requeue::PendingPreemption;
        if let Some(queue) = self.clusters.at(entry.cluster).and_then(|c| c.queue.as_ref())
            && let Some(record) = self.records.at_mut(entry.id)
        {
            record.progress = left.then(|| Box::new((progress.clone(), queue.tries)));
        }
        let Some(queue) = self.queue_mut(entry.cluster) else {
            return;
        };
        let (strict, id) = (queue.spec.strategy == Strategy::StrictFifo, entry.id);
        if requeue == Requeue::PendingPreemption {
            queue.pending.forget_hopes(&entry.ticket);
            if !strict {
                queue.pending.stick(&entry.ticket);
            }
            queue.pending.block(id, Stance::Claims);
            return self.touch(entry.cluster);
        }
        queue.pending.unstick(id);
        queue.pending.forget_hopes(&entry.ticket);
        if requeue != Requeue::PodsNotReady {
            scratch.given_up |= self.forget_claim(entry.cluster).is_some();
        }
        let Some(queue) = self.queue_mut(entry.cluster) else {
            return;
        };
        let category = { entry.nomination.refusal.as_ref() }.map(|refusal| refusal.category);
        let category = category.unwrap_or(Category::WaitingForQuota);
        match requeue {
            // Why: the flavors that were not tried yet are tried at once.
            Requeue::NoRoom(_) | Requeue::NoCandidates if left => {
                queue.pending.unblock();
                scratch.moved = true;
            }
            Requeue::NoRoom(remedy) if !strict => {
                let wait = match remedy {
                    Remedy::Capacity => Wait::Capacity(entry.needs.clone(), category),
                    Remedy::Configuration => Wait::Configuration,
                };
                return self.set_aside(entry.cluster, &entry.ticket, wait, scratch);
            }
            Requeue::NoCandidates if !strict => {
                let wait = Wait::Capacity(entry.needs.clone(), category);
                return self.set_aside(entry.cluster, &entry.ticket, wait, scratch);
            }
            Requeue::NoCandidates => queue.pending.block(id, Stance::Claims),
            Requeue::NoRoom(_) | Requeue::Skipped | Requeue::PodsNotReady | Requeue::PendingPreemption => {
                queue.pending.block(id, Stance::Waits);
            }
        }
        self.touch(entry.cluster);
    }

    /// Takes a head out of the heap, or blocks the heap with it where the strategy demands that.
    fn set_aside(&mut self, cluster: ClusterId, ticket: &Ticket, wait: Wait, scratch: &mut Scratch) {
        scratch.given_up |= self.forget_claim(cluster).is_some();
        let Some(queue) = self.queue_mut(cluster) else {
            return;
        };
        let id = ticket.rank.id();
        queue.pending.unstick(id);
        match (queue.spec.strategy, &wait) {
            (Strategy::StrictFifo, Wait::Capacity(..) | Wait::Configuration | Wait::Backoff(_)) => {
                queue.pending.block(id, Stance::Waits);
            }
            (Strategy::StrictFifo, Wait::Namespace) | (Strategy::BestEffortFifo, _) => {
                queue.pending.leave_heap(ticket);
                queue.pending.park(ticket, wait);
                scratch.moved = true;
                let name = queue.spec.name.clone();
                self.changed.insert(QueueRef::Cluster(name));
            }
        }
        self.touch(cluster);
    }

    /// Lets workloads look again for which this round may have changed something.
    fn end_round(&mut self, tree: &[ClusterId], skipped: &[&Entry], scratch: &Scratch) {
        if scratch.served {
            self.outcome.successes += 1;
        } else {
            self.outcome.failures += 1;
        }
        if scratch.given_up
            && let Some(cluster) = tree.first()
        {
            self.stir_tree(*cluster);
        }
        // Why rounds end all the same: without a new event, each of these can happen only a limited number of times.
        if scratch.served || scratch.moved || scratch.evicted {
            for entry in skipped {
                if let Some(queue) = self.queue_mut(entry.cluster) {
                    queue.pending.unblock();
                }
                self.touch(entry.cluster);
            }
        }
        if scratch.served {
            for cluster in tree {
                if let Some(queue) = self.queue_mut(*cluster).filter(|queue| queue.pending.has_claim()) {
                    queue.pending.unblock();
                    self.touch(*cluster);
                }
            }
        }
    }
}

#[cfg(test)]
impl State {
    /// Whether a pending workload would get quota if it was tried now.
    pub(crate) fn would_fit(&mut self, id: WorkloadId) -> bool {
        let Some(Place::Queued { cluster, ticket, .. }) = self.records.at(id).map(|r| r.place.clone()) else {
            return false;
        };
        let nomination = self.nominate(cluster, id, &ticket, None);
        self.obstacle(cluster, id).is_none() && nomination.is_some_and(|n| n.mode == Mode::Fit)
    }

    /// Whether a pending workload would find victims if it was tried now.
    pub(crate) fn would_preempt(&mut self, id: WorkloadId) -> bool {
        let Some(Place::Queued { cluster, ticket, .. }) = self.records.at(id).map(|r| r.place.clone()) else {
            return false;
        };
        let nomination = self.nominate(cluster, id, &ticket, None);
        self.obstacle(cluster, id).is_none() && nomination.is_some_and(|n| !n.targets.is_empty())
    }
}
