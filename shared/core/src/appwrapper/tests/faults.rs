//! Faults and retries.

use std::collections::BTreeSet;

use super::world::{World, component, secs};
use crate::appwrapper::observed::{Child, Nature, PodPhase, Verdict};
use crate::appwrapper::settings::Knobs;
use crate::appwrapper::status::Phase;
use crate::name::ResourceName;

fn failing(tune: impl FnOnce(&mut Knobs)) -> World {
    let mut world = World::running().tuned(tune);
    world.all_pods(PodPhase::Failed);
    world.settle();
    world
}

/// Spec: appwrapper B60, B61.
#[test]
fn a_failed_pod_has_its_grace_to_be_replaced() {
    let mut world = failing(|_| ());
    assert_eq!(world.said("Unhealthy"), "True/FoundFailedPods/");
    world.after(59);
    world.is(Phase::Running);
    world.all_pods(PodPhase::Running);
    world.settle();
    assert_eq!(world.said("Unhealthy"), "False/FoundNoFailedPods/");
    world.all_pods(PodPhase::Failed);
    world.after(30);
    world.after(59);
    world.is(Phase::Running);
    world.after(1);
    world.is(Phase::Resetting);
    assert!(world.told("FoundFailedPods: 1 failed pods"));
    assert_eq!(world.status.retries, 1);
}

/// Spec: appwrapper B62, B63, B72.
#[test]
fn it_is_tried_again_as_often_as_it_may() {
    let mut world = World::new([component(Nature::Reports, &[1])]).tuned(|k| k.retry_limit = 2);
    for attempt in 0..3 {
        world.settle();
        world.is(Phase::Running);
        assert_eq!(world.status.retries, attempt);
        world.pod(0, PodPhase::Failed);
        world.report(0, Verdict::Failed);
        world.settle();
        assert_eq!(
            world.said("Unhealthy"),
            "True/FailedComponent/Found 1 failed components"
        );
        if attempt < 2 {
            world.is(Phase::Resetting);
            assert!(world.holds_quota());
            assert_eq!(
                world.said("ResourcesDeployed"),
                "False/Resetting/Resources deleted for resetting AppWrapper"
            );
            world.after(90);
            assert_eq!(
                world.said("ResourcesDeployed"),
                "True/Resuming/Reset complete; resuming"
            );
        }
    }
    world.is(Phase::Failed);
    assert_eq!(world.status.retries, 2);
    assert!(world.told("Failed after 2 retries: FailedComponent"));

    let mut world = failing(|k| (k.retry_limit, k.failure_grace) = (0, secs(0)));
    world.settle();
    world.is(Phase::Failed);
    assert_eq!(world.status.retries, 0);
}

/// Spec: appwrapper B65, B66.
#[test]
fn a_component_that_failed_has_no_grace() {
    let mut world = World::new([component(Nature::Reports, &[1])]);
    world.settle();
    world.report(0, Verdict::Failed);
    world.pass();
    world.is(Phase::Resetting);
    assert!(world.told("FailedComponent: Found 1 failed components"));
}

/// Spec: appwrapper B68, B69.
#[test]
fn a_missing_or_leaving_child_is_final() {
    let check = |change: fn(&mut World)| {
        let mut world = World::running();
        change(&mut world);
        world.pass();
        world.is(Phase::Failed);
        assert_eq!(
            world.said("Unhealthy"),
            "True/MissingComponent/Only found 0 deployed components, but was expecting 1"
        );
        assert_eq!(world.status.retries, 0);
    };
    check(|world| world.vanish(0));
    check(|world| {
        let Child::Present { leaving, .. } = &mut world.components[0].child else {
            panic!()
        };
        *leaving = true;
    });
}

