//! The way from the first look to the end.

use super::world::{World, component};
use crate::appwrapper::observed::{Child, Nature, Origin, PodPhase, Role, Verdict};
use crate::appwrapper::status::{FINISHED, Phase};

/// Spec: appwrapper B43, B44, B45.
#[test]
fn enough_pods_that_run_or_have_succeeded_are_ready() {
    let mut world = World::new([component(Nature::Counted, &[2])]);
    world.settle();
    world.pod(0, PodPhase::Running);
    world.pod(0, PodPhase::Pending);
    world.settle();
    assert!(world.said("PodsReady").starts_with("False"));
    world.is(Phase::Running);
    world.pods[1].phase = PodPhase::Succeeded;
    world.settle();
    assert_eq!(
        world.said("PodsReady"),
        "True/SufficientPodsReady/1 pods running; 1 pods succeeded"
    );
}

/// Spec: appwrapper B46, B47, B48.
#[test]
fn success_is_when_the_last_pod_has_ended() {
    let mut world = World::new([component(Nature::Endless, &[]), component(Nature::Counted, &[2])]);
    world.settle();
    world.pod(1, PodPhase::Succeeded);
    world.pod(1, PodPhase::Running);
    world.settle();
    world.is(Phase::Running);
    world.all_pods(PodPhase::Succeeded);
    world.settle();
    world.is(Phase::Succeeded);
    let message = "2 pods succeeded and no running, pending, or failed pods";
    assert_eq!(world.said("QuotaReserved"), format!("False/Succeeded/{message}"));
    assert_eq!(
        world.said("ResourcesDeployed"),
        format!("True/Succeeded/{message}")
    );
    assert!(world.deleted.is_empty());
}

/// A `TrainJob` is an example: its runtime, another component, has the templates of its pods.
///
/// Spec: appwrapper N-35.
#[test]
fn pods_of_a_component_without_pod_sets_count_for_the_others() {
    let mut world = World::new([component(Nature::Counted, &[2]), component(Nature::Reports, &[])]);
    world.settle();
    world.pod(1, PodPhase::Running);
    world.pod(1, PodPhase::Running);
    world.settle();
    assert!(world.said("PodsReady").starts_with("True"));
    world.report(1, Verdict::Succeeded);
    world.settle();
    world.is(Phase::Running);
    world.all_pods(PodPhase::Succeeded);
    world.settle();
    world.is(Phase::Succeeded);
}

/// Spec: appwrapper B49, B50, N-10.
#[test]
fn children_outlive_success_by_their_time_to_live() {
    let day = 24 * 3_600;
    let mut world = World::running();
    world.after(8 * day);
    world.all_pods(PodPhase::Succeeded);
    world.settle();
    world.is(Phase::Succeeded);
    world.suspended = true;
    world.after(7 * day - 1);
    assert!(world.deleted.is_empty() && matches!(world.components[0].child, Child::Present { .. }));
    world.after(1);
    world.is(Phase::Succeeded);
    assert_eq!(
        world.said("ResourcesDeployed"),
        "False/Succeeded/Time to live after success of 168h0m0s expired"
    );
    assert_eq!(world.components[0].child, Child::Missing);
    assert!(!world.gone);
}

/// Spec: appwrapper B51, B52, B55.
#[test]
fn suspension_takes_everything_away_before_quota_is_given_back() {
    let mut world = World::running();
    let name = world.pods[0].name.clone();
    world.stubborn.insert(name);
    world.suspended = true;
    world.settle();
    world.is(Phase::Suspending);
    assert!(world.told("Externally suspended while in the Running phase"));
    assert!(world.holds_quota());
    world.suspended = false;
    world.after(60);
    world.is(Phase::Suspending);
    world.suspended = true;
    world.stubborn.clear();
    world.settle();
    world.is(Phase::Suspended);
    for kind in ["QuotaReserved", "ResourcesDeployed"] {
        assert_eq!(world.said(kind), "False/Suspended/Suspend is true");
    }
    assert_eq!(world.said("PodsReady"), "False/Suspended/Suspend is true");
    assert_eq!(world.said("DeletingResources"), "False/DeletionComplete/");
    world.suspended = false;
    world.settle();
    world.is(Phase::Running);
    assert_eq!(world.creations, [0, 0]);
}

