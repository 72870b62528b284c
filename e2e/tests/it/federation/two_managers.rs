//! Two managers of different origins on one worker: each handles its own objects and ignores the other's.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::stage::SYSTEM_NAMESPACE;
use serde_json::json;

use super::fixture::{EAST, MANAGER, Room, SPARE};
use super::second::{SECOND, enlist, of_its_own, with_second};
use crate::shared::eventually;

/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (SPARE, "8"), (EAST, "8")];
/// The origin of the first manager, which is the default.
const FIRST: &str = "multikueue";

/// Parts of an object that only its manager and its worker may change: its UID, its generation, and whether it is being deleted.
type State = (Option<String>, Option<i64>, bool);

fn state(object: &impl ResourceExt) -> State {
    let meta = object.meta();
    let (uid, generation) = (meta.uid.clone(), meta.generation);
    (uid, generation, meta.deletion_timestamp.is_some())
}

/// The objects of the manager with this origin in east, by job.
async fn belongings(room: Room, origin: &str) -> BTreeMap<String, State> {
    let ours = ListParams::default().labels(&format!("{MULTIKUEUE_ORIGIN}={origin}"));
    let jobs = room.jobs(EAST).list(&ours).await.unwrap();
    let copies = room.workloads(EAST).list(&ours).await.unwrap();
    let jobs = jobs
        .iter()
        .map(|job| (format!("job {}", job.name_any()), state(job)));
    let copies = { copies.iter() }.map(|copy| (format!("workload {}", copy.name_any()), state(copy)));
    jobs.chain(copies).collect()
}

/// What is of this job; the name of its Workload begins with the job's.
async fn of_job(room: Room, origin: &str, job: &str) -> BTreeMap<String, State> {
    let (itself, copy) = (format!("job {job}"), format!("workload job-{job}-"));
    let mut all = belongings(room, origin).await;
    all.retain(|name, _| *name == itself || name.starts_with(&copy));
    all
}

/// Waits until nothing of a job is left in east of this origin.
async fn is_swept_of(room: Room, origin: &str, job: &str) {
    eventually(|| async { of_job(room, origin, job).await.is_empty().then_some(()) }).await;
}

/// The job was sent once and never taken from its worker.
async fn was_sent_once(room: Room, job: &str) {
    let workload = room.workload(job).await.unwrap();
    assert_eq!(
        workload.annotations().get(DISPATCH_EPOCH),
        None,
        "{:?}",
        workload.status
    );
}

async fn holder(room: Room, lease: &str) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(room.shared.client(EAST), SYSTEM_NAMESPACE);
    leases.get(lease).await.unwrap().spec?.holder_identity
}

fn says_name_taken(workload: &Workload) -> bool {
    let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
    let words = "cluster \"east\" has an object of the same name that is not ours";
    { checks }.any(|check| check.message.contains(words))
}

/// The jobs run through several rounds of collection, which come each 3 s.
///
/// Spec: safety 3.8, I5, I7, W10; multikueue 6, 10.F21, 11.81
#[test]
fn two_managers_of_different_origins_share_a_worker_and_touch_only_their_own() {
    let second = of_its_own(json!({}));
    with_second("two-managers", EAST_ONLY, second, |first, second| async move {
        enlist(second, &[EAST]).await;
        let holders = [
            holder(first, "roadstead-multikueue").await,
            holder(first, "roadstead-second").await,
        ];
        assert!(holders[0].is_some() && holders[1].is_some() && holders[0] != holders[1]);

        first.submit(first.job("twin", "1", 600)).await;
        first.submit(first.job("stays", "1", 600)).await;
        first.submit(first.job("mine", "1", 8)).await;
        second.submit(second.job("theirs", "1", 8)).await;
        for job in ["twin", "stays", "mine", "theirs"] {
            assert_eq!(first.started(job).await, EAST);
        }
        let twin = of_job(first, FIRST, "twin").await;
        let stays = of_job(first, FIRST, "stays").await;
        assert_eq!((twin.len(), stays.len()), (2, 2));

        // Its name is taken by the first's in the only worker that the second has.
        second.submit(second.job("twin", "1", 1)).await;
        second.workload_where("twin", says_name_taken).await;
        assert_eq!(of_job(first, FIRST, "twin").await, twin);
        let params = DeleteParams::background();
        first.jobs(MANAGER).delete("twin", &params).await.unwrap();
        is_swept_of(first, FIRST, "twin").await;

        for (room, origin, job) in [
            (first, FIRST, "mine"),
            (second, SECOND, "theirs"),
            (second, SECOND, "twin"),
        ] {
            room.job_is(room.manager, job, "Complete").await;
            is_swept_of(room, origin, job).await;
        }
        for (room, job) in [(first, "mine"), (second, "theirs")] {
            was_sent_once(room, job).await;
        }
        assert_eq!(of_job(first, FIRST, "stays").await, stays);
        first.jobs(MANAGER).delete("stays", &params).await.unwrap();
        first.is_swept().await;
    });
}
