//! Two managers with the same origin: the second is refused, and nothing of the first is touched.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::LEASE_RENEWAL;
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_e2e::stage::SYSTEM_NAMESPACE;
use serde_json::json;

use super::fixture::{EAST, MANAGER, Room, SPARE, Shared};
use super::second::with_second;
use crate::shared::{chain, eventually};

/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// How long the second manager is watched: several rounds of collection, which comes each 3 s.
const WATCHED: &str = "8s";

fn lease(room: Room) -> (Api<Lease>, &'static str) {
    let leases = Api::namespaced(room.shared.client(EAST), SYSTEM_NAMESPACE);
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
    let timeout = ["--timeout", WATCHED];
    let said = { stage.join_to(SPARE, EAST, &timeout).await }.expect_err("the second must not be connected");
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
/// Spec: safety 3.8, W10, F17; multikueue 10.F36
#[test]
fn a_second_manager_of_the_same_origin_is_refused_and_touches_nothing_of_the_first() {
    with_second("origin", EAST_ONLY, json!({}), |room, _second| async move {
        room.submit(room.job("first", "1", 600)).await;
        assert_eq!(room.started("first").await, EAST);
        the_second_is_refused(room).await;
        room.jobs(MANAGER)
            .delete("first", &DeleteParams::background())
            .await
            .unwrap();
        room.is_swept().await;
    });
}
