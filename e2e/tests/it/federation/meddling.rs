//! Another client keeps editing the manager's objects on a worker and in its own cluster.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_api::kueue::v1beta2::Workload;
use serde_json::{Value, json};

use super::fixture::{EAST, MANAGER, Room, beside_others};
use super::watched::Watched;
use crate::shared::eventually;

/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// Between two edits: fifty in a second, if the servers keep up.
const PAUSE: Duration = Duration::from_millis(20);
const JOBS: usize = 4;

async fn edit<K>(api: Api<K>, name: &str, patch: Value, edits: &AtomicU32)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    // Why ignored: the object may be gone by now.
    if api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .is_ok()
    {
        edits.fetch_add(1, Ordering::Relaxed);
    }
}

/// Labels and annotations of all jobs and Workloads in both clusters, and the priority of the copies.
async fn meddle(room: Room, edits: &AtomicU32) {
    let all = ListParams::default();
    for number in 1_u32.. {
        for cluster in [MANAGER, EAST] {
            let mark = json!({"labels": {"meddler": number.to_string()}, "annotations": {"meddler": number.to_string()}});
            for job in room.jobs(cluster).list(&all).await.unwrap() {
                let patch = json!({ "metadata": mark });
                edit::<Job>(room.jobs(cluster), &job.name_any(), patch, edits).await;
                tokio::time::sleep(PAUSE).await;
            }
            for workload in room.workloads(cluster).list(&all).await.unwrap() {
                let mut patch = json!({ "metadata": mark });
                if cluster == EAST {
                    patch["spec"] = json!({"priority": number % 1000});
                }
                edit::<Workload>(room.workloads(cluster), &workload.name_any(), patch, edits).await;
                tokio::time::sleep(PAUSE).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Spec: safety F16, I1, I2
#[test]
fn jobs_that_are_edited_all_the_time_end_once_each_and_what_was_said_of_a_copy_is_set_right() {
    beside_others("meddling", EAST_ONLY, |room| async move {
        let seen = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        let edits = AtomicU32::new(0);
        let names: Vec<String> = (0..JOBS).map(|index| format!("edited-{index}")).collect();
        room.submit(room.job("stays", "1", 600)).await;
        let work = async {
            for name in &names {
                room.submit(room.job(name, "1", 3)).await;
            }
            for name in &names {
                let ended = room.job_is(MANAGER, name, "Complete").await;
                assert_eq!(ended.status.unwrap().succeeded, Some(1), "{name}");
            }
            assert_eq!(room.started("stays").await, EAST);
            eventually(|| async { (edits.load(Ordering::Relaxed) >= 100).then_some(()) }).await;
        };
        tokio::select! {
            () = meddle(room, &edits) => {}
            () = work => {}
        }
        let workload = room.workload("stays").await.unwrap();
        let copy = workload.name_any();
        eventually(|| async {
            let copy = room.workloads(EAST).get(&copy).await.ok()?;
            (copy.spec.priority == workload.spec.priority).then_some(())
        })
        .await;
        let mut created = seen.created().await;
        created.sort();
        let mut all = names;
        all.push("stays".to_owned());
        assert_eq!(created, all, "each was created once");
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("stays", &params).await.unwrap();
        room.is_swept().await;
    });
}
