//! The capacity answerer against real servers, the real scheduler and played nodes.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, PodTemplate};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_e2e::answerer::{Answerer, Policy};
use roadstead_e2e::options::RUN_SECONDS;
use roadstead_e2e::{Node, Options};
use serde_json::{Value, from_value, json};

use crate::shared::{eventually, start, within};

const NAMESPACE: &str = "answered";
const GPU: &str = "nvidia.com/gpu";

fn pod(gpus: &str) -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "resources": {
        "requests": {GPU: gpus}, "limits": {GPU: gpus},
    }}]})
}

async fn define(client: &Client) {
    let definition = roadstead_api::crd::all()
        .into_iter()
        .find(|definition| definition.name_any() == ProvisioningRequest::crd_name())
        .unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("test").force();
    api.patch(&definition.name_any(), &params, &Patch::Apply(&definition))
        .await
        .unwrap();
    let namespace: Namespace = from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

/// Requests capacity for `count` pods of `gpus` GPUs each.
async fn ask(client: &Client, name: &str, count: i32, gpus: &str) {
    let templates: Api<PodTemplate> = Api::namespaced(client.clone(), NAMESPACE);
    let template = json!({"metadata": {"name": name}, "template": {"spec": pod(gpus)}});
    templates
        .create(&PostParams::default(), &from_value(template).unwrap())
        .await
        .unwrap();
    let requests: Api<ProvisioningRequest> = Api::namespaced(client.clone(), NAMESPACE);
    let request: ProvisioningRequest = from_value(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": name},
        "spec": {
            "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
            "podSets": [{"podTemplateRef": {"name": name}, "count": count}],
        },
    }))
    .unwrap();
    eventually(|| async { requests.create(&PostParams::default(), &request).await.ok() }).await;
}

/// Waits for a condition with this status. Returns its reason and message.
async fn answer(client: &Client, name: &str, type_: &str, status: &str) -> (String, String) {
    let requests: Api<ProvisioningRequest> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(|| async {
        let request = requests.get(name).await.ok()?;
        let condition = request
            .condition(type_)
            .filter(|condition| condition.status == status)?;
        Some((condition.reason.clone(), condition.message.clone()))
    })
    .await
}

/// Spec: provisioning 15.58, 15.59, 15.60.
#[tokio::test]
async fn requests_are_answered_from_what_the_nodes_really_have() {
    // Not the shared plane: its node also carries the pods of other tests.
    let node = Node::new("node-1", "8", "32Gi").with_resource(GPU, "8");
    let plane = start(Options::complete("answered").with_node(node)).await;
    within(async {
        let client = plane.client().unwrap();
        let _answerer = Answerer::start(client.clone(), Policy::default());
        define(&client).await;

        ask(&client, "fits", 2, "3").await;
        let (reason, message) = answer(&client, "fits", "Provisioned", "True").await;
        assert_eq!((reason.as_str(), message.as_str()), ("CapacityIsFound", "Capacity is found in the cluster"));
        let (reason, message) = answer(&client, "fits", "Accepted", "True").await;
        assert_eq!(
            (reason.as_str(), message.as_str()),
            ("Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler")
        );

        // Six of eight are booked, though no pod is there yet.
        ask(&client, "waits", 1, "3").await;
        let (reason, message) = answer(&client, "waits", "Provisioned", "False").await;
        assert_eq!(
            (reason.as_str(), message.as_str()),
            ("CapacityIsNotFound", "Capacity is not found, CA will try to find it later.")
        );

        // The pods come, are bound by the real scheduler, and use the booking up.
        let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
        let job = json!({"metadata": {"name": "consumer"}, "spec": {"parallelism": 2, "completions": 2, "template": {
            "metadata": {"annotations": {
                "autoscaling.x-k8s.io/consume-provisioning-request": "fits",
                "autoscaling.x-k8s.io/provisioning-class-name": "check-capacity.autoscaling.x-k8s.io",
                RUN_SECONDS: "600",
            }},
            "spec": pod("3"),
        }}});
        jobs.create(&PostParams::default(), &from_value(job).unwrap()).await.unwrap();
        let (reason, _) = answer(&client, "fits", "BookingExpired", "True").await;
        assert_eq!(reason, "CapacityBookingConsumed");
        let (reason, _) = answer(&client, "waits", "Provisioned", "False").await;
        assert_eq!(reason, "CapacityIsNotFound", "they still run");

        // The pods go, and the waiting request is answered without a new request.
        jobs.delete("consumer", &DeleteParams::background()).await.unwrap();
        let (reason, _) = answer(&client, "waits", "Provisioned", "True").await;
        assert_eq!(reason, "CapacityIsFound");
    })
    .await;
}