/// The watch of pods is ahead of the watch of children: it shows the child, a pod, as failed because it is being deleted.
///
/// Spec: appwrapper B68, B69.
#[test]
fn a_child_pod_that_is_deleted_is_missing_and_has_not_failed() {
    let mut world = World::running().tuned(|k| k.failure_grace = secs(0));
    let Child::Present { uid, .. } = world.components[0].child.clone() else {
        panic!()
    };
    let pod = &mut world.pods[0];
    (pod.uid, pod.phase, pod.leaving) = (uid, PodPhase::Failed, true);
    world.pass();
    world.is(Phase::Failed);
    assert_eq!(world.status.retries, 0);
    assert!(world.said("Unhealthy").starts_with("True/MissingComponent/"));
}

/// Spec: appwrapper 2.3 T10, N-6, N-30.
#[test]
fn what_cannot_be_read_decides_nothing() {
    let mut world = World::running();
    world.components[0].child = Child::Unread("timeout".to_owned());
    let plan = world.plan_with(&std::collections::BTreeMap::new());
    assert_eq!(plan.problems, ["timeout"]);
    assert_eq!(plan.status, world.status);
}

/// Spec: appwrapper B70, B71, B45, B78.
#[test]
fn missing_pods_have_the_admission_grace_and_waiting_ones_the_warm_up() {
    let mut world = World::new([component(Nature::Counted, &[2])]);
    world.settle();
    world.pod(0, PodPhase::Running);
    world.after(59);
    world.is(Phase::Running);
    world.after(1);
    world.is(Phase::Resetting);
    assert_eq!(
        world.said("Unhealthy"),
        "True/InsufficientPodsReady/0 pods pending; 1 pods running; 0 pods succeeded"
    );
    let mut world = World::new([component(Nature::Counted, &[2])])
        .tuned(|k| (k.warmup_grace, k.admission_grace, k.retry_limit) = (secs(10), secs(5), 1));
    for phase in [Phase::Resetting, Phase::Failed] {
        world.settle();
        world.pod(0, PodPhase::Running);
        world.pod(0, PodPhase::Pending);
        world.after(9);
        world.is(Phase::Running);
        world.after(1);
        world.is(phase);
        world.after(90);
    }
    let mut world = World::running();
    world.stubborn.insert(world.pods[0].name.clone());
    world.pods[0].leaving = true;
    world.settle();
    assert!(world.said("PodsReady").starts_with("False/InsufficientPodsReady"));
}

/// Spec: appwrapper N-12.
#[test]
fn a_pod_that_is_lost_later_may_come_back() {
    let mut world = World::running();
    world.after(10_000);
    let pod = world.pods.pop().unwrap();
    world.settle();
    assert_eq!(
        world.said("PodsReady"),
        "False/InsufficientPodsReady/0 pods pending; 0 pods running; 0 pods succeeded"
    );
    world.after(299);
    world.is(Phase::Running);
    world.pods.push(pod);
    world.settle();
    assert!(world.said("PodsReady").starts_with("True"));
    world.pods.clear();
    world.after(10);
    world.after(299);
    world.is(Phase::Running);
    world.after(1);
    world.is(Phase::Resetting);
}

/// Spec: appwrapper B73, N-11.
#[test]
fn the_pause_begins_when_the_last_pod_is_gone_and_a_new_attempt_has_its_own_grace() {
    let mut world = failing(|_| ());
    let name = world.pods[0].name.clone();
    world.stubborn.insert(name);
    world.after(60);
    world.is(Phase::Resetting);
    world.after(300);
    world.stubborn.clear();
    world.after(5);
    world.after(89);
    assert_eq!(world.creations, [0]);
    world.after(1);
    world.is(Phase::Running);
    assert_eq!(world.creations, [0, 0]);
    world.pod(0, PodPhase::Failed);
    world.settle();
    world.after(59);
    world.is(Phase::Running);
    world.after(1);
    world.is(Phase::Resetting);
}

