mod core;
mod older;
mod preempt;
mod queues;
mod ready;
mod replaced;
mod retire;
mod retries;
mod stability;
mod world;

use self::world::{NOW, World, admission, at, ended, job, pending, queue, reserve, texts};
use super::*;
use crate::amount::Amount;
use crate::name::{CheckName, ClusterName, PodSetName};
use crate::status::{CheckState, Requeue};

/// Spec: admission-engine 2.13.
#[test]
fn without_checks_reservation_and_admission_are_one_write() {
    let mut world = World::new();
    world.proposal = Some(reserve("spot"));
    let (_, notes) = world.pass();
    world.check_true(
        "QuotaReserved",
        "QuotaReserved",
        "Quota reserved in ClusterQueue team",
    );
    world.check_true("Admitted", "Admitted", "The workload is admitted");
    assert_eq!(world.workload.status.admission, Some(admission("spot")));
    assert_eq!(
        texts(&notes),
        [
            (
                "QuotaReserved",
                "Quota reserved in ClusterQueue team, wait time since queued was 100s"
            ),
            (
                "Admitted",
                "Admitted by ClusterQueue team, wait time since reservation was 0s"
            ),
        ]
    );
}

#[test]
fn nothing_is_written_before_anything_is_decided() {
    let mut world = World::new();
    world.queue = Some(queue(&[("c", &[])]));
    world.pass();
    assert_eq!(world.workload.status, Status::default());
}

/// Spec: admission-engine 2.15, 3.2.
#[test]
fn a_pending_reason_lists_the_checks_that_cover_all_flavors() {
    let mut world = World::new();
    world.queue = Some(queue(&[
        ("all", &[]),
        ("both", &["fixed", "spot"]),
        ("one", &["spot"]),
    ]));
    world.proposal = Some(pending("WaitingForQuota", "insufficient quota"));
    let (_, notes) = world.pass();
    world.check_false("QuotaReserved", "WaitingForQuota", "insufficient quota");
    world.has_no_reservation();
    assert_eq!(world.checks(), ["all", "both"]);
    assert_eq!(notes, [Note::warning("WaitingForQuota", "insufficient quota")]);
    world.proposal = Some(pending("WaitingForQuota", "less is missing"));
    let (_, notes) = world.pass();
    assert_eq!(notes, [], "another sentence for the same reason is no event");
    world.check_false("QuotaReserved", "WaitingForQuota", "less is missing");
}

/// Spec: admission-engine B167, B168; provisioning 15.23, 15.47, 15.48.
#[test]
fn checks_follow_the_assigned_flavors_and_hold_admission_back() {
    let mut world = World::new();
    world.queue = Some(queue(&[("all", &[]), ("one", &["spot"]), ("other", &["fixed"])]));
    world.verdict("other", CheckPhase::Pending, "", None);
    world.proposal = Some(reserve("spot"));
    world.pass();
    assert_eq!(world.checks(), ["all", "one"]);
    world.check_false(
        "Admitted",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    );
    world.verdict("all", CheckPhase::Ready, "", None);
    world.pass();
    assert!(!world.workload.is_admitted(), "one of two is not enough");
    world.verdict("one", CheckPhase::Ready, "", None);
    world.pass();
    world.check_true("Admitted", "Admitted", "The workload is admitted");
}

/// Spec: provisioning 9.
#[test]
fn a_check_that_appears_later_does_not_take_admission_away() {
    let mut world = World::admitted();
    world.queue = Some(queue(&[("new", &[])]));
    world.pass();
    assert!(world.workload.is_admitted());
    assert_eq!(world.workload.status.checks.len(), 1);
}

