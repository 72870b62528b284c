//! The workloads that hold quota, in the order in which preemption takes it away.
//!
//! Invariant: every holder is in the list of exactly one ClusterQueue, and lists are always in order, so that a search
//! starts with the best candidate and never sorts. *Source*: `spec/admission-engine.md 2.7.2`.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::sync::Arc;

use jiff::Timestamp;

use crate::ground::Footprint;
use crate::hierarchy::{Exact, FlavorResource, NodeId};
use crate::name::{Key, Uid};

/// Past usage of a LocalQueue, for ClusterQueues that weigh it; a holder whose LocalQueue used more is preempted first.
#[derive(Clone, Copy, Debug)]
pub struct PastUsage(f64);

impl PastUsage {
    /// Past usage, already divided by the weight of its LocalQueue: infinite for weight zero. Not-a-number counts as more than any number.
    pub const fn new(value: f64) -> Self {
        Self(value)
    }
}

impl PartialEq for PastUsage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PastUsage {}

impl PartialOrd for PastUsage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PastUsage {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A workload that holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Namespace and name.
    pub key: Key,
    /// Its `metadata.uid`.
    pub uid: Uid,
    /// The node of its ClusterQueue.
    pub node: NodeId,
    /// Its LocalQueue.
    pub local: Key,
    /// Effective priority.
    pub priority: i64,
    /// Its place in queue order (`spec/admission-engine.md 1.2`).
    pub queue_time: Timestamp,
    /// When it got its quota.
    pub reserved_at: Timestamp,
    /// Whether it is already evicted and only has to stop.
    pub evicted: bool,
    /// What it holds; sorted, each pair once, nothing negative.
    pub usage: Vec<(FlavorResource, Exact)>,
    /// Past usage of its LocalQueue, if its ClusterQueue weighs that.
    pub past: Option<PastUsage>,
}

impl Holder {
    /// What it takes up.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::of(self.node, &self.usage)
    }

    /// Whether it holds any of these pairs.
    pub fn uses(&self, pairs: &[FlavorResource]) -> bool {
        self.usage
            .iter()
            .any(|(pair, value)| *value > 0 && pairs.contains(pair))
    }

    /// The order in which holders are preempted: the lesser one first. Past usage counts only within a queue; the UID decides last, so that
    /// no two are equal.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.standing().cmp(&other.standing())
    }

    fn standing(&self) -> (bool, i64, Reverse<Timestamp>, &Uid) {
        (!self.evicted, self.priority, Reverse(self.reserved_at), &self.uid)
    }
}

/// A holder by its place in the list of its own queue.
#[derive(Clone, Debug)]
struct Listed(Arc<Holder>);

impl Listed {
    fn place(&self) -> (bool, Reverse<Option<PastUsage>>) {
        (!self.0.evicted, Reverse(self.0.past))
    }
}

impl Ord for Listed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place()
            .cmp(&other.place())
            .then_with(|| self.0.compare(&other.0))
    }
}

impl PartialOrd for Listed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Listed {}

/// All holders. The amounts that they hold are counted in the [`crate::ground::Ground`]; the caller changes both together.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_uid: BTreeMap<Uid, Arc<Holder>>,
    by_queue: BTreeMap<NodeId, BTreeSet<Listed>>,
    /// Preemptor and victim of each preemption because of shares, since anything else last happened.
    displaced: BTreeSet<(Uid, Uid)>,
}

/// *Limit*: displacements remembered. Beyond them no workload is preempted because of shares until something else happens.
const DISPLACED_MAX: usize = 100_000;

impl Holders {
    /// Records that a workload displaced another because of shares.
    ///
    /// Why: priorities within a queue and shares between queues are two orders that can contradict each other. Three workloads could then
    /// displace each other in turns for ever. While nothing else happens each displaces each other at most once, which ends after finitely
    /// many steps.
    pub fn note_displaced(&mut self, preemptor: &Uid, victim: &Uid) {
        self.displaced.insert((preemptor.clone(), victim.clone()));
    }

    /// Removes the record of [`Self::note_displaced`]: the displacement did not happen.
    pub fn forget_displacement(&mut self, preemptor: &Uid, victim: &Uid) {
        self.displaced.remove(&(preemptor.clone(), victim.clone()));
    }

    /// A workload came or ended, or a queue changed: recorded displacements no longer count.
    pub fn forget_displaced(&mut self) {
        self.displaced.clear();
    }

    /// Whether the preemptor may not displace this victim by shares: it has done so already, or too many displacements are recorded
    /// (`DISPLACED_MAX`). A victim that is still stopping may be chosen again, because it loses nothing.
    pub fn is_spared(&self, preemptor: &Uid, victim: &Holder) -> bool {
        let taken = || self.displaced.contains(&(preemptor.clone(), victim.uid.clone()));
        !victim.evicted && (self.displaced.len() >= DISPLACED_MAX || taken())
    }

    /// Adds a holder, or replaces the holder with the same UID; returns the replaced one.
    pub fn insert(&mut self, holder: Holder) -> Option<Arc<Holder>> {
        let before = self.remove(&holder.uid);
        let holder = Arc::new(holder);
        self.by_uid.insert(holder.uid.clone(), Arc::clone(&holder));
        self.by_queue
            .entry(holder.node)
            .or_default()
            .insert(Listed(holder));
        before
    }

    /// Removes a holder.
    pub fn remove(&mut self, uid: &Uid) -> Option<Arc<Holder>> {
        let holder = self.by_uid.remove(uid)?;
        if let Some(list) = self.by_queue.get_mut(&holder.node) {
            list.remove(&Listed(Arc::clone(&holder)));
            if list.is_empty() {
                self.by_queue.remove(&holder.node);
            }
        }
        Some(holder)
    }

    /// The holder with this UID.
    pub fn get(&self, uid: &Uid) -> Option<&Arc<Holder>> {
        self.by_uid.get(uid)
    }

    /// The holders of one ClusterQueue, first victim first.
    pub fn of(&self, queue: NodeId) -> Line<'_> {
        Line(self.by_queue.get(&queue).map(BTreeSet::iter))
    }

    /// The number of holders.
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether there are no holders.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }
}

/// Holders of one ClusterQueue in the order in which they are preempted.
#[derive(Clone, Debug)]
pub struct Line<'a>(Option<btree_set::Iter<'a, Listed>>);

impl<'a> Iterator for Line<'a> {
    type Item = &'a Arc<Holder>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.as_mut()?.next().map(|listed| &listed.0)
    }
}
