//! Preemption with fair sharing: victims come from the side with the largest share.
//!
//! The set of victims is tested once more as a whole. Against the final shares every victim of another queue must still be justified, and
//! *strictly*: with that victim back, its side would stand above the preemptor's. So no victim can take its place back by the same rule.
//! Unlike the anchor: it tests only the single steps, so that two workloads can evict each other for ever. Longer circles, in which
//! priorities take part, end because a workload displaces another by shares only once
//! ([`Holders::note_displaced`](crate::holders::Holders::note_displaced)). *Source*: `spec/admission-engine.md 2.8.3, 10 item 16`.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;

use super::{Candidates, Choice, Found, PreemptReason, Search, Target, Test};
use crate::ground::Footprint;
use crate::hierarchy::{Exact, FlavorResource, NodeId, NodeName, Share};
use crate::holders::Holder;
use crate::name::Uid;
use crate::rules::{FairStrategy, Switch};

/// *Limit*: how often a search starts again without victims that were not justified.
const RETRIES: usize = 3;

/// The request of a search.
#[derive(Clone, Copy)]
struct Demand<'a> {
    usage: &'a [(FlavorResource, Exact)],
    contested: &'a [FlavorResource],
    strategies: &'a [FairStrategy],
}

/// The queues that victims may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Everywhere,
    OtherQueues,
    OwnQueue,
}

/// How a search ended.
enum Outcome {
    Nobody,
    /// The request does not fit even with victims.
    Failed,
    /// The victims are needed and justified.
    Targets(Vec<Target>),
    /// It would fit, but these victims are not justified.
    Unjust(Vec<Uid>),
}

/// Finds the victims of a request; see [`Search::targets`].
pub(super) fn targets(
    search: &mut Search<'_>,
    usage: &[(FlavorResource, Exact)],
    contested: &[FlavorResource],
    strategies: &[FairStrategy],
) -> Found {
    let demand = Demand {
        usage,
        contested,
        strategies,
    };
    let mut candidates = Candidates::Nobody;
    for scope in [Scope::Everywhere, Scope::OtherQueues, Scope::OwnQueue] {
        let mut excluded = search.gone.clone();
        for attempt in 0..RETRIES {
            match attempt_once(search, demand, scope, &excluded) {
                Outcome::Targets(targets) => {
                    return Found {
                        targets,
                        candidates: Candidates::Some,
                    };
                }
                Outcome::Unjust(uids) => {
                    candidates = Candidates::Some;
                    excluded.extend(uids);
                }
                Outcome::Failed => {
                    candidates = Candidates::Some;
                    // Why no other scope: no victim was excluded as unjust, so a smaller choice cannot fit either.
                    if attempt == 0 && scope == Scope::Everywhere {
                        return Found {
                            targets: Vec::new(),
                            candidates,
                        };
                    }
                    break;
                }
                Outcome::Nobody => break,
            }
        }
        if candidates == Candidates::Nobody {
            break;
        }
    }
    Found {
        targets: Vec::new(),
        candidates,
    }
}

fn attempt_once(
    search: &mut Search<'_>,
    demand: Demand<'_>,
    scope: Scope,
    excluded: &BTreeSet<Uid>,
) -> Outcome {
    let asked = Footprint::of(search.node, demand.usage);
    search.ground.take(asked);
    let outcome = match Hunt::begin(search, demand, scope, excluded) {
        None => Outcome::Nobody,
        Some(mut hunt) => {
            let outcome = hunt.run(search);
            for victim in &hunt.chosen {
                search.add(victim.holder);
            }
            outcome
        }
    };
    search.ground.give(asked);
    outcome
}

/// The relevant part of the tree: nodes that borrow, and the path to the preemptor's queue. Shares include the preemptor's usage.
struct Hunt<'a> {
    demand: Demand<'a>,
    /// The branches; the root comes first.
    branches: Vec<Branch<'a>>,
    /// Index of the preemptor's queue.
    own: usize,
    chosen: Vec<Victim<'a>>,
}

