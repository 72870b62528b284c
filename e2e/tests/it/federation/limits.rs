//! Ends of a run that the worker itself decides: its time is over, or its job was changed there.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use roadstead_api::constants::labels::{MAX_EXEC_TIME_SECONDS, MULTIKUEUE_ORIGIN};
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::json;
use tokio::time::sleep;

use super::capacity::fill_with;
use super::fixture::{EAST, EVEN, MANAGER, WEST, alone, beside_others, cluster_name, condition};
use super::watched::Watched;
use crate::shared::eventually;

/// One worker.
const ONE_WORKER: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];

/// The worker counts from its own admission, a moment before the manager does.
///
/// Spec: multikueue 10.F41, 13.B19; admission-engine 4.2
#[test]
fn a_job_whose_time_is_up_is_stopped_and_switched_off_and_not_run_elsewhere() {
    beside_others("time-is-up", EVEN, |room| async move {
        let mut job = room.job("endless", "1", 600);
        job["metadata"]["labels"][MAX_EXEC_TIME_SECONDS] = json!("3");
        room.submit(job).await;
        room.started("endless").await;
        let ended = room.workload_where("endless", |w| {
            let evicted = condition(w, "Evicted").filter(|(status, ..)| status == "True");
            evicted.is_some() && cluster_name(w).is_none()
        });
        let workload = ended.await;
        let (_, reason, message) = condition(&workload, "Evicted").unwrap();
        assert_eq!(
            (reason.as_str(), message.as_str()),
            (
                "DeactivatedDueToMaximumExecutionTimeExceeded",
                "The workload is deactivated due to exceeding the maximum execution time"
            )
        );
        assert!(!workload.is_active());
        let evictions = &json!(workload.status)["schedulingStats"]["evictions"];
        assert_eq!(evictions.as_array().map(Vec::len), Some(1), "{evictions}");
        let shown = eventually(|| async {
            let job = room.jobs(MANAGER).get("endless").await.ok()?;
            let at_rest = job.status.as_ref()?.active.unwrap_or_default() == 0;
            (job.spec.as_ref()?.suspend == Some(true) && at_rest).then_some(job)
        });
        shown.await;
        room.is_swept().await;
    });
}

/// The worker's clock begins when it admits, the manager's when it has heard of that: here the manager is away meanwhile.
///
/// Spec: multikueue 10.F41, 13.B19
#[test]
fn a_job_whose_time_is_up_on_its_worker_long_before_is_not_started_again() {
    alone("time-is-up-there", ONE_WORKER, |room| async move {
        fill_with(room, EAST, ("8", 600)).await;
        let mut job = room.job("endless", "1", 600);
        job["metadata"]["labels"][MAX_EXEC_TIME_SECONDS] = json!("10");
        room.submit(job).await;
        let copy = eventually(|| async {
            let name = room.workload("endless").await?.name_any();
            room.workloads(EAST).get_opt(&name).await.unwrap()
        });
        let copy = copy.await.name_any();
        room.shared.stage.kill(MANAGER).unwrap();
        let params = DeleteParams::background();
        room.jobs(EAST).delete("local", &params).await.unwrap();
        eventually(|| async {
            let copy = room.workloads(EAST).get(&copy).await.ok()?;
            (condition(&copy, "Admitted")?.0 == "True").then_some(())
        })
        .await;
        // Why: conditions are dated in whole seconds.
        sleep(Duration::from_secs(1)).await;
        let jobs = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        room.shared.stage.restart(MANAGER).await.unwrap();
        assert_eq!(room.started("endless").await, EAST);
        let switched_off = |w: &Workload| {
            let evicted = condition(w, "Evicted").filter(|(status, ..)| status == "True");
            let reason = evicted.map(|(_, reason, _)| reason);
            !w.is_active() && reason.as_deref() == Some("DeactivatedDueToMaximumExecutionTimeExceeded")
        };
        let released =
            |w: &Workload| condition(w, "QuotaReserved").is_some_and(|(status, ..)| status == "False");
        room.workload_where("endless", move |w| switched_off(w) && released(w))
            .await;
        room.is_swept().await;
        assert_eq!(jobs.created().await, ["endless"], "it was started once");
    });
}

/// Spec: multikueue 10.F19, 11.61, 11.107, 13.B1; safety F16
#[test]
fn a_job_that_is_edited_on_its_worker_runs_elsewhere_and_its_workload_goes_on() {
    beside_others("edited", EVEN, |room| async move {
        let in_east = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        let in_west = Watched::start(&room.jobs(WEST), MULTIKUEUE_ORIGIN).await;
        let mut job = room.job("edited", "1", 5);
        job["spec"]["parallelism"] = json!(2);
        job["spec"]["completions"] = json!(2);
        room.submit(job).await;
        let first = room.started("edited").await;
        let second = if first == EAST { WEST } else { EAST };
        let half = json!({"spec": {"parallelism": 1}});
        room.merge::<Job>(&first, "edited", half).await;
        let moved = room.workload_where("edited", move |w| {
            let finished = condition(w, "Finished").is_some_and(|(status, ..)| status == "True");
            assert!(!finished || cluster_name(w).as_deref() == Some(second), "{w:?}");
            cluster_name(w).as_deref() == Some(second)
        });
        moved.await;
        let ended = room.job_is(MANAGER, "edited", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(2));
        room.is_swept().await;
        let runs = [in_east.created().await, in_west.created().await];
        assert_eq!(runs, [["edited"], ["edited"]], "once in each");
    });
}
