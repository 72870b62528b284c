//! Rights that the manager has lost: on a worker, to take its jobs back or to read its queues; in its own cluster, to write
//! finalizers.

use std::fs;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::{DISPATCH_EPOCH, EXPLANATION};
use roadstead_api::constants::finalizers::{LEAVING, OUTCOME};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_e2e::link::Cut;
use serde_json::json;

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone, and_then, cluster_name, condition};
use crate::shared::{chain, eventually};

/// The role of the manager's account on a worker, and that of its process in its own cluster.
const ROLE: &str = "roadstead-multikueue";
const OWN_ROLE: &str = "roadstead:manager";
/// The API server's message.
const NO_DELETION: &str = "cannot delete resource";
const NO_PATCH: &str = "cannot patch resource";

fn roles(room: Room, cluster: &str) -> Api<ClusterRole> {
    Api::all(room.shared.client(cluster))
}

async fn give(room: Room, worker: &str, rules: &[PolicyRule]) {
    give_to(room, worker, ROLE, rules).await;
}

async fn give_to(room: Room, cluster: &str, role: &str, rules: &[PolicyRule]) {
    let patch = Patch::Merge(json!({ "rules": rules }));
    let params = PatchParams::default();
    roles(room, cluster).patch(role, &params, &patch).await.unwrap();
}

/// Removes a verb on a resource from a role. Returns the role's old rules.
async fn take(room: Room, (cluster, role): (&str, &str), verb: &str, resource: &str) -> Vec<PolicyRule> {
    let before = roles(room, cluster).get(role).await.unwrap().rules.unwrap();
    let mut without = before.clone();
    for rule in &mut without {
        let resources = rule.resources.get_or_insert_default();
        if !rule.verbs.iter().any(|one| one == verb) || !resources.iter().any(|one| one == resource) {
            continue;
        }
        // The other resources of the rule stay.
        if resources.len() > 1 {
            resources.retain(|one| one != resource);
        } else {
            rule.verbs.retain(|one| one != verb);
        }
    }
    assert_ne!(without, before, "the right is there at first");
    give_to(room, cluster, role, &without).await;
    before
}

/// Waits for a line with all these words in what the manager has logged after its first `skipped` lines.
async fn logged(room: Room, skipped: usize, words: &[&str]) {
    let log = room.shared.stage.log(MANAGER).unwrap();
    eventually(|| async {
        let text = fs::read_to_string(&log).unwrap();
        let mut new = text.lines().skip(skipped);
        new.any(|line| words.iter().all(|word| line.contains(word)))
            .then_some(())
    })
    .await;
}

fn log_lines(room: Room) -> usize {
    let log = room.shared.stage.log(MANAGER).unwrap();
    fs::read_to_string(log).unwrap().lines().count()
}

async fn set_active(room: Room, job: &str, active: bool) {
    let name = room.workload(job).await.unwrap().name_any();
    let patch = json!({"spec": {"active": active}});
    room.merge::<Workload>(MANAGER, &name, patch).await;
}

fn holds_quota(workload: &Workload, status: &str) -> bool {
    condition(workload, "QuotaReserved").is_some_and(|c| c.0 == status)
}

fn explains(workload: &Workload, words: &str) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(EXPLANATION))
        .is_some_and(|told| told.contains("DeletionRefusedByCluster") && told.contains(words))
}

