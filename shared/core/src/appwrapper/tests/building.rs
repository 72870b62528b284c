//! Creation of children.

use super::world::{World, component};
use crate::appwrapper::observed::{Child, Created, Nature, Stranger};
use crate::appwrapper::status::{ComponentStatus, Phase};

fn three() -> World {
    World::new([Nature::Counted, Nature::Counted, Nature::Counted].map(|nature| component(nature, &[1])))
}

/// Spec: appwrapper B5, B39, B40.
#[test]
fn what_is_suspended_has_component_statuses_and_nothing_else() {
    let mut world = World::new([component(Nature::Counted, &[]), component(Nature::Reports, &[2])]);
    world.suspended = true;
    world.settle();
    world.is(Phase::Suspended);
    assert_eq!(world.status.conditions.iter().count(), 0);
    let expected: Vec<u32> = world
        .status
        .components
        .iter()
        .map(ComponentStatus::expected)
        .collect();
    assert_eq!(expected, [0, 2]);
    assert_eq!(world.status.components[0].identity.name, "");
    assert!(!world.finalizer && world.creations.is_empty());
}

/// Spec: appwrapper B41, B42.
#[test]
fn the_finalizer_and_all_names_are_stored_before_the_first_child() {
    let mut world = three();
    world.pass();
    world.is(Phase::Suspended);
    world.pass();
    world.is(Phase::Resuming);
    assert!(world.finalizer && world.creations.is_empty());
    for (kind, truth) in [
        ("QuotaReserved", "True"),
        ("ResourcesDeployed", "True"),
        ("PodsReady", "False"),
        ("Unhealthy", "False"),
    ] {
        assert_eq!(world.said(kind), format!("{truth}/Resuming/Suspend is false"));
    }
    assert_eq!(world.status.components[2].identity.name, "child-2");
    assert_eq!(world.component_said(2), "Unknown/ComponentCreationInitiated");
    world.pass();
    world.is(Phase::Running);
    assert_eq!(world.creations, [0, 1, 2]);
    assert_eq!(world.component_said(2), "True/ComponentCreatedSuccessfully");
}

/// Spec: appwrapper B32, B37, B38.
#[test]
fn creation_goes_on_where_it_stopped() {
    let mut world = three();
    world.answers.insert(1, Created::Retryable("quota".to_owned()));
    let wake = world.settle_for_creation();
    world.is(Phase::Resuming);
    assert_eq!(world.component_said(0), "True/ComponentCreatedSuccessfully");
    assert_eq!(world.component_said(1), "False/ComponentCreationErrored");
    assert_eq!(wake, 1, "tried again after a second");
    world.answers.clear();
    world.after(30);
    world.is(Phase::Running);
    assert_eq!(world.creations.iter().filter(|index| **index == 0).count(), 1);
    assert_eq!(world.status.retries, 0);
}

/// Spec: appwrapper B37.
#[test]
fn creation_that_fails_beyond_the_admission_grace_is_a_fault() {
    let mut world = three();
    world.answers.insert(1, Created::Retryable("quota".to_owned()));
    world.settle_for_creation();
    world.now = world
        .now
        .checked_add(jiff::SignedDuration::from_secs(60))
        .unwrap();
    world.pass();
    world.is(Phase::Resetting);
    assert_eq!(world.status.retries, 1);
    assert_eq!(
        world.said("Unhealthy"),
        "True/CreateFailed/error creating components: quota"
    );
    assert!(world.told("CreateFailed: error creating components: quota"));
}

/// Spec: appwrapper B26, B35, B36.
#[test]
fn what_can_never_be_created_fails_at_once_and_earlier_children_go() {
    let mut world = three();
    world.answers.insert(1, Created::Fatal("no such kind".to_owned()));
    world.settle();
    world.is(Phase::Failed);
    assert_eq!(world.status.retries, 0);
    assert_eq!(world.deleted, ["child-0"]);
    assert_eq!(
        world.said("ResourcesDeployed"),
        "False/Failed/Resources deleted for failed AppWrapper"
    );
    assert_eq!(world.said("QuotaReserved"), "False/Failed/No resources deployed");
    world.deleting = true;
    world.settle();
    assert!(world.gone);
}

/// Spec: appwrapper B34, B92, N-32.
#[test]
fn a_stranger_of_the_same_name_is_never_touched() {
    let mut world = three();
    world.components[1].child = Child::Foreign(Stranger::Other);
    world.settle();
    world.is(Phase::Failed);
    assert!(
        world
            .said("Unhealthy")
            .contains("resource child-1 exists, but is not controlled by appwrapper")
    );
    world.deleting = true;
    world.settle();
    assert!(world.gone);
    assert_eq!(world.deleted, ["child-0"]);
    assert_eq!(world.components[1].child, Child::Foreign(Stranger::Other));
}

/// Spec: appwrapper 1.7, N-26.
#[test]
fn what_may_have_been_created_is_not_gone_before_it_was_read() {
    let check = |answer: Created, gone: bool| {
        let mut world = three();
        world.answers.insert(1, answer);
        world.settle_for_creation();
        world.components[1].child = Child::Unread("forbidden".to_owned());
        world.deleting = true;
        for _ in 0..5 {
            world.pass();
            world.leave();
        }
        assert_eq!(world.gone, gone);
    };
    check(Created::Unclear("timeout".to_owned()), false);
    check(Created::Retryable("forbidden".to_owned()), true);
}

/// Spec: appwrapper N-4.
#[test]
fn what_a_predecessor_leaves_behind_is_waited_for() {
    let mut world = three();
    world.components[0].child = Child::Foreign(Stranger::Predecessor);
    world.settle();
    world.is(Phase::Resuming);
    world.components[0].child = Child::Missing;
    world.after(30);
    world.is(Phase::Running);
}

/// Spec: appwrapper B33, B59.
#[test]
fn a_child_that_is_there_after_a_crash_is_adopted() {
    let mut world = three();
    world.pass();
    world.pass();
    world.create(&[0]);
    world.settle();
    world.is(Phase::Running);
    assert_eq!(world.creations, [0, 1, 2]);
}

/// Spec: appwrapper B53.
#[test]
fn suspension_does_not_wait_for_the_admission_grace() {
    let mut world = three();
    world.answers.insert(1, Created::Retryable("quota".to_owned()));
    world.settle_for_creation();
    world.suspended = true;
    world.settle();
    world.is(Phase::Suspended);
    assert!(world.told("Externally suspended while in the Resuming phase"));
    assert!(!world.holds_quota());
}

impl World {
    /// Passes until creation is tried a second time; returns the seconds until the next try.
    fn settle_for_creation(&mut self) -> i64 {
        for _ in 0..2 {
            self.pass();
        }
        let (_, wake) = self.pass();
        wake.map_or(-1, |at| at.duration_since(self.now).as_secs())
    }
}
