//! Two managers with the same origin: the second is refused, and nothing of the first is touched.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::LEASE_RENEWAL;
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, MultiKueueConfig, Workload};
use roadstead_e2e::stage::{Part, SYSTEM_NAMESPACE};
use serde_json::json;

use super::fixture::{EAST, MANAGER, Room, SPARE, Shared, alone};
use crate::shared::{chain, eventually};

/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// The config of the second manager.
const RIVAL: &str = "rival";
/// How long the second manager is watched: several rounds of collection, which comes each 3 s.
const WATCHED: &str = "8s";

fn lease(room: Room) -> (Api<Lease>, &'static str) {
    let leases = Api::namespaced(room.shared.client(EAST), "roadstead-system");
    (leases, "roadstead-multikueue")
}

fn renewals(lease: &Lease) -> u64 {
    lease.annotations()[LEASE_RENEWAL].parse().unwrap()
}

fn holder(lease: &Lease) -> String {
    let spec = lease.spec.as_ref().unwrap();
    spec.holder_identity.clone().unwrap()
}

async fn identity(shared: &Shared, cluster: &str) -> String {
    let namespaces: Api<Namespace> = Api::all(shared.client(cluster));
    namespaces.get("kube-system").await.unwrap().uid().unwrap()
}

/// The spare cluster manages nothing any more. Not by `cluster leave`: the account in east is that of the first manager.
async fn resign(shared: &Shared) {
    let spare = shared.client(SPARE);
    let (gone, params) = (DeleteParams::default(), PatchParams::default());
    // Why first: so that nobody asks for finalizers again.
    shared.stage.kill(SPARE).unwrap();
    let clusters: Api<MultiKueueCluster> = Api::all(spare.clone());
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    if clusters.get_opt(EAST).await.unwrap().is_some() {
        clusters.patch(EAST, &params, &bare).await.unwrap();
        clusters.delete(EAST, &gone).await.unwrap();
    }
    let configs: Api<MultiKueueConfig> = Api::all(spare.clone());
    let all = ListParams::default();
    configs.delete_collection(&gone, &all).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(spare, SYSTEM_NAMESPACE);
    for secret in secrets.list(&all).await.unwrap() {
        if secret.name_any().ends_with(EAST) {
            secrets.delete(&secret.name_any(), &gone).await.unwrap();
        }
    }
    shared.stage.recast(SPARE, Part::Worker).await.unwrap();
}

/// What the first manager has in east, as far as a second could spoil it.
async fn belongings(room: Room) -> (Job, Workload) {
    let job = room.jobs(EAST).get("first").await.unwrap();
    let name = room.workload("first").await.unwrap().name_any();
    (job, room.workloads(EAST).get(&name).await.unwrap())
}

async fn the_second_is_refused(room: Room) {
    let stage = &room.shared.stage;
    let first = identity(room.shared, MANAGER).await;
    let (leases, lease) = lease(room);
    let before = eventually(|| async { leases.get_opt(lease).await.unwrap() }).await;
    assert_eq!(holder(&before), first);
    let (job, copy) = belongings(room).await;

    let spare = room.shared.client(SPARE);
    let clusters: Api<MultiKueueCluster> = Api::all(spare);
    let path = |cluster: &str| stage.kubeconfig(cluster).display().to_string();
    let (of_worker, of_rival) = (path(EAST), path(SPARE));
    let server = stage.link(EAST).unwrap().server_url();
    let join = [
        "cluster",
        "join",
        EAST,
        "--kubeconfig",
        &of_worker,
        "--manager-kubeconfig",
        &of_rival,
        "--server",
        &server,
        "--config-name",
        RIVAL,
        "--timeout",
        WATCHED,
        "--yes",
    ];
    let said = stage
        .command(&join)
        .await
        .expect_err("the second must not be connected");
    let said = chain(&said);
    assert!(
        said.contains("OriginTaken") && said.contains(&format!("another manager ({first})")),
        "{said}"
    );
    let conditions = clusters.get(EAST).await.unwrap().status.unwrap().conditions;
    let active = conditions.iter().find(|each| each.type_ == "Active").unwrap();
    assert_eq!((&*active.status, &*active.reason), ("False", "OriginTaken"));

    let now = leases.get(lease).await.unwrap();
    assert_eq!(
        (holder(&now), now.uid()),
        (first, before.uid()),
        "never taken over"
    );
    assert!(renewals(&now) > renewals(&before), "the first goes on renewing");
    let (job_now, copy_now) = belongings(room).await;
    assert_eq!(
        (job_now.uid(), job_now.metadata.generation),
        (job.uid(), job.metadata.generation)
    );
    assert_eq!(
        (copy_now.uid(), copy_now.metadata.generation),
        (copy.uid(), copy.metadata.generation)
    );
    for deleted in [
        job_now.metadata.deletion_timestamp,
        copy_now.metadata.deletion_timestamp,
    ] {
        assert_eq!(deleted, None);
    }
}

/// A second `roadstead-manager`, of another cluster, with the default origin that the first has too.
///
/// Spec: safety 3.8, W10; multikueue 10.F36
#[test]
fn a_second_manager_of_the_same_origin_is_refused_and_touches_nothing_of_the_first() {
    alone("origin", EAST_ONLY, |room| async move {
        room.submit(room.job("first", "1", 600)).await;
        assert_eq!(room.started("first").await, EAST);
        room.shared.stage.recast(SPARE, Part::Manager).await.unwrap();
        // Why a task: so that the spare cluster resigns also when it fails.
        let ended = tokio::spawn(the_second_is_refused(room)).await;
        resign(room.shared).await;
        ended.unwrap();

        room.jobs(MANAGER)
            .delete("first", &DeleteParams::background())
            .await
            .unwrap();
        room.is_swept().await;
    });
}