/// Spec: admission-engine B169, B042; multikueue 11.108; provisioning 15.27, 15.28, 15.30, 15.36.
#[test]
fn a_retry_evicts_waits_for_the_job_and_then_for_the_back_off() {
    let mut world = World::new();
    world.queue = Some(queue(&[("chk", &[])]));
    world.reserve();
    world.verdict("chk", CheckPhase::Ready, "", None);
    world.workload.status.cluster = Some(ClusterName::from("w1"));
    world.pass();
    world.job = job(true, false);
    world.now += 10;
    world.verdict("chk", CheckPhase::Retry, "no room", Some(30));
    let (_, notes) = world.pass();
    let message = "Evicted due to AdmissionCheck in Retry state: \"chk\" (no room)";
    world.check_true("Evicted", "AdmissionCheck", message);
    assert_eq!(texts(&notes), [("EvictedDueToAdmissionCheck", message)]);
    let check = &world.workload.status.checks[&CheckName::from("chk")];
    assert_eq!(check.phase, CheckPhase::Pending);
    assert_eq!(
        check.message,
        "Reset to Pending after eviction. Previously: Retry"
    );
    assert_eq!((check.retry_count, check.requeue_after_secs), (Some(1), Some(30)));
    assert_eq!(world.workload.status.requeue.unwrap().at, Some(at(NOW + 40)));
    assert_eq!(world.workload.status.cluster, None);
    assert_eq!(
        world.workload.status.evictions,
        [(("AdmissionCheck".to_owned(), String::new()), 1)].into()
    );
    assert!(world.workload.has_quota(), "quota is kept while pods run");

    world.job = job(true, true);
    world.pass();
    assert!(world.workload.has_quota(), "still pods");
    world.job = job(false, true);
    let (next, _) = world.pass();
    world.check_false("QuotaReserved", "PendingEvaluation", message);
    world.has_no_reservation();
    world.check_false("Requeued", "AdmissionCheck", message);
    world.check_true("Evicted", "AdmissionCheck", message);
    assert_eq!(next.finalizer, Finalizer::Keep);
    assert_eq!(world.workload.status.admission, None);
    assert_eq!(world.workload.status.accumulated_secs, Some(10));
    assert_eq!(next.wake_at, Some(at(NOW + 40)));

    world.now = NOW + 40;
    world.pass();
    world.check_true("Requeued", "BackoffFinished", "The workload backoff was finished");
    assert_eq!(world.workload.status.requeue, None);

    world.proposal = Some(reserve("spot"));
    let (_, notes) = world.pass();
    world.check_false("Evicted", "QuotaReserved", &format!("Previously: {message}"));
    assert_eq!(
        texts(&notes)[0].1,
        "Quota reserved in ClusterQueue team, wait time since queued was 0s"
    );
}

/// Spec: provisioning 7.
#[test]
fn several_verdicts_are_told_together() {
    let mut status = Status::default();
    for (name, message) in [("b", ""), ("a", "m1")] {
        let mut check = CheckState::pending(at(1));
        check.phase = CheckPhase::Retry;
        check.message = message.to_owned();
        status.checks.insert(CheckName::from(name), check);
    }
    let text = checks::text_of(&status, CheckPhase::Retry).unwrap();
    assert_eq!(text, "AdmissionChecks in Retry state: \"a\" (m1); \"b\"");
    assert_eq!(checks::text_of(&status, CheckPhase::Rejected), None);
}

/// Spec: admission-engine B170, B171; multikueue 11.46; provisioning 15.32, 15.38.
#[test]
fn a_rejection_deactivates_even_beside_a_retry() {
    let mut world = World::new();
    world.queue = Some(queue(&[("no", &[]), ("later", &[])]));
    world.reserve();
    world.verdict("no", CheckPhase::Rejected, "never", None);
    world.verdict("later", CheckPhase::Retry, "not now", None);
    let (next, notes) = world.pass();
    assert_eq!(next.active, Activation::Deactivate);
    let text = "AdmissionCheck in Rejected state: \"no\" (never)";
    world.check_true("DeactivationTarget", "AdmissionCheck", text);
    assert_eq!(
        notes,
        [Note::warning(
            "AdmissionCheckRejected",
            format!("Deactivated due to {text}")
        )]
    );
    assert!(!world.workload.is_evicted());

    world.workload.active = false;
    let (next, notes) = world.pass();
    assert_eq!(next.active, Activation::Keep);
    let message = format!("The workload is deactivated due to {text}");
    world.check_true("Evicted", "DeactivatedDueToAdmissionCheck", &message);
    assert_eq!(
        texts(&notes),
        [("EvictedDueToDeactivatedDueToAdmissionCheck", message.as_str())]
    );
    assert!(
        world
            .workload
            .status
            .conditions
            .get("DeactivationTarget")
            .is_none()
    );
    assert!(!world.workload.has_quota(), "the job never ran");
    world.check_false("Requeued", "DeactivatedDueToAdmissionCheck", &message);
    let key = ("Deactivated".to_owned(), "AdmissionCheck".to_owned());
    assert_eq!(world.workload.status.evictions, [(key, 1)].into());

    world.workload.active = true;
    world.pass();
    world.check_true("Requeued", "Reactivated", "The workload was reactivated");
}

