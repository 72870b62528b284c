//! Changes on the manager to a job that runs on a worker: it is preempted, gets another priority, or is suspended by its user.

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::labels::PRIORITY_CLASS;
use roadstead_api::kueue::v1beta2::ClusterQueue;
use roadstead_e2e::stage::apply;
use serde_json::{Value, json};

use super::fixture::{
    EAST, EVEN, MANAGER, Room, WEST, beside_others, cluster_name, condition, was_sent_once,
};
use super::once::{annotation, copy, runs};
use super::unheard::end;
use crate::shared::eventually;

/// Every worker has room for both, the manager for one.
const ONE_FITS: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "16"), (WEST, "16")];
/// Longer than a test: such a job ends only when it is stopped.
const LONG_SECS: u32 = 600;

/// A priority class that only the manager knows.
async fn class(room: Room, name: &str, value: i32) {
    let class = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": name}, "value": value,
    });
    apply(&room.shared.client(MANAGER), class).await.unwrap();
}

fn of_class(mut job: Value, class: &str) -> Value {
    job["metadata"]["labels"][PRIORITY_CLASS] = json!(class);
    job
}

/// The victim's pod takes its time to end, and until then its quota is not given to another.
///
/// Spec: multikueue 3.8, 10.F23, 11.72; safety I1, I4
#[test]
fn what_is_preempted_on_the_manager_stops_in_its_worker_first_and_comes_back_later() {
    beside_others("preempted-here", ONE_FITS, |room| async move {
        class(room, "preempted-here-urgent", 1000).await;
        let queues: Api<ClusterQueue> = Api::all(room.shared.client(MANAGER));
        let lower = Patch::Merge(json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}));
        let params = PatchParams::default();
        queues.patch(room.name, &params, &lower).await.unwrap();
        room.submit(room.job("victim", "6", LONG_SECS)).await;
        let first = room.started("victim").await;
        room.runs_in(&first, "victim").await;
        let pod = room.hold_pod(&first, "victim").await;

        let urgent = of_class(room.job("urgent", "6", LONG_SECS), "preempted-here-urgent");
        room.submit(urgent).await;
        let evicted = room.workload_where("victim", |w| w.is_true("Evicted")).await;
        assert_eq!(condition(&evicted, "Evicted").unwrap().1, "Preempted");
        let sent = eventually(|| async {
            let sent = copy(room, &first, "victim").await?;
            let stopping = room.jobs(&first).get("victim").await.ok()?;
            (stopping.spec?.suspend == Some(true)).then_some(sent)
        })
        .await;
        let why = condition(&sent, "Evicted").unwrap().1;
        assert_eq!(why, "DeactivatedDueToEvictedOnManagerCluster");
        let waiting = room.workload("urgent").await.unwrap();
        assert!(!waiting.is_true("QuotaReserved"), "{:?}", waiting.status);
        room.let_go(&first, &pod).await;

        let place = room.started("urgent").await;
        for worker in [EAST, WEST] {
            let victim = room.jobs(worker).get_opt("victim").await.unwrap();
            assert!(victim.is_none_or(|job| !runs(&job)), "both run");
        }
        end(room, &place, "urgent").await;
        room.ran_once("urgent").await;
        let back = room
            .workload_where("victim", |w| cluster_name(w).is_some() && !w.is_true("Evicted"))
            .await;
        assert_eq!(annotation(&back, DISPATCH_EPOCH).as_deref(), Some("2"));
        let second = cluster_name(&back).unwrap();
        end(room, &second, "victim").await;
        let ended = room.job_is(MANAGER, "victim", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        room.is_swept().await;
    });
}

/// Spec: multikueue 10.F39, 11.83
#[test]
fn another_priority_class_reaches_the_copy_of_a_job_that_runs_and_does_not_disturb_it() {
    beside_others("reprioritised", EVEN, |room| async move {
        class(room, "reprioritised-low", 10).await;
        class(room, "reprioritised-high", 1000).await;
        room.submit(of_class(room.job("train", "1", LONG_SECS), "reprioritised-low"))
            .await;
        let winner = room.started("train").await;
        room.runs_in(&winner, "train").await;
        let sent = copy(room, &winner, "train").await.unwrap();
        assert_eq!(sent.spec.priority, Some(10));

        let high = json!({"metadata": {"labels": {PRIORITY_CLASS: "reprioritised-high"}}});
        room.merge::<Job>(MANAGER, "train", high).await;
        let changed = eventually(|| async {
            let copy = copy(room, &winner, "train").await?;
            (copy.spec.priority == Some(1000)).then_some(copy)
        })
        .await;
        let class = &json!(changed.spec)["priorityClassRef"];
        assert_eq!(class["name"], "reprioritised-high", "{class}");
        assert_eq!(changed.uid(), sent.uid());
        end(room, &winner, "train").await;
        room.ran_once("train").await;
        room.is_swept().await;
    });
}