struct Branch<'a> {
    node: NodeId,
    parent: Option<usize>,
    children: Vec<usize>,
    /// Kept up to date while victims are chosen.
    share: Share,
    /// The candidates of a queue; `None` for a cohort.
    supply: Option<Supply<'a>>,
    /// Whether it is the preemptor's queue or one of its ancestors.
    is_own: bool,
    /// No more candidates can be taken from this branch.
    closed: bool,
}

struct Supply<'a> {
    fresh: Option<Peekable<Choice<'a>>>,
    /// In the second round: candidates that failed the first.
    again: VecDeque<&'a Arc<Holder>>,
    failed: VecDeque<&'a Arc<Holder>>,
}

impl<'a> Supply<'a> {
    const fn of(fresh: Option<Peekable<Choice<'a>>>) -> Self {
        Self {
            fresh,
            again: VecDeque::new(),
            failed: VecDeque::new(),
        }
    }

    fn peek(&mut self) -> Option<&'a Arc<Holder>> {
        match &mut self.fresh {
            Some(fresh) => fresh.peek().copied(),
            None => self.again.front().copied(),
        }
    }

    fn pop(&mut self) -> Option<&'a Arc<Holder>> {
        match &mut self.fresh {
            Some(fresh) => fresh.next(),
            None => self.again.pop_front(),
        }
    }
}

#[derive(Clone, Copy)]
struct Victim<'a> {
    holder: &'a Arc<Holder>,
    branch: usize,
    reason: PreemptReason,
}

/// How a round treats candidates that fail the test of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Goes on to the next candidate of the queue.
    First,
    Second,
}

impl<'a> Hunt<'a> {
    /// `None` when there is no candidate.
    fn begin(
        search: &Search<'a>,
        demand: Demand<'a>,
        scope: Scope,
        excluded: &'a BTreeSet<Uid>,
    ) -> Option<Self> {
        let own_test = match scope {
            Scope::Everywhere | Scope::OwnQueue => search.own_test(demand.contested, excluded),
            Scope::OtherQueues => None,
        };
        let others_test = match scope {
            Scope::Everywhere | Scope::OtherQueues => search.others_test(demand.contested, excluded),
            Scope::OwnQueue => None,
        };
        let mut hunt = Self {
            demand,
            branches: Vec::new(),
            own: 0,
            chosen: Vec::new(),
        };
        let way: Vec<NodeId> = search.quotas().path(search.node).collect();
        let root = *way.last()?;
        hunt.push(search, root, None, None);
        hunt.grow(search, 0, &way, own_test, others_test);
        let any = hunt.branches.iter_mut().any(|branch| {
            branch
                .supply
                .as_mut()
                .is_some_and(|supply| supply.peek().is_some())
        });
        any.then_some(hunt)
    }

    fn push(
        &mut self,
        search: &Search<'_>,
        node: NodeId,
        parent: Option<usize>,
        supply: Option<Supply<'a>>,
    ) -> usize {
        let index = self.branches.len();
        self.branches.push(Branch {
            node,
            parent,
            children: Vec::new(),
            share: search.quotas().share(node),
            supply,
            is_own: false,
            closed: false,
        });
        if let Some(above) = parent.and_then(|parent| self.branches.get_mut(parent)) {
            above.children.push(index);
        }
        index
    }

    /// Adds the relevant branches below a cohort. `way`: the preemptor's queue and everything above it.
    fn grow(
        &mut self,
        search: &Search<'a>,
        at: usize,
        way: &[NodeId],
        own_test: Option<Test<'a>>,
        others_test: Option<Test<'a>>,
    ) {
        let Some(branch) = self.branches.get_mut(at) else {
            return;
        };
        let node = branch.node;
        branch.is_own = way.contains(&node);
        for child in search.quotas().children(node) {
            if child == search.node {
                let fresh = own_test.and_then(|test| Choice::of(search.holders, child, test));
                self.own = self.push(search, child, Some(at), Some(Supply::of(fresh)));
                if let Some(branch) = self.branches.get_mut(self.own) {
                    branch.is_own = true;
                }
                continue;
            }
            if matches!(search.quotas().name(child), Some(NodeName::Cohort(_))) {
                let index = self.push(search, child, Some(at), None);
                let borrows = self.branches.get(index).is_some_and(|b| b.share.is_borrowing());
                if way.contains(&child) || (borrows && others_test.is_some()) {
                    self.grow(search, index, way, own_test, others_test);
                }
                continue;
            }
            if let Some(test) = others_test
                && search.borrows(child, self.demand.contested)
                && let Some(fresh) = Choice::of(search.holders, child, test)
            {
                self.push(search, child, Some(at), Some(Supply::of(Some(fresh))));
            }
        }
    }

