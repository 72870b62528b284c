//! Order, waiting and stopping.

use serde_json::json;

use super::ground::{FLAVOR, ask, cpu, scenario};

/// Spec: admission-engine B027.
#[test]
fn the_higher_priority_goes_first() {
    scenario("b027", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "2")])}))
            .await;
        ground.submit(ask("first", "q").cpu("2")).await;
        ground.runs("first").await;
        ground.submit(ask("low", "q").cpu("2")).await;
        ground.submit(ask("high", "q").cpu("2").priority(10)).await;
        ground.waits("high", "WaitingForQuota", "2 more needed").await;
        ground.finish("first").await;
        ground.runs("high").await;
        ground.still_waits("low", "tick").await;
    });
}

/// Spec: admission-engine B028.
#[test]
fn among_equals_the_earlier_goes_first() {
    scenario("b028", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "2")])}))
            .await;
        ground.submit(ask("first", "q").cpu("2")).await;
        ground.runs("first").await;
        for name in ["second", "third"] {
            ground.next_second().await;
            ground.submit(ask(name, "q").cpu("2")).await;
        }
        ground.finish("first").await;
        ground.runs("second").await;
        ground.still_waits("third", "tick").await;
    });
}

/// Spec: admission-engine B032.
#[test]
fn in_strict_order_nobody_passes_the_head() {
    scenario("b032", async |ground| {
        let spec = json!({"queueingStrategy": "StrictFIFO", "resourceGroups": cpu(&[(FLAVOR, "10")])});
        ground.queue("q", spec).await;
        ground.submit(ask("a", "q").cpu("8")).await;
        ground.runs("a").await;
        ground.submit(ask("b", "q").cpu("5")).await;
        ground.waits("b", "WaitingForQuota", "3 more needed").await;
        ground.next_second().await;
        ground.submit(ask("c", "q")).await;
        ground.still_waits("c", "tick").await;
    });
}

/// Spec: admission-engine B033, B034, B226.
#[test]
fn with_best_effort_small_ones_pass_and_the_large_one_gets_its_turn() {
    scenario("b033", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "10")])}))
            .await;
        ground.submit(ask("a", "q").cpu("8")).await;
        ground.runs("a").await;
        ground.submit(ask("b", "q").cpu("5")).await;
        ground.submit(ask("c", "q")).await;
        ground.runs("c").await;
        ground.waits("b", "WaitingForQuota", "more needed").await;
        ground
            .status("ClusterQueue", "q", |s| {
                s["pendingWorkloads"] == 1 && s["admittedWorkloads"] == 2
            })
            .await;
        ground.finish("a").await;
        ground.runs("b").await;
    });
}

/// Spec: admission-engine B044.
#[test]
fn a_job_waits_for_its_local_queue_to_exist() {
    scenario("b044", async |ground| {
        ground
            .cluster_queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "2")])}))
            .await;
        ground.submit(ask("a", "q")).await;
        ground
            .waits("a", "Misconfigured", "LocalQueue q doesn't exist")
            .await;
        ground.local_queue("q", json!({})).await;
        ground.runs("a").await;
    });
}

/// Spec: admission-engine B045.
#[test]
fn a_stopped_local_queue_takes_its_jobs_out_of_the_count() {
    scenario("b045", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "1")])}))
            .await;
        ground.submit(ask("runs", "q")).await;
        ground.runs("runs").await;
        for name in ["a", "b", "c"] {
            ground.submit(ask(name, "q")).await;
        }
        ground
            .status("ClusterQueue", "q", |s| s["pendingWorkloads"] == 3)
            .await;
        ground.local_queue("q", json!({"stopPolicy": "Hold"})).await;
        ground
            .status("ClusterQueue", "q", |s| s["pendingWorkloads"] == 0)
            .await;
        ground.waits("a", "Suspended", "LocalQueue q is inactive").await;
        ground.still_runs("runs", "tick").await;
        ground.local_queue("q", json!({"stopPolicy": "None"})).await;
        ground
            .status("ClusterQueue", "q", |s| s["pendingWorkloads"] == 3)
            .await;
    });
}

/// Spec: admission-engine B046.
#[test]
fn a_held_cluster_queue_keeps_its_jobs_and_admits_none() {
    scenario("b046", async |ground| {
        let spec = |stop: &str| json!({"stopPolicy": stop, "resourceGroups": cpu(&[(FLAVOR, "9")])});
        ground.queue("q", spec("Hold")).await;
        ground.active("q", "False", "Stopped").await;
        for name in ["a", "b", "c"] {
            ground.submit(ask(name, "q")).await;
        }
        ground
            .status("ClusterQueue", "q", |s| s["pendingWorkloads"] == 3)
            .await;
        ground.still_waits("a", "tick").await;
        ground.cluster_queue("q", spec("None")).await;
        for name in ["a", "b", "c"] {
            ground.runs(name).await;
        }
    });
}

/// Spec: admission-engine B047.
#[test]
fn a_drained_queue_evicts_and_a_resumed_one_admits_again() {
    scenario("b047", async |ground| {
        let spec = |stop: &str| json!({"stopPolicy": stop, "resourceGroups": cpu(&[(FLAVOR, "9")])});
        ground.queue("q", spec("None")).await;
        ground.submit(ask("a", "q")).await;
        ground.runs("a").await;
        ground.cluster_queue("q", spec("HoldAndDrain")).await;
        let evicted = ground
            .workload_when("a", |w| {
                super::ground::condition(w, "QuotaReserved").is_some_and(|(status, _, _)| status == "False")
            })
            .await;
        let (status, reason, message) = super::ground::condition(&evicted, "Evicted").unwrap();
        assert_eq!(
            (status.as_str(), reason.as_str(), message.as_str()),
            ("True", "ClusterQueueStopped", "The ClusterQueue is stopped")
        );
        assert_eq!(
            ground.jobs().get("a").await.unwrap().spec.unwrap().suspend,
            Some(true)
        );
        ground.cluster_queue("q", spec("None")).await;
        let again = ground.runs("a").await;
        let (status, reason, _) = super::ground::condition(&again, "Requeued").unwrap();
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("True", "ClusterQueueRestarted")
        );
    });
}

/// Spec: admission-engine B049, B050.
#[test]
fn only_namespaces_that_match_may_use_the_queue() {
    scenario("b049", async |ground| {
        let mut spec = json!({"resourceGroups": cpu(&[(FLAVOR, "9")])});
        spec["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
        ground.queue("q", spec).await;
        ground.submit(ask("a", "q")).await;
        ground
            .waits(
                "a",
                "Misconfigured",
                "workload namespace doesn't match ClusterQueue selector",
            )
            .await;
        let metadata = json!({"name": ground.name, "labels": {"team": "a"}});
        ground
            .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .await;
        ground.runs("a").await;
    });
}
