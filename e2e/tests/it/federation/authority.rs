//! A worker whose API server comes back with a certificate of another authority.

use kube::Api;
use kube::api::DeleteParams;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_e2e::plane::Authority;

use super::fixture::{EVEN, MANAGER, Room, SPARE, alone};
use super::kubeconfigs::{active, put, register, says};
use crate::shared::eventually;

/// Registered with a kubeconfig that trusts one authority only.
const ONE: &str = "one-authority";
/// Registered with a kubeconfig that trusts the old one and the next one.
const BOTH: &str = "both-authorities";

/// Waits until this manager is connected to the cluster, or is not.
async fn is_connected(room: Room, cluster: &str, wanted: bool) {
    let start = format!("roadstead_cluster_connected{{cluster=\"{cluster}\"}}");
    let line = format!("{start} {:.1}", f64::from(u8::from(wanted)));
    eventually(|| async { (room.shared.metrics(MANAGER, &start).await == [line.clone()]).then_some(()) })
        .await;
}

async fn says_connected(room: Room, cluster: &str) {
    let client = room.shared.client(MANAGER);
    active(&client, cluster, |said| says(said, "True", "Active", "Connected")).await;
    is_connected(room, cluster, true).await;
}

/// Two clusters of the manager are the same server, known by other Secrets.
///
/// Spec: safety F20
#[test]
fn a_server_of_another_authority_is_refused_until_the_secret_trusts_it_and_one_that_trusts_both_goes_on() {
    alone("authority", EVEN, |room| async move {
        let client = room.shared.client(MANAGER);
        let spare = room.shared.stage.planes().worker(SPARE).unwrap();
        let trusting = |authority| spare.kubeconfig_trusting(authority).unwrap();
        put(&client, ONE, &trusting(Authority::First)).await;
        put(&client, BOTH, &spare.kubeconfig()).await;
        for cluster in [ONE, BOTH] {
            register(&client, cluster).await;
            says_connected(room, cluster).await;
        }
        spare.certify(Authority::Next).await.unwrap();
        active(&client, ONE, |said| {
            says(said, "False", "ClientConnectionFailed", "certificate")
        })
        .await;
        says_connected(room, BOTH).await;
        is_connected(room, ONE, false).await;
        put(&client, ONE, &trusting(Authority::Next)).await;
        says_connected(room, ONE).await;

        // The other way round, with the old one.
        spare.certify(Authority::First).await.unwrap();
        active(&client, ONE, |said| {
            says(said, "False", "ClientConnectionFailed", "certificate")
        })
        .await;
        says_connected(room, BOTH).await;
        let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
        for cluster in [ONE, BOTH] {
            clusters.delete(cluster, &DeleteParams::default()).await.unwrap();
        }
    });
}
