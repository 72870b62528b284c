//! Old objects are deleted, once.

use jiff::SignedDuration;

use super::super::*;
use super::ended;
use super::world::{NOW, World, at, job};

fn keep(after_finished: Option<i64>, after_deactivated: Option<i64>) -> Policy {
    Policy {
        retention: Retention {
            after_finished: after_finished.map(SignedDuration::from_secs),
            after_deactivated: after_deactivated.map(SignedDuration::from_secs),
        },
        ..Policy::default()
    }
}

/// Spec: admission-engine B187.
#[test]
fn a_finished_workload_is_deleted_after_its_time_at_once_or_never() {
    let finished = |after| {
        let mut world = World::admitted_under(keep(after, None));
        ended(&mut world, true);
        world.pass();
        world
    };
    let mut world = finished(Some(3600));
    let (next, _) = world.pass();
    assert_eq!(
        (next.removal, next.wake_at),
        (Removal::Nothing, Some(at(NOW + 3600)))
    );
    world.now += 3600;
    let (next, _) = world.pass();
    assert_eq!(next.removal, Removal::Workload);
    assert_eq!(next.finalizer, Finalizer::Drop, "it must be able to go");
    let note = next.removal.note().unwrap();
    assert_eq!(
        note,
        Note::normal("Deleted", "Deleted finished workload due to elapsed retention")
    );

    assert_eq!(finished(Some(0)).pass().0.removal, Removal::Workload);
    let mut kept = finished(None);
    kept.now += 1_000_000;
    let (next, _) = kept.pass();
    assert_eq!((next.removal, next.wake_at), (Removal::Nothing, None));
    let mut going = finished(Some(0));
    going.workload.deleting = true;
    assert_eq!(going.pass().0.removal, Removal::Nothing, "it goes already");
}

/// On a manager the Workload ends before the end of its job was copied.
#[test]
fn a_finished_workload_is_kept_until_its_job_has_ended() {
    let mut world = World::admitted_under(keep(Some(0), None));
    ended(&mut world, true);
    world.pass();
    world.job = job(true, false);
    assert_eq!(world.pass().0.removal, Removal::Nothing);
    for gone in [JobFacts::Awaited, JobFacts::Unknown, JobFacts::OwnerGone] {
        world.job = gone;
        assert_eq!(world.pass().0.removal, Removal::Workload);
    }
}

/// Spec: admission-engine B188; jobs 5.16.
#[test]
fn a_job_is_deleted_after_a_deactivation_that_its_user_did_not_ask_for() {
    let deactivated = |target: Option<&'static str>| {
        let mut world = World::admitted_under(keep(None, Some(600)));
        if let Some(reason) = target {
            let conditions = &mut world.workload.status.conditions;
            conditions.set(DEACTIVATION_TARGET, Truth::True, reason, "m", at(NOW));
        }
        world.workload.active = false;
        world.job = job(false, true);
        world.pass();
        world
    };
    let mut world = deactivated(Some("RequeuingLimitExceeded"));
    let (next, _) = world.pass();
    assert_eq!(
        (next.removal, next.wake_at),
        (Removal::Nothing, Some(at(NOW + 600)))
    );
    world.now += 600;
    let (next, _) = world.pass();
    assert_eq!(next.removal, Removal::Job);
    let note = next.removal.note().unwrap();
    assert_eq!(
        note,
        Note::normal("Deleted", "Deleted job: deactivation retention period expired")
    );
    world.workload.active = true;
    assert_eq!(
        world.pass().0.removal,
        Removal::Nothing,
        "it was switched on again"
    );

    let mut by_user = deactivated(None);
    by_user.now += 1_000_000;
    let (next, _) = by_user.pass();
    assert_eq!((next.removal, next.wake_at), (Removal::Nothing, None));
}
