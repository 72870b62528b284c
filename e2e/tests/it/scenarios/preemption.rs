//! Which workloads are preempted for which.

use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::ground::{FLAVOR, Ground, ask, condition, cpu, scenario};
use crate::shared::eventually;

/// A stand-alone queue of six cores.
async fn six(ground: &Ground, within: &str) {
    let spec = json!({"preemption": {"withinClusterQueue": within}, "resourceGroups": cpu(&[(FLAVOR, "6")])});
    ground.queue("q", spec).await;
}

async fn fill(ground: &Ground, jobs: &[(&'static str, &'static str, i32, &str)]) {
    for (name, queue, priority, cores) in jobs {
        ground
            .submit(ask(name, queue).cpu(cores).priority(*priority))
            .await;
        ground.runs(name).await;
    }
}

/// Spec: admission-engine B104, B129, B172.
#[test]
fn the_lowest_priority_makes_room_and_comes_back_later() {
    scenario("b104", async |ground| {
        six(&ground, "LowerPriority").await;
        fill(
            &ground,
            &[("low", "q", -1, "2"), ("mid", "q", 0, "2"), ("high", "q", 1, "2")],
        )
        .await;
        ground.submit(ask("incoming", "q").cpu("2").priority(1)).await;
        let low = ground.preempted("low", "InClusterQueue").await;
        let (_, reason, message) = condition(&low, "Evicted").unwrap();
        assert_eq!(reason, "Preempted");
        let incoming = ground.runs("incoming").await;
        let uid = incoming.metadata.uid.clone().unwrap();
        assert!(
            message.starts_with(&format!("Preempted to accommodate a workload (UID: {uid}, ")),
            "{message}"
        );
        assert!(
            message.contains("due to prioritization in the ClusterQueue"),
            "{message}"
        );
        ground.still_runs("mid", "tick").await;
        ground.still_runs("high", "tock").await;
        ground.finish("incoming").await;
        let low = ground.runs("low").await;
        let (status, reason, message) = condition(&low, "Evicted").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("False", "QuotaReserved"));
        assert!(
            message.starts_with("Previously: Preempted to accommodate"),
            "{message}"
        );
        let (status, reason, _) = condition(&low, "Requeued").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("True", "Preempted"));
    });
}

/// Spec: admission-engine B105.
#[test]
fn as_many_as_are_needed_make_room() {
    scenario("b105", async |ground| {
        six(&ground, "LowerPriority").await;
        fill(
            &ground,
            &[("low", "q", -1, "2"), ("mid", "q", 0, "2"), ("high", "q", 1, "2")],
        )
        .await;
        ground.submit(ask("incoming", "q").cpu("3").priority(1)).await;
        ground.preempted("low", "InClusterQueue").await;
        ground.preempted("mid", "InClusterQueue").await;
        ground.runs("incoming").await;
        ground.still_runs("high", "tick").await;
    });
}

/// Spec: admission-engine B107.
#[test]
fn nobody_makes_room_when_it_would_not_be_enough() {
    scenario("b107", async |ground| {
        six(&ground, "LowerPriority").await;
        fill(&ground, &[("low", "q", -1, "3"), ("mid", "q", 0, "3")]).await;
        ground.submit(ask("incoming", "q").cpu("4").priority(0)).await;
        ground
            .waits("incoming", "WaitingForQuota", "insufficient unused quota")
            .await;
        ground.still_runs("low", "tick").await;
        ground.still_runs("mid", "tock").await;
    });
}

/// Spec: admission-engine B109.
#[test]
fn a_victim_that_is_not_needed_in_the_end_is_spared() {
    scenario("b109", async |ground| {
        six(&ground, "LowerPriority").await;
        fill(
            &ground,
            &[("low", "q", -1, "1"), ("mid", "q", 0, "2"), ("high", "q", 1, "3")],
        )
        .await;
        ground.submit(ask("incoming", "q").cpu("2").priority(1)).await;
        ground.preempted("mid", "InClusterQueue").await;
        ground.runs("incoming").await;
        ground.still_runs("low", "tick").await;
    });
}

