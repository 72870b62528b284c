//! Copies that another client deletes in a worker while the manager cannot see it.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PropagationPolicy};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::link::Cut;
use serde_json::json;

use super::fixture::{MANAGER, Room, WEST, alone, condition, has};
use crate::shared::eventually;

/// A job of 6 CPU fits only into west.
const WEST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), ("east", "4"), (WEST, "8")];

/// Deletes a job in west without its finalizers, also the manager's, and leaves its Workload there.
async fn delete_copy(room: Room, name: &str) {
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let jobs = room.jobs(WEST);
    room.merge::<Job>(WEST, name, json!({"metadata": {"finalizers": null}}))
        .await;
    jobs.delete(name, &orphan).await.unwrap();
    eventually(|| async { jobs.get_opt(name).await.ok()?.is_none().then_some(()) }).await;
}

fn active(job: &Job) -> i32 {
    let status = job.status.as_ref();
    status.and_then(|status| status.active).unwrap_or(0)
}

/// Spec: safety W9, I5; multikueue 3.10
#[test]
fn a_job_whose_copy_is_deleted_before_its_end_was_seen_ends_as_its_workload_did() {
    alone("lost-end", WEST_IS_LARGER, |room| async move {
        room.submit(room.job("ended", "6", 4)).await;
        assert_eq!(room.started("ended").await, WEST);
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        room.job_is(WEST, "ended", "Complete").await;
        let over = || async {
            let all = room
                .workloads(WEST)
                .list(&kube::api::ListParams::default())
                .await
                .ok()?;
            all.items.iter().any(|w| w.is_true("Finished")).then_some(())
        };
        eventually(over).await;
        delete_copy(room, "ended").await;
        // Why: a resumed watch would report the missed events, the last status of the job too.
        room.shared.stage.kill(MANAGER).unwrap();
        room.shared.stage.restart(MANAGER).await.unwrap();
        room.shared.stage.link(WEST).unwrap().heal();
        let job = room.job_is(MANAGER, "ended", "Complete").await;
        assert_eq!(active(&job), 0);
        let conditions = job.status.unwrap().conditions.unwrap();
        let complete = conditions.iter().find(|c| c.type_ == "Complete").unwrap();
        let message = complete.message.clone().unwrap_or_default();
        assert!(message.contains("its copy there was deleted"), "{message}");
        room.is_swept().await;
    });
}

/// Spec: multikueue 13.B2; jobs 5.9
#[test]
fn a_job_whose_running_copy_is_deleted_counts_no_pods_is_restored_and_runs_again() {
    alone("lost-run", WEST_IS_LARGER, |room| async move {
        let made = room.submit(room.job("again", "6", 5)).await;
        let jobs = room.jobs(MANAGER);
        let first = eventually(|| async { jobs.get("again").await.ok().filter(|job| active(job) > 0) }).await;
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        // Why held: so that the job keeps the state to which it is set back.
        let queues: kube::Api<roadstead_api::kueue::v1beta2::ClusterQueue> =
            kube::Api::all(room.shared.client(MANAGER));
        let stop = |policy: &str| kube::api::Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
        let params = kube::api::PatchParams::default();
        queues.patch(room.name, &params, &stop("Hold")).await.unwrap();
        delete_copy(room, "again").await;
        let copies = room.workloads(WEST);
        for copy in copies.list(&kube::api::ListParams::default()).await.unwrap() {
            let name = copy.name_any();
            room.merge::<Workload>(WEST, &name, json!({"metadata": {"finalizers": null}}))
                .await;
            let gone = copies.delete(&name, &DeleteParams::background()).await;
            assert!(gone.is_ok() || copies.get_opt(&name).await.unwrap().is_none());
        }
        room.shared.stage.link(WEST).unwrap().heal();
        room.workload_where("again", |w| {
            condition(w, "Evicted").is_some() && !w.is_true("QuotaReserved")
        })
        .await;
        let back = eventually(|| async {
            let job = jobs.get("again").await.ok()?;
            let stopping = job.annotations().contains_key("kueue.x-k8s.io/stopping");
            let held = job.spec.as_ref()?.suspend == Some(true);
            (held && !stopping && active(&job) == 0).then_some(job)
        })
        .await;
        assert_eq!(
            back.spec.unwrap().template.metadata.unwrap().labels,
            made.spec.unwrap().template.metadata.unwrap().labels
        );
        assert!(!has(&jobs.get("again").await.unwrap(), "Complete"));
        queues.patch(room.name, &params, &stop("None")).await.unwrap();
        let ended = room.job_is(MANAGER, "again", "Complete").await;
        // Why checked: the API server refuses a change of the start time of a job that is not suspended.
        let start = |job: &Job| job.status.as_ref().unwrap().start_time.clone().unwrap();
        assert!(
            start(&ended) > start(&first),
            "the times are those of the second run"
        );
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        room.is_swept().await;
    });
}

/// Spec: multikueue 3.3 R3; safety 3; jobs 5.11
#[test]
fn a_running_copy_that_somebody_deletes_in_the_foreground_has_no_outcome_and_runs_again_with_all_its_pods() {
    alone("lost-foreground", WEST_IS_LARGER, |room| async move {
        let mut job = room.job("again", "3", 12);
        job["spec"]["parallelism"] = json!(2);
        job["spec"]["completions"] = json!(2);
        room.submit(job).await;
        assert_eq!(room.started("again").await, WEST);
        let jobs = room.jobs(WEST);
        let first =
            eventually(|| async { jobs.get("again").await.ok().filter(|job| active(job) == 2) }).await;
        let pods: kube::Api<Pod> = kube::Api::namespaced(room.shared.client(WEST), room.name);
        let of_job = kube::api::ListParams::default().labels("job-name=again");
        let one = pods.list(&of_job).await.unwrap().items.remove(0).name_any();
        let done = kube::api::Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        let params = kube::api::PatchParams::default();
        pods.patch_status(&one, &params, &done).await.unwrap();
        room.workload_where("again", |w| reclaimed(w) == [1]).await;

        jobs.delete("again", &DeleteParams::foreground()).await.unwrap();
        eventually(|| async {
            let local = room.jobs(MANAGER).get("again").await.unwrap();
            assert!(
                !has(&local, "Failed"),
                "its pods were killed, which is no outcome"
            );
            let next = jobs.get_opt("again").await.unwrap()?;
            (next.uid() != first.uid() && active(&next) == 2).then_some(())
        })
        .await;
        let second = room.workload_where("again", |w| w.is_true("Admitted")).await;
        assert!(reclaimed(&second).is_empty(), "both pods run again");
        room.job_is(MANAGER, "again", "Complete").await;
        room.is_swept().await;
    });
}

fn reclaimed(workload: &Workload) -> Vec<i32> {
    let status = workload.status.as_ref();
    let pods = status
        .map(|status| status.reclaimable_pods.as_slice())
        .unwrap_or_default();
    pods.iter().map(|pods| pods.count).collect()
}
