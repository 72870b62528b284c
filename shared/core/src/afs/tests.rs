use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{ByResource, PastUsage, UsageBook, UsagePolicy};
use crate::amount::Amount;
use crate::name::{Key, ResourceName, Uid};
use crate::queue::Weight;
use crate::state::fixtures::at;

const MINUTE: i64 = 60;

fn policy(half_life_minutes: u64) -> UsagePolicy {
    UsagePolicy {
        half_life: Duration::from_mins(half_life_minutes),
        sampling_interval: Duration::from_mins(5),
        resource_weights: BTreeMap::new(),
    }
}

fn local(name: &str) -> Key {
    Key::new("team", name)
}

fn cores(number: i64) -> ByResource {
    BTreeMap::from([(ResourceName::from("cpu"), Amount::new(number * 1000))])
}

fn consumed(book: &UsageBook, name: &str) -> i64 {
    let past = book.past(&local(name)).unwrap();
    past.consumed
        .get(&ResourceName::from("cpu"))
        .map_or(0, |a| a.get())
}

/// A book with LocalQueues `a` and `b`.
fn book(half_life_minutes: u64) -> UsageBook {
    let mut book = UsageBook::new(policy(half_life_minutes));
    book.open(&local("a"), Weight::ONE, at(0));
    book.open(&local("b"), Weight::ONE, at(0));
    book
}

fn restored(name: &str, number: i64, second: i64) -> UsageBook {
    let mut book = UsageBook::new(policy(10));
    book.open(&local(name), Weight::ONE, at(second));
    let past = PastUsage {
        consumed: cores(number),
        at: at(second - 1),
    };
    book.restore(&local(name), &past);
    book
}

/// Spec: admission-engine B218 (the order of queues; that it comes before priority is the heap's business).
#[test]
fn who_used_less_for_the_weight_goes_first() {
    let mut book = UsageBook::new(policy(10));
    for (name, weight, used) in [("a", 1_000_000_000, 8), ("b", 500_000_000, 6)] {
        book.open(&local(name), Weight::from_nano(weight), at(100));
        let past = PastUsage {
            consumed: cores(used),
            at: at(50),
        };
        book.restore(&local(name), &past);
    }
    let (a, b) = (book.score(&local("a")), book.score(&local("b")));
    assert!((a.value() - 8.0).abs() < 1e-9 && (b.value() - 12.0).abs() < 1e-9);
    assert!(a < b);
}

/// Spec: admission-engine B219.
#[test]
fn usage_halves_and_rises_with_the_half_life() {
    let mut falling = restored("a", 8, 0);
    falling.sample(at(10 * MINUTE - 1), |_| cores(0));
    assert_eq!(consumed(&falling, "a"), 4000);
    let mut rising = book(10);
    let sampled = rising.sample(at(10 * MINUTE), |_| cores(8));
    assert_eq!(sampled, [local("a"), local("b")]);
    assert_eq!(consumed(&rising, "a"), 4000);
}

#[test]
fn only_queues_that_are_due_are_sampled() {
    let mut book = book(10);
    book.open(&local("late"), Weight::ONE, at(100));
    assert_eq!(book.next_sample(), Some(at(300)));
    assert_eq!(book.sample(at(299), |_| cores(1)), []);
    assert_eq!(book.sample(at(300), |_| cores(1)), [local("a"), local("b")]);
    assert_eq!(book.next_sample(), Some(at(400)));
    book.close(&local("late"));
    assert_eq!(book.next_sample(), Some(at(600)));
}

/// Spec: admission-engine B220.
#[test]
fn a_reservation_counts_at_once_and_leaves_nothing_when_it_is_taken_back() {
    let mut book = book(10);
    let (key, uid) = (local("a"), Uid::from("w"));
    book.reserve(&uid, &key, &cores(10));
    let penalty = book.score(&key).value();
    assert!((penalty - 2.93).abs() < 0.01, "{penalty}");
    assert_eq!(consumed(&book, "a"), 0, "it is not part of what was consumed yet");
    book.drop(&uid);
    assert_eq!(book.score(&key), super::Score::ZERO);
    book.drop(&uid);
    assert_eq!(book.score(&key), super::Score::ZERO);
}

/// Spec: admission-engine B220.
#[test]
fn a_workload_that_changes_its_queue_takes_its_penalty_with_it() {
    let mut book = book(10);
    let uid = Uid::from("w");
    book.reserve(&uid, &local("a"), &cores(10));
    book.reserve(&uid, &local("b"), &cores(10));
    assert_eq!(book.score(&local("a")), super::Score::ZERO);
    assert!(book.score(&local("b")) > super::Score::ZERO);
}

