//! What holds for any world.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::world::{NOW, World, admission, at, job, queue, ready_job, reserve, workload};
use crate::name::CheckName;
use crate::preempt::PreemptReason;
use crate::queue::ClusterQueue;
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
        "WaitForRecovery",
        "DeactivatedDueToRequeuingLimitExceeded",
    ])
}

fn stop() -> impl Strategy<Value = StopPolicy> {
    prop::sample::select(vec![StopPolicy::None, StopPolicy::Hold, StopPolicy::HoldAndDrain])
}

prop_compose! {
    fn any_status()(
        kinds in prop::collection::vec((
            prop::sample::select(vec![
                QUOTA_RESERVED, ADMITTED, EVICTED, PREEMPTED, REQUEUED, FINISHED, DEACTIVATION_TARGET, PODS_READY,
            ]),
            truth(),
            reason(),
            0..NOW,
        ), 0..8),
        phases in prop::collection::vec(
            (prop::sample::select(vec!["a", "b", "c"]), 0..4_usize, prop::option::of(0..2_000_u32)),
            0..3,
        ),
        requeue in prop::option::of((0..2 * NOW, prop::option::of(0..4_u32))),
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
        status.requeue = requeue.map(|(second, count)| Requeue { count, at: Some(at(second)) });
        status.accumulated_secs = accumulated_secs;
        status
    }
}

prop_compose! {
    fn any_policy()(
        ignores in any::<bool>(),
        releases in any::<bool>(),
        told_at_once in any::<bool>(),
        is_off in prop::bool::weighted(0.2),
        // Why not 0: a Workload admitted with no time to get ready is evicted in the next pass.
        wait in prop::option::of((1..2 * NOW, prop::option::of(0..2 * NOW), prop::option::of(0..3_u32))),
        after_finished in prop::option::of(0..2 * NOW),
        after_deactivated in prop::option::of(0..2 * NOW),
    ) -> Policy {
        Policy {
            orphans: if releases { Orphans::Release } else { Orphans::Finish },
            reclaim: if ignores { Reclaim::Ignore } else { Reclaim::Count },
            core: if is_off { Core::Off } else { Core::Runs },
            words: Words::Granular,
            first_status: if told_at_once { FirstStatus::AtOnce } else { FirstStatus::WhenDecided },
            pods_ready: wait.map(|(timeout, recovery, limit_count)| WaitForPods {
                timeout: SignedDuration::from_secs(timeout),
                recovery: recovery.map(SignedDuration::from_secs),
                limit_count,
                base_secs: 60,
                max_secs: 3600,
            }),
            retention: Retention {
                after_finished: after_finished.map(SignedDuration::from_secs),
                after_deactivated: after_deactivated.map(SignedDuration::from_secs),
            },
        }
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
        facts in 0..8_usize,
        proposed in 0..4_usize,
        policy in any_policy(),
    ) -> World {
        let mut workload = workload();
        workload.active = active;
        workload.deleting = deleting;
        // Why: a Workload admitted with no time left is stopped in the next pass; its clock starts with the admission.
        let used = status.accumulated_secs.unwrap_or(0);
        workload.max_execution_secs = max_execution_secs.map(|secs| secs.saturating_add(used));
        workload.status = status;
        // Why: the admission cycle proposes nothing for a Workload that holds quota or has failed checks (admission-engine 2.3).
        let failed = |c: &CheckState| matches!(c.phase, CheckPhase::Retry | CheckPhase::Rejected);
        let pending = !workload.has_quota() && !workload.status.checks.values().any(failed);
        let proposal = match proposed {
            1 if pending && active => Some(reserve("spot")),
            3 => Some(Proposal::Evict {
                reason: "Preempted",
                preempted_reason: PreemptReason::InClusterQueue,
                message: "p".to_owned(),
                priorities: String::new(),
            }),
            2 => Some(Proposal::Pending { reason: "WaitingForQuota".into(), message: "w".to_owned() }),
            _ => None,
        };
        World {
            workload,
            queue: queue_stop.map(|stop| ClusterQueue { stop, terminating, ..queue(&[("a", &[]), ("b", &["fixed"])]) }),
            local_stop,
            job: match facts {
                0 if active => JobFacts::Awaited,
                0 => JobFacts::Unknown,
                1 => JobFacts::OwnerGone,
                2 => job(true, false),
                3 => job(true, true),
                4 => job(false, false),
                5 => ready_job(),
                6 => JobFacts::Present {
                    finished: Some(Outcome { success: true, message: String::new() }),
                    active: false,
                    suspended: false,
                    ready: true,
                    reclaimable: BTreeMap::new(),
                    missing: None,
                },
                _ => job(false, true),
            },
            request: None,
            proposal,
            policy,
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
                // Why: a pass may release and requeue at once; the new queueing is then a change of its own.
                let anew = kind == REQUEUED && old.reason != condition.reason;
                let moved = anew || old.truth != condition.truth;
                prop_assert!(moved || old.since == condition.since, "{kind} moved without a change");
            }
        }
        if before.conditions.is_true(FINISHED) {
            prop_assert_eq!(&next.status, &before);
        }
        let count = |status: &Status| status.evictions.values().sum::<u32>();
        prop_assert!(count(&next.status) <= count(&before) + 1, "evicted twice in a pass");
        if before.conditions.is_true(EVICTED) && world.workload.active {
            prop_assert_eq!(count(&next.status), count(&before), "evicted while evicted");
        }
        prop_assert!(next.wake_at.is_none_or(|time| time > at(NOW)), "a wake-up that has passed");
        let held = before.conditions.is_true(QUOTA_RESERVED) && before.conditions.is_true(ADMITTED);
        if held && !job.frees_quota() && !next.status.conditions.is_true(FINISHED) {
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

    /// Spec: admission-engine B181.
    #[test]
    fn pauses_grow_and_stay_below_the_longest(base_secs: u32, max_secs: u32, count: u32) {
        let wait = WaitForPods {
            timeout: SignedDuration::ZERO,
            recovery: None,
            limit_count: None,
            base_secs,
            max_secs,
        };
        let pause = wait.pause_secs(count);
        prop_assert!(pause >= 0 && pause <= i64::from(max_secs));
        prop_assert!(wait.pause_secs(count.saturating_add(1)) >= pause);
    }
}
