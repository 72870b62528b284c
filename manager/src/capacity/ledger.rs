//! What was sent to queues of workers so lately that their statuses cannot show it yet.
//!
//! Why: a worker writes the status of a queue once a second at most. Without this, all jobs of a burst would go to the
//! worker that looked best at its beginning.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use roadstead_core::dispatch::capacity::{Amounts, add, take};
use roadstead_core::name::Key;

use super::Place;

/// How long what was sent counts. After that the status of the queue shows it.
const LIFE: SignedDuration = SignedDuration::from_secs(3);
/// Entries at most; beyond it the oldest are forgotten early.
const MAX: usize = 50_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    sent: BTreeMap<(Place, Key), Amounts>,
    ages: VecDeque<(Timestamp, Place, Key)>,
    totals: BTreeMap<Place, Amounts>,
}

impl Ledger {
    /// A Workload was sent there.
    pub(crate) fn sent(&self, place: Place, workload: &Key, amounts: Amounts, now: Timestamp) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.forget_old(now);
        let entry = (place.clone(), workload.clone());
        if book.sent.contains_key(&entry) {
            return;
        }
        add(book.totals.entry(place.clone()).or_default(), &amounts);
        book.sent.insert(entry, amounts);
        book.ages.push_back((now, place, workload.clone()));
    }

    /// What was sent there lately, without `workload` itself.
    pub(crate) fn coming(&self, place: &Place, workload: &Key, now: Timestamp) -> Amounts {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.forget_old(now);
        let mut total = book.totals.get(place).cloned().unwrap_or_default();
        if let Some(own) = book.sent.get(&(place.clone(), workload.clone())) {
            take(&mut total, own);
        }
        total
    }
}

impl Book {
    fn forget_old(&mut self, now: Timestamp) {
        while let Some((at, ..)) = self.ages.front() {
            if now.duration_since(*at) < LIFE && self.ages.len() <= MAX {
                return;
            }
            let Some((_, place, workload)) = self.ages.pop_front() else {
                return;
            };
            let Some(amounts) = self.sent.remove(&(place.clone(), workload)) else {
                continue;
            };
            if let Some(total) = self.totals.get_mut(&place) {
                take(total, &amounts);
                if total.values().all(|amount| amount.get() == 0) {
                    self.totals.remove(&place);
                }
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
        let (ledger, place) = (Ledger::default(), ("east".into(), "q".to_owned()));
        let key = |name: &str| Key::new("ns", name);
        ledger.sent(place.clone(), &key("a"), cpu(2), at(0));
        ledger.sent(place.clone(), &key("a"), cpu(2), at(1));
        ledger.sent(place.clone(), &key("b"), cpu(3), at(1));
        assert_eq!(ledger.coming(&place, &key("c"), at(2)), cpu(5));
        assert_eq!(ledger.coming(&place, &key("a"), at(2)), cpu(3));
        assert_eq!(ledger.coming(&place, &key("c"), at(3)), cpu(3));
        assert_eq!(ledger.coming(&place, &key("c"), at(4)), Amounts::new());
        let other = ("west".into(), "q".to_owned());
        assert_eq!(ledger.coming(&other, &key("c"), at(2)), Amounts::new());
    }
}