/// Spec: admission-engine B174.
#[test]
fn a_user_switches_it_off_and_on() {
    let mut world = World::admitted();
    world.workload.active = false;
    world.pass();
    world.check_true("Evicted", "Deactivated", "The workload is deactivated");
    assert!(world.workload.has_quota());
    world.job = job(false, true);
    world.pass();
    assert!(!world.workload.has_quota());
    world.workload.active = true;
    world.pass();
    world.check_true("Requeued", "Reactivated", "The workload was reactivated");
}

/// Spec: admission-engine 3.5.
#[test]
fn a_pending_one_that_is_switched_off_keeps_out_of_the_queue() {
    let mut world = World::new();
    world.workload.active = false;
    world.workload.status.requeue = Some(Requeue {
        count: Some(2),
        at: Some(at(NOW + 5)),
    });
    world.pass();
    world.check_false("Requeued", "Deactivated", "The workload is deactivated");
    assert_eq!(world.workload.status.requeue, None);
    world.proposal = Some(reserve("spot"));
    world.pass();
    assert!(!world.workload.has_quota());
}

/// Spec: multikueue 3.8, 11.106.
#[test]
fn a_manager_evicts_by_naming_the_target() {
    let mut world = World::admitted();
    let message = "Evicted on manager: The ClusterQueue is stopped";
    world.workload.status.conditions.set(
        "DeactivationTarget",
        Truth::True,
        "EvictedOnManagerCluster",
        message,
        at(NOW),
    );
    let (next, _) = world.pass();
    assert_eq!(next.active, Activation::Deactivate);
    assert!(!world.workload.is_evicted(), "first one, then the other");
    world.workload.active = false;
    world.pass();
    world.check_true(
        "Evicted",
        "DeactivatedDueToEvictedOnManagerCluster",
        &format!("The workload is deactivated due to {message}"),
    );
}

/// Spec: admission-engine B047.
#[test]
fn draining_evicts_and_resuming_requeues() {
    for local in [false, true] {
        let mut world = World::admitted();
        let set = |world: &mut World, stop| {
            if local {
                world.local_stop = Some(stop);
            } else {
                world.queue.as_mut().unwrap().stop = stop;
            }
        };
        let kind = if local { "LocalQueue" } else { "ClusterQueue" };
        set(&mut world, StopPolicy::Hold);
        world.pass();
        assert!(!world.workload.is_evicted(), "admitted ones run on");
        set(&mut world, StopPolicy::HoldAndDrain);
        world.pass();
        let message = format!("The {kind} is stopped");
        world.check_true("Evicted", &format!("{kind}Stopped"), &message);
        world.job = job(false, true);
        world.pass();
        world.check_false("Requeued", &format!("{kind}Stopped"), &message);
        set(&mut world, StopPolicy::None);
        world.pass();
        world.check_true(
            "Requeued",
            &format!("{kind}Restarted"),
            &format!("The {kind} was restarted after being stopped"),
        );
    }
}