/// Spec: appwrapper B56, B57.
#[test]
fn a_deleted_one_goes_when_nothing_of_it_remains() {
    let mut world = World::running();
    let name = world.pods[0].name.clone();
    world.stubborn.insert(name);
    world.deleting = true;
    world.settle();
    world.is(Phase::Terminating);
    assert!(world.holds_quota() && !world.gone);
    world.stubborn.clear();
    world.settle();
    assert!(world.gone);
    assert_eq!(
        world.said("QuotaReserved"),
        "False/Terminating/No resources deployed"
    );

    let mut world = World::new([component(Nature::Counted, &[1])]);
    world.suspended = true;
    world.settle();
    world.deleting = true;
    assert!(
        world
            .plan_with(&std::collections::BTreeMap::new())
            .remove
            .is_empty()
    );
    assert!(!world.finalizer);
}

/// Spec: appwrapper B85.
#[test]
fn what_expects_no_pods_has_succeeded() {
    let mut world = World::new([component(Nature::Endless, &[0])]);
    world.settle();
    world.is(Phase::Succeeded);
}

/// Spec: appwrapper N-27, N-28.
#[test]
fn what_reports_its_end_is_believed_rather_than_its_pods() {
    let mut world = World::new([component(Nature::Reports, &[2])]);
    world.settle();
    world.pod(0, PodPhase::Failed);
    world.pod(0, PodPhase::Succeeded);
    world.pod(0, PodPhase::Succeeded);
    world.after(600);
    world.is(Phase::Running);
    assert!(world.said("Unhealthy").starts_with("False"));
    world.report(0, Verdict::Succeeded);
    world.settle();
    world.is(Phase::Succeeded);
}

/// Spec: appwrapper N-29, N-31.
#[test]
fn what_has_succeeded_may_vanish_while_others_work() {
    let mut world = World::new([component(Nature::Reports, &[1]), component(Nature::Reports, &[1])]);
    world.settle();
    world.pod(0, PodPhase::Succeeded);
    world.pod(1, PodPhase::Running);
    world.report(0, Verdict::Succeeded);
    world.settle();
    let finished = world.status.components[0].conditions.when_true(FINISHED).unwrap();
    assert_eq!(finished.reason, "SucceededAndPodsEnded");
    world.vanish(0);
    world.after(600);
    world.is(Phase::Running);
    world.report(1, Verdict::Succeeded);
    world.pods.clear();
    world.settle();
    world.is(Phase::Succeeded);
}

/// Spec: appwrapper N-20.
#[test]
fn quota_is_kept_until_the_pods_of_what_has_succeeded_have_ended() {
    let mut world = World::new([component(Nature::Reports, &[2])]);
    world.settle();
    world.pod(0, PodPhase::Succeeded);
    world.pod(0, PodPhase::Running);
    world.report(0, Verdict::Succeeded);
    world.settle();
    world.is(Phase::Running);
    assert!(world.holds_quota() && world.deleted.is_empty());
    world.after(60);
    assert_eq!(world.deleted, ["child-0"]);
    world.is(Phase::Succeeded);
    assert_eq!(world.said("DeletingResources"), "False/DeletionComplete/");
}

/// Spec: appwrapper 8.2.
#[test]
fn services_are_stopped_when_the_others_are_done() {
    let mut world = World::new([component(Nature::Endless, &[1]), component(Nature::Reports, &[1])]);
    world.components[0].role = Role::Service;
    world.settle();
    let name = world.pod(0, PodPhase::Running).name.clone();
    world.stubborn.insert(name);
    world.pod(1, PodPhase::Running);
    world.settle();
    world.is(Phase::Running);
    world.report(1, Verdict::Succeeded);
    world.pods[1].phase = PodPhase::Succeeded;
    world.settle();
    world.is(Phase::Running);
    assert_eq!(world.deleted, ["child-0"]);
    assert!(world.holds_quota());
    assert!(
        world
            .said("DeletingResources")
            .starts_with("True/DeletionInitiated")
    );
    world.after(600);
    world.is(Phase::Succeeded);
    assert!(!world.holds_quota() && world.told("grace period 0"));
}

#[test]
fn an_endless_component_that_is_no_service_keeps_it_running() {
    let mut world = World::new([component(Nature::Endless, &[1]), component(Nature::Reports, &[1])]);
    world.settle();
    world.pod(0, PodPhase::Running);
    world.pod(1, PodPhase::Succeeded);
    world.report(1, Verdict::Succeeded);
    world.after(600);
    world.is(Phase::Running);
    assert!(world.holds_quota());
}

/// Spec: appwrapper 8.1.
#[test]
fn a_pod_that_only_bears_the_label_does_not_count() {
    let mut world = World::running();
    world.pod(0, PodPhase::Failed).origin = Origin::Stray;
    world.after(600);
    world.is(Phase::Running);
    assert!(world.said("Unhealthy").starts_with("False"));
    world.pods[0].phase = PodPhase::Succeeded;
    world.settle();
    world.is(Phase::Succeeded);
}
