//! The spare cluster as a second manager that shares workers with the first, and its way back.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, MultiKueueCluster, MultiKueueConfig, Workload,
};
use roadstead_e2e::stage::{FEDERATION, Part, SYSTEM_NAMESPACE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::fixture::{EAST, Room, SPARE, Shared, WEST, alone, cpu_queue};
use crate::shared::{chain, eventually};

/// The origin of a second manager that has one of its own.
pub(super) const SECOND: &str = "second";

/// A configuration with the origin [`SECOND`] and whatever else stands under `multiKueue`.
pub(super) fn of_its_own(mut multi_kueue: Value) -> Value {
    multi_kueue["origin"] = SECOND.into();
    json!({ "multiKueue": multi_kueue })
}

/// Runs a test for which the spare cluster is a manager with `over` in its configuration. The body gets the room as the first
/// manager has it and as the second has it. Afterwards the spare cluster manages nothing, also when the test failed.
pub(super) fn with_second<F: Future<Output = ()> + Send + 'static>(
    name: &'static str,
    quota: &'static [(&str, &str)],
    over: Value,
    body: impl FnOnce(Room, Room) -> F + Send + 'static,
) {
    alone(name, quota, move |room| async move {
        let stage = &room.shared.stage;
        let origin = over["multiKueue"]["origin"].as_str().map(str::to_owned);
        // Why a task: so that the spare cluster resigns also when it fails.
        let ended = tokio::spawn(async move {
            stage.recast(SPARE, Part::Manager, &over).await.unwrap();
            stage.furnish(name, cpu_queue(name, quota)).await.unwrap();
            let second = Room {
                manager: SPARE,
                ..room
            };
            body(room, second).await;
        })
        .await;
        if ended.is_err() {
            room.tell().await;
        }
        resign(room.shared, origin.as_deref()).await;
        stage.furnish(name, cpu_queue(name, quota)).await.unwrap();
        ended.unwrap();
    });
}

/// Registers these workers with the second manager, in this order, and waits until its queue takes jobs.
pub(super) async fn enlist(second: Room, workers: &[&str]) {
    let stage = &second.shared.stage;
    for worker in workers {
        let joined = stage.join_to(SPARE, worker, &["--origin", SECOND]).await;
        joined.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    let queues: Api<ClusterQueue> = Api::all(second.shared.client(SPARE));
    eventually(|| async {
        let queue = queues.get(second.name).await.ok()?;
        let conditions = queue.status?.conditions;
        let active = conditions.iter().find(|each| each.type_ == "Active")?;
        let current = active.observed_generation == queue.metadata.generation;
        (current && active.status == "True").then_some(())
    })
    .await;
}

/// The spare cluster manages nothing any more. Without an origin of its own its workers are not left by the command: their account
/// is that of the first manager.
async fn resign(shared: &Shared, origin: Option<&str>) {
    let spare = shared.client(SPARE);
    let (gone, all) = (DeleteParams::background(), ListParams::default());
    for job in Api::<Job>::all(spare.clone()).list(&all).await.unwrap() {
        remove(&in_namespace_of(&spare, &job), &job).await;
    }
    for workload in Api::<Workload>::all(spare.clone()).list(&all).await.unwrap() {
        remove(&in_namespace_of(&spare, &workload), &workload).await;
    }
    let clusters: Api<MultiKueueCluster> = Api::all(spare.clone());
    if let Some(origin) = origin {
        for cluster in clusters.list(&all).await.unwrap() {
            let of_origin = ["--origin", origin];
            shared.leave_from(SPARE, &cluster.name_any(), &of_origin).await;
        }
    }
    // Why first: a running manager would add finalizers again.
    shared.stage.kill(SPARE).unwrap();
    for cluster in clusters.list(&all).await.unwrap() {
        remove(&clusters, &cluster).await;
    }
    let configs: Api<MultiKueueConfig> = Api::all(spare.clone());
    configs.delete_collection(&gone, &all).await.unwrap();
    let checks: Api<AdmissionCheck> = Api::all(spare.clone());
    if let Some(check) = checks.get_opt(FEDERATION).await.unwrap() {
        remove(&checks, &check).await;
    }
    let secrets: Api<Secret> = Api::namespaced(spare, SYSTEM_NAMESPACE);
    for secret in secrets.list(&all).await.unwrap() {
        let name = secret.name_any();
        if name.ends_with(EAST) || name.ends_with(WEST) {
            secrets.delete(&name, &gone).await.unwrap();
        }
    }
    let nothing_else = json!({});
    { shared.stage.recast(SPARE, Part::Worker, &nothing_else).await }.unwrap();
}

fn in_namespace_of<K>(client: &kube::Client, object: &K) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}

/// Deletes an object and removes its finalizers.
async fn remove<K>(api: &Api<K>, object: &K)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let name = object.name_any();
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // Why ignored: the object may be gone already, or be removed by the first request.
    let _ = api.delete(&name, &DeleteParams::background()).await;
    let _ = api.patch(&name, &PatchParams::default(), &bare).await;
}
