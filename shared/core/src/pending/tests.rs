use super::{Class, Pending, Rank, RequeuingTimestamp, Wait};
use crate::condition::Truth;
use crate::name::Key;
use crate::state::fixtures::{asks, at};
use crate::workload::Workload;

fn evicted(mut workload: Workload, reason: &'static str, second: i64) -> Workload {
    let conditions = &mut workload.status.conditions;
    conditions.set("Evicted", Truth::True, reason, "", at(second));
    workload
}

fn prioritised(mut workload: Workload, priority: i32) -> Workload {
    workload.priority = priority;
    workload
}

fn check_first(first: &Workload, second: &Workload, timestamp: RequeuingTimestamp) {
    assert!(
        Rank::of(first, timestamp) < Rank::of(second, timestamp),
        "{timestamp:?}"
    );
}

/// Spec: admission-engine 1.2, 9.2 B027 B028.
#[test]
fn priority_comes_before_age_and_age_before_uid() {
    let by = RequeuingTimestamp::Eviction;
    check_first(&prioritised(asks("p10", 2, 1), 10), &asks("p0", 1, 1), by);
    check_first(&asks("z", 1, 1), &asks("a", 2, 1), by);
    check_first(&asks("a", 1, 1), &asks("b", 1, 1), by);
}

/// Spec: admission-engine 1.2, 9.2 B029 B030 B031.
#[test]
fn evictions_move_a_workload_back_only_for_some_reasons() {
    let (old, newer) = (asks("w1", 0, 1), asks("w2", 50, 1));
    for (reason, by, back) in [
        ("PodsReadyTimeout", RequeuingTimestamp::Eviction, true),
        ("PodsReadyTimeout", RequeuingTimestamp::Creation, false),
        ("AdmissionCheck", RequeuingTimestamp::Eviction, true),
        ("AdmissionCheck", RequeuingTimestamp::Creation, true),
        ("Preempted", RequeuingTimestamp::Eviction, false),
    ] {
        let evicted = evicted(old.clone(), reason, 100);
        if back {
            check_first(&newer, &evicted, by);
        } else {
            check_first(&evicted, &newer, by);
        }
    }
}

fn park_all(pending: &mut Pending, workloads: &[Workload]) {
    for workload in workloads {
        let rank = Rank::of(workload, RequeuingTimestamp::Eviction);
        pending.park(rank, Wait::Capacity(Class::of(workload)));
    }
}

/// Spec: admission-engine 1.5 (equal requests share one fate).
#[test]
fn released_quota_wakes_one_workload_per_class_and_the_next_after_it_was_served() {
    let workloads = [asks("a", 1, 1), asks("b", 2, 1), asks("c", 3, 7), asks("d", 4, 1)];
    let mut pending = Pending::default();
    park_all(&mut pending, &workloads);
    assert_eq!((pending.head(), pending.parked_count()), (None, 4));

    pending.flush_capacity();
    pending.flush_capacity();
    assert_eq!(pending.parked_count(), 2, "one of each class");
    assert_eq!(pending.head(), Some(&Key::new("ns", "a")));
    pending.remove(&Key::new("ns", "a"));
    assert_eq!(pending.head(), Some(&Key::new("ns", "b")));

    park_all(&mut pending, &workloads[1..2]);
    assert_eq!(pending.head(), Some(&Key::new("ns", "c")), "b failed for d, too");
    assert!(pending.wait(&Key::new("ns", "d")).is_some());
}

/// Spec: admission-engine 1.3.
#[test]
fn a_blocked_head_is_head_again_after_a_flush_and_a_better_one_passes_it() {
    let mut pending = Pending::default();
    pending.push(Rank::of(&asks("a", 5, 1), RequeuingTimestamp::Eviction));
    pending.block();
    assert_eq!(pending.head(), None);
    pending.push(Rank::of(&asks("b", 9, 1), RequeuingTimestamp::Eviction));
    assert_eq!(pending.head(), None);
    pending.push(Rank::of(&asks("c", 1, 1), RequeuingTimestamp::Eviction));
    assert_eq!(pending.head(), Some(&Key::new("ns", "c")));
    pending.remove(&Key::new("ns", "c"));
    pending.flush_capacity();
    assert_eq!(pending.head(), Some(&Key::new("ns", "a")));
}