#[test]
fn a_penalty_told_before_its_queue_is_not_lost() {
    let mut book = UsageBook::new(policy(10));
    let uid = Uid::from("w");
    book.reserve(&uid, &local("a"), &cores(10));
    book.open(&local("a"), Weight::ONE, at(0));
    assert!(book.score(&local("a")) > super::Score::ZERO);
    book.drop(&uid);
    assert_eq!(book.score(&local("a")), super::Score::ZERO);
}

/// Spec: admission-engine B221.
#[test]
fn weight_zero_goes_last_even_when_nothing_was_used() {
    let mut book = restored("a", 1000, 10);
    book.open(&local("idle"), Weight::ZERO, at(10));
    assert!(book.score(&local("a")) < book.score(&local("idle")));
}

/// Spec: admission-engine B222.
#[test]
fn a_penalty_is_settled_once() {
    let mut book = book(10);
    let (key, uid) = (local("a"), Uid::from("w"));
    book.reserve(&uid, &key, &cores(10));
    let before = book.score(&key);
    book.settle(&uid);
    assert_eq!(book.score(&key), before, "it moved, it did not grow");
    assert_eq!(consumed(&book, "a"), 2929);
    book.settle(&uid);
    book.drop(&uid);
    assert_eq!(book.score(&key), before);
}

/// Spec: admission-engine B223.
#[test]
fn only_the_first_status_after_a_restart_is_taken_over() {
    let mut book = restored("a", 8, 1000);
    assert_eq!(consumed(&book, "a"), 8000);
    let other = PastUsage {
        consumed: cores(1),
        at: at(900),
    };
    book.restore(&local("a"), &other);
    assert_eq!(consumed(&book, "a"), 8000);
    book.sample(at(999 + 10 * MINUTE), |_| cores(0));
    assert_eq!(
        consumed(&book, "a"),
        4000,
        "the time of the restart counts as well"
    );
    let own = book.past(&local("a")).unwrap();
    book.restore(&local("a"), &own);
    assert_eq!(book.past(&local("a")).unwrap(), own);
}

/// Spec: admission-engine 6.
#[test]
fn without_half_life_the_past_is_forgotten_and_nothing_is_added_in_advance() {
    let mut book = book(0);
    book.reserve(&Uid::from("w"), &local("a"), &cores(10));
    assert_eq!(book.score(&local("a")), super::Score::ZERO);
    book.sample(at(5 * MINUTE), |_| cores(8));
    assert_eq!(book.score(&local("a")), super::Score::ZERO);
}

/// Spec: admission-engine 6.
#[test]
fn resources_count_in_natural_units_by_their_weight() {
    let mut policy = policy(10);
    policy.resource_weights.insert(ResourceName::from("memory"), 0.0);
    policy.resource_weights.insert(ResourceName::from("gpu"), 10.0);
    let mut book = UsageBook::new(policy);
    book.open(&local("a"), Weight::ONE, at(10));
    let mut used = cores(2);
    used.insert(ResourceName::from("memory"), Amount::new(1 << 40));
    used.insert(ResourceName::from("gpu"), Amount::new(3));
    book.restore(
        &local("a"),
        &PastUsage {
            consumed: used,
            at: at(5),
        },
    );
    let score = book.score(&local("a")).value();
    assert!((score - 32.0).abs() < 1e-9, "{score}");
}

proptest! {
    /// Whatever was reserved and taken back, in any order, leaves no trace; what was settled stays.
    #[test]
    fn penalties_add_up_exactly(steps in prop::collection::vec((0_u8..6, 0_u8..3, 1_i64..1_000_000), 0..60)) {
        let mut book = book(7);
        let mut settled = 0_i128;
        let mut open: BTreeMap<u8, i128> = BTreeMap::new();
        let share = book.penalty_share;
        for (name, what, cores_asked) in steps {
            let uid = Uid::from(name.to_string());
            match what {
                0 => {
                    book.reserve(&uid, &local("a"), &cores(cores_asked));
                    open.insert(name, share.times(i128::from(cores_asked) * 1000 * super::FINE_PER_UNIT));
                }
                1 => {
                    book.settle(&uid);
                    settled += open.remove(&name).unwrap_or(0);
                }
                _ => {
                    book.drop(&uid);
                    open.remove(&name);
                }
            }
        }
        let account = &book.accounts[&local("a")];
        let cpu = ResourceName::from("cpu");
        prop_assert_eq!(account.consumed.get(&cpu).copied().unwrap_or(0), settled);
        prop_assert_eq!(account.pending.get(&cpu).copied().unwrap_or(0), open.values().sum::<i128>());
    }
}
