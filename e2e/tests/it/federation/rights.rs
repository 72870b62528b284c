//! A worker that takes rights away from the manager: to take its jobs back, to read its queues.

use std::fs;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::{DISPATCH_EPOCH, EXPLANATION};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::link::Cut;
use serde_json::json;

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone, cluster_name, condition};
use crate::shared::{chain, eventually};

const ROLE: &str = "roadstead-multikueue";
/// What the API server says.
const NO_DELETION: &str = "cannot delete resource";
const NO_PATCH: &str = "cannot patch resource";

async fn give(room: Room, worker: &str, rules: &[PolicyRule]) {
    let roles: Api<ClusterRole> = Api::all(room.shared.client(worker));
    let patch = Patch::Merge(json!({ "rules": rules }));
    roles.patch(ROLE, &PatchParams::default(), &patch).await.unwrap();
}

fn explains(workload: &Workload, words: &str) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(EXPLANATION))
        .is_some_and(|told| told.contains("DeletionRefusedByCluster") && told.contains(words))
}

/// And nothing is run elsewhere meanwhile.
///
/// Spec: multikueue 4.4; safety 3, I1
#[test]
fn a_worker_that_refuses_to_delete_a_job_is_named_with_its_words_until_it_does() {
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
        let holds_quota =
            |w: &Workload, status: &str| condition(w, "QuotaReserved").is_some_and(|c| c.0 == status);
        room.merge::<Workload>(MANAGER, &name, active(false)).await;
        // The worker stops it, as it was asked to, and what is left of it cannot be removed.
        room.workload_where("stays", |w| holds_quota(w, "False")).await;
        room.merge::<Workload>(MANAGER, &name, active(true)).await;
        room.workload_where("stays", |w| explains(w, NO_DELETION) && holds_quota(w, "True"))
            .await;
        let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
        let explain = ["explain", "stays", "-n", room.name, "--kubeconfig", &manager];
        let said = room.shared.stage.command(&explain).await;
        let said = said.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert!(said.contains(NO_DELETION), "{said}");

        give(room, &worker, &before).await;
        let again = room.workload_where("stays", |w| cluster_name(w).is_some()).await;
        assert_eq!(again.annotations()[DISPATCH_EPOCH], "2");
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("stays", &background).await.unwrap();
        room.is_swept().await;
    });
}

/// Nobody else would say why it runs on: the request is tried again and again, and only the log knew of it.
///
/// Spec: multikueue 4.4
#[test]
fn a_worker_that_refuses_the_request_to_stop_is_named_with_its_words_until_it_does() {
    alone("no-stop", EVEN, |room| async move {
        room.submit(room.job("runs-on", "1", 600)).await;
        let worker = room.started("runs-on").await;
        let roles: Api<ClusterRole> = Api::all(room.shared.client(&worker));
        let before = roles.get(ROLE).await.unwrap().rules.unwrap();
        let mut without = before.clone();
        for rule in &mut without {
            if rule
                .resources
                .iter()
                .flatten()
                .any(|one| one == "workloads/status")
            {
                rule.verbs.retain(|verb| verb != "patch");
            }
        }
        assert_ne!(without, before, "the right is there at first");
        give(room, &worker, &without).await;

        let name = room.workload("runs-on").await.unwrap().metadata.name.unwrap();
        room.merge::<Workload>(MANAGER, &name, json!({"spec": {"active": false}}))
            .await;
        let told = room.workload_where("runs-on", |w| explains(w, NO_PATCH)).await;
        assert!(
            condition(&told, "QuotaReserved").is_some_and(|c| c.0 == "True"),
            "it runs still"
        );

        give(room, &worker, &before).await;
        room.workload_where("runs-on", |w| {
            condition(w, "QuotaReserved").is_some_and(|c| c.0 == "False")
        })
        .await;
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("runs-on", &background).await.unwrap();
        room.is_swept().await;
    });
}

/// Jobs go there all the same, and the log says what is missing.
///
/// Spec: multikueue 4.3
#[test]
fn a_worker_whose_queues_may_not_be_read_gets_jobs_and_is_named_in_the_log() {
    alone(
        "no-queues",
        &[(MANAGER, "16"), (EAST, "8"), (WEST, "1")],
        |room| async move {
            let roles: Api<ClusterRole> = Api::all(room.shared.client(EAST));
            let before = roles.get(ROLE).await.unwrap().rules.unwrap();
            let reads_queues =
                |rule: &PolicyRule| rule.resources.iter().flatten().any(|one| one == "clusterqueues");
            let without: Vec<PolicyRule> = { before.iter() }
                .filter(|rule| !reads_queues(rule))
                .cloned()
                .collect();
            assert_ne!(without, before, "the right is there at first");
            let log = room.shared.stage.log(MANAGER).unwrap();
            let before_that = fs::read_to_string(&log).unwrap().lines().count();
            let told = |words: &'static str| {
                let log = log.clone();
                move || {
                    let text = fs::read_to_string(&log).unwrap();
                    let mut new = text.lines().skip(before_that);
                    let said = new.any(|line| line.contains(words) && line.contains(EAST));
                    async move { said.then_some(()) }
                }
            };
            give(room, EAST, &without).await;
            // What is being watched goes on; a new connection needs the right.
            let link = room.shared.stage.link(EAST).unwrap();
            link.cut(Cut::Refuse);
            eventually(told("connection lost")).await;
            link.heal();
            eventually(told("its queues cannot be read")).await;
            room.submit(room.job("asked", "2", 1)).await;
            assert_eq!(room.started("asked").await, EAST);
            room.job_is(MANAGER, "asked", "Complete").await;
            give(room, EAST, &before).await;
            eventually(told("its queues can be read again")).await;
            room.is_swept().await;
        },
    );
}
