//! The older reasons of the reference.

use super::super::*;
use super::world::{NOW, World, at, job};

fn shown(world: &World, before: &Status, kind: &str) -> Option<(Truth, String)> {
    let mut next = Next {
        status: world.workload.status.clone(),
        active: Activation::Keep,
        notes: vec![
            Note::warning("WaitingForQuota", "m"),
            Note::normal("Suspended", "m"),
        ],
        wake_at: None,
        finalizer: Finalizer::Keep,
        removal: Removal::Nothing,
    };
    use_older_words(before, &mut next);
    let reasons: Vec<&str> = next.notes.iter().map(|note| note.reason.as_ref()).collect();
    assert_eq!(reasons, ["Pending", "Suspended"], "only what warns of waiting");
    let condition = next.status.conditions.get(kind)?;
    Some((condition.truth, condition.reason.to_string()))
}

/// Spec: api API-9.6
#[test]
fn what_waits_is_told_in_the_words_of_before_where_the_gate_is_off() {
    let told = |reason: &'static str, message: &str| {
        let mut world = World::new();
        let conditions = &mut world.workload.status.conditions;
        conditions.set(QUOTA_RESERVED, Truth::False, reason, message, at(NOW));
        shown(&world, &Status::default(), QUOTA_RESERVED).unwrap().1
    };
    for (reason, message, older) in [
        ("WaitingForQuota", "", "Pending"),
        ("ExceedsMaxQuota", "", "Pending"),
        ("WaitingForPreemptedWorkloads", "", "Pending"),
        ("PendingEvaluation", "", "Pending"),
        ("WaitingForPodsReady", "", "Waiting"),
        ("Suspended", "ClusterQueue cq is inactive", "Inadmissible"),
        ("Misconfigured", "LocalQueue lq doesn't exist", "Inadmissible"),
        (
            "Misconfigured",
            "workload namespace doesn't match ClusterQueue selector",
            "Pending",
        ),
        ("AdmissionGated", "", "AdmissionGated"),
        ("Pending", "", "Pending"),
    ] {
        assert_eq!(told(reason, message), older, "{reason} {message}");
    }
}

/// Spec: api API-9.6
#[test]
fn only_the_loss_of_an_admission_is_told_in_the_words_of_before() {
    let mut world = World::new();
    let conditions = &mut world.workload.status.conditions;
    conditions.set(ADMITTED, Truth::False, "NoReservation", "m", at(NOW));
    assert_eq!(
        shown(&world, &Status::default(), ADMITTED),
        None,
        "never admitted"
    );

    let admitted = World::admitted().workload.status;
    let (truth, reason) = shown(&world, &admitted, ADMITTED).unwrap();
    assert_eq!((truth, reason.as_str()), (Truth::False, "NoReservation"));
    world
        .workload
        .status
        .checks
        .insert("c".into(), CheckState::pending(at(1)));
    let (_, reason) = shown(&world, &admitted, ADMITTED).unwrap();
    assert_eq!(reason, "NoReservationUnsatisfiedChecks");

    let mut told = Status::default();
    told.conditions
        .set(ADMITTED, Truth::False, "UnsatisfiedChecks", "m", at(1));
    world.job = job(false, true);
    let (_, reason) = shown(&world, &told, ADMITTED).unwrap();
    assert_eq!(reason, "UnsatisfiedChecks", "and stays as it was told");
}
