//! The pending workloads of one ClusterQueue: an ordered heap and the parked ones.
//!
//! Invariant: a pending workload is in exactly one of the two. Workloads parked for want of capacity stand in classes
//! of equal requests: when quota comes free only the first of each class is woken, the next one when the first was
//! served, because what does not fit the first does not fit the others either.
//! *Source*: `spec/admission-engine.md 1.1-1.5`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::name::{Key, Uid};
use crate::workload::Workload;

/// Which time orders workloads that were evicted because their pods were not ready in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequeuingTimestamp {
    /// The time of the eviction.
    #[default]
    Eviction,
    /// The creation of the Workload.
    Creation,
}

/// The place of a workload in the order; smaller comes first. *Source*: `spec/admission-engine.md 1.2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    priority: Reverse<i32>,
    since: Timestamp,
    uid: Uid,
    key: Key,
}

impl Rank {
    /// The rank of a workload.
    pub fn of(workload: &Workload, timestamp: RequeuingTimestamp) -> Self {
        let evicted = workload.status.conditions.when_true("Evicted");
        let since = evicted
            .filter(|c| match c.reason.as_ref() {
                "AdmissionCheck" => true,
                "PodsReadyTimeout" => timestamp == RequeuingTimestamp::Eviction,
                _ => false,
            })
            .map_or(workload.created, |c| c.since);
        Self {
            priority: Reverse(workload.priority),
            since,
            uid: workload.uid.clone(),
            key: workload.key.clone(),
        }
    }

    /// The workload.
    pub const fn key(&self) -> &Key {
        &self.key
    }
}

/// Workloads of one class ask for exactly the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(Arc<str>);

impl Class {
    /// The class of a workload.
    pub fn of(workload: &Workload) -> Self {
        // Why: the printed form is total and exact, and core must not hash.
        Self(format!("{:?}{:?}", workload.pod_sets, workload.status.reclaimable).into())
    }
}

/// What a parked workload waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Released quota or other configuration.
    Capacity(Class),
    /// Other configuration, or a change of the workload itself.
    Configuration,
    /// Labels of its namespace, or another selector.
    Namespace,
    /// The end of its back-off; without a time, until its `Requeued` condition changes.
    Backoff(Option<Timestamp>),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    heap: BTreeSet<Rank>,
    parked: BTreeMap<Key, Wait>,
    ranks: BTreeMap<Key, Rank>,
    classes: BTreeMap<Class, BTreeSet<Rank>>,
    /// Workloads in the heap on behalf of a class.
    speakers: BTreeMap<Key, Class>,
    /// Classes that have a speaker in the heap.
    spoken_for: BTreeSet<Class>,
    /// The head that failed and blocks the heap until something changes (`StrictFIFO`).
    stuck: Option<Key>,
}

