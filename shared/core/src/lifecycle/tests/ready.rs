//! Waiting for pods.

use jiff::SignedDuration;

use super::super::*;
use super::world::{NOW, World, admission, at, job, pending, ready_job};
use crate::preempt::PreemptReason;
use crate::status::Requeue;

const NOT_READY: &str = "Not all pods are ready or succeeded";
const READY: &str = "All pods reached readiness and the workload is running";
const LOST: &str = "At least one pod has failed, waiting for recovery";
const TIMED_OUT: &str = "Exceeded the PodsReady timeout lab/job-a";

fn wait(limit_count: Option<u32>, max_secs: u32) -> Policy {
    Policy {
        pods_ready: Some(WaitForPods {
            timeout: SignedDuration::from_secs(300),
            recovery: Some(SignedDuration::from_secs(30)),
            limit_count,
            base_secs: 60,
            max_secs,
        }),
        ..Policy::default()
    }
}

/// Times out, stops, and comes back; returns the pause until it came back.
fn time_out(world: &mut World) -> i64 {
    world.now += 300;
    world.pass();
    world.check_true("Evicted", "PodsReadyTimeout", TIMED_OUT);
    let until = world.workload.status.requeue.unwrap().at.unwrap();
    let pause = until.duration_since(at(world.now)).as_secs();
    world.job = job(false, true);
    world.pass();
    world.check_false("Requeued", "PodsReadyTimeout", TIMED_OUT);
    world.now += pause;
    world.pass();
    world.check_true("Requeued", "BackoffFinished", "The workload backoff was finished");
    pause
}

/// Spec: admission-engine B180, B181, B042.
#[test]
fn a_job_whose_pods_do_not_start_is_evicted_and_waits_longer_each_time() {
    let mut world = World::admitted_under(wait(None, 3600));
    world.check_false("PodsReady", "WaitForStart", NOT_READY);
    let (next, _) = world.pass();
    assert_eq!(next.wake_at, Some(at(NOW + 300)));
    let mut pauses = vec![time_out(&mut world)];
    for round in 2..=3 {
        world.admit();
        pauses.push(time_out(&mut world));
        assert_eq!(world.workload.status.requeue.unwrap().count, Some(round));
    }
    assert_eq!(pauses, [60, 120, 240]);
    let key = ("PodsReadyTimeout".to_owned(), "WaitForStart".to_owned());
    assert_eq!(world.workload.status.evictions, [(key, 3)].into());
}

/// Spec: admission-engine B181.
#[test]
fn the_pause_has_an_upper_bound() {
    let mut world = World::admitted_under(wait(None, 100));
    assert_eq!(time_out(&mut world), 60);
    world.admit();
    assert_eq!(time_out(&mut world), 100);
}

/// Spec: admission-engine B182, B183.
#[test]
fn too_many_returns_deactivate() {
    for limit in [0, 2] {
        let mut world = World::admitted_under(wait(Some(limit), 3600));
        for _ in 0..limit {
            time_out(&mut world);
            world.admit();
        }
        world.now += 300;
        let (next, _) = world.pass();
        assert_eq!(next.active, Activation::Deactivate, "limit {limit}");
        let why = "exceeding the maximum number of re-queuing retries";
        world.check_true("DeactivationTarget", "RequeuingLimitExceeded", why);
        world.workload.active = false;
        world.pass();
        world.check_true(
            "Evicted",
            "DeactivatedDueToRequeuingLimitExceeded",
            &format!("The workload is deactivated due to {why}"),
        );
        assert_eq!(world.workload.status.requeue, None, "a new life starts at zero");
        let key = ("Deactivated".to_owned(), "RequeuingLimitExceeded".to_owned());
        assert_eq!(world.workload.status.evictions[&key], 1);
    }
}

/// Spec: admission-engine B184; jobs 5.12.
#[test]
fn a_lost_pod_has_its_own_time_to_recover() {
    let mut world = World::admitted_under(wait(None, 3600));
    world.now += 10;
    world.job = ready_job();
    let (next, _) = world.pass();
    world.check_true("PodsReady", "Started", READY);
    assert_eq!(next.wake_at, None);
    assert!(world.workload.pods_ready());

    world.now += 1_000;
    world.job = job(true, false);
    world.pass();
    world.check_false("PodsReady", "WaitForRecovery", LOST);
    let (next, _) = world.pass();
    assert_eq!(next.wake_at, Some(at(world.now + 30)));
    world.now += 20;
    world.job = ready_job();
    world.pass();
    world.check_true("PodsReady", "Recovered", READY);

    world.job = job(true, false);
    world.pass();
    world.now += 30;
    world.pass();
    world.check_true("Evicted", "PodsReadyTimeout", TIMED_OUT);
    let key = ("PodsReadyTimeout".to_owned(), "WaitForRecovery".to_owned());
    assert_eq!(world.workload.status.evictions, [(key, 1)].into());
}

