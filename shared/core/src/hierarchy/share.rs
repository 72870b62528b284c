//! Dominant resource share: the part of a cohort's lendable quota that a node has borrowed, divided by its weight.
//!
//! *Source*: `spec/admission-engine.md 2.8.1`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::{Exact, FlavorResource, Forest, NodeId, Weight};
use crate::name::ResourceName;

/// The dominant resource share of a node. Ordered: a smaller share goes first.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Largest ratio over the resources of borrowed to lendable, in thousandths, not yet divided by the weight.
    ratio: f64,
    weight: Weight,
    /// The resource with that ratio; `None` when nothing is borrowed.
    pub dominant: Option<ResourceName>,
}

impl Share {
    /// The share of a node that borrows nothing.
    pub(crate) const fn of_nothing(weight: Weight) -> Self {
        Self {
            ratio: 0.0,
            weight,
            dominant: None,
        }
    }

    /// Whether anything is borrowed.
    pub fn is_borrowing(&self) -> bool {
        self.ratio > 0.0
    }

    /// What statuses show: the share rounded up, `i64::MAX` for a node of weight zero that borrows.
    pub fn reported(&self) -> i64 {
        let value = self.value();
        #[expect(
            clippy::cast_precision_loss,
            reason = "only to see whether the value is too large"
        )]
        let most = i64::MAX as f64;
        if value >= most {
            return i64::MAX;
        }
        #[expect(clippy::cast_possible_truncation, reason = "it was compared with the largest")]
        let whole = value.ceil() as i64;
        whole
    }

    /// The share: ratio divided by weight, in thousandths; infinite for weight zero with a ratio above zero.
    pub fn value(&self) -> f64 {
        if self.ratio <= 0.0 {
            0.0
        } else if self.weight == Weight::ZERO {
            f64::INFINITY
        } else {
            #[expect(
                clippy::cast_precision_loss,
                reason = "weights of more than 53 bits need not be told apart"
            )]
            let weight = self.weight.nano() as f64 / 1e9;
            self.ratio / weight
        }
    }

    /// Compares two shares: between two borrowers of weight zero the ratio decides.
    pub fn compare(&self, other: &Self) -> Ordering {
        let hopeless = |share: &Self| share.weight == Weight::ZERO && share.is_borrowing();
        match (hopeless(self), hopeless(other)) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.value().total_cmp(&other.value()),
        }
    }
}

impl Forest {
    /// The share of a node with its present usage. To see it with a workload's usage, add that first.
    pub fn share(&self, id: NodeId) -> Share {
        let mut share = Share::of_nothing(self.weight(id));
        let Some((node, parent)) = self.node(id).and_then(|node| Some((node, node.parent?))) else {
            return share;
        };
        let mut borrowed: BTreeMap<&ResourceName, Exact> = BTreeMap::new();
        for (pair, cell) in &node.cells {
            let over = cell.usage - cell.subtree();
            if over > 0
                && let Some((_, resource)) = self.pair_names(*pair)
            {
                *borrowed.entry(resource).or_default() += over;
            }
        }
        for (resource, borrowed) in borrowed {
            let lendable = self.lendable(parent, resource);
            if lendable <= 0 {
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "a share is a ratio, not an account")]
            let ratio = borrowed as f64 * 1000.0 / lendable as f64;
            if ratio > share.ratio {
                share.ratio = ratio;
                share.dominant = Some(resource.clone());
            }
        }
        share
    }

    /// The potential of all flavors of one resource below a cohort.
    fn lendable(&self, cohort: NodeId, resource: &ResourceName) -> Exact {
        // Why the whole path: a cohort without own quota in a flavor may still draw on that of its ancestors.
        let pairs: BTreeSet<FlavorResource> = self
            .path(cohort)
            .flat_map(|at| self.pairs_of(at))
            .filter(|pair| self.pair_names(*pair).is_some_and(|(_, name)| name == resource))
            .collect();
        pairs
            .into_iter()
            .map(|pair| self.potential_exact(cohort, pair))
            .sum()
    }
}
