//! The order in which the heads of one cycle are processed.
//!
//! With fair sharing, heads play a [`Tournament`] from the leaves to the root of their tree; without, they are sorted by
//! [`classical_order`]. Invariant: the order depends on the heads and the ground only. Where the rules leave it open, the order in which
//! the heads are given decides. *Source*: `spec/admission-engine.md 2.8.2, 2.10`.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::ground::{Footprint, Ground};
use crate::hierarchy::{Exact, FlavorResource, NodeId, Share};
use crate::rules::{Rules, Switch};

/// A nominated head, reduced to what its turn depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The node of its ClusterQueue.
    pub node: NodeId,
    /// The quota it would hold; sorted.
    pub usage: Vec<(FlavorResource, Exact)>,
    /// Borrowing level of its nomination.
    pub level: u32,
    /// Effective priority.
    pub priority: i64,
    /// Its place in queue order.
    pub queue_time: Timestamp,
    /// Whether workloads were preempted for it in an earlier cycle.
    pub preemptor: bool,
    /// Whether it already holds its quota and only lacks a placement (2.14).
    pub second_pass: bool,
}

impl Contender {
    fn preemptor_rank(&self, rules: &Rules) -> Reverse<bool> {
        Reverse(self.preemptor && rules.prioritize_preemptor == Switch::On)
    }
}

/// The order without fair sharing: the lesser head is processed first. Equal heads stay as the caller ordered them. *Source*:
/// `spec/admission-engine.md 2.10`.
pub fn classical_order(rules: &Rules, a: &Contender, b: &Contender) -> Ordering {
    let rank = |c: &Contender| {
        let priority = match rules.priority_in_cohort {
            Switch::On => c.priority,
            Switch::Off => 0,
        };
        (
            Reverse(c.second_pass),
            c.preemptor_rank(rules),
            c.level,
            Reverse(priority),
            c.queue_time,
        )
    };
    rank(a).cmp(&rank(b))
}

/// The heads of one cycle under fair sharing.
///
/// A winner costs a pass over the heads that are left in its tree; shares are computed again only where the previous winner changed them.
/// *Source*: `spec/admission-engine.md 2.8.2`.
#[derive(Debug)]
pub struct Tournament {
    /// Trees in the order of their first heads; trees share no quota, so their order changes no outcome.
    trees: Vec<(NodeId, Vec<usize>)>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    contender: Contender,
    /// The ClusterQueue and every cohort above it below the root, each with its share including the head's usage.
    /// `None`: to be computed.
    shares: Vec<(NodeId, Option<Standing>)>,
}

/// The position of a node of the path with the head's usage added.
#[derive(Clone, Debug)]
struct Standing {
    /// Whether it borrows a resource that the head asks for.
    borrows: bool,
    share: Share,
}

impl Tournament {
    /// Takes the heads of a cycle. The trees of queues must not change until the tournament is over.
    pub fn new(ground: &Ground, contenders: Vec<Contender>) -> Self {
        let mut trees: Vec<(NodeId, Vec<usize>)> = Vec::new();
        let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut entries = Vec::with_capacity(contenders.len());
        for (index, contender) in contenders.into_iter().enumerate() {
            let mut path: Vec<NodeId> = ground.quotas().path(contender.node).collect();
            let root = path.pop().unwrap_or(contender.node);
            let place = *places.entry(root).or_insert(trees.len());
            match trees.get_mut(place) {
                Some((_, members)) => members.push(index),
                None => trees.push((root, vec![index])),
            }
            let shares = path.into_iter().map(|node| (node, None)).collect();
            entries.push(Entry { contender, shares });
        }
        for (_, members) in &mut trees {
            members.sort_by(|a, b| {
                let path = |index: &usize| entries.get(*index).map(Entry::path);
                path(a).cmp(&path(b))
            });
        }
        // Why: the tree whose turn it is stands at the end.
        trees.reverse();
        Self { trees, entries }
    }

    /// Takes out the head that is processed next: its index among those given, or `None` when none is left.
    ///
    /// Between two calls the caller may add or remove usage of the last winner's ClusterQueue; other changes of usage must be reported with
    /// [`Tournament::changed`].
    pub fn next(&mut self, ground: &mut Ground, rules: &Rules) -> Option<usize> {
        let (root, mut members) = self.trees.pop()?;
        let winner = self.play(ground, rules, &members)?;
        members.retain(|index| *index != winner);
        if !members.is_empty() {
            self.trees.push((root, members));
        }
        if let Some(node) = self.entries.get(winner).map(|entry| entry.contender.node) {
            self.changed(ground, node);
        }
        Some(winner)
    }

