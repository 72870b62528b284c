//! Statuses of pending Workloads have the reference's texts. On the same cluster.

use kube::Client;
use roadstead_e2e::stage;
use serde_json::{Value, json};

use super::ground::{KUEUE, Part, api, create, on_cluster, patch};
use crate::gauges::page;
use crate::shared::eventually;

const SPACE: &str = "words";

fn workload(name: &str, queue: &str) -> Value {
    json!({
        "apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": name, "namespace": SPACE},
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        }}}]},
    })
}

async fn room(client: &Client) {
    stage::apply(
        client,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}),
    )
    .await
    .unwrap();
}

/// Waits until a condition of a Workload has this status and reason, and gives its message.
async fn told(client: &Client, object: &Value, kind: &str, status: &str, reason: &str) -> String {
    let name = object["metadata"]["name"].as_str().unwrap();
    eventually(|| async {
        let found = api(client, object).get(name).await.unwrap();
        let conditions = found.data["status"]["conditions"].as_array()?.clone();
        let condition = conditions.into_iter().find(|c| c["type"] == kind)?;
        let is_it = condition["status"] == status && condition["reason"] == reason;
        is_it.then(|| condition["message"].as_str().unwrap().to_owned())
    })
    .await
}

/// Spec: admission-engine 3.7. An administrator reserves by hand, and no check is outstanding.
#[test]
fn a_reservation_by_hand_is_admitted_although_its_queues_are_missing() {
    on_cluster(|_, client| async move {
        room(&client).await;
        let object = workload("by-hand", "nowhere");
        create(&client, &object).await;
        let reserved = json!({"type": "QuotaReserved", "status": "True", "reason": "ByHand", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let assignment =
            json!({"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}});
        let admission = json!({"clusterQueue": "nowhere", "podSetAssignments": [assignment]});
        let status = json!({"status": {"conditions": [reserved], "admission": admission}});
        patch(&client, &object, Part::Status, &status, false)
            .await
            .unwrap();
        let message = told(&client, &object, "Admitted", "True", "Admitted").await;
        assert_eq!(message, "The workload is admitted");
        // A change that makes the engine try again.
        let label = json!({"metadata": {"labels": {"looked-at": "again"}}});
        patch(&client, &object, Part::Main, &label, false).await.unwrap();
        let other = workload("looked-at-later", "nowhere");
        create(&client, &other).await;
        told(&client, &other, "QuotaReserved", "False", "Misconfigured").await;
        told(&client, &object, "Admitted", "True", "Admitted").await;
    });
}

/// Spec: api API-9.6; admission-engine 8
#[test]
fn what_waits_says_why_in_the_words_of_the_reference() {
    on_cluster(|solo, client| async move {
        room(&client).await;
        let quotas = json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "words", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]);
        for object in [
            json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "words"}}),
            json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "held"},
                "spec": {"namespaceSelector": {}, "stopPolicy": "Hold", "resourceGroups": quotas}}),
            json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "held", "namespace": SPACE},
                "spec": {"clusterQueue": "held"}}),
        ] {
            stage::apply(&client, object).await.unwrap();
        }
        let waits = workload("waits", "held");
        create(&client, &waits).await;
        let message = told(&client, &waits, "QuotaReserved", "False", "Suspended").await;
        assert_eq!(message, "ClusterQueue held is inactive");
        let series = |status: &str, count: u32| {
            format!(
                "kueue_pending_workloads{{replica_role=\"leader\",cluster_queue=\"held\",status=\"{status}\"}} {count}.0\n"
            )
        };
        eventually(|| async {
            let page = page(solo).await;
            (page.contains(&series("active", 0)) && page.contains(&series("inadmissible", 1))).then_some(())
        })
        .await;

        let mut gated = workload("gated", "held");
        gated["metadata"]["annotations"] = json!({"kueue.x-k8s.io/admission-gated-by": "x.io/a,x.io/b"});
        create(&client, &gated).await;
        let message = told(&client, &gated, "QuotaReserved", "False", "AdmissionGated").await;
        assert_eq!(message, "Admission is gated by: x.io/a,x.io/b");

        let mut off = workload("off", "held");
        off["spec"]["active"] = false.into();
        create(&client, &off).await;
        let message = told(&client, &off, "QuotaReserved", "False", "Deactivated").await;
        assert_eq!(message, "The workload is deactivated");
    });
}
