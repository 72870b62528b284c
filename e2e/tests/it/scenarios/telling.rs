//! Events of the last decisions of a process that is asked to end.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::ground::{FLAVOR, Ground, alone, ask, condition, cpu};
use crate::shared::eventually;

/// Spec: admission-engine 7
#[test]
fn what_a_process_decided_before_it_was_asked_to_end_is_told() {
    alone("told-at-the-end", json!({}), async |solo| {
        let ground = Ground::new(solo.client().unwrap(), "last-words").await;
        ground
            .queue("main", json!({"resourceGroups": cpu(&[(FLAVOR, "8")])}))
            .await;
        ground.submit(ask("last", "main")).await;
        ground
            .workload_when("last", |w| {
                condition(w, "QuotaReserved").is_some_and(|(status, ..)| status == "True")
            })
            .await;
        let events: Api<Event> = Api::namespaced(ground.client.clone(), ground.name);
        let reasons = || async {
            let all = events.list(&ListParams::default()).await.ok()?;
            let reasons = all.items.into_iter().filter_map(|event| event.reason);
            Some(reasons.collect::<Vec<String>>())
        };
        let before = reasons().await.unwrap();
        assert!(
            !before.iter().any(|reason| reason == "QuotaReserved"),
            "good news waits a moment, so there is something to lose: {before:?}"
        );
        solo.terminate().unwrap();
        eventually(|| async {
            let reasons = reasons().await?;
            let told = |wanted: &str| reasons.iter().any(|reason| reason == wanted);
            (told("QuotaReserved") && told("Admitted")).then_some(())
        })
        .await;
    });
}
