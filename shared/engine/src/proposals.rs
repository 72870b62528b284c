//! The writes that the brain proposes for Workloads, until they are written or withdrawn.
//!
//! Explanations of why a Workload waits are held back for a moment: most Workloads wait only briefly, and only the last of
//! several explanations is worth a write. While many Workloads are admitted, explanations are rationed, because they would take
//! the API server's time from admissions. Invariants: decisions are handed out at once, except for a reservation that was just
//! refused. Every explanation that is not replaced is handed out in the end, oldest first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use roadstead_core::lifecycle::Proposal;
use roadstead_core::name::{Key, Uid};

/// How long an explanation is held back.
pub(crate) const HOLD: SignedDuration = SignedDuration::from_secs(1);
/// The window in which reservations are counted.
///
/// Why not shorter: a busy API server pauses for a second or two, and all held-back explanations would be written just then.
const WINDOW: SignedDuration = SignedDuration::from_secs(3);
/// Explanations are rationed from this number of reservations in a window on.
const BUSY: u32 = 15;
/// While they are rationed, one explanation is allowed for this number of reservations.
const PER_RESERVATIONS: u32 = 10;
/// The most explanations that can be saved up for a moment in which many are due.
const BURST: u32 = 100;
/// How often a held-back explanation that is due asks for its ration.
const PAUSE: SignedDuration = SignedDuration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Proposals(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    all: BTreeMap<Key, Entry>,
    /// Explanations that are held back, by due time. Replaced entries stay until then.
    line: VecDeque<(Timestamp, Key)>,
    /// When the API server refused a reservation.
    refused: BTreeMap<Key, Timestamp>,
    traffic: Traffic,
}

#[derive(Debug)]
struct Entry {
    uid: Uid,
    proposal: Proposal,
    /// Until when the proposal is held back; `None` when it may be written.
    held: Option<Timestamp>,
}

/// How many reservations there are, and how many explanations they allow.
#[derive(Debug)]
struct Traffic {
    /// The start of the present window, and the counts of it and the one before.
    since: Option<Timestamp>,
    counts: [u32; 2],
    /// The saved ration, in reservations.
    saved: u32,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            since: None,
            counts: [0; 2],
            saved: BURST * PER_RESERVATIONS,
        }
    }
}

impl Traffic {
    fn turn(&mut self, now: Timestamp) {
        let windows = self.since.map_or(i128::MAX, |since| {
            now.duration_since(since).as_nanos() / WINDOW.as_nanos()
        });
        if windows >= 1 {
            self.counts = [0, if windows == 1 { self.counts[0] } else { 0 }];
            self.since = Some(now);
        }
    }

    fn count(&mut self, now: Timestamp) {
        self.turn(now);
        self.counts[0] = self.counts[0].saturating_add(1);
        self.saved = self.saved.saturating_add(1).min(BURST * PER_RESERVATIONS);
    }

    fn is_busy(&mut self, now: Timestamp) -> bool {
        self.turn(now);
        self.counts.iter().any(|count| *count >= BUSY)
    }

    fn take(&mut self) -> bool {
        let left = self.saved.checked_sub(PER_RESERVATIONS);
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }
}

impl Proposals {
    /// The proposal for this Workload, if it is about this UID and not held back.
    pub(crate) fn get(&self, key: &Key, uid: &Uid) -> Option<Proposal> {
        let book = self.lock();
        let entry = book.all.get(key)?;
        (entry.uid == *uid && entry.held.is_none()).then(|| entry.proposal.clone())
    }

    /// Takes out a proposal that was carried out or does not apply any more; a newer one for the same Workload stays.
    pub(crate) fn settle(&self, key: &Key, proposal: &Proposal) {
        let mut book = self.lock();
        if book.all.get(key).is_some_and(|entry| entry.proposal == *proposal) {
            book.all.remove(key);
        }
    }

