//! What a worker's queue could take of one Workload now, and which worker to ask first: a pure guess from quotas and usage.
//!
//! Invariant: a guess only decides the order in which workers are asked. The worker's own queue decides whether it admits, so a
//! wrong or an old guess costs time, never correctness. Left out on purpose: node labels and taints of flavors, partial admission,
//! preemption, cohorts above the first.
//!
//! *Source*: `spec/multikueue.md 4.3, 13.A5`.

use std::collections::BTreeMap;
use std::fmt;

use crate::amount::Amount;
use crate::name::{FlavorName, ResourceName};
use crate::queue::{ClusterQueue, Quota, StopPolicy};
use crate::workload::Workload;

/// Amounts by resource.
pub type Amounts = BTreeMap<ResourceName, Amount>;
/// Amounts by flavor and resource.
pub type Usage = BTreeMap<FlavorName, Amounts>;

/// A ClusterQueue of a worker, with the state that it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// The spec of the ClusterQueue.
    pub queue: ClusterQueue,
    /// Whether condition `Active` is True, or is not there yet.
    pub active: bool,
    /// What is reserved in it.
    pub used: Usage,
    /// How many Workloads wait in it.
    pub pending: u32,
}

/// What a worker's queue could take of one Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// The queues of the worker cannot be read.
    #[default]
    Unknown,
    /// The Workload would fit at once.
    Fits {
        /// Whether it would have to borrow.
        borrows: bool,
        /// How many Workloads wait there already.
        pending: u32,
        /// How much of the quota would stay free, in millionths, of the scarcest resource.
        left: u32,
    },
    /// The Workload fits into the quota, but other Workloads use that quota.
    Full {
        /// How many Workloads wait there already.
        pending: u32,
    },
    /// The Workload is larger than what the queue can ever have, or asks for a resource that the queue does not cover.
    TooLarge,
    /// The Workload cannot go to a queue of this worker at all.
    Closed(Closed),
}

/// Why a queue takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The worker has no LocalQueue of that name in that namespace.
    QueueMissing,
    /// The worker has the LocalQueue and not the ClusterQueue behind it.
    ClusterQueueMissing {
        /// The name of the ClusterQueue.
        name: String,
    },
    /// The LocalQueue or the ClusterQueue is stopped or inactive.
    QueueStopped,
    /// The worker does not answer requests, or fails them.
    NotAnswering {
        /// The last error that it gave; may be empty.
        words: String,
    },
}

impl Room {
    /// Why the queue takes nothing, as its own objects show; a worker that does not answer is no such reason.
    pub(super) fn closed_queue(&self) -> Option<&Closed> {
        match self {
            Self::Closed(
                why @ (Closed::QueueMissing | Closed::ClusterQueueMissing { .. } | Closed::QueueStopped),
            ) => Some(why),
            Self::Closed(Closed::NotAnswering { .. })
            | Self::Unknown
            | Self::Fits { .. }
            | Self::Full { .. }
            | Self::TooLarge => None,
        }
    }
}

impl QueueView {
    /// Whether the ClusterQueue takes nothing: it is stopped, inactive or being deleted.
    pub fn is_stopped(&self) -> bool {
        self.queue.stop != StopPolicy::None || self.queue.terminating || !self.active
    }
}

impl Closed {
    /// The reason token that users search for.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::QueueMissing | Self::ClusterQueueMissing { .. } => "QueueMissingOnCluster",
            Self::QueueStopped => "QueueStoppedOnCluster",
            Self::NotAnswering { .. } => "ClusterNotAnswering",
        }
    }
}

/// The token, and the error of the worker.
impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Self::NotAnswering { words } if !words.is_empty() => write!(f, ": {words}"),
            Self::ClusterQueueMissing { name } => write!(f, ": ClusterQueue {name}"),
            Self::QueueMissing | Self::QueueStopped | Self::NotAnswering { .. } => Ok(()),
        }
    }
}

/// What all pod sets of a Workload ask for together.
pub fn asked(workload: &Workload) -> Amounts {
    let mut all = Amounts::new();
    for set in &workload.pod_sets {
        add(&mut all, &set.total(set.count));
    }
    // Why: quota of pods counts only where a queue covers it; `room` decides that.
    let pods = workload.pod_sets.iter().map(|set| i64::from(set.count)).sum();
    all.insert(ResourceName::from(PODS), Amount::new(pods));
    all
}

/// The resource that every pod uses one of.
pub(super) const PODS: &str = "pods";

/// Adds amounts, resource by resource.
pub fn add(all: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = all.entry(resource.clone()).or_default();
        *sum = sum.plus(*amount);
    }
}

/// Subtracts amounts, resource by resource; a missing one counts as zero.
pub fn take(all: &mut Amounts, less: &Amounts) {
    for (resource, amount) in less {
        let rest = all.entry(resource.clone()).or_default();
        *rest = rest.minus(*amount);
    }
}

/// What the other queues of a cohort could lend: their unused quota up to their lending limits, minus what they borrow.
pub fn spare<'a>(others: impl IntoIterator<Item = &'a QueueView>) -> Usage {
    let mut spare = Usage::new();
    for view in others {
        for (flavor, resource, quota) in quotas(&view.queue) {
            let used = used(&view.used, flavor, resource);
            let unused = quota.nominal.minus(used);
            let lent = quota.lending_limit.map_or(unused, |limit| unused.min(limit));
            let sum = spare
                .entry(flavor.clone())
                .or_default()
                .entry(resource.clone())
                .or_default();
            *sum = sum.plus(lent);
        }
    }
    spare
}

