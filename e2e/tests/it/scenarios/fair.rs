//! Fair sharing, and a restart: on a cluster of their own, because they change the whole process.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::ground::{FLAVOR, Ground, alone, ask, condition, cpu};
use crate::shared::eventually;

const PREEMPTION: [(&str, &str); 2] = [
    ("withinClusterQueue", "LowerPriority"),
    ("reclaimWithinCohort", "Any"),
];

fn member(quota: &str) -> Value {
    let preemption: Value = PREEMPTION
        .iter()
        .map(|(k, v)| ((*k).to_owned(), json!(v)))
        .collect();
    json!({"cohortName": "all", "preemption": preemption, "resourceGroups": cpu(&[(FLAVOR, quota)])})
}

/// Queues a, b, c of three cores each and the jobs of one core that run in them.
async fn three(ground: &Ground, jobs: &[&'static str]) {
    for name in ["a", "b", "c"] {
        ground.queue(name, member("3")).await;
    }
    for name in jobs {
        let queue = ["a", "b", "c"]
            .into_iter()
            .find(|queue| name.starts_with(queue))
            .unwrap();
        ground.submit(ask(name, queue)).await;
        ground.runs(name).await;
    }
}

async fn victims(ground: &Ground, jobs: &[&'static str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for job in jobs {
        let workload = ground.workload(job).await.unwrap();
        if let Some((_, reason, _)) =
            condition(&workload, "Preempted").filter(|(status, _, _)| status == "True")
        {
            found.push((job[..1].to_owned(), reason));
        }
    }
    found
}

/// Spec: admission-engine B134, B145, B146, B147, B179.
#[test]
fn shares_decide_who_makes_room_and_a_restart_forgets_nobody() {
    let strategies = json!(["LessThanOrEqualToFinalShare", "LessThanInitialShare"]);
    alone(
        "fair",
        json!({"fairSharing": {"preemptionStrategies": strategies}}),
        async |mut solo| {
            let client = solo.client().unwrap();

            let share = Ground::new(client.clone(), "b134").await;
            share.queue("q", member("5")).await;
            share.queue("other", member("5")).await;
            share.submit(ask("seven", "q").cpu("7")).await;
            share.runs("seven").await;
            share
                .status("ClusterQueue", "q", |s| s["fairSharing"]["weightedShare"] == 200)
                .await;

            let reclaim = Ground::new(client.clone(), "b145").await;
            let jobs = ["a1", "a2", "a3", "b1", "b2", "b3", "b4", "b5", "c1"];
            three(&reclaim, &jobs).await;
            reclaim.submit(ask("incoming", "c")).await;
            reclaim.runs("incoming").await;
            assert_eq!(
                victims(&reclaim, &jobs).await,
                [("b".to_owned(), "InCohortReclamation".to_owned())]
            );

            let balance = Ground::new(client.clone(), "b146").await;
            three(&balance, &jobs).await;
            balance.submit(ask("incoming", "a")).await;
            balance.runs("incoming").await;
            assert_eq!(
                victims(&balance, &jobs).await,
                [("b".to_owned(), "InCohortFairSharing".to_owned())]
            );

            let even = Ground::new(client.clone(), "b147").await;
            let jobs = ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"];
            three(&even, &jobs).await;
            even.submit(ask("incoming", "c")).await;
            even.waits("incoming", "WaitingForQuota", "1 more needed").await;
            even.tick("tick").await;
            assert_eq!(victims(&even, &jobs).await, []);

            solo.restart().await.unwrap();
            even.still_waits("incoming", "tock").await;
            assert_eq!(victims(&even, &jobs).await, []);
            even.status("ClusterQueue", "c", |s| {
                s["reservingWorkloads"] == 3 && s["pendingWorkloads"] == 1
            })
            .await;
            even.finish("a1").await;
            even.runs("incoming").await;
        },
    );
}

/// How often a Job was evicted.
async fn evictions(ground: &Ground, job: &str) -> u64 {
    let workload = ground.workload(job).await.unwrap();
    let stats = workload.data["status"]["schedulingStats"]["evictions"].as_array();
    { stats.into_iter().flatten() }
        .filter_map(|of| of["count"].as_u64())
        .sum()
}

/// Jobs that stop only when this test says so: of four that fill a cohort two are evicted, one stops long before the other.
///
/// Spec: admission-engine B130, 10.2.
#[test]
fn two_victims_that_stop_one_after_the_other_are_enough() {
    let strategies = json!(["LessThanOrEqualToFinalShare", "LessThanInitialShare"]);
    let fair = json!({"fairSharing": {"preemptionStrategies": strategies}});
    alone("fair-slow", fair, async |solo| {
        let ground = Ground::new(solo.client().unwrap(), "slow").await;
        let member = |quota: &str| {
            json!({
                "cohortName": "tree",
                "preemption": {"reclaimWithinCohort": "Any"},
                "resourceGroups": cpu(&[(FLAVOR, quota)]),
            })
        };
        ground.queue("pool", member("8")).await;
        ground.queue("one", member("0")).await;
        ground.queue("two", member("0")).await;
        let running = ["a1", "a2", "a3", "a4"];
        let by_hand = json!({"spec": {"managedBy": "example.com/by-hand"}});
        for name in running {
            ground
                .submit(ask(name, "one").cpu("2").with(by_hand.clone()))
                .await;
            ground.runs(name).await;
            ground.active_pods(name, 1).await;
        }
        ground.submit(ask("b", "two").cpu("4")).await;
        ground
            .waits(
                "b",
                "WaitingForPreemptedWorkloads",
                "Pending the preemption of 2 workload(s)",
            )
            .await;
        let victims = eventually(|| async {
            let mut found = Vec::new();
            for job in running {
                if ground.is_evicted(job).await {
                    found.push(job);
                }
            }
            (found.len() == 2).then_some(found)
        })
        .await;
        for (stopped, victim) in victims.iter().enumerate() {
            assert!(!ground.holds_quota("b").await, "after {stopped} of 2");
            ground.active_pods(victim, 0).await;
            ground
                .workload_when(victim, |w| {
                    condition(w, "QuotaReserved").is_some_and(|(is, ..)| is == "False")
                })
                .await;
            ground.tick(["tick", "tock"][stopped]).await;
        }
        ground.runs("b").await;
        ground.tick("tack").await;
        for job in running {
            let times = u64::from(victims.contains(&job));
            assert_eq!(evictions(&ground, job).await, times, "{job}");
            assert_eq!(ground.holds_quota(job).await, times == 0, "{job}");
        }
    });
}

/// How often a reason was told in Events of the scenario, once it was told at all.
async fn told(ground: &Ground, reason: &str) -> i64 {
    let events: Api<Event> = Api::namespaced(ground.client.clone(), ground.name);
    eventually(|| async {
        let all = events.list(&ListParams::default()).await.ok()?;
        let of_reason = { all.items.iter() }.filter(|event| event.reason.as_deref() == Some(reason));
        let times = of_reason.map(|event| event.series.as_ref().map_or(1, |series| i64::from(series.count)));
        Some(times.sum::<i64>()).filter(|times| *times > 1)
    })
    .await
}

/// Four jobs of two cores fill a cohort from a queue without quota of its own; a job of four cores comes to another one.
///
/// Spec: admission-engine B130, 10.2.
#[test]
fn the_room_of_two_jobs_costs_two_evictions_time_after_time() {
    let member = |quota: &str| {
        json!({
            "cohortName": "tree",
            "preemption": {"reclaimWithinCohort": "Any"},
            "resourceGroups": cpu(&[(FLAVOR, quota)]),
        })
    };
    let running = ["a1", "a2", "a3", "a4"];
    let strategies = json!(["LessThanOrEqualToFinalShare", "LessThanInitialShare"]);
    let fair = json!({"fairSharing": {"preemptionStrategies": strategies}});
    alone("fair-often", fair, async |solo| {
        for name in ROUNDS {
            let ground = Ground::new(solo.client().unwrap(), name).await;
            ground.queue("pool", member("8")).await;
            for queue in ["one", "two"] {
                ground.queue(queue, member("0")).await;
            }
            for job in running {
                ground.submit(ask(job, "one").cpu("2")).await;
            }
            for job in running {
                ground.runs(job).await;
            }
            ground.submit(ask("b", "two").cpu("4")).await;
            ground.runs("b").await;
            ground.tick("tick").await;
            let (mut evicted, mut hold) = (0, 0);
            for job in running {
                evicted += evictions(&ground, job).await;
                hold += u32::from(ground.holds_quota(job).await);
            }
            assert_eq!((evicted, hold), (2, 2), "{name}");
            for reason in ["Preempted", "EvictedDueToPreempted", "PreemptedWorkload"] {
                assert_eq!(
                    told(&ground, reason).await,
                    2,
                    "{name}: one {reason} for each of them"
                );
            }
        }
    });
}

/// Names of the twenty rounds of the scene above.
const ROUNDS: [&str; 20] = [
    "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "r16",
    "r17", "r18", "r19", "r20",
];
