//! The administrator's pause of admission.

use super::*;

/// Spec: design (the administrator's pause).
#[test]
fn nothing_is_admitted_before_the_start_is_told_or_while_paused() {
    let mut state = State::new(Settings::default());
    state.apply(Event::Workload(Box::new(asks("a", 1, 1))), at(1));
    assert_eq!(state.cycle(at(1)), []);
    assert!(!state.has_work());

    let mut world = World::new(cores(4));
    world.tell(Event::Paused(Pace::Paused));
    world.put(asks("a", 1, 1));
    let paused = "AdmissionPaused Admission is paused by the administrator (admission.paused)";
    assert_eq!(world.run(), [format!("a: {paused}")]);
    assert_eq!(world.run(), [""; 0], "it is told once");
    world.tell(Event::Paused(Pace::Running));
    assert_eq!(world.run(), ["a: reserved"]);
}

/// Spec: design (the administrator's pause).
#[test]
fn what_waits_is_told_when_admission_pauses_and_when_it_goes_on() {
    let mut world = strict(1);
    for (name, at) in [("a", 1), ("b", 2), ("c", 3)] {
        world.put(asks(name, at, 1));
    }
    world.run();
    world.tell(Event::Paused(Pace::Paused));
    let told = world.run();
    let is_told = |name: &str| {
        told.iter()
            .any(|line| line.starts_with(&format!("{name}: AdmissionPaused")))
    };
    assert!(is_told("b") && is_told("c") && !is_told("a"), "{told:?}");
    world.tell(Event::Paused(Pace::Running));
    let told = world.run();
    assert!(
        told.iter().any(|line| line.starts_with("c: PendingEvaluation")),
        "{told:?}"
    );

    let mut elsewhere = World::new(cores(4));
    elsewhere.tell(Event::Paused(Pace::Elsewhere));
    elsewhere.put(asks("a", 1, 1));
    assert_eq!(elsewhere.run(), [""; 0], "the other process says why");
}