#[test]
fn who_became_ready_just_before_a_late_look_is_not_evicted() {
    let mut world = World::admitted_under(wait(Some(0), 3600));
    world.now += 10_000;
    world.job = ready_job();
    let (next, _) = world.pass();
    assert_eq!(next.active, Activation::Keep);
    world.check_true("PodsReady", "Started", READY);
}

/// Spec: admission-engine B184.
#[test]
fn without_a_recovery_timeout_a_lost_pod_is_never_a_reason() {
    let mut policy = wait(None, 3600);
    if let Some(wait) = &mut policy.pods_ready {
        wait.recovery = None;
    }
    let mut world = World::admitted_under(policy);
    world.job = ready_job();
    world.pass();
    world.job = job(true, false);
    world.pass();
    world.now += 1_000_000;
    let (next, _) = world.pass();
    assert_eq!(next.wake_at, None);
    assert!(!world.workload.is_evicted());
}

/// Spec: admission-engine B176.
#[test]
fn evictions_are_counted_by_reason_and_cause() {
    let mut world = World::admitted_under(wait(None, 3600));
    for _ in 0..2 {
        world.proposal = Some(Proposal::Evict {
            reason: "Preempted",
            preempted_reason: PreemptReason::InCohortFairSharing,
            message: "p".to_owned(),
            priorities: String::new(),
        });
        world.pass();
        world.job = job(false, true);
        world.pass();
        world.admit();
    }
    time_out(&mut world);
    let count = |reason: &str, cause: &str| {
        let key = (reason.to_owned(), cause.to_owned());
        world.workload.status.evictions.get(&key).copied()
    };
    assert_eq!(count("Preempted", ""), Some(2));
    assert_eq!(count("PodsReadyTimeout", "WaitForStart"), Some(1));
}

/// Spec: admission-engine 4.1.
#[test]
fn readiness_keeps_the_count_and_reactivation_clears_it() {
    let mut world = World::admitted_under(wait(None, 3600));
    time_out(&mut world);
    world.admit();
    world.job = ready_job();
    world.pass();
    assert_eq!(world.workload.status.requeue.unwrap().count, Some(1));
    world.workload.active = false;
    world.pass();
    world.workload.active = true;
    world.pass();
    assert_eq!(world.workload.status.requeue, None);
}

/// The last moment that can be represented, and the largest numbers of the API.
#[test]
fn the_end_of_time_is_no_obstacle() {
    let mut world = World::admitted_under(Policy {
        pods_ready: Some(WaitForPods {
            timeout: SignedDuration::MAX,
            recovery: None,
            limit_count: None,
            base_secs: u32::MAX,
            max_secs: u32::MAX,
        }),
        ..Policy::default()
    });
    let (next, _) = world.pass();
    assert_eq!(next.wake_at, Some(Timestamp::MAX));
    world.now = Timestamp::MAX.as_second();
    if let Some(wait) = &mut world.policy.pods_ready {
        wait.timeout = SignedDuration::ZERO;
    }
    world.workload.status.requeue = Some(Requeue {
        count: Some(u32::MAX),
        at: None,
    });
    world.pass();
    world.check_true("Evicted", "PodsReadyTimeout", TIMED_OUT);
    assert_eq!(world.workload.status.requeue.unwrap().at, Some(Timestamp::MAX));
}

/// Spec: admission-engine B185.
#[test]
fn before_admission_the_pods_are_not_ready_and_off_means_nothing_is_told() {
    let mut world = World::new();
    world.policy = wait(None, 3600);
    world.job = ready_job();
    world.proposal = Some(pending(
        "WaitingForPodsReady",
        "waiting for all admitted workloads to be in PodsReady condition",
    ));
    world.pass();
    world.check_false("PodsReady", "WaitForStart", NOT_READY);
    assert!(!world.workload.pods_ready());

    let mut off = World::admitted();
    off.job = ready_job();
    off.now += 1_000_000;
    let (next, _) = off.pass();
    assert!(off.workload.status.conditions.get("PodsReady").is_none());
    assert_eq!(next.wake_at, None);
    assert_eq!(off.workload.status.admission, Some(admission("spot")));
}
