//! The choice of workloads to preempt so that another workload fits.
//!
//! Two searches, [`classical`] and [`fair`], share the notion of a candidate. Both walk lists that are already in order, skip subtrees that
//! do not borrow, and stop as soon as the preemptor fits. Invariants: the ground is left as it was found; without any one of the victims
//! the preemptor would not fit. *Source*: `spec/admission-engine.md 2.7, 2.8.3, 2.12`.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::Arc;

use jiff::Timestamp;

use crate::ground::{Footprint, Ground};
use crate::hierarchy::{Exact, FlavorResource, Forest, NodeId};
use crate::holders::{Holder, Holders, Line};
use crate::name::Uid;
use crate::queue::{PreemptionPolicy, Reclaim, WithinClusterQueue};
use crate::rules::{PreemptionRules, Rules};

mod classical;
mod fair;

/// Why a holder is preempted. *Source*: `spec/admission-engine.md 2.7.1, 2.8.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptReason {
    /// A workload of the same queue needs the quota.
    InClusterQueue,
    /// Its queue borrowed quota of the preemptor's queue.
    InCohortReclamation,
    /// Its queue has too large a share.
    InCohortFairSharing,
    /// Its priority is lower, though the preemptor itself borrows.
    InCohortReclaimWhileBorrowing,
}

impl PreemptReason {
    /// The reason of condition `Preempted`, as the API shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortFairSharing => "InCohortFairSharing",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }

    /// The phrase that messages use. *Source*: `spec/admission-engine.md 2.12`.
    pub const fn why(self) -> &'static str {
        match self {
            Self::InClusterQueue => "prioritization in the ClusterQueue",
            Self::InCohortReclamation => "reclamation within the cohort",
            Self::InCohortFairSharing => "Fair Sharing within the cohort",
            Self::InCohortReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
        }
    }
}

/// A victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The holder to preempt.
    pub holder: Arc<Holder>,
    /// Why it is preempted.
    pub reason: PreemptReason,
}

/// The message of conditions `Evicted` and `Preempted` of a victim. Unknown parts are shown as `UNKNOWN`. *Source*:
/// `spec/admission-engine.md 2.12`.
pub fn preemption_message(
    quotas: &Forest,
    preemptor: Option<&Uid>,
    job: Option<&Uid>,
    node: NodeId,
    target: &Target,
) -> String {
    let known = |uid: Option<&Uid>| {
        uid.map(Uid::as_str)
            .filter(|uid| !uid.is_empty())
            .unwrap_or("UNKNOWN")
            .to_owned()
    };
    // Wire: byte-exact with the anchor.
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
        known(preemptor),
        known(job),
        target.reason.why(),
        quotas.path_text(node),
        quotas.path_text(target.holder.node),
    )
}

/// The preemptor, and the facts for the search of victims.
pub(crate) struct Search<'a> {
    pub(crate) ground: &'a mut Ground,
    pub(crate) holders: &'a Holders,
    pub(crate) rules: &'a Rules,
    pub(crate) policy: PreemptionPolicy,
    pub(crate) uid: &'a Uid,
    pub(crate) node: NodeId,
    pub(crate) priority: i64,
    pub(crate) queue_time: Timestamp,
    /// Victims of other preemptors: they count as gone, and are never chosen.
    pub(crate) gone: &'a BTreeSet<Uid>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Empty when the preemptor cannot be made to fit.
    pub(crate) targets: Vec<Target>,
    pub(crate) candidates: Candidates,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Candidates {
    #[default]
    Nobody,
    Some,
}

