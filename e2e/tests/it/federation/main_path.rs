//! One job from its submission to its end, and its deletion in the middle.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::DeleteParams;
use roadstead_api::constants::controllers::MULTIKUEUE;
use roadstead_api::kueue::v1beta2::{CheckState, Workload};
use roadstead_e2e::options::EXIT_CODE;
use serde_json::json;

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, beside_others, cluster_name, condition, has};
use crate::shared::eventually;

fn spec(job: &Job) -> &k8s_openapi::api::batch::v1::JobSpec {
    job.spec.as_ref().unwrap()
}

fn active(job: &Job) -> i32 {
    job.status
        .as_ref()
        .and_then(|status| status.active)
        .unwrap_or_default()
}

fn other(worker: &str) -> &'static str {
    if worker == EAST { WEST } else { EAST }
}

/// Waits until the job runs in a worker and the manager shows that. Returns the worker.
async fn runs(room: Room, name: &str) -> String {
    let winner = room.started(name).await;
    let jobs = room.jobs(MANAGER);
    eventually(|| async { jobs.get(name).await.ok().filter(|job| active(job) == 1) }).await;
    winner
}

async fn set_active(room: Room, job: &str, active: bool) {
    let workload = room.workload(job).await.unwrap().name_any();
    room.merge::<Workload>(MANAGER, &workload, json!({"spec": {"active": active}}))
        .await;
}

/// Spec: multikueue 1.8, 3.3 R6, 3.6, 11.57; safety I1, I5
#[test]
fn a_job_runs_in_exactly_one_worker_and_its_end_comes_back() {
    beside_others("main-path", EVEN, |room| async move {
        let made = room.submit(room.job("train", "1", 3)).await;
        assert_eq!(spec(&made).suspend, Some(true), "the webhook suspends it");
        assert_eq!(spec(&made).managed_by.as_deref(), Some(MULTIKUEUE));

        let winner = runs(room, "train").await;
        let workload = room.workload_where("train", |w| cluster_name(w).is_some()).await;
        assert_eq!(cluster_name(&workload).unwrap(), winner);
        let check = workload
            .status
            .as_ref()
            .unwrap()
            .admission_checks
            .first()
            .unwrap()
            .clone();
        assert_eq!(check.state, CheckState::Ready);
        assert_eq!(
            check.message,
            format!("The workload was admitted on \"{winner}\"")
        );
        room.is_swept_in(other(&winner)).await;
        let there = room.jobs(&winner).get("train").await.unwrap();
        assert_ne!(there.uid(), made.uid());
        for (worker, kind) in [
            (EAST, "Workload"),
            (WEST, "Workload"),
            (EAST, "Job"),
            (WEST, "Job"),
        ] {
            let start =
                format!("roadstead_cluster_watch_lag_seconds{{cluster=\"{worker}\",kind=\"{kind}\"}} ");
            eventually(|| async {
                let lines = room.shared.metrics(MANAGER, &start).await;
                let secs: f64 = lines.first()?.strip_prefix(&start)?.parse().unwrap();
                assert!(
                    (0.0..150.0).contains(&secs),
                    "a bookmark comes each minute: {lines:?}"
                );
                Some(())
            })
            .await;
        }

        let done = room.job_is(MANAGER, "train", "Complete").await;
        assert_eq!(done.status.as_ref().unwrap().succeeded, Some(1));
        let finished = |w: &_| condition(w, "Finished").is_some_and(|(status, ..)| status == "True");
        let workload = room.workload_where("train", finished).await;
        assert_eq!(condition(&workload, "Finished").unwrap().1, "Succeeded");
        room.is_swept().await;
        assert!(has(&room.jobs(MANAGER).get("train").await.unwrap(), "Complete"));
    });
}

/// Spec: multikueue 3.6
#[test]
fn a_job_that_fails_in_the_worker_has_failed_on_the_manager() {
    beside_others("main-failing", EVEN, |room| async move {
        let mut job = room.job("fails", "1", 1);
        job["spec"]["template"]["metadata"]["annotations"][EXIT_CODE] = "3".into();
        room.submit(job).await;
        room.job_is(MANAGER, "fails", "Failed").await;
        let finished = |w: &_| condition(w, "Finished").is_some_and(|(status, ..)| status == "True");
        let workload = room.workload_where("fails", finished).await;
        assert_eq!(condition(&workload, "Finished").unwrap().1, "Failed");
        room.is_swept().await;
    });
}

/// Spec: multikueue 3.9, 10.F24
#[test]
fn deleting_a_running_job_removes_everything_in_the_workers() {
    beside_others("main-deleted", EVEN, |room| async move {
        room.submit(room.job("cancelled", "1", 600)).await;
        let winner = runs(room, "cancelled").await;
        let jobs = room.jobs(MANAGER);
        jobs.delete("cancelled", &DeleteParams::background())
            .await
            .unwrap();
        room.is_swept().await;
        eventually(|| async { room.workload("cancelled").await.is_none().then_some(()) }).await;
        let pods = room.api::<k8s_openapi::api::core::v1::Pod>(&winner);
        let gone = || async {
            let left = pods.list(&kube::api::ListParams::default()).await.ok()?;
            left.items.is_empty().then_some(())
        };
        eventually(gone).await;
    });
}

/// Spec: multikueue 3.9, 3.3 R5
#[test]
fn a_deactivated_job_stops_and_runs_again_when_it_is_activated() {
    beside_others("main-deactivated", EVEN, |room| async move {
        room.submit(room.job("pausing", "1", 600)).await;
        runs(room, "pausing").await;
        set_active(room, "pausing", false).await;
        room.is_swept().await;
        let evicted = |w: &_| condition(w, "Evicted").is_some_and(|(status, ..)| status == "True");
        let seen = room
            .workload_where("pausing", |w| evicted(w) && cluster_name(w).is_none())
            .await;
        assert_eq!(condition(&seen, "Evicted").unwrap().1, "Deactivated");
        let released = |w: &_| condition(w, "QuotaReserved").is_some_and(|(status, ..)| status == "False");
        room.workload_where("pausing", released).await;
        assert!(room.ours_in(EAST).await.is_empty() && room.ours_in(WEST).await.is_empty());

        set_active(room, "pausing", true).await;
        let again = room
            .workload_where("pausing", |w| cluster_name(w).is_some())
            .await;
        let winner = cluster_name(&again).unwrap();
        let jobs = room.jobs(&winner);
        eventually(|| async { jobs.get("pausing").await.ok().filter(|job| active(job) == 1) }).await;
        room.jobs(MANAGER)
            .delete("pausing", &DeleteParams::background())
            .await
            .unwrap();
        room.is_swept().await;
    });
}
