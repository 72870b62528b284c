//! Checks, deactivation, priorities, the end.

use kube::api::{Patch, PatchParams};
use roadstead_e2e::stage::merge;
use serde_json::{Value, json};

use super::ground::{FLAVOR, Ground, ask, condition, cpu, scenario};

/// A check that the test answers itself, and a queue that asks it.
async fn checked(ground: &Ground) {
    let name = ground.own("check");
    ground
        .apply(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck",
            "metadata": {"name": name}, "spec": {"controllerName": "tests.roadstead.dev/by-hand"},
        }))
        .await;
    let active = json!({"status": {"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "ready",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(
        ground.client.clone(),
        &kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "kueue.x-k8s.io",
            "v1beta2",
            "AdmissionCheck",
        )),
    );
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(active))
        .await
        .unwrap();
    ground
        .queue(
            "q",
            json!({
                "admissionChecksStrategy": {"admissionChecks": [{"name": name}]},
                "resourceGroups": cpu(&[(FLAVOR, "4")]),
            }),
        )
        .await;
    ground.active("q", "True", "Ready").await;
}

/// The check says something about a job that holds quota.
async fn answer(ground: &Ground, job: &str, state: &str, over: Value) {
    let workload = ground
        .workload_when(job, |w| {
            let reserved = condition(w, "QuotaReserved").is_some_and(|(status, _, _)| status == "True");
            reserved
                && w.data["status"]["admissionChecks"]
                    .as_array()
                    .is_some_and(|checks| checks.len() == 1)
        })
        .await;
    let mut check = json!({
        "name": ground.own("check"), "state": state, "message": "by hand",
        "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    merge(&mut check, &over);
    let patch = Patch::Merge(json!({"status": {"admissionChecks": [check]}}));
    let name = workload.metadata.name.unwrap();
    ground
        .workloads()
        .patch_status(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Spec: admission-engine B167.
#[test]
fn a_job_starts_only_when_its_check_is_ready() {
    scenario("b167", async |ground| {
        checked(&ground).await;
        ground.submit(ask("a", "q")).await;
        let reserved = ground
            .workload_when("a", |w| {
                condition(w, "QuotaReserved").is_some_and(|(status, _, _)| status == "True")
            })
            .await;
        let (status, reason, _) = condition(&reserved, "Admitted").unwrap();
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("False", "UnsatisfiedAdmissionChecks")
        );
        ground.tick("tick").await;
        assert_eq!(
            ground.jobs().get("a").await.unwrap().spec.unwrap().suspend,
            Some(true)
        );
        answer(&ground, "a", "Ready", json!({})).await;
        ground.runs("a").await;
    });
}

/// Spec: admission-engine B169.
#[test]
fn a_check_that_says_retry_sends_the_job_back() {
    scenario("b169", async |ground| {
        checked(&ground).await;
        ground.submit(ask("a", "q")).await;
        answer(&ground, "a", "Retry", json!({"requeueAfterSeconds": 2})).await;
        let evicted = ground
            .workload_when("a", |w| {
                condition(w, "Evicted")
                    .is_some_and(|(status, why, _)| status == "True" && why == "AdmissionCheck")
            })
            .await;
        let check = &evicted.data["status"]["admissionChecks"][0];
        assert_eq!(
            (&check["state"], &check["retryCount"]),
            (&json!("Pending"), &json!(1))
        );
        let message = check["message"].as_str().unwrap();
        assert_eq!(message, "Reset to Pending after eviction. Previously: Retry");
        answer(&ground, "a", "Ready", json!({"retryCount": 1})).await;
        ground.runs("a").await;
    });
}

/// Spec: admission-engine B170.
#[test]
fn a_check_that_rejects_deactivates_the_job() {
    scenario("b170", async |ground| {
        checked(&ground).await;
        ground.submit(ask("a", "q").cpu("4")).await;
        answer(&ground, "a", "Rejected", json!({})).await;
        let workload = ground
            .workload_when("a", |w| {
                condition(w, "QuotaReserved").is_some_and(|(status, _, _)| status == "False")
                    && w.data["spec"]["active"] == false
            })
            .await;
        let (_, reason, _) = condition(&workload, "Evicted").unwrap();
        assert_eq!(reason, "DeactivatedDueToAdmissionCheck");
        ground.submit(ask("b", "q").cpu("4")).await;
        answer(&ground, "b", "Ready", json!({})).await;
        ground.runs("b").await;
    });
}

/// Spec: admission-engine B174.
#[test]
fn a_user_switches_a_job_off_and_on() {
    scenario("b174", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "4")])}))
            .await;
        ground.submit(ask("a", "q")).await;
        let name = ground.runs("a").await.metadata.name.unwrap();
        let switch = async |active: bool| {
            let patch = Patch::Merge(json!({"spec": {"active": active}}));
            ground
                .workloads()
                .patch(&name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        };
        switch(false).await;
        let off = ground
            .workload_when("a", |w| {
                condition(w, "QuotaReserved").is_some_and(|(status, _, _)| status == "False")
            })
            .await;
        let (_, reason, message) = condition(&off, "Evicted").unwrap();
        assert_eq!(
            (reason.as_str(), message.as_str()),
            ("Deactivated", "The workload is deactivated")
        );
        switch(true).await;
        let on = ground.runs("a").await;
        let (status, reason, _) = condition(&on, "Requeued").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("True", "Reactivated"));
    });
}

/// Spec: admission-engine B175.
#[test]
fn a_job_that_succeeds_frees_its_quota() {
    scenario("b175", async |ground| {
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "4")])}))
            .await;
        ground.submit(ask("a", "q").cpu("4")).await;
        ground.runs("a").await;
        ground.submit(ask("b", "q").cpu("4")).await;
        ground.waits("b", "WaitingForQuota", "4 more needed").await;
        ground.finish("a").await;
        let (_, reason, _) = condition(&ground.workload("a").await.unwrap(), "Finished").unwrap();
        assert_eq!(reason, "Succeeded");
        ground.runs("b").await;
    });
}

/// Spec: admission-engine B178.
#[test]
fn a_changed_priority_class_changes_the_order() {
    scenario("b178", async |ground| {
        let class = |value: i32| {
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
                   "metadata": {"name": ground.own("class")}, "value": value})
        };
        ground.apply(class(-10)).await;
        ground
            .queue("q", json!({"resourceGroups": cpu(&[(FLAVOR, "1")])}))
            .await;
        ground.submit(ask("first", "q")).await;
        ground.runs("first").await;
        let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": ground.own("class")}}});
        ground.submit(ask("other", "q").priority(0)).await;
        ground.submit(ask("raised", "q").with(label)).await;
        ground.apply(class(20)).await;
        ground
            .workload_when("raised", |w| w.data["spec"]["priority"] == 20)
            .await;
        ground.finish("first").await;
        ground.runs("raised").await;
        ground.still_waits("other", "tick").await;
    });
}
