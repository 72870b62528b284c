//! Preemption without fair sharing.
//!
//! *Source*: `spec/admission-engine.md 2.7`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::sync::Arc;

use super::{Candidates, Choice, Found, PreemptReason, Search, Target, Test};
use crate::hierarchy::{Exact, FlavorResource, NodeId, NodeName};
use crate::holders::Holder;
use crate::queue::BorrowWithinCohort;

/// The relation of a queue to the preemptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// The queue lies outside of a subtree around the preemptor in whose quota the request fits.
    Hierarchical,
    Other,
    Own,
}

#[derive(Clone, Debug)]
struct Source<'a> {
    node: NodeId,
    relation: Relation,
    /// The lowest common ancestor with the preemptor's queue.
    meeting: NodeId,
    candidates: Peekable<Choice<'a>>,
}

/// Whether the preemptor may borrow after the preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Borrowing {
    Allowed,
    Forbidden,
}

/// Finds the victims of a request; see [`Search::targets`].
pub(super) fn targets(
    search: &mut Search<'_>,
    usage: &[(FlavorResource, Exact)],
    contested: &[FlavorResource],
) -> Found {
    let sources = sources(search, usage, contested);
    if sources.is_empty() {
        return Found::default();
    }
    let mut found = Found {
        targets: Vec::new(),
        candidates: Candidates::Some,
    };
    if !enough(search, usage, contested, &sources) {
        return found;
    }
    let any = |relation| sources.iter().any(|source| source.relation == relation);
    let never = search.policy.borrow_within_cohort == BorrowWithinCohort::Never;
    let below_nominal = contested
        .iter()
        .all(|pair| search.quotas().within_quota(search.node, *pair, 1));
    let others = any(Relation::Hierarchical) || any(Relation::Other);
    let attempts: &[Borrowing] = if !others || (never && !below_nominal) {
        &[Borrowing::Allowed]
    } else if never && !any(Relation::Hierarchical) {
        &[Borrowing::Forbidden, Borrowing::Allowed]
    } else {
        &[Borrowing::Allowed, Borrowing::Forbidden]
    };
    for borrowing in attempts {
        let pass = Pass {
            usage,
            contested,
            borrowing: *borrowing,
            chosen: Vec::new(),
        };
        if let Some(targets) = pass.run(search, &sources) {
            found.targets = targets;
            break;
        }
    }
    found
}

/// The queues with candidates, from the preemptor's own upwards.
fn sources<'a>(
    search: &Search<'a>,
    usage: &[(FlavorResource, Exact)],
    contested: &'a [FlavorResource],
) -> Vec<Source<'a>> {
    let mut sources = Vec::new();
    let holders = search.holders;
    if let Some(test) = search.own_test(contested, search.gone)
        && let Some(candidates) = Choice::of(holders, search.node, test)
    {
        sources.push(Source {
            node: search.node,
            relation: Relation::Own,
            meeting: search.node,
            candidates,
        });
    }
    let Some(test) = search.others_test(contested, search.gone) else {
        return sources;
    };
    let mut below = search.node;
    let mut request = usage.to_vec();
    let mut relation = Relation::Other;
    for at in search.quotas().path(search.node).skip(1) {
        // Why the subtree below first: a request that fits in its quota has a right to what queues outside have borrowed from it.
        let quotas = search.quotas();
        if request
            .iter()
            .all(|(pair, value)| quotas.within_quota(below, *pair, *value))
        {
            relation = Relation::Hierarchical;
        }
        for (pair, value) in &mut request {
            *value = quotas.beyond_local(below, *pair, *value);
        }
        let place = Place {
            meeting: at,
            relation,
        };
        collect(search, test, at, below, place, &mut sources);
        below = at;
    }
    sources
}

#[derive(Clone, Copy)]
struct Place {
    meeting: NodeId,
    relation: Relation,
}

/// The queues below `at` that borrow and have candidates, except those below `done`.
fn collect<'a>(
    search: &Search<'a>,
    test: Test<'a>,
    at: NodeId,
    done: NodeId,
    place: Place,
    sources: &mut Vec<Source<'a>>,
) {
    for child in search.quotas().children(at) {
        if child == done || !search.borrows(child, test.contested) {
            continue;
        }
        match search.quotas().name(child) {
            Some(NodeName::Queue(_)) => {
                if let Some(candidates) = Choice::of(search.holders, child, test) {
                    sources.push(Source {
                        node: child,
                        relation: place.relation,
                        meeting: place.meeting,
                        candidates,
                    });
                }
            }
            Some(NodeName::Cohort(_)) => collect(search, test, child, done, place, sources),
            None => {}
        }
    }
}

