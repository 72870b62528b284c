//! A worker whose etcd has no space left: it answers reads and refuses every write.

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::fixture::{EAST, MANAGER, Room, WEST, alone, condition};

/// East has the most room, so every job is sent there as long as it is healthy. A wide job fits only there.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "16"), (WEST, "4")];
/// etcd's message.
const NO_SPACE: &str = "database space exceeded";
/// How long the failed requests to east are counted.
const LOOKED_AT: Duration = Duration::from_secs(10);
/// Most failed requests: a creation or two of the one job that waits for east. Successful reads must not cause further tries.
const REFUSED_MAX: u64 = 3;

/// Longer than the test.
const LONG_SECS: u32 = 600;

/// Number of ready pods of the kept job, as a cluster shows it.
async fn ready(room: Room, cluster: &str) -> Option<i32> {
    room.jobs(cluster).get("kept").await.ok()?.status?.ready
}

fn says_why(workload: &Workload, words: &str) -> bool {
    json!([workload.status, workload.metadata.annotations])
        .to_string()
        .contains(words)
}

/// Requests to east that failed, from the manager's counters.
async fn refused(room: Room) -> u64 {
    let start = format!("roadstead_cluster_request_errors_total{{cluster=\"{EAST}\"");
    let lines = room.shared.metrics(MANAGER, &start).await;
    let count = |line: &String| line.rsplit(' ').next()?.parse::<u64>().ok();
    lines.iter().filter_map(count).sum()
}

/// Spec: safety F21, I1, I12
#[test]
fn a_worker_whose_etcd_is_full_keeps_its_job_holds_up_nobody_and_is_used_again_when_it_has_space() {
    alone("space", EAST_IS_LARGER, |room| async move {
        let east = room.shared.stage.planes().worker(EAST).unwrap();
        room.submit(room.job("kept", "1", LONG_SECS)).await;
        assert_eq!(room.started("kept").await, EAST);
        room.runs_in(EAST, "kept").await;
        east.fill_storage().await.unwrap();

        room.submit(room.job("wide", "8", 1)).await;
        room.submit(room.job("narrow", "1", 1)).await;
        assert_eq!(room.started("narrow").await, WEST);
        room.job_is(MANAGER, "narrow", "Complete").await;
        room.workload_where("wide", |w| says_why(w, NO_SPACE)).await;
        let before = refused(room).await;
        sleep(LOOKED_AT).await;
        let asked = refused(room).await - before;
        room.shared
            .say(&format!("{asked} requests to a full worker in {LOOKED_AT:?}"));
        assert!(asked <= REFUSED_MAX, "{asked} requests in {LOOKED_AT:?}");

        // Why another job: the manager does not even send it there, and must still explain why.
        room.submit(room.job("later", "6", 1)).await;
        room.workload_where("later", |w| says_why(w, NO_SPACE)).await;

        east.free_storage().await.unwrap();
        assert_eq!(room.started("wide").await, EAST);
        let ended = room.job_is(MANAGER, "wide", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        room.job_is(MANAGER, "later", "Complete").await;

        for cluster in [MANAGER, EAST] {
            assert_eq!(ready(room, cluster).await, Some(1), "it runs on in {cluster}");
        }
        let kept = room.workload("kept").await.unwrap();
        assert_eq!(condition(&kept, "Evicted"), None);
        assert_eq!(kept.annotations().get(DISPATCH_EPOCH), None, "it was sent again");
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("kept", &params).await.unwrap();
        room.is_swept().await;
    });
}