/// The output of `roadstead explain` for a job.
async fn explained(room: Room, job: &str) -> String {
    let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
    let explain = ["explain", job, "-n", room.name, "--kubeconfig", &manager];
    let said = room.shared.stage.command(&explain).await;
    said.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// No other worker runs the job meanwhile.
///
/// Spec: multikueue 4.4; safety 3, I1
#[test]
fn a_worker_that_refuses_to_delete_a_job_is_named_with_its_words_until_it_does() {
    alone("no-deletion", EVEN, |room| async move {
        room.submit(room.job("stays", "1", 600)).await;
        let worker = room.started("stays").await;
        let before = take(room, (&worker, ROLE), "delete", "jobs").await;
        set_active(room, "stays", false).await;
        // The worker stops the job, as requested, and the rest of it cannot be removed.
        room.workload_where("stays", |w| holds_quota(w, "False")).await;
        set_active(room, "stays", true).await;
        room.workload_where("stays", |w| explains(w, NO_DELETION) && holds_quota(w, "True"))
            .await;
        let said = explained(room, "stays").await;
        assert!(said.contains(NO_DELETION), "{said}");

        give(room, &worker, &before).await;
        let again = room.workload_where("stays", |w| cluster_name(w).is_some()).await;
        assert_eq!(again.annotations()[DISPATCH_EPOCH], "2");
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("stays", &background).await.unwrap();
        room.is_swept().await;
    });
}

/// Without the condition, only the log would show why the job runs on: the manager retries the request for ever.
///
/// Spec: multikueue 4.4
#[test]
fn a_worker_that_refuses_the_request_to_stop_is_named_with_its_words_until_it_does() {
    alone("no-stop", EVEN, |room| async move {
        room.submit(room.job("runs-on", "1", 600)).await;
        let worker = room.started("runs-on").await;
        let before = take(room, (&worker, ROLE), "patch", "workloads/status").await;
        set_active(room, "runs-on", false).await;
        let told = room.workload_where("runs-on", |w| explains(w, NO_PATCH)).await;
        assert!(holds_quota(&told, "True"), "it runs still");

        give(room, &worker, &before).await;
        room.workload_where("runs-on", |w| holds_quota(w, "False")).await;
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("runs-on", &background).await.unwrap();
        room.is_swept().await;
    });
}

/// The job was stopped and deleted, and stays only because of our finalizer. Only the manager can tell the user that.
///
/// Spec: multikueue 4.4; safety 3.7
#[test]
fn a_worker_that_refuses_to_have_the_finalizer_of_a_job_taken_off_is_named_with_its_words_until_it_does() {
    alone("no-letting-go", EVEN, |room| async move {
        room.submit(room.job("kept", "1", 600)).await;
        let worker = room.started("kept").await;
        let job = room.jobs(&worker).get("kept").await.unwrap();
        assert!(job.finalizers().iter().any(|one| one == OUTCOME), "{job:?}");
        let before = take(room, (&worker, ROLE), "patch", "jobs").await;

        set_active(room, "kept", false).await;
        room.workload_where("kept", |w| holds_quota(w, "False")).await;
        set_active(room, "kept", true).await;
        let stays = |w: &Workload| explains(w, NO_PATCH) && explains(w, OUTCOME) && holds_quota(w, "True");
        room.workload_where("kept", stays).await;
        let job = room.jobs(&worker).get("kept").await.unwrap();
        assert!(job.metadata.deletion_timestamp.is_some(), "{job:?}");
        let said = explained(room, "kept").await;
        assert!(said.contains(NO_PATCH) && said.contains(OUTCOME), "{said}");

        give(room, &worker, &before).await;
        let again = room.workload_where("kept", |w| cluster_name(w).is_some()).await;
        assert_eq!(again.annotations()[DISPATCH_EPOCH], "2");
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("kept", &background).await.unwrap();
        room.is_swept().await;
    });
}

/// Opens the connection to a worker anew, so the manager treats it as if for the first time.
async fn connects_anew(room: Room, worker: &str) {
    let (link, skipped) = (room.shared.stage.link(worker).unwrap(), log_lines(room));
    link.cut(Cut::Refuse);
    logged(room, skipped, &["connection lost", worker]).await;
    link.heal();
}

/// Jobs still go there, and a cluster without any of our objects stays registered.
///
/// Spec: safety 3.8, F28
#[test]
fn a_manager_that_may_not_write_the_finalizer_of_a_cluster_says_what_that_means_until_it_may() {
    alone("no-finalizers", EVEN, |room| async move {
        let right = (MANAGER, OWN_ROLE);
        let before = roles(room, MANAGER).get(OWN_ROLE).await.unwrap().rules.unwrap();
        let body = async move {
            let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
            let held = || async {
                let cluster = clusters.get(WEST).await.ok()?;
                let held = cluster.finalizers().iter().any(|one| one == LEAVING);
                held.then_some(())
            };
            eventually(held).await;
            let before = take(room, right, "patch", "multikueueclusters").await;
            let skipped = log_lines(room);
            let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            clusters
                .patch(WEST, &PatchParams::default(), &bare)
                .await
                .unwrap();
            connects_anew(room, WEST).await;
            let refused = "finalizers and annotations of its MultiKueueCluster cannot be written: ";
            logged(room, skipped, &[refused, NO_PATCH, "apply deploy/rights", WEST]).await;
            logged(room, skipped, &["cannot be given finalizer", LEAVING, WEST]).await;
            for job in ["fills", "goes-on"] {
                room.submit(room.job(job, "6", 10)).await;
            }
            for job in ["fills", "goes-on"] {
                room.started(job).await;
            }
            let works_on = room.jobs(WEST).list(&ListParams::default()).await.unwrap();
            assert_eq!(works_on.items.len(), 1, "one of them is there");
            for job in ["fills", "goes-on"] {
                room.job_is(MANAGER, job, "Complete").await;
            }
            room.is_swept().await;
            give_to(room, MANAGER, OWN_ROLE, &before).await;
            connects_anew(room, WEST).await;
            eventually(held).await;

            take(room, right, "patch", "multikueueclusters").await;
            let skipped = log_lines(room);
            clusters.delete(WEST, &DeleteParams::default()).await.unwrap();
            let stays = "so it stays although nothing of ours is left there";
            logged(room, skipped, &[stays, NO_PATCH, "apply deploy/rights", WEST]).await;
            assert!(clusters.get_opt(WEST).await.unwrap().is_some());
        };
        and_then(body, async {
            give_to(room, MANAGER, OWN_ROLE, &before).await;
            let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
            eventually(|| async {
                let left = clusters.get_opt(WEST).await.ok()?;
                left.is_none_or(|one| one.metadata.deletion_timestamp.is_none())
                    .then_some(())
            })
            .await;
            room.shared.stage.join(WEST).await.unwrap();
        })
        .await;
        room.submit(room.job("afterwards", "8", 1)).await;
        room.ran_once("afterwards").await;
        room.is_swept().await;
    });
}

/// Jobs still go there, and the log names the missing right.
///
/// Spec: multikueue 4.3
#[test]
fn a_worker_whose_queues_may_not_be_read_gets_jobs_and_is_named_in_the_log() {
    alone(
        "no-queues",
        &[(MANAGER, "16"), (EAST, "8"), (WEST, "1")],
        |room| async move {
            let before = roles(room, EAST).get(ROLE).await.unwrap().rules.unwrap();
            let reads_queues =
                |rule: &PolicyRule| rule.resources.iter().flatten().any(|one| one == "clusterqueues");
            let without: Vec<PolicyRule> = { before.iter() }
                .filter(|rule| !reads_queues(rule))
                .cloned()
                .collect();
            assert_ne!(without, before, "the right is there at first");
            let before_that = log_lines(room);
            let told = |words: &'static str| async move { logged(room, before_that, &[words, EAST]).await };
            give(room, EAST, &without).await;
            // Open watches go on; a new connection needs the right.
            let link = room.shared.stage.link(EAST).unwrap();
            link.cut(Cut::Refuse);
            told("connection lost").await;
            link.heal();
            told("its queues cannot be read").await;
            room.submit(room.job("asked", "2", 1)).await;
            assert_eq!(room.started("asked").await, EAST);
            room.job_is(MANAGER, "asked", "Complete").await;
            give(room, EAST, &before).await;
            told("its queues can be read again").await;
            room.is_swept().await;
        },
    );
}
