//! Quota, and the reasons for missing quota.

use serde_json::{Value, json};

use super::ground::{FLAVOR, ask, cpu, groups, scenario};

/// Spec: admission-engine B052.
#[test]
fn what_was_assigned_is_written_down() {
    scenario("b052", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "9")])}))
            .await;
        ground.submit(ask("a", "q").pods(3)).await;
        let workload = ground.runs("a").await;
        let status = &workload.data["status"];
        let (_, _, message) = super::ground::condition(&workload, "QuotaReserved").unwrap();
        assert_eq!(
            message,
            format!("Quota reserved in ClusterQueue {}", ground.own("q"))
        );
        assert_eq!(
            status["admission"]["podSetAssignments"],
            json!([{"name": "main", "count": 3, "flavors": {"cpu": FLAVOR}, "resourceUsage": {"cpu": "3"}}])
        );
    });
}

/// Spec: admission-engine B054.
#[test]
fn more_than_the_queue_can_ever_give_is_said_to_be() {
    scenario("b054", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "9")])}))
            .await;
        ground.submit(ask("a", "q").cpu("10")).await;
        let message = "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously \
                       considered podsets requests (0) + current podset request (10) > maximum capacity (9)";
        ground.waits("a", "ExceedsMaxQuota", message).await;
    });
}

/// Spec: admission-engine B053, B055.
#[test]
fn what_is_missing_is_said() {
    scenario("b055", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "9")])}))
            .await;
        ground.submit(ask("a", "q").cpu("3").pods(2)).await;
        ground.runs("a").await;
        ground.submit(ask("b", "q").cpu("4")).await;
        ground
            .waits(
                "b",
                "WaitingForQuota",
                "insufficient unused quota for cpu in flavor default, 1 more needed",
            )
            .await;
        ground.submit(ask("c", "q").cpu("3")).await;
        ground.runs("c").await;
    });
}

/// Spec: admission-engine B056.
#[test]
fn a_resource_that_the_queue_does_not_cover_is_named() {
    scenario("b056", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "9")])}))
            .await;
        ground
            .submit(ask("a", "q").requests(json!({"cpu": "1", "nvidia.com/gpu": "1"})))
            .await;
        let message = "resource nvidia.com/gpu unavailable in ClusterQueue";
        ground.waits("a", "NoMatchingFlavor", message).await;
    });
}

/// Spec: admission-engine B057.
#[test]
fn pods_can_be_counted_too() {
    scenario("b057", async |ground| {
        let quota = groups(&[&[(FLAVOR, json!({"cpu": "100", "pods": "5"}))]]);
        ground.queue("q", json!({"resourceGroups": quota})).await;
        ground.submit(ask("a", "q").pods(3)).await;
        let workload = ground.runs("a").await;
        let usage = &workload.data["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
        assert_eq!(usage["pods"], "3");
        ground.submit(ask("b", "q").pods(3)).await;
        ground
            .waits("b", "WaitingForQuota", "insufficient unused quota for pods")
            .await;
    });
}

/// Spec: admission-engine B058, B059.
#[test]
fn a_queue_waits_for_its_flavors() {
    scenario("b058", async |ground| {
        let spec = |stop: &str| json!({"stopPolicy": stop, "resourceGroups": cpu(&[("spot", "9")])});
        ground.queue("q", spec("Hold")).await;
        let message = ground.active("q", "False", "Stopped").await;
        let missing = format!("references missing ResourceFlavor(s): {}.", ground.own("spot"));
        assert_eq!(
            message,
            format!("Can't admit new workloads: is stopped, {missing}")
        );
        ground.cluster_queue("q", spec("None")).await;
        let message = ground.active("q", "False", "FlavorNotFound").await;
        assert_eq!(message, format!("Can't admit new workloads: {missing}"));
        ground.submit(ask("a", "q")).await;
        ground.flavor("spot", json!({})).await;
        ground.active("q", "True", "Ready").await;
        ground.runs("a").await;
    });
}

/// Spec: admission-engine B060.
#[test]
fn a_deleted_queue_goes_when_its_last_job_has_ended() {
    scenario("b060", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "9")])}))
            .await;
        ground.submit(ask("a", "q")).await;
        ground.runs("a").await;
        ground.delete("ClusterQueue", "q").await;
        ground.active("q", "False", "Terminating").await;
        ground.submit(ask("b", "q")).await;
        ground.still_waits("b", "tick").await;
        ground.finish("a").await;
        crate::shared::eventually(|| async { ground.get("ClusterQueue", "q").await.is_none().then_some(()) })
            .await;
    });
}

/// Spec: admission-engine B061.
#[test]
fn a_deleted_flavor_stays_while_a_queue_names_it() {
    scenario("b061", async |ground| {
        ground.flavor("spot", json!({})).await;
        ground
            .queue("q", json!({"resourceGroups": cpu(&[("spot", "9")])}))
            .await;
        ground.submit(ask("a", "q")).await;
        ground.runs("a").await;
        ground.delete("ResourceFlavor", "spot").await;
        ground.still_runs("a", "tick").await;
        assert!(ground.get("ResourceFlavor", "spot").await.is_some());
        ground
            .cluster_queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "9")])}))
            .await;
        crate::shared::eventually(|| async {
            ground.get("ResourceFlavor", "spot").await.is_none().then_some(())
        })
        .await;
    });
}

/// Spec: admission-engine B062.
#[test]
fn a_lowered_quota_evicts_nobody_and_admits_nobody() {
    scenario("b062", async |ground| {
        let spec = |quota: &str| json!({"resourceGroups": cpu(&[(FLAVOR, quota)])});
        ground.queue("q", spec("10")).await;
        for name in ["a", "b"] {
            ground.submit(ask(name, "q").cpu("5")).await;
            ground.runs(name).await;
        }
        ground.cluster_queue("q", spec("4")).await;
        ground.submit(ask("c", "q")).await;
        ground.waits("c", "WaitingForQuota", "1 more needed").await;
        ground.still_runs("a", "tick").await;
        ground.finish("a").await;
        ground.still_waits("c", "tock").await;
        ground.finish("b").await;
        ground.runs("c").await;
    });
}

/// Spec: admission-engine B224, B225.
#[test]
fn the_status_of_a_queue_counts_what_is_reserved_and_what_is_admitted() {
    scenario("b224", async |ground| {
        ground
            .queue(
                "a",
                json!({"cohortName": "all", "resourceGroups": cpu(&[(FLAVOR, "4")])}),
            )
            .await;
        ground
            .queue(
                "b",
                json!({"cohortName": "all", "resourceGroups": cpu(&[(FLAVOR, "4")])}),
            )
            .await;
        ground.submit(ask("six", "a").cpu("6")).await;
        ground.runs("six").await;
        let flavors = |borrowed: &str| -> Value {
            json!([{"name": FLAVOR, "resources": [{"name": "cpu", "total": "6", "borrowed": borrowed}]}])
        };
        ground
            .status("ClusterQueue", "a", |s| {
                s["flavorsReservation"] == flavors("2") && s["flavorsUsage"] == flavors("2")
            })
            .await;
    });
}
