//! A head of a round: what it would get, and what becomes of it.

use crate::check::MULTIKUEUE_CONTROLLER;
use crate::flavor::{Category, Placement, Remedy};
use crate::ground::Footprint;
use crate::hierarchy::NodeId;
use crate::nominate::{Facts, Head, Mode, Nomination, Restriction, nominate};
use crate::pending::{Needs, Ticket};
use crate::queue::ClusterQueue;
use crate::reason::Reason;
use crate::rules::Switch;
use crate::state::State;
use crate::table::{ClusterId, WorkloadId};

/// A head of the round and the quota it would get.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) cluster: ClusterId,
    pub(super) id: WorkloadId,
    pub(super) node: NodeId,
    pub(super) ticket: Ticket,
    /// Whether it already waits for victims.
    pub(super) preemptor: bool,
    /// Whether it is served after all other heads of the round.
    pub(super) last: bool,
    pub(super) nomination: Nomination,
    /// What must become available before another try is worthwhile.
    pub(super) needs: Needs,
}

impl Entry {
    /// What it would take up.
    pub(super) fn footprint(&self) -> Footprint<'_> {
        Footprint::of(self.node, &self.nomination.usage)
    }
}

#[derive(Debug)]
pub(super) enum Fate {
    Served,
    /// It got no quota.
    Refused(Reason, Requeue),
}

/// Why a head is put back. *Source*: `spec/admission-engine.md 1.4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requeue {
    /// `NoFit`: no flavor has room for it.
    NoRoom(Remedy),
    /// `PreemptionNoCandidates`: it may preempt, but has no candidate now. In a strict queue it claims the quota that it could have as its
    /// own.
    NoCandidates,
    /// `PendingPreemption`: it waits for its victims.
    PendingPreemption,
    /// `FailedAfterNomination`: another head came first.
    Skipped,
    /// It fits, but workloads admitted earlier are not ready.
    PodsNotReady,
}

/// The fate of a head that has no room and no candidates for preemption.
pub(super) fn refuse(entry: &Entry) -> Fate {
    let (category, text, remedy) = entry.nomination.refusal.as_ref().map_or_else(
        || (Category::WaitingForQuota, String::new(), Remedy::Capacity),
        |refusal| (refusal.category, refusal.message.clone(), refusal.remedy),
    );
    let requeue = if entry.nomination.mode == Mode::NoFit {
        Requeue::NoRoom(remedy)
    } else {
        Requeue::NoCandidates
    };
    Fate::Refused(Reason::NoRoom { category, text }, requeue)
}

impl State {
    /// What a workload would get now, and at whose cost.
    pub(super) fn nominate(
        &mut self,
        cluster: ClusterId,
        id: WorkloadId,
        ticket: &Ticket,
        restriction: Option<&Restriction<'_>>,
    ) -> Option<Nomination> {
        let queue = self.clusters.at(cluster)?.queue.as_ref()?;
        let record = self.records.at(id)?;
        let generation = self.ground.quotas().generation(queue.node);
        // *Source*: `spec/admission-engine.md 2.5.5`.
        let progress = record.progress.as_deref().filter(|(progress, at)| {
            queue.tries.saturating_sub(*at) <= 1 || progress.generation == generation
        });
        let head = Head {
            workload: &record.workload,
            queue: &queue.compiled,
            node: queue.node,
            placement: self.placement(&queue.spec),
            priority: ticket.rank.priority(),
            queue_time: ticket.rank.since(),
            progress: progress.map(|(progress, _)| progress),
        };
        let mut facts = Facts {
            ground: &mut self.ground,
            holders: &self.holders,
            flavors: &self.flavors,
            rules: &self.settings.rules,
        };
        Some(nominate(&mut facts, &head, restriction))
    }

    /// The cluster that places the pods of a queue by topology.
    fn placement(&self, queue: &ClusterQueue) -> Placement {
        let federated = |name| {
            let check = self.checks.get(name);
            check.is_some_and(|check| check.controller == MULTIKUEUE_CONTROLLER)
        };
        match self.settings.rules.topology {
            Switch::On if !queue.checks.iter().any(|rule| federated(&rule.name)) => Placement::Here,
            Switch::On | Switch::Off => Placement::Elsewhere,
        }
    }
}