    /// Notes that the API server refused a proposal. Returns whether the brain must be told, so that it gives the quota back.
    pub(crate) fn refused(&self, key: &Key, proposal: &Proposal, now: Timestamp) -> bool {
        match proposal {
            // Why withdrawn: the API server may refuse the reservation for ever, and its quota would stay held.
            Proposal::Reserve { .. } => {
                self.settle(key, proposal);
                self.lock().refused.insert(key.clone(), now);
                true
            }
            // Why these stay: the brain proposes nothing twice, and another Workload may wait for the quota of an eviction.
            Proposal::Pending { .. } | Proposal::Evict { .. } => false,
        }
    }

    pub(crate) fn forget(&self, key: &Key) {
        let mut book = self.lock();
        book.all.remove(key);
        book.refused.remove(key);
    }

    /// Takes in a decision; it replaces the earlier proposal for the Workload.
    pub(crate) fn put(&self, key: Key, uid: Uid, proposal: Proposal, now: Timestamp) {
        let mut book = self.lock();
        if matches!(proposal, Proposal::Reserve { .. }) {
            book.traffic.count(now);
        }
        // Why held back: a Workload that is refused and retried at once, again and again, would keep the engine busy with
        // nothing else.
        let again = { book.refused.remove(&key) }.is_some_and(|at| now.duration_since(at) < HOLD);
        let held = again.then(|| now.checked_add(HOLD).unwrap_or(Timestamp::MAX));
        let entry = Entry { uid, proposal, held };
        book.all.insert(key.clone(), entry);
        book.line.extend(held.map(|due| (due, key)));
    }

    /// Takes in an explanation, which is held back. If one was held back already, the new one takes its place.
    pub(crate) fn explain(&self, key: Key, uid: Uid, proposal: Proposal, now: Timestamp) {
        let mut book = self.lock();
        if let Some(entry) = book.all.get_mut(&key)
            && entry.uid == uid
            && entry.held.is_some()
        {
            entry.proposal = proposal;
            return;
        }
        let due = now.checked_add(HOLD).unwrap_or(Timestamp::MAX);
        let entry = Entry {
            uid,
            proposal,
            held: Some(due),
        };
        book.all.insert(key.clone(), entry);
        book.line.push_back((due, key));
    }

    /// Releases explanations that have been held back long enough; returns their Workloads.
    pub(crate) fn release(&self, now: Timestamp) -> Vec<Key> {
        let mut book = self.lock();
        let Book {
            all, line, traffic, ..
        } = &mut *book;
        let busy = traffic.is_busy(now);
        let mut released = Vec::new();
        while let Some((due, key)) = line.front() {
            if *due > now {
                break;
            }
            if let Some(entry) = all.get_mut(key).filter(|entry| entry.held == Some(*due)) {
                if busy && !traffic.take() {
                    break;
                }
                entry.held = None;
                released.push(key.clone());
            }
            line.pop_front();
        }
        released
    }

