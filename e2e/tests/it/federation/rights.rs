//! A worker that no longer lets the manager take its jobs back.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use roadstead_api::constants::annotations::EXPLANATION;
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::json;

use super::fixture::{EVEN, MANAGER, Room, alone, condition};
use crate::shared::chain;

const ROLE: &str = "roadstead-multikueue";
/// What the API server says.
const WORDS: &str = "cannot delete resource";

async fn give(room: Room, worker: &str, rules: &[PolicyRule]) {
    let roles: Api<ClusterRole> = Api::all(room.shared.client(worker));
    let patch = Patch::Merge(json!({ "rules": rules }));
    roles.patch(ROLE, &PatchParams::default(), &patch).await.unwrap();
}

fn explains(workload: &Workload) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(EXPLANATION))
        .is_some_and(|told| told.contains("DeletionRefusedByCluster") && told.contains(WORDS))
}

/// And nothing is run elsewhere meanwhile.
///
/// Spec: multikueue 4.4; safety 3, I1
#[test]
fn a_worker_that_refuses_to_delete_a_job_is_named_with_its_words_and_holds_it_until_it_may_go() {
    alone("no-deletion", EVEN, |room| async move {
        room.submit(room.job("stays", "1", 600)).await;
        let worker = room.started("stays").await;
        let roles: Api<ClusterRole> = Api::all(room.shared.client(&worker));
        let before = roles.get(ROLE).await.unwrap().rules.unwrap();
        let mut without = before.clone();
        for rule in &mut without {
            if rule.resources.iter().flatten().any(|one| one == "jobs") {
                rule.verbs.retain(|verb| verb != "delete");
            }
        }
        assert_ne!(without, before, "the right is there at first");
        give(room, &worker, &without).await;

        let name = room.workload("stays").await.unwrap().metadata.name.unwrap();
        let active = |active: bool| json!({"spec": {"active": active}});
        room.merge::<Workload>(MANAGER, &name, active(false)).await;
        let held = room.workload_where("stays", explains).await;
        assert!(
            condition(&held, "QuotaReserved").is_some_and(|reserved| reserved.0 == "True"),
            "it may run there still"
        );
        let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
        let explain = ["explain", "stays", "-n", room.name, "--kubeconfig", &manager];
        let said = room.shared.stage.command(&explain).await;
        let said = said.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert!(said.contains(WORDS), "{said}");

        give(room, &worker, &before).await;
        room.is_swept().await;
        let free = |w: &Workload| condition(w, "QuotaReserved").is_some_and(|reserved| reserved.0 == "False");
        room.workload_where("stays", free).await;
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("stays", &background).await.unwrap();
    });
}
