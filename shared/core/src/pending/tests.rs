use super::{AgeRule, Lack, Needs, Pending, Rank, ReclaimedAge, RequeuingTimestamp, Stance, Ticket, Wait};
use crate::afs::Score;
use crate::class::ClassId;
use crate::condition::Truth;
use crate::flavor::Category;
use crate::hierarchy::{FlavorResource, Forest};
use crate::state::fixtures::{asks, at};
use crate::table::WorkloadId;
use crate::workload::Workload;

fn evicted(mut workload: Workload, reason: &'static str, second: i64) -> Workload {
    let conditions = &mut workload.status.conditions;
    conditions.set("Evicted", Truth::True, reason, "", at(second));
    workload
}

fn rank(number: u32, workload: &Workload, age: AgeRule) -> Rank {
    Rank::of(WorkloadId::nth(number), workload, age)
}

fn check_first(first: &Workload, second: &Workload, age: AgeRule) {
    assert!(rank(2, first, age) < rank(1, second, age), "{age:?}");
}

/// Spec: admission-engine 1.2, B027, B028.
#[test]
fn priority_comes_before_age_and_age_before_uid() {
    let age = AgeRule::default();
    let mut urgent = asks("p10", 2, 1);
    urgent.priority = 10;
    check_first(&urgent, &asks("p0", 1, 1), age);
    check_first(&asks("z", 1, 1), &asks("a", 2, 1), age);
    check_first(&asks("a", 1, 1), &asks("b", 1, 1), age);
}

/// Spec: admission-engine 1.2, B029, B030, B031.
#[test]
fn evictions_move_a_workload_back_only_for_some_reasons() {
    let (old, newer) = (asks("w1", 0, 1), asks("w2", 50, 1));
    for (reason, timestamp, back) in [
        ("PodsReadyTimeout", RequeuingTimestamp::Eviction, true),
        ("PodsReadyTimeout", RequeuingTimestamp::Creation, false),
        ("AdmissionCheck", RequeuingTimestamp::Eviction, true),
        ("AdmissionCheck", RequeuingTimestamp::Creation, true),
        ("Preempted", RequeuingTimestamp::Eviction, false),
    ] {
        let age = AgeRule {
            timestamp,
            ..AgeRule::default()
        };
        let evicted = evicted(old.clone(), reason, 100);
        if back {
            check_first(&newer, &evicted, age);
        } else {
            check_first(&evicted, &newer, age);
        }
    }
}

/// Spec: admission-engine 1.2 (queue-order timestamp, item 3).
#[test]
fn without_priority_in_the_cohort_a_reclaimed_borrower_goes_behind() {
    let mut old = evicted(asks("w1", 0, 1), "Preempted", 100);
    let reason = "InCohortReclaimWhileBorrowing";
    let conditions = &mut old.status.conditions;
    conditions.set("Preempted", Truth::True, reason, "", at(100));
    let newer = asks("w2", 50, 1);
    check_first(&old, &newer, AgeRule::default());
    let renewed = AgeRule {
        reclaimed: ReclaimedAge::Renewed,
        ..AgeRule::default()
    };
    check_first(&newer, &old, renewed);
}

/// Ticket of workload `number`: older ones have smaller numbers.
fn ticket(number: u32, class: u32) -> Ticket {
    let workload = asks(&format!("w{number}"), i64::from(number), 1);
    Ticket {
        rank: rank(number, &workload, AgeRule::default()),
        class: ClassId::nth(class),
        line: None,
    }
}

fn cpu() -> FlavorResource {
    Forest::default().pair(&"default".into(), &"cpu".into())
}

fn head(pending: &Pending) -> Option<WorkloadId> {
    let head = pending.head(|_| Score::ZERO).map(Rank::id);
    head.filter(|id| pending.stance(*id).is_none())
}

fn lacks(amount: i128) -> Wait {
    let lack = Lack {
        pair: cpu(),
        after: amount,
        needed: amount,
    };
    Wait::Capacity(Needs::AnyOf(vec![lack]), Category::WaitingForQuota)
}

/// This amount became free and is available.
fn gain(pending: &mut Pending, amount: i128) {
    for class in pending.thirsty(cpu(), amount) {
        pending.wake(class.kind);
    }
}

