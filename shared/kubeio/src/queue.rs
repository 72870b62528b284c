//! Which objects are due: a queue of keys without duplicates, one worker per key at a time, two lanes, and delays.
//!
//! Invariant: a key is handed out at least once after its last `add`, and never to two workers at once. Work on placed objects
//! goes before new work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How urgent a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// An object that already runs or holds quota.
    Placed,
    /// Everything else.
    New,
}

/// A queue of keys. *Limits*: as many entries as there are distinct keys.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    bell: Notify,
}

#[derive(Debug)]
struct State<K> {
    /// The waiting keys of each lane by turn; the lowest turn is next.
    lanes: [BTreeMap<u64, K>; 2],
    /// The lane of each key, and its turn there.
    waiting: BTreeMap<K, (Lane, u64)>,
    turns: u64,
    busy: BTreeSet<K>,
    again: BTreeMap<K, Lane>,
    later: BTreeMap<K, Instant>,
    clock: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Clone + Debug> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            lanes: [BTreeMap::new(), BTreeMap::new()],
            waiting: BTreeMap::new(),
            turns: 0,
            busy: BTreeSet::new(),
            again: BTreeMap::new(),
            later: BTreeMap::new(),
            clock: BTreeSet::new(),
        };
        Self {
            state: Mutex::new(state),
            bell: Notify::new(),
        }
    }
}

impl<K: Ord + Clone + Debug> Queue<K> {
    /// Makes the key due now. A waiting key moves to the more urgent lane, at its end.
    pub fn add(&self, key: K, lane: Lane) {
        self.lock().add(key, lane);
        self.bell.notify_one();
    }

    /// Makes the key due after `delay`, unless it becomes due earlier; of two delays the shorter counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        let due = Instant::now() + delay;
        let mut state = self.lock();
        if state.later.get(&key).is_some_and(|at| *at <= due) {
            return;
        }
        if let Some(old) = state.later.insert(key.clone(), due) {
            state.clock.remove(&(old, key.clone()));
        }
        state.clock.insert((due, key));
        drop(state);
        self.bell.notify_one();
    }

    /// How many keys are due now.
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether no key is due now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next key. Give it back with [`Queue::done`].
    pub async fn next(&self) -> K {
        loop {
            let bell = self.bell.notified();
            let wake = {
                let mut state = self.lock();
                state.ripen(Instant::now());
                if let Some(key) = state.pop() {
                    if !state.waiting.is_empty() {
                        self.bell.notify_one();
                    }
                    return key;
                }
                state.clock.first().map(|(due, _)| *due)
            };
            match wake {
                None => bell.await,
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = bell => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    /// Ends the work on the key; if it was added meanwhile, it is due again.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        state.busy.remove(key);
        if let Some(lane) = state.again.remove(key) {
            state.add(key.clone(), lane);
            drop(state);
            self.bell.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> State<K> {
    fn add(&mut self, key: K, lane: Lane) {
        if self.busy.contains(&key) {
            let wanted = self.again.entry(key).or_insert(lane);
            *wanted = lane.min(*wanted);
            return;
        }
        match self.waiting.get(&key) {
            Some((waits, _)) if *waits <= lane => return,
            Some((waits, turn)) => drop(self.lanes[*waits as usize].remove(turn)),
            None => {}
        }
        self.turns += 1;
        self.lanes[lane as usize].insert(self.turns, key.clone());
        self.waiting.insert(key, (lane, self.turns));
    }

    fn ripen(&mut self, now: Instant) {
        while let Some((due, key)) = self.clock.first().cloned() {
            if due > now {
                return;
            }
            self.clock.pop_first();
            self.later.remove(&key);
            self.add(key, Lane::Placed);
        }
    }

    fn pop(&mut self) -> Option<K> {
        let (_, key) = self.lanes.iter_mut().find_map(BTreeMap::pop_first)?;
        self.waiting.remove(&key);
        if let Some(due) = self.later.remove(&key) {
            self.clock.remove(&(due, key.clone()));
        }
        self.busy.insert(key.clone());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Lane, Queue};

    #[tokio::test(start_paused = true)]
    async fn placed_work_goes_before_new_work_and_nothing_is_handed_out_twice() {
        let queue = Queue::default();
        queue.add("new", Lane::New);
        queue.add("placed", Lane::Placed);
        queue.add("new", Lane::New);
        assert_eq!(queue.next().await, "placed");
        assert_eq!(queue.next().await, "new");
        queue.add("new", Lane::New);
        assert!(queue.is_empty(), "a busy key waits for its worker");
        queue.done(&"new");
        assert_eq!(queue.next().await, "new");
    }

    #[tokio::test(start_paused = true)]
    async fn new_work_that_is_placed_while_it_waits_does_not_wait_for_other_new_work() {
        let queue = Queue::default();
        for key in ["first", "second", "third"] {
            queue.add(key, Lane::New);
        }
        queue.add("third", Lane::Placed);
        queue.add("third", Lane::New);
        assert_eq!(queue.len(), 3);
        for key in ["third", "first", "second"] {
            assert_eq!(queue.next().await, key);
            queue.done(&key);
        }
        assert!(queue.is_empty(), "each of them was handed out once");
    }

    #[tokio::test(start_paused = true)]
    async fn the_shorter_of_two_delays_counts_and_an_earlier_add_replaces_it() {
        let queue = Queue::default();
        let start = tokio::time::Instant::now();
        queue.add_after("a", Duration::from_mins(1));
        queue.add_after("a", Duration::from_secs(2));
        queue.add_after("a", Duration::from_secs(30));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 2);
        queue.done(&"a");
        queue.add_after("b", Duration::from_secs(5));
        queue.add("b", Lane::New);
        assert_eq!(queue.next().await, "b");
        queue.done(&"b");
        let more = tokio::time::timeout(Duration::from_secs(100), queue.next()).await;
        assert!(more.is_err(), "the delayed entry was used up");
    }
}
