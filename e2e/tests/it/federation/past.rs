//! API servers that show the past, because they lag behind their etcd, or that forget it at once.

use std::future::ready;
use std::net::SocketAddr;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, ResourceExt};
use roadstead_api::constants::annotations::EXPLANATION;
use roadstead_api::constants::labels::{MULTIKUEUE_ORIGIN, PREBUILT_WORKLOAD_NAME};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::link::{Cut, Failing};
use serde_json::{from_value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, MANAGER, Room, WEST, alone, has, was_sent_once};
use super::stale::is_held_in_east;
use crate::shared::eventually;

/// East has the most room, so every job is sent there as long as it is healthy. A wide job fits only there.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "16"), (WEST, "4")];
/// How long all connections are refused when the manager is led to another server.
const CUT: Duration = Duration::from_millis(100);
/// One place in each worker.
const TIGHT: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "1"), (WEST, "1")];
/// Longer than a test.
const LONG_SECS: u32 = 600;
/// Longer than a lease, and than the time after which leftovers are collected.
const LOOKED_AT: Duration = Duration::from_secs(15);

/// An API server that remembers nothing itself, has etcd forget what is older than a second or two, and ends watches soon.
const FORGETFUL: &[&str] = &[
    "--watch-cache=false",
    "--etcd-compaction-interval=1s",
    "--min-request-timeout=1",
];
/// A flag without effect. A server that is restarted for it remembers nothing from before its start.
const ANEW: &[&str] = &["--watch-cache=true"];
/// HTTP status of a resource version that the API server no longer knows.
const GONE: u16 = 410;
/// In the words of an API server, of a token for the next page.
const EXPIRED: &str = "continue parameter is too old";
/// More jobs than the manager asks for at once.
const LEFTOVERS: usize = 520;
/// Delay of an answer: longer than etcd keeps a version.
const LATE: Duration = Duration::from_secs(4);

/// Whether the workload is still in its first run, in east.
async fn is_kept(room: Room, job: &str) -> bool {
    let workload = room.workload(job).await.unwrap();
    is_held_in_east(&workload) && was_sent_once(&workload)
}

/// Looks on for a while: one job stays in its first run in east, and another has ended.
async fn nothing_moves(room: Room) {
    let until = Instant::now() + LOOKED_AT;
    while Instant::now() < until {
        assert!(is_kept(room, "kept").await, "{:?}", room.workload("kept").await);
        assert!(room.jobs(WEST).get_opt("kept").await.unwrap().is_none());
        let ended = room.jobs(MANAGER).get("ended").await.unwrap();
        assert!(has(&ended, "Complete"), "{:?}", ended.status);
        sleep(Duration::from_millis(250)).await;
    }
}

/// Leads the manager to another API server of east.
async fn lead(room: Room, server: SocketAddr) {
    let link = room.shared.stage.link(EAST).unwrap();
    link.reroute(server);
    link.cut(Cut::Refuse);
    // Why: connections that the cut has not reset yet would stay with the old server.
    sleep(CUT).await;
    link.heal();
}

/// The same, and starts it again so that it knows nothing itself.
async fn restart_against(room: Room, server: SocketAddr) {
    room.shared.stage.kill(MANAGER).unwrap();
    lead(room, server).await;
    room.shared.stage.restart(MANAGER).await.unwrap();
}