/// Spec: admission-engine B186.
#[test]
fn execution_time_is_counted_over_all_admissions() {
    let mut world = World::admitted();
    world.workload.max_execution_secs = Some(100);
    let (next, _) = world.pass();
    assert_eq!(next.wake_at, Some(at(NOW + 100)));
    world.now += 60;
    let conditions = &mut world.workload.status.conditions;
    conditions.set("Evicted", Truth::True, "Preempted", "p", at(world.now));
    conditions.set("Preempted", Truth::True, "InClusterQueue", "p", at(world.now));
    world.job = job(false, true);
    world.pass();
    assert_eq!(world.workload.status.accumulated_secs, Some(60));
    world.check_true("Requeued", "Preempted", "p");

    world.now += 1_000;
    world.proposal = Some(reserve("spot"));
    world.pass();
    world.check_false("Preempted", "QuotaReserved", "Previously: p");
    world.proposal = None;
    world.job = job(true, false);
    let (next, _) = world.pass();
    assert_eq!(next.wake_at, Some(at(world.now + 40)));
    world.now += 40;
    let (next, notes) = world.pass();
    assert_eq!(next.active, Activation::Deactivate);
    assert_eq!(
        notes,
        [Note::warning(
            "MaximumExecutionTimeExceeded",
            "The maximum execution time (100s) exceeded"
        )]
    );
    world.check_true(
        "DeactivationTarget",
        "MaximumExecutionTimeExceeded",
        "exceeding the maximum execution time",
    );
    world.workload.active = false;
    world.job = job(false, true);
    world.pass();
    world.check_true(
        "Evicted",
        "DeactivatedDueToMaximumExecutionTimeExceeded",
        "The workload is deactivated due to exceeding the maximum execution time",
    );
    assert_eq!(
        world.workload.status.accumulated_secs, None,
        "a new life starts with a full span"
    );
}

/// Spec: admission-engine B175; jobs 5.10, 5.3 A5; multikueue 11.107; provisioning 15.26.
#[test]
fn it_finishes_with_its_job_once() {
    let check = |change: fn(&mut World), reason: &str, message: &str| {
        let mut world = World::admitted();
        change(&mut world);
        let (next, _) = world.pass();
        world.check_true("Finished", reason, message);
        assert_eq!(next.finalizer, Finalizer::Keep);
        world.now += 5;
        let (next, _) = world.pass();
        assert_eq!(next.finalizer, Finalizer::Drop);
        world.job = job(true, false);
        world.request = Some(Request::OutOfSync);
        world.pass();
        world.check_true("Finished", reason, message);
    };
    check(|w| ended(w, true), "Succeeded", "done");
    check(|w| ended(w, false), "Failed", "exit 1");
    check(
        |w| w.job = JobFacts::OwnerGone,
        "OwnerNotFound",
        "The workload's owner no longer exists",
    );
    check(
        |w| w.request = Some(Request::OutOfSync),
        "OutOfSync",
        "The prebuilt workload is out of sync with its user job",
    );
    let refused: fn(&mut World) = |w| {
        w.request = Some(Request::FailedToStart {
            message: "conflict".to_owned(),
        });
    };
    check(refused, "FailedToStart", "conflict");
}

#[test]
fn a_remote_copy_without_a_job_releases_quota_at_once() {
    let mut world = World::admitted();
    world.job = JobFacts::Awaited;
    world.queue.as_mut().unwrap().stop = StopPolicy::HoldAndDrain;
    world.pass();
    assert!(world.workload.is_evicted());
    assert!(!world.workload.has_quota());
}

/// Spec: admission-engine 3.3, 3.4.
#[test]
fn a_workload_without_a_known_job_keeps_its_quota_until_its_controller_gives_it_back() {
    for deactivated in [false, true] {
        let mut world = World::admitted();
        world.job = JobFacts::Unknown;
        if deactivated {
            world.workload.active = false;
        } else {
            world.queue.as_mut().unwrap().stop = StopPolicy::HoldAndDrain;
        }
        world.pass();
        world.pass();
        assert!(world.workload.is_evicted() && world.workload.has_quota());
        let status = &mut world.workload.status;
        assert!(status.admission.is_some());
        status.admission = None;
        { &mut status.conditions }.set(
            QUOTA_RESERVED,
            Truth::False,
            "Pending",
            "its pods are gone",
            at(NOW),
        );
        world.pass();
        assert!(!world.workload.has_quota() && !world.workload.is_admitted());
    }
}

/// Spec: jobs 5.1 row 11; multikueue 11.105.
#[test]
fn a_deleted_one_is_let_go_when_its_job_is_at_rest() {
    let mut world = World::admitted();
    world.workload.deleting = true;
    assert_eq!(world.pass().0.finalizer, Finalizer::Keep);
    world.job = job(false, true);
    assert_eq!(world.pass().0.finalizer, Finalizer::Drop);
    world.job = JobFacts::OwnerGone;
    assert_eq!(world.pass().0.finalizer, Finalizer::Drop);
    assert!(!world.workload.is_finished());
    // The end comes while the job is being stopped.
    ended(&mut world, true);
    assert_eq!(world.pass().0.finalizer, Finalizer::Drop);
}

