//! Which cluster a MultiKueueCluster leads to.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_e2e::stage::SYSTEM_NAMESPACE;
use serde_json::json;

use super::fixture::{EAST, EVEN, MANAGER, SPARE, WEST, beside_others, cluster_name, was_sent_once};
use super::kubeconfigs::{active, forget, put, register, says};
use super::second::{SECOND, enlist, of_its_own, with_second};

/// Where managers keep their leases.
const LEASES: &str = "roadstead-system";
const BOTH: &[(&str, &str)] = &[(MANAGER, "8"), (SPARE, "8"), (EAST, "8"), (WEST, "8")];

/// The second manager has east. While its job runs there, the Secret of east leads to west, which it does not have.
///
/// Spec: safety 3.8, I1
#[test]
fn a_secret_that_leads_to_another_cluster_while_a_job_runs_is_refused_until_it_leads_back() {
    let over = of_its_own(json!({}));
    with_second("another-cluster", BOTH, over, |first, second| async move {
        enlist(second, &[EAST]).await;
        second.submit(second.job("stays", "1", 15)).await;
        assert_eq!(first.started("stays").await, EAST);

        let client = second.shared.client(SPARE);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
        let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
        let source = clusters.get(EAST).await.unwrap().spec.cluster_source;
        let secret = source.kube_config.unwrap().location;
        let good = secrets.get(&secret).await.unwrap().data.unwrap();
        let west = second.shared.stage.planes().worker(WEST).unwrap();
        put(&client, &secret, &west.kubeconfig()).await;
        active(&client, EAST, |said| {
            says(said, "False", "ClusterChanged", "leads to another cluster now")
        })
        .await;
        let workload = second.workload("stays").await.unwrap();
        assert_eq!(cluster_name(&workload).as_deref(), Some(EAST));
        assert!(first.jobs(WEST).get_opt("stays").await.unwrap().is_none());
        let leases: Api<Lease> = Api::namespaced(first.shared.client(WEST), LEASES);
        let lease = format!("roadstead-{SECOND}");
        assert!(leases.get_opt(&lease).await.unwrap().is_none(), "it wrote there");

        let back = Patch::Merge(json!({"data": good}));
        secrets
            .patch(&secret, &PatchParams::default(), &back)
            .await
            .unwrap();
        active(&client, EAST, |said| says(said, "True", "Active", "Connected")).await;
        second.job_is(SPARE, "stays", "Complete").await;
        assert!(was_sent_once(&second.workload("stays").await.unwrap()));

        // Now nothing runs, and it may lead elsewhere.
        put(&client, &secret, &west.kubeconfig()).await;
        active(&client, EAST, |said| says(said, "True", "Active", "Connected")).await;
        let there = || async { leases.get_opt(&lease).await.ok()? };
        crate::shared::eventually(there).await;
        secrets
            .patch(&secret, &PatchParams::default(), &back)
            .await
            .unwrap();
        let leads_back = || async {
            let renewed = Api::<Lease>::namespaced(first.shared.client(EAST), LEASES)
                .get(&lease)
                .await
                .ok()?;
            let identity = clusters.get(EAST).await.ok()?.annotations().clone();
            let uid = renewed.metadata.uid?;
            { identity.values() }
                .any(|value| value.starts_with(&uid))
                .then_some(())
        };
        crate::shared::eventually(leads_back).await;
        leases.delete(&lease, &DeleteParams::default()).await.unwrap();
    });
}

/// Spec: safety 3.8, I5
#[test]
fn a_cluster_that_this_manager_has_already_is_refused_under_another_name() {
    beside_others("registered-twice", EVEN, |room| async move {
        let client = room.shared.client(MANAGER);
        let (alias, east) = ("east-again", room.shared.stage.planes().worker(EAST).unwrap());
        room.submit(room.job("stays", "1", 5)).await;
        room.started("stays").await;
        put(&client, alias, &east.kubeconfig()).await;
        register(&client, alias).await;
        active(&client, alias, |said| {
            says(said, "False", "RegisteredTwice", "as MultiKueueCluster \"east\"")
        })
        .await;
        room.job_is(MANAGER, "stays", "Complete").await;
        room.ran_once("stays").await;
        forget(&client, alias).await;
        active(&client, EAST, |said| says(said, "True", "Active", "Connected")).await;
    });
}
