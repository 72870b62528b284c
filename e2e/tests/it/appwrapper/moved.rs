//! A wrapped job of another controller leaves a node that Autopilot marks.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use roadstead_e2e::Progress;
use roadstead_e2e::options::RUN_SECONDS;
use roadstead_e2e::stage::{Controller, Runs};
use serde_json::{Value, json};

use super::{GPU, RUNTIME, SOLO, run, solo};
use crate::shared::{chain, eventually};

/// A `PyTorchJob` of one pod with a GPU, which runs so long.
fn training(name: &str, seconds: u32) -> Value {
    let template = json!({
        "metadata": {"annotations": {RUN_SECONDS: seconds.to_string()}},
        "spec": {"containers": [{"name": "pytorch", "image": "none", "resources": {"limits": {GPU: "1"}}}]},
    });
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template}}},
    })
}

/// Spec: appwrapper 8.2, 9, B111, N-19.
#[test]
fn a_wrapped_pytorchjob_leaves_a_node_that_is_marked_once_and_ends_on_another() {
    let operator = RUNTIME.block_on(async {
        let _beside_others = SOLO.peace().read().await;
        let solo = solo().await.read().await;
        let progress = Progress::stderr();
        let started = Controller::start(Runs::TrainingJobs, solo.plane(), &progress).await;
        started.unwrap_or_else(|error| panic!("{}", chain(&error)))
    });
    run("wrap-torch", |room| async move {
        room.submit("aw", json!({}), json!([{"template": training("train", 20)}]))
            .await;
        room.is_ready("aw").await;
        let pod = || async { room.api::<Pod>().get_opt("train-master-0").await.unwrap() };
        let of = |pod: Pod| (pod.spec.unwrap().node_name, pod.metadata.uid);
        let (first, uid) = of(pod().await.unwrap());
        let node = first.clone().unwrap();
        let nodes: Api<Node> = Api::all(room.client.clone());
        let mark = |value: Value| {
            Patch::Merge(json!({"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": value}}}))
        };
        let params = PatchParams::default();
        nodes.patch(&node, &params, &mark("EVICT".into())).await.unwrap();
        let (second, moved) = eventually(|| async {
            let (place, other) = of(pod().await?);
            (place.is_some() && other != uid).then_some((place, other))
        })
        .await;
        assert_ne!(first, second);
        room.is_ready("aw").await;
        assert_eq!(of(pod().await.unwrap()).1, moved, "it moves once");
        let wrapper = room.reaches("aw", "Succeeded").await;
        assert_eq!(wrapper.status.map(|status| status.resetting_count), Some(0));
        nodes.patch(&node, &params, &mark(Value::Null)).await.unwrap();
        room.delete("aw").await;
        assert!(pod().await.is_none());
    });
    drop(operator);
}
