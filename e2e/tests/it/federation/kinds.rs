//! A worker that has lost a kind: it is no worker until it has it again, and jobs run elsewhere.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;

use super::fixture::{EVEN, MANAGER, Room, SPARE, alone};
use crate::shared::{chain, eventually};

const WORKLOADS: &str = "workloads.kueue.x-k8s.io";

/// Waits until the spare worker is said to be so. Returns what is said.
async fn spare_is(room: Room, status: &str) -> String {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    eventually(|| async {
        let conditions = clusters.get(SPARE).await.ok()?.status?.conditions;
        let active = conditions.into_iter().find(|each| each.type_ == "Active")?;
        (active.status == status).then_some(active.message)
    })
    .await
}

/// Spec: safety F26, I12
#[test]
fn a_worker_that_loses_a_kind_says_which_and_is_used_again_when_it_has_it() {
    alone("lost-kind", EVEN, |room| async move {
        let joined = room.shared.stage.join(SPARE).await;
        joined.unwrap_or_else(|error| panic!("{}", chain(&error)));
        spare_is(room, "True").await;
        let definitions: Api<CustomResourceDefinition> = Api::all(room.shared.client(SPARE));
        let mut definition = definitions.get(WORKLOADS).await.unwrap();
        definitions
            .delete(WORKLOADS, &DeleteParams::default())
            .await
            .unwrap();
        let said = spare_is(room, "False").await;
        assert!(said.contains("Workload is not served there"), "{said}");

        room.submit(room.job("elsewhere", "1", 1)).await;
        room.job_is(MANAGER, "elsewhere", "Complete").await;
        definition.metadata.resource_version = None;
        definition.metadata.uid = None;
        definition.metadata.managed_fields = None;
        definition.status = None;
        let params = PostParams::default();
        definitions.create(&params, &definition).await.unwrap();
        spare_is(room, "True").await;
        room.is_swept().await;
    });
}