/// Spec: admission-engine B112.
#[test]
fn with_the_policy_never_nobody_is_preempted() {
    scenario("b112", async |ground| {
        six(&ground, "Never").await;
        fill(&ground, &[("low", "q", -10, "6")]).await;
        ground.submit(ask("incoming", "q").priority(100)).await;
        ground.waits("incoming", "WaitingForQuota", "1 more needed").await;
        ground.still_runs("low", "tick").await;
    });
}

fn pair(within: &str, reclaim: &str) -> Value {
    json!({
        "cohortName": "all",
        "preemption": {"withinClusterQueue": within, "reclaimWithinCohort": reclaim},
        "resourceGroups": cpu(&[(FLAVOR, "6")]),
    })
}

/// Spec: admission-engine B115.
#[test]
fn quota_is_reclaimed_from_who_borrows_it() {
    scenario("b115", async |ground| {
        ground.queue("c1", pair("LowerPriority", "LowerPriority")).await;
        ground.queue("c2", pair("Never", "Any")).await;
        let jobs = [
            ("c1-low", "c1", -1, "3"),
            ("c2-mid", "c2", 0, "3"),
            ("c2-high", "c2", 1, "6"),
        ];
        fill(&ground, &jobs).await;
        ground.submit(ask("incoming", "c1").cpu("3").priority(1)).await;
        let victim = ground.preempted("c2-mid", "InCohortReclamation").await;
        let (_, _, message) = condition(&victim, "Preempted").unwrap();
        let paths = format!(
            "due to reclamation within the cohort; preemptor path: /{0}/{1}; preemptee path: /{0}/{2}",
            ground.own("all"),
            ground.own("c1"),
            ground.own("c2")
        );
        assert!(message.ends_with(&paths), "{message}");
        ground.runs("incoming").await;
        ground.still_runs("c2-high", "tick").await;
    });
}

/// Spec: admission-engine B116.
#[test]
fn who_does_not_borrow_is_left_alone() {
    scenario("b116", async |ground| {
        ground.queue("c1", pair("Never", "Any")).await;
        ground.queue("c2", pair("Never", "Any")).await;
        fill(&ground, &[("c1-all", "c1", 0, "6"), ("c2-all", "c2", -10, "6")]).await;
        ground.submit(ask("incoming", "c1").priority(100)).await;
        ground.waits("incoming", "WaitingForQuota", "1 more needed").await;
        ground.still_runs("c2-all", "tick").await;
    });
}

/// Spec: admission-engine B117.
#[test]
fn equal_priority_is_reclaimed_only_with_any() {
    for (name, reclaim) in [("b117", "LowerPriority"), ("b117-any", "Any")] {
        scenario(name, async |ground| {
            ground.queue("c1", pair("Never", reclaim)).await;
            ground.queue("c2", pair("Never", "Never")).await;
            fill(&ground, &[("borrower", "c2", 0, "6")]).await;
            // Why: among equals the latest goes first, and times are counted in seconds.
            ground.next_second().await;
            fill(&ground, &[("more", "c2", 0, "3")]).await;
            ground.submit(ask("incoming", "c1").cpu("6").priority(0)).await;
            if reclaim == "Any" {
                ground.preempted("more", "InCohortReclamation").await;
                ground.runs("incoming").await;
            } else {
                ground.waits("incoming", "WaitingForQuota", "3 more needed").await;
                ground.still_runs("more", "tick").await;
            }
            ground.still_runs("borrower", "tock").await;
        });
    }
}

/// Spec: admission-engine B125.
#[test]
fn a_cohort_reclaims_its_own_quota_for_the_queues_below_it() {
    scenario("b125", async |ground| {
        ground.cohort("r", json!({})).await;
        ground
            .cohort(
                "c",
                json!({"parentName": "r", "resourceGroups": cpu(&[(FLAVOR, "2")])}),
            )
            .await;
        let zero = |cohort: &str, reclaim: &str| {
            json!({
                "cohortName": cohort,
                "preemption": {"reclaimWithinCohort": reclaim},
                "resourceGroups": cpu(&[(FLAVOR, "0")]),
            })
        };
        ground.queue("q-borrowing", zero("r", "Never")).await;
        ground.queue("q", zero("c", "Any")).await;
        fill(&ground, &[("borrower", "q-borrowing", 0, "2")]).await;
        ground.submit(ask("incoming", "q").cpu("2").priority(0)).await;
        ground.preempted("borrower", "InCohortReclamation").await;
        ground.runs("incoming").await;
    });
}