/// A manager that is started again meets an API server that shows a past in which one job did not exist yet and another still ran.
///
/// Spec: safety F13, I1, I6, I12
#[test]
fn an_api_server_that_lags_behind_its_etcd_moves_no_job() {
    alone("lagging", EAST_IS_LARGER, |room| async move {
        let east = room.shared.stage.planes().worker(EAST).unwrap();
        let second = east.second_server().await.unwrap();
        let seen: Api<Job> = Api::namespaced(second.client(), room.name);
        let at_any_version = ListParams::default().match_any();
        room.submit(room.job("ended", "1", 6)).await;
        assert_eq!(room.started("ended").await, EAST);
        eventually(|| async { seen.list(&at_any_version).await.ok()?.items.pop() }).await;
        second.fall_behind();
        room.job_is(MANAGER, "ended", "Complete").await;
        room.submit(room.job("kept", "8", LONG_SECS)).await;
        assert_eq!(room.started("kept").await, EAST);
        room.workload_where("kept", is_held_in_east).await;
        let kept = room.jobs(EAST).get("kept").await.unwrap().uid();

        restart_against(room, second.address()).await;
        let past = seen.list(&at_any_version).await.unwrap();
        let names: Vec<_> = past.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["ended"], "it shows the past");
        assert!(!has(&past.items[0], "Complete"), "it shows the past");
        room.submit(room.job("meanwhile", "1", 1)).await;
        assert_eq!(room.started("meanwhile").await, WEST);
        room.job_is(MANAGER, "meanwhile", "Complete").await;
        nothing_moves(room).await;

        lead(room, east.address()).await;
        room.submit(room.job("afterwards", "6", 1)).await;
        assert_eq!(room.started("afterwards").await, EAST);
        room.job_is(MANAGER, "afterwards", "Complete").await;
        let now = room.jobs(EAST).get("kept").await.unwrap();
        assert_eq!(now.uid(), kept);
        assert_ne!(now.spec.unwrap().suspend, Some(true));
        assert!(is_kept(room, "kept").await);
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("kept", &params).await.unwrap();
        room.is_swept().await;
    });
}

/// An API server stands still for a while, and goes on with what it knew then: one job did not exist yet, and another still ran.
///
/// Spec: safety F13, F5, I1, I6, I12
#[cfg(feature = "nightly")]
#[test]
fn an_api_server_that_stood_still_and_goes_on_moves_no_job() {
    alone("stood-still", EAST_IS_LARGER, |room| async move {
        let east = room.shared.stage.planes().worker(EAST).unwrap();
        let second = east.second_server().await.unwrap();
        restart_against(room, second.address()).await;
        room.submit(room.job("ended", "6", 6)).await;
        assert_eq!(room.started("ended").await, EAST);
        room.runs_in(MANAGER, "ended").await;
        second.pause().unwrap();
        lead(room, east.address()).await;
        room.job_is(MANAGER, "ended", "Complete").await;
        room.submit(room.job("kept", "6", LONG_SECS)).await;
        assert_eq!(room.started("kept").await, EAST);
        room.workload_where("kept", is_held_in_east).await;
        let kept = room.jobs(EAST).get("kept").await.unwrap().uid();

        lead(room, second.address()).await;
        second.resume().unwrap();
        room.shared.stage.restart(MANAGER).await.unwrap();
        nothing_moves(room).await;
        room.submit(room.job("afterwards", "6", 1)).await;
        assert_eq!(room.started("afterwards").await, EAST);
        room.ran_once("afterwards").await;
        assert_eq!(room.jobs(EAST).get("kept").await.unwrap().uid(), kept);
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("kept", &params).await.unwrap();
        room.is_swept().await;
        lead(room, east.address()).await;
    });
}

/// The copy in east of a job that waits.
async fn copy_in_east(room: Room, job: &str) -> Option<Workload> {
    let name = room.workload(job).await?.name_any();
    room.workloads(EAST).get_opt(&name).await.unwrap()
}

/// Whether a watch from this version is answered with 410.
async fn is_forgotten(room: Room, version: &str) -> bool {
    let watch = room
        .workloads(EAST)
        .watch(&WatchParams::default().timeout(5), version)
        .await;
    let mut events = match watch {
        Ok(events) => Box::pin(events),
        Err(kube::Error::Api(status)) => return status.code == GONE,
        Err(error) => panic!("{error}"),
    };
    matches!(events.next().await, Some(Ok(WatchEvent::Error(status))) if status.code == GONE)
}

