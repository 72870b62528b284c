//! A worker with a third-party webhook whose server does not answer: jobs go elsewhere, and a waiting job names the webhook.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{from_value, json};

use super::fixture::{EAST, MANAGER, Room, WEST, beside_others};
use crate::shared::eventually;

/// East is asked first, and a wide job fits only there.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "16"), (WEST, "4")];
const WEBHOOK: &str = "nobody.example.com";

/// Nothing of this kind can be created any more in the room in east.
async fn hook(room: Room, group: &str, plural: &str) {
    let webhook = json!({
        "name": WEBHOOK, "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 2,
        "admissionReviewVersions": ["v1"],
        // Port 9 is that of "discard": no process listens there.
        "clientConfig": {"url": "https://127.0.0.1:9/refuse"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": room.name}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": [plural]}],
    });
    let configuration = json!({"metadata": {"name": room.name}, "webhooks": [webhook]});
    let params = PostParams::default();
    let all: Api<ValidatingWebhookConfiguration> = Api::all(room.shared.client(EAST));
    all.create(&params, &from_value(configuration).unwrap())
        .await
        .unwrap();
}

async fn unhook(room: Room) {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(room.shared.client(EAST));
    all.delete(room.name, &DeleteParams::default()).await.unwrap();
}

/// A first job that stays in east shows that it is asked first. From then on the webhook is in the way of all that come.
async fn stands_in_the_way(room: Room, group: &str, plural: &str) {
    room.submit(room.job("before", "1", 1)).await;
    assert_eq!(room.started("before").await, EAST);
    room.job_is(MANAGER, "before", "Complete").await;
    hook(room, group, plural).await;
    // API servers hear of a new webhook a moment later.
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let job = from_value(room.job("probe", "1", 1)).unwrap();
    let workload = from_value(json!({"metadata": {"name": "probe"}, "spec": {"podSets": [{"name": "main", "count": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}}]}}))
    .unwrap();
    eventually(|| async {
        let tried = if plural == "jobs" {
            room.jobs(EAST).create(&params, &job).await.map(|_| ())
        } else {
            room.workloads(EAST).create(&params, &workload).await.map(|_| ())
        };
        let said = tried.err()?.to_string();
        said.contains(WEBHOOK).then_some(())
    })
    .await;

    room.submit(room.job("wide", "8", 1)).await;
    room.submit(room.job("narrow", "1", 1)).await;
    assert_eq!(room.started("narrow").await, WEST);
    room.job_is(MANAGER, "narrow", "Complete").await;
    room.workload_where("wide", |w| {
        let said = json!([w.status, w.metadata.annotations]).to_string();
        said.contains(WEBHOOK) && said.contains("RemoteRejectedByWebhook")
    })
    .await;
    unhook(room).await;
    assert_eq!(room.started("wide").await, EAST);
    room.job_is(MANAGER, "wide", "Complete").await;
    room.is_swept().await;
}

/// Spec: safety F25
#[test]
fn a_webhook_that_lets_no_job_in_is_named_and_jobs_run_elsewhere() {
    beside_others("hooked-jobs", EAST_IS_LARGER, |room| {
        stands_in_the_way(room, "batch", "jobs")
    });
}

/// Spec: safety F25
#[test]
fn a_webhook_that_lets_no_workload_in_is_named_and_jobs_run_elsewhere() {
    beside_others("hooked-workloads", EAST_IS_LARGER, |room| {
        stands_in_the_way(room, "kueue.x-k8s.io", "workloads")
    });
}