/// Spec: safety 1 I11, W9
#[test]
fn a_finished_one_that_ran_elsewhere_stays_until_its_job_shows_its_end() {
    let mut world = World::admitted();
    world.set(FINISHED, Truth::True, "Succeeded", "");
    world.job = job(true, false);
    assert_eq!(world.pass().0.finalizer, Finalizer::Drop, "it ran here");
    world.workload.status.cluster = Some("east".into());
    assert_eq!(world.pass().0.finalizer, Finalizer::Keep);
    world.workload.deleting = true;
    assert_eq!(world.pass().0.finalizer, Finalizer::Keep);
    world.job = JobFacts::OwnerGone;
    assert_eq!(world.pass().0.finalizer, Finalizer::Drop);
}

/// Spec: jobs 5.11; admission-engine B195.
#[test]
fn reclaimable_counts_only_grow_while_quota_is_held() {
    let mut world = World::admitted();
    let running = |count| JobFacts::Present {
        finished: None,
        active: true,
        suspended: false,
        ready: false,
        reclaimable: [(PodSetName::from("main"), count), ("ghost".into(), 1)].into(),
        missing: None,
    };
    for (seen, told) in [(1, 1), (2, 2), (1, 2), (9, 3)] {
        world.job = running(seen);
        world.pass();
        assert_eq!(world.workload.status.reclaimable, [("main".into(), told)].into());
    }
}

/// Spec: admission-engine 4.6.
#[test]
fn reclaimable_pods_lower_what_a_pending_one_asks_for_unless_the_gate_is_off() {
    for (reclaim, asked) in [(Reclaim::Count, 1000), (Reclaim::Ignore, 3000)] {
        let mut world = World::new();
        world.policy.reclaim = reclaim;
        world.workload.pod_sets[0].requests = [("cpu".into(), Amount::new(1000))].into();
        world.job = JobFacts::Present {
            finished: None,
            active: false,
            suspended: true,
            ready: false,
            reclaimable: [(PodSetName::from("main"), 2)].into(),
            missing: None,
        };
        world.proposal = Some(pending("WaitingForQuota", "w"));
        world.pass();
        let told = [("main".into(), [("cpu".into(), Amount::new(asked))].into())];
        assert_eq!(world.workload.status.requests, told.into());
        world.proposal = Some(reserve("spot"));
        world.pass();
        assert!(
            world.workload.status.requests.is_empty(),
            "resourceUsage tells it now"
        );
    }
}

/// Spec: admission-engine 2.13.
#[test]
fn the_event_of_a_reservation_tells_which_flavors_were_considered() {
    let mut world = World::new();
    world.proposal = Some(Proposal::Reserve {
        admission: admission("fixed"),
        considered: "main: spot(NoFit), fixed(Fit)".to_owned(),
    });
    let (_, notes) = world.pass();
    assert_eq!(
        notes[0].message,
        "Quota reserved in ClusterQueue team, wait time since queued was 100s; \
         Flavors considered: main: spot(NoFit), fixed(Fit)"
    );
}

#[test]
fn a_reservation_from_an_older_view_is_not_taken() {
    let check = |change: fn(&mut World)| {
        let mut world = World::new();
        world.proposal = Some(reserve("spot"));
        change(&mut world);
        world.pass();
        assert!(!world.workload.has_quota());
    };
    check(|w| w.queue = None);
    check(|w| w.local_stop = None);
    check(|w| w.workload.gated_by = "x.io/a".to_owned());
    check(|w| w.workload.active = false);
    check(|w| w.workload.deleting = true);
    check(|w| w.workload.pod_sets.clear());
    check(|w| w.queue.as_mut().unwrap().name = "other".into());
    let busy: fn(&mut World) = |w| {
        w.workload.status.requeue = Some(Requeue {
            count: None,
            at: Some(at(NOW + 1)),
        });
    };
    check(busy);
}