impl Pending {
    /// How many are pending, parked ones included.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether none is pending.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// How many are parked.
    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }

    /// All of them, by name.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.ranks.keys()
    }

    /// What a workload waits for, if it is parked.
    pub fn wait(&self, key: &Key) -> Option<&Wait> {
        self.parked.get(key)
    }

    /// Whether the workload is in the heap.
    pub fn in_heap(&self, key: &Key) -> bool {
        self.ranks.contains_key(key) && !self.parked.contains_key(key)
    }

    /// The head, unless it failed already and nothing has changed since.
    pub fn head(&self) -> Option<&Key> {
        let head = self.heap.first().map(Rank::key);
        head.filter(|key| self.stuck.as_ref() != Some(key))
    }

    /// The head, whether or not it failed already.
    #[cfg(test)]
    pub(crate) fn first_in_heap(&self) -> Option<&Key> {
        self.heap.first().map(Rank::key)
    }

    /// Puts a workload in the heap.
    pub fn push(&mut self, rank: Rank) {
        self.remove(&rank.key.clone());
        self.ranks.insert(rank.key.clone(), rank.clone());
        self.heap.insert(rank);
    }

    /// Puts a workload aside.
    pub fn park(&mut self, rank: Rank, wait: Wait) {
        let key = rank.key.clone();
        if let Wait::Capacity(class) = &wait {
            // Why: a speaker that fails for capacity speaks for its class, so the others stay where they are.
            if self.speakers.get(&key) == Some(class) {
                self.speakers.remove(&key);
                self.spoken_for.remove(class);
            }
        }
        self.remove(&key);
        let wait = match wait {
            Wait::Capacity(class) => {
                // Why: all members share one copy of the text.
                let class = self
                    .classes
                    .get_key_value(&class)
                    .map_or(class, |(known, _)| known.clone());
                self.classes
                    .entry(class.clone())
                    .or_default()
                    .insert(rank.clone());
                Wait::Capacity(class)
            }
            Wait::Configuration | Wait::Namespace | Wait::Backoff(_) => wait,
        };
        self.ranks.insert(key.clone(), rank);
        self.parked.insert(key, wait);
    }

    /// Takes a workload out, and says what it was waiting for if it was parked.
    pub fn remove(&mut self, key: &Key) -> Option<Wait> {
        let rank = self.ranks.remove(key)?;
        self.heap.remove(&rank);
        if self.stuck.as_ref() == Some(key) {
            self.stuck = None;
        }
        let wait = self.parked.remove(key);
        if let Some(Wait::Capacity(class)) = &wait {
            self.leave_class(class, &rank);
        }
        if let Some(class) = self.speakers.remove(key) {
            self.spoken_for.remove(&class);
            self.wake_next(&class);
        }
        wait
    }

    /// Notes that the head failed and blocks those behind it.
    pub fn block(&mut self) {
        self.stuck = self.heap.first().map(|rank| rank.key.clone());
    }

    /// Quota came free.
    pub fn flush_capacity(&mut self) {
        self.stuck = None;
        let classes: Vec<Class> = self.classes.keys().cloned().collect();
        for class in classes {
            self.wake_next(&class);
        }
    }

    /// The queue, a flavor or a check changed: everything but back-offs is tried again.
    pub fn flush_all(&mut self) {
        self.stuck = None;
        self.classes.clear();
        self.speakers.clear();
        self.spoken_for.clear();
        let (ranks, heap) = (&self.ranks, &mut self.heap);
        self.parked.retain(|key, wait| match wait {
            Wait::Backoff(_) => true,
            Wait::Capacity(_) | Wait::Configuration | Wait::Namespace => {
                heap.extend(ranks.get(key).cloned());
                false
            }
        });
    }

    /// A namespace matches the selector now.
    pub fn flush_namespace(&mut self, namespace: &Arc<str>) {
        let from = Key::new(Arc::clone(namespace), "");
        let woken: Vec<Key> = self
            .parked
            .range(from..)
            .take_while(|(key, _)| key.namespace == *namespace)
            .filter(|(_, wait)| **wait == Wait::Namespace)
            .map(|(key, _)| key.clone())
            .collect();
        for key in woken {
            self.unpark(&key);
        }
    }

    /// Moves a parked workload to the heap.
    pub fn unpark(&mut self, key: &Key) {
        if let (Some(rank), true) = (self.ranks.get(key).cloned(), self.parked.contains_key(key)) {
            self.push(rank);
        }
    }

    /// Those that wait for a point in time.
    pub fn backoffs(&self) -> impl Iterator<Item = (Timestamp, &Key)> {
        self.parked.iter().filter_map(|(key, wait)| match wait {
            Wait::Backoff(at) => at.map(|at| (at, key)),
            Wait::Capacity(_) | Wait::Configuration | Wait::Namespace => None,
        })
    }

    fn wake_next(&mut self, class: &Class) {
        if self.spoken_for.contains(class) {
            return;
        }
        let Some(rank) = self.classes.get(class).and_then(BTreeSet::first).cloned() else {
            return;
        };
        self.leave_class(class, &rank);
        self.parked.remove(rank.key());
        self.speakers.insert(rank.key.clone(), class.clone());
        self.spoken_for.insert(class.clone());
        self.heap.insert(rank);
    }

    fn leave_class(&mut self, class: &Class, rank: &Rank) {
        if let Some(members) = self.classes.get_mut(class) {
            members.remove(rank);
            if members.is_empty() {
                self.classes.remove(class);
            }
        }
    }
}

#[cfg(test)]
mod tests;
