//! Quota arithmetic of one queue: what reserved workloads hold, exactly.
//!
//! Invariant: sums are kept in 128 bits, so that adding and later removing a charge always leaves what was there before;
//! they saturate only when they are read as an [`Amount`].

use std::collections::BTreeMap;

use crate::afs::ByResource;
use crate::amount::Amount;
use crate::name::{FlavorName, ResourceName};
use crate::queue::FlavorQuota;
use crate::status::Admission;
use crate::workload::Workload;

/// What one workload holds, by flavor and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge(BTreeMap<FlavorName, BTreeMap<ResourceName, i128>>);

impl Charge {
    /// The charge of a reservation: pods that are reclaimable no longer count.
    /// *Source*: `spec/admission-engine.md 4.6`.
    pub fn of(admission: &Admission, workload: &Workload) -> Self {
        let mut charge = Self::default();
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
            // Why: the assignment may already leave out pods that were reclaimable when it was made.
            let remaining = assignment.count.min(asked.saturating_sub(gone));
            for (resource, amount) in &assignment.usage {
                let Some(flavor) = assignment.flavors.get(resource) else {
                    continue;
                };
                *charge
                    .0
                    .entry(flavor.clone())
                    .or_default()
                    .entry(resource.clone())
                    .or_default() += scale(i128::from(amount.get()), remaining, assignment.count);
            }
        }
        charge
    }

    /// Whether this charge holds less of anything than `earlier` did, that is whether capacity came free.
    pub fn frees(&self, earlier: &Self) -> bool {
        earlier.entries().any(|(flavor, resource, before)| {
            self.0
                .get(flavor)
                .and_then(|r| r.get(resource))
                .copied()
                .unwrap_or(0)
                < before
        })
    }

    /// The amounts by resource, over all flavors.
    pub fn by_resource(&self) -> ByResource {
        by_resource(&self.0)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&FlavorName, &ResourceName, i128)> {
        self.0
            .iter()
            .flat_map(|(flavor, resources)| resources.iter().map(move |(name, value)| (flavor, name, *value)))
    }
}

/// `amount` for `remaining` of `count` pods, rounded up so that quota is never given away twice.
fn scale(amount: i128, remaining: u32, count: u32) -> i128 {
    if remaining >= count {
        return amount;
    }
    let (remaining, count) = (i128::from(remaining), i128::from(count));
    // Limit: an amount has 63 bits and a count 32, so the product fits.
    (amount * remaining + count - 1).div_euclid(count)
}

/// Sums of charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(BTreeMap<FlavorName, BTreeMap<ResourceName, i128>>);

impl Usage {
    /// What is held of one resource in one flavor.
    pub fn total(&self, flavor: &FlavorName, resource: &ResourceName) -> Amount {
        let exact = self
            .0
            .get(flavor)
            .and_then(|r| r.get(resource))
            .copied()
            .unwrap_or(0);
        Amount::new(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
    }

    /// The sums by resource, over all flavors.
    pub fn by_resource(&self) -> ByResource {
        by_resource(&self.0)
    }

    fn add(&mut self, charge: &Charge) {
        for (flavor, resource, value) in charge.entries() {
            self.change(flavor, resource, value);
        }
    }

    fn remove(&mut self, charge: &Charge) {
        for (flavor, resource, value) in charge.entries() {
            self.change(flavor, resource, -value);
        }
    }

    fn change(&mut self, flavor: &FlavorName, resource: &ResourceName, by: i128) {
        let resources = self.0.entry(flavor.clone()).or_default();
        let sum = resources.entry(resource.clone()).or_default();
        *sum += by;
        if *sum == 0 {
            resources.remove(resource);
        }
        if resources.is_empty() {
            self.0.remove(flavor);
        }
    }
}

fn by_resource(amounts: &BTreeMap<FlavorName, BTreeMap<ResourceName, i128>>) -> ByResource {
    let mut sums: BTreeMap<&ResourceName, i128> = BTreeMap::new();
    for (resource, value) in amounts.values().flatten() {
        *sums.entry(resource).or_default() += value;
    }
    let amount = |sum: i128| Amount::new(i64::try_from(sum).unwrap_or(i64::MAX));
    sums.into_iter()
        .map(|(resource, sum)| (resource.clone(), amount(sum)))
        .collect()
}

/// How far a holder of quota is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Quota is reserved.
    Reserved,
    /// Quota is reserved and the workload is admitted.
    Admitted,
}

/// The books of one ClusterQueue or LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    reserved: Usage,
    admitted: Usage,
    reserving_count: u32,
    admitted_count: u32,
}

impl Ledger {
    /// Books a holder.
    pub fn add(&mut self, charge: &Charge, stage: Stage) {
        self.reserved.add(charge);
        self.reserving_count = self.reserving_count.saturating_add(1);
        match stage {
            Stage::Reserved => {}
            Stage::Admitted => {
                self.admitted.add(charge);
                self.admitted_count = self.admitted_count.saturating_add(1);
            }
        }
    }

    /// Takes a holder out; it must have been booked with the same charge and stage.
    pub fn remove(&mut self, charge: &Charge, stage: Stage) {
        self.reserved.remove(charge);
        self.reserving_count = self.reserving_count.saturating_sub(1);
        match stage {
            Stage::Reserved => {}
            Stage::Admitted => {
                self.admitted.remove(charge);
                self.admitted_count = self.admitted_count.saturating_sub(1);
            }
        }
    }

    /// What reserved workloads hold (admitted ones included).
    pub const fn reserved(&self) -> &Usage {
        &self.reserved
    }

    /// What admitted workloads hold.
    pub const fn admitted(&self) -> &Usage {
        &self.admitted
    }

    /// How many workloads reserve quota (admitted ones included).
    pub const fn reserving_count(&self) -> u32 {
        self.reserving_count
    }

    /// How many of them are admitted.
    pub const fn admitted_count(&self) -> u32 {
        self.admitted_count
    }

    /// Whether nobody is booked.
    pub const fn is_empty(&self) -> bool {
        self.reserving_count == 0
    }

    /// What is left of a flavor's nominal quota; never negative, even when the quota is overcommitted.
    /// *Source*: `spec/admission-engine.md 2.4` (a queue without cohort is a root leaf).
    pub fn available(&self, quota: &FlavorQuota, resource: &ResourceName) -> Amount {
        nominal(quota, resource)
            .minus(self.reserved.total(&quota.name, resource))
            .max(Amount::ZERO)
    }
}

/// The nominal quota of one resource in one flavor; nothing when the flavor does not list it.
pub fn nominal(quota: &FlavorQuota, resource: &ResourceName) -> Amount {
    quota
        .quotas
        .get(resource)
        .map_or(Amount::ZERO, |quota| quota.nominal)
}

#[cfg(test)]
mod tests;