    pub(crate) fn next_release(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.lock().line.front().map(|(due, _)| *due)?;
        // Why not at once: an explanation that is due already waits for its ration.
        let soon = now.checked_add(PAUSE).unwrap_or(Timestamp::MAX);
        Some(due.max(soon))
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use roadstead_core::status::Admission;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn key(number: usize) -> Key {
        Key::new("ns", format!("w{number:04}"))
    }

    fn says(message: &str) -> Proposal {
        Proposal::Pending {
            reason: "WaitingForQuota".into(),
            message: message.to_owned(),
        }
    }

    fn reserve() -> Proposal {
        Proposal::Reserve {
            admission: Admission {
                cluster_queue: "cq".into(),
                pod_sets: Vec::new(),
            },
            considered: String::new(),
        }
    }

    /// Spec: admission-engine 2.15 (of several explanations the last is written, after a moment).
    #[test]
    fn what_was_refused_is_said_again_and_reserved_again_after_a_pause() {
        let (proposals, key, uid) = (Proposals::default(), key(1), Uid::new("u"));
        proposals.explain(key.clone(), uid.clone(), says("no room"), at(0));
        assert_eq!(proposals.release(at(1_000)), std::slice::from_ref(&key));
        assert!(!proposals.refused(&key, &says("no room"), at(1_000)));
        assert_eq!(proposals.get(&key, &uid), Some(says("no room")));

        proposals.put(key.clone(), uid.clone(), reserve(), at(2_000));
        assert_eq!(proposals.get(&key, &uid), Some(reserve()));
        assert!(proposals.refused(&key, &reserve(), at(2_010)));
        assert_eq!(proposals.get(&key, &uid), None);
        proposals.put(key.clone(), uid.clone(), reserve(), at(2_020));
        assert_eq!(proposals.get(&key, &uid), None);
        assert_eq!(proposals.release(at(3_019)), []);
        assert_eq!(proposals.release(at(3_020)), std::slice::from_ref(&key));
        assert_eq!(proposals.get(&key, &uid), Some(reserve()));
        // A Workload that comes again later does not wait.
        assert!(proposals.refused(&key, &reserve(), at(3_100)));
        proposals.put(key.clone(), uid.clone(), reserve(), at(9_000));
        assert_eq!(proposals.get(&key, &uid), Some(reserve()));
    }

    #[test]
    fn an_explanation_is_held_back_for_a_moment_and_only_the_last_is_handed_out() {
        let (proposals, uid) = (Proposals::default(), Uid::new("u"));
        proposals.explain(key(1), uid.clone(), says("first"), at(0));
        proposals.explain(key(1), uid.clone(), says("second"), at(900));
        assert_eq!(proposals.get(&key(1), &uid), None);
        assert_eq!(proposals.next_release(at(0)), Some(at(1_000)));
        assert_eq!(proposals.release(at(999)), []);
        assert_eq!(proposals.release(at(1_000)), [key(1)]);
        assert_eq!(proposals.get(&key(1), &uid), Some(says("second")));
        assert_eq!(proposals.get(&key(1), &Uid::new("other")), None);
        assert_eq!(proposals.release(at(9_000)), []);
    }

    #[test]
    fn a_decision_overtakes_an_explanation() {
        let (proposals, uid) = (Proposals::default(), Uid::new("u"));
        proposals.explain(key(1), uid.clone(), says("no room"), at(0));
        proposals.put(key(1), uid.clone(), reserve(), at(500));
        assert_eq!(proposals.get(&key(1), &uid), Some(reserve()));
        assert_eq!(proposals.release(at(1_000)), []);
        proposals.settle(&key(1), &says("no room"));
        assert_eq!(proposals.get(&key(1), &uid), Some(reserve()));
        proposals.settle(&key(1), &reserve());
        assert_eq!(proposals.get(&key(1), &uid), None);
    }

    /// Spec: experience (every waiting user is told why, in the end).
    #[test]
    fn explanations_are_rationed_while_many_workloads_are_admitted_and_then_all_told() {
        let proposals = Proposals::default();
        let many = 1_000;
        for number in 0..many {
            proposals.explain(key(number), Uid::new("u"), says("no room"), at(0));
        }
        let mut told = Vec::new();
        for millis in (0..=3_000).step_by(10) {
            proposals.put(key(many), Uid::new("u"), reserve(), at(millis));
            told.extend(proposals.release(at(millis)));
        }
        assert_eq!(
            told.len(),
            100 + 200 / 10,
            "what was saved up, and what two seconds allow"
        );
        assert_eq!(proposals.next_release(at(3_000)), Some(at(3_100)));
        told.extend(proposals.release(at(9_000)));
        assert_eq!(told, (0..many).map(key).collect::<Vec<_>>());
    }

    #[test]
    fn a_few_admissions_hold_nobody_back() {
        let proposals = Proposals::default();
        for number in 0..1_000 {
            proposals.explain(key(number), Uid::new("u"), says("no room"), at(0));
        }
        for millis in (0..3_000).step_by(250) {
            proposals.put(key(1_000), Uid::new("u"), reserve(), at(millis));
        }
        assert_eq!(proposals.release(at(3_000)).len(), 1_000);
    }
}