/// Spec: appwrapper B74, B75, B76, B77.
#[test]
fn exit_codes_decide_whether_a_retry_can_help() {
    let check = |terminal: &[i32], retryable: &[i32], code: i32, phase: Phase| {
        let mut world = failing(|k| {
            k.terminal_codes = terminal.iter().copied().collect();
            k.retryable_codes = retryable.iter().copied().collect();
        });
        world.pods[0].exit_codes = BTreeSet::from([code]);
        world.settle();
        world.is(Phase::Running);
        world.after(60);
        world.is(phase);
    };
    check(&[3, 10, 42], &[], 42, Phase::Failed);
    check(&[3, 10, 42], &[], 4, Phase::Resetting);
    check(&[], &[10, 20], 20, Phase::Resetting);
    check(&[], &[10, 20], 1, Phase::Failed);
    check(&[3, 10, 42], &[10, 20], 10, Phase::Failed);
    check(&[], &[], 1, Phase::Resetting);
}

/// Spec: appwrapper B79, B80, B81, N-9.
#[test]
fn the_children_of_a_failed_one_are_kept_as_long_as_asked() {
    let mut world = failing(|k| (k.deletion_on_failure, k.retry_limit) = (secs(300), 0));
    world.after(60);
    world.is(Phase::Failed);
    assert_eq!(world.said("PodsReady"), "False/Failed/");
    assert_eq!(
        world.said("DeletingResources"),
        "False/DeletionPaused/workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration has value 5m0s"
    );
    world.after(299);
    assert!(world.deleted.is_empty() && world.holds_quota());
    world.after(1);
    assert_eq!(world.deleted, ["child-0"]);
    assert_eq!(world.said("QuotaReserved"), "False/Failed/No resources deployed");

    let mut world = failing(|k| (k.deletion_on_failure, k.retry_limit) = (secs(300), 0));
    world.after(60);
    world.suspended = true;
    world.settle();
    assert_eq!(
        world.said("ResourcesDeployed"),
        "False/Failed/Kueue forced resource deletion by suspending AppWrapper"
    );
}

/// Spec: appwrapper N-13.
#[test]
fn the_delay_before_deletion_is_counted_from_the_failure() {
    let mut world = failing(|k| (k.deletion_on_failure, k.retry_limit) = (secs(300), 1));
    world.after(60);
    world.after(90);
    world.is(Phase::Running);
    world.pod(0, PodPhase::Failed);
    world.after(1_000);
    world.after(60);
    world.is(Phase::Failed);
    let before = world.deleted.len();
    world.after(299);
    assert_eq!(world.deleted.len(), before);
    world.after(1);
    assert_eq!(world.deleted.len(), before + 1);
}

/// Spec: appwrapper B58.
#[test]
fn deletion_does_not_wait_for_the_delay() {
    let mut world = failing(|k| (k.deletion_on_failure, k.retry_limit) = (secs(300), 0));
    world.after(60);
    world.deleting = true;
    world.settle();
    assert!(world.gone);
}

/// Spec: appwrapper B54.
#[test]
fn suspension_ends_the_pause_and_keeps_the_count() {
    let mut world = failing(|_| ());
    world.after(60);
    world.is(Phase::Resetting);
    world.suspended = true;
    world.settle();
    world.is(Phase::Suspended);
    assert!(world.told("Externally suspended while in the Resetting phase"));
    world.suspended = false;
    world.settle();
    world.is(Phase::Running);
    assert_eq!(world.status.retries, 1);
}

/// Spec: appwrapper B115, B117, B118, N-19.
#[test]
fn pods_that_use_what_a_node_must_not_run_are_moved_without_a_retry_being_counted() {
    let gpu = || BTreeSet::from([ResourceName::from("nvidia.com/gpu")]);
    let mut world = World::running();
    world.evict.insert("node".to_owned(), gpu());
    world.settle();
    world.is(Phase::Running);
    world.pods[0].resources = gpu();
    world.settle();
    world.is(Phase::Resetting);
    assert_eq!(
        world.said("Unhealthy"),
        "True/AutopilotNoExecute/Workload contains pods using NoExecute resources on Nodes: node"
    );
    assert!(world.holds_quota());
    world.after(90);
    world.is(Phase::Running);
    assert_eq!(world.status.retries, 0);

    let mut world = World::running().tuned(|k| k.retry_limit = 0);
    world.evict.insert("node".to_owned(), gpu());
    world.pods[0].resources = gpu();
    world.settle();
    world.is(Phase::Failed);
}
