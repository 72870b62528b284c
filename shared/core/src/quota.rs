//! The quota that reserved workloads hold, exactly, and the ledgers of queues.
//!
//! Invariant: sums are kept in 128 bits and saturate only when they are read as an [`Amount`]. So adding and later removing a workload
//! always restores the earlier sums.

use crate::amount::Amount;
use crate::ground::Ground;
use crate::hierarchy::{Exact, FlavorResource, Forest, amount};
use crate::name::{FlavorName, ResourceName};
use crate::status::Admission;
use crate::workload::Workload;

/// Amounts by flavor and resource: sorted, each pair once, no zeros.
pub type Amounts = Vec<(FlavorResource, Exact)>;

/// The amounts that a reservation holds, without pods that are reclaimable. *Source*: `spec/admission-engine.md 4.6`.
pub fn held(ground: &mut Ground, admission: &Admission, workload: &Workload) -> Amounts {
    let mut held = Amounts::new();
    for assignment in &admission.pod_sets {
        let gone = workload
            .status
            .reclaimable
            .get(&assignment.name)
            .copied()
            .unwrap_or(0);
        let asked = workload
            .pod_sets
            .iter()
            .find(|p| p.name == assignment.name)
            .map_or(assignment.count, |p| p.count);
        // Why: the assignment may already exclude pods that were reclaimable when it was made.
        let remaining = assignment.count.min(asked.saturating_sub(gone));
        for (resource, amount) in &assignment.usage {
            if let Some(flavor) = assignment.flavors.get(resource) {
                let value = scale(Exact::from(amount.get()), remaining, assignment.count);
                change(&mut held, ground.pair(flavor, resource), value);
            }
        }
    }
    held
}

/// The amounts that became free: the pairs of which `later` holds less than `earlier`, and the difference.
pub fn freed<'a>(
    earlier: &'a [(FlavorResource, Exact)],
    later: &'a [(FlavorResource, Exact)],
) -> impl Iterator<Item = (FlavorResource, Exact)> + 'a {
    earlier
        .iter()
        .map(|(pair, before)| (*pair, before - value(later, *pair)))
        .filter(|(_, gone)| *gone > 0)
}

/// `amount` for `remaining` of `count` pods, rounded up so that quota is never given to two workloads.
fn scale(amount: Exact, remaining: u32, count: u32) -> Exact {
    if remaining >= count {
        return amount;
    }
    let (remaining, count) = (Exact::from(remaining), Exact::from(count));
    // Limit: an amount has 63 bits and a count 32, so the product fits.
    (amount * remaining + count - 1).div_euclid(count)
}

fn value(amounts: &[(FlavorResource, Exact)], pair: FlavorResource) -> Exact {
    let found = amounts.binary_search_by_key(&pair, |(at, _)| *at);
    found
        .ok()
        .and_then(|at| amounts.get(at))
        .map_or(0, |(_, value)| *value)
}

fn change(amounts: &mut Amounts, pair: FlavorResource, by: Exact) {
    if by == 0 {
        return;
    }
    match amounts.binary_search_by_key(&pair, |(at, _)| *at) {
        Ok(at) => {
            let Some((_, sum)) = amounts.get_mut(at) else {
                return;
            };
            *sum += by;
            if *sum == 0 {
                amounts.remove(at);
            }
        }
        Err(at) => amounts.insert(at, (pair, by)),
    }
}

/// Sums of the amounts that workloads hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(Amounts);

impl Usage {
    /// The amount held of one resource in one flavor.
    pub fn total(&self, quotas: &Forest, flavor: &FlavorName, resource: &ResourceName) -> Amount {
        let pair = quotas.known_pair(flavor, resource);
        amount(pair.map_or(0, |pair| value(&self.0, pair)))
    }

    /// All amounts held, by pair.
    pub fn iter(&self) -> impl Iterator<Item = (FlavorResource, Amount)> {
        self.0.iter().map(|(pair, value)| (*pair, amount(*value)))
    }

    pub(crate) fn exact(&self) -> &[(FlavorResource, Exact)] {
        &self.0
    }

    fn add(&mut self, held: &[(FlavorResource, Exact)]) {
        for (pair, value) in held {
            change(&mut self.0, *pair, *value);
        }
    }

    fn remove(&mut self, held: &[(FlavorResource, Exact)]) {
        for (pair, value) in held {
            change(&mut self.0, *pair, -value);
        }
    }
}

/// The stage of a holder of quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Quota is reserved.
    Reserved,
    /// Quota is reserved and the workload is admitted.
    Admitted,
}

/// The ledger of one ClusterQueue or LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    reserved: Usage,
    admitted: Usage,
    reserving_count: u32,
    admitted_count: u32,
}

impl Ledger {
    /// Adds a holder.
    pub fn add(&mut self, held: &[(FlavorResource, Exact)], stage: Stage) {
        self.reserved.add(held);
        self.reserving_count = self.reserving_count.saturating_add(1);
        match stage {
            Stage::Reserved => {}
            Stage::Admitted => {
                self.admitted.add(held);
                self.admitted_count = self.admitted_count.saturating_add(1);
            }
        }
    }

    /// Removes a holder; it must have been added with the same amounts and stage.
    pub fn remove(&mut self, held: &[(FlavorResource, Exact)], stage: Stage) {
        self.reserved.remove(held);
        self.reserving_count = self.reserving_count.saturating_sub(1);
        match stage {
            Stage::Reserved => {}
            Stage::Admitted => {
                self.admitted.remove(held);
                self.admitted_count = self.admitted_count.saturating_sub(1);
            }
        }
    }

    /// The sums of reserved workloads, admitted ones included.
    pub const fn reserved(&self) -> &Usage {
        &self.reserved
    }

    /// The sums of admitted workloads.
    pub const fn admitted(&self) -> &Usage {
        &self.admitted
    }

    /// The number of workloads that reserve quota, admitted ones included.
    pub const fn reserving_count(&self) -> u32 {
        self.reserving_count
    }

    /// The number of admitted workloads.
    pub const fn admitted_count(&self) -> u32 {
        self.admitted_count
    }

    /// Whether the ledger has no holders.
    pub const fn is_empty(&self) -> bool {
        self.reserving_count == 0
    }
}

#[cfg(test)]
mod tests;