/// Spec: admission-engine 1.5, 10.1 (equal requests share one fate; a class that lacks more sleeps on).
#[test]
fn released_quota_wakes_one_workload_per_class_and_the_next_after_it_was_served() {
    let [a, b, d] = [ticket(1, 0), ticket(2, 0), ticket(4, 0)];
    let (c, mut pending) = (ticket(3, 1), Pending::default());
    pending.park(&a, lacks(1));
    pending.join(&b);
    pending.join(&d);
    pending.park(&c, lacks(7));
    assert_eq!((head(&pending), pending.parked_count()), (None, 4));

    gain(&mut pending, 6);
    gain(&mut pending, 6);
    assert_eq!(pending.parked_count(), 3, "one of the class that lacked no more");
    assert_eq!(head(&pending), Some(a.rank.id()));
    pending.remove(&a);
    assert_eq!(head(&pending), Some(b.rank.id()));

    assert!(pending.leave_heap(&b));
    pending.park(&b, lacks(9));
    assert_eq!(head(&pending), None, "b failed for d, too");
    assert!(pending.is_hopeless(&d));
    gain(&mut pending, 8);
    assert_eq!(head(&pending), Some(c.rank.id()));
    pending.flush_all();
    assert_eq!((pending.len(), pending.parked_count()), (3, 0));
}

/// Spec: admission-engine 1.5 (what became free is compared with what is available).
#[test]
fn who_finds_too_little_sleeps_until_more_has_come_free() {
    let (a, b, mut pending) = (ticket(1, 0), ticket(2, 1), Pending::default());
    pending.park(&a, lacks(2));
    pending.park(&b, lacks(3));
    let thirsty: Vec<_> = { pending.thirsty(cpu(), 2).into_iter() }
        .map(|class| (class.needed, class.kind))
        .collect();
    assert_eq!(thirsty, [(2, (a.class, None))]);
    pending.postpone((a.class, None), cpu(), 5);
    assert_eq!(pending.thirsty(cpu(), 4).len(), 1, "only the other one");
    assert_eq!(pending.class_counts(), (0, 2));
    gain(&mut pending, 5);
    assert_eq!(pending.parked_count(), 0);
    assert_eq!(pending.class_counts(), (2, 0));
    assert_eq!(pending.hopes(&a).map(|lacks| lacks[0].needed), Some(2));
    pending.remove(&a);
    assert_eq!(pending.hopes(&a), None, "no member is left to be spared a try");
}

#[test]
fn whom_anything_may_help_is_woken_by_anything() {
    let (a, mut pending) = (ticket(1, 0), Pending::default());
    pending.park(&a, Wait::Capacity(Needs::Anything, Category::WaitingForQuota));
    gain(&mut pending, 100);
    assert_eq!(head(&pending), None);
    pending.stir();
    assert_eq!(head(&pending), Some(a.rank.id()));
}

/// Spec: admission-engine 1.3.
#[test]
fn a_blocked_head_is_head_again_after_a_release_and_a_better_one_passes_it() {
    let mut pending = Pending::default();
    let [c, a, b] = [ticket(1, 0), ticket(5, 0), ticket(9, 0)];
    pending.push(&a);
    pending.block(a.rank.id(), Stance::Waits);
    assert_eq!(head(&pending), None);
    pending.push(&b);
    assert_eq!(head(&pending), None);
    pending.push(&c);
    assert_eq!(head(&pending), Some(c.rank.id()));
    pending.remove(&c);
    pending.stir();
    assert_eq!(head(&pending), Some(a.rank.id()));
}

/// Spec: admission-engine 1.6.
#[test]
fn the_sticky_one_is_first_until_it_leaves() {
    let mut pending = Pending::default();
    let [first, second] = [ticket(1, 0), ticket(2, 1)];
    pending.push(&first);
    pending.push(&second);
    pending.stick(&second);
    assert_eq!(head(&pending), Some(second.rank.id()));
    pending.unstick(first.rank.id());
    assert!(pending.is_sticky(second.rank.id()));
    pending.remove(&second);
    assert_eq!(head(&pending), Some(first.rank.id()));
    assert!(!pending.is_sticky(second.rank.id()));
}
