//! Names that are used again, and Workloads that are deleted while their jobs stay.

use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::EXPLANATION;
use roadstead_api::kueue::v1beta2::Workload;

use super::fixture::{EAST, EVEN, MANAGER, WEST, beside_others};
use crate::shared::eventually;

/// As after `kubectl replace --force`: the second job comes while the pods of the first one still end.
///
/// Spec: multikueue 3.9; safety I1, I3
#[test]
fn a_job_that_is_made_again_under_its_name_waits_for_the_pods_of_the_first_one_and_runs() {
    let one_fits = &[(MANAGER, "16"), (EAST, "8"), (WEST, "2")];
    beside_others("anew", one_fits, |room| async move {
        room.submit(room.job("train", "6", 600)).await;
        room.runs_in(EAST, "train").await;
        let pod = room.hold_pod(EAST, "train").await;
        let first = room.workload("train").await.unwrap().uid();
        let background = DeleteParams::background();
        room.jobs(MANAGER).delete("train", &background).await.unwrap();
        eventually(|| async {
            room.jobs(MANAGER)
                .get_opt("train")
                .await
                .ok()?
                .is_none()
                .then_some(())
        })
        .await;
        room.submit(room.job("train", "6", 2)).await;

        room.workload_where("train", |w| {
            let told = w
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(EXPLANATION));
            w.uid() != first && told.is_some_and(|told| told.contains("StoppingOnWorker"))
        })
        .await;
        let there = room.jobs(EAST).get("train").await.unwrap();
        assert!(
            there.metadata.deletion_timestamp.is_some(),
            "it is the first one, and ends"
        );
        room.let_go(EAST, &pod).await;

        let done = room.job_is(MANAGER, "train", "Complete").await;
        assert_eq!(done.status.unwrap().succeeded, Some(1));
        room.is_swept().await;
    });
}

/// Spec: multikueue 3.9, 11.105; jobs 5.1 row 11; safety I1, I5
#[test]
fn a_workload_that_is_deleted_takes_its_run_with_it_and_its_job_runs_anew() {
    beside_others("kicked", EVEN, |room| async move {
        room.submit(room.job("train", "1", 8)).await;
        let winner = room.started("train").await;
        room.runs_in(&winner, "train").await;
        let workload = room.workload("train").await.unwrap();
        let run = room.jobs(&winner).get("train").await.unwrap().uid();
        let workloads: Api<Workload> = room.workloads(MANAGER);
        workloads
            .delete(&workload.name_any(), &DeleteParams::background())
            .await
            .unwrap();

        room.workload_where("train", |w| w.uid() != workload.uid()).await;
        eventually(|| async {
            let there = room.jobs(&winner).get_opt("train").await.ok()?;
            there.is_none_or(|job| job.uid() != run).then_some(())
        })
        .await;
        let done = room.job_is(MANAGER, "train", "Complete").await;
        assert_eq!(done.status.unwrap().succeeded, Some(1));
        room.is_swept().await;
    });
}
