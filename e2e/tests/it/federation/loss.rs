//! Links that are cut, processes that are killed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use roadstead_api::kueue::v1beta2::{CheckState, Workload};
use roadstead_e2e::link::Cut;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::fixture::{EAST, MANAGER, Room, WEST, alone, cluster_name, condition, has};
use crate::shared::eventually;

/// A job of 6 CPU fits only into west.
const WEST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "4"), (WEST, "8")];
const EVEN: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "16"), (WEST, "16")];
/// How long after the end of the job the cut goes on, so that there is something to be caught doing.
const DARK: Duration = Duration::from_secs(3);
/// In each of the batches that are disturbed.
const BATCH: usize = 4;
/// How long a point at which to kill is waited for; what has gone by already is as good.
const POINT: Duration = Duration::from_secs(10);

pub(super) fn is_held_in_west(workload: &Workload) -> bool {
    let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
    cluster_name(workload).as_deref() == Some(WEST)
        && { checks }.all(|check| check.state == CheckState::Ready)
        && condition(workload, "Evicted").is_none()
}

async fn job_ends_in_the_dark(room: Room, cut: Cut) {
    room.submit(room.job("survivor", "6", 6)).await;
    assert_eq!(room.started("survivor").await, WEST);
    let workload = room.workload_where("survivor", is_held_in_west).await;
    room.shared.stage.link(WEST).unwrap().cut(cut);
    room.submit(room.job("meanwhile", "1", 1)).await;
    room.job_is(WEST, "survivor", "Complete").await;
    assert_eq!(room.started("meanwhile").await, EAST);
    room.job_is(MANAGER, "meanwhile", "Complete").await;
    let until = Instant::now() + DARK;
    while Instant::now() < until {
        let local = room.jobs(MANAGER).get("survivor").await.unwrap();
        assert!(!has(&local, "Complete"), "nobody can know yet");
        let now = room.workload("survivor").await.unwrap();
        assert!(is_held_in_west(&now), "{:?}", now.status);
        assert!(room.jobs(EAST).get_opt("survivor").await.unwrap().is_none());
        sleep(Duration::from_millis(250)).await;
    }
    room.shared.stage.link(WEST).unwrap().heal();
    room.job_is(MANAGER, "survivor", "Complete").await;
    let after = room.workload("survivor").await.unwrap();
    assert_eq!(after.metadata.uid, workload.metadata.uid);
    room.is_swept().await;
}

/// Spec: multikueue 3.10, 10.F8; safety I1, I5, I13
#[test]
fn a_job_that_ends_behind_a_cut_cable_is_known_to_have_ended_once_it_is_mended() {
    alone("cable-refuses", WEST_IS_LARGER, |room| {
        job_ends_in_the_dark(room, Cut::Refuse)
    });
}

/// Spec: multikueue 3.10, 10.F5, 10.F8; safety I1, I5, I12
#[test]
fn a_worker_that_falls_silent_keeps_its_job_and_holds_up_nobody() {
    alone("cable-swallows", WEST_IS_LARGER, |room| {
        job_ends_in_the_dark(room, Cut::Swallow)
    });
}

/// A deletion while the worker cannot be reached.
///
/// Spec: multikueue 10.F25, 11.79; safety I5
#[test]
fn a_job_deleted_while_its_worker_is_away_is_removed_there_when_it_returns() {
    alone("cable-deleted", WEST_IS_LARGER, |room| async move {
        room.submit(room.job("cancelled", "6", 600)).await;
        assert_eq!(room.started("cancelled").await, WEST);
        room.workload_where("cancelled", is_held_in_west).await;
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        let background = kube::api::DeleteParams::background();
        room.jobs(MANAGER).delete("cancelled", &background).await.unwrap();
        eventually(|| async { room.workload("cancelled").await.is_none().then_some(()) }).await;
        assert_eq!(room.ours_in(WEST).await.len(), 2, "the worker does not know");
        room.shared.stage.link(WEST).unwrap().heal();
        room.is_swept().await;
    });
}