/// To stop an admitted job, a user deactivates its Workload. If the user suspends the job, the manager resumes it.
///
/// Spec: jobs 5.1 row 18, jobs 10.3; safety I1
#[test]
fn a_job_that_its_user_suspends_is_resumed_and_its_run_in_the_worker_goes_on() {
    beside_others("suspended-here", EVEN, |room| async move {
        room.submit(room.job("train", "1", LONG_SECS)).await;
        let winner = room.started("train").await;
        room.runs_in(MANAGER, "train").await;
        let run = room.jobs(&winner).get("train").await.unwrap();
        for suspend in [true, false] {
            let patch = json!({"spec": {"suspend": suspend}});
            let job: Job = room.merge(MANAGER, "train", patch).await;
            assert_eq!(job.spec.unwrap().suspend, Some(suspend));
            eventually(|| async {
                let job = room.jobs(MANAGER).get("train").await.ok()?;
                (job.spec?.suspend == Some(false)).then_some(())
            })
            .await;
        }
        room.runs_in(MANAGER, "train").await;
        let now = room.jobs(&winner).get("train").await.unwrap();
        assert_eq!(now.uid(), run.uid());
        let (now, run) = (now.status.unwrap(), run.status.unwrap());
        assert_eq!(now.start_time, run.start_time, "it was never stopped");
        let workload = room.workload("train").await.unwrap();
        assert!(was_sent_once(&workload), "{:?}", workload.status);
        end(room, &winner, "train").await;
        room.ran_once("train").await;
        room.is_swept().await;
    });
}

/// As on one cluster: the run is stopped, and the job waits with its new size.
///
/// Spec: jobs 5.3 C3, C4; safety I1, I4
#[test]
fn a_job_whose_size_is_changed_while_it_runs_is_stopped_in_its_worker_and_starts_anew() {
    is_resized("resized", json!({"parallelism": 2}));
}

/// As when a user applies the first manifest again, with another size.
///
/// Spec: jobs 5.3 C3, C4; safety I1, I4
#[test]
fn a_job_that_is_suspended_and_changed_in_one_write_is_stopped_in_its_worker_and_starts_anew() {
    is_resized("resized-suspended", json!({"parallelism": 2, "suspend": true}));
}

/// A job of one pod runs in a worker when its spec is changed so that it has two.
fn is_resized(test: &'static str, change: Value) {
    beside_others(test, EVEN, |room| async move {
        let mut job = room.job("train", "1", LONG_SECS);
        job["spec"]["completions"] = json!(2);
        room.submit(job).await;
        let first = room.started("train").await;
        room.runs_in(MANAGER, "train").await;
        let run = room.jobs(&first).get("train").await.unwrap();
        let pod = room.hold_pod(&first, "train").await;

        let _: Job = room.merge(MANAGER, "train", json!({ "spec": change })).await;
        eventually(|| async {
            let stopping = room.jobs(&first).get("train").await.ok()?;
            (stopping.spec?.suspend == Some(true)).then_some(())
        })
        .await;
        room.let_go(&first, &pod).await;

        let again = eventually(|| async {
            for worker in [EAST, WEST] {
                let job = room.jobs(worker).get_opt("train").await.unwrap();
                if let Some(job) = job.filter(|job| job.uid() != run.uid() && runs(job)) {
                    return Some(job);
                }
            }
            None
        })
        .await;
        assert_eq!(again.spec.unwrap().parallelism, Some(2));
        let workload = room.workload("train").await.unwrap();
        assert_eq!(workload.spec.pod_sets[0].count, 2, "{:?}", workload.spec);
        let jobs = room.jobs(MANAGER);
        eventually(|| async {
            let job = jobs.get("train").await.ok()?;
            (job.status?.active == Some(2)).then_some(())
        })
        .await;
        jobs.delete("train", &DeleteParams::background()).await.unwrap();
        room.is_swept().await;
    });
}
