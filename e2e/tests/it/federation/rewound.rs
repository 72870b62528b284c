//! A worker whose storage is restored from a backup.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::finalizers::FOREGROUND;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::link::Cut;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::fixture::{MANAGER, Room, SPARE, alone, cluster_name};
use crate::shared::eventually;

/// Only the spare cluster has room: it has neither nodes nor controllers, so its jobs stay as they were started.
const SPARE_ONLY: &[(&str, &str)] = &[(MANAGER, "16"), (SPARE, "16")];

const COLLECTING: Duration = Duration::from_millis(100);

fn epoch(object: &impl kube::ResourceExt) -> Option<&str> {
    object.annotations().get(DISPATCH_EPOCH).map(String::as_str)
}

fn runs(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true))
}

/// Waits until the job runs in the spare cluster, sent with this number.
async fn runs_as(room: Room, job: &str, number: &str) -> Job {
    let jobs = room.jobs(SPARE);
    let running = || async {
        let found = jobs.get_opt(job).await.ok()??;
        (runs(&found) && epoch(&found) == Some(number) && found.metadata.deletion_timestamp.is_none())
            .then_some(found)
    };
    eventually(running).await
}

/// Acts as the garbage collector of the spare cluster, for jobs without pods that are deleted in the foreground.
async fn collect(room: Room) {
    let jobs = room.jobs(SPARE);
    loop {
        // Why ignored: the API server does not answer while its storage is restored.
        for mut job in jobs.list(&ListParams::default()).await.into_iter().flatten() {
            if job.metadata.deletion_timestamp.is_some() && job.finalizers().iter().any(|f| f == FOREGROUND) {
                job.finalizers_mut().retain(|f| f != FOREGROUND);
                let _ = jobs.replace(&job.name_any(), &PostParams::default(), &job).await;
            }
        }
        sleep(COLLECTING).await;
    }
}

/// Spec: safety 3.1, F15, I1, I5
#[test]
fn a_worker_whose_storage_goes_back_is_found_out_quarantined_and_put_right() {
    alone("rewound", SPARE_ONLY, |room| async move {
        let stage = &room.shared.stage;
        stage.join(SPARE).await.unwrap();
        let mut collector = JoinSet::new();
        collector.spawn(collect(room));
        for job in ["moved", "removed"] {
            room.submit(room.job(job, "1", 600)).await;
            runs_as(room, job, "1").await;
        }
        let spare = stage.planes().worker(SPARE).unwrap();
        spare.save_storage().unwrap();

        // After the backup: one job is dispatched anew, one is deleted, one comes.
        let name = room.workload("moved").await.unwrap().name_any();
        let active = async |is_active: bool| {
            let patch = json!({"spec": {"active": is_active}});
            room.merge::<Workload>(MANAGER, &name, patch).await;
        };
        active(false).await;
        room.workload_where("moved", |w| {
            !w.is_true("QuotaReserved") && cluster_name(w).is_none()
        })
        .await;
        active(true).await;
        runs_as(room, "moved", "2").await;
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("removed", &background).await.unwrap();
        eventually(|| async { (room.ours_in(SPARE).await.len() == 2).then_some(()) }).await;
        room.submit(room.job("lost", "1", 600)).await;
        runs_as(room, "lost", "1").await;

        stage.link(SPARE).unwrap().cut(Cut::Refuse);
        spare.restore_storage().await.unwrap();
        let old = room.jobs(SPARE).get("moved").await.unwrap();
        // Not whether it runs: the worker suspends the job as long as it knows the job but not its Workload.
        assert_eq!(epoch(&old), Some("1"), "the old run is back");
        assert_eq!(
            room.ours_in(SPARE).await.len(),
            4,
            "what was deleted is back, what came is not"
        );
        stage.link(SPARE).unwrap().heal();

        // The manager never takes the old run for the present one, and the next run starts when the old one is gone.
        let third = eventually(|| async {
            let local = room.workload("moved").await?;
            let there = room.jobs(SPARE).get_opt("moved").await.ok()?;
            let has_third = there.as_ref().is_some_and(|job| epoch(job) == Some("3"));
            assert!(
                there.as_ref().is_none_or(|job| epoch(job) != Some("2")),
                "the dispatch that was lost is not sent again"
            );
            (has_third && cluster_name(&local).as_deref() == Some(SPARE)).then_some(there)?
        })
        .await;
        assert_ne!(third.uid(), old.uid());
        runs_as(room, "moved", "3").await;
        runs_as(room, "lost", "2").await;
        let gone = || async {
            room.jobs(SPARE)
                .get_opt("removed")
                .await
                .ok()?
                .is_none()
                .then_some(())
        };
        eventually(gone).await;
        let start =
            format!("roadstead_candidates_removed_total{{cluster=\"{SPARE}\",reason=\"OutdatedOnCluster\"}}");
        assert_eq!(room.shared.metrics(MANAGER, &start).await, [format!("{start} 1")]);

        for job in ["moved", "lost"] {
            room.jobs(MANAGER).delete(job, &background).await.unwrap();
        }
        room.is_swept_in(SPARE).await;
    });
}