    /// Looks for victims until the preemptor fits, then drops superfluous ones and judges the rest.
    fn run(&mut self, search: &mut Search<'_>) -> Outcome {
        if !self.enough(search) {
            return Outcome::Failed;
        }
        let reached = match self.demand.strategies {
            [] => self.round(search, None, Round::First),
            [first, later @ ..] => {
                self.round(search, Some(*first), Round::First)
                    || later.iter().any(|strategy| {
                        self.reopen();
                        self.round(search, Some(*strategy), Round::Second)
                    })
            }
        };
        if !reached {
            return Outcome::Failed;
        }
        self.fill_back(search);
        let unjust = self.judge(search);
        if unjust.is_empty() {
            Outcome::Targets(self.chosen.iter().map(Victim::target).collect())
        } else {
            Outcome::Unjust(unjust)
        }
    }

    /// Chooses victims by one strategy; returns whether the preemptor fits in the end.
    fn round(&mut self, search: &mut Search<'_>, strategy: Option<FairStrategy>, round: Round) -> bool {
        while let Some(queue) = self.next_queue(search) {
            let reason = if queue == self.own {
                Some(PreemptReason::InClusterQueue)
            } else if self.within_nominal(search) {
                Some(PreemptReason::InCohortReclamation)
            } else {
                None
            };
            let taken = match reason {
                Some(reason) => {
                    let Some(holder) = self.supply(queue).and_then(Supply::pop) else {
                        self.close(queue);
                        continue;
                    };
                    search.remove(holder);
                    Some(Victim {
                        holder,
                        branch: queue,
                        reason,
                    })
                }
                None => self.compare_shares(search, queue, strategy, round),
            };
            if let Some(victim) = taken {
                self.chosen.push(victim);
                self.refresh(search, queue);
                if self.goal(search) {
                    return true;
                }
            }
        }
        false
    }

