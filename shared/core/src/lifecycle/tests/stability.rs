//! What holds for any world.

use proptest::prelude::*;

use super::super::*;
use super::world::{NOW, World, admission, at, job, queue, workload};
use crate::name::CheckName;
use crate::status::{CheckState, Requeue};

fn truth() -> impl Strategy<Value = Option<Truth>> {
    prop::sample::select(vec![None, Some(Truth::True), Some(Truth::False)])
}

fn reason() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "Preempted",
        "AdmissionCheck",
        "Deactivated",
        "DeactivatedDueToAdmissionCheck",
        "ClusterQueueStopped",
        "LocalQueueStopped",
        "PodsReadyTimeout",
    ])
}

fn stop() -> impl Strategy<Value = StopPolicy> {
    prop::sample::select(vec![StopPolicy::None, StopPolicy::Hold, StopPolicy::HoldAndDrain])
}

prop_compose! {
    fn any_status()(
        kinds in prop::collection::vec((
            prop::sample::select(vec![
                QUOTA_RESERVED, ADMITTED, EVICTED, PREEMPTED, REQUEUED, FINISHED, DEACTIVATION_TARGET,
            ]),
            truth(),
            reason(),
            0..NOW,
        ), 0..8),
        phases in prop::collection::vec(
            (prop::sample::select(vec!["a", "b", "c"]), 0..4_usize, prop::option::of(0..2_000_u32)),
            0..3,
        ),
        requeue in prop::option::of(0..2 * NOW),
        accumulated_secs in prop::option::of(0..200_u32),
    ) -> Status {
        let mut status = Status::default();
        for (kind, truth, reason, second) in kinds {
            if let Some(truth) = truth {
                status.conditions.set(kind, truth, reason, "m", at(second));
            }
        }
        for (name, phase, requeue_after_secs) in phases {
            let phase = [CheckPhase::Pending, CheckPhase::Ready, CheckPhase::Retry, CheckPhase::Rejected][phase];
            status.checks.insert(
                CheckName::from(name),
                CheckState { phase, requeue_after_secs, ..CheckState::pending(at(1)) },
            );
        }
        if status.conditions.is_true(QUOTA_RESERVED) {
            status.admission = Some(admission("spot"));
        } else {
            status.conditions.remove(ADMITTED);
        }
        status.requeue = requeue.map(|second| Requeue { count: None, at: Some(at(second)) });
        status.accumulated_secs = accumulated_secs;
        status
    }
}

prop_compose! {
    fn any_world()(
        status in any_status(),
        active in any::<bool>(),
        deleting in prop::bool::weighted(0.1),
        max_execution_secs in prop::option::of(1..2_000_u32),
        queue_stop in prop::option::weighted(0.9, stop()),
        terminating in prop::bool::weighted(0.1),
        local_stop in prop::option::weighted(0.9, stop()),
        facts in 0..6_usize,
        proposed in 0..3_usize,
    ) -> World {
        let mut workload = workload();
        workload.active = active;
        workload.deleting = deleting;
        workload.max_execution_secs = max_execution_secs;
        workload.status = status;
        // Why: the brain proposes nothing for a Workload that holds quota or has failed checks (admission-engine 2.3).
        let failed = |c: &CheckState| matches!(c.phase, CheckPhase::Retry | CheckPhase::Rejected);
        let pending = !workload.has_quota() && !workload.status.checks.values().any(failed);
        let proposal = match proposed {
            1 if pending && active => Some(Proposal::Reserve(admission("spot"))),
            2 => Some(Proposal::Pending { reason: "WaitingForQuota".into(), message: "w".to_owned() }),
            _ => None,
        };
        World {
            workload,
            queue: queue_stop.map(|stop| ClusterQueue { stop, terminating, ..queue(&[("a", &[]), ("b", &["fixed"])]) }),
            local_stop,
            job: match facts {
                0 => JobFacts::NoOwner,
                1 => JobFacts::OwnerGone,
                2 => job(true, false),
                3 => job(true, true),
                4 => job(false, false),
                _ => job(false, true),
            },
            request: None,
            proposal,
            now: NOW,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pass_is_stable_honest_about_times_and_never_unfinishes(mut world in any_world()) {
        let before = world.workload.status.clone();
        let job = world.job.clone();
        let (next, _) = world.pass();
        for (kind, condition) in next.status.conditions.iter() {
            if let Some(old) = before.conditions.get(kind) {
                // Why: a pass may release and requeue at once; being queued anew then is a change of its own.
                let anew = kind == REQUEUED && old.reason != condition.reason;
                let moved = anew || old.truth != condition.truth;
                prop_assert!(moved || old.since == condition.since, "{kind} moved without a change");
            }
        }
        if before.conditions.is_true(FINISHED) {
            prop_assert_eq!(&next.status, &before);
        }
        let held = before.conditions.is_true(QUOTA_RESERVED) && before.conditions.is_true(ADMITTED);
        if held && !job.at_rest() && !next.status.conditions.is_true(FINISHED) {
            prop_assert!(next.status.conditions.is_true(QUOTA_RESERVED), "released while pods run");
        }
        prop_assert_eq!(
            next.status.admission.is_some(),
            next.status.conditions.is_true(QUOTA_RESERVED),
        );
        prop_assert!(next.status.cluster.is_none() || next.status.nominated.is_empty());
        if next.status.conditions.is_true(ADMITTED) {
            prop_assert!(next.status.conditions.is_true(QUOTA_RESERVED) || before.conditions.is_true(FINISHED)
                || world.workload.deleting);
        }
    }
}