/// Spec: admission-engine B163, B165.
#[test]
fn a_job_may_start_with_fewer_pods_but_rather_preempts() {
    scenario("b163", async |ground| {
        six(&ground, "LowerPriority").await;
        let least =
            |pods: &str| json!({"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": pods}}});
        ground.submit(ask("ten", "q").pods(10).with(least("3"))).await;
        let workload = ground.runs("ten").await;
        assert_eq!(
            workload.data["status"]["admission"]["podSetAssignments"][0]["count"],
            6
        );
        assert_eq!(
            ground.jobs().get("ten").await.unwrap().spec.unwrap().parallelism,
            Some(6)
        );
        ground
            .jobs()
            .delete("ten", &kube::api::DeleteParams::background())
            .await
            .unwrap();
        fill(&ground, &[("low", "q", -1, "4")]).await;
        ground
            .submit(ask("six", "q").pods(6).priority(1).with(least("2")))
            .await;
        ground.preempted("low", "InClusterQueue").await;
        let workload = ground.runs("six").await;
        assert_eq!(
            workload.data["status"]["admission"]["podSetAssignments"][0]["count"],
            6
        );
    });
}

/// A Workload without a job whose gate is closed, above all others.
async fn gated(ground: &Ground, name: &str, queue: &str, cores: &str) {
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
        "spec": {
            "queueName": queue, "priority": 100, "preemptionGates": [{"name": GATE}],
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cores}}}],
            }}}],
        },
    });
    let workload = serde_json::from_value(workload).unwrap();
    let made = ground.workloads().create(&PostParams::default(), &workload).await;
    assert_eq!(made.unwrap().name_any(), name);
}

const GATE: &str = "kueue.x-k8s.io/multikueue";

/// Waits until a condition of a Workload has this status and reason.
async fn says(ground: &Ground, name: &str, kind: &str, status: &str, reason: &str) -> DynamicObject {
    eventually(|| async {
        let workload = ground.workloads().get(name).await.ok()?;
        let (is, why, _) = condition(&workload, kind)?;
        (is == status && why == reason).then_some(workload)
    })
    .await
}

/// Spec: admission-engine 2.16 (preemption gates), API-1.2.
#[test]
fn whose_gate_is_closed_preempts_nobody_until_it_is_opened() {
    scenario("gates", async |ground| {
        six(&ground, "LowerPriority").await;
        fill(&ground, &[("low", "q", -1, "4")]).await;
        gated(&ground, "fits", "q", "1").await;
        says(&ground, "fits", "Admitted", "True", "Admitted").await;
        gated(&ground, "large", "q", "3").await;
        let kind = "BlockedOnPreemptionGates";
        let large = says(&ground, "large", kind, "True", "PreemptionGated").await;
        let (status, reason, message) = condition(&large, "QuotaReserved").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("False", "AdmissionGated"));
        assert_eq!(message, "Workload requires preemption, but it's gated");
        let gate = &large.data["status"]["preemptionGates"][0];
        assert_eq!(
            (&gate["name"], &gate["position"]),
            (&json!(GATE), &json!("Closed"))
        );
        ground.still_runs("low", "tick").await;

        let open = json!({"name": GATE, "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = Patch::Merge(json!({"status": {"preemptionGates": [open]}}));
        let workloads = ground.workloads();
        let params = PatchParams::default();
        workloads.patch_status("large", &params, &patch).await.unwrap();
        ground.preempted("low", "InClusterQueue").await;
        says(&ground, "large", "Admitted", "True", "Admitted").await;
        says(&ground, "large", kind, "False", "QuotaReserved").await;
    });
}