/// A copy in east is deleted while the manager is cut off, and east has forgotten when by the time it is back.
async fn is_deleted_unseen(room: Room, flags: &'static [&'static str]) {
    for job in ["fills-0", "fills-1"] {
        room.submit(room.job(job, "1", 600)).await;
    }
    for job in ["fills-0", "fills-1"] {
        room.started(job).await;
    }
    room.submit(room.job("waits", "1", 1)).await;
    let first = eventually(|| copy_in_east(room, "waits")).await;
    let (stage, copies) = (&room.shared.stage, room.workloads(EAST));
    stage.link(EAST).unwrap().cut(Cut::Refuse);
    let known = copies.list(&ListParams::default()).await.unwrap();
    let known = known.metadata.resource_version.unwrap();
    let name = first.name_any();
    copies.delete(&name, &DeleteParams::background()).await.unwrap();
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // Why whatever the answer: its engine may have let it go by now.
    let _ = copies.patch(&name, &PatchParams::default(), &bare).await;
    let gone = || async { copies.get_opt(&name).await.ok()?.is_none().then_some(()) };
    eventually(gone).await;
    let east = stage.planes().worker(EAST).unwrap();
    east.serve_with(flags).await.unwrap();
    // Not at once: first it says that it is not ready for watches.
    eventually(|| async { is_forgotten(room, &known).await.then_some(()) }).await;

    stage.link(EAST).unwrap().heal();
    let second = eventually(|| async {
        let copy = copy_in_east(room, "waits").await?;
        (copy.metadata.deletion_timestamp.is_none()).then_some(copy)
    })
    .await;
    assert_ne!(second.uid(), first.uid());
    for job in ["fills-0", "fills-1"] {
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete(job, &params).await.unwrap();
    }
    room.job_is(MANAGER, "waits", "Complete").await;
    room.is_swept().await;
}

/// Spec: safety F14
#[test]
fn what_was_deleted_before_a_worker_was_started_anew_is_noticed() {
    alone("forgotten", TIGHT, |room| is_deleted_unseen(room, ANEW));
}

/// Spec: safety F14
#[cfg(feature = "nightly")]
#[test]
fn what_was_deleted_in_a_worker_whose_etcd_is_compacted_each_second_is_noticed() {
    alone("compacted", TIGHT, |room| is_deleted_unseen(room, FORGETFUL));
}

/// A job in east that a manager sent there and knows nothing of any more.
fn leftover(index: usize) -> Job {
    let name = format!("leftover-{index}");
    from_value(json!({
        "metadata": {
            "name": name,
            "labels": {MULTIKUEUE_ORIGIN: "multikueue", PREBUILT_WORKLOAD_NAME: name},
        },
        "spec": {
            "suspend": true,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "registry.example/main"}],
            }},
        },
    }))
    .unwrap()
}

/// Lists of several pages: by the time the second is asked for, the version of the first is compacted away.
///
/// Spec: safety F14
#[test]
fn a_list_whose_next_page_has_expired_is_begun_again() {
    alone("pages", EAST_IS_LARGER, |room| async move {
        let stage = &room.shared.stage;
        let east = stage.planes().worker(EAST).unwrap();
        east.serve_with(FORGETFUL).await.unwrap();
        room.submit(room.job("kept", "8", LONG_SECS)).await;
        room.workload_where("kept", is_held_in_east).await;
        stage.kill(MANAGER).unwrap();
        stream::iter(0..LEFTOVERS)
            .map(|index| async move {
                let (jobs, job) = (room.jobs(EAST), leftover(index));
                jobs.create(&PostParams::default(), &job).await.unwrap();
            })
            .buffer_unordered(8)
            .for_each(ready)
            .await;

        stage.link(EAST).unwrap().fail(Failing::LateLists(LATE));
        stage.restart(MANAGER).await.unwrap();
        let is_unreadable = |workload: &Workload| {
            let record = workload.annotations().get(EXPLANATION);
            record
                .is_some_and(|record| record.contains("KindNotReadableOnCluster") && record.contains(EXPIRED))
        };
        room.workload_where("kept", is_unreadable).await;
        assert!(is_kept(room, "kept").await);
        stage.link(EAST).unwrap().heal();
        room.submit(room.job("afterwards", "6", 1)).await;
        assert_eq!(room.started("afterwards").await, EAST);
        room.job_is(MANAGER, "afterwards", "Complete").await;
        assert!(is_kept(room, "kept").await);
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("kept", &params).await.unwrap();
        // Those of the second page are collected too.
        room.is_swept().await;
    });
}
