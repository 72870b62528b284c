//! Past usage of LocalQueues. Admission fair sharing orders workloads by it.
//!
//! Each LocalQueue has an account: what it consumed, where older usage counts less and less, and penalties for reservations that its
//! samples cannot show yet. The caller reports each change of a workload; the same change reported twice counts once.
//!
//! Invariant: amounts are whole numbers of millionths of a unit. So a penalty that is taken back leaves nothing behind, and the same
//! history gives the same order on every machine.
//! *Source*: `spec/admission-engine.md 6`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::amount::Amount;
use crate::name::{Key, ResourceName, Uid};
use crate::queue::Weight;

/// Amounts of resources over all flavors.
pub type ByResource = BTreeMap<ResourceName, Amount>;

/// Millionths of the unit of an [`Amount`].
type Fine = i128;

const FINE_PER_UNIT: Fine = 1_000_000;
/// The whole of a [`Fraction`].
const WHOLE: i128 = 1_000_000_000_000;

/// The administrator's settings. *Source*: `spec/api.md API-13`, `admissionFairSharing`.
#[derive(Clone, Debug, PartialEq)]
pub struct UsagePolicy {
    /// After this time usage counts half; zero forgets usage at once.
    pub half_life: Duration,
    /// The time between two samples, above zero.
    pub sampling_interval: Duration,
    /// How much a natural unit (core, byte, piece) of a resource counts; 1 for resources that are not listed.
    pub resource_weights: BTreeMap<ResourceName, f64>,
}

/// What a LocalQueue consumed, as its status keeps it across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastUsage {
    /// Amounts by resource, without penalties that are not settled.
    pub consumed: ByResource,
    /// When they were computed.
    pub at: Timestamp,
}

/// The place of a LocalQueue in the order: a smaller score goes first, an unbounded score last.
#[derive(Clone, Copy, Debug)]
pub struct Score(f64);

impl Score {
    /// The score of a LocalQueue that used nothing.
    pub const ZERO: Self = Self(0.0);

    /// Weighted usage divided by the weight of the LocalQueue; infinite for weight zero.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

/// The accounts of all LocalQueues and the penalties of their workloads.
#[derive(Clone, Debug)]
pub struct UsageBook {
    policy: UsagePolicy,
    /// What one sampling interval adds of the present usage.
    penalty_share: Fraction,
    accounts: BTreeMap<Key, Account>,
    penalties: BTreeMap<Uid, Penalty>,
    /// Accounts by the time of their next sample.
    due: BTreeSet<(Timestamp, Key)>,
}

#[derive(Clone, Debug)]
struct Account {
    weight: Weight,
    consumed: BTreeMap<ResourceName, Fine>,
    /// The sum of the penalties of this LocalQueue.
    pending: BTreeMap<ResourceName, Fine>,
    sampled_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Penalty {
    local: Key,
    amounts: BTreeMap<ResourceName, Fine>,
}

/// A part of a whole, in [`WHOLE`]ths.
#[derive(Clone, Copy, Debug)]
struct Fraction(i128);

impl Fraction {
    /// What usage during `elapsed` weighs against everything before: `1 - 0.5^(elapsed / half-life)`.
    fn of(elapsed: Duration, half_life: Duration) -> Self {
        if half_life.is_zero() {
            return Self(0);
        }
        let halvings = elapsed.as_secs_f64() / half_life.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "10^12 is exact")]
        let part = (1.0 - (-halvings).exp2()) * WHOLE as f64;
        #[expect(clippy::cast_possible_truncation, reason = "the part is between 0 and 10^12")]
        let part = part.round() as i128;
        Self(part.clamp(0, WHOLE))
    }

    fn times(self, value: Fine) -> Fine {
        // Limit: 63 bits of an amount, 20 of its fineness and 40 of the fraction fit in 127.
        value.saturating_mul(self.0) / WHOLE
    }
}

