//! Refused input: invalid Workloads, and configuration files with unknown keys.

use std::fs;

use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::Progress;
use roadstead_e2e::stage::Programs;
use serde_json::{Value, from_value, json};
use tokio::process::Command;

use super::fixture::{EVEN, MANAGER, Room, beside_others, cluster_name};
use crate::shared::within;

/// A user with all rights that is not the manager.
async fn stranger(room: Room) -> Client {
    let text = room.shared.stage.planes().manager.kubeconfig();
    let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info.impersonate = Some("somebody".to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    Client::try_from(config).unwrap()
}

fn pod_set(name: &str, requests: &Value) -> Value {
    json!({"name": name, "count": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "none", "resources": {"requests": requests}},
    ]}}})
}

fn workload(name: &str, pod_sets: &Value) -> Workload {
    from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name}, "spec": {"queueName": "none", "podSets": pod_sets},
    }))
    .unwrap()
}

/// Spec: api API-9.5
#[test]
fn a_workload_that_makes_no_sense_is_refused_with_its_reason() {
    beside_others("refused-workloads", EVEN, |room| async move {
        let client = stranger(room).await;
        let api: Api<Workload> = Api::namespaced(client, room.name);
        let refused = |result: Result<Workload, kube::Error>, words: &str| {
            let error = result.expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        };
        let params = PostParams::default();
        let reserved = pod_set("main", &json!({"pods": "1"}));
        let made = api
            .create(&params, &workload("reserved-key", &json!([reserved])))
            .await;
        refused(made, "the key is reserved for internal kueue use");
        let mut sets = json!([pod_set("a", &json!({})), pod_set("b", &json!({}))]);
        for set in sets.as_array_mut().unwrap() {
            set["minCount"] = 1.into();
        }
        let made = api.create(&params, &workload("two-minimums", &sets)).await;
        refused(made, "at most one podSet can use minCount");

        let sets = json!([pod_set("main", &json!({"cpu": "1"}))]);
        api.create(&params, &workload("fine", &sets)).await.unwrap();
        let status = |status: Value| Patch::Merge(json!({"status": status}));
        let patch_params = PatchParams::default();
        let jump = status(json!({"clusterName": "east"}));
        let patched = api.patch_status("fine", &patch_params, &jump).await;
        refused(
            patched,
            "when setting clusterName it must be one of the nominatedClusterNames",
        );
        let unexplained = status(json!({"conditions": [{
            "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}));
        let patched = api.patch_status("fine", &patch_params, &unexplained).await;
        refused(patched, "must be set while the QuotaReserved condition is true");

        // A Workload that the manager has placed cannot get other pods.
        room.submit(room.job("placed", "1", 2)).await;
        let placed = room.workload_where("placed", |w| cluster_name(w).is_some()).await;
        let sets = json!([pod_set("main", &json!({"cpu": "2"}))]);
        let patch = Patch::Merge(json!({"spec": {"podSets": sets}}));
        let patched = api.patch(&placed.name_any(), &patch_params, &patch).await;
        refused(patched, "field is immutable");
        room.job_is(MANAGER, "placed", "Complete").await;
    });
}

/// Spec: multikueue 7
#[tokio::test]
async fn an_unknown_key_in_the_configuration_ends_the_process_with_2_and_is_named() {
    // Not counted in the deadline: the first build takes minutes.
    let programs = Programs::find_or_build(&Progress::stderr()).await.unwrap();
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.yaml");
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue:
  gcIntervall: 10s
";
        fs::write(&config, text).unwrap();
        for program in [&programs.manager, &programs.worker] {
            let output = Command::new(program)
                .arg("--config")
                .arg(&config)
                .kill_on_drop(true)
                .output()
                .await
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("gcIntervall"), "{said}");
        }
    })
    .await;
}
