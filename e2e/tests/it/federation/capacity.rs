//! The workers that the capacity dispatcher asks. It is the default if all workers are Roadstead.

use kube::ResourceExt as _;
use roadstead_api::constants::labels::{MULTIKUEUE_ORIGIN, QUEUE_NAME};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use serde_json::{Value, from_value, json};

use super::fixture::{EAST, MANAGER, Room, WEST, beside_others};
use super::watched::Watched;
use crate::shared::eventually;

/// Each of the workers can hold one job of 4 CPU.
const NARROW: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "4"), (WEST, "4")];

/// A job of the worker's own that fills its queue of 4 CPU for so many seconds.
async fn fill(room: Room, worker: &str, seconds: u32) {
    fill_with(room, worker, ("4", seconds)).await;
}

/// A job of the worker's own that asks for so much.
pub(super) async fn fill_with(room: Room, worker: &str, (cpu, seconds): (&str, u32)) {
    let job = room.job("local", cpu, seconds);
    let params = kube::api::PostParams::default();
    room.jobs(worker)
        .create(&params, &from_value(job).unwrap())
        .await
        .unwrap();
    shows_one(room, worker).await;
}

/// Waits until the queue of a worker shows that one Workload holds quota there.
pub(super) async fn shows_one(room: Room, worker: &str) {
    let queues: kube::Api<ClusterQueue> = kube::Api::all(room.shared.client(worker));
    eventually(|| async {
        let status = queues.get(room.name).await.ok()?.status?;
        (status.reserving_workloads == 1).then_some(())
    })
    .await;
}

/// Runs a first job, after which the manager knows that the workers are Roadstead.
async fn get_acquainted(room: Room) {
    room.submit(room.job("first", "1", 1)).await;
    room.job_is(MANAGER, "first", "Complete").await;
    room.is_swept().await;
}

/// Spec: multikueue 4.3, 11.42 (a job of the worker's own), 13.A5
#[test]
fn a_full_worker_does_not_even_see_the_job_that_another_has_room_for() {
    beside_others("room-in-west", NARROW, |room| async move {
        get_acquainted(room).await;
        // East stands first in the config.
        fill(room, EAST, 60).await;
        let seen = Watched::start(&room.workloads(EAST), MULTIKUEUE_ORIGIN).await;
        room.submit(room.job("placed", "3", 1)).await;
        assert_eq!(room.started("placed").await, WEST);
        room.job_is(MANAGER, "placed", "Complete").await;
        room.is_swept().await;
        let asked = seen.created().await;
        assert!(asked.is_empty(), "east was asked for {asked:?}");
    });
}

/// Spec: multikueue 4.3
#[test]
fn when_all_are_full_the_job_waits_in_all_and_goes_where_room_comes_first() {
    beside_others("room-nowhere", NARROW, |room| async move {
        get_acquainted(room).await;
        fill(room, EAST, 600).await;
        fill(room, WEST, 600).await;
        room.submit(room.job("patient", "4", 1)).await;
        let asked = |w: &Workload| {
            w.status
                .as_ref()
                .is_some_and(|s| s.nominated_cluster_names.len() == 2)
        };
        room.workload_where("patient", asked).await;
        let background = kube::api::DeleteParams::background();
        room.jobs(EAST).delete("local", &background).await.unwrap();
        assert_eq!(room.started("patient").await, EAST);
        room.job_is(MANAGER, "patient", "Complete").await;
        room.is_swept().await;
    });
}

/// Spec: multikueue 4.3, 10.F29
#[test]
fn a_worker_without_the_queue_is_not_asked_and_named_when_it_is_the_last() {
    beside_others("no-queue-there", NARROW, |room| async move {
        get_acquainted(room).await;
        let mut queues: Vec<(&str, Value)> = Vec::new();
        for worker in [EAST, WEST] {
            let api = room.api::<LocalQueue>(worker);
            let queue = api.get(room.name).await.unwrap();
            queues.push((worker, serde_json::to_value(&queue.spec).unwrap()));
            api.delete(room.name, &kube::api::DeleteParams::default())
                .await
                .unwrap();
        }
        let gone = || async {
            let east = room.api::<LocalQueue>(EAST).get_opt(room.name).await.ok()?;
            let west = room.api::<LocalQueue>(WEST).get_opt(room.name).await.ok()?;
            (east.is_none() && west.is_none()).then_some(())
        };
        eventually(gone).await;
        room.submit(room.job("homeless", "1", 1)).await;
        let told = |w: &Workload| {
            let checks = w.status.iter().flat_map(|status| &status.admission_checks);
            { checks }.any(|check| check.message.contains("is missing on "))
        };
        let waiting = room.workload_where("homeless", told).await;
        assert_eq!(waiting.labels().get(QUEUE_NAME), None, "{waiting:?}");
        assert!(room.ours_in(EAST).await.is_empty() && room.ours_in(WEST).await.is_empty());
        let (worker, spec) = queues.pop().unwrap();
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": room.name, "namespace": room.name}, "spec": spec,
        });
        roadstead_e2e::stage::apply(&room.shared.client(worker), queue)
            .await
            .unwrap();
        assert_eq!(room.started("homeless").await, worker);
        room.job_is(MANAGER, "homeless", "Complete").await;
    });
}

/// Why a Workload has no quota on the manager: reason and message of condition `QuotaReserved`.
fn held_back(workload: &Workload) -> Option<(&str, &str)> {
    let said = workload
        .condition("QuotaReserved")
        .filter(|said| said.status == "False")?;
    Some((said.reason.as_str(), said.message.as_str()))
}

/// Spec: multikueue 4.3
#[test]
fn a_job_that_is_larger_than_every_worker_holds_no_quota_until_one_of_them_grows() {
    beside_others("larger-than-all", NARROW, |room| async move {
        get_acquainted(room).await;
        room.submit(room.job("huge", "12", 1)).await;
        let huge = room
            .workload_where("huge", |w| {
                held_back(w).is_some_and(|(reason, _)| reason == "ExceedsEveryWorker")
            })
            .await;
        let (_, message) = held_back(&huge).unwrap();
        assert!(message.contains("cpu") && message.contains("12"), "{message}");
        assert!(message.contains('4') && message.contains(EAST), "{message}");
        // Beside its 12 of 16 only one of them would have quota here.
        for job in ["left", "right"] {
            room.submit(room.job(job, "4", 20)).await;
        }
        let (left, right) = tokio::join!(room.started("left"), room.started("right"));
        assert_ne!(left, right);
        assert!(!room.workload("huge").await.unwrap().is_true("QuotaReserved"));
        // What `kubectl get jobs` shows of a job that waits.
        room.job_is(MANAGER, "huge", "Suspended").await;
        let queues: kube::Api<ClusterQueue> = kube::Api::all(room.shared.client(WEST));
        let mut spec = serde_json::to_value(&queues.get(room.name).await.unwrap().spec).unwrap();
        spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!("16");
        let grown = kube::api::Patch::Merge(json!({"spec": spec}));
        queues
            .patch(room.name, &kube::api::PatchParams::default(), &grown)
            .await
            .unwrap();
        assert_eq!(room.started("huge").await, WEST);
        for job in ["left", "right", "huge"] {
            room.job_is(MANAGER, job, "Complete").await;
        }
        room.is_swept().await;
    });
}