impl Search<'_> {
    /// Victims whose removal makes `usage` (sorted) fit, none of them superfluous. Empty when there is no such set, or when it fits
    /// already.
    pub(crate) fn targets(&mut self, usage: &[(FlavorResource, Exact)]) -> Found {
        let contested = self.ground.contested(Footprint::of(self.node, usage));
        if contested.is_empty() {
            return Found::default();
        }
        let rules = self.rules;
        match &rules.preemption {
            // Why only with a parent: a queue that is alone in its tree shares with no other.
            PreemptionRules::FairSharing { strategies } if self.quotas().parent(self.node).is_some() => {
                fair::targets(self, usage, &contested, strategies)
            }
            PreemptionRules::FairSharing { .. } | PreemptionRules::Classical => {
                classical::targets(self, usage, &contested)
            }
        }
    }

    fn fits(&self, usage: &[(FlavorResource, Exact)]) -> bool {
        self.ground.fits(Footprint::of(self.node, usage))
    }

    const fn quotas(&self) -> &Forest {
        self.ground.quotas()
    }

    fn add(&mut self, holder: &Holder) {
        self.ground.take(holder.footprint());
    }

    fn remove(&mut self, holder: &Holder) {
        self.ground.give(holder.footprint());
    }

    /// The test of victims in the preemptor's own queue; `None` when its policy allows none.
    fn own_test<'c>(&self, contested: &'c [FlavorResource], excluded: &'c BTreeSet<Uid>) -> Option<Test<'c>> {
        let (most, equal_after) = match self.policy.within_cluster_queue {
            WithinClusterQueue::Never => return None,
            WithinClusterQueue::LowerPriority => (self.priority.checked_sub(1)?, None),
            WithinClusterQueue::LowerOrNewerEqualPriority => (self.priority, Some(self.queue_time)),
        };
        Some(Test {
            contested,
            excluded,
            most,
            equal_after,
        })
    }

    /// The test of victims in other queues; `None` when the policy allows none.
    fn others_test<'c>(
        &self,
        contested: &'c [FlavorResource],
        excluded: &'c BTreeSet<Uid>,
    ) -> Option<Test<'c>> {
        let most = match self.policy.reclaim_within_cohort {
            Reclaim::Never => return None,
            Reclaim::LowerPriority => self.priority.checked_sub(1)?,
            Reclaim::Any => i64::MAX,
        };
        Some(Test {
            contested,
            excluded,
            most,
            equal_after: None,
        })
    }

    /// Whether the node uses more than its own quota of any of these pairs.
    fn borrows(&self, node: NodeId, pairs: &[FlavorResource]) -> bool {
        pairs.iter().any(|pair| self.quotas().borrows(node, *pair))
    }
}

/// The conditions on a candidate that do not change during a search.
#[derive(Clone, Copy, Debug)]
struct Test<'a> {
    /// It must use one of these pairs.
    contested: &'a [FlavorResource],
    excluded: &'a BTreeSet<Uid>,
    /// It may have at most this priority.
    most: i64,
    /// If its priority equals `most`, it must be newer than this.
    equal_after: Option<Timestamp>,
}

/// Candidates of one queue in order.
#[derive(Clone, Debug)]
struct Choice<'a> {
    line: Line<'a>,
    test: Test<'a>,
}

impl<'a> Choice<'a> {
    fn of(holders: &'a Holders, queue: NodeId, test: Test<'a>) -> Option<Peekable<Self>> {
        let line = holders.of(queue);
        let mut choice = Self { line, test }.peekable();
        choice.peek().is_some().then_some(choice)
    }
}

impl<'a> Iterator for Choice<'a> {
    type Item = &'a Arc<Holder>;

    fn next(&mut self) -> Option<Self::Item> {
        for holder in &mut self.line {
            let test = &self.test;
            if holder.priority > test.most {
                if holder.evicted || holder.past.is_some() {
                    continue;
                }
                // Why: no later holder in the list has a lower priority.
                return None;
            }
            let young_enough = test
                .equal_after
                .is_none_or(|time| holder.priority < test.most || holder.queue_time > time);
            if young_enough && holder.uses(test.contested) && !test.excluded.contains(&holder.uid) {
                return Some(holder);
            }
        }
        None
    }
}