/// What the queue could take. `spare` is what its cohort could lend. `coming` is what was sent to this worker and is not in its report yet.
pub fn room(view: &QueueView, spare: &Usage, coming: &Amounts, asked: &Amounts) -> Room {
    if view.is_stopped() {
        return Room::Closed(Closed::QueueStopped);
    }
    let is_covered = |resource| { view.queue.groups.iter() }.any(|group| group.covered.contains(resource));
    // Why the whole Workload in one flavor: that is cheaper to compute, and pod sets rarely need different flavors.
    let mut worst = BEST;
    for (resource, amount) in asked {
        if *amount > Amount::ZERO && resource.as_str() != PODS && !is_covered(resource) {
            return Room::TooLarge;
        }
    }
    for group in &view.queue.groups {
        // Why no list: every decision computes this for all workers, and a list would be allocated each time.
        let of_group = || {
            { group.covered.iter() }
                .filter_map(|resource| Some((resource, *asked.get(resource)?)))
                .filter(|(_, amount)| *amount > Amount::ZERO)
        };
        if of_group().next().is_none() {
            continue;
        }
        let best = { group.flavors.iter() }
            .map(|flavor| {
                let each = of_group().map(|(resource, amount)| {
                    let quota = flavor.quotas.get(resource).copied().unwrap_or_default();
                    let coming = coming.get(resource).copied().unwrap_or_default();
                    let in_use = used(&view.used, &flavor.name, resource).plus(coming);
                    let lent = used(spare, &flavor.name, resource).max(Amount::ZERO);
                    let cohort = view.queue.cohort.as_ref().map(|_| lent);
                    stand(quota, in_use, cohort, amount)
                });
                each.fold(BEST, Standing::worse)
            })
            .fold(Standing::TooLarge, Standing::better);
        worst = worst.worse(best);
    }
    match worst {
        Standing::Fits { borrows, left } => Room::Fits {
            borrows,
            pending: view.pending,
            left,
        },
        Standing::Full => Room::Full {
            pending: view.pending,
        },
        Standing::TooLarge => Room::TooLarge,
    }
}

// Why so fine: in thousandths, small jobs look alike to large queues, and the first worker gets nearly all of a burst.
const MILLION: u32 = 1_000_000;

/// How well one amount fits into one flavor, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Fits { borrows: bool, left: u32 },
    Full,
    TooLarge,
}

const BEST: Standing = Standing::Fits {
    borrows: false,
    left: MILLION,
};

impl Standing {
    fn rank(self) -> (u8, bool, u32) {
        match self {
            Self::Fits { borrows, left } => (0, borrows, MILLION - left.min(MILLION)),
            Self::Full => (1, false, 0),
            Self::TooLarge => (2, false, 0),
        }
    }

    fn worse(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn better(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
    }
}

/// `lent`: what the cohort could lend now; `None` without a cohort.
fn stand(quota: Quota, in_use: Amount, lent: Option<Amount>, amount: Amount) -> Standing {
    let own = quota.nominal.minus(in_use);
    if amount <= own {
        return Standing::Fits {
            borrows: false,
            left: millionths(own.minus(amount), quota.nominal),
        };
    }
    let Some(lent) = lent else {
        return if amount <= quota.nominal {
            Standing::Full
        } else {
            Standing::TooLarge
        };
    };
    // Why only the borrowing limit makes it too large: the most that the other queues could ever lend is not known here.
    let ceiling = quota
        .borrowing_limit
        .map_or(Amount::UNLIMITED, |limit| quota.nominal.plus(limit));
    if amount > ceiling {
        return Standing::TooLarge;
    }
    let now = own.plus(lent).min(ceiling.minus(in_use));
    if amount <= now {
        Standing::Fits {
            borrows: true,
            left: 0,
        }
    } else {
        Standing::Full
    }
}

fn millionths(part: Amount, whole: Amount) -> u32 {
    if whole.is_unlimited() {
        return MILLION;
    }
    let share = i128::from(part.get().max(0)) * i128::from(MILLION) / i128::from(whole.get().max(1));
    u32::try_from(share).unwrap_or(MILLION).min(MILLION)
}

fn used(usage: &Usage, flavor: &FlavorName, resource: &ResourceName) -> Amount {
    let amounts = usage.get(flavor);
    amounts
        .and_then(|amounts| amounts.get(resource))
        .copied()
        .unwrap_or_default()
}

fn quotas(queue: &ClusterQueue) -> impl Iterator<Item = (&FlavorName, &ResourceName, &Quota)> {
    let flavors = queue.groups.iter().flat_map(|group| &group.flavors);
    flavors.flat_map(|flavor| {
        let quotas = flavor.quotas.iter();
        quotas.map(move |(resource, quota)| (&flavor.name, resource, quota))
    })
}

/// The rank of a worker with this room: the smallest is asked first. `None` is not asked at all.
pub(super) fn order(room: &Room) -> Option<Order> {
    match *room {
        Room::Fits {
            borrows,
            pending: 0,
            left,
        } => Some(Order(u8::from(borrows), MILLION - left.min(MILLION), 0)),
        Room::Fits { pending, left, .. } => Some(Order(2, pending, MILLION - left.min(MILLION))),
        Room::Unknown => Some(Order(3, 0, 0)),
        Room::Full { pending } => Some(Order(4, pending, 0)),
        Room::TooLarge => Some(Order(5, 0, 0)),
        Room::Closed(_) => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order(u8, u32, u32);

impl Order {
    /// Whether there is room as far as is known.
    pub(super) const fn has_room(self) -> bool {
        self.0 <= 2
    }

    pub(super) const fn is_unknown(self) -> bool {
        self.0 == 3
    }
}
