//! A worker whose API server comes back with a certificate of another authority.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::LEASE_RENEWAL;
use roadstead_e2e::plane::Authority;
use roadstead_e2e::stage::SYSTEM_NAMESPACE;

use super::fixture::{EVEN, MANAGER, Room, SPARE, alone};
use super::kubeconfigs::{active, forget, put, register, says};
use crate::shared::eventually;

/// The cluster.
const NAME: &str = "authority";

/// Waits until this manager is connected to the cluster, or is not.
async fn is_connected(room: Room, cluster: &str, wanted: bool) {
    let start = format!("roadstead_cluster_connected{{cluster=\"{cluster}\"}}");
    let line = format!("{start} {:.1}", f64::from(u8::from(wanted)));
    eventually(|| async { (room.shared.metrics(MANAGER, &start).await == [line.clone()]).then_some(()) })
        .await;
}

/// Waits until the manager has written there again: its lease is the next one.
async fn renews(room: Room) {
    let leases: Api<Lease> = Api::namespaced(room.shared.client(SPARE), SYSTEM_NAMESPACE);
    let number = || async {
        let lease = leases.get("roadstead-multikueue").await.ok()?;
        lease.annotations().get(LEASE_RENEWAL)?.parse::<u64>().ok()
    };
    let before = eventually(number).await;
    eventually(|| async { number().await.filter(|now| *now > before) }).await;
}

async fn says_connected(room: Room, cluster: &str) {
    let client = room.shared.client(MANAGER);
    active(&client, cluster, |said| says(said, "True", "Active", "Connected")).await;
    is_connected(room, cluster, true).await;
}

/// Spec: safety F20
#[test]
fn a_server_of_another_authority_is_refused_until_the_secret_trusts_it_and_goes_on_where_both_are_trusted() {
    alone("authority", EVEN, |room| async move {
        let client = room.shared.client(MANAGER);
        let spare = room.shared.stage.planes().worker(SPARE).unwrap();
        let trusting = |authority| spare.kubeconfig_trusting(authority).unwrap();
        let is_refused = || async {
            active(&client, NAME, |said| {
                says(said, "False", "ClientConnectionFailed", "certificate")
            })
            .await;
            is_connected(room, NAME, false).await;
        };
        put(&client, NAME, &trusting(Authority::First)).await;
        register(&client, NAME).await;
        says_connected(room, NAME).await;
        spare.certify(Authority::Next).await.unwrap();
        is_refused().await;
        put(&client, NAME, &trusting(Authority::Next)).await;
        says_connected(room, NAME).await;
        // The other way round, with the old one.
        spare.certify(Authority::First).await.unwrap();
        is_refused().await;
        put(&client, NAME, &spare.kubeconfig()).await;
        says_connected(room, NAME).await;
        // Now it trusts both.
        for authority in [Authority::Next, Authority::First] {
            spare.certify(authority).await.unwrap();
            renews(room).await;
        }
        forget(&client, NAME).await;
    });
}
