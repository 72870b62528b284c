//! What a worker finds out about a run by itself: that its time is up, or that its job is no longer what was sent.

use k8s_openapi::api::batch::v1::Job;
use roadstead_api::constants::labels::MAX_EXEC_TIME_SECONDS;
use serde_json::json;

use super::fixture::{EAST, EVEN, MANAGER, WEST, beside_others, cluster_name, condition};
use crate::shared::eventually;

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

/// Spec: multikueue 10.F19, 13.B1
#[test]
fn a_job_that_is_edited_on_its_worker_runs_elsewhere_and_its_workload_goes_on() {
    beside_others("edited", EVEN, |room| async move {
        room.submit(room.job("edited", "1", 8)).await;
        let first = room.started("edited").await;
        let second = if first == EAST { WEST } else { EAST };
        let more = json!({"spec": {"parallelism": 2}});
        room.merge::<Job>(&first, "edited", more).await;
        let moved = room.workload_where("edited", move |w| {
            let finished = condition(w, "Finished").is_some_and(|(status, ..)| status == "True");
            assert!(!finished || cluster_name(w).as_deref() == Some(second), "{w:?}");
            cluster_name(w).as_deref() == Some(second)
        });
        moved.await;
        room.job_is(MANAGER, "edited", "Complete").await;
        room.is_swept().await;
    });
}
