//! Admission that waits until pods are ready.

use super::{Settings, ready, world_with};
use crate::condition::Truth;
use crate::state::Blocking;
use crate::state::fixtures::{finish, in_cohort};

const WAITS: &str = "WaitingForPodsReady waiting for all admitted workloads to be in PodsReady condition";

/// Spec: admission-engine 4.1, B185.
#[test]
fn nobody_is_served_while_somebody_served_is_not_ready() {
    let settings = Settings {
        blocking: Blocking::UntilPodsReady,
        ..Settings::default()
    };
    let mut world = world_with(settings, vec![in_cohort("a", "x", 4), in_cohort("b", "y", 4)]);
    world.ask("a", "first", (0, 1_000));
    world.ask("b", "second", (0, 1_000));
    world.ask("b", "third", (0, 1_000));
    assert_eq!(
        world.run(),
        ["first: reserved".to_owned(), format!("second: {WAITS}")]
    );
    assert_eq!(world.run(), [""; 0]);
    ready(&mut world, "first", Truth::True);
    assert_eq!(
        world.run(),
        ["second: reserved".to_owned(), format!("third: {WAITS}")]
    );
    ready(&mut world, "second", Truth::True);
    ready(&mut world, "first", Truth::False);
    assert_eq!(world.run(), [""; 0], "one that was ready holds others back again");
    world.edit("first", finish);
    assert_eq!(world.run(), ["third: reserved"]);
}
