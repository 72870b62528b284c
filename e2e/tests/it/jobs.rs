//! Jobs on played nodes.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use roadstead_e2e::options::{EXIT_CODE, RUN_SECONDS};
use serde_json::{from_value, json};

use crate::shared::{eventually, plane, within};

fn job(name: &str, annotations: &[(&str, &str)]) -> Job {
    let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
    from_value(json!({
        "metadata": {"name": name},
        "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "resources": {
                "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"},
                "limits": {"nvidia.com/gpu": "1"},
            }}]},
        }},
    }))
    .unwrap()
}

fn has(job: &Job, condition: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|each| each.type_ == condition && each.status == "True")
}

async fn reaches(api: &Api<Job>, name: &str, condition: &str) -> Job {
    eventually(|| async { api.get(name).await.ok().filter(|job| has(job, condition)) }).await
}

/// When a pod's container started and finished, and its exit code.
fn ran(pod: &Pod) -> Option<(Timestamp, Timestamp, i32)> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    Some((
        ended.started_at.as_ref()?.0,
        ended.finished_at.as_ref()?.0,
        ended.exit_code,
    ))
}

#[tokio::test]
async fn a_job_runs_to_completion() {
    let plane = plane().await;
    within(async {
        let client = plane.client().unwrap();
        let api: Api<Job> = Api::default_namespaced(client.clone());
        api.create(&PostParams::default(), &job("completes", &[(RUN_SECONDS, "2")]))
            .await
            .unwrap();
        let done = reaches(&api, "completes", "Complete").await;
        assert_eq!(done.status.unwrap().succeeded, Some(2));
        let pods: Api<Pod> = Api::default_namespaced(client);
        let of_job = ListParams::default().labels("batch.kubernetes.io/job-name=completes");
        let ended = pods.list(&of_job).await.unwrap().items;
        assert_eq!(ended.len(), 2);
        for pod in &ended {
            let (started, finished, code) = ran(pod).unwrap();
            assert_eq!(code, 0);
            let address = pod
                .status
                .as_ref()
                .and_then(|status| status.pod_ip.clone())
                .unwrap_or_default();
            assert!(
                address.starts_with("10.244."),
                "pods have addresses of their own: {address}"
            );
            let seconds = finished.duration_since(started).as_secs();
            assert!(
                (2..20).contains(&seconds),
                "the annotation says 2 s, it ran {seconds} s"
            );
            let log = pods.logs(&pod.name_any(), &LogParams::default()).await.unwrap();
            assert!(log.contains("played by kwok"), "{log}");
        }
        api.delete("completes", &DeleteParams::background())
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_pod_with_an_exit_code_fails_its_job() {
    let plane = plane().await;
    within(async {
        let api: Api<Job> = Api::default_namespaced(plane.client().unwrap());
        api.create(
            &PostParams::default(),
            &job("fails", &[(RUN_SECONDS, "0.2"), (EXIT_CODE, "3")]),
        )
        .await
        .unwrap();
        reaches(&api, "fails", "Failed").await;
        api.delete("fails", &DeleteParams::background()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_suspended_job_loses_its_pods_and_a_deleted_one_everything() {
    let plane = plane().await;
    within(async {
        let client = plane.client().unwrap();
        let api: Api<Job> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client);
        let of_job = ListParams::default().labels("batch.kubernetes.io/job-name=suspended");
        api.create(&PostParams::default(), &job("suspended", &[(RUN_SECONDS, "600")]))
            .await
            .unwrap();
        let ready = |job: &Job| job.status.as_ref().is_some_and(|status| status.ready == Some(2));
        eventually(|| async { api.get("suspended").await.ok().filter(&ready) }).await;
        let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
        api.patch("suspended", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let suspended = reaches(&api, "suspended", "Suspended").await;
        assert_eq!(
            suspended.status.unwrap().failed.unwrap_or_default(),
            0,
            "suspending is no failure"
        );
        let gone = || async { pods.list(&of_job).await.ok().filter(|list| list.items.is_empty()) };
        eventually(gone).await;
        let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
        api.patch("suspended", &PatchParams::default(), &patch)
            .await
            .unwrap();
        eventually(|| async { api.get("suspended").await.ok().filter(&ready) }).await;
        api.delete("suspended", &DeleteParams::background())
            .await
            .unwrap();
        eventually(gone).await;
    })
    .await;
}

#[tokio::test]
async fn a_node_has_what_it_was_given() {
    let plane = plane().await;
    within(async {
        let node = Api::<Node>::all(plane.client().unwrap())
            .get("node-1")
            .await
            .unwrap();
        assert_eq!(node.labels()["kubernetes.io/hostname"], "node-1");
        let allocatable = node.status.unwrap().allocatable.unwrap();
        for (resource, amount) in [
            ("cpu", "8"),
            ("memory", "32Gi"),
            ("pods", "110"),
            ("nvidia.com/gpu", "8"),
        ] {
            assert_eq!(allocatable[resource].0, amount, "{resource}");
        }
        assert_eq!(node.spec.unwrap().taints, None);
    })
    .await;
}
