//! An account of the manager's that a worker no longer knows.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_e2e::stage::SYSTEM_NAMESPACE;

use super::fixture::{EAST, MANAGER, WEST, alone, condition};
use super::kubeconfigs::{active, says};
use crate::shared::chain;

/// A wide job fits only into east.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "8"), (WEST, "4")];
const ACCOUNT: (&str, &str) = (SYSTEM_NAMESPACE, "roadstead-multikueue");

/// API servers remember for ten seconds that they knew a token, and open watches go on for minutes.
///
/// Spec: safety F19, I1, I12
#[test]
fn a_worker_whose_account_of_ours_is_deleted_says_so_and_keeps_its_job_until_it_is_registered_again() {
    alone("account", EAST_IS_LARGER, |room| async move {
        room.submit(room.job("wide", "6", 45)).await;
        assert_eq!(room.started("wide").await, EAST);
        let accounts: Api<ServiceAccount> = Api::namespaced(room.shared.client(EAST), ACCOUNT.0);
        let params = DeleteParams::default();
        accounts.delete(ACCOUNT.1, &params).await.unwrap();
        let manager = room.shared.client(MANAGER);
        active(&manager, EAST, |said| {
            says(said, "False", "ClientConnectionFailed", "roadstead cluster join")
        })
        .await;
        room.submit(room.job("narrow", "1", 1)).await;
        room.job_is(MANAGER, "narrow", "Complete").await;
        assert_eq!(room.started("narrow").await, WEST);

        let joined = room.shared.stage.join(EAST).await;
        joined.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let ended = room.job_is(MANAGER, "wide", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        let workload = room.workload("wide").await.unwrap();
        assert_eq!(
            workload.annotations().get(DISPATCH_EPOCH),
            None,
            "it was sent once"
        );
        assert_eq!(condition(&workload, "Evicted"), None);
        room.is_swept().await;
    });
}