    /// Usage of a ClusterQueue changed: the shares computed for it and its ancestors are not valid any more.
    pub fn changed(&mut self, ground: &Ground, node: NodeId) {
        let path: Vec<NodeId> = ground.quotas().path(node).collect();
        let root = path.last().copied();
        let Some((_, members)) = self.trees.iter().find(|(at, _)| Some(*at) == root) else {
            return;
        };
        for index in members {
            let Some(entry) = self.entries.get_mut(*index) else {
                continue;
            };
            for (at, standing) in entry.shares.iter_mut().rev() {
                if !path.contains(at) {
                    break;
                }
                *standing = None;
            }
        }
    }

    fn play(&mut self, ground: &mut Ground, rules: &Rules, members: &[usize]) -> Option<usize> {
        for index in members {
            if let Some(entry) = self.entries.get_mut(*index) {
                entry.refresh(ground);
            }
        }
        self.champion(rules, members, 0)
    }

    /// The best of heads that share their path down to `depth` edges below the root. They come in the order of paths, so that heads below
    /// one node are neighbours.
    fn champion(&self, rules: &Rules, members: &[usize], depth: usize) -> Option<usize> {
        let mut best: Option<usize> = None;
        let mut rest = members;
        while let Some(first) = rest.first().and_then(|index| self.entries.get(*index)) {
            let node = first.node_below_root(depth);
            let same = |index: &usize| {
                self.entries
                    .get(*index)
                    .is_some_and(|entry| entry.node_below_root(depth) == node)
            };
            let (group, others) = rest.split_at(rest.iter().take_while(|index| same(index)).count());
            rest = others;
            let found = if first.shares.len() > depth + 1 {
                self.champion(rules, group, depth + 1)
            } else {
                self.best_of(group, |a, b| a.within_queue(b, rules))
            };
            best = match (best, found) {
                (Some(a), Some(b)) => self.best_of(&[a, b], |a, b| a.between_children(b, depth, rules)),
                (one, other) => one.or(other),
            };
        }
        best
    }

    fn best_of(&self, members: &[usize], order: impl Fn(&Entry, &Entry) -> Ordering) -> Option<usize> {
        let with_entry = members
            .iter()
            .filter_map(|index| Some((*index, self.entries.get(*index)?)));
        with_entry
            .min_by(|(i, a), (j, b)| order(a, b).then(i.cmp(j)))
            .map(|(index, _)| index)
    }
}

impl Entry {
    /// The nodes from below the root down to the ClusterQueue.
    fn path(&self) -> Vec<NodeId> {
        self.shares.iter().rev().map(|(node, _)| *node).collect()
    }

    fn below_root(&self, depth: usize) -> Option<&(NodeId, Option<Standing>)> {
        let at = self.shares.len().checked_sub(depth + 1)?;
        self.shares.get(at)
    }

    fn node_below_root(&self, depth: usize) -> Option<NodeId> {
        self.below_root(depth).map(|(node, _)| *node)
    }

    /// Between heads of one queue (an ordinary one and one of the second pass).
    fn within_queue(&self, other: &Self, rules: &Rules) -> Ordering {
        classical_order(rules, &self.contender, &other.contender)
    }

    /// Between the best heads of two nodes with the same parent, which is `depth` edges below the root.
    fn between_children(&self, other: &Self, depth: usize, rules: &Rules) -> Ordering {
        let standing = |entry: &Self| entry.below_root(depth).and_then(|(_, standing)| standing.clone());
        let by_share = match (standing(self), standing(other)) {
            (Some(a), Some(b)) => {
                let by_borrowing = match rules.fair_prioritize_non_borrowing {
                    Switch::On => a.borrows.cmp(&b.borrows),
                    Switch::Off => Ordering::Equal,
                };
                by_borrowing.then_with(|| a.share.compare(&b.share))
            }
            (_, None) | (None, _) => Ordering::Equal,
        };
        let (a, b) = (&self.contender, &other.contender);
        a.preemptor_rank(rules)
            .cmp(&b.preemptor_rank(rules))
            .then(by_share)
            .then(b.priority.cmp(&a.priority))
            .then(a.queue_time.cmp(&b.queue_time))
    }

    /// Computes the standings that are missing.
    fn refresh(&mut self, ground: &mut Ground) {
        if self.shares.iter().all(|(_, standing)| standing.is_some()) {
            return;
        }
        let footprint = Footprint::of(self.contender.node, &self.contender.usage);
        ground.take(footprint);
        let quotas = ground.quotas();
        for (at, standing) in self.shares.iter_mut().filter(|(_, s)| s.is_none()) {
            let borrows = self
                .contender
                .usage
                .iter()
                .any(|(pair, value)| *value > 0 && quotas.borrows(*at, *pair));
            *standing = Some(Standing {
                borrows,
                share: quotas.share(*at),
            });
        }
        ground.give(footprint);
    }
}

#[cfg(test)]
mod tests;