    /// The first candidate of a queue that the shares allow; its usage is given back.
    fn compare_shares(
        &mut self,
        search: &mut Search<'_>,
        queue: usize,
        strategy: Option<FairStrategy>,
        round: Round,
    ) -> Option<Victim<'a>> {
        let (Some(strategy), Some((ours, theirs))) = (strategy, self.rivals(queue)) else {
            self.close(queue);
            return None;
        };
        let new = self.branches.get(ours)?.share.clone();
        let (old, side) = self.branches.get(theirs).map(|b| (b.share.clone(), b.node))?;
        while let Some(holder) = self.supply(queue).and_then(Supply::pop) {
            let spared = search.holders.is_spared(search.uid, holder);
            search.remove(holder);
            let accepted = match strategy {
                FairStrategy::LessThanOrEqualToFinalShare => {
                    new.compare(&search.quotas().share(side)) != Ordering::Greater
                }
                FairStrategy::LessThanInitialShare => new.compare(&old) == Ordering::Less,
            };
            if accepted && !spared {
                return Some(Victim {
                    holder,
                    branch: queue,
                    reason: PreemptReason::InCohortFairSharing,
                });
            }
            search.add(holder);
            if let Some(supply) = self.supply(queue) {
                supply.failed.push_back(holder);
                // Why: `LessThanInitialShare` does not depend on the candidate, so the others fail as well. In the second round the first
                // candidate that fails the test of shares ends its queue, whatever the strategy.
                let blind = round == Round::Second || strategy == FairStrategy::LessThanInitialShare;
                if blind && !accepted {
                    while let Some(holder) = supply.pop() {
                        supply.failed.push_back(holder);
                    }
                }
            }
        }
        self.close(queue);
        None
    }

    /// Starts the second round: the candidates that failed are tried again.
    fn reopen(&mut self) {
        for branch in &mut self.branches {
            branch.closed = false;
            if let Some(supply) = &mut branch.supply {
                supply.fresh = None;
                supply.again = std::mem::take(&mut supply.failed);
            }
        }
    }

    /// The queue that must give next: from the root always towards the largest share. Closes branches that have nothing to give.
    fn next_queue(&mut self, search: &Search<'_>) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.branches.first()?.closed {
                return None;
            }
            let mut best: Option<usize> = None;
            for child in self.branches.get(at)?.children.clone() {
                if !self.is_open(search, child) {
                    self.close(child);
                } else if best.is_none_or(|best| self.gives_before(child, best)) {
                    best = Some(child);
                }
            }
            match best {
                None => {
                    self.close(at);
                    at = 0;
                }
                Some(found) if self.branches.get(found)?.supply.is_some() => {
                    return Some(found);
                }
                Some(found) => at = found,
            }
        }
    }

    fn is_open(&mut self, search: &Search<'_>, index: usize) -> bool {
        let contested = self.demand.contested;
        let is_own = index == self.own;
        let Some(branch) = self.branches.get_mut(index) else {
            return false;
        };
        if branch.closed {
            return false;
        }
        match &mut branch.supply {
            None => !branch.children.is_empty() && (branch.is_own || branch.share.is_borrowing()),
            Some(supply) => {
                // Unlike the anchor: a queue that has come down to its own quota of all contested pairs gives no more, even if it borrows
                // something else. Otherwise its workload would claim its quota back at once.
                let may_give =
                    is_own || (branch.share.is_borrowing() && search.borrows(branch.node, contested));
                supply.peek().is_some() && may_give
            }
        }
    }

    /// Whether one child of a cohort gives before another: the larger share first, then a cohort before a queue, then the child with the
    /// better first candidate.
    fn gives_before(&mut self, one: usize, other: usize) -> bool {
        let (Some(a), Some(b)) = (self.branches.get(one), self.branches.get(other)) else {
            return false;
        };
        let by_share = b.share.compare(&a.share);
        by_share
            .then(a.supply.is_some().cmp(&b.supply.is_some()))
            .then_with(|| match (self.first_below(one), self.first_below(other)) {
                (Some((own_a, a)), Some((own_b, b))) => {
                    (!a.evicted, own_a).cmp(&(!b.evicted, own_b)).then(a.compare(b))
                }
                (a, b) => b.is_some().cmp(&a.is_some()),
            })
            == Ordering::Less
    }

    /// The best first candidate of the queues below, and whether it is in the preemptor's own queue.
    fn first_below(&mut self, index: usize) -> Option<(bool, &'a Arc<Holder>)> {
        let is_own = index == self.own;
        let branch = self.branches.get_mut(index)?;
        if branch.closed {
            return None;
        }
        if let Some(supply) = &mut branch.supply {
            return supply.peek().map(|holder| (is_own, holder));
        }
        let children = branch.children.clone();
        children
            .into_iter()
            .filter_map(|child| self.first_below(child))
            .min_by(|(_, a), (_, b)| a.compare(b))
    }

    /// The two nodes whose shares are compared. They are children of the lowest common ancestor: one on the preemptor's side, one on the
    /// side of the queue.
    fn rivals(&self, queue: usize) -> Option<(usize, usize)> {
        let mut theirs = queue;
        let meeting = loop {
            let parent = self.branches.get(theirs)?.parent?;
            if self.branches.get(parent)?.is_own {
                break parent;
            }
            theirs = parent;
        };
        let ours = self.branches.get(meeting)?.children.iter().copied();
        let ours = ours
            .into_iter()
            .find(|child| self.branches.get(*child).is_some_and(|b| b.is_own))?;
        Some((ours, theirs))
    }

    /// Whether the preemptor's queue, with the preemptor, stays within its nominal quota of all contested pairs.
    fn within_nominal(&self, search: &Search<'_>) -> bool {
        search.rules.fair_within_nominal == Switch::On && !search.borrows(search.node, self.demand.contested)
    }

    fn refresh(&mut self, search: &Search<'_>, from: usize) {
        let mut at = Some(from);
        while let Some(branch) = at.and_then(|index| self.branches.get_mut(index)) {
            branch.share = search.quotas().share(branch.node);
            at = branch.parent;
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(branch) = self.branches.get_mut(index) {
            branch.closed = true;
        }
    }

    fn supply(&mut self, index: usize) -> Option<&mut Supply<'a>> {
        self.branches.get_mut(index)?.supply.as_mut()
    }

    /// Whether it could suffice to preempt all candidates: a bound that costs one look per queue.
    fn enough(&self, search: &mut Search<'_>) -> bool {
        let queues = || self.branches.iter().filter(|b| b.supply.is_some());
        self.without_preemptor(search, |search| {
            let contested = self.demand.usage.iter();
            contested
                .filter(|(pair, _)| self.demand.contested.contains(pair))
                .all(|(pair, value)| {
                    let held: Exact = queues().map(|b| search.quotas().usage(b.node, *pair)).sum();
                    *value <= search.ground.free(search.node, *pair) + held
                })
        })
    }

    fn goal(&self, search: &mut Search<'_>) -> bool {
        self.without_preemptor(search, |search| search.fits(self.demand.usage))
    }

    fn without_preemptor(&self, search: &mut Search<'_>, ask: impl FnOnce(&Search<'_>) -> bool) -> bool {
        let asked = Footprint::of(search.node, self.demand.usage);
        search.ground.give(asked);
        let answer = ask(search);
        search.ground.take(asked);
        answer
    }

    /// Puts back victims that the preemptor does not need, last chosen first; the last victim is always needed.
    fn fill_back(&mut self, search: &mut Search<'_>) {
        for index in (0..self.chosen.len().saturating_sub(1)).rev() {
            let Some(victim) = self.chosen.get(index).copied() else {
                continue;
            };
            search.add(victim.holder);
            if self.goal(search) {
                self.chosen.remove(index);
            } else {
                search.remove(victim.holder);
            }
        }
    }

    /// Tests every victim of another queue against the final shares, and sets the reason of each. Returns the victims that no rule
    /// justifies.
    fn judge(&mut self, search: &mut Search<'_>) -> Vec<Uid> {
        let within_nominal = self.within_nominal(search);
        let mut unjust = Vec::new();
        for victim in self.chosen.clone() {
            if victim.branch == self.own {
                continue;
            }
            let reason = self.justification(search, victim, within_nominal);
            match reason {
                None => unjust.push(victim.holder.uid.clone()),
                Some(reason) => {
                    let entry = self
                        .chosen
                        .iter_mut()
                        .find(|v| Arc::ptr_eq(v.holder, victim.holder));
                    if let Some(entry) = entry {
                        entry.reason = reason;
                    }
                }
            }
        }
        unjust
    }

    fn justification(
        &self,
        search: &mut Search<'_>,
        victim: Victim<'_>,
        within_nominal: bool,
    ) -> Option<PreemptReason> {
        let (ours, theirs) = self.rivals(victim.branch)?;
        let ours = search.quotas().share(self.branches.get(ours)?.node);
        let side = self.branches.get(theirs)?.node;
        let without = search.quotas().share(side);
        search.add(victim.holder);
        let with = search.quotas().share(side);
        let borrows = search.borrows(victim.holder.node, self.demand.contested);
        search.remove(victim.holder);
        if within_nominal && borrows {
            return Some(PreemptReason::InCohortReclamation);
        }
        let by_strategy = self.demand.strategies.iter().any(|strategy| match strategy {
            FairStrategy::LessThanOrEqualToFinalShare => ours.compare(&without) != Ordering::Greater,
            FairStrategy::LessThanInitialShare => true,
        });
        let spared = search.holders.is_spared(search.uid, victim.holder);
        let justified = by_strategy && !spared && ours.compare(&with) == Ordering::Less;
        justified.then_some(PreemptReason::InCohortFairSharing)
    }
}

impl Victim<'_> {
    fn target(&self) -> Target {
        Target {
            holder: Arc::clone(self.holder),
            reason: self.reason,
        }
    }
}

#[cfg(test)]
mod tests;