impl UsageBook {
    /// An empty book.
    pub fn new(policy: UsagePolicy) -> Self {
        Self {
            penalty_share: Fraction::of(policy.sampling_interval, policy.half_life),
            policy,
            accounts: BTreeMap::new(),
            penalties: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// Whether past usage counts at all; with a half-life of zero it is forgotten at once.
    pub const fn remembers(&self) -> bool {
        !self.policy.half_life.is_zero()
    }

    /// A LocalQueue is there, or its weight changed. A new one has used nothing so far.
    pub fn open(&mut self, local: &Key, weight: Weight, now: Timestamp) {
        if let Some(account) = self.accounts.get_mut(local) {
            account.weight = weight;
            return;
        }
        let account = Account {
            weight,
            consumed: BTreeMap::new(),
            pending: sum_of(&self.penalties, local),
            sampled_at: now,
        };
        self.accounts.insert(local.clone(), account);
        self.schedule(local);
    }

    /// A LocalQueue was deleted: its past usage is forgotten.
    pub fn close(&mut self, local: &Key) {
        if let Some(account) = self.accounts.remove(local) {
            self.due
                .remove(&(self.next_of(account.sampled_at), local.clone()));
        }
    }

    /// Takes over the consumption that the status of an open LocalQueue shows. Only the first status counts: later ones were written from
    /// this book. *Source*: `spec/admission-engine.md 9.14 B223`.
    pub fn restore(&mut self, local: &Key, past: &PastUsage) {
        let next = |at| self.next_of(at);
        let Some(account) = self.accounts.get(local) else {
            return;
        };
        if past.at >= account.sampled_at || !account.consumed.is_empty() {
            return;
        }
        let old = (next(account.sampled_at), local.clone());
        self.due.remove(&old);
        if let Some(account) = self.accounts.get_mut(local) {
            account.consumed = past.consumed.iter().map(fine).collect();
            account.sampled_at = past.at;
        }
        self.schedule(local);
    }

    /// When the next LocalQueue is to be sampled.
    pub fn next_sample(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Samples the LocalQueues that are due. `admitted` gives what the admitted workloads of a LocalQueue use now. Returns the LocalQueues
    /// whose score may have changed.
    pub fn sample(&mut self, now: Timestamp, admitted: impl Fn(&Key) -> ByResource) -> Vec<Key> {
        let mut sampled = Vec::new();
        while let Some((at, key)) = self.due.first().cloned()
            && at <= now
        {
            self.due.remove(&(at, key.clone()));
            let half_life = self.policy.half_life;
            if let Some(account) = self.accounts.get_mut(&key) {
                account.sample(now, half_life, &admitted(&key));
            }
            self.schedule(&key);
            sampled.push(key);
        }
        sampled
    }

    /// Quota was reserved for a workload that asks for `requests` in total. Until the penalty is settled or dropped, a part of that counts
    /// as used. If it is reported again, the newer amounts and the newer LocalQueue replace the older ones.
    pub fn reserve(&mut self, uid: &Uid, local: &Key, requests: &ByResource) {
        self.drop(uid);
        let share = self.penalty_share;
        let amounts: BTreeMap<ResourceName, Fine> = requests
            .iter()
            .map(|request| {
                let (resource, value) = fine(request);
                (resource, share.times(value))
            })
            .collect();
        if let Some(account) = self.accounts.get_mut(local) {
            change(&mut account.pending, &amounts, 1);
        }
        let local = local.clone();
        self.penalties.insert(uid.clone(), Penalty { local, amounts });
    }

    /// The workload was admitted: its penalty becomes part of what its LocalQueue consumed. Without a penalty nothing happens, so repeated
    /// reports settle it only once.
    pub fn settle(&mut self, uid: &Uid) {
        let Some(penalty) = self.penalties.remove(uid) else {
            return;
        };
        if let Some(account) = self.accounts.get_mut(&penalty.local) {
            change(&mut account.pending, &penalty.amounts, -1);
            change(&mut account.consumed, &penalty.amounts, 1);
        }
    }

    /// The reservation ended before the workload was admitted: its penalty is taken back.
    pub fn drop(&mut self, uid: &Uid) {
        let Some(penalty) = self.penalties.remove(uid) else {
            return;
        };
        if let Some(account) = self.accounts.get_mut(&penalty.local) {
            change(&mut account.pending, &penalty.amounts, -1);
        }
    }

    /// The past usage to keep in the status of a LocalQueue; `None` when it is not open.
    pub fn past(&self, local: &Key) -> Option<PastUsage> {
        let account = self.accounts.get(local)?;
        let consumed = account.consumed.iter();
        Some(PastUsage {
            consumed: consumed
                .map(|(resource, value)| (resource.clone(), whole(*value)))
                .filter(|(_, amount)| *amount != Amount::ZERO)
                .collect(),
            at: account.sampled_at,
        })
    }

    /// The place of a LocalQueue in the order; a LocalQueue that is not open counts as one that used nothing.
    pub fn score(&self, local: &Key) -> Score {
        let Some(account) = self.accounts.get(local) else {
            return Score::ZERO;
        };
        if account.weight == Weight::ZERO {
            return Score(f64::INFINITY);
        }
        let mut resources: BTreeSet<&ResourceName> = account.consumed.keys().collect();
        resources.extend(account.pending.keys());
        let used = |resource: &ResourceName| {
            let of = |amounts: &BTreeMap<ResourceName, Fine>| amounts.get(resource).copied().unwrap_or(0);
            let weight = self.policy.resource_weights.get(resource).copied();
            natural(
                resource,
                of(&account.consumed).saturating_add(of(&account.pending)),
            ) * weight.unwrap_or(1.0)
        };
        // Why not sum(): the empty sum is -0, which is less than 0.
        let sum = resources.into_iter().map(used).fold(0.0, |sum, used| sum + used);
        #[expect(
            clippy::cast_precision_loss,
            reason = "weights of more than 53 bits need not be told apart"
        )]
        let weight = account.weight.nano() as f64 / 1e9;
        Score(sum / weight)
    }

    fn schedule(&mut self, local: &Key) {
        if let Some(account) = self.accounts.get(local) {
            self.due.insert((self.next_of(account.sampled_at), local.clone()));
        }
    }

    fn next_of(&self, sampled_at: Timestamp) -> Timestamp {
        sampled_at
            .checked_add(self.policy.sampling_interval)
            .unwrap_or(Timestamp::MAX)
    }
}

impl Account {
    fn sample(&mut self, now: Timestamp, half_life: Duration, admitted: &ByResource) {
        let elapsed = Duration::try_from(now.duration_since(self.sampled_at)).unwrap_or(Duration::ZERO);
        self.sampled_at = now;
        if half_life.is_zero() {
            self.consumed.clear();
            return;
        }
        let share = Fraction::of(elapsed, half_life);
        for value in self.consumed.values_mut() {
            *value -= share.times(*value);
        }
        let gained = admitted.iter().map(|usage| {
            let (resource, value) = fine(usage);
            (resource, share.times(value))
        });
        change(&mut self.consumed, &gained.collect(), 1);
    }
}

/// Adds `by`, multiplied by `times`; entries that become zero are removed.
fn change(amounts: &mut BTreeMap<ResourceName, Fine>, by: &BTreeMap<ResourceName, Fine>, times: Fine) {
    for (resource, value) in by {
        let amount = amounts.entry(resource.clone()).or_default();
        *amount = amount.saturating_add(value * times);
    }
    amounts.retain(|_, amount| *amount != 0);
}

/// The sum of the penalties of one LocalQueue. Why: a workload may be reported before its LocalQueue.
fn sum_of(penalties: &BTreeMap<Uid, Penalty>, local: &Key) -> BTreeMap<ResourceName, Fine> {
    let mut sum = BTreeMap::new();
    for penalty in penalties.values().filter(|penalty| penalty.local == *local) {
        change(&mut sum, &penalty.amounts, 1);
    }
    sum
}

fn fine((resource, amount): (&ResourceName, &Amount)) -> (ResourceName, Fine) {
    (resource.clone(), Fine::from(amount.get()) * FINE_PER_UNIT)
}

fn whole(value: Fine) -> Amount {
    let rounded = (value + FINE_PER_UNIT / 2).div_euclid(FINE_PER_UNIT);
    Amount::new(i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX }))
}

/// The value in cores for `cpu`, in base units for everything else.
fn natural(resource: &ResourceName, value: Fine) -> f64 {
    let units_per_natural = if resource.as_str() == "cpu" { 1000.0 } else { 1.0 };
    #[expect(clippy::cast_precision_loss, reason = "an order is wanted, not an account")]
    let value = value as f64 / 1e6;
    value / units_per_natural
}

#[cfg(test)]
mod tests;
