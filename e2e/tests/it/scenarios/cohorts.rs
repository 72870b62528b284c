//! Sharing between queues.

use roadstead_e2e::stage::merge;
use serde_json::{Value, json};

use super::ground::{FLAVOR, ask, cpu, groups, scenario};

fn limited(nominal: &str, limits: &Value) -> Value {
    let mut quota = json!({"nominalQuota": nominal});
    merge(&mut quota, limits);
    groups(&[&[(FLAVOR, json!({"cpu": quota}))]])
}

/// Spec: admission-engine B084.
#[test]
fn a_queue_borrows_up_to_its_limit() {
    scenario("b084", async |ground| {
        ground
            .queue(
                "b",
                json!({"cohortName": "all", "resourceGroups": cpu(&[(FLAVOR, "5")])}),
            )
            .await;
        let spec = |limits| json!({"cohortName": "all", "resourceGroups": limited("5", &limits)});
        ground.queue("a", spec(json!({"borrowingLimit": "2"}))).await;
        ground.submit(ask("eight", "a").cpu("8")).await;
        ground
            .waits("eight", "ExceedsMaxQuota", "> maximum capacity (7)")
            .await;
        ground.submit(ask("seven", "a").cpu("7")).await;
        ground.runs("seven").await;
        ground.finish("seven").await;
        ground.cluster_queue("a", spec(json!({}))).await;
        ground.runs("eight").await;
    });
}

/// Spec: admission-engine B092.
#[test]
fn what_is_not_lent_cannot_be_borrowed() {
    scenario("b092", async |ground| {
        let keeps =
            json!({"cohortName": "all", "resourceGroups": limited("10", &json!({"lendingLimit": "0"}))});
        ground.queue("a", keeps).await;
        ground
            .queue(
                "b",
                json!({"cohortName": "all", "resourceGroups": cpu(&[(FLAVOR, "5")])}),
            )
            .await;
        ground.submit(ask("six", "b").cpu("6")).await;
        ground
            .waits("six", "ExceedsMaxQuota", "> maximum capacity (5)")
            .await;
        ground.submit(ask("fifteen", "a").cpu("15")).await;
        ground.runs("fifteen").await;
    });
}

/// Spec: admission-engine B093.
#[test]
fn a_held_queue_still_lends() {
    scenario("b093", async |ground| {
        let held =
            json!({"cohortName": "all", "stopPolicy": "Hold", "resourceGroups": cpu(&[(FLAVOR, "10")])});
        ground.queue("a", held).await;
        ground
            .queue(
                "b",
                json!({"cohortName": "all", "resourceGroups": cpu(&[(FLAVOR, "0")])}),
            )
            .await;
        ground.submit(ask("ten", "b").cpu("10")).await;
        ground.runs("ten").await;
    });
}

/// Spec: admission-engine B094.
#[test]
fn a_circle_of_cohorts_admits_nothing_until_it_is_broken() {
    scenario("b094", async |ground| {
        ground.cohort("a", json!({"parentName": "b"})).await;
        ground.cohort("b", json!({"parentName": "a"})).await;
        ground
            .queue(
                "q",
                json!({"cohortName": "a", "resourceGroups": cpu(&[(FLAVOR, "4")])}),
            )
            .await;
        ground.submit(ask("job", "q")).await;
        let message = format!("ClusterQueue {} is inactive", ground.own("q"));
        ground.waits("job", "Suspended", &message).await;
        // Why a field at all: an apply that takes the last field away leaves `spec: null` behind, which is refused.
        let root = json!({"fairSharing": {"weight": "1"}});
        ground.cohort("a", root).await;
        ground.runs("job").await;
    });
}

/// Spec: admission-engine B097.
#[test]
fn a_queue_takes_its_usage_to_another_cohort() {
    scenario("b097", async |ground| {
        let spec = |cohort: &str, quota: &str| json!({"cohortName": cohort, "resourceGroups": cpu(&[(FLAVOR, quota)])});
        ground.queue("q", spec("x", "0")).await;
        ground.queue("x", spec("x", "5")).await;
        ground.queue("y", spec("y", "5")).await;
        ground.submit(ask("q-job", "q").cpu("4")).await;
        ground.runs("q-job").await;
        ground.submit(ask("x-job", "x").cpu("5")).await;
        ground.waits("x-job", "WaitingForQuota", "4 more needed").await;
        ground.cluster_queue("q", spec("y", "0")).await;
        ground.runs("x-job").await;
        ground.submit(ask("y-job", "y").cpu("5")).await;
        ground.waits("y-job", "WaitingForQuota", "4 more needed").await;
    });
}

/// Spec: admission-engine B085, B095.
#[test]
fn a_cohort_may_have_quota_of_its_own_and_cohorts_above() {
    scenario("b095", async |ground| {
        ground.cohort("r", json!({})).await;
        ground
            .cohort(
                "c",
                json!({"parentName": "r", "resourceGroups": cpu(&[(FLAVOR, "2")])}),
            )
            .await;
        ground
            .queue(
                "q2",
                json!({"cohortName": "r", "resourceGroups": cpu(&[(FLAVOR, "5")])}),
            )
            .await;
        ground
            .queue(
                "q",
                json!({"cohortName": "c", "resourceGroups": cpu(&[(FLAVOR, "0")])}),
            )
            .await;
        ground.submit(ask("eight", "q").cpu("8")).await;
        ground
            .waits("eight", "ExceedsMaxQuota", "> maximum capacity (7)")
            .await;
        ground.submit(ask("seven", "q").cpu("7")).await;
        ground.runs("seven").await;
        ground.submit(ask("one", "q2")).await;
        ground.waits("one", "WaitingForQuota", "1 more needed").await;
    });
}
