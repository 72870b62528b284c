//! A worker whose engine or API server is frozen for longer than its lease, under policy `Fence`.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::{DISPATCH_EPOCH, FENCED};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_e2e::link::Cut;
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, EAST_IS_LARGER, LONG_SECS, MANAGER, Room, WEST, alone, cluster_name, condition};
use super::once::{annotation, copy, guarded, lost_policy, obedient, runs};
use super::unheard::end;
use super::unsure::active;
use crate::shared::eventually;

/// Longer than the manager would wait for a fence, which is one and a half leases of ten seconds.
const PAST_EVERYTHING: Duration = Duration::from_secs(25);
/// Longer than a lease of ten seconds, and less than the manager would wait for a fence.
const PAST_THE_LEASE: Duration = Duration::from_secs(14);

/// Runs a job in east that the engine there must stop when it does not hear of the manager.
async fn runs_in_east(room: Room, job: &str) {
    eventually(|| async { active(room).await.filter(|(status, _)| status == "True") }).await;
    lost_policy(room, "Fence").await;
    room.submit(obedient(room.job(job, "1", LONG_SECS))).await;
    assert_eq!(room.started(job).await, EAST);
    room.runs_in(EAST, job).await;
    guarded(room, EAST).await;
}

/// Watches for longer than the manager would wait for a fence: the job runs on in east, as its jobs show, and in no other worker.
async fn stays(room: Room, job: &str, in_east: &Api<Job>) {
    let until = Instant::now() + PAST_EVERYTHING;
    while Instant::now() < until {
        assert!(runs(&in_east.get(job).await.unwrap()), "nobody stops it");
        let next = room.jobs(WEST).get_opt(job).await.unwrap();
        assert!(next.is_none(), "it is sent to west while it runs in east");
        sleep(Duration::from_millis(250)).await;
    }
    let now = room.workload(job).await.unwrap();
    assert_eq!(cluster_name(&now).as_deref(), Some(EAST));
    assert!(condition(&now, "Evicted").is_none(), "{:?}", now.status);
}

/// Waits until the job is stopped or gone in east. Until then it runs in no other worker.
async fn stops(room: Room, job: &str) {
    eventually(|| async {
        let old = room.jobs(EAST).get_opt(job).await.unwrap();
        let next = room.jobs(WEST).get_opt(job).await.unwrap();
        let goes_on = old.as_ref().is_some_and(|old| runs(old) && first_run(old));
        assert!(!goes_on || next.is_none_or(|next| !runs(&next)), "it runs twice");
        (!goes_on).then_some(())
    })
    .await;
}

fn first_run(job: &Job) -> bool {
    annotation(job, DISPATCH_EPOCH).as_deref() != Some("2")
}

/// The first run was stopped. The second ends normally, and there is no third.
async fn ends_in_its_second_run(room: Room, job: &str) {
    let again =
        |w: &Workload| annotation(w, DISPATCH_EPOCH).as_deref() == Some("2") && cluster_name(w).is_some();
    let place = cluster_name(&room.workload_where(job, again).await).unwrap();
    eventually(|| async {
        let next = room.jobs(&place).get_opt(job).await.unwrap()?;
        (annotation(&next, DISPATCH_EPOCH).as_deref() == Some("2")).then_some(())
    })
    .await;
    end(room, &place, job).await;
    let ended = room.job_is(MANAGER, job, "Complete").await;
    assert_eq!(ended.status.unwrap().succeeded, Some(1));
    room.is_swept().await;
}

/// Waits until the manager says this of the fence of east.
async fn fence(room: Room, reason: &str) {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    eventually(|| async {
        let conditions = clusters.get(EAST).await.unwrap().status?.conditions;
        let mut fences = conditions.iter().filter(|each| each.type_ == "WorkerFence");
        fences.any(|each| each.reason == reason).then_some(())
    })
    .await;
}

/// Spec: safety 3.3, 3.5, 3.6, F2, F7, I1
#[test]
fn a_worker_whose_engine_stands_still_keeps_its_job_when_it_is_lost() {
    alone("frozen-engine", EAST_IS_LARGER, |room| async move {
        runs_in_east(room, "stays").await;
        let stage = &room.shared.stage;
        stage.pause(EAST).unwrap();
        fence(room, "EngineSilent").await;
        stage.link(EAST).unwrap().cut(Cut::Refuse);
        stays(room, "stays", &room.jobs(EAST)).await;
        // The engine continues with a lease that is long over.
        stage.resume(EAST).unwrap();
        stops(room, "stays").await;
        stage.link(EAST).unwrap().heal();
        ends_in_its_second_run(room, "stays").await;
    });
}

/// For longer than the lease, and not so long that the manager would count on the fence: from outside, a server that stands still cannot
/// be told from one that is cut off. Whether the engine hears of the next renewal first, or stops the job, is all the same.
///
/// Spec: safety 3.3, 3.4, F5, I1, I11
#[test]
fn a_job_ends_once_in_a_worker_whose_api_server_stood_still_past_its_lease() {
    alone("frozen-server", EAST_IS_LARGER, |room| async move {
        runs_in_east(room, "survivor").await;
        let east = room.shared.stage.planes().worker(EAST).unwrap();
        let frozen = Instant::now();
        east.pause().unwrap();
        while frozen.elapsed() < PAST_THE_LEASE {
            assert!(room.jobs(WEST).get_opt("survivor").await.unwrap().is_none());
            sleep(Duration::from_millis(250)).await;
        }
        east.resume().unwrap();
        fence(room, "Fencing").await;
        // The observer looks on: it never runs in two places.
        let place = eventually(|| async {
            active(room).await.filter(|(status, _)| status == "True")?;
            let workload = room.workload("survivor").await?;
            let place = cluster_name(&workload).filter(|_| !workload.is_true("Evicted"))?;
            let fenced = copy(room, &place, "survivor")
                .await?
                .annotations()
                .contains_key(FENCED);
            let runs = room.jobs(&place).get_opt("survivor").await.ok()??.status?.ready == Some(1);
            (runs && !fenced).then_some(place)
        })
        .await;
        end(room, &place, "survivor").await;
        let ended = room.job_is(MANAGER, "survivor", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        room.is_swept().await;
    });
}