/// A worker must not take the end of this job for a stop, or the job would run again when it is activated.
///
/// Spec: safety I11
#[test]
fn a_job_that_ended_in_the_dark_before_it_was_switched_off_has_ended() {
    alone("cable-switched-off", WEST_IS_LARGER, |room| async move {
        room.submit(room.job("ended", "6", 5)).await;
        assert_eq!(room.started("ended").await, WEST);
        let workload = room.workload_where("ended", is_held_in_west).await.name_any();
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        room.job_is(WEST, "ended", "Complete").await;
        let switch = |on: bool| room.merge::<Workload>(MANAGER, &workload, json!({"spec": {"active": on}}));
        switch(false).await;
        room.workload_where("ended", |w| condition(w, "Evicted").is_some())
            .await;
        room.shared.stage.link(WEST).unwrap().heal();
        let job = room.job_is(MANAGER, "ended", "Complete").await;
        assert_eq!(job.status.unwrap().succeeded, Some(1));
        room.workload_where("ended", |w| w.is_true("Finished")).await;
        switch(true).await;
        room.is_swept().await;
        sleep(DARK).await;
        assert!(
            room.jobs(WEST).get_opt("ended").await.unwrap().is_none(),
            "it does not run again"
        );
    });
}

/// Pods that a worker could not make yet are no proof that nothing runs there.
///
/// Spec: safety I4; multikueue 13.B2
#[test]
fn a_job_that_never_showed_a_pod_keeps_its_quota_until_its_worker_says_that_it_has_stopped() {
    alone("cable-no-pods", WEST_IS_LARGER, |room| async move {
        room.refuse_pods(WEST).await;
        room.submit(room.job("unseen", "6", 600)).await;
        assert_eq!(room.started("unseen").await, WEST);
        let workload = room.workload_where("unseen", is_held_in_west).await.name_any();
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        let off = json!({"spec": {"active": false}});
        room.merge::<Workload>(MANAGER, &workload, off).await;
        room.workload_where("unseen", |w| condition(w, "Evicted").is_some())
            .await;
        let until = Instant::now() + DARK;
        while Instant::now() < until {
            let now = room.workload("unseen").await.unwrap();
            assert!(now.is_true("QuotaReserved"), "{:?}", now.status);
            assert_eq!(cluster_name(&now).as_deref(), Some(WEST));
            sleep(Duration::from_millis(250)).await;
        }
        let pods = room.api::<Pod>(WEST).list(&ListParams::default()).await.unwrap();
        assert!(pods.items.is_empty(), "none can be made: {pods:?}");
        room.shared.stage.link(WEST).unwrap().heal();
        room.workload_where("unseen", |w| !w.is_true("QuotaReserved"))
            .await;
        room.is_swept().await;
    });
}

/// Spec: multikueue 3.4
#[test]
fn a_cluster_name_that_an_administrator_clears_is_not_written_back_and_what_is_found_there_is_stopped() {
    alone("cable-cleared", WEST_IS_LARGER, |room| async move {
        room.refuse_pods(WEST).await;
        room.submit(room.job("cleared", "3", 2)).await;
        assert_eq!(room.started("cleared").await, WEST);
        let workload = room.workload_where("cleared", is_held_in_west).await.name_any();
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        let switch = |on: bool| room.merge::<Workload>(MANAGER, &workload, json!({"spec": {"active": on}}));
        switch(false).await;
        let kept = room
            .workload_where("cleared", |w| condition(w, "Evicted").is_some())
            .await;
        assert_eq!(
            cluster_name(&kept).as_deref(),
            Some(WEST),
            "until then it is kept"
        );
        let clear = Patch::Merge(json!({"status": {"clusterName": null}}));
        let workloads = room.workloads(MANAGER);
        workloads
            .patch_status(&workload, &PatchParams::default(), &clear)
            .await
            .unwrap();
        let free = room
            .workload_where("cleared", |w| !w.is_true("QuotaReserved"))
            .await;
        assert_eq!(cluster_name(&free), None);
        let until = Instant::now() + DARK;
        while Instant::now() < until {
            let now = room.workload("cleared").await.unwrap();
            assert_eq!(cluster_name(&now), None, "{:?}", now.status);
            sleep(Duration::from_millis(250)).await;
        }
        assert_eq!(room.ours_in(WEST).await.len(), 2, "the worker does not know");
        room.shared.stage.link(WEST).unwrap().heal();
        eventually(|| async { room.ours_in(WEST).await.is_empty().then_some(()) }).await;
        room.allow_pods(WEST).await;
        switch(true).await;
        room.job_is(MANAGER, "cleared", "Complete").await;
        room.is_swept().await;
    });
}