/// Whether it could suffice to preempt all candidates: a bound that costs one look per queue.
fn enough(
    search: &Search<'_>,
    usage: &[(FlavorResource, Exact)],
    contested: &[FlavorResource],
    sources: &[Source<'_>],
) -> bool {
    usage
        .iter()
        .filter(|(pair, _)| contested.contains(pair))
        .all(|(pair, value)| {
            let held: Exact = sources
                .iter()
                .map(|source| search.quotas().usage(source.node, *pair))
                .sum();
            *value <= search.ground.free(search.node, *pair) + held
        })
}

/// One greedy walk over the candidates.
struct Pass<'a> {
    usage: &'a [(FlavorResource, Exact)],
    contested: &'a [FlavorResource],
    borrowing: Borrowing,
    chosen: Vec<Target>,
}

/// The next candidate of a source, ordered so that a max-heap yields the first victim.
struct Next<'a> {
    holder: &'a Arc<Holder>,
    source: usize,
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.holder.compare(self.holder)
    }
}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next<'_> {}

impl Pass<'_> {
    /// The victims, if the walk reached the goal.
    fn run(mut self, search: &mut Search<'_>, sources: &[Source<'_>]) -> Option<Vec<Target>> {
        let reached = self.walk(search, sources);
        if reached {
            self.fill_back(search);
        }
        for target in &self.chosen {
            search.add(&target.holder);
        }
        reached.then_some(self.chosen)
    }

    /// Takes candidates until the preemptor fits. *Source*: `spec/admission-engine.md 2.7.2, 2.7.3`.
    fn walk(&mut self, search: &mut Search<'_>, sources: &[Source<'_>]) -> bool {
        let mut lines: Vec<Peekable<Choice<'_>>> = sources.iter().map(|s| s.candidates.clone()).collect();
        for evicted in [true, false] {
            for relation in [Relation::Hierarchical, Relation::Other, Relation::Own] {
                let mut heap = BinaryHeap::new();
                for (index, source) in sources.iter().enumerate() {
                    if source.relation == relation {
                        push_next(&mut heap, &mut lines, index, evicted);
                    }
                }
                while let Some(Next {
                    holder,
                    source: index,
                }) = heap.pop()
                {
                    let Some(source) = sources.get(index) else {
                        continue;
                    };
                    // Why no further candidate of this queue: during a walk usage only falls, so the queue never borrows again.
                    if relation != Relation::Own && !self.still_borrows(search, source) {
                        continue;
                    }
                    if let Some(reason) = self.reason(search, source, holder) {
                        search.remove(holder);
                        self.chosen.push(Target {
                            holder: Arc::clone(holder),
                            reason,
                        });
                        if self.goal(search) {
                            return true;
                        }
                    }
                    push_next(&mut heap, &mut lines, index, evicted);
                }
            }
        }
        false
    }

    /// Puts back victims that the goal does not need, last chosen first; the last victim is always needed.
    fn fill_back(&mut self, search: &mut Search<'_>) {
        for index in (0..self.chosen.len().saturating_sub(1)).rev() {
            let Some(target) = self.chosen.get(index) else {
                continue;
            };
            let holder = Arc::clone(&target.holder);
            search.add(&holder);
            if self.goal(search) {
                self.chosen.remove(index);
            } else {
                search.remove(&holder);
            }
        }
    }

    fn goal(&self, search: &Search<'_>) -> bool {
        search.fits(self.usage)
            && match self.borrowing {
                Borrowing::Allowed => true,
                Borrowing::Forbidden => self
                    .usage
                    .iter()
                    .all(|(pair, value)| search.quotas().within_quota(search.node, *pair, *value)),
            }
    }

    /// Whether the queue, and every cohort between it and the common ancestor, is above its quota.
    fn still_borrows(&self, search: &Search<'_>, source: &Source<'_>) -> bool {
        search
            .quotas()
            .path(source.node)
            .take_while(|at| *at != source.meeting)
            .all(|at| search.borrows(at, self.contested))
    }

    /// The reason for which a candidate is preempted; `None` when it may not be preempted in this pass.
    fn reason(&self, search: &Search<'_>, source: &Source<'_>, holder: &Holder) -> Option<PreemptReason> {
        match source.relation {
            Relation::Own => Some(PreemptReason::InClusterQueue),
            Relation::Hierarchical => Some(PreemptReason::InCohortReclamation),
            Relation::Other => {
                let below_threshold = match search.policy.borrow_within_cohort {
                    BorrowWithinCohort::Never => false,
                    BorrowWithinCohort::LowerPriority { max_priority } => {
                        holder.priority < search.priority
                            && max_priority.is_none_or(|most| holder.priority <= i64::from(most))
                    }
                };
                if below_threshold {
                    return Some(PreemptReason::InCohortReclaimWhileBorrowing);
                }
                match self.borrowing {
                    Borrowing::Allowed => None,
                    Borrowing::Forbidden => Some(PreemptReason::InCohortReclamation),
                }
            }
        }
    }
}

fn push_next<'a>(
    heap: &mut BinaryHeap<Next<'a>>,
    lines: &mut [Peekable<Choice<'a>>],
    source: usize,
    evicted: bool,
) {
    if let Some(holder) = lines
        .get_mut(source)
        .and_then(|line| line.next_if(|holder| holder.evicted == evicted))
    {
        heap.push(Next { holder, source });
    }
}

#[cfg(test)]
mod tests;
