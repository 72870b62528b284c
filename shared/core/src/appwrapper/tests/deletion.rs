//! Deletion, gracefully and forcefully.

use super::world::{World, component, secs};
use crate::appwrapper::observed::{Nature, Origin, PodPhase};
use crate::appwrapper::status::Phase;

fn leaving(force_after: i64) -> World {
    let mut world = World::running().tuned(|k| k.force_after = secs(force_after));
    let name = world.pods[0].name.clone();
    world.stubborn.insert(name);
    world.deleting = true;
    world.settle();
    world
}

/// Spec: appwrapper B86, B87, B88, B90, N-14.
#[test]
fn pods_that_do_not_leave_are_forced_after_the_grace() {
    let mut world = leaving(10);
    assert_eq!(world.said("DeletingResources"), "True/DeletionInitiated/");
    assert_eq!(world.deleted, ["child-0"]);
    world.after(9);
    assert!(!world.gone && world.deleted.len() == 1);
    world.after(1);
    assert!(world.gone);
    assert!(world.told("Still there 10s after their deletion began"));
}

/// Spec: appwrapper B89.
#[test]
fn a_child_that_stays_is_deleted_again_once_its_pods_are_gone() {
    let mut world = World::running().tuned(|k| k.force_after = secs(10));
    world.hung.insert(0);
    world.deleting = true;
    world.pass();
    world.pods.clear();
    world.after(9);
    assert_eq!(world.deleted, ["child-0"]);
    world.hung.clear();
    world.after(1);
    assert!(world.gone);
    assert_eq!(world.deleted, ["child-0", "child-0"]);
}

/// Spec: appwrapper B91, B94.
#[test]
fn all_children_are_deleted_in_one_step_and_said_to_be_gone() {
    let mut world = World::new([component(Nature::Counted, &[1]), component(Nature::Counted, &[1])]);
    world.settle();
    world.suspended = true;
    world.pass();
    world.pass();
    assert_eq!(world.deleted, ["child-0", "child-1"]);
    world.settle();
    world.is(Phase::Suspended);
    for index in 0..2 {
        assert_eq!(world.component_said(index), "False/CompononetDeleted");
    }
}

/// Spec: appwrapper B93.
#[test]
fn one_clock_runs_through_suspension_and_deletion() {
    let mut world = World::running().tuned(|k| k.force_after = secs(300));
    let name = world.pods[0].name.clone();
    world.stubborn.insert(name);
    world.suspended = true;
    world.settle();
    world.after(240);
    world.deleting = true;
    world.after(59);
    assert!(!world.gone);
    world.after(1);
    assert!(world.gone);
}

/// Spec: appwrapper N-26.
#[test]
fn what_cannot_be_listed_is_not_gone() {
    let mut world = World::running();
    world.unread = Some("500".to_owned());
    world.deleting = true;
    world.pass();
    world.pods.clear();
    world.after(100);
    assert!(!world.gone && world.holds_quota());
    world.unread = None;
    world.settle();
    assert!(world.gone);
}

/// Spec: appwrapper B88.
#[test]
fn a_pod_with_the_label_holds_deletion_up_whoever_made_it() {
    let mut world = World::running();
    let pod = world.pod(0, PodPhase::Running);
    pod.origin = Origin::Stray;
    let name = pod.name.clone();
    world.deleting = true;
    world.settle();
    assert!(!world.gone && world.holds_quota());
    world.after(600);
    assert!(world.gone && world.deleted.contains(&name));
}