/// A moment in the life of a batch.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Submitted,
    Nominated,
    Placed,
    Running,
    Ended,
}

impl Moment {
    /// Waits until some job of the batch is there.
    async fn comes(self, room: Room, batch: &[String]) {
        let reached = || async {
            for name in batch {
                let workload = room.workload(name).await;
                let status = workload.and_then(|workload| workload.status);
                let reached = match self {
                    Self::Submitted => true,
                    Self::Nominated => status.is_some_and(|status| {
                        !status.nominated_cluster_names.is_empty() || status.cluster_name.is_some()
                    }),
                    Self::Placed => status.is_some_and(|status| status.cluster_name.is_some()),
                    Self::Running => self.seen_in_a_worker(room, name, "").await,
                    Self::Ended => self.seen_in_a_worker(room, name, "Complete").await,
                };
                if reached {
                    return Some(());
                }
            }
            None
        };
        // Why no failure: then it has passed, or comes after the kill, and the batch must end all the same.
        let _ = timeout(POINT, eventually(reached)).await;
    }

    async fn seen_in_a_worker(self, room: Room, name: &str, condition: &str) -> bool {
        for worker in [EAST, WEST] {
            if let Ok(job) = room.jobs(worker).get(name).await {
                let runs = job.status.as_ref().is_some_and(|status| status.ready == Some(1));
                if has(&job, condition) || (condition.is_empty() && runs) {
                    return true;
                }
            }
        }
        false
    }
}

/// Submits a batch per moment, kills the processes when it comes, starts them again; then everything must end well.
async fn kill_at_each_moment(room: Room, victims: &[&str], moments: &[Moment]) {
    let mut names = Vec::new();
    for (round, moment) in moments.iter().enumerate() {
        let batch: Vec<String> = (0..BATCH).map(|index| format!("job-{round}-{index}")).collect();
        for name in &batch {
            room.submit(room.job(name, "1", 2)).await;
        }
        moment.comes(room, &batch).await;
        for victim in victims {
            room.shared.stage.kill(victim).unwrap();
        }
        for victim in victims {
            room.shared.stage.restart(victim).await.unwrap();
        }
        names.extend(batch);
    }
    for name in &names {
        room.job_is(MANAGER, name, "Complete").await;
    }
    room.is_swept().await;
}

/// Spec: safety I1, I2, I5, I11, I13; multikueue 10.F11
#[test]
fn a_manager_killed_at_any_moment_loses_nothing_and_runs_nothing_twice() {
    alone("manager-killed", EVEN, |room| async move {
        let moments = [
            Moment::Submitted,
            Moment::Nominated,
            Moment::Placed,
            Moment::Running,
            Moment::Ended,
        ];
        kill_at_each_moment(room, &[MANAGER], &moments).await;
    });
}

/// Spec: safety I1, I2, I5, I13
#[test]
fn workers_killed_at_any_moment_lose_nothing_and_run_nothing_twice() {
    alone("workers-killed", EVEN, |room| async move {
        let moments = [Moment::Nominated, Moment::Placed, Moment::Running, Moment::Ended];
        kill_at_each_moment(room, &[EAST, WEST], &moments).await;
    });
}
