//! What was sent to queues of workers so lately that their statuses cannot show it yet.
//!
//! Why: a worker writes the status of a queue once a second at most. Without this, all jobs of a burst would go to the
//! worker that looked best at its beginning.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use roadstead_core::dispatch::capacity::{Amounts, add, take};
use roadstead_core::name::{ClusterName, Key};

use super::Place;

/// How long what was sent counts. After that the status of the queue shows it, unless that worker is very busy.
const LIFE: SignedDuration = SignedDuration::from_secs(3);
/// Entries at most; beyond it the oldest are forgotten early.
const MAX: usize = 50_000;

/// What was sent lately, by queue.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    places: BTreeMap<ClusterName, BTreeMap<String, Sent>>,
    ages: VecDeque<(Timestamp, Place, Key)>,
}

#[derive(Debug, Default)]
struct Sent {
    each: BTreeMap<Key, Amounts>,
    total: Amounts,
}

impl Ledger {
    pub(crate) fn sent(&self, place: Place, workload: &Key, amounts: Amounts, now: Timestamp) {
        let mut book = self.lock();
        book.forget_old(now);
        let (cluster, queue) = place.clone();
        let sent = book.places.entry(cluster).or_default().entry(queue).or_default();
        if sent.each.contains_key(workload) {
            return;
        }
        add(&mut sent.total, &amounts);
        sent.each.insert(workload.clone(), amounts);
        book.ages.push_back((now, place, workload.clone()));
    }

    /// The amounts that were sent to a queue lately, without those of `workload` itself.
    pub(crate) fn coming(
        &self,
        (cluster, queue): (&ClusterName, &str),
        workload: &Key,
        now: Timestamp,
    ) -> Amounts {
        let mut book = self.lock();
        book.forget_old(now);
        let Some(sent) = book.places.get(cluster).and_then(|queues| queues.get(queue)) else {
            return Amounts::new();
        };
        let mut total = sent.total.clone();
        if let Some(own) = sent.each.get(workload) {
            take(&mut total, own);
        }
        total
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn forget_old(&mut self, now: Timestamp) {
        while let Some((at, ..)) = self.ages.front() {
            if now.duration_since(*at) < LIFE && self.ages.len() <= MAX {
                return;
            }
            let Some((_, (cluster, queue), workload)) = self.ages.pop_front() else {
                return;
            };
            let Some(queues) = self.places.get_mut(&cluster) else {
                continue;
            };
            if let Some(sent) = queues.get_mut(&queue) {
                if let Some(amounts) = sent.each.remove(&workload) {
                    take(&mut sent.total, &amounts);
                }
                if sent.each.is_empty() {
                    queues.remove(&queue);
                }
            }
            if queues.is_empty() {
                self.places.remove(&cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_core::amount::Amount;
    use roadstead_core::dispatch::capacity::Amounts;
    use roadstead_core::name::Key;

    use super::Ledger;

    fn cpu(amount: i64) -> Amounts {
        Amounts::from([("cpu".into(), Amount::new(amount))])
    }

    /// Spec: multikueue 4.3
    #[test]
    fn what_was_sent_counts_once_for_others_and_for_a_while() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (ledger, east, west) = (Ledger::default(), "east".into(), "west".into());
        let place = || ("east".into(), "q".to_owned());
        let key = |name: &str| Key::new("ns", name);
        ledger.sent(place(), &key("a"), cpu(2), at(0));
        ledger.sent(place(), &key("a"), cpu(2), at(1));
        ledger.sent(place(), &key("b"), cpu(3), at(1));
        assert_eq!(ledger.coming((&east, "q"), &key("c"), at(2)), cpu(5));
        assert_eq!(ledger.coming((&east, "q"), &key("a"), at(2)), cpu(3));
        assert_eq!(ledger.coming((&east, "q"), &key("c"), at(3)), cpu(3));
        assert_eq!(ledger.coming((&east, "q"), &key("c"), at(4)), Amounts::new());
        for other in [(&west, "q"), (&east, "r")] {
            assert_eq!(ledger.coming(other, &key("c"), at(2)), Amounts::new());
        }
    }
}
