//! Quota, borrowing and fair shares, written as the definitions say: every number is computed anew from the leaves.
//!
//! *Source*: `spec/admission-engine.md 2.4, 2.8.1`.

use std::collections::BTreeMap;

/// A flavor and a resource, as numbers.
pub type Pair = (usize, usize);

/// One cohort or ClusterQueue.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Index of the cohort above.
    pub parent: Option<usize>,
    /// Whether this is a ClusterQueue.
    pub is_queue: bool,
    /// Its quotas.
    pub quotas: BTreeMap<Pair, Quota>,
    /// What its workloads use (ClusterQueues only).
    pub used: BTreeMap<Pair, i128>,
    /// Weight in fair sharing.
    pub weight: f64,
}

/// The quota of one node in one flavor and resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// Nominal quota.
    pub nominal: i128,
    /// Borrowing limit.
    pub borrow: Option<i128>,
    /// Lending limit.
    pub lend: Option<i128>,
}

/// A forest: nodes refer to each other by index. There must be no circles.
#[derive(Clone, Debug, Default)]
pub struct Model(pub Vec<Node>);

impl Model {
    fn quota(&self, at: usize, pair: Pair) -> Quota {
        self.0[at].quotas.get(&pair).copied().unwrap_or_default()
    }

    fn children(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(move |child| self.0[*child].parent == Some(at))
    }

    /// Nominal quota and what children lend.
    pub fn subtree(&self, at: usize, pair: Pair) -> i128 {
        let lent = |child| self.subtree(child, pair) - self.local(child, pair);
        self.quota(at, pair).nominal + self.children(at).map(lent).sum::<i128>()
    }

    fn local(&self, at: usize, pair: Pair) -> i128 {
        match self.quota(at, pair).lend {
            None => 0,
            Some(lend) => (self.subtree(at, pair) - lend).max(0),
        }
    }

    /// Usage as the node sees it.
    pub fn usage(&self, at: usize, pair: Pair) -> i128 {
        let shown = |child| (self.usage(child, pair) - self.local(child, pair)).max(0);
        let own = self.0[at].used.get(&pair).copied().unwrap_or(0);
        own + self.children(at).map(shown).sum::<i128>()
    }

    /// What could be added, negative when overcommitted.
    pub fn available(&self, at: usize, pair: Pair) -> i128 {
        let Some(parent) = self.0[at].parent else {
            return self.subtree(at, pair) - self.usage(at, pair);
        };
        let (local, usage) = (self.local(at, pair), self.usage(at, pair));
        let mut above = self.available(parent, pair);
        if let Some(borrow) = self.quota(at, pair).borrow {
            above = above.min((self.subtree(at, pair) - local) - (usage - local).max(0) + borrow);
        }
        (local - usage).max(0) + above
    }

    /// The most it could ever use.
    pub fn potential(&self, at: usize, pair: Pair) -> i128 {
        let Some(parent) = self.0[at].parent else {
            return self.subtree(at, pair);
        };
        let most = self.local(at, pair) + self.potential(parent, pair);
        match self.quota(at, pair).borrow {
            None => most,
            Some(borrow) => most.min(self.subtree(at, pair) + borrow),
        }
    }

    fn height(&self, at: usize) -> Option<u32> {
        if self.0[at].is_queue {
            return Some(0);
        }
        self.children(at)
            .filter_map(|child| self.height(child))
            .max()
            .map(|h| h + 1)
    }

    /// The borrowing level of a request in a queue.
    pub fn level(&self, queue: usize, pair: Pair, request: i128) -> u32 {
        let (mut at, mut request) = (queue, request);
        loop {
            let height = self.height(at).unwrap_or(0);
            if self.usage(at, pair) + request <= self.subtree(at, pair) {
                return height;
            }
            request = (request - (self.local(at, pair) - self.usage(at, pair)).max(0)).max(0);
            match self.0[at].parent {
                Some(parent) => at = parent,
                None => return height,
            }
        }
    }

    /// Dominant resource share in thousandths.
    pub fn share(&self, at: usize, pairs: &[Pair]) -> f64 {
        let Some(parent) = self.0[at].parent else {
            return 0.0;
        };
        let mut resources: Vec<usize> = pairs.iter().map(|(_, resource)| *resource).collect();
        resources.sort_unstable();
        resources.dedup();
        let mut ratio = 0.0_f64;
        for resource in resources {
            let of_resource = || pairs.iter().filter(|pair| pair.1 == resource);
            let over = |pair: &Pair| (self.usage(at, *pair) - self.subtree(at, *pair)).max(0);
            let borrowed: i128 = of_resource().map(over).sum();
            let lendable: i128 = of_resource().map(|pair| self.potential(parent, *pair)).sum();
            if lendable > 0 {
                #[expect(clippy::cast_precision_loss, reason = "test amounts are small")]
                let part = borrowed as f64 * 1000.0 / lendable as f64;
                ratio = ratio.max(part);
            }
        }
        match (ratio > 0.0, self.0[at].weight > 0.0) {
            (false, _) => 0.0,
            (true, false) => f64::INFINITY,
            (true, true) => ratio / self.0[at].weight,
        }
    }
}
